/* SPDX-License-Identifier: Apache-2.0
 * Sampling: parameters at and beyond their limits, and the distribution against a plain
 * implementation that sorts everything. */
#include "engine_util.h"

#include <math.h>

#include "base/mem.h"
#include "run/sampler.h"

enum { N_VOCAB = 512, N_TOKEN = 479 /* the rest of the rows is padding */ };

static brim_engine *engine;
static const float nan_value = NAN;

static int open_engine(void **state)
{
    (void)state;
    engine = tiny_engine("llama_tied", 1);
    return 0;
}

static int close_engine(void **state)
{
    (void)state;
    brim_engine_close(&engine);
    return 0;
}

static brim_sampling defaults(void)
{
    brim_sampling s;
    brim_sampling_default(&s);
    return s;
}

static brim_sampler *open_sampler(brim_sampling s)
{
    brim_sampler *sampler;
    MUST(brim_sampler_open(&sampler, engine, &s, &err));
    return sampler;
}

/* Logits as models have them: a bell, a few far above. */
static void some_logits(uint32_t seed, float *logits)
{
    for (int i = 0; i < N_VOCAB; i++) {
        float sum = 0;
        for (int j = 0; j < 4; j++) {
            seed = seed * 1664525u + 1013904223u;
            sum += (float)(seed >> 8) * 0x1p-24f - 0.5f;
        }
        logits[i] = 3 * sum;
    }
    logits[7] = 6;
    logits[400] = 5.5f;
    logits[33] = 5.5f;
}

static int32_t next(brim_sampler *sampler, const float *logits)
{
    int32_t id = -1;
    MUST(brim_sample_logits(sampler, logits, NULL, 0, &id, &err));
    assert_in_range(id, 0, N_TOKEN - 1);
    return id;
}

static void ranges(void **state)
{
    (void)state;
    static const struct {
        int field; /* 0 temperature, 1 top_p, 2 min_p, 3 repeat_penalty */
        float value;
        bool ok;
    } rows[] = {
        {0, 0, true},        {0, 1e-30f, true},    {0, 5, true},      {0, -1, false},
        {0, -1e-30f, false}, {0, INFINITY, false}, {0, NAN, false},   {1, 0, true},
        {1, 1, true},        {1, 1.1f, false},     {1, -0.1f, false}, {1, NAN, false},
        {2, 0, true},        {2, 1, true},         {2, 1.5f, false},  {2, -1, false},
        {2, NAN, false},     {3, 1e-3f, true},     {3, 0, false},     {3, -1, false},
        {3, NAN, false},     {3, INFINITY, false},
    };
    static const char *const names[] = {"temperature", "top_p", "min_p", "repeat_penalty"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        brim_sampling s = defaults();
        s.temperature = 1;
        float *fields[] = {&s.temperature, &s.top_p, &s.min_p, &s.repeat_penalty};
        *fields[rows[i].field] = rows[i].value;
        brim_sampler *sampler;
        if (rows[i].ok) {
            MUST(brim_sampler_open(&sampler, engine, &s, &err));
        } else {
            MUST_FAIL(brim_sampler_open(&sampler, engine, &s, &err), BRIM_E_RANGE,
                      names[rows[i].field]);
            assert_null(sampler);
        }
        brim_sampler_close(&sampler);
    }
    brim_sampling s = defaults();
    s.repeat_window = -2;
    brim_sampler *sampler;
    MUST_FAIL(brim_sampler_open(&sampler, engine, &s, &err), BRIM_E_RANGE, "repeat_window");
    static const int32_t top_ks[] = {INT32_MIN, -1, 0, 1, N_VOCAB, 1000000000, INT32_MAX};
    float logits[N_VOCAB];
    some_logits(1, logits);
    for (size_t i = 0; i < sizeof top_ks / sizeof *top_ks; i++) {
        s = defaults();
        s.temperature = 1;
        s.top_k = top_ks[i];
        sampler = open_sampler(s);
        for (int j = 0; j < 20; j++) {
            int32_t id = next(sampler, logits);
            if (top_ks[i] == 1) assert_int_equal(id, 7);
        }
        brim_sampler_close(&sampler);
    }
}

