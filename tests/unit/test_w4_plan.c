/* SPDX-License-Identifier: Apache-2.0
 * Schedules of the Hopper W4 kernels: pure functions, held to the choices measured on 132
 * multiprocessors and to the invariants the kernels rely on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan/w4_cluster.h"

static void splits_of_qwen3_4b(void **state)
{
    (void)state;
    static const struct {
        int64_t n_in, n_out;
        int split_16, split_32;
    } rows[] = {
        {2560, 4096, 4, 4}, {2560, 1024, 8, 8}, {4096, 2560, 8, 4},  {2560, 9728, 4, 2},
        {9728, 2560, 8, 4}, {2560, 6144, 4, 2}, {2560, 19456, 2, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct brim_w4_cluster_plan narrow =
            brim_w4_cluster_plan_make(16, rows[i].n_in, rows[i].n_out, 132);
        struct brim_w4_cluster_plan wide =
            brim_w4_cluster_plan_make(32, rows[i].n_in, rows[i].n_out, 132);
        assert_int_equal(narrow.split, rows[i].split_16);
        assert_int_equal(wide.split, rows[i].split_32);
    }
}

static void every_cta_has_work(void **state)
{
    (void)state;
    for (int64_t n_row = 1; n_row <= 70; n_row++) {
        for (int64_t n_in = 32; n_in <= 4096; n_in += 352) {
            for (int64_t n_out = 1; n_out <= 9000; n_out = n_out * 3 + 5) {
                struct brim_w4_cluster_plan c = brim_w4_cluster_plan_make(n_row, n_in, n_out, 132);
                assert_true(c.split <= c.n_unit);
                assert_true(c.split == 1 || c.split == 2 || c.split == 4 || c.split == 8);
                assert_true(c.n_tile_out * 64 * c.n_slab >= n_out);
                assert_true(c.n_tile_token * c.n_token >= n_row);
                assert_true(c.n_unit * 128 >= n_in);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_of_qwen3_4b),
        cmocka_unit_test(every_cta_has_work),
    };
    return cmocka_run_group_tests_name("w4_plan", tests, NULL, NULL);
}
