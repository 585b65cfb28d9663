/* SPDX-License-Identifier: Apache-2.0
 * The table of CPU kernels. The plain C functions of src/cpu/ref are the specification and fill the
 * table first; src/cpu/x86 and src/cpu/arm override entries tier by tier. Kernels work on one
 * thread's share and allocate nothing; threads are the business of linear.c and attention.c. To add
 * a kernel file: export one init function, declare it in cpu_init.h, call it in cpu_ops.c. */
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

/* A panel of 16 output rows as linear.h lays it out. */
struct brim_panel {
    const uint8_t *data;   /* 64-byte aligned */
    enum brim_dtype dtype; /* W4: of scales and biases; DENSE: of elements; Q8: F16 */
    int group;             /* W4: 32, 64 or 128; Q8: 32; DENSE: 0 */
    int64_t n_in;
};

enum {
    BRIM_MATVEC_ROWS = 8, /* up to this many rows the matvec kernels run */
    BRIM_X8_GROUP = 32,   /* values of a row that share a scale when activations are int8 */
    BRIM_TILE_ROWS = 12   /* no tier takes more rows in one tile */
};

struct brim_cpu_ops {
    enum brim_cpu_tier tier;
    int gemm_rows; /* rows of one tile of `gemm`, at most BRIM_TILE_ROWS */
    int x8_rows;   /* rows of one tile of the int8 kernels, at most BRIM_TILE_ROWS */

    /* Matrix kernels. Ranges [in_begin, in_end) of inputs are multiples of the panel's group (of 32
     * for Q8, any for DENSE). Sixteen results per row go to y[row * y_stride + lane] and overwrite
     * it; rows of y beyond n_row are not touched. */

    /* y = panel x for 1..BRIM_MATVEC_ROWS rows; x points at input in_begin of row 0. x_sum (W4
     * only): x_sum[row * sum_stride + g] is the sum of x over the g-th group of the range. */
    void (*w4_matvec)(const struct brim_panel *w, int64_t in_begin, int64_t in_end, const float *x,
                      int64_t x_stride, const float *x_sum, int64_t sum_stride, int n_row, float *y,
                      int64_t y_stride);
    void (*q8_matvec)(const struct brim_panel *w, int64_t in_begin, int64_t in_end, const float *x,
                      int64_t x_stride, int n_row, float *y, int64_t y_stride);
    void (*dense_matvec)(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                         const float *x, int64_t x_stride, int n_row, float *y, int64_t y_stride);

    /* out[in_end - in_begin][16] = the panel's weights as f32, 64-byte aligned; W4 rounds
     * scale * q + bias once, the others are exact or round once. */
    void (*w4_unpack)(const struct brim_panel *w, int64_t in_begin, int64_t in_end, float *out);
    void (*q8_unpack)(const struct brim_panel *w, int64_t in_begin, int64_t in_end, float *out);
    void (*dense_unpack)(const struct brim_panel *w, int64_t in_begin, int64_t in_end, float *out);

    /* One tile: y[n_row][16 n_panel] (+)= x w^T over n_k inputs, n_panel 1 or 2, 1..gemm_rows rows.
     * w: unpacked panels, the second w_stride floats after the first; x: [n_k][n_row], packed.
     * Every result is summed in the order of the inputs, one fused or plain multiply-add each,
     * whatever n_row and n_panel are. */
    void (*gemm)(const float *w, int64_t w_stride, int n_panel, int64_t n_k, const float *x,
                 int n_row, float *y, int64_t y_stride, int accumulate);

    /* int8 activations. A tile of n_row rows holds, per group of 32 inputs, one record of
     * n_row * 40 bytes: int8 q[n_row][32] in the order of brim_x8_order, f32 scale[n_row] and f32
     * sum[n_row] = scale * (q[0] + ... + q[31]). x_quantize writes the records of n_group groups,
     * x at the first input of row 0. A row of zeros gets scale 0; NaN or infinity in x gives NaN.
     */
    void (*x_quantize)(const float *x, int64_t x_stride, int n_row, int64_t n_group, uint8_t *tile);
    void (*w4_x8)(const struct brim_panel *w, int64_t in_begin, int64_t in_end, const uint8_t *tile,
                  int n_row, float *y, int64_t y_stride);
    void (*q8_x8)(const struct brim_panel *w, int64_t in_begin, int64_t in_end, const uint8_t *tile,
                  int n_row, float *y, int64_t y_stride);

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
