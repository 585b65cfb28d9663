/* SPDX-License-Identifier: Apache-2.0
 * Attention over sixteen lanes: one body compiled per tier, after its vec_*.h. The arithmetic is
 * that of src/cpu/ref/attn_ref.c with fused multiply-adds.
 *
 * Both products, scores = q k^T and acc += p v, are the same small matrix product
 *     c[row][16 j + lane] = sum over i of a[row][i] * b(i, j)[lane]
 * with up to GROUP query rows in registers: for the scores b(i, j) is dimension i of key panel j,
 * for the values it is columns 16 j.. of key i. Every result is one chain of multiply-adds in the
 * order of i, so how rows are grouped never shows. With few rows halves are widened on the fly; a
 * tile of many rows widens each block once into scratch. */
#ifndef BRIM_CPU_ATTN_TMPL_H
#define BRIM_CPU_ATTN_TMPL_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "cpu/cpu_ops.h"
#include "cpu/unroll.h"
#include "cpu/vec_exp.h"

enum {
    BLOCK = BRIM_ATTENTION_BLOCK,
    SEGMENT = BRIM_ATTENTION_SEGMENT,
    PANEL = 16,
    GROUP = 6 /* rows in registers: 6 x 64 columns fill 24 zmm, 6 x 16 fill 12 ymm or 24 q */
};

/* One product: n_vec vectors of columns, n_sum terms each. */
struct product {
    int n_vec, n_sum;
    const float *a; /* [rows][a_stride] */
    int64_t a_stride;
    const void *b; /* element i * b_step + 16 j * b_vec... of float or half */
    int64_t b_step, b_vec;
    float *c; /* [rows][c_stride] */
    int64_t c_stride;
    const float *keep; /* [rows]: c starts as c * keep; NULL: it starts as 0 */
};

VEC_INLINE v16 load_b(const void *b, int64_t at, bool half)
{
    return half ? v16_load_f16((const uint16_t *)b + at) : v16_load((const float *)b + at);
}

/* Columns of vectors j..j + n_vec - 1; n_row, n_vec and half are constants after inlining. */
VEC_INLINE void product_tile(const struct product *p, int j, const int n_row, const int n_vec,
                             const bool half)
{
    v16 acc[GROUP][4];
    BRIM_UNROLL
    for (int r = 0; r < n_row; r++) {
        BRIM_UNROLL
        for (int v = 0; v < n_vec; v++)
            acc[r][v] = p->keep ? v16_mul(v16_load(p->c + r * p->c_stride + (j + v) * PANEL),
                                          v16_set1(p->keep[r]))
                                : v16_zero();
    }
    int64_t at = j * p->b_vec, step = p->b_step, b_vec = p->b_vec, a_stride = p->a_stride;
    const float *a = p->a;
    const void *b = p->b;
    for (int i = 0; i < p->n_sum; i++, at += step) {
        v16 column[4];
        BRIM_UNROLL
        for (int v = 0; v < n_vec; v++) column[v] = load_b(b, at + v * b_vec, half);
        BRIM_UNROLL
        for (int r = 0; r < n_row; r++) {
            v16 x = v16_set1(a[r * a_stride + i]);
            BRIM_UNROLL
            for (int v = 0; v < n_vec; v++) acc[r][v] = v16_fma(x, column[v], acc[r][v]);
        }
    }
    BRIM_UNROLL
    for (int r = 0; r < n_row; r++) {
        BRIM_UNROLL
        for (int v = 0; v < n_vec; v++)
            v16_store(p->c + r * p->c_stride + (j + v) * PANEL, acc[r][v]);
    }
}

/* Vectors per tile for n_row rows: enough independent chains to hide the latency of a multiply-add,
 * within the registers of the tier (V16_REGISTERS: how many v16 accumulators fit). */
#define PRODUCT_VECS(n_row) ((n_row)*4 <= V16_REGISTERS ? 4 : (n_row)*2 <= V16_REGISTERS ? 2 : 1)

#define DEFINE_PRODUCT(n_row)                                                                  \
    static __attribute__((noinline)) void product_##n_row(const struct product *p, bool half)  \
    {                                                                                          \
        enum { N_VEC = PRODUCT_VECS(n_row) };                                                  \
        int j = 0;                                                                             \
        if (half) {                                                                            \
            for (; j + N_VEC <= p->n_vec; j += N_VEC) product_tile(p, j, n_row, N_VEC, true);  \
            for (; j < p->n_vec; j++) product_tile(p, j, n_row, 1, true);                      \
        } else {                                                                               \
            for (; j + N_VEC <= p->n_vec; j += N_VEC) product_tile(p, j, n_row, N_VEC, false); \
            for (; j < p->n_vec; j++) product_tile(p, j, n_row, 1, false);                     \
        }                                                                                      \
    }
