/* SPDX-License-Identifier: Apache-2.0
 * Logits of the tiny checkpoints against Hugging Face transformers in float32, on every tier, cache
 * type, product and chunk size. Bounds are fractions of the largest logit; docs/numerics.md derives
 * them. BRIM_VERBOSE=1 prints what was measured.
 * ctest labels: threads */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/cpu.h"
#include "engine_util.h"

#define BOUND_F32 1e-4f    /* f32 activations and cache, any tier: the order of sums */
#define BOUND_KV_F16 5e-3f /* keys and values rounded to 11 bits */
#define BOUND_INT8 6e-2f   /* activations rounded to 8 bits in groups of 32 */

struct run {
    const char *tier, *level;
    bool int8, kv_f32;
    int n_thread;
    int64_t chunk;
};

/* Logits of all positions, malloc'd. */
static float *run_model(const struct golden *g, const struct run *run)
{
    brim_error err = {0};
    brim_engine_options options;
    brim_engine_options_default(&options);
    options.cpu_tier = run->tier;
    options.level = run->level;
    options.activations_int8 = run->int8;
    options.n_thread = run->n_thread;
    brim_engine *engine;
    if (brim_engine_open(&engine, g->path, &options, &err) != BRIM_OK) fail_msg("%s", err.text);
    brim_session_options so;
    brim_session_options_default(&so);
    so.prefill_chunk = run->chunk;
    so.kv_f32 = run->kv_f32;
    brim_session *session;
    if (brim_session_open(&session, engine, &so, &err) != BRIM_OK) fail_msg("%s", err.text);
    size_t n_bytes = (size_t)g->n_token * (size_t)g->n_vocab * sizeof(float);
    float *out = malloc(n_bytes);
    assert_non_null(out);
    memset(out, 0xFF, n_bytes); /* NaN */
    assert_int_equal(brim_session_eval_all(session, g->ids, g->n_token, out, &err), BRIM_OK);
    /* The session's own logits are those of the last row, up to the kernel for a single row. */
    const float *own = brim_session_logits(session);
    const float *last = out + (size_t)(g->n_token - 1) * (size_t)g->n_vocab;
    for (int32_t i = 0; i < g->n_vocab; i++)
        assert_true(fabsf(own[i] - last[i]) <= (run->int8 ? BOUND_INT8 : BOUND_F32) * g->largest);
    brim_session_close(&session);
    brim_engine_close(&engine);
    return out;
}

/* Largest difference as a fraction of the largest golden logit; NaN counts as infinite. */
static float difference(const struct golden *g, const float *logits)
{
    float worst = 0;
    size_t n = (size_t)g->n_token * (size_t)g->n_vocab;
    for (size_t i = 0; i < n; i++) {
        float d = fabsf(logits[i] - g->logits[i]);
        if (!(d <= worst)) worst = isnan(d) ? INFINITY : d;
    }
    return worst / g->largest;
}

static void check(const char *name, const struct run *run, float bound)
{
    struct golden g = golden_load(name);
    float *logits = run_model(&g, run);
    float d = difference(&g, logits);
    if (getenv("BRIM_VERBOSE"))
        printf("%-15s tier %-6s level %-8s %s kv %s chunk %2d: %.2g of %.2g\n", name,
               run->tier ? run->tier : "best", run->level ? run->level : "split-k",
               run->int8 ? "int8" : "f32 ", run->kv_f32 ? "f32" : "f16", (int)run->chunk, (double)d,
               (double)bound);
    if (!(d <= bound))
        fail_msg("%s: tier %s, level %s, int8 %d, kv_f32 %d, chunk %d: %g exceeds %g", name,
                 run->tier ? run->tier : "best", run->level ? run->level : "split-k", run->int8,
                 run->kv_f32, (int)run->chunk, (double)d, (double)bound);
    free(logits);
    golden_free(&g);
}

static bool tier_runs(const char *name)
{
    struct brim_cpu_info info = brim_cpu_detect();
    enum brim_cpu_tier tier;
    return brim_cpu_tier_parse(name, &tier) && brim_cpu_tier_ok(&info, tier);
}

static const char *const tiers[] = {"c", "avx2", "avx512", "neon"};

static void reference_tier(void **state)
{
    (void)state;
    for (int i = 0; i < N_GOLDEN; i++)
        check(golden_names[i], &(struct run){.tier = "c", .kv_f32 = true, .n_thread = 1},
              BOUND_F32);
}

