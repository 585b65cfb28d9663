/* SPDX-License-Identifier: Apache-2.0
 * A KDA sequence cut into segments (docs/kernels/kda_split.md): the bounds hold, what is skipped
 * does not show, what must not be skipped is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "check/kda_adversary.h"
#include "cuda/kda/layout.h"
#include "plan/kda_split.h"

enum { T = 256, N_CHUNK = T / 32 };

static struct kda_spec spec_of(enum kda_regime regime)
{
    struct kda_spec spec = kda_plain(T, 1, regime);
    spec.seed = 3;
    return spec;
}

/* Every input in the test's hands: decay and beta given as f32, keys not normalized. */
static void given_case(struct kda_case *c)
{
    struct kda_spec spec = spec_of(KDA_TYPICAL);
    spec.gate = BRIM_KDA_GATE_GIVEN;
    spec.flags = 0;
    spec.f32_decay = spec.f32_beta = 1;
    kda_case_make(c, &spec);
}

/* Error of the split form, and that of the serial one with the same roundings. */
static struct kda_error run(struct kda_case *c, enum brim_kda_rounding rounding, int64_t length,
                            int window, struct brim_kda_split_report *report,
                            struct kda_error *serial)
{
    struct brim_kda_task task;
    /* the first segment is longer where the length is odd, as long as others where it is even */
    struct brim_kda_split split = {length, window, length & 1 ? length + 2 : 0};
    brim_error err = {0};
    brim_kda_task_make(&c->args, 0, 0, &task);
    if (serial) {
        void *scratch = aligned_alloc(64, (brim_kda_chunk_scratch_bytes() + 63) / 64 * 64);
        brim_kda_chunk_task(&c->args, &task, rounding, scratch);
        free(scratch);
        *serial = kda_measure(&c->args, 0, 0);
    }
    memset(c->out, 0xFF, c->v_bytes);
    memset(c->final, 0xFF, c->state_bytes);
    assert_int_equal(brim_kda_split_task(&c->args, &task, rounding, &split, report, &err), BRIM_OK);
    return kda_measure(&c->args, 0, 0);
}

static void strong_gates_are_cut_everywhere(void **state)
{
    (void)state;
    static const enum kda_regime regimes[] = {KDA_TYPICAL, KDA_SATURATED, KDA_FULL, KDA_ALTERNATE};
    for (size_t i = 0; i < sizeof regimes / sizeof *regimes; i++)
        for (int gpu = 0; gpu < 2; gpu++) {
            struct kda_spec spec = spec_of(regimes[i]);
            struct kda_case c;
            kda_case_make(&c, &spec);
            for (int length = 1; length <= N_CHUNK; length++) {
                int window = 1 + (regimes[i] == KDA_ALTERNATE);
                struct brim_kda_split_report report;
                struct kda_error serial, e = run(&c, gpu, length, window, &report, &serial);
                if (!e.finite || e.out > 1.2 * serial.out + 1e-7 ||
                    e.window > 1.2 * serial.window + 1e-7 || e.state > 1.2 * serial.state + 1e-7)
                    fail_msg("regime %d, segments of %d: %.2e %.2e %.2e beside %.2e %.2e %.2e",
                             (int)regimes[i], length, e.out, e.window, e.state, serial.out,
                             serial.window, serial.state);
                int behind = N_CHUNK - (length & 1 ? length + 2 : length);
                assert_int_equal(report.n_skipped, behind > 0 ? (behind + length - 1) / length : 0);
            }
            kda_case_free(&c);
        }
}

