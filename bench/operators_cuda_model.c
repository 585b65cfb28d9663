/* SPDX-License-Identifier: Apache-2.0
 * CUDA side of `brim bench operators`: the embedding's row, norm, rotation, SwiGLU, attention. Each
 * in its plain and in its fused form. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "operators_cuda.h"

#include "base/mem.h"
#include "cuda/model/ops.h"
#include "cuda/runtime/runtime.h"
#include "tensor/dtype.h"

enum { POSITION = 17 }; /* the course's offset for the rotation */

static brim_status alloc_floats(float **out, int64_t n, brim_error *err)
{
    *out = brim_alloc((size_t)n * sizeof(**out));
    return *out ? BRIM_OK : brim_fail(err, BRIM_E_NO_MEMORY, "bench: no memory");
}

/* ---- embedding ------------------------------------------------------------------------------- */

struct embedding {
    struct bench_cuda_case base;
    struct brim_cuda_embed_args args[2]; /* dense, packed */
};

static brim_status launch_embedding(struct bench_cuda_case *owner, int which, int64_t copy,
                                    brim_error *err)
{
    (void)copy;
    return brim_cuda_embed(&((struct embedding *)owner)->args[which], owner->dev->stream, err);
}

static brim_status make_embedding(struct bench_case *c, const struct brim_weight *w, float *row,
                                  brim_error *err)
{
    struct embedding *k = c->owned;
    const int32_t id = 42;
    void *ids, *x, *dense, *codes, *scales, *biases;
    size_t n_param = (size_t)(w->n_out * w->n_in / w->group) * 2;
    float *got = row + w->n_in;
    uint16_t *narrow = (uint16_t *)(row + 2 * w->n_in);
    BRIM_TRY(bench_cuda_block(&k->base, &ids, &id, sizeof(id), err));
    BRIM_TRY(bench_cuda_block(&k->base, &x, NULL, (size_t)w->n_in * 4, err));
    BRIM_TRY(bench_cuda_block(&k->base, &dense, NULL, (size_t)(w->n_out * w->n_in) * 2, err));
    for (int64_t o = 0; o < w->n_out; o++) {
        brim_weight_row_f32(w, o, row);
        for (int64_t i = 0; i < w->n_in; i++) narrow[i] = brim_bf16_from_f32(row[i]);
        BRIM_TRY(brim_cuda_copy((uint16_t *)dense + o * w->n_in, narrow, (size_t)w->n_in * 2,
                                k->base.dev->stream, "weights", err));
        BRIM_TRY(brim_cuda_stream_wait(k->base.dev->stream, "weights", err));
    }
    BRIM_TRY(bench_cuda_block(&k->base, &codes, w->data, w->data_bytes, err));
    BRIM_TRY(bench_cuda_block(&k->base, &scales, w->scales, n_param, err));
    BRIM_TRY(bench_cuda_block(&k->base, &biases, w->biases, n_param, err));
    for (int i = 0; i < 2; i++) {
        k->args[i] =
            (struct brim_cuda_embed_args){.n_row = 1, .ids = ids, .x = x, .x_stride = w->n_in};
        k->args[i].table =
            (struct brim_cuda_table){.kind = i ? BRIM_WEIGHT_AFFINE4 : BRIM_WEIGHT_DENSE,
                                     .dtype = BRIM_DTYPE_BF16,
                                     .group = i ? w->group : 0,
                                     .n_out = w->n_out,
                                     .n_in = w->n_in,
                                     .data = i ? codes : dense,
                                     .scales = i ? scales : NULL,
                                     .biases = i ? biases : NULL};
    }
    brim_weight_row_f32(w, id, row);
    bench_cuda_add(c, "dense", 0, 1, launch_embedding);
    bench_cuda_add(c, "packed", 1, 1, launch_embedding);
    for (int i = 0; i < 2; i++) {
        BRIM_TRY(bench_cuda_once(c, i, 0, err));
        BRIM_TRY(bench_cuda_fetch(&k->base, x, got, (size_t)w->n_in * 4, err));
        bench_compare(c, i, got, row, w->n_in, i ? 1e-5 : 4e-3);
        BRIM_TRY(bench_cuda_record(c, i, err));
    }
    return BRIM_OK;
}

