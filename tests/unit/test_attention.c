/* SPDX-License-Identifier: Apache-2.0
 * Attention against a two-pass softmax in double, and the promise that a row's bits depend on
 * neither tile, chunk, segment split nor thread. Runs every tier this processor has.
 * ctest labels: threads */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "cpu/attention.h"

struct shape {
    int n_head, n_head_kv, head_dim;
    int64_t n_tok;
    enum brim_dtype dtype;
};

struct problem {
    struct shape shape;
    float *q, *k, *v; /* [n_tok][heads][head_dim] */
    float scale;
};

static float *random_floats(struct brim_rng *rng, int64_t n, float spread)
{
    float *x = brim_alloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = (brim_rng_uniform(rng) * 2 - 1) * spread;
    return x;
}

static struct problem make_problem(struct shape shape, uint64_t seed)
{
    struct brim_rng rng;
    brim_rng_seed(&rng, seed);
    struct problem p = {.shape = shape, .scale = 1 / sqrtf((float)shape.head_dim)};
    int64_t kv = shape.n_tok * shape.n_head_kv * shape.head_dim;
    p.q = random_floats(&rng, shape.n_tok * shape.n_head * shape.head_dim, 4);
    p.k = random_floats(&rng, kv, 2);
    p.v = random_floats(&rng, kv, 1);
    return p;
}

static void free_problem(struct problem *p)
{
    brim_free(p->q);
    brim_free(p->k);
    brim_free(p->v);
}

static float narrowed(const struct problem *p, float x)
{
    return p->shape.dtype == BRIM_DTYPE_F16 ? brim_f32_from_f16(brim_f16_from_f32(x)) : x;
}

/* Row `tok` in double, straight from the definition. */
static void expected_row(const struct problem *p, int64_t tok, double *out)
{
    int64_t dim = p->shape.head_dim, n_head = p->shape.n_head, n_kv = p->shape.n_head_kv;
    double *weight = brim_alloc((size_t)(tok + 1) * sizeof *weight);
    assert_non_null(weight);
    for (int64_t h = 0; h < n_head; h++) {
        const float *q = p->q + (tok * n_head + h) * dim;
        int64_t kv = h / (n_head / n_kv);
        double largest = -INFINITY, sum = 0;
        for (int64_t j = 0; j <= tok; j++) {
            double s = 0;
            for (int64_t d = 0; d < dim; d++)
                s += (double)q[d] * (double)narrowed(p, p->k[(j * n_kv + kv) * dim + d]);
            weight[j] = s * (double)p->scale;
            if (weight[j] > largest) largest = weight[j];
        }
        for (int64_t j = 0; j <= tok; j++) sum += weight[j] = exp(weight[j] - largest);
        for (int64_t d = 0; d < dim; d++) {
            double acc = 0;
            for (int64_t j = 0; j <= tok; j++)
                acc += weight[j] / sum * (double)narrowed(p, p->v[(j * n_kv + kv) * dim + d]);
            out[h * dim + d] = acc;
        }
    }
    brim_free(weight);
}

/* Everything through the driver in chunks of `chunk` tokens; the cache starts out as NaN. */
static float *run_chunked(const struct problem *p, const struct brim_cpu_ops *ops,
                          struct brim_pool *pool, int64_t chunk)
{
    const struct shape *s = &p->shape;
    struct brim_attention_kv kv = {.dtype = s->dtype,
                                   .n_head_kv = s->n_head_kv,
                                   .head_dim = s->head_dim,
                                   .n_alloc = brim_attention_kv_round(s->n_tok)};
    size_t n_bytes = brim_attention_kv_bytes(kv.dtype, kv.n_head_kv, kv.head_dim, kv.n_alloc);
    kv.k = brim_alloc(n_bytes);
    kv.v = brim_alloc(n_bytes);
    int64_t q_width = (int64_t)s->n_head * s->head_dim,
            kv_width = (int64_t)s->n_head_kv * s->head_dim;
    float *out = brim_alloc((size_t)(s->n_tok * q_width) * sizeof *out);
    void *workspace = brim_alloc(brim_attention_workspace_bytes(
        s->n_head, s->n_head_kv, s->head_dim, chunk < s->n_tok ? chunk : s->n_tok, s->n_tok,
        brim_pool_size(pool)));
    assert_true(kv.k && kv.v && out && workspace);
    memset(kv.k, 0xFF, n_bytes);
    memset(kv.v, 0xFF, n_bytes);
    memset(out, 0xFF, (size_t)(s->n_tok * q_width) * sizeof *out);
    for (int64_t tok = 0; tok < s->n_tok; tok += chunk) {
        int64_t n = s->n_tok - tok < chunk ? s->n_tok - tok : chunk;
        brim_attention_kv_store(ops, pool, &kv, tok, n, p->k + tok * kv_width, kv_width,
                                p->v + tok * kv_width, kv_width);
        brim_attention_run(ops, pool, &kv, p->q + tok * q_width, q_width, s->n_head, tok, n,
                           p->scale, out + tok * q_width, q_width, workspace);
    }
    brim_free(workspace);
    brim_free(kv.k);
    brim_free(kv.v);
    return out;
}