static void weak_gates_stay_serial_to_the_bit(void **state)
{
    (void)state;
    static const enum kda_regime regimes[] = {KDA_WEAK, KDA_NEVER, KDA_MIXED, KDA_COLLINEAR};
    for (size_t i = 0; i < sizeof regimes / sizeof *regimes; i++) {
        struct kda_spec spec = spec_of(regimes[i]);
        struct kda_case c;
        kda_case_make(&c, &spec);
        assert_int_equal(brim_kda_cpu(&c.args, BRIM_KDA_GPU, NULL), BRIM_OK);
        uint16_t *out = kda_alloc(c.v_bytes);
        float *final = kda_alloc(c.state_bytes);
        memcpy(out, c.out, c.v_bytes);
        memcpy(final, c.final, c.state_bytes);
        struct brim_kda_split_report report;
        run(&c, BRIM_KDA_GPU, 4, 3, &report, NULL);
        assert_int_equal(report.n_skipped, 0);
        assert_int_equal(report.n_far, 1);
        assert_memory_equal(c.out, out, c.v_bytes);
        assert_memory_equal(c.final, final, c.state_bytes);
        free(out), free(final);
        kda_case_free(&c);
    }
}

static void one_weak_channel_among_strong_ones_is_seen(void **state)
{
    (void)state;
    struct kda_case c;
    given_case(&c);
    for (int64_t i = 0; i < (int64_t)T * 128; i++) ((float *)c.g)[i] = i % 128 == 77 ? -1e-4f : -5;
    struct brim_kda_split_report report;
    struct kda_error serial, e = run(&c, BRIM_KDA_GPU, 4, 3, &report, &serial);
    assert_int_equal(report.n_skipped, 0);
    assert_true(e.state == serial.state);
    kda_case_free(&c);
}

/* Every channel loses 40 nats in 16 tokens, the state a factor of four: the keys carry it from the
 * channels that decay to those that do not decay yet. */
static void keys_that_move_the_state_are_seen(void **state)
{
    (void)state;
    struct kda_case c;
    given_case(&c);
    for (int64_t t = 0; t < T; t++) {
        bool change = t % 8 == 7;
        ((float *)c.beta)[t] = change ? 0.99f : 0;
        for (int i = 0; i < 128; i++) {
            ((float *)c.g)[t * 128 + i] = (i < 64) == (t / 8 % 2 == 0) ? -5 : 0;
            c.k[t * 128 + i] = brim_bf16_from_f32(change && i % 64 == 0 ? 0.70710678f : 0);
        }
    }
    struct brim_kda_split_report report;
    struct kda_error serial, e = run(&c, BRIM_KDA_FP32, 4, 3, &report, &serial);
    assert_int_equal(report.n_skipped, 0);
    assert_true(e.out == serial.out && e.state == serial.state);
    kda_case_free(&c);
}

/* A window that forgets, but writes little or nothing beside a state that is huge: what it forgets
 * would still be seen. */
static void a_window_that_writes_nothing_is_no_start(void **state)
{
    (void)state;
    for (int form = 0; form < 3; form++) {
        struct kda_spec spec = spec_of(KDA_TYPICAL);
        struct kda_case c;
        spec.n_tok = 128; /* the cut is at chunk 2, the window is chunk 1 */
        kda_case_make(&c, &spec);
        if (form == 0) memset(c.v, 0, c.v_bytes);
        for (int64_t t = 32; t < 64 && form == 1; t++)
            ((uint16_t *)c.beta)[t] = brim_bf16_from_f32(-1e4f);
        for (int64_t i = 0; i < 32 * 128 && form == 2; i++) /* a state of 1e20 before it */
            c.v[i] = brim_bf16_from_f32(1e20f * brim_f32_from_bf16(c.v[i]));
        struct brim_kda_split_report report;
        struct kda_error serial, e = run(&c, BRIM_KDA_FP32, 2, 1, &report, &serial);
        assert_int_equal(report.n_skipped, 0);
        assert_int_equal(report.n_small, 1);
        assert_true(e.out == serial.out && e.state == serial.state);
        kda_case_free(&c);
    }
}

/* A window that begins where the sequence does forgets nothing, whatever the gates. */
static void a_window_may_reach_the_beginning(void **state)
{
    (void)state;
    struct kda_spec spec = spec_of(KDA_NEVER);
    struct kda_case c;
    kda_case_make(&c, &spec);
    struct brim_kda_split_report report;
    struct kda_error serial, e = run(&c, BRIM_KDA_GPU, 4, 4, &report, &serial);
    assert_int_equal(report.n_skipped, 1);
    assert_true(e.out == serial.out && e.state == serial.state);
    kda_case_free(&c);
}

