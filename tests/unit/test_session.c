/* SPDX-License-Identifier: Apache-2.0
 * Timelines: sync, eval, rewind, context limits, and what a decode step may not do. */
#include "engine_util.h"

#include <math.h>

#include "base/mem.h"

enum { N_VOCAB = 512 };

static brim_engine *engine;

static int open_engine(void **state)
{
    (void)state;
    engine = tiny_engine("qwen3_yarn", 1);
    return 0;
}

static int close_engine(void **state)
{
    (void)state;
    brim_engine_close(&engine);
    assert_null(engine);
    return 0;
}

/* Logits after ids in a session of its own. */
static void fresh_logits(const int32_t *ids, int64_t n, float *out)
{
    brim_session *session = tiny_session(engine, 0, 0);
    MUST(brim_session_eval(session, ids, n, &err));
    memcpy(out, brim_session_logits(session), N_VOCAB * sizeof *out);
    brim_session_close(&session);
    assert_null(session);
}

static void assert_logits(const brim_session *session, const float *expected)
{
    assert_non_null(brim_session_logits(session));
    assert_memory_equal(brim_session_logits(session), expected, N_VOCAB * sizeof *expected);
}

static void open_and_limits(void **state)
{
    (void)state;
    brim_session *session = tiny_session(engine, 0, 0);
    assert_int_equal(brim_session_capacity(session), 128); /* the model's, below 4096 */
    assert_int_equal(brim_session_length(session), 0);
    assert_null(brim_session_logits(session));
    brim_session_close(&session);
    brim_session_close(&session);
    brim_session_close(NULL);

    brim_session_options options;
    brim_session_options_default(&options);
    options.n_context = 129;
    MUST_FAIL(brim_session_open(&session, engine, &options, &err), BRIM_E_RANGE, "129");
    assert_null(session);
    options.n_context = -1;
    MUST_FAIL(brim_session_open(&session, engine, &options, &err), BRIM_E_RANGE, "-1");
    options.n_context = 8;
    options.prefill_chunk = -2;
    MUST_FAIL(brim_session_open(&session, engine, &options, &err), BRIM_E_RANGE, "-2");
    MUST_FAIL(brim_session_open(&session, NULL, NULL, &err), BRIM_E_ARGUMENT, "null");
    MUST_FAIL(brim_session_open(NULL, engine, NULL, &err), BRIM_E_ARGUMENT, "null");
}

static void context_overflow_changes_nothing(void **state)
{
    (void)state;
    int32_t ids[32];
    float before[N_VOCAB];
    some_ids(1, ids, 32);
    brim_session *session = tiny_session(engine, 16, 0);
    MUST(brim_session_eval(session, ids, 10, &err));
    memcpy(before, brim_session_logits(session), sizeof before);
    MUST_FAIL(brim_session_eval(session, ids, 7, &err), BRIM_E_CONTEXT, "17");
    MUST_FAIL(brim_session_eval(session, ids, 7, &err), BRIM_E_CONTEXT, "16");
    MUST_FAIL(brim_session_sync(session, ids, 17, NULL, &err), BRIM_E_CONTEXT, "17");
    float out[1];
    MUST_FAIL(brim_session_eval_all(session, ids, 7, out, &err), BRIM_E_CONTEXT, "16");
    ids[3] = N_VOCAB;
    MUST_FAIL(brim_session_eval(session, ids, 5, &err), BRIM_E_RANGE, "token 3: id 512");
    ids[3] = -1;
    MUST_FAIL(brim_session_sync(session, ids, 5, NULL, &err), BRIM_E_RANGE, "token 3: id -1");
    MUST_FAIL(brim_session_eval(session, ids, -1, &err), BRIM_E_ARGUMENT, "-1");
    MUST_FAIL(brim_session_eval(session, NULL, 1, &err), BRIM_E_ARGUMENT, "null");
    assert_int_equal(brim_session_length(session), 10);
    assert_logits(session, before);
    some_ids(1, ids, 32);
    assert_memory_equal(brim_session_tokens(session), ids, 10 * sizeof *ids);
    MUST(brim_session_eval(session, ids, 0, &err));
    assert_logits(session, before);
    MUST(brim_session_eval(session, ids, 6, &err)); /* exactly full */
    assert_int_equal(brim_session_length(session), 16);
    MUST_FAIL(brim_session_eval(session, ids, 1, &err), BRIM_E_CONTEXT, "16");
    brim_session_close(&session);
}

