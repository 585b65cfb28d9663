/* SPDX-License-Identifier: Apache-2.0
 * Causal attention with an online softmax (Dao et al., arXiv:2205.14135): the specification.
 * Per row and block of 64 keys: s = (q scale) k, m' = max(m, s), l = l e^(m - m') + sum e^(s - m'),
 * acc = acc e^(m - m') + e^(s - m') v. Sums over dimensions and keys run in rising order, one
 * accumulator each; the sum of e^s runs in sixteen lanes. Every 256 keys a segment ends; segments
 * are merged by the same formula in rising order. */
#include <math.h>
#include <string.h>

#include "cpu/cpu_init.h"
#include "cpu/ref/exp_ref.h"

enum { BLOCK = BRIM_ATTENTION_BLOCK, SEGMENT = BRIM_ATTENTION_SEGMENT, PANEL = 16 };

/* acc[dim] / sum is a row's result over the keys seen, scores relative to largest. Of a tile: the
 * state of its first row, the others follow. */
struct row_state {
    float *acc;
    float *largest, *sum;
};

struct work {
    int n_row, dim; /* dim: padded to 16, the stride of acc and v */
    float *k;       /* [4][head_dim][16] */
    float *v;       /* [BLOCK][dim] */
    float *q;       /* [n_row][dim] */
    struct row_state total, part;
};

static struct work make_work(const struct brim_attention_tile *tile)
{
    struct work w = {.n_row = tile->n_tok * tile->n_head, .dim = (tile->head_dim + 15) / 16 * 16};
    size_t rows = (size_t)w.n_row, acc = rows * (size_t)w.dim;
    w.k = tile->scratch;
    w.v = w.k + (size_t)w.dim * BLOCK;
    w.q = w.v + (size_t)w.dim * BLOCK;
    w.total.acc = w.q + acc;
    w.part.acc = w.total.acc + acc;
    w.total.largest = w.part.acc + acc;
    w.total.sum = w.total.largest + rows;
    w.part.largest = w.total.sum + rows;
    w.part.sum = w.part.largest + rows;
    return w;
}

static struct row_state state_of_row(struct row_state first, int row, int dim)
{
    return (struct row_state){first.acc + (size_t)row * (size_t)dim, first.largest + row,
                              first.sum + row};
}

static int64_t row_position(const struct brim_attention_tile *tile, int row)
{
    return tile->first_pos + row / tile->n_head;
}

/* exp(x - largest), where a largest of -inf means that nothing was seen: the result is 0. */
static float weight_of(float x, float largest)
{
    return exp_ref(x - (largest == -INFINITY ? 0 : largest));
}

/* s: scores of n keys. */
static void softmax_step(struct row_state row, float *s, int n, const float *v, int dim)
{
    float largest = *row.largest;
    for (int j = 0; j < n; j++) largest = s[j] > largest ? s[j] : largest;
    float keep = weight_of(*row.largest, largest);
    float lane[16] = {0};
    for (int j = 0; j < n; j++) {
        s[j] = weight_of(s[j], largest);
        lane[j % 16] += s[j];
    }
    *row.largest = largest;
    *row.sum = *row.sum * keep + sum_lanes_ref(lane);
    for (int d = 0; d < dim; d++) row.acc[d] *= keep;
    for (int j = 0; j < n; j++) {
        for (int d = 0; d < dim; d++) row.acc[d] += s[j] * v[j * dim + d];
    }
}

/* Fold the state of the next segment into `total`. */
static void merge(struct row_state total, struct row_state part, int dim)
{
    float largest = *part.largest > *total.largest ? *part.largest : *total.largest;
    float keep = weight_of(*total.largest, largest), take = weight_of(*part.largest, largest);
    *total.largest = largest;
    *total.sum = *total.sum * keep + *part.sum * take;
    for (int d = 0; d < dim; d++) total.acc[d] = total.acc[d] * keep + part.acc[d] * take;
}

static void load_block(const struct brim_attention_tile *tile, int64_t key, int n, struct work *w)
{
    int head_dim = tile->head_dim;
    brim_dtype_to_f32(tile->kv_dtype,
                      (const uint8_t *)tile->k +
                          (size_t)(key * head_dim) * brim_dtype_bytes(tile->kv_dtype),
                      (size_t)((n + 15) / 16 * 16) * (size_t)head_dim, w->k);
    for (int j = 0; j < n; j++) {
        float *row = w->v + (size_t)j * (size_t)w->dim;
        brim_dtype_to_f32(tile->kv_dtype,
                          (const uint8_t *)tile->v +
                              (size_t)((key + j) * head_dim) * brim_dtype_bytes(tile->kv_dtype),
                          (size_t)head_dim, row);
        for (int d = head_dim; d < w->dim; d++) row[d] = 0;
    }
}