/* Temperature below 1e-5 is argmax: the lowest id of equal logits, never a padding row. */
static void greedy(void **state)
{
    (void)state;
    static const float temperatures[] = {0, 1e-30f, 9e-6f};
    float logits[N_VOCAB];
    for (int t = 0; t < 3; t++) {
        brim_sampling s = defaults();
        s.temperature = temperatures[t];
        brim_sampler *sampler = open_sampler(s);
        some_logits(2, logits);
        for (int i = N_TOKEN; i < N_VOCAB; i++) logits[i] = 100;
        assert_int_equal(next(sampler, logits), 7);
        logits[5] = logits[11] = 6;
        assert_int_equal(next(sampler, logits), 5);
        logits[0] = -0.0f;
        for (int i = 1; i < N_VOCAB; i++) logits[i] = 0;
        assert_int_equal(next(sampler, logits), 0);
        for (int i = 0; i < N_VOCAB; i++) logits[i] = -INFINITY;
        logits[N_TOKEN - 1] = -1e30f;
        assert_int_equal(next(sampler, logits), N_TOKEN - 1);
        brim_sampler_close(&sampler);
    }
}

static void not_finite(void **state)
{
    (void)state;
    float logits[N_VOCAB];
    int32_t id;
    for (int hot = 0; hot < 2; hot++) {
        brim_sampling s = defaults();
        s.temperature = (float)hot;
        brim_sampler *sampler = open_sampler(s);
        some_logits(3, logits);
        logits[N_TOKEN] = nan_value; /* padding rows do not count */
        (void)next(sampler, logits);
        logits[100] = nan_value;
        MUST_FAIL(brim_sample_logits(sampler, logits, NULL, 0, &id, &err), BRIM_E_NOT_FINITE,
                  "not finite");
        logits[100] = INFINITY;
        MUST_FAIL(brim_sample_logits(sampler, logits, NULL, 0, &id, &err), BRIM_E_NOT_FINITE,
                  "not finite");
        logits[100] = -INFINITY; /* a masked token */
        for (int i = 0; i < 50; i++) assert_int_not_equal(next(sampler, logits), 100);
        for (int i = 0; i < N_TOKEN; i++) logits[i] = -INFINITY;
        MUST_FAIL(brim_sample_logits(sampler, logits, NULL, 0, &id, &err), BRIM_E_NOT_FINITE,
                  "not finite");
        brim_sampler_close(&sampler);
    }
}

/* ---- the distribution ---- */

struct candidate {
    int32_t id;
    double logit, p;
};

static int by_logit(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id - y->id;
}

/* p[id] by sorting everything, in double. */
static void reference(const brim_sampling *s, const float *logits, double *p)
{
    struct candidate c[N_TOKEN];
    for (int32_t i = 0; i < N_TOKEN; i++) c[i] = (struct candidate){i, (double)logits[i], 0};
    qsort(c, N_TOKEN, sizeof *c, by_logit);
    int n = s->top_k > 0 && s->top_k < N_TOKEN ? s->top_k : N_TOKEN;
    double total = 0, sum = 0;
    for (int i = 0; i < n; i++) {
        c[i].p = exp((c[i].logit - c[0].logit) / (double)s->temperature);
        total += c[i].p;
    }
    int m = 0;
    while (m < n && (m == 0 || sum < (double)s->top_p * total || s->top_p >= 1)) sum += c[m++].p;
    double kept = 0;
    for (int i = 0; i < m; i++)
        if (i == 0 || c[i].p >= (double)s->min_p) kept += c[i].p;
    for (int i = 0; i < N_TOKEN; i++) p[i] = 0;
    for (int i = 0; i < m; i++)
        if (i == 0 || c[i].p >= (double)s->min_p) p[c[i].id] = c[i].p / kept;
}

static void distribution(void **state)
{
    (void)state;
    static const brim_sampling cases[] = {
        {.temperature = 1, .top_p = 1, .repeat_penalty = 1},
        {.temperature = 0.3f, .top_p = 1, .repeat_penalty = 1},
        {.temperature = 2, .top_p = 1, .top_k = 5, .repeat_penalty = 1},
        {.temperature = 1, .top_p = 1, .top_k = 2, .repeat_penalty = 1},
        {.temperature = 1, .top_p = 0.6f, .repeat_penalty = 1},
        {.temperature = 1, .top_p = 0, .repeat_penalty = 1},
        {.temperature = 1.5f, .top_p = 0.95f, .top_k = 40, .repeat_penalty = 1},
        {.temperature = 1, .top_p = 1, .min_p = 0.2f, .repeat_penalty = 1},
        {.temperature = 1, .top_p = 0.9f, .top_k = 100, .min_p = 0.05f, .repeat_penalty = 1},
        {.temperature = 1, .top_p = 1, .min_p = 1, .repeat_penalty = 1},
    };
    enum { N_DRAW = 40000 };
    float logits[N_VOCAB];
    some_logits(4, logits);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double p[N_TOKEN];
        int hits[N_TOKEN] = {0};
        reference(&cases[i], logits, p);
        brim_sampler *sampler = open_sampler(cases[i]);
        for (int d = 0; d < N_DRAW; d++) hits[next(sampler, logits)]++;
        for (int t = 0; t < N_TOKEN; t++) {
            double expected = p[t] * N_DRAW, spread = 6 * sqrt(expected * (1 - p[t])) + 3;
            if (p[t] == 0 && hits[t] > 0) fail_msg("case %zu: token %d drawn", i, t);
            if (fabs(hits[t] - expected) > spread)
                fail_msg("case %zu: token %d %d times, expected %.1f", i, t, hits[t], expected);
        }
        brim_sampler_close(&sampler);
    }
}

