/* SPDX-License-Identifier: Apache-2.0
 * KDA on the CPU spread over threads: every form of plan has the bits of one thread, for any number
 * of threads, with delays in owners and helpers, and nobody waits for a thread that does not come.
 * ctest labels: threads */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/mem.h"
#include "check/kda_case.h"
#include "cpu/kda_share.h"
#include "plan/kda_cpu.h"

static struct kda_spec plain(int64_t n_tok)
{
    struct kda_spec spec = kda_plain(n_tok, 1, KDA_TYPICAL);
    spec.checkpoints = 1, spec.seed = (uint64_t)n_tok;
    return spec;
}

static void same(const struct kda_case *a, const struct kda_case *b)
{
    assert_memory_equal(a->out, b->out, a->v_bytes);
    assert_memory_equal(a->final, b->final, a->state_bytes);
    if (a->checkpoints) assert_memory_equal(a->checkpoints, b->checkpoints, a->checkpoint_bytes);
}

/* The spec by one thread, then by the plan and so many threads. */
static void compare(const struct kda_spec *spec, struct brim_kda_cpu_plan plan, int n_thread)
{
    struct kda_case one, many;
    brim_error err = {0};
    kda_case_make(&one, spec), kda_case_make(&many, spec);
    assert_int_equal(brim_kda_prefill(&one.args, NULL), BRIM_OK);
    plan.n_task = spec->n_seq * spec->n_value_head;
    many.args.n_thread = n_thread;
    if (brim_kda_cpu_planned(&many.args, &plan, &err) != BRIM_OK) fail_msg("%s", err.text);
    same(&one, &many);
    kda_case_free(&one), kda_case_free(&many);
}

/* Teams of every size, by as many threads, by one and by two: fewer than would wait for each
 * other. */
static void every_plan_has_the_bits_of_one_thread(void **state)
{
    (void)state;
    static const int n_tok[] = {1, 64, 65, 190, 257};
    int i = 0;
    for (int n_ring = 1; n_ring <= 8; n_ring *= 2)
        for (int n_owner = 1; n_owner <= 2 && n_ring * n_owner <= 8; n_owner++)
            for (int n_helper = 0; n_helper <= 2; n_helper++, i++) {
                struct kda_spec spec = plain(n_tok[i % 5]);
                struct brim_kda_cpu_plan plan = {0, 0, n_ring, n_owner, n_helper, 1 + i % 5};
                int team = n_ring * (n_owner + n_helper);
                if (i % 2) spec.gate = BRIM_KDA_GATE_SOFTPLUS, spec.lower_bound = 0;
                if (i % 3 == 0) spec.flags |= BRIM_KDA_STATE_K_FIRST;
                if (i % 4 == 0) spec.state_dtype = BRIM_KERNEL_BF16;
                compare(&spec, plan, i % 3 == 0 ? team : i % 3);
            }
}

/* One packet less than the ring holds, as many, one more, and many times round it. */
static void lengths_at_the_rings_edges(void **state)
{
    (void)state;
    for (int depth = 1; depth <= 4; depth++) {
        int chunks[] = {depth - 1, depth, depth + 1, 10 * depth + 3};
        for (int i = 0; i < 4; i++) {
            struct kda_spec spec = plain(32 * chunks[i]);
            compare(&spec, (struct brim_kda_cpu_plan){0, 0, 1, 1 + i % 2, 1, depth}, 3);
        }
    }
}

static void whole_tasks_and_shared_ones(void **state)
{
    (void)state;
    static const int64_t lengths[] = {0, 130, 0, 33, 1, 97};
    struct kda_spec spec = plain(270);
    spec.n_seq = 6, spec.lengths = lengths, spec.n_value_head = 2;
    for (int n_whole = 0; n_whole <= 12; n_whole += 3)
        for (int n_thread = 1; n_thread <= 5; n_thread += 2)
            compare(&spec, (struct brim_kda_cpu_plan){0, n_whole, 1, 2, 1, 3}, n_thread);
}