static void sync_reuses_the_common_prefix(void **state)
{
    (void)state;
    int32_t ids[40];
    float expected[N_VOCAB];
    int64_t n_reused = -1;
    some_ids(2, ids, 40);
    brim_session *session = tiny_session(engine, 64, 0);
    MUST(brim_session_sync(session, ids, 20, &n_reused, &err));
    assert_int_equal(n_reused, 0);
    fresh_logits(ids, 20, expected);
    assert_logits(session, expected);

    /* The same again: all but the last token are kept. */
    MUST(brim_session_sync(session, ids, 20, &n_reused, &err));
    assert_int_equal(n_reused, 19);
    assert_int_equal(brim_session_length(session), 20);

    MUST(brim_session_sync(session, ids, 40, &n_reused, &err));
    assert_int_equal(n_reused, 20);
    ids[30] = (ids[30] + 1) % 400;
    MUST(brim_session_sync(session, ids, 40, &n_reused, &err));
    assert_int_equal(n_reused, 30);
    MUST(brim_session_sync(session, ids, 5, &n_reused, &err)); /* shorter */
    assert_int_equal(n_reused, 4);
    assert_int_equal(brim_session_length(session), 5);
    ids[0] = (ids[0] + 1) % 400;
    MUST(brim_session_sync(session, ids, 20, &n_reused, &err));
    assert_int_equal(n_reused, 0);
    fresh_logits(ids, 20, expected);
    assert_logits(session, expected);
    MUST(brim_session_sync(session, NULL, 0, &n_reused, &err));
    assert_int_equal(brim_session_length(session), 0);
    assert_null(brim_session_logits(session));
    brim_session_close(&session);
}

/* Evaluated in the same pieces, a rewound session has the bits of a fresh one. */
static void rewound_equals_fresh(void **state)
{
    (void)state;
    int32_t ids[60], other[60];
    some_ids(3, ids, 60);
    some_ids(4, other, 60);
    brim_session *session = tiny_session(engine, 0, 0), *fresh = tiny_session(engine, 0, 0);
    MUST(brim_session_eval(session, ids, 33, &err));
    MUST(brim_session_eval(session, other, 60, &err));
    MUST(brim_session_rewind(session, 33, &err));
    assert_null(brim_session_logits(session));
    assert_int_equal(brim_session_length(session), 33);
    MUST(brim_session_eval(session, ids + 33, 20, &err));
    MUST(brim_session_eval(fresh, ids, 33, &err));
    MUST(brim_session_eval(fresh, ids + 33, 20, &err));
    assert_logits(session, brim_session_logits(fresh));
    for (int i = 53; i < 60; i++) {
        MUST(brim_session_eval(session, ids + i, 1, &err));
        MUST(brim_session_eval(fresh, ids + i, 1, &err));
        assert_logits(session, brim_session_logits(fresh));
    }
    MUST(brim_session_rewind(session, 60, &err)); /* nothing is forgotten */
    assert_logits(session, brim_session_logits(fresh));
    MUST_FAIL(brim_session_rewind(session, 61, &err), BRIM_E_RANGE, "61");
    MUST_FAIL(brim_session_rewind(session, -1, &err), BRIM_E_RANGE, "-1");
    MUST(brim_session_rewind(session, 0, &err));
    MUST(brim_session_eval(session, ids, 33, &err));
    brim_session_close(&fresh);
    fresh = tiny_session(engine, 0, 0);
    MUST(brim_session_eval(fresh, ids, 33, &err));
    assert_logits(session, brim_session_logits(fresh));
    brim_session_close(&fresh);
    brim_session_close(&session);
}

