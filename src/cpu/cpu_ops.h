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
#include "brim/kernels.h"
#include "tensor/dtype.h"

struct brim_kda_task; /* kda.h */
struct brim_kda_packet;
struct brim_kda_state;

/* Positions are cut at fixed places: every BRIM_ATTENTION_BLOCK keys the online softmax takes a
 * step, every BRIM_ATTENTION_SEGMENT keys it starts anew and the segments' results are merged in
 * order. A query's result depends on its own q and the keys it sees alone, never on tile, chunk or
 * thread. */
enum { BRIM_ATTENTION_BLOCK = 64, BRIM_ATTENTION_SEGMENT = 256, BRIM_ATTENTION_MAX_DIM = 256 };

/* Queries of some consecutive tokens, those heads that share one key/value head. Row t * n_head + h
 * is head h of token t, at position first_pos + t, and sees the keys 0..first_pos + t.
 * Keys lie in panels of 16 positions, [n_panel][head_dim][16], so that 16 scores are one vector; a
 * block is four panels in a row. Values lie row by row. Whole blocks are readable; what lies beyond
 * a row's own position never reaches its result. */
struct brim_attention_tile {
    const float *q;   /* [n_tok][q_stride], n_head x head_dim values each, rotated, not scaled */
    int64_t q_stride; /* elements between tokens */
    int n_tok, n_head;
    int64_t first_pos;
    enum brim_dtype kv_dtype; /* F16 or F32 */
    const void *k;            /* panels of this key head, 64-byte aligned */
    const void *v;            /* [n_pos][head_dim], 64-byte aligned */
    int head_dim;             /* multiple of 8, at most BRIM_ATTENTION_MAX_DIM */
    float scale;              /* q is multiplied by it: head_dim^-1/2 */
    float *out;               /* [n_tok][out_stride], n_head x head_dim values each */
    int64_t out_stride;
    /* Not NULL: compute segment `segment` alone and leave its state here for attention_merge,
     * brim_attention_partial_floats; out is not touched. */
    float *partial;
    int64_t segment;
    float *scratch; /* brim_attention_scratch_floats(n_tok * n_head, head_dim), 64-byte aligned */
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

    /* out[n_k][n_row] = the transpose of x[n_row][n_k], 1..gemm_rows rows. */
    void (*x_pack)(const float *x, int64_t x_stride, int n_row, int64_t n_k, float *out);
    /* One tile: y[n_row][16 n_panel] (+)= x w^T over n_k inputs, n_panel 1 or 2, 1..gemm_rows rows.
     * w: unpacked panels, the second w_stride floats after the first; x: [n_k][n_row], packed.
     * Every result is summed in the order of the inputs, one fused or plain multiply-add each,
     * whatever n_row and n_panel are. */
    void (*gemm)(const float *w, int64_t w_stride, int n_panel, int64_t n_k, const float *x,
                 int n_row, float *y, int64_t y_stride, int accumulate);

    /* w4_unpack and gemm of one panel in one pass, to the bit; NULL where unpacking first is as
     * fast for few tiles. */
    void (*w4_gemm)(const struct brim_panel *w, int64_t in_begin, int64_t in_end, const float *x,
                    int n_row, float *y, int64_t y_stride);

    /* int8 activations. A tile of n_row rows holds, per group of 32 inputs, one record of
     * n_row * BRIM_X8_RECORD bytes: int8 q[n_row][32] in the order of brim_x8_order, f32
     * scale[n_row], f32 sum[n_row] = scale * code_sum, int32 code_sum[n_row] = q[0] + ... + q[31].
     * x_quantize writes the records of n_group groups, x at the first input of row 0; all tiers
     * write the same bytes. A group of zeros gets scale 0; NaN or infinity in x gives NaN. */
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
    /* softmax in place over n values, largest subtracted first. NaN or +inf among them: all NaN. */
    void (*softmax)(float *x, int64_t n);
    /* out[i] = e^x[i], see exp_poly.h; out may be x. */
    void (*exp)(const float *x, int64_t n, float *out);

    /* Causal softmax(q k^T scale) v for one tile, online: never more than BLOCK scores per row.
     * A score of NaN or +inf makes that row NaN, no other; -inf takes no part. */
    void (*attention)(const struct brim_attention_tile *tile);
    /* out of a tile from the states of its segments 0..n_segment - 1, partial_floats apart at
     * tile->partial. */
    void (*attention_merge)(const struct brim_attention_tile *tile, int64_t n_segment);

    /* KDA in chunks of 32 tokens, fp32 throughout, any gate. prepare: the packet of a chunk, of Z
     * the value columns [begin, end); work: BRIM_KDA_WORK_BYTES of any content. advance: one
     * chunk's step of those columns of the state, and of the output rows. Columns are multiples of
     * BRIM_KDA_STRIP; a column's bits do not depend on begin and end. */
    void (*kda_prepare)(const brim_kda_args *args, const struct brim_kda_task *task, int64_t chunk,
                        int begin, int end, void *work, struct brim_kda_packet *packet);
    void (*kda_advance)(const struct brim_kda_task *task, int64_t chunk,
                        const struct brim_kda_packet *packet, int begin, int end,
                        struct brim_kda_state *state);
};

/* Floats of scratch and of one segment's state for n_row query rows. */
size_t brim_attention_scratch_floats(int n_row, int head_dim);
size_t brim_attention_partial_floats(int n_row, int head_dim);

/* The table of `tier` (which must be one brim_cpu_tier_ok allows); constant storage. */
const struct brim_cpu_ops *brim_cpu_ops_get(enum brim_cpu_tier tier,
                                            const struct brim_cpu_info *info);

#endif
