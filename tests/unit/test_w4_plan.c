/* SPDX-License-Identifier: Apache-2.0
 * Schedules of the Hopper W4 kernels: pure functions, held to the choices measured on 132
 * multiprocessors and to the invariants the kernels rely on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "plan/w4_hopper.h"

/* A tile of all rows up to 128, no more CTAs than a wave holds, the whole machine nearly busy. */
static void plans_of_qwen3_4b(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{2560, 4096}, {2560, 1024}, {4096, 2560}, {2560, 9728},
                                        {9728, 2560}, {2560, 6144}, {2560, 19456}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int64_t n_row = 9; n_row <= 128; n_row++) {
            struct brim_w4_cluster_plan p =
                brim_w4_cluster_plan_make(n_row, shapes[i][0], shapes[i][1], 132);
            int64_t n_cta = p.n_tile_out * p.n_tile_token * p.split;
            assert_int_equal(p.n_tile_token, 1);
            assert_true(p.n_token >= n_row && p.n_token < n_row + 16);
            assert_in_range(n_cta, 64, 132 * p.n_resident);
        }
    }
}

static void check_cluster_plan(int64_t n_row, int64_t n_in, int64_t n_out)
{
    struct brim_w4_cluster_plan c = brim_w4_cluster_plan_make(n_row, n_in, n_out, 132);
    assert_in_range(c.split, 1, c.n_unit < 8 ? c.n_unit : 8);
    assert_in_range(c.n_slab * c.n_part, 1, brim_w4_cluster_max_warpgroups(c.n_token));
    assert_true(c.n_tile_out * 64 * c.n_slab >= n_out);
    assert_true(c.n_tile_token * c.n_token >= n_row);
    assert_true(c.n_unit * 128 >= n_in);
    for (int group = 32; group <= 128; group *= 2) {
        for (int bytes = 2; bytes <= 4; bytes += 2) {
            struct brim_w4_cluster_layout l = brim_w4_cluster_lay_out(&c, group, bytes);
            int64_t n_panel = (c.n_unit + c.split - 1) / c.split;
            int n_warp = c.n_slab * c.n_part * 4;
            assert_in_range(l.n_stage, 1, BRIM_W4_CLUSTER_STAGES);
            assert_true(l.n_stage >= n_panel ||
                        (l.n_stage >= 2 * c.n_part && l.n_stage % c.n_part == 0));
            assert_true((l.n_byte + 2048) * c.n_resident <= 228 * 1024);
            /* nothing overlaps but the join that waits for it */
            int used = l.n_stage * c.n_token * 256 + n_warp * l.warp_bytes;
            assert_true(l.join_at == 0 || l.join_at >= used);
            assert_true(l.n_byte >= l.join_at + c.split * l.n_own * 512);
            assert_true(l.n_own * c.split >= c.n_slab * c.n_token / 2);
            assert_true(c.n_part == 1 || l.warp_bytes >= c.n_token * 64);
        }
    }
}

static void every_cta_has_work(void **state)
{
    (void)state;
    for (int64_t n_row = 1; n_row <= 300; n_row += n_row < 20 ? 1 : 13) {
        for (int64_t n_in = 32; n_in <= 4096; n_in += 352) {
            for (int64_t n_out = 1; n_out <= 9000; n_out = n_out * 3 + 5) {
                check_cluster_plan(n_row, n_in, n_out);
            }
        }
    }
    check_cluster_plan(128, 9728, 2560);
    check_cluster_plan(128, 2560, 151936);
}

/* One kernel for every row count, its own plan, and a line that names it. */
static void hopper_choice(void **state)
{
    (void)state;
    enum brim_w4_hopper_kernel before = BRIM_W4_KERNEL_GEMV;
    for (int64_t n_row = 1; n_row <= 300; n_row++) {
        struct brim_w4_hopper_plan p = brim_w4_hopper_plan_make(n_row, 2560, 4096, 132);
        assert_true(p.kernel >= before); /* each takes over once */
        before = p.kernel;
        assert_int_equal(p.kernel == BRIM_W4_KERNEL_GEMV, n_row <= BRIM_W4_GEMV_ROWS);
        assert_true(brim_w4_hopper_plan_ctas(&p) >= 64);
        char text[96], cut[8];
        const char *const names[] = {
            n_row <= 2 ? "gemv int8: " : "gemv: ", "cluster: ", "stream: "};
        size_t len = brim_w4_hopper_plan_print(&p, text, sizeof text);
        assert_int_equal(len, strlen(text));
        assert_memory_equal(text, names[p.kernel], strlen(names[p.kernel]));
        assert_int_equal(brim_w4_hopper_plan_print(&p, cut, sizeof cut), len);
        assert_memory_equal(cut, text, sizeof cut - 1);
        assert_int_equal(cut[sizeof cut - 1], 0);
    }
    assert_int_equal(before, BRIM_W4_KERNEL_STREAM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_of_qwen3_4b),
        cmocka_unit_test(every_cta_has_work),
        cmocka_unit_test(hopper_choice),
    };
    return cmocka_run_group_tests_name("w4_plan", tests, NULL, NULL);
}