/* In one piece, in chunks of any size, token by token: within the bound of docs/numerics.md. */
static void pieces_agree(void **state)
{
    (void)state;
    enum { N = 50 };
    int32_t ids[N];
    some_ids(5, ids, N);
    float *whole = malloc(N * N_VOCAB * sizeof *whole),
          *parts = malloc(N * N_VOCAB * sizeof *parts);
    assert_true(whole && parts);
    brim_session *session = tiny_session(engine, 0, 0);
    MUST(brim_session_eval_all(session, ids, N, whole, &err));
    brim_session_close(&session);
    float largest = 0;
    for (int i = 0; i < N * N_VOCAB; i++) largest = fmaxf(largest, fabsf(whole[i]));
    for (int64_t chunk = 1; chunk <= 17; chunk++) {
        session = tiny_session(engine, 0, chunk);
        MUST(brim_session_eval_all(session, ids, 3, parts, &err));
        MUST(brim_session_eval_all(session, ids + 3, N - 3, parts + 3 * N_VOCAB, &err));
        for (int i = 0; i < N * N_VOCAB; i++)
            assert_true(fabsf(whole[i] - parts[i]) <= 2e-3f * largest);
        brim_session_close(&session);
    }
    free(whole);
    free(parts);
}

static void decode_allocates_nothing(void **state)
{
    (void)state;
    int32_t ids[40];
    some_ids(6, ids, 40);
    brim_session *session = tiny_session(engine, 0, 0);
    brim_sampler *sampler;
    brim_sampling sampling;
    brim_sampling_default(&sampling);
    sampling.temperature = 0.8f;
    sampling.top_k = 50;
    sampling.top_p = 0.9f;
    sampling.repeat_penalty = 1.1f;
    MUST(brim_sampler_open(&sampler, engine, &sampling, &err));
    uint64_t count = brim_mem_count();
    MUST(brim_session_eval(session, ids, 40, &err));
    for (int i = 0; i < 20; i++) {
        int32_t id;
        MUST(brim_sampler_next(sampler, session, &id, &err));
        MUST(brim_session_eval(session, &id, 1, &err));
    }
    assert_int_equal(brim_mem_count(), count);
    brim_sampler_close(&sampler);
    brim_session_close(&session);
}

/* Lets `ctx` more chunks follow. */
static bool countdown(void *ctx)
{
    return (*(int *)ctx)-- > 0;
}

static void stopped_between_chunks(void **state)
{
    (void)state;
    int32_t ids[50];
    for (int i = 0; i < 50; i++) ids[i] = (i * 37 + 11) % N_VOCAB;
    int more = 1;
    brim_session_options options;
    brim_session_options_default(&options);
    options.prefill_chunk = 16;
    options.keep_going = countdown;
    options.keep_going_ctx = &more;
    brim_session *session;
    MUST(brim_session_open(&session, engine, &options, &err));
    MUST_FAIL(brim_session_sync(session, ids, 50, NULL, &err), BRIM_E_CANCELLED, "32 of 50");
    assert_int_equal(brim_session_length(session), 32); /* two chunks */
    assert_null(brim_session_logits(session));
    more = 100;
    int64_t n_reused;
    MUST(brim_session_sync(session, ids, 50, &n_reused, &err));
    assert_int_equal(n_reused, 32);
    /* one chunk is never interrupted: a decode step always completes */
    more = 0;
    MUST(brim_session_eval(session, ids, 16, &err));
    float *rows = malloc(20 * N_VOCAB * sizeof *rows);
    MUST_FAIL(brim_session_eval_all(session, ids, 20, rows, &err), BRIM_E_CANCELLED, "16 of 20");
    assert_int_equal(brim_session_length(session), 50 + 16 + 16);
    free(rows);
    brim_session_close(&session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_and_limits),
        cmocka_unit_test(context_overflow_changes_nothing),
        cmocka_unit_test(sync_reuses_the_common_prefix),
        cmocka_unit_test(rewound_equals_fresh),
        cmocka_unit_test(pieces_agree),
        cmocka_unit_test(decode_allocates_nothing),
        cmocka_unit_test(stopped_between_chunks),
    };
    return cmocka_run_group_tests_name("session", tests, open_engine, close_engine);
}
