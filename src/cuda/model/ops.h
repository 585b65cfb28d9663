/* SPDX-License-Identifier: Apache-2.0
 * The model's own kernels on CUDA: everything between the projections. No CUDA types, so that plain
 * C may call them; a build without nvcc has the same functions (src/backend/nocuda_model.c).
 * All pointers are device memory, 16-byte aligned; strides in elements, rows 16-byte aligned.
 * Nothing allocates or synchronizes. Arguments are the caller's business: launchers only check what
 * would read or write out of bounds. Token ids and the position are read from device memory, so a
 * captured graph replays with new ones. n_row == 0 succeeds and touches nothing. */
#ifndef BRIM_CUDA_MODEL_OPS_H
#define BRIM_CUDA_MODEL_OPS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "cuda/w4/w4.h"
#include "tensor/dtype.h"
#include "tensor/weight.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In every struct below: `pdl` != 0 launches with programmatic dependent launch; the kernel waits
 * for its predecessor before it reads what that one may have written (activations, ids), not before
 * it reads weights and tables. Decode attention also reads the position and the cache of earlier
 * positions at once: the first launch of a step has pdl 0. */

/* ---- weights that are not W4 ----------------------------------------------------------------- */

/* A matrix [n_out][n_in] on the device.
 * DENSE: data of `dtype`. AFFINE4 (embedding only): as tensor/weight.h. Q8_0: data int8
 * [n_out][n_in], scales f16 [n_out][n_in / 32] (brim_q8_split). */
struct brim_cuda_table {
    enum brim_weight_kind kind; /* DENSE, AFFINE4, Q8_0 */
    enum brim_dtype dtype;      /* DENSE: of data; AFFINE4: of scales and biases */
    int group;                  /* AFFINE4: 32, 64, 128 */
    int64_t n_out, n_in;
    const void *data, *scales, *biases;
};

/* Host: n_block GGUF blocks (f16 d, 32 int8) into codes [32 n_block] and scales [n_block]. */
static inline void brim_q8_split(const uint8_t *blocks, int64_t n_block, int8_t *codes,
                                 uint16_t *scales)
{
    for (int64_t i = 0; i < n_block; i++) {
        memcpy(&scales[i], blocks + 34 * i, 2);
        memcpy(&codes[32 * i], blocks + 34 * i + 2, 32);
    }
}

/* x[row] = row ids[row] of the table, f32. Ids outside 0..n_out-1 give rows of NaN. */
struct brim_cuda_embed_args {
    int64_t n_row;
    struct brim_cuda_table table;
    const int32_t *ids; /* [n_row] */
    float *x;           /* f32 [n_row][x_stride] */
    int64_t x_stride;
    int pdl;
};
brim_status brim_cuda_embed(const struct brim_cuda_embed_args *args, void *stream, brim_error *err);

/* Row *row of each buffer to its row 0. */
enum { BRIM_CUDA_KEPT = 3 };
struct brim_cuda_keep_args {
    int n_buffer;
    struct {
        void *data;
        int64_t row_bytes; /* from row to row, a multiple of 16 */
    } buffers[BRIM_CUDA_KEPT];
    const int64_t *row; /* device, one number */
    int pdl;
};
brim_status brim_cuda_keep(const struct brim_cuda_keep_args *args, void *stream, brim_error *err);

/* y = x W^T + out_bias, W DENSE or Q8_0. n_row <= 8: a matvec, f32 throughout. More: 64 x 64 tiles
 * on mma.sync, weights rounded to bf16, f32 sums. Any n_in, n_out; DENSE rows need not be aligned
 * (n_in odd is slow). BRIM_W4_SWIGLU: rows of W in the order of brim_w4_pair_row, n_out % 16 == 0.
 */
struct brim_cuda_dense_args {
    int64_t n_row;
    struct brim_cuda_table w;
    const void *x; /* bf16 [n_row][x_stride] */
    int64_t x_stride;
    void *y; /* see brim_w4_epilogue */
    int64_t y_stride;
    enum brim_w4_epilogue epilogue;
    const float *out_bias; /* f32 [n_out] or NULL */
    int pdl;
};
brim_status brim_cuda_dense(const struct brim_cuda_dense_args *args, void *stream, brim_error *err);