static void the_bound_is_one(void **state)
{
    (void)state;
    static const enum kda_regime regimes[] = {KDA_TYPICAL,   KDA_WEAK,      KDA_MIXED,
                                              KDA_ALTERNATE, KDA_COLLINEAR, KDA_ANTIPARALLEL};
    void *scratch = aligned_alloc(64, (brim_kda_chunk_scratch_bytes() + 63) / 64 * 64);
    for (size_t i = 0; i < sizeof regimes / sizeof *regimes; i++)
        for (int trial = 0; trial < 4; trial++) {
            struct kda_spec spec = spec_of(regimes[i]);
            struct kda_case c;
            struct brim_kda_task task;
            spec.n_tok = 32;
            spec.seed = 50 + (uint64_t)trial;
            kda_case_make(&c, &spec);
            memset(c.v, 0, c.v_bytes);
            brim_kda_task_make(&c.args, 0, 0, &task);
            static double after[16384];
            static float from[16384];
            double bound, size = 0, left = 0;
            brim_kda_state_load(&c.args, task.initial, from);
            struct brim_kda_range one = {0, 1, true, from, &bound, NULL, false};
            for (int k = 0; k < 16384; k++) size += (double)from[k] * from[k];
            brim_kda_chunk_range(&c.args, &task, BRIM_KDA_FP32, &one, scratch);
            assert_int_equal(brim_kda_ref_task(&c.args, &task, true, NULL, NULL, after, NULL),
                             BRIM_OK);
            for (int k = 0; k < 16384; k++) left += after[k] * after[k];
            if (!(sqrt(left / size) <= exp(bound) * (1 + 1e-5)))
                fail_msg("regime %d: the map kept %.3e, bound %.3e", (int)regimes[i],
                         sqrt(left / size), exp(bound));
            kda_case_free(&c);
        }
    free(scratch);
}

/* The worst of a search (tests/search/search_kda_split.c): where cuts are skipped it does not show,
 * and what a window leaves is never more than its bound says. */
static void the_search_s_worst_cases_hold(void **state)
{
    (void)state;
    FILE *file = fopen(BRIM_SOURCE_DIR "/tests/golden/kda_split_seeds.txt", "r");
    assert_non_null(file);
    char line[128];
    int n = 0, n_cut = 0;
    double nearest = 0;
    void *scratch = aligned_alloc(64, (brim_kda_chunk_scratch_bytes() + 63) / 64 * 64);
    while (fgets(line, sizeof line, file)) {
        unsigned long long seed;
        if (sscanf(line, "%llu", &seed) != 1) continue;
        struct kda_adversary a;
        struct brim_kda_task task;
        struct brim_kda_split_report report;
        kda_adversary_make(&a, seed);
        struct brim_kda_split split = {a.length, a.window, 0};
        brim_kda_task_make(&a.c.args, 0, 0, &task);
        assert_int_equal(brim_kda_split_task(&a.c.args, &task, BRIM_KDA_GPU, &split, &report, NULL),
                         BRIM_OK);
        struct kda_error e = kda_measure(&a.c.args, 0, 0);
        brim_kda_chunk_task(&a.c.args, &task, BRIM_KDA_GPU, scratch);
        struct kda_error serial = kda_measure(&a.c.args, 0, 0);
        double quotient =
            kda_adversary_quotient(&e, &serial, kda_adversary_faded(&a, &task, scratch));
        if (!(quotient <= 1.2)) fail_msg("seed %llu: %.3f times the serial error", seed, quotient);
        double share = kda_adversary_share(&a, &task, scratch);
        if (!(share <= 1.01)) fail_msg("seed %llu: a window left %.4f of its bound", seed, share);
        nearest = fmax(nearest, share);
        n++;
        n_cut += report.n_skipped > 0;
        kda_case_free(&a.c);
    }
    fclose(file);
    free(scratch);
    assert_true(n >= 12 && n_cut >= 6);
    assert_true(nearest > 0.99); /* or nothing was looked at */
}

