/* SPDX-License-Identifier: Apache-2.0
 * The table of CPU kernels. The plain C functions of src/cpu/ref are the specification and fill the
 * table first; src/cpu/x86 and src/cpu/arm override entries tier by tier. Kernels work on one
 * thread's share and allocate nothing; threads are the business of linear.c and attention.c. */
#ifndef BRIM_CPU_CPU_OPS_H
#define BRIM_CPU_CPU_OPS_H

#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"
#include "tensor/dtype.h"

/* One query head (or a tile of query rows) against the keys and values of its group. */
struct brim_attention_tile {
    const float *q;           /* [n_row][q_stride], already rotated; not scaled */
    int64_t q_stride;         /* elements between rows */
    int n_row;                /* query rows of this tile */
    int64_t first_pos;        /* position of row 0: row i sees keys 0..first_pos + i */
    enum brim_dtype kv_dtype; /* F16 or F32 */
    const void *k;            /* [n_key][head_dim] of kv_dtype, stride kv_stride */
    const void *v;            /* like k */
    int64_t kv_stride;        /* elements between positions */
    int head_dim;             /* multiple of 8, at most 256 */
    float scale;              /* applied to q k^T, head_dim^-1/2 */
    float *out;               /* [n_row][out_stride] */
    int64_t out_stride;
    float *scratch; /* brim_attention_scratch_floats(n_row, head_dim) */
};

struct brim_cpu_ops {
    enum brim_cpu_tier tier;

    /* Panel kernels: see linear.h for the layouts. `x` is [n_row][x_stride] f32; the result of the
     * 16 rows of the panel goes to y[row * y_stride + lane]. Inputs [in_begin, in_end), multiples
     * of the group, are summed; y is overwritten. Rows of y beyond n_row are not touched. */
    void (*w4_panel)(const uint8_t *panel, enum brim_dtype dtype, int group, int64_t in_begin,
                     int64_t in_end, const float *x, int64_t x_stride, int n_row, float *y,
                     int64_t y_stride, float *scratch);
    void (*q8_panel)(const uint8_t *panel, int64_t in_begin, int64_t in_end, const float *x,
                     int64_t x_stride, int n_row, float *y, int64_t y_stride, float *scratch);
    void (*dense_panel)(const uint8_t *panel, enum brim_dtype dtype, int64_t in_begin,
                        int64_t in_end, const float *x, int64_t x_stride, int n_row, float *y,
                        int64_t y_stride, float *scratch);

    /* out[i] = x[i] * rsqrt(mean(x^2) + eps) * weight[i] over n values; out may be x. */
    void (*rmsnorm)(const float *x, const float *weight, float eps, int64_t n, float *out);
    /* Rotate the two halves of each head: x[h][i], x[h][i + d/2] by (cos[i], sin[i]), i < d/2. */
    void (*rope)(float *x, const float *cos_half, const float *sin_half, int n_head, int head_dim);
    /* out[i] = silu(gate[i]) * up[i]; out may be gate. */
    void (*swiglu)(const float *gate, const float *up, int64_t n, float *out);
    /* x += y over n values. */
    void (*add)(float *x, const float *y, int64_t n);
    void (*f16_from_f32)(const float *x, int64_t n, uint16_t *out);
    /* softmax in place over n values, largest subtracted first. */
    void (*softmax)(float *x, int64_t n);
    /* Causal softmax(q k^T scale) v for one tile, online: never n_row x n_key scores. */
    void (*attention)(const struct brim_attention_tile *tile);
};

size_t brim_attention_scratch_floats(int n_row, int head_dim);

/* The table of `tier` (which must be one brim_cpu_tier_ok allows); constant storage. */
const struct brim_cpu_ops *brim_cpu_ops_get(enum brim_cpu_tier tier,
                                            const struct brim_cpu_info *info);

#endif