brim_status bench_cuda_embedding(struct bench_case *c, const struct bench_context *ctx,
                                 brim_error *err)
{
    *c = (struct bench_case){.free = bench_cuda_case_free, .name = "embedding"};
    struct embedding *k = c->owned = brim_calloc(1, sizeof(*k));
    BRIM_REQUIRE(err, k, BRIM_E_NO_MEMORY, "bench: no memory");
    k->base.dev = ctx->cuda;
    struct brim_weight w;
    float *row; /* and room for a result and a narrowed row */
    /* rows near token 42 are enough: only one is read */
    BRIM_TRY(bench_random_weight(&w, 64, ctx->shape->n_embd, ctx->shape->group, 13, err));
    brim_status status = alloc_floats(&row, 3 * w.n_in, err);
    if (status == BRIM_OK) status = make_embedding(c, &w, row, err);
    brim_free(row);
    bench_free_weight(&w);
    return status;
}

/* ---- norm, rotation, SwiGLU ------------------------------------------------------------------ */

enum kind { RMSNORM, ROPE, SWIGLU };

struct kernel {
    struct bench_cuda_case base;
    enum kind kind;
    struct brim_cuda_rmsnorm_args norm;
    struct brim_cuda_rotate_args rotate;
    struct brim_cuda_swiglu_args swiglu;
    void *out;
    int64_t n_out;
};

static brim_status launch_kernel(struct bench_cuda_case *owner, int which, int64_t copy,
                                 brim_error *err)
{
    struct kernel *k = (struct kernel *)owner;
    void *stream = owner->dev->stream;
    (void)copy;
    switch (k->kind) {
    case RMSNORM:
        return which ? brim_cuda_rmsnorm(&k->norm, stream, err)
                     : brim_cuda_rmsnorm_plain(&k->norm, stream, err);
    case ROPE:
        return which ? brim_cuda_rotate(&k->rotate, stream, err)
                     : brim_cuda_rotate_plain(&k->rotate, stream, err);
    case SWIGLU:
        return which ? brim_cuda_swiglu(&k->swiglu, stream, err)
                     : brim_cuda_swiglu_plain(&k->swiglu, stream, err);
    }
    return BRIM_OK;
}

static brim_status make_norm(struct kernel *k, int64_t n, const float *x, const float *w,
                             float *want, brim_error *err)
{
    void *dx, *dw, *scratch;
    BRIM_TRY(bench_cuda_block(&k->base, &dx, x, (size_t)n * 4, err));
    BRIM_TRY(bench_cuda_block(&k->base, &dw, w, (size_t)n * 4, err));
    BRIM_TRY(bench_cuda_block(&k->base, &scratch, NULL, 64, err));
    BRIM_TRY(bench_cuda_block(&k->base, &k->out, NULL, (size_t)n * 2, err));
    k->norm = (struct brim_cuda_rmsnorm_args){.n_row = 1,
                                              .n = n,
                                              .x = dx,
                                              .x_stride = n,
                                              .weight = dw,
                                              .eps = 1e-6f,
                                              .y = k->out,
                                              .y_stride = n,
                                              .workspace = scratch};
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    for (int64_t i = 0; i < n; i++) want[i] = (float)(x[i] / sqrt(sum / (double)n + 1e-6) * w[i]);
    return BRIM_OK;
}

static brim_status make_swiglu(struct kernel *k, int64_t n, float *x, float *want, brim_error *err)
{
    void *dx, *scratch;
    BRIM_TRY(bench_cuda_block(&k->base, &dx, x, (size_t)n * 8, err));
    BRIM_TRY(bench_cuda_block(&k->base, &scratch, NULL, (size_t)n * 4, err));
    BRIM_TRY(bench_cuda_block(&k->base, &k->out, NULL, (size_t)n * 2, err));
    k->swiglu = (struct brim_cuda_swiglu_args){.n_row = 1,
                                               .n_ff = n,
                                               .gate_up = dx,
                                               .gate_up_dtype = BRIM_DTYPE_F32,
                                               .gate_up_stride = 2 * n,
                                               .y = k->out,
                                               .y_stride = n,
                                               .workspace = scratch};
    for (int64_t i = 0; i < n; i++) want[i] = (float)(x[i] / (1 + exp(-(double)x[i])) * x[n + i]);
    return BRIM_OK;
}