/* What a call takes by itself, in place. */
static void calls_of_few_heads(void **state)
{
    (void)state;
    for (int n_thread = 2; n_thread <= 9; n_thread++) {
        struct kda_spec spec = plain(200);
        struct kda_case one, many;
        spec.n_value_head = 1 + n_thread % 3;
        kda_case_make(&one, &spec), kda_case_make(&many, &spec);
        assert_int_equal(brim_kda_prefill(&one.args, NULL), BRIM_OK);
        memcpy(many.final, many.initial, many.state_bytes);
        many.args.initial_state = many.final;
        many.args.n_thread = n_thread;
        assert_int_equal(brim_kda_prefill(&many.args, NULL), BRIM_OK);
        same(&one, &many);
        kda_case_free(&one), kda_case_free(&many);
    }
}

struct caller {
    const struct kda_spec *spec;
    const struct kda_case *one;
    bool same;
};

static void *call_main(void *arg)
{
    struct caller *caller = arg;
    const struct kda_case *one = caller->one;
    caller->same = true;
    for (int i = 0; i < 20; i++) {
        struct kda_case c;
        kda_case_make(&c, caller->spec);
        c.args.n_thread = 2 + i % 2;
        if (brim_kda_prefill(&c.args, NULL) != BRIM_OK || memcmp(c.out, one->out, c.v_bytes) != 0 ||
            memcmp(c.final, one->final, c.state_bytes) != 0)
            caller->same = false;
        kda_case_free(&c);
    }
    return NULL;
}

