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

/* State of one row: acc[dim] / sum is the result over the keys seen, scores relative to largest. */
struct row_state {
    float *acc;
    float *largest, *sum;
};

struct work {
    int n_row, dim; /* dim: padded to 16, the stride of acc and v */
    float *k;       /* [4][head_dim][16] */
    float *v;       /* [BLOCK][dim] */
    float *q;       /* [n_row][dim] */
    float *acc, *total;
    float *largest, *sum, *total_largest, *total_sum; /* [n_row] */
};

static struct work make_work(const struct brim_attention_tile *tile)
{
    struct work w = {.n_row = tile->n_tok * tile->n_head, .dim = (tile->head_dim + 15) / 16 * 16};
    w.k = tile->scratch;
    w.v = w.k + (size_t)w.dim * BLOCK;
    w.q = w.v + (size_t)w.dim * BLOCK;
    w.acc = w.q + (size_t)w.n_row * (size_t)w.dim;
    w.total = w.acc + (size_t)w.n_row * (size_t)w.dim;
    w.largest = w.total + (size_t)w.n_row * (size_t)w.dim;
    w.sum = w.largest + w.n_row;
    w.total_largest = w.sum + w.n_row;
    w.total_sum = w.total_largest + w.n_row;
    return w;
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

/* Fold the state `part` of the next segment into `total`. */
static void merge(struct row_state total, const float *acc, float part_largest, float part_sum,
                  int dim)
{
    float largest = part_largest > *total.largest ? part_largest : *total.largest;
    float keep = weight_of(*total.largest, largest), take = weight_of(part_largest, largest);
    *total.largest = largest;
    *total.sum = *total.sum * keep + part_sum * take;
    for (int d = 0; d < dim; d++) total.acc[d] = total.acc[d] * keep + acc[d] * take;
}

static void load_block(const struct brim_attention_tile *tile, int64_t key, int n, struct work *w)
{
    int head_dim = tile->head_dim;
    brim_dtype_to_f32(tile->kv_dtype,
                      (const uint8_t *)tile->k +
                          (size_t)(key * head_dim) * brim_dtype_bytes(tile->kv_dtype),
                      (size_t)((n + 15) / 16 * 16 * head_dim), w->k);
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

static void run_segment(const struct brim_attention_tile *tile, struct work *w, int64_t segment)
{
    int64_t last = tile->first_pos + tile->n_tok - 1;
    for (int row = 0; row < w->n_row; row++) {
        w->largest[row] = -INFINITY;
        w->sum[row] = 0;
    }
    memset(w->acc, 0, (size_t)w->n_row * (size_t)w->dim * sizeof *w->acc);
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
            softmax_step((struct row_state){w->acc + (size_t)row * (size_t)w->dim, w->largest + row,
                                            w->sum + row},
                         s, n, w->v, w->dim);
        }
    }
}

static void write_row(const struct brim_attention_tile *tile, int row, const float *acc, float sum)
{
    float *out = tile->out + row / tile->n_head * tile->out_stride +
                 (int64_t)(row % tile->n_head) * tile->head_dim;
    float inv = 1.0f / sum;
    for (int d = 0; d < tile->head_dim; d++) out[d] = acc[d] * inv;
}

static void attention_c(const struct brim_attention_tile *tile)
{
    struct work w = make_work(tile);
    for (int row = 0; row < w.n_row; row++) {
        const float *q = tile->q + row / tile->n_head * tile->q_stride +
                         (int64_t)(row % tile->n_head) * tile->head_dim;
        for (int d = 0; d < tile->head_dim; d++)
            w.q[(size_t)row * (size_t)w.dim + (size_t)d] = q[d] * tile->scale;
    }
    size_t acc_floats = (size_t)w.n_row * (size_t)w.dim;
    if (tile->partial) {
        run_segment(tile, &w, tile->segment);
        memcpy(tile->partial, w.acc, acc_floats * sizeof(float));
        memcpy(tile->partial + acc_floats, w.largest, (size_t)w.n_row * sizeof(float));
        memcpy(tile->partial + acc_floats + w.n_row, w.sum, (size_t)w.n_row * sizeof(float));
        return;
    }
    for (int row = 0; row < w.n_row; row++) {
        w.total_largest[row] = -INFINITY;
        w.total_sum[row] = 0;
    }
    memset(w.total, 0, acc_floats * sizeof(float));
    int64_t n_segment = (tile->first_pos + tile->n_tok - 1) / SEGMENT + 1;
    for (int64_t segment = 0; segment < n_segment; segment++) {
        run_segment(tile, &w, segment);
        for (int row = 0; row < w.n_row; row++) {
            if (row_position(tile, row) < segment * SEGMENT) continue;
            size_t at = (size_t)row * (size_t)w.dim;
            merge((struct row_state){w.total + at, w.total_largest + row, w.total_sum + row},
                  w.acc + at, w.largest[row], w.sum[row], w.dim);
        }
    }
    for (int row = 0; row < w.n_row; row++)
        write_row(tile, row, w.total + (size_t)row * (size_t)w.dim, w.total_sum[row]);
}

static void attention_merge_c(const struct brim_attention_tile *tile, int64_t n_segment)
{
    struct work w = make_work(tile);
    size_t acc_floats = (size_t)w.n_row * (size_t)w.dim;
    size_t partial_floats = brim_attention_partial_floats(w.n_row, tile->head_dim);
    for (int row = 0; row < w.n_row; row++) {
        float largest = -INFINITY, sum = 0;
        memset(w.total, 0, (size_t)w.dim * sizeof(float));
        for (int64_t segment = 0; segment < n_segment; segment++) {
            if (row_position(tile, row) < segment * SEGMENT) break;
            const float *partial = tile->partial + (size_t)segment * partial_floats;
            merge((struct row_state){w.total, &largest, &sum},
                  partial + (size_t)row * (size_t)w.dim, partial[acc_floats + (size_t)row],
                  partial[acc_floats + (size_t)(w.n_row + row)], w.dim);
        }
        write_row(tile, row, w.total, sum);
    }
}

void brim_cpu_init_attn_c(struct brim_cpu_ops *ops)
{
    ops->attention = attention_c;
    ops->attention_merge = attention_merge_c;
}
