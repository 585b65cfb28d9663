/* SPDX-License-Identifier: Apache-2.0
 * Attention tiles against plain C, split against whole, and the driver over threads and chunks. */
#include "check/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cpu/attention.h"

struct attn_case {
    int n_head, head_dim, n_tok; /* n_head: query heads of one key head */
    int64_t first_pos;
    enum brim_dtype dtype;
};

static const struct attn_case cases[] = {
    {1, 64, 1, 0, BRIM_DTYPE_F16},     {3, 64, 1, 62, BRIM_DTYPE_F16},
    {3, 64, 1, 63, BRIM_DTYPE_F16},    {3, 64, 1, 64, BRIM_DTYPE_F16},
    {3, 64, 32, 0, BRIM_DTYPE_F16},    {3, 64, 32, 480, BRIM_DTYPE_F16},
    {3, 64, 17, 250, BRIM_DTYPE_F32},  {1, 64, 70, 5, BRIM_DTYPE_F16},
    {2, 128, 1, 300, BRIM_DTYPE_F16},  {4, 128, 9, 255, BRIM_DTYPE_F16},
    {4, 128, 24, 511, BRIM_DTYPE_F16}, {7, 64, 2, 256, BRIM_DTYPE_F16},
    {8, 128, 3, 100, BRIM_DTYPE_F32},  {5, 40, 13, 60, BRIM_DTYPE_F16},
    {1, 8, 65, 0, BRIM_DTYPE_F16},     {2, 8, 1, 127, BRIM_DTYPE_F32},
    {3, 256, 5, 90, BRIM_DTYPE_F16},   {16, 72, 4, 31, BRIM_DTYPE_F16},
    {6, 96, 1, 770, BRIM_DTYPE_F16},   {1, 64, 1, 1500, BRIM_DTYPE_F32},
};
enum { N_CASE = sizeof cases / sizeof *cases };

/* Keys and values of positions 0..n_pos - 1; what lies behind is NaN up to the end of the block. */
static void fill_kv(struct check *c, const struct attn_case *p, void **k, void **v)
{
    int64_t n_pos = p->first_pos + p->n_tok, n_alloc = brim_attention_kv_round(n_pos);
    int64_t dim = p->head_dim;
    size_t n_bytes = brim_attention_kv_bytes(p->dtype, 1, p->head_dim, n_alloc);
    *k = check_alloc(c, n_bytes, 64);
    *v = check_alloc(c, n_bytes, 64);
    struct brim_attention_kv kv = {p->dtype, 1, p->head_dim, n_alloc, *k, *v};
    float *keys = check_floats(c, n_pos * dim, -1, 1),
          *values = check_floats(c, n_pos * dim, -1, 1);
    brim_attention_kv_store(c->ref, NULL, &kv, 0, n_pos, keys, dim, values, dim);
}

/* Keys and values of the last token are NaN: the rows of the tile before it keep their bits, though
 * a weight of zero would not hide a NaN. */
static void case_causal(struct check *c, const void *param)
{
    const struct attn_case *p = param;
    int64_t dim = p->head_dim, width = p->n_head * dim, n_pos = p->first_pos + p->n_tok;
    int64_t n_alloc = brim_attention_kv_round(n_pos), n_value = p->n_tok * width;
    void *k, *v;
    fill_kv(c, p, &k, &v);
    struct brim_attention_tile tile = {.q = check_floats(c, n_value, -1, 1),
                                       .q_stride = width,
                                       .n_tok = p->n_tok,
                                       .n_head = p->n_head,
                                       .first_pos = p->first_pos,
                                       .kv_dtype = p->dtype,
                                       .k = k,
                                       .v = v,
                                       .head_dim = p->head_dim,
                                       .scale = 1 / sqrtf((float)dim),
                                       .out_stride = width};
    size_t scratch_floats = brim_attention_scratch_floats(p->n_tok * p->n_head, p->head_dim);
    tile.scratch = check_alloc(c, scratch_floats * sizeof(float), 64);
    float *clean = check_poison(c, n_value), *got = check_poison(c, n_value);
    tile.out = clean;
    c->ops->attention(&tile);
    const float *nan = check_poison(c, dim);
    struct brim_attention_kv kv = {p->dtype, 1, p->head_dim, n_alloc, k, v};
    brim_attention_kv_store(c->ref, NULL, &kv, n_pos - 1, 1, nan, dim, nan, dim);
    tile.out = got;
    c->ops->attention(&tile);
    check_equal(c, "rows before a NaN", clean, got, (size_t)((p->n_tok - 1) * width) * sizeof *got);
    for (int64_t i = (p->n_tok - 1) * width; i < n_value; i++)
        if (!isnan(got[i])) check_fail(c, "the row that sees the NaN is %g", (double)got[i]);
}

static void call_attention(const struct brim_cpu_ops *ops, void *arg)
{
    ops->attention(arg);
}