static const struct shape shapes[] = {
    {3, 1, 64, 530, BRIM_DTYPE_F16}, {4, 4, 64, 130, BRIM_DTYPE_F32},
    {4, 2, 128, 70, BRIM_DTYPE_F16}, {7, 1, 64, 270, BRIM_DTYPE_F16},
    {8, 1, 40, 77, BRIM_DTYPE_F32},  {2, 1, 8, 65, BRIM_DTYPE_F16},
    {3, 1, 256, 33, BRIM_DTYPE_F16}, {12, 1, 16, 1, BRIM_DTYPE_F32},
    {100, 1, 24, 3, BRIM_DTYPE_F16},
};

/* Calls check(ops) for every tier that runs here. */
static void for_each_tier(void (*check)(const struct brim_cpu_ops *ops))
{
    struct brim_cpu_info info = brim_cpu_detect();
    for (int tier = BRIM_CPU_TIER_C; tier <= BRIM_CPU_TIER_NEON; tier++) {
        if (!brim_cpu_tier_ok(&info, (enum brim_cpu_tier)tier)) continue;
        print_message("tier %s\n", brim_cpu_tier_name((enum brim_cpu_tier)tier));
        check(brim_cpu_ops_get((enum brim_cpu_tier)tier, &info));
    }
}

static void check_definition(const struct brim_cpu_ops *ops)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct problem p = make_problem(shapes[i], i + 1);
        int64_t width = (int64_t)p.shape.n_head * p.shape.head_dim;
        float *out = run_chunked(&p, ops, NULL, p.shape.n_tok);
        double *expected = brim_alloc((size_t)width * sizeof *expected);
        assert_non_null(expected);
        for (int64_t tok = 0; tok < p.shape.n_tok; tok += tok < 70 ? 1 : 37) {
            expected_row(&p, tok, expected);
            for (int64_t d = 0; d < width; d++) {
                /* |v| <= 1 and scores up to about 20 whose f32 error enters the exponent */
                if (!(fabs((double)out[tok * width + d] - expected[d]) <= 2e-5))
                    fail_msg("shape %zu token %d value %d: %.9g, expected %.9g", i, (int)tok,
                             (int)d, (double)out[tok * width + d], expected[d]);
            }
        }
        brim_free(expected);
        brim_free(out);
        free_problem(&p);
    }
}

static void agrees_with_the_definition(void **state)
{
    (void)state;
    for_each_tier(check_definition);
}

static void check_chunks(const struct brim_cpu_ops *ops)
{
    struct brim_pool *pools[3] = {NULL};
    assert_int_equal(brim_pool_create(&pools[1], 2, NULL), BRIM_OK);
    assert_int_equal(brim_pool_create(&pools[2], 5, NULL), BRIM_OK);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct problem p = make_problem(shapes[i], i + 100);
        size_t n_bytes =
            (size_t)(p.shape.n_tok * p.shape.n_head * p.shape.head_dim) * sizeof(float);
        float *whole = run_chunked(&p, ops, NULL, p.shape.n_tok);
        /* (tokens per chunk, pool) */
        static const int runs[][2] = {{1, 2}, {3, 0}, {7, 2}, {64, 1}, {100000, 1}};
        for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
            float *other = run_chunked(&p, ops, pools[runs[r][1]], runs[r][0]);
            if (memcmp(whole, other, n_bytes) != 0)
                fail_msg("shape %zu: chunks of %d on pool %d differ from one piece", i, runs[r][0],
                         runs[r][1]);
            brim_free(other);
        }
        brim_free(whole);
        free_problem(&p);
    }
    brim_pool_free(&pools[1]);
    brim_pool_free(&pools[2]);
}

static void bits_do_not_depend_on_chunk_or_thread(void **state)
{
    (void)state;
    for_each_tier(check_chunks);
}

/* A NaN or an infinity in the key or value of position 100 must leave rows 0..99 alone, bit for
 * bit, though they are computed in the same step; a NaN, and an infinite value, reach every later
 * row of their own key head. An infinite key gives scores of either sign: -inf takes no part. */