DEFINE_PRODUCT(1)
DEFINE_PRODUCT(2)
DEFINE_PRODUCT(3)
DEFINE_PRODUCT(4)
DEFINE_PRODUCT(5)
DEFINE_PRODUCT(6)

static void (*const products[GROUP + 1])(const struct product *p, bool half) = {
    NULL, product_1, product_2, product_3, product_4, product_5, product_6};

/* Running softmax of n_row rows. */
struct state {
    float *acc;           /* [n_row][dim] */
    float *largest, *sum; /* [n_row] */
};

struct work {
    int n_row, dim; /* dim: padded to 16, the stride of q, acc and the widened values */
    float *k;       /* [4][head_dim][16], the block at hand */
    float *v;       /* [BLOCK][dim] */
    float *scores;  /* [GROUP][BLOCK] */
    float *q;       /* [n_row][dim] */
    struct state total, part;
};

static struct work make_work(const struct brim_attention_tile *tile)
{
    struct work w = {.n_row = tile->n_tok * tile->n_head,
                     .dim = (tile->head_dim + PANEL - 1) / PANEL * PANEL};
    size_t block = (size_t)w.dim * BLOCK, rows = (size_t)w.n_row, acc = rows * (size_t)w.dim;
    w.k = tile->scratch;
    w.v = w.k + block;
    w.scores = w.v + block;
    w.q = w.scores + (size_t)8 * BLOCK;
    w.total.acc = w.q + acc;
    w.part.acc = w.total.acc + acc;
    w.total.largest = w.part.acc + acc;
    w.total.sum = w.total.largest + rows;
    w.part.largest = w.total.sum + rows;
    w.part.sum = w.part.largest + rows;
    return w;
}

static const void *element(const void *data, enum brim_dtype dtype, int64_t at)
{
    return (const uint8_t *)data + (size_t)at * brim_dtype_bytes(dtype);
}

/* Where -inf was the largest nothing was seen: relative to 0 every weight is then e^-inf = 0. */
VEC_INLINE v16 reference_of(v16 largest)
{
    return v16_zero_if_less(largest, -3.4028234e38f, largest);
}

/* p = e^(s - reference) for n scores in place, masked behind; returns their sum. */
VEC_INLINE float weigh(float *s, int n, float reference)
{
    v16 base = v16_set1(reference), sum = v16_zero();
    int j = 0;
    for (; j + 16 <= n; j += 16) {
        v16 e = v16_exp(v16_sub(v16_load(s + j), base));
        v16_store(s + j, e);
        sum = v16_add(sum, e);
    }
    if (j < n) {
        v16 e = v16_first_n(v16_exp(v16_sub(v16_load(s + j), base)), v16_zero(), n - j);
        v16_store(s + j, e);
        sum = v16_add(sum, e);
    }
    return v16_sum(sum);
}

VEC_INLINE float largest_of(const float *s, int n)
{
    v16 low = v16_set1(-INFINITY), top = low;
    int j = 0;
    for (; j + 16 <= n; j += 16) top = v16_max(top, v16_load(s + j));
    if (j < n) top = v16_max(top, v16_first_n(v16_load(s + j), low, n - j));
    return v16_largest(top);
}