/* q of one row at POSITION; keys and values go to the cache with it. The check looks at q. */
static brim_status make_rope(struct kernel *k, const struct bench_shape *s, float *x, float *want,
                             brim_error *err)
{
    int n_pair = s->head_dim / 2, n_head_all = s->n_head + 2 * s->n_head_kv;
    int64_t n_qkv = (int64_t)n_head_all * s->head_dim, position = POSITION;
    double inv_freq[256];
    void *qkv, *freq, *table, *first, *kk, *vv, *scratch;
    BRIM_REQUIRE(err, n_pair <= 256, BRIM_E_SHAPE, "bench: head_dim %d", s->head_dim);
    for (int i = 0; i < n_pair; i++) inv_freq[i] = pow(1e6, -2.0 * i / s->head_dim);
    size_t kv_bytes = (size_t)s->n_head_kv * 32 * (size_t)s->head_dim * 2;
    BRIM_TRY(bench_cuda_block(&k->base, &qkv, x, (size_t)n_qkv * 4, err));
    BRIM_TRY(bench_cuda_block(&k->base, &freq, inv_freq, (size_t)n_pair * 8, err));
    BRIM_TRY(bench_cuda_block(&k->base, &table, NULL, (size_t)32 * 2 * (size_t)n_pair * 4, err));
    BRIM_TRY(bench_cuda_block(&k->base, &first, &position, sizeof(position), err));
    BRIM_TRY(bench_cuda_block(&k->base, &kk, NULL, kv_bytes, err));
    BRIM_TRY(bench_cuda_block(&k->base, &vv, NULL, kv_bytes, err));
    BRIM_TRY(bench_cuda_block(&k->base, &scratch, NULL, (size_t)n_qkv * 4, err));
    BRIM_TRY(bench_cuda_block(&k->base, &k->out, NULL, (size_t)s->n_head * (size_t)s->head_dim * 4,
                              err));
    struct brim_cuda_rope_table_args t = {
        .n_position = 32, .n_pair = n_pair, .amplitude = 1, .inv_freq = freq, .table = table};
    BRIM_TRY(brim_cuda_rope_table(&t, k->base.dev->stream, err));
    k->rotate = (struct brim_cuda_rotate_args){.n_row = 1,
                                               .n_head = s->n_head,
                                               .qkv = qkv,
                                               .qkv_dtype = BRIM_DTYPE_F32,
                                               .qkv_stride = n_qkv,
                                               .eps = 1e-6f,
                                               .rope_table = table,
                                               .first_pos = first,
                                               .kv = {.k = kk,
                                                      .v = vv,
                                                      .dtype = BRIM_DTYPE_F16,
                                                      .n_head_kv = s->n_head_kv,
                                                      .head_dim = s->head_dim,
                                                      .n_position = 32},
                                               .q = k->out,
                                               .workspace = scratch};
    for (int h = 0; h < s->n_head; h++)
        for (int i = 0; i < n_pair; i++) {
            const float *v = x + (int64_t)h * s->head_dim;
            double angle = POSITION * inv_freq[i];
            float *w = want + (int64_t)h * s->head_dim;
            w[i] = (float)(v[i] * cos(angle) - v[n_pair + i] * sin(angle));
            w[n_pair + i] = (float)(v[n_pair + i] * cos(angle) + v[i] * sin(angle));
        }
    return BRIM_OK;
}

static brim_status make_kernel(struct bench_case *c, const struct bench_shape *s, float *x,
                               float *w, float *want, float *got, brim_error *err)
{
    struct kernel *k = c->owned;
    if (k->kind == RMSNORM) BRIM_TRY(make_norm(k, k->n_out, x, w, want, err));
    if (k->kind == SWIGLU) BRIM_TRY(make_swiglu(k, k->n_out, x, want, err));
    if (k->kind == ROPE) BRIM_TRY(make_rope(k, s, x, want, err));
    bench_cuda_add(c, "plain", 0, 1, launch_kernel);
    bench_cuda_add(c, "fused", 1, 1, launch_kernel);
    for (int i = 0; i < 2; i++) {
        BRIM_TRY(
            brim_cuda_fill(k->out, 0xFF, (size_t)k->n_out * 2, k->base.dev->stream, "poison", err));
        BRIM_TRY(bench_cuda_once(c, i, 0, err));
        if (k->kind == ROPE) { /* q leaves in the cache's type */
            uint16_t *half = (uint16_t *)w;
            BRIM_TRY(bench_cuda_fetch(&k->base, k->out, half, (size_t)k->n_out * 2, err));
            for (int64_t j = 0; j < k->n_out; j++) got[j] = brim_f32_from_f16(half[j]);
        } else {
            BRIM_TRY(bench_cuda_fetch_bf16(&k->base, k->out, k->n_out, got, err));
        }
        bench_compare(c, i, got, want, k->n_out, 4e-3);
        BRIM_TRY(bench_cuda_record(c, i, err));
    }
    return BRIM_OK;
}