/* ---- norm, rotation, activation -------------------------------------------------------------- */

/* y = x / sqrt(mean(x^2) + eps) * weight, f32 -> bf16, one block a row. */
struct brim_cuda_rmsnorm_args {
    int64_t n_row, n;
    const float *x; /* [n_row][x_stride] */
    int64_t x_stride;
    const float *weight; /* [n] */
    float eps;
    void *y; /* bf16 [n_row][y_stride] */
    int64_t y_stride;
    int pdl;
    float *workspace; /* the plain form only: f32 [n_row] */
};
brim_status brim_cuda_rmsnorm(const struct brim_cuda_rmsnorm_args *args, void *stream,
                              brim_error *err);
/* Two kernels: the sum of squares, then the scaling. */
brim_status brim_cuda_rmsnorm_plain(const struct brim_cuda_rmsnorm_args *args, void *stream,
                                    brim_error *err);

/* table[n_position][2][n_pair]: cosines, then sines, of positions 0.. times amplitude; angles,
 * cosines and sines in f64, rounded once. Once per session (or model). */
struct brim_cuda_rope_table_args {
    int64_t n_position;
    int n_pair;
    double amplitude;
    const double *inv_freq; /* device, [n_pair] */
    float *table;
};
brim_status brim_cuda_rope_table(const struct brim_cuda_rope_table_args *args, void *stream,
                                 brim_error *err);

/* Keys and values of one layer, each [n_head_kv][n_position][head_dim]; a session's cache is
 * [layer][k|v] of these. Positions not stored yet may hold anything. */
struct brim_cuda_kv {
    void *k, *v;
    enum brim_dtype dtype; /* F16 or F32 */
    int n_head_kv, head_dim;
    int64_t n_position; /* capacity */
};

/* Per row and head: q and k through RMSNorm (if given) and rotation, k and v narrowed into the
 * cache at first_pos + row. Rows beyond the capacity are dropped. q leaves in the cache's type. */
struct brim_cuda_rotate_args {
    int64_t n_row;
    int n_head;
    const void *qkv;           /* [n_row][qkv_stride]: n_head q, n_head_kv k, n_head_kv v heads */
    enum brim_dtype qkv_dtype; /* BF16 or F32 */
    int64_t qkv_stride;
    const float *q_norm, *k_norm; /* [head_dim], or both NULL */
    float eps;
    const float *rope_table;  /* [kv.n_position][2][head_dim / 2] */
    const int64_t *first_pos; /* device, one number */
    struct brim_cuda_kv kv;
    void *q; /* kv.dtype [n_row][n_head][head_dim], dense */
    int pdl;
    float *workspace; /* the plain form only: f32 [n_row][(n_head + n_head_kv) head_dim] */
};
brim_status brim_cuda_rotate(const struct brim_cuda_rotate_args *args, void *stream,
                             brim_error *err);
/* q norm, k norm, q rotation, k rotation, cache write: a kernel each. */
brim_status brim_cuda_rotate_plain(const struct brim_cuda_rotate_args *args, void *stream,
                                   brim_error *err);

/* y = silu(gate) * up. */
struct brim_cuda_swiglu_args {
    int64_t n_row, n_ff;
    const void *gate_up;           /* [n_row][gate_up_stride], 2 n_ff values */
    enum brim_dtype gate_up_dtype; /* BF16 or F32 */
    int64_t gate_up_stride;
    int paired; /* 0: gate, then up; 1: blocks of 8 and 8, brim_w4_pair_row; n_ff % 8 == 0 */
    void *y;    /* bf16 [n_row][y_stride] */
    int64_t y_stride;
    int pdl;
    float *workspace; /* the plain form only: f32 [n_row][n_ff] */
};
brim_status brim_cuda_swiglu(const struct brim_cuda_swiglu_args *args, void *stream,
                             brim_error *err);
/* Two kernels: silu, then the product. */
brim_status brim_cuda_swiglu_plain(const struct brim_cuda_swiglu_args *args, void *stream,
                                   brim_error *err);

/* x += y over [n_row][n]. */
struct brim_cuda_add_args {
    int64_t n_row, n;
    float *x;
    int64_t x_stride;
    const void *y;
    enum brim_dtype y_dtype; /* BF16 or F32 */
    int64_t y_stride;
    int pdl;
};
brim_status brim_cuda_add(const struct brim_cuda_add_args *args, void *stream, brim_error *err);

