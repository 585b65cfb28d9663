/* SPDX-License-Identifier: Apache-2.0
 * The schedule of the W4 kernel for few rows: what the kernel relies on, for shapes of every kind,
 * and the choices for Qwen3-4B on 132 multiprocessors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan/w4_gemv.h"

static void invariants(void **state)
{
    (void)state;
    for (int n_sm = 1; n_sm <= 264; n_sm += 131) {
        for (int64_t n_in = 32; n_in <= 20000; n_in = n_in * 3 / 2 + 32) {
            for (int64_t n_out = 1; n_out <= 200000; n_out = n_out * 2 + 5) {
                struct brim_w4_gemv_plan p = brim_w4_gemv_plan_make(1, n_in, n_out, n_sm);
                assert_in_range(p.n_pair, 1, 12);
                assert_in_range(p.n_part, 1, 12);
                assert_in_range(p.n_pair * p.n_part, 1, BRIM_W4_GEMV_WARPS);
                assert_true(p.split == 1 || p.split == 2 || p.split == 4 || p.split == 8);
                assert_in_range(p.split * p.n_part, 1, p.n_unit);
                assert_true(p.n_unit * 128 >= n_in && (p.n_unit - 1) * 128 < n_in);
                assert_true(p.n_cta % p.split == 0);
                int64_t covered = p.n_cta / p.split * p.n_pair * 32;
                assert_true(covered >= n_out && covered - n_out < p.n_pair * 32);
                int64_t n_all = (int64_t)p.split * p.n_part;
                assert_int_equal(brim_w4_gemv_part(&p, 0), 0);
                assert_int_equal(brim_w4_gemv_part(&p, n_all), p.n_unit);
                for (int64_t i = 0; i < n_all; i++) {
                    int64_t n = brim_w4_gemv_part(&p, i + 1) - brim_w4_gemv_part(&p, i);
                    assert_in_range(n, p.n_unit / n_all, (p.n_unit + n_all - 1) / n_all);
                }
            }
        }
    }
}

static void choices_of_qwen3_4b(void **state)
{
    (void)state;
    static const struct {
        int64_t n_in, n_out;
        int n_pair, n_part, split;
        int64_t n_cta;
    } rows[] = {
        {2560, 4096, 1, 10, 1, 128}, {2560, 1024, 1, 10, 2, 64},   {4096, 2560, 1, 11, 1, 80},
        {2560, 9728, 3, 4, 1, 102},  {9728, 2560, 3, 4, 4, 108},   {2560, 6144, 1, 10, 1, 192},
        {2560, 19456, 3, 4, 1, 203}, {2560, 151936, 6, 2, 1, 792},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct brim_w4_gemv_plan p = brim_w4_gemv_plan_make(3, rows[i].n_in, rows[i].n_out, 132);
        assert_int_equal(p.n_pair, rows[i].n_pair);
        assert_int_equal(p.n_part, rows[i].n_part);
        assert_int_equal(p.split, rows[i].split);
        assert_int_equal(p.n_cta, rows[i].n_cta);
        assert_int_equal(p.kernel, BRIM_W4_GEMV_BF16);
    }
}

/* One schedule for all rows; the integer kernel for one and two of them, unless x is too long. */
static void kernels_by_rows(void **state)
{
    (void)state;
    for (int64_t n_in = 32; n_in <= 2560 * 64; n_in *= 4) {
        const struct brim_w4_gemv_plan eight = brim_w4_gemv_plan_make(8, n_in, 2560, 132);
        for (int64_t n_row = 1; n_row <= 8; n_row++) {
            struct brim_w4_gemv_plan p = brim_w4_gemv_plan_make(n_row, n_in, 2560, 132);
            assert_int_equal(p.kernel, n_row <= 2 ? BRIM_W4_GEMV_INT8 : BRIM_W4_GEMV_BF16);
            assert_int_equal(p.n_pair, eight.n_pair);
            assert_int_equal(p.n_part, eight.n_part);
            assert_int_equal(p.split, eight.split);
            assert_int_equal(p.n_cta, eight.n_cta);
        }
    }
    assert_int_equal(brim_w4_gemv_plan_make(1, 24576 * 8, 32, 132).kernel, BRIM_W4_GEMV_INT8);
    assert_int_equal(brim_w4_gemv_plan_make(1, 24576 * 8 + 1, 32, 132).kernel, BRIM_W4_GEMV_BF16);
}

/* In a chain: what was measured for one and two rows of Qwen3-4B, within the kernel's limits. */
static void links_of_a_chain(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {
        {2560, 6144}, {4096, 2560}, {2560, 19456}, {9728, 2560}, {4096, 2561}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int64_t n_row = 1; n_row <= 8; n_row++)
            for (int n_sm = 131; n_sm <= 132; n_sm++) {
                struct brim_w4_gemv_plan p =
                    brim_w4_gemv_plan_chain(n_row, shapes[i][0], shapes[i][1], n_sm);
                struct brim_w4_gemv_plan alone =
                    brim_w4_gemv_plan_make(n_row, shapes[i][0], shapes[i][1], n_sm);
                bool found = i >= 1 && i <= 3 && n_row <= 2 && n_sm == 132;
                assert_int_equal(p.depth != 0, found);
                if (!found) {
                    assert_int_equal(p.n_pair, alone.n_pair);
                    assert_int_equal(p.n_part, alone.n_part);
                    assert_int_equal(p.n_cta, alone.n_cta);
                }
                assert_int_equal(p.kernel, alone.kernel);
                assert_int_equal(p.n_unit, alone.n_unit);
                assert_in_range(p.n_pair * p.n_part, 1, BRIM_W4_GEMV_WARPS);
                assert_in_range(p.split * p.n_part, 1, p.n_unit);
                int64_t covered = p.n_cta / p.split * p.n_pair * 32;
                assert_true(covered >= shapes[i][1] && covered - shapes[i][1] < p.n_pair * 32);
            }
    assert_int_equal(brim_w4_gemv_plan_chain(1, 2560, 19456, 132).n_pair, 4);
}

static void kernels_by_name(void **state)
{
    (void)state;
    struct brim_w4_gemv_plan p = brim_w4_gemv_plan_make(8, 2560, 4096, 132);
    assert_true(brim_w4_gemv_plan_name(&p, "int8"));
    assert_int_equal(p.kernel, BRIM_W4_GEMV_INT8);
    assert_false(brim_w4_gemv_plan_name(&p, "int"));
    assert_int_equal(p.kernel, BRIM_W4_GEMV_INT8);
    assert_string_equal(brim_w4_gemv_kernel_name(p.kernel), "int8");
    assert_true(brim_w4_gemv_plan_name(&p, "bf16"));
    assert_int_equal(p.kernel, BRIM_W4_GEMV_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invariants),      cmocka_unit_test(choices_of_qwen3_4b),
        cmocka_unit_test(kernels_by_rows), cmocka_unit_test(links_of_a_chain),
        cmocka_unit_test(kernels_by_name),
    };
    return cmocka_run_group_tests_name("w4_gemv_plan", tests, NULL, NULL);
}
