/* SPDX-License-Identifier: Apache-2.0
 * The schedule of the W4 kernel for many rows: what the kernel relies on, for any shape. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan/w4_stream.h"

static void holds(const struct brim_w4_stream_plan *plan, int64_t n_row, int64_t n_in,
                  int64_t n_out, int n_sm)
{
    assert_true(plan->n_token == 64 || plan->n_token == 96 || plan->n_token == 128);
    assert_in_range(plan->n_slab, 1, 4);
    assert_in_range(plan->split, 1, 8);
    assert_true(plan->split <= plan->n_step);
    int64_t outs = 64 * plan->n_slab, n_tile = plan->n_tile_out * plan->n_tile_token;
    assert_true(plan->n_tile_out * outs >= n_out && (plan->n_tile_out - 1) * outs < n_out);
    assert_true(plan->n_tile_token * plan->n_token >= n_row);
    assert_true((plan->n_tile_token - 1) * plan->n_token < n_row);
    assert_true(plan->n_step * 64 >= n_in && (plan->n_step - 1) * 64 < n_in);
    if (plan->split > 1)
        assert_int_equal(plan->n_cta, n_tile * plan->split);
    else
        assert_in_range(plan->n_cta, 1, n_tile < n_sm ? n_tile : n_sm);
}

static void any_shape_has_a_schedule(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, 64, 65, 97, 129, 161, 255, 1000, 2048, 100000};
    static const int64_t ins[] = {32, 64, 96, 576, 2560, 9728}, outs[] = {1, 64, 200, 1032, 19456};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (size_t i = 0; i < sizeof ins / sizeof *ins; i++)
            for (size_t o = 0; o < sizeof outs / sizeof *outs; o++)
                for (int n_sm = 1; n_sm <= 144; n_sm += 13) {
                    struct brim_w4_stream_plan plan =
                        brim_w4_stream_plan_make(rows[r], ins[i], outs[o], n_sm);
                    holds(&plan, rows[r], ins[i], outs[o], n_sm);
                }
}

static void a_pinned_schedule_keeps_its_tile(void **state)
{
    (void)state;
    struct brim_w4_stream_plan plan = brim_w4_stream_plan_pin(300, 2560, 4096, 132, 96, 2, 4);
    holds(&plan, 300, 2560, 4096, 132);
    assert_int_equal(plan.n_token, 96);
    assert_int_equal(plan.n_slab, 2);
    assert_int_equal(plan.split, 4);
    assert_int_equal(plan.n_cta, 32 * 4 * 4);
}

/* Every multiprocessor has work: with one round a plan that leaves more than half of them idle
 * although the shape has enough steps loses to one that splits. */
static void short_prompts_fill_the_machine(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {
        {2560, 4096}, {2560, 1024}, {4096, 2560}, {2560, 9728}, {9728, 2560}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int64_t n_row = 65; n_row <= 256; n_row++) {
            struct brim_w4_stream_plan plan =
                brim_w4_stream_plan_make(n_row, shapes[i][0], shapes[i][1], 132);
            assert_in_range(plan.n_cta, 66, 132);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_shape_has_a_schedule),
        cmocka_unit_test(a_pinned_schedule_keeps_its_tile),
        cmocka_unit_test(short_prompts_fill_the_machine),
    };
    return cmocka_run_group_tests_name("w4_stream_plan", tests, NULL, NULL);
}