brim_status bench_cuda_kernel(struct bench_case *c, const struct bench_context *ctx,
                              const char *name, brim_error *err)
{
    const struct bench_shape *s = ctx->shape;
    *c = (struct bench_case){.free = bench_cuda_case_free};
    snprintf(c->name, sizeof(c->name), "%s", name);
    struct kernel *k = c->owned = brim_calloc(1, sizeof(*k));
    BRIM_REQUIRE(err, k, BRIM_E_NO_MEMORY, "bench: no memory");
    k->base.dev = ctx->cuda;
    k->kind = !strcmp(name, "rmsnorm") ? RMSNORM : !strcmp(name, "rope") ? ROPE : SWIGLU;
    k->n_out = k->kind == RMSNORM  ? s->n_embd
               : k->kind == SWIGLU ? s->n_ff
                                   : (int64_t)s->n_head * s->head_dim;
    int64_t n = 4 * k->n_out + 4 * (int64_t)s->head_dim * s->n_head;
    float *data;
    BRIM_TRY(alloc_floats(&data, 4 * n, err));
    bench_fill_normal(data, 2 * n, 14);
    brim_status status = make_kernel(c, s, data, data + n, data + 2 * n, data + 3 * n, err);
    brim_free(data);
    return status;
}

/* ---- attention ------------------------------------------------------------------------------- */

struct attention {
    struct bench_cuda_case base;
    struct brim_cuda_attention_args args[2]; /* plain; online */
    int64_t n_query, n_key;
    int n_head_kv;
};

static brim_status launch_attention(struct bench_cuda_case *owner, int which, int64_t copy,
                                    brim_error *err)
{
    struct attention *a = (struct attention *)owner;
    void *stream = owner->dev->stream;
    (void)copy;
    if (!which) return brim_cuda_attention_plain(&a->args[0], stream, err);
    return a->n_query <= BRIM_CUDA_DECODE_ROWS
               ? brim_cuda_attention_decode(&a->args[1], stream, err)
               : brim_cuda_attention_prefill(&a->args[1], stream, err);
}

/* Plain double arithmetic for one query row, all heads. k, v: [n_head_kv][n_key][d], values of f16.
 */
static void attend_row(const struct bench_shape *s, int n_head_kv, int64_t n_key, int64_t n_seen,
                       const float *q, const float *k, const float *v, double *score, float *out)
{
    int d = s->head_dim;
    for (int h = 0; h < s->n_head; h++) {
        const float *kk = k + (int64_t)(h / (s->n_head / n_head_kv)) * n_key * d;
        const float *vv = v + (int64_t)(h / (s->n_head / n_head_kv)) * n_key * d;
        double largest = -INFINITY, sum = 0, acc[256] = {0};
        for (int64_t t = 0; t < n_seen; t++) {
            score[t] = 0;
            for (int i = 0; i < d; i++) score[t] += (double)q[h * d + i] * kk[t * d + i];
            score[t] /= sqrt((double)d);
            largest = fmax(largest, score[t]);
        }
        for (int64_t t = 0; t < n_seen; t++) {
            double w = exp(score[t] - largest);
            sum += w;
            for (int i = 0; i < d; i++) acc[i] += w * vv[t * d + i];
        }
        for (int i = 0; i < d; i++) out[h * d + i] = (float)(acc[i] / sum);
    }
}

static void narrow_f16(float *x, uint16_t *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = brim_f16_from_f32(x[i]);
        x[i] = brim_f32_from_f16(out[i]);
    }
}