/* One block of keys, starting at position `key`, for rows first_row.. of the tile. */
static void block_step(const struct brim_attention_tile *tile, const struct work *w,
                       const struct state *state, int first_row, int n_row, int64_t key,
                       const struct product *k, const struct product *v, bool half)
{
    int count[GROUP]; /* keys of the block each row sees, rising */
    for (int r = 0; r < n_row; r++) {
        int64_t seen = tile->first_pos + (first_row + r) / tile->n_head + 1 - key;
        count[r] = seen < 0 ? 0 : seen < BLOCK ? (int)seen : BLOCK;
    }
    if (count[n_row - 1] == 0) return;
    struct product score = *k;
    score.n_vec = (count[n_row - 1] + PANEL - 1) / PANEL;
    score.a = w->q + (size_t)first_row * (size_t)w->dim;
    products[n_row](&score, half);

    float top[PANEL], reference[PANEL], keep[PANEL], sum[PANEL];
    for (int r = 0; r < n_row; r++) top[r] = largest_of(w->scores + r * BLOCK, count[r]);
    v16 before = v16_load_n(state->largest + first_row, n_row);
    v16 now = v16_max(v16_load_n(top, n_row), before);
    v16 base = reference_of(now), kept = v16_exp(v16_sub(before, base));
    v16_store_n(state->largest + first_row, now, n_row);
    v16_store(reference, base);
    v16_store(keep, kept);
    for (int r = 0; r < n_row; r++) sum[r] = weigh(w->scores + r * BLOCK, count[r], reference[r]);
    v16 total = v16_mul(v16_load_n(state->sum + first_row, n_row), kept);
    v16_store_n(state->sum + first_row, v16_add(total, v16_load_n(sum, n_row)), n_row);

    /* Keys that every row sees, then each row's own rest: a value beyond a row's position is never
     * multiplied, not even by zero, since it may be NaN. */
    struct product value = *v;
    value.n_sum = count[0];
    value.c = state->acc + (size_t)first_row * (size_t)w->dim;
    value.keep = keep;
    products[n_row](&value, half);
    for (int r = 1; r < n_row; r++) {
        if (count[r] == count[0]) continue;
        static const float one = 1;
        struct product rest = *v;
        rest.n_sum = count[r] - count[0];
        rest.a = w->scores + r * BLOCK + count[0];
        rest.b = half ? (const void *)((const uint16_t *)v->b + count[0] * v->b_step)
                      : (const void *)((const float *)v->b + count[0] * v->b_step);
        rest.c = state->acc + (size_t)(first_row + r) * (size_t)w->dim;
        rest.keep = &one;
        product_1(&rest, half);
    }
}

/* Widen n_key keys and values of the block into scratch. */
static void widen_block(const struct brim_attention_tile *tile, const struct work *w, int64_t key,
                        int n_key)
{
    int head_dim = tile->head_dim;
    bool half = tile->kv_dtype == BRIM_DTYPE_F16;
    const void *k = element(tile->k, tile->kv_dtype, key * head_dim);
    int64_t n = (int64_t)(n_key + PANEL - 1) / PANEL * PANEL * head_dim;
    for (int64_t i = 0; i < n; i += 16) v16_store(w->k + i, load_b(k, i, half));
    for (int j = 0; j < n_key; j++) {
        const void *v = element(tile->v, tile->kv_dtype, (key + j) * head_dim);
        float *row = w->v + (size_t)j * (size_t)w->dim;
        int d = 0;
        for (; d + 16 <= head_dim; d += 16) v16_store(row + d, load_b(v, d, half));
        if (d == head_dim) continue;
        brim_dtype_to_f32(tile->kv_dtype, element(v, tile->kv_dtype, d), (size_t)(head_dim - d),
                          row + d);
        memset(row + head_dim, 0, (size_t)(w->dim - head_dim) * sizeof *row);
    }
}

static void run_segment(const struct brim_attention_tile *tile, const struct work *w,
                        const struct state *state, int64_t segment)
{
    int64_t last = tile->first_pos + tile->n_tok - 1;
    for (int row = 0; row < w->n_row; row++) {
        state->largest[row] = -INFINITY;
        state->sum[row] = 0;
    }
    memset(state->acc, 0, (size_t)w->n_row * (size_t)w->dim * sizeof *state->acc);
    int n_group = (w->n_row + GROUP - 1) / GROUP;
    bool widen = w->dim != tile->head_dim || (tile->kv_dtype == BRIM_DTYPE_F16 && n_group > 1);
    bool half = tile->kv_dtype == BRIM_DTYPE_F16 && !widen;
    struct product k = {.n_sum = tile->head_dim,
                        .a_stride = w->dim,
                        .b = w->k,
                        .b_step = PANEL,
                        .b_vec = (int64_t)PANEL * tile->head_dim,
                        .c = w->scores,
                        .c_stride = BLOCK};
    struct product v = {.n_vec = w->dim / PANEL,
                        .a = w->scores,
                        .a_stride = BLOCK,
                        .b = w->v,
                        .b_step = w->dim,
                        .b_vec = PANEL,
                        .c_stride = w->dim};
    for (int64_t key = segment * SEGMENT; key < (segment + 1) * SEGMENT && key <= last;
         key += BLOCK) {
        if (widen) {
            widen_block(tile, w, key, last - key + 1 < BLOCK ? (int)(last - key + 1) : BLOCK);
        } else {
            k.b = element(tile->k, tile->kv_dtype, key * tile->head_dim);
            v.b = element(tile->v, tile->kv_dtype, key * tile->head_dim);
        }
        for (int g = 0; g < n_group; g++) {
            int begin = w->n_row * g / n_group, end = w->n_row * (g + 1) / n_group;
            block_step(tile, w, state, begin, end - begin, key, &k, &v, half);
        }
    }
}