static void check_nan(const struct brim_cpu_ops *ops)
{
    for (int which = 0; which < 4; which++) {
        bool in_value = which & 1;
        float bad = which & 2 ? INFINITY : NAN;
        struct problem p = make_problem((struct shape){4, 2, 64, 140, BRIM_DTYPE_F16}, 7);
        float *clean = run_chunked(&p, ops, NULL, 140);
        float *at = (in_value ? p.v : p.k) + (100 * 2 + 1) * 64;
        for (int d = 0; d < 64; d++) at[d] = bad;
        float *out = run_chunked(&p, ops, NULL, 140);
        for (int tok = 0; tok < 140; tok++) {
            for (int h = 0; h < 4; h++) {
                const float *row = out + (tok * 4 + h) * 64;
                if (tok < 100 || h < 2)
                    assert_memory_equal(row, clean + (tok * 4 + h) * 64, 64 * sizeof *row);
                else if (in_value || isnan(bad))
                    for (int d = 0; d < 64; d++) assert_true(!isfinite(row[d]));
            }
        }
        brim_free(clean);
        brim_free(out);
        free_problem(&p);
    }
}

static void nan_reaches_only_rows_that_see_it(void **state)
{
    (void)state;
    for_each_tier(check_nan);
}

/* Scores of -inf take no part; a whole block of them must not poison what follows. */
static void check_infinite(const struct brim_cpu_ops *ops)
{
    struct problem p = make_problem((struct shape){1, 1, 8, 100, BRIM_DTYPE_F32}, 3);
    for (int tok = 0; tok < 100; tok++) {
        for (int d = 0; d < 8; d++) p.q[tok * 8 + d] = d == 0;
        for (int d = 0; d < 8; d++) p.k[tok * 8 + d] = d == 0 ? (tok < 70 ? -INFINITY : 1) : 0;
    }
    float *out = run_chunked(&p, ops, NULL, 100);
    assert_true(isnan(out[69 * 8]));
    double mean = 0;
    for (int tok = 70; tok < 100; tok++) {
        mean += (double)p.v[tok * 8];
        assert_true(fabs((double)out[tok * 8] - mean / (tok - 69)) < 1e-6);
    }
    brim_free(out);
    p.k[5 * 8] = INFINITY;
    out = run_chunked(&p, ops, NULL, 100);
    assert_true(isnan(out[99 * 8]));
    brim_free(out);
    free_problem(&p);
}

static void infinite_scores(void **state)
{
    (void)state;
    for_each_tier(check_infinite);
}

static void export_and_import_are_exact(void **state)
{
    (void)state;
    struct brim_rng rng;
    brim_rng_seed(&rng, 5);
    struct brim_cpu_info info = brim_cpu_detect();
    const struct brim_cpu_ops *ops = brim_cpu_ops_get(BRIM_CPU_TIER_C, &info);
    for (int f32 = 0; f32 < 2; f32++) {
        struct brim_attention_kv kv = {.dtype = f32 ? BRIM_DTYPE_F32 : BRIM_DTYPE_F16,
                                       .n_head_kv = 2,
                                       .head_dim = 24,
                                       .n_alloc = 64};
        size_t n_bytes = brim_attention_kv_bytes(kv.dtype, 2, 24, 64);
        size_t width = brim_dtype_bytes(kv.dtype), n = 37;
        float *k = random_floats(&rng, 37 * 48, 1), *v = random_floats(&rng, 37 * 48, 1);
        uint8_t *copy = brim_alloc(2 * 2 * n * 24 * width),
                *again = brim_alloc(2 * 2 * n * 24 * width);
        kv.k = brim_calloc(1, n_bytes);
        kv.v = brim_calloc(1, n_bytes);
        assert_true(kv.k && kv.v && copy && again);
        brim_attention_kv_store(ops, NULL, &kv, 0, 37, k, 48, v, 48);
        brim_attention_kv_export(&kv, 37, copy);
        for (size_t part = 0; part < 2; part++) {
            for (size_t i = 0; i < 2 * n * 24; i++) {
                size_t head = i / (n * 24), pos = i / 24 % n, d = i % 24;
                float x = (part ? v : k)[pos * 48 + head * 24 + d];
                if (!f32) x = brim_f32_from_f16(brim_f16_from_f32(x));
                assert_true(brim_dtype_load(kv.dtype, copy + part * 2 * n * 24 * width, i) == x);
            }
        }
        memset(kv.k, 0, n_bytes);
        memset(kv.v, 0, n_bytes);
        brim_attention_kv_import(&kv, 37, copy);
        brim_attention_kv_export(&kv, 37, again);
        assert_memory_equal(copy, again, 2 * 2 * n * 24 * width);
        brim_free(k);
        brim_free(v);
        brim_free(copy);
        brim_free(again);
        brim_free(kv.k);
        brim_free(kv.v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_definition),
        cmocka_unit_test(bits_do_not_depend_on_chunk_or_thread),
        cmocka_unit_test(nan_reaches_only_rows_that_see_it),
        cmocka_unit_test(infinite_scores),
        cmocka_unit_test(export_and_import_are_exact),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