static void scores(const float *q, const float *k, int head_dim, int n, float *s)
{
    for (int j = 0; j < n; j += PANEL) {
        float sum[PANEL] = {0};
        for (int d = 0; d < head_dim; d++) {
            for (int i = 0; i < PANEL; i++) sum[i] += q[d] * k[(j * head_dim) + d * PANEL + i];
        }
        memcpy(s + j, sum, sizeof sum);
    }
}

static void run_segment(const struct brim_attention_tile *tile, struct work *w,
                        struct row_state first, int64_t segment)
{
    int64_t last = tile->first_pos + tile->n_tok - 1;
    for (int row = 0; row < w->n_row; row++) {
        first.largest[row] = -INFINITY;
        first.sum[row] = 0;
    }
    memset(first.acc, 0, (size_t)w->n_row * (size_t)w->dim * sizeof *first.acc);
    for (int64_t key = segment * SEGMENT; key < (segment + 1) * SEGMENT && key <= last;
         key += BLOCK) {
        int n_key = last - key + 1 < BLOCK ? (int)(last - key + 1) : BLOCK;
        load_block(tile, key, n_key, w);
        for (int row = 0; row < w->n_row; row++) {
            int64_t seen = row_position(tile, row) - key + 1;
            if (seen <= 0) continue;
            int n = seen < BLOCK ? (int)seen : BLOCK;
            float s[BLOCK];
            scores(w->q + (size_t)row * (size_t)w->dim, w->k, tile->head_dim, n, s);
            softmax_step(state_of_row(first, row, w->dim), s, n, w->v, w->dim);
        }
    }
}

static void write_row(const struct brim_attention_tile *tile, int row, struct row_state state)
{
    float *out = tile->out + row / tile->n_head * tile->out_stride +
                 (int64_t)(row % tile->n_head) * tile->head_dim;
    float inv = 1.0f / *state.sum;
    for (int d = 0; d < tile->head_dim; d++) out[d] = state.acc[d] * inv;
}

/* A segment's state as the merge reads it: acc, then largest, then sum. */
static struct row_state partial_state(float *partial, const struct work *w)
{
    float *largest = partial + (size_t)w->n_row * (size_t)w->dim;
    return (struct row_state){partial, largest, largest + w->n_row};
}

static void attention_c(const struct brim_attention_tile *tile)
{
    struct work w = make_work(tile);
    for (int row = 0; row < w.n_row; row++) {
        const float *q = tile->q + row / tile->n_head * tile->q_stride +
                         (int64_t)(row % tile->n_head) * tile->head_dim;
        float *to = w.q + (size_t)row * (size_t)w.dim;
        for (int d = 0; d < tile->head_dim; d++) to[d] = q[d] * tile->scale;
    }
    if (tile->partial) {
        run_segment(tile, &w, partial_state(tile->partial, &w), tile->segment);
        return;
    }
    run_segment(tile, &w, w.total, 0);
    int64_t last = tile->first_pos + tile->n_tok - 1;
    for (int64_t segment = 1; segment * SEGMENT <= last; segment++) {
        run_segment(tile, &w, w.part, segment);
        for (int row = 0; row < w.n_row; row++) {
            if (row_position(tile, row) < segment * SEGMENT) continue;
            merge(state_of_row(w.total, row, w.dim), state_of_row(w.part, row, w.dim), w.dim);
        }
    }
    for (int row = 0; row < w.n_row; row++) write_row(tile, row, state_of_row(w.total, row, w.dim));
}

static void attention_merge_c(const struct brim_attention_tile *tile, int64_t n_segment)
{
    struct work w = make_work(tile);
    size_t partial_floats = brim_attention_partial_floats(w.n_row, tile->head_dim);
    struct row_state total = partial_state(tile->partial, &w);
    for (int row = 0; row < w.n_row; row++) {
        struct row_state to = state_of_row(total, row, w.dim);
        for (int64_t segment = 1; segment < n_segment; segment++) {
            if (row_position(tile, row) < segment * SEGMENT) break;
            struct row_state part =
                partial_state(tile->partial + (size_t)segment * partial_floats, &w);
            merge(to, state_of_row(part, row, w.dim), w.dim);
        }
        write_row(tile, row, to);
    }
}

void brim_cpu_init_attn_c(struct brim_cpu_ops *ops)
{
    ops->attention = attention_c;
    ops->attention_merge = attention_merge_c;
}