/* Fold row `from` of the next segment's state into row `to`. */
static void merge_row(float *to, float *to_largest, float *to_sum, const float *from,
                      float from_largest, float from_sum, int dim)
{
    float pair[2] = {*to_largest, from_largest}, weight[PANEL];
    v16 both = v16_load_n(pair, 2);
    v16 now = v16_max(v16_set1(from_largest), v16_set1(*to_largest));
    v16_store(weight, v16_exp(v16_sub(both, reference_of(now))));
    v16_store_n(to_largest, now, 1);
    *to_sum = *to_sum * weight[0] + from_sum * weight[1];
    v16 keep = v16_set1(weight[0]), take = v16_set1(weight[1]);
    for (int d = 0; d < dim; d += 16)
        v16_store(to + d, v16_fma(v16_load(from + d), take, v16_mul(v16_load(to + d), keep)));
}

static void write_row(const struct brim_attention_tile *tile, int row, const float *acc, float sum)
{
    float *out = tile->out + row / tile->n_head * tile->out_stride +
                 (int64_t)(row % tile->n_head) * tile->head_dim;
    v16 inv = v16_set1(1.0f / sum);
    int d = 0;
    for (; d + 16 <= tile->head_dim; d += 16) v16_store(out + d, v16_mul(v16_load(acc + d), inv));
    if (d < tile->head_dim)
        v16_store_n(out + d, v16_mul(v16_load(acc + d), inv), tile->head_dim - d);
}

static void scale_queries(const struct brim_attention_tile *tile, const struct work *w)
{
    v16 scale = v16_set1(tile->scale);
    for (int row = 0; row < w->n_row; row++) {
        const float *q = tile->q + row / tile->n_head * tile->q_stride +
                         (int64_t)(row % tile->n_head) * tile->head_dim;
        float *to = w->q + (size_t)row * (size_t)w->dim;
        for (int d = 0; d < tile->head_dim; d += 16) {
            int n = tile->head_dim - d;
            v16_store(to + d, v16_mul(n < 16 ? v16_load_n(q + d, n) : v16_load(q + d), scale));
        }
    }
}

/* A segment's state as the merge reads it: acc, then largest, then sum. */
static struct state partial_state(float *partial, int n_row, int dim)
{
    struct state state = {.acc = partial};
    state.largest = partial + (size_t)n_row * (size_t)dim;
    state.sum = state.largest + n_row;
    return state;
}

static void attention_vec(const struct brim_attention_tile *tile)
{
    struct work w = make_work(tile);
    scale_queries(tile, &w);
    if (tile->partial) {
        struct state state = partial_state(tile->partial, w.n_row, w.dim);
        run_segment(tile, &w, &state, tile->segment);
        return;
    }
    run_segment(tile, &w, &w.total, 0);
    int64_t last = tile->first_pos + tile->n_tok - 1;
    for (int64_t segment = 1; segment * SEGMENT <= last; segment++) {
        run_segment(tile, &w, &w.part, segment);
        for (int row = 0; row < w.n_row; row++) {
            if (tile->first_pos + row / tile->n_head < segment * SEGMENT) continue;
            size_t at = (size_t)row * (size_t)w.dim;
            merge_row(w.total.acc + at, w.total.largest + row, w.total.sum + row, w.part.acc + at,
                      w.part.largest[row], w.part.sum[row], w.dim);
        }
    }
    for (int row = 0; row < w.n_row; row++)
        write_row(tile, row, w.total.acc + (size_t)row * (size_t)w.dim, w.total.sum[row]);
}

static void attention_merge_vec(const struct brim_attention_tile *tile, int64_t n_segment)
{
    int n_row = tile->n_tok * tile->n_head, dim = (tile->head_dim + PANEL - 1) / PANEL * PANEL;
    size_t partial_floats = brim_attention_partial_floats(n_row, tile->head_dim);
    struct state total = partial_state(tile->partial, n_row, dim);
    for (int row = 0; row < n_row; row++) {
        size_t at = (size_t)row * (size_t)dim;
        int64_t position = tile->first_pos + row / tile->n_head;
        for (int64_t segment = 1; segment < n_segment && segment * SEGMENT <= position; segment++) {
            struct state part =
                partial_state(tile->partial + (size_t)segment * partial_floats, n_row, dim);
            merge_row(total.acc + at, total.largest + row, total.sum + row, part.acc + at,
                      part.largest[row], part.sum[row], dim);
        }
        write_row(tile, row, total.acc + at, total.sum[row]);
    }
}

static void init_attn_vec(struct brim_cpu_ops *ops)
{
    ops->attention = attention_vec;
    ops->attention_merge = attention_merge_vec;
}

#endif