/* ---- attention ------------------------------------------------------------------------------- */

enum { BRIM_CUDA_DECODE_ROWS = 8, BRIM_CUDA_MAX_HEAD_DIM = 256, BRIM_CUDA_MAX_GQA = 16 };

/* out = softmax(q k^T scale) v, causal: row r is at first_pos + r and sees keys 0..first_pos + r,
 * all of them already in the cache. Query head h uses key head h / (n_head / n_head_kv). */
struct brim_cuda_attention_args {
    int64_t n_row;
    int n_head;
    const void *q;            /* kv.dtype [n_row][n_head][head_dim] */
    const int64_t *first_pos; /* device, one number */
    struct brim_cuda_kv kv;
    float scale;
    void *out; /* bf16 [n_row][out_stride], n_head x head_dim values a row */
    int64_t out_stride;
    void *workspace;   /* of the form called; decode's must be zero before its first use */
    int64_t n_key_max; /* first_pos + n_row is at most this whenever the launch runs (a graph's
                          capacity); sizes the plain form, 0 < n_key_max <= kv.n_position */
    int pdl;
    /* Decode only. Not NULL (host pointer): do what brim_cuda_rotate would with these arguments on
     * the way, to the bit, the cache write included; one launch less. `q` of both is scratch. */
    const struct brim_cuda_rotate_args *rotate;
};

/* n_row <= BRIM_CUDA_DECODE_ROWS. The cache is split over blocks at places that follow from a row's
 * own position alone, the parts are merged in order: a row's bits do not depend on its neighbours,
 * on the capacity or on the run. Workspace: the bytes below, zeroed once, left ready for the next
 * launch on the same stream; it serves any n_row and position. */
size_t brim_cuda_attention_decode_bytes(int n_head, int n_head_kv, int head_dim);
brim_status brim_cuda_attention_decode(const struct brim_cuda_attention_args *args, void *stream,
                                       brim_error *err);
/* Any n_row, no workspace. Tensor cores for F16 caches with head_dim 64 and 128. A row's bits
 * follow from its own position. */
brim_status brim_cuda_attention_prefill(const struct brim_cuda_attention_args *args, void *stream,
                                        brim_error *err);
/* Scores in memory: product, softmax, product. Workspace f32 [n_head][n_row][n_key_max]. */
size_t brim_cuda_attention_plain_bytes(int64_t n_row, int n_head, int64_t n_key_max);
brim_status brim_cuda_attention_plain(const struct brim_cuda_attention_args *args, void *stream,
                                      brim_error *err);

/* ---- the next token -------------------------------------------------------------------------- */

/* A count, and the best of each block where the likeliest is wanted. */
enum { BRIM_CUDA_SAMPLE_BYTES = 16 + 8 * 128 };

/* brim_sampler_next on the device (include/brim/brim.h, sampling): penalty, temperature, top-k,
 * top-p, min-p, draw. Temperature below BRIM_GREEDY_TEMPERATURE: the largest logit, the lowest id
 * of equals. Ids outside the ranges (padding rows of the head) are never chosen or looked at. */
struct brim_cuda_sample_args {
    int64_t n_vocab;
    const float *logits;   /* [n_vocab] */
    const int32_t *ranges; /* [n_range][2]: begin, end of the ids that may be chosen, ascending */
    int n_range;
    float temperature, top_p, min_p, repeat_penalty;
    int32_t top_k;         /* 0 or less: off */
    const int32_t *recent; /* tokens of the penalty's window, [n_recent]; NULL: none */
    int64_t n_recent;
    const float *uniform; /* one number in [0, 1); not read for the largest */
    int32_t *id;          /* the token chosen; -1: NaN or +inf among the logits, or all -inf */
    int64_t *advance;     /* incremented by one if not NULL: the position of the next step */
    void *workspace;      /* BRIM_CUDA_SAMPLE_BYTES, zeroed once */
    int pdl;
};
brim_status brim_cuda_sample(const struct brim_cuda_sample_args *args, void *stream,
                             brim_error *err);

#ifdef __cplusplus
}
#endif
#endif