static void every_tier_and_chunk(void **state)
{
    (void)state;
    static const int64_t chunks[] = {1, 7, 0};
    for (size_t t = 0; t < sizeof tiers / sizeof *tiers; t++) {
        if (!tier_runs(tiers[t])) continue;
        for (int i = 0; i < N_GOLDEN; i++) {
            for (size_t c = 0; c < 3; c++) {
                struct run run = {
                    .tier = tiers[t], .kv_f32 = true, .n_thread = 1, .chunk = chunks[c]};
                check(golden_names[i], &run, BOUND_F32);
                run.kv_f32 = false;
                check(golden_names[i], &run, BOUND_KV_F16);
            }
        }
    }
}

static void every_level(void **state)
{
    (void)state;
    static const char *const levels[] = {"dense", "matvec", "tiled"};
    for (int i = 0; i < N_GOLDEN; i++)
        for (size_t l = 0; l < 3; l++)
            check(golden_names[i],
                  &(struct run){.level = levels[l], .kv_f32 = true, .n_thread = 1, .chunk = 20},
                  BOUND_F32);
}

static void int8_activations(void **state)
{
    (void)state;
    for (int i = 0; i < N_GOLDEN; i++) {
        struct run run = {.int8 = true, .n_thread = 1, .kv_f32 = true};
        check(golden_names[i], &run, BOUND_INT8);
        run.tier = "c";
        check(golden_names[i], &run, BOUND_INT8);
    }
}

/* brim_session_eval takes only its last row through the end of the last layer, and no row of the
 * chunks before: the logits are still those of the position. */
static void last_row_alone(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, 9, 31, 48}, chunks[] = {0, 1, 10};
    for (int i = 0; i < N_GOLDEN; i++) {
        struct golden g = golden_load(golden_names[i]);
        brim_engine *engine = tiny_engine(golden_names[i], 1);
        for (int c = 0; c < 3; c++) {
            for (int l = 0; l < 5; l++) {
                brim_session *session;
                brim_session_options options = {.prefill_chunk = chunks[c], .kv_f32 = true};
                MUST(brim_session_open(&session, engine, &options, &err));
                MUST(brim_session_eval(session, g.ids, lengths[l], &err));
                const float *logits = brim_session_logits(session);
                const float *expected = g.logits + (lengths[l] - 1) * g.n_vocab;
                for (int32_t v = 0; v < g.n_vocab; v++)
                    assert_true(fabsf(logits[v] - expected[v]) <= BOUND_F32 * g.largest);
                brim_session_close(&session);
            }
        }
        brim_engine_close(&engine);
        golden_free(&g);
    }
}

/* Not a bit changes with the number of threads, in prefill or token by token. */
static void threads_do_not_matter(void **state)
{
    (void)state;
    for (int i = 0; i < N_GOLDEN; i++) {
        struct golden g = golden_load(golden_names[i]);
        for (int int8 = 0; int8 < 2; int8++) {
            /* Token by token is slow with more threads than processors: some of the models do. */
            for (int64_t chunk = 0; chunk < (i % 4 == 0 ? 2 : 1); chunk++) {
                struct run run = {.n_thread = 1, .chunk = chunk, .int8 = int8};
                float *one = run_model(&g, &run);
                for (run.n_thread = 2; run.n_thread <= 3; run.n_thread++) {
                    float *more = run_model(&g, &run);
                    assert_memory_equal(one, more,
                                        (size_t)g.n_token * (size_t)g.n_vocab * sizeof(float));
                    free(more);
                }
                free(one);
            }
        }
        golden_free(&g);
    }
}

static void assert_same_bits(const struct golden *g, const struct run *a, const struct run *b)
{
    float *x = run_model(g, a), *y = run_model(g, b);
    assert_memory_equal(x, y, (size_t)g->n_token * (size_t)g->n_vocab * sizeof(float));
    free(x);
    free(y);
}

/* Steps of more than eight rows take the tile; while the reduction is not split, their size does
 * not change a bit. */
static void long_chunks_are_equal(void **state)
{
    (void)state;
    for (int i = 0; i < N_GOLDEN; i++) {
        struct golden g = golden_load(golden_names[i]);
        for (size_t t = 0; t < sizeof tiers / sizeof *tiers; t++) {
            if (!tier_runs(tiers[t])) continue;
            struct run a = {.tier = tiers[t], .n_thread = 1, .level = "tiled"}, b = a;
            static const int64_t sizes[] = {12, 16, 32}; /* no piece or block of heads below 9 */
            for (int c = 0; c < 3; c++) {
                b.chunk = sizes[c];
                assert_same_bits(&g, &a, &b);
            }
        }
        golden_free(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_tier),        cmocka_unit_test(every_tier_and_chunk),
        cmocka_unit_test(every_level),           cmocka_unit_test(int8_activations),
        cmocka_unit_test(threads_do_not_matter), cmocka_unit_test(last_row_alone),
        cmocka_unit_test(long_chunks_are_equal),
    };
    return cmocka_run_group_tests_name("model_golden", tests, NULL, NULL);
}