static struct brim_kda_split_plan plan_of(int64_t n_seq, int64_t n_tok, int64_t n_value_head,
                                          int length, int longer, int window)
{
    return brim_kda_split_plan_make(&(struct brim_kda_split_call){.n_seq = n_seq,
                                                                  .n_row = n_seq * n_tok,
                                                                  .max_tok = n_tok,
                                                                  .n_value_head = n_value_head,
                                                                  .n_processor = 132,
                                                                  .length = length,
                                                                  .first = longer,
                                                                  .window = window});
}

static void plans_cover_every_sequence(void **state)
{
    (void)state;
    static const int64_t tokens[] = {1, 31, 32, 33, 2048, 4096, 8191, 65536, 131072};
    static const int64_t heads[] = {1, 3, 12, 64, 96};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        for (size_t j = 0; j < sizeof heads / sizeof *heads; j++)
            for (int64_t n = 1; n <= 5; n += 2) {
                struct brim_kda_split_plan plan = plan_of(n, tokens[i], heads[j], 0, 0, 0);
                assert_in_range(plan.length, 1, (tokens[i] + 31) / 32);
                assert_in_range(plan.window, 1, plan.length);
                assert_true(plan.window <= KDA_MAX_WINDOW);
                assert_int_equal(KDA_MAX_WINDOW, BRIM_KDA_WINDOW_MAX);
                assert_int_equal(KDA_MAX_WINDOW, BRIM_KDA_SPLIT_MAX_WINDOW);
                assert_true(plan.first >= plan.length);
                int64_t n_chunk = (tokens[i] + 31) / 32, behind = plan.n_slot / n - 1;
                assert_true(plan.first + behind * plan.length >= n_chunk);
                assert_true(behind == 0 || plan.first + (behind - 1) * plan.length < n_chunk);
                assert_int_equal(plan.n_slot % n, 0);
                size_t least = (size_t)(plan.n_slot * heads[j]) * KDA_RECORD_FLOATS * 4 +
                               (size_t)(n * heads[j]) * 65536;
                assert_in_range(plan.workspace_bytes, least, least + 127);
            }
    struct brim_kda_split_plan pinned = plan_of(1, 8192, 8, 7, 0, 2);
    assert_int_equal(pinned.length, 7);
    assert_int_equal(pinned.first, 7);
    assert_int_equal(pinned.window, 2);
    assert_int_equal(pinned.n_slot, (256 + 6) / 7);
    pinned = plan_of(3, 8192, 8, 7, 50, 2);
    assert_int_equal(pinned.first, 50);
    assert_int_equal(pinned.n_slot, 3 * (1 + (256 - 50 + 6) / 7));
    assert_int_equal(plan_of(1, 1024, 8, 7, 50, 2).n_slot, 1); /* all of it first */
    /* a machine that one wave of long segments fills, and one where short ones start sooner */
    assert_int_equal(plan_of(1, 8192, 64, 0, 0, 0).n_slot, 2);
    assert_true(plan_of(1, 8192, 1, 0, 0, 0).n_slot > 60);
}

