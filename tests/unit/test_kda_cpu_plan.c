/* SPDX-License-Identifier: Apache-2.0
 * How a KDA call on the CPU spreads over threads: a pure function of its size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "brim/kernels.h"
#include "plan/kda_cpu.h"

static void known_plans(void **state)
{
    (void)state;
    static const struct {
        int64_t n_task, n_tok, n_thread, n_whole;
        int n_ring, n_owner, n_helper, depth;
    } want[] = {
        {1, 2048, 1, 1, 0, 0, 0, 0},
        {1, 2048, 0, 1, 0, 0, 0, 0},
        {0, 2048, 4, 0, 0, 0, 0, 0},
        {4, 2048, 4, 4, 0, 0, 0, 0},
        {64, 2048, 8, 64, 0, 0, 0, 0},
        {3, 2048, 4, 3, 0, 0, 0, 0}, /* one thread too few for two each */
        {1, 96, 2, 1, 0, 0, 0, 0},
        {1, 97, 2, 0, 1, 2, 0, 4}, /* two slices, whose owners prepare by turns */
        {1, 2048, 3, 0, 1, 2, 1, 6},
        {1, 2048, 4, 0, 1, 2, 2, 8},
        {1, 2048, 6, 0, 2, 2, 1, 6}, /* the recurrence alone would fill two owners */
        {1, 2048, 16, 0, 4, 2, 2, 8},
        {5, 2048, 4, 4, 1, 2, 2, 8},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct brim_kda_cpu_plan p =
            brim_kda_cpu_plan_make(want[i].n_task, want[i].n_tok, want[i].n_thread);
        if (p.n_task != want[i].n_task || p.n_whole != want[i].n_whole ||
            p.n_ring != want[i].n_ring || p.n_owner != want[i].n_owner ||
            p.n_helper != want[i].n_helper || p.depth != want[i].depth)
            fail_msg("case %d: whole %d ring %d owner %d helper %d depth %d", (int)i,
                     (int)p.n_whole, p.n_ring, p.n_owner, p.n_helper, p.depth);
    }
}

static void every_plan_can_run_and_uses_no_more_threads(void **state)
{
    (void)state;
    for (int64_t n_task = 0; n_task < 70; n_task++)
        for (int64_t n_thread = 1; n_thread < 140; n_thread++) {
            struct brim_kda_cpu_plan p = brim_kda_cpu_plan_make(n_task, 1000, n_thread);
            int64_t left = p.n_task - p.n_whole;
            assert_true(brim_kda_cpu_plan_ok(&p));
            assert_true(left * brim_kda_cpu_plan_team(&p) <= n_thread);
            assert_true(left == 0 || left == n_task % n_thread);
            assert_true((left == 0) == (p.n_ring == 0));
            if (n_task > 0 && n_task * 2 <= n_thread) assert_int_equal(p.n_whole, 0);
            if (left) assert_true(brim_kda_cpu_plan_team(&p) >= 2);
        }
    struct brim_kda_cpu_plan p = brim_kda_cpu_plan_make(1, INT64_MAX, INT64_MAX);
    assert_true(brim_kda_cpu_plan_ok(&p));
    p.n_ring = 3;
    assert_false(brim_kda_cpu_plan_ok(&p));
    p.n_ring = 1, p.n_owner = 3;
    assert_false(brim_kda_cpu_plan_ok(&p));
    p.n_owner = 1, p.depth = 0;
    assert_false(brim_kda_cpu_plan_ok(&p));
    p.depth = 1, p.n_whole = 2;
    assert_false(brim_kda_cpu_plan_ok(&p));
}

/* More threads never mean fewer slices and helpers together. */
static void teams_grow_with_the_threads(void **state)
{
    (void)state;
    int last = 1;
    for (int n_thread = 1; n_thread <= 64; n_thread++) {
        struct brim_kda_cpu_plan p = brim_kda_cpu_plan_make(1, 4096, n_thread);
        int team = brim_kda_cpu_plan_team(&p);
        assert_true(team >= last && team <= n_thread);
        last = team;
    }
    assert_true(last >= 8);
}

static void the_public_plan_says_the_same(void **state)
{
    (void)state;
    brim_kda_args args;
    brim_kda_plan plan;
    brim_kda_args_init(&args);
    args.n_seq = 1, args.n_value_head = 1, args.n_tok = 2048, args.n_thread = 6;
    assert_int_equal(brim_kda_plan_cpu(&args, &plan, NULL), BRIM_OK);
    assert_string_equal(plan.route, "cpu-chunk");
    assert_string_equal(plan.reason, "host memory; tasks are shared by threads, some only prepare");
    assert_int_equal(plan.grid, 1);
    assert_int_equal(plan.cluster, 6);
    assert_int_equal(plan.owners, 4);
    assert_int_equal(plan.helpers, 2);
    assert_int_equal(plan.instances, 2);
    assert_int_equal(plan.depth, 6);
    args.route = "cpu-ref";
    assert_int_equal(brim_kda_plan_cpu(&args, &plan, NULL), BRIM_OK);
    assert_string_equal(plan.reason, "named by the caller; a task is one thread's");
    assert_int_equal(plan.cluster, 1);
    args.route = NULL;
    args.offset_bytes = 8, args.n_seq = 3, args.n_thread = 2, args.max_tok = 1024;
    assert_int_equal(brim_kda_plan_cpu(&args, &plan, NULL), BRIM_OK);
    assert_string_equal(plan.reason, "host memory; the last tasks are shared by threads");
    assert_int_equal(plan.owners, 2);
    args.max_tok = 60; /* nothing to share where no sequence is long */
    assert_int_equal(brim_kda_plan_cpu(&args, &plan, NULL), BRIM_OK);
    assert_int_equal(plan.owners, 1);
    args.route = "m128";
    assert_int_equal(brim_kda_plan_cpu(&args, &plan, NULL), BRIM_E_UNSUPPORTED);
    args.route = NULL, args.n_seq = INT64_MAX;
    assert_int_equal(brim_kda_plan_cpu(&args, &plan, NULL), BRIM_E_SHAPE);
    assert_int_equal(brim_kda_plan_cpu(&args, NULL, NULL), BRIM_E_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_plans),
        cmocka_unit_test(every_plan_can_run_and_uses_no_more_threads),
        cmocka_unit_test(teams_grow_with_the_threads),
        cmocka_unit_test(the_public_plan_says_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