/* Two callers at once, over and over: calls share nothing. */
static void calls_at_once_and_repeats_agree(void **state)
{
    (void)state;
    struct kda_spec spec = plain(161);
    struct kda_case one;
    pthread_t threads[2];
    struct caller callers[2];
    kda_case_make(&one, &spec); /* the table of normal numbers is made here, too */
    assert_int_equal(brim_kda_prefill(&one.args, NULL), BRIM_OK);
    for (int i = 0; i < 2; i++) {
        callers[i] = (struct caller){&spec, &one, false};
        assert_int_equal(pthread_create(&threads[i], NULL, call_main, &callers[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(callers[i].same);
    }
    kda_case_free(&one);
}

static void allocation_failures_leak_nothing(void **state)
{
    (void)state;
    struct kda_spec spec = plain(200);
    struct kda_case c;
    kda_case_make(&c, &spec);
    c.args.n_thread = 3;
    brim_status status = BRIM_E_NO_MEMORY;
    int n_fail = 0;
    for (; status == BRIM_E_NO_MEMORY; n_fail++) {
        assert_true(n_fail < 64);
        brim_mem_fail_after(n_fail);
        status = brim_kda_prefill(&c.args, NULL);
        brim_mem_fail_after(-1);
    }
    assert_int_equal(status, BRIM_OK);
    assert_true(n_fail > 1);
    struct brim_kda_cpu_plan plan = {1, 0, 1, 3, 0, 1}; /* three owners: the words have two bits */
    assert_int_equal(brim_kda_cpu_planned(&c.args, &plan, NULL), BRIM_E_ARGUMENT);
    kda_case_free(&c);
}

/* ---- one ring, its threads held up at will --------------------------------------------------- */

static const struct brim_cpu_ops *real;
static atomic_uint turn;
static int hold_prepare, hold_advance; /* one in so many is held up; 0: none */

static void hold_up(int one_in)
{
    unsigned n = atomic_fetch_add_explicit(&turn, 2654435761u, memory_order_relaxed) >> 8;
    if (one_in && n % (unsigned)one_in == 0)
        for (unsigned i = 0; i < 20 + n % 50; i++) sched_yield();
}

static void slow_prepare(const brim_kda_args *args, const struct brim_kda_task *task, int64_t chunk,
                         int begin, int end, void *work, struct brim_kda_packet *packet)
{
    hold_up(hold_prepare);
    real->kda_prepare(args, task, chunk, begin, end, work, packet);
    hold_up(hold_prepare);
}

static void slow_advance(const struct brim_kda_task *task, int64_t chunk,
                         const struct brim_kda_packet *packet, int begin, int end,
                         struct brim_kda_state *state)
{
    hold_up(hold_advance);
    real->kda_advance(task, chunk, packet, begin, end, state);
    hold_up(hold_advance);
}

static void *join_main(void *ring)
{
    void *work = aligned_alloc(64, BRIM_KDA_WORK_BYTES);
    memset(work, 0xFF, BRIM_KDA_WORK_BYTES);
    brim_kda_ring_join(ring, work);
    free(work);
    return NULL;
}

/* Memory as full of NaN as an earlier call could leave it. */
static void *dirty(size_t n_bytes)
{
    void *memory = aligned_alloc(64, (n_bytes + 63) / 64 * 64);
    return memset(memory, 0xFF, n_bytes);
}

static void delays_change_no_bit(void **state)
{
    (void)state;
    enum { MAX_THREAD = 5 };
    struct brim_cpu_info info = brim_cpu_detect();
    real = brim_cpu_ops_get(info.tier, &info);
    struct brim_cpu_ops slow = *real;
    slow.kda_prepare = slow_prepare, slow.kda_advance = slow_advance;
    struct kda_spec spec = plain(32 * 21 + 5);
    struct kda_case one, many;
    kda_case_make(&one, &spec);
    assert_int_equal(brim_kda_prefill(&one.args, NULL), BRIM_OK);
    for (int round = 0; round < 36; round++) {
        int n_owner = 1 + round % 2, depth = 1 + round % 4, n_thread = n_owner + round % 3;
        pthread_t threads[MAX_THREAD];
        hold_prepare = round % 3 == 0 ? 0 : 2;
        hold_advance = round % 3 == 1 ? 0 : 2;
        kda_case_make(&many, &spec);
        void *memory = dirty(brim_kda_ring_bytes(depth));
        struct brim_kda_ring *ring =
            brim_kda_ring_make(memory, &slow, &many.args, 0, 0, 0, 128, n_owner, depth);
        for (int i = 0; i < n_thread; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, join_main, ring), 0);
        for (int i = 0; i < n_thread; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
        same(&one, &many);
        free(memory);
        kda_case_free(&many);
    }
    kda_case_free(&one);
}

/* The second owner's thread comes when the first has long been through, or there is none but the
 * caller: two slices, a ring of one packet. */
static void one_thread_does_it_alone(void **state)
{
    (void)state;
    struct brim_cpu_info info = brim_cpu_detect();
    const struct brim_cpu_ops *ops = brim_cpu_ops_get(info.tier, &info);
    struct kda_spec spec = plain(190);
    struct kda_case one, many;
    kda_case_make(&one, &spec), kda_case_make(&many, &spec);
    assert_int_equal(brim_kda_prefill(&one.args, NULL), BRIM_OK);
    void *memory = dirty(brim_kda_ring_bytes(1));
    struct brim_kda_ring *ring = brim_kda_ring_make(memory, ops, &many.args, 0, 0, 0, 128, 2, 1);
    join_main(ring);
    same(&one, &many);
    for (int i = 0; i < 3; i++) join_main(ring);
    same(&one, &many);
    free(memory);
    kda_case_free(&one), kda_case_free(&many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plan_has_the_bits_of_one_thread),
        cmocka_unit_test(lengths_at_the_rings_edges),
        cmocka_unit_test(whole_tasks_and_shared_ones),
        cmocka_unit_test(calls_of_few_heads),
        cmocka_unit_test(calls_at_once_and_repeats_agree),
        cmocka_unit_test(allocation_failures_leak_nothing),
        cmocka_unit_test(delays_change_no_bit),
        cmocka_unit_test(one_thread_does_it_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