static void case_tile(struct check *c, const void *param)
{
    const struct attn_case *p = param;
    int64_t dim = p->head_dim, width = p->n_head * dim, stride = width + 24;
    int64_t n_pos = p->first_pos + p->n_tok;
    int n_row = p->n_tok * p->n_head;
    struct brim_attention_tile tile = {.q_stride = stride,
                                       .n_tok = p->n_tok,
                                       .n_head = p->n_head,
                                       .first_pos = p->first_pos,
                                       .kv_dtype = p->dtype,
                                       .head_dim = p->head_dim,
                                       .scale = 1 / sqrtf((float)dim),
                                       .out_stride = stride};
    void *k, *v;
    fill_kv(c, p, &k, &v);
    tile.k = k;
    tile.v = v;
    int64_t n_value = (p->n_tok - 1) * stride + width;
    tile.q = check_floats(c, n_value, -1, 1);
    tile.scratch =
        check_alloc(c, brim_attention_scratch_floats(n_row, p->head_dim) * sizeof(float), 64);
    float *expected = check_poison(c, n_value), *got = check_poison(c, n_value);
    tile.out = expected;
    c->ref->attention(&tile);
    tile.out = got;
    c->ops->attention(&tile);
    /* |q|, |k|, |v| <= 1, u = 2^-24: a score is off by at most dim u times the sum of |q k| scale
     * <= sqrt(dim); a result moves by twice that and by the errors of the weights and their sums.
     */
    double u = 0x1p-24;
    double bound = 2 * (double)dim * u * sqrt((double)dim) + ((double)n_pos + 64) * u;
    check_near(c, "out", expected, got, n_value, bound, 0);

    /* Segment by segment, then merged: the same bits. */
    size_t n_segment = (size_t)(n_pos - 1) / BRIM_ATTENTION_SEGMENT + 1;
    size_t partial_floats = brim_attention_partial_floats(n_row, p->head_dim);
    float *partial = check_alloc(c, n_segment * partial_floats * sizeof(float), 64);
    float *merged = check_poison(c, n_value);
    tile.out = merged;
    for (size_t segment = 0; segment < n_segment; segment++) {
        tile.partial = partial + segment * partial_floats;
        tile.segment = (int64_t)segment;
        c->ops->attention(&tile);
    }
    tile.partial = partial;
    c->ops->attention_merge(&tile, (int64_t)n_segment);
    check_equal(c, "merged segments", got, merged, (size_t)n_value * sizeof *got);
    tile.partial = NULL;

    double pairs = 0;
    for (int64_t tok = 0; tok < p->n_tok; tok++) pairs += (double)(p->first_pos + tok + 1);
    char name[100];
    snprintf(name, sizeof name, "attention %d x %lld keys, %d heads of %d", p->n_tok,
             (long long)n_pos, p->n_head, p->head_dim);
    check_bench(c, name, pairs * 4 * (double)width, "flop", call_attention, &tile);
}

/* The driver: one piece on one thread against chunks on three. */
static void case_driver(struct check *c, const void *param)
{
    (void)param;
    enum { N_HEAD = 6, N_KV = 2, DIM = 64, N_TOK = 600, Q = N_HEAD * DIM, KV = N_KV * DIM };
    struct brim_pool *pool;
    brim_error err;
    if (brim_pool_create(&pool, 3, &err) != BRIM_OK) {
        check_fail(c, "%s", err.text);
        return;
    }
    int64_t n_alloc = brim_attention_kv_round(N_TOK);
    size_t n_bytes = brim_attention_kv_bytes(BRIM_DTYPE_F16, N_KV, DIM, n_alloc);
    float *q = check_floats(c, (int64_t)N_TOK * Q, -1, 1);
    float *k = check_floats(c, (int64_t)N_TOK * KV, -1, 1);
    float *v = check_floats(c, (int64_t)N_TOK * KV, -1, 1);
    float *whole = check_poison(c, (int64_t)N_TOK * Q),
          *chunked = check_poison(c, (int64_t)N_TOK * Q);
    struct brim_attention_kv kv[2] = {{BRIM_DTYPE_F16, N_KV, DIM, n_alloc,
                                       check_alloc(c, n_bytes, 64), check_alloc(c, n_bytes, 64)},
                                      {BRIM_DTYPE_F16, N_KV, DIM, n_alloc,
                                       check_alloc(c, n_bytes, 64), check_alloc(c, n_bytes, 64)}};
    void *workspace =
        check_alloc(c, brim_attention_workspace_bytes(N_HEAD, N_KV, DIM, N_TOK, N_TOK, 3), 64);
    brim_attention_kv_store(c->ops, NULL, &kv[0], 0, N_TOK, k, KV, v, KV);
    brim_attention_run(c->ops, NULL, &kv[0], q, Q, N_HEAD, 0, N_TOK, 0.125f, whole, Q, workspace);
    for (int64_t tok = 0, n = 1; tok < N_TOK; tok += n) {
        n = tok < 100 ? 37 : tok < 500 ? 64 : 1; /* the last tokens one by one, segments split */
        if (n > N_TOK - tok) n = N_TOK - tok;
        brim_attention_kv_store(c->ops, pool, &kv[1], tok, n, k + tok * KV, KV, v + tok * KV, KV);
        brim_attention_run(c->ops, pool, &kv[1], q + tok * Q, Q, N_HEAD, tok, n, 0.125f,
                           chunked + tok * Q, Q, workspace);
    }
    brim_pool_free(&pool);
    check_equal(c, "in chunks on three threads", whole, chunked, sizeof(float) * N_TOK * Q);
}

void check_attn(struct check *c)
{
    for (int i = 0; i < N_CASE; i++) {
        const struct attn_case *p = &cases[i];
        check_case(c, case_tile, p, "attention n_head=%d head_dim=%d n_tok=%d first_pos=%lld %s",
                   p->n_head, p->head_dim, p->n_tok, (long long)p->first_pos,
                   brim_dtype_name(p->dtype));
        check_case(c, case_causal, p,
                   "attention causal n_head=%d head_dim=%d n_tok=%d first_pos=%lld", p->n_head,
                   p->head_dim, p->n_tok, (long long)p->first_pos);
    }
    check_case(c, case_driver, NULL, "attention driver");
}