/* 96 long first segments leave 36 of 132 processors to the others, which are shorter. */
static void first_segments_are_longer_where_others_share_processors(void **state)
{
    (void)state;
    struct brim_kda_split_plan plan = plan_of(1, 8192, 96, 0, 0, 0);
    assert_true(plan.first > 2 * plan.length);
    assert_true(plan.chunks < 200); /* equal ones take 3 x (64 + 1) at the least, and two starts */
    assert_true(plan.chunks >= plan.first && plan.chunks >= 256 * 96 / 132);
    /* where every segment has its processor all are as long, but for the first one's window */
    plan = plan_of(1, 8192, 12, 0, 0, 0);
    assert_true(plan.first <= plan.length + plan.window);
    brim_error err;
    assert_int_equal(brim_kda_split_check(7, 6, 1, &err), BRIM_E_RANGE);
    assert_non_null(strstr(err.text, "split_first"));
    assert_int_equal(brim_kda_split_check(0, 6, 0, &err), BRIM_E_RANGE);
    assert_int_equal(brim_kda_split_check(7, BRIM_KDA_SPLIT_MAX_LENGTH + 1, 1, &err), BRIM_E_RANGE);
    assert_int_equal(brim_kda_split_check(7, 7, 1, &err), BRIM_OK);
}

/* Against the same done one CTA after the other. */
static void load_is_that_of_whoever_is_last(void **state)
{
    (void)state;
    struct brim_rng rng;
    brim_rng_seed(&rng, 12);
    for (int trial = 0; trial < 3000; trial++) {
        enum { MOST = 9 };
        int64_t busy[MOST] = {0}, last = 0, n_processor = 1 + brim_rng_u32(&rng) % MOST;
        int64_t n_first = brim_rng_u32(&rng) % 20, n_rest = brim_rng_u32(&rng) % 40;
        int64_t long_one = 1 + brim_rng_u32(&rng) % 30, rest = 1 + brim_rng_u32(&rng) % 12;
        for (int64_t i = 0; i < n_first + n_rest; i++) {
            int64_t free = 0;
            for (int64_t j = 1; j < n_processor; j++)
                if (busy[j] < busy[free]) free = j;
            busy[free] += i < n_first ? long_one : rest;
            if (busy[free] > last) last = busy[free];
        }
        assert_int_equal(brim_kda_split_load(n_processor, n_first, long_one, n_rest, rest), last);
    }
}

/* Every packed sequence has at least as many slots as segments, wherever it starts: the numbering
 * of src/cuda/kda/split.cuh. */
static void slots_of_packed_sequences_do_not_meet(void **state)
{
    (void)state;
    struct brim_rng rng;
    brim_rng_seed(&rng, 11);
    for (int trial = 0; trial < 2000; trial++) {
        int64_t x = 32 * (1 + brim_rng_u32(&rng) % 9), at = 0, n_seq = 1 + brim_rng_u32(&rng) % 6;
        for (int64_t seq = 0; seq < n_seq; seq++) {
            int64_t n_tok = brim_rng_u32(&rng) % 3 ? brim_rng_u32(&rng) % 1000 : 0;
            int64_t first = at / x + seq, next = (at + n_tok) / x + seq + 1;
            assert_true(first + (n_tok + x - 1) / x <= next);
            at += n_tok;
        }
        struct brim_kda_split_plan plan =
            brim_kda_split_plan_make(&(struct brim_kda_split_call){.n_seq = n_seq,
                                                                   .n_row = at,
                                                                   .max_tok = at,
                                                                   .n_value_head = 1,
                                                                   .packed = true,
                                                                   .n_processor = 132,
                                                                   .length = (int)(x / 32),
                                                                   .window = 1});
        assert_int_equal(plan.n_slot, at / x + n_seq);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strong_gates_are_cut_everywhere),
        cmocka_unit_test(weak_gates_stay_serial_to_the_bit),
        cmocka_unit_test(one_weak_channel_among_strong_ones_is_seen),
        cmocka_unit_test(keys_that_move_the_state_are_seen),
        cmocka_unit_test(a_window_that_writes_nothing_is_no_start),
        cmocka_unit_test(a_window_may_reach_the_beginning),
        cmocka_unit_test(the_bound_is_one),
        cmocka_unit_test(the_search_s_worst_cases_hold),
        cmocka_unit_test(plans_cover_every_sequence),
        cmocka_unit_test(first_segments_are_longer_where_others_share_processors),
        cmocka_unit_test(load_is_that_of_whoever_is_last),
        cmocka_unit_test(slots_of_packed_sequences_do_not_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