/* half: room for the largest operand. */
static brim_status make_attention(struct bench_case *c, const struct bench_shape *s, float *q,
                                  float *k, float *v, uint16_t *half, double *score, float *want,
                                  brim_error *err)
{
    struct attention *a = c->owned;
    int64_t n_q = a->n_query * s->n_head * s->head_dim, width = (int64_t)s->n_head * s->head_dim;
    int64_t n_kv = a->n_key * a->n_head_kv * s->head_dim, first = a->n_key - a->n_query;
    void *dq, *dk, *dv, *dfirst, *out, *plain, *online;
    narrow_f16(q, half, n_q);
    BRIM_TRY(bench_cuda_block(&a->base, &dq, half, (size_t)n_q * 2, err));
    narrow_f16(k, half, n_kv);
    BRIM_TRY(bench_cuda_block(&a->base, &dk, half, (size_t)n_kv * 2, err));
    narrow_f16(v, half, n_kv);
    BRIM_TRY(bench_cuda_block(&a->base, &dv, half, (size_t)n_kv * 2, err));
    BRIM_TRY(bench_cuda_block(&a->base, &dfirst, &first, sizeof(first), err));
    BRIM_TRY(bench_cuda_block(&a->base, &out, NULL, (size_t)n_q * 2, err));
    BRIM_TRY(bench_cuda_block(&a->base, &plain, NULL,
                              brim_cuda_attention_plain_bytes(a->n_query, s->n_head, a->n_key),
                              err));
    size_t n_online = brim_cuda_attention_decode_bytes(s->n_head, a->n_head_kv, s->head_dim);
    BRIM_TRY(bench_cuda_block(&a->base, &online, NULL, n_online, err));
    BRIM_TRY(brim_cuda_fill(online, 0, n_online, a->base.dev->stream, "workspace", err));
    for (int i = 0; i < 2; i++)
        a->args[i] =
            (struct brim_cuda_attention_args){.n_row = a->n_query,
                                              .n_head = s->n_head,
                                              .q = dq,
                                              .first_pos = dfirst,
                                              .kv = {.k = dk,
                                                     .v = dv,
                                                     .dtype = BRIM_DTYPE_F16,
                                                     .n_head_kv = a->n_head_kv,
                                                     .head_dim = s->head_dim,
                                                     .n_position = a->n_key},
                                              .scale = (float)(1 / sqrt((double)s->head_dim)),
                                              .out = out,
                                              .out_stride = width,
                                              .workspace = i ? online : plain,
                                              .n_key_max = a->n_key};
    bench_cuda_add(c, "plain", 0, 1, launch_attention);
    bench_cuda_add(c, "online", 1, 1, launch_attention);
    const int64_t rows[] = {0, a->n_query / 2, a->n_query - 1};
    for (int r = 0; r < 3; r++)
        attend_row(s, a->n_head_kv, a->n_key, first + rows[r] + 1, q + rows[r] * width, k, v, score,
                   want + r * width);
    for (int i = 0; i < 2; i++) {
        BRIM_TRY(brim_cuda_fill(out, 0xFF, (size_t)n_q * 2, a->base.dev->stream, "poison", err));
        BRIM_TRY(bench_cuda_once(c, i, 0, err));
        for (int r = 0; r < 3; r++)
            BRIM_TRY(bench_cuda_fetch_bf16(&a->base, (uint16_t *)out + rows[r] * width, width,
                                           want + (3 + r) * width, err));
        bench_compare(c, i, want + 3 * width, want, 3 * width, 4e-3);
        BRIM_TRY(bench_cuda_record(c, i, err));
    }
    return BRIM_OK;
}

brim_status bench_cuda_attention(struct bench_case *c, const struct bench_context *ctx,
                                 int64_t n_key, int64_t n_query, int n_head_kv, brim_error *err)
{
    const struct bench_shape *s = ctx->shape;
    *c = (struct bench_case){.free = bench_cuda_case_free};
    snprintf(c->name, sizeof(c->name), "attention S=%" PRId64 " L=%" PRId64, n_key, n_query);
    struct attention *a = c->owned = brim_calloc(1, sizeof(*a));
    BRIM_REQUIRE(err, a, BRIM_E_NO_MEMORY, "bench: no memory");
    a->base.dev = ctx->cuda;
    a->n_query = n_query;
    a->n_key = n_key;
    a->n_head_kv = n_head_kv;
    int64_t width = (int64_t)s->n_head * s->head_dim, n_q = n_query * width;
    int64_t n_kv = n_key * n_head_kv * s->head_dim, most = n_q > n_kv ? n_q : n_kv;
    float *data;
    BRIM_TRY(alloc_floats(&data, n_q + 2 * n_kv + most + 2 * n_key + 6 * width + 16, err));
    float *q = data, *k = q + n_q, *v = k + n_kv, *want = v + n_kv;
    uint16_t *half = (uint16_t *)(want + 6 * width);
    double *score = (double *)(((uintptr_t)(half + 2 * most) + 7) / 8 * 8);
    bench_fill_normal(q, n_q, 17);
    bench_fill_normal(k, 2 * n_kv, 16);
    brim_status status = make_attention(c, s, q, k, v, half, score, want, err);
    brim_free(data);
    return status;
}