static void seeds(void **state)
{
    (void)state;
    float logits[N_VOCAB];
    some_logits(5, logits);
    brim_sampling s = defaults();
    s.temperature = 2;
    s.seed = 42;
    brim_sampler *a = open_sampler(s), *b = open_sampler(s);
    s.seed = 43;
    brim_sampler *c = open_sampler(s);
    int n_different = 0;
    for (int i = 0; i < 200; i++) {
        int32_t x = next(a, logits), y = next(b, logits), z = next(c, logits);
        assert_int_equal(x, y);
        n_different += x != z;
    }
    assert_true(n_different > 50);
    brim_sampler_close(&a);
    brim_sampler_close(&b);
    brim_sampler_close(&c);
}

static void repetition(void **state)
{
    (void)state;
    float logits[N_VOCAB];
    const int32_t tokens[] = {3, 9, 9, 9, 1, 2};
    int32_t id;
    for (int i = 0; i < N_VOCAB; i++) logits[i] = -8;
    logits[9] = 4;     /* 4 / 1.5: once, however often it occurs */
    logits[20] = 2.5f; /* not repeated */
    logits[1] = 3;
    brim_sampling s = defaults();
    s.repeat_penalty = 1.5f;
    s.repeat_window = -1;
    brim_sampler *sampler = open_sampler(s);
    MUST(brim_sample_logits(sampler, logits, tokens, 6, &id, &err));
    assert_int_equal(id, 9); /* 2.67 */
    logits[9] = 3.7f;        /* 2.47 */
    MUST(brim_sample_logits(sampler, logits, tokens, 6, &id, &err));
    assert_int_equal(id, 20);
    brim_sampler_close(&sampler);
    s.repeat_window = 2; /* 9 has left the window, 1 has not */
    sampler = open_sampler(s);
    MUST(brim_sample_logits(sampler, logits, tokens, 6, &id, &err));
    assert_int_equal(id, 9);
    for (int i = 0; i < N_VOCAB; i++) logits[i] = -2;
    logits[1] = -1.5f; /* times 1.5 */
    MUST(brim_sample_logits(sampler, logits, tokens, 6, &id, &err));
    assert_int_equal(id, 0);
    brim_sampler_close(&sampler);
    s.repeat_window = 0;
    sampler = open_sampler(s);
    MUST(brim_sample_logits(sampler, logits, tokens, 6, &id, &err));
    assert_int_equal(id, 1);
    brim_sampler_close(&sampler);
}

static void misuse(void **state)
{
    (void)state;
    int32_t id;
    brim_sampler *sampler = open_sampler(defaults());
    brim_session *session = tiny_session(engine, 0, 0);
    MUST_FAIL(brim_sampler_next(sampler, session, &id, &err), BRIM_E_ARGUMENT, "no logits");
    MUST_FAIL(brim_sampler_next(NULL, session, &id, &err), BRIM_E_ARGUMENT, "null");
    brim_engine *other = tiny_engine("llama_linear", 1);
    brim_session *foreign = tiny_session(other, 0, 0);
    MUST_FAIL(brim_sampler_next(sampler, foreign, &id, &err), BRIM_E_ARGUMENT, "another engine");
    brim_session_close(&foreign);
    brim_engine_close(&other);
    brim_session_close(&session);
    brim_sampler_close(&sampler);
    brim_sampler_close(&sampler);
    brim_sampling s = defaults();
    s.temperature = 1;
    s.repeat_penalty = 2;
    for (int n = 0; n < 5; n++) {
        brim_mem_fail_after(n);
        brim_status status = brim_sampler_open(&sampler, engine, &s, NULL);
        brim_mem_fail_after(-1);
        assert_int_equal(status, BRIM_E_NO_MEMORY);
        assert_null(sampler);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges),       cmocka_unit_test(greedy), cmocka_unit_test(not_finite),
        cmocka_unit_test(distribution), cmocka_unit_test(seeds),  cmocka_unit_test(repetition),
        cmocka_unit_test(misuse),
    };
    return cmocka_run_group_tests_name("sampler", tests, open_engine, close_engine);
}
