/* SPDX-License-Identifier: Apache-2.0
 * W4A16 on CUDA: y[n_row][n_out] = x[n_row][n_in] W^T, x and y bf16, W affine 4-bit in groups of
 * 32, 64 or 128 along n_in, kept in the checkpoint's own layout (tensor/weight.h, AFFINE4).
 * Arguments are validated by the caller (src/backend/kernels_w4.c); launchers only obey a plan. */
#ifndef BRIM_CUDA_W4_H
#define BRIM_CUDA_W4_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "brim/plan.h"
#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What leaves a kernel: the type and the meaning of y. `out_bias` is added first. */
enum brim_w4_epilogue {
    BRIM_W4_STORE_BF16 = 0, /* y bf16 [n_row][n_out] */
    BRIM_W4_STORE_F32 = 1,  /* y f32: logits */
    BRIM_W4_ADD_F32 = 2,    /* y f32 += sum: the residual stream */
    /* y bf16 [n_row][n_out / 2] = silu(gate) * up of the f32 sums. Rows of W come in blocks of 16:
     * row 16 b + r, r < 8, is gate output 8 b + r, row 16 b + 8 + r the up output of the same
     * index (brim_w4_pair_row), so that one thread of a wgmma or mma fragment holds both. */
    BRIM_W4_SWIGLU = 3
};

/* Thread groups of the tiled kernel (128 threads, 5 KB of shared memory) a multiprocessor should
 * get: what the policy `device` aims at. A split paid up to eight for every projection; beyond, at
 * 64 rows of gate, it no longer did (bench/results/h200/w4_split.csv, tests/unit/test_split_k.c).
 */
enum { BRIM_W4_TILED_PER_SM = 8 };

/* Where row `row` of gate (up = 0) or up (up = 1) lies in a matrix for BRIM_W4_SWIGLU. */
static inline int64_t brim_w4_pair_row(int64_t row, int up)
{
    return row / 8 * 16 + up * 8 + row % 8;
}

struct brim_cuda_w4 {
    int64_t n_row, n_in, n_out;
    int group;
    enum brim_dtype param_dtype; /* of scales and biases: F32, F16 or BF16 */
    const void *x;               /* device, bf16 [n_row][x_stride], rows 16-byte aligned */
    int64_t x_stride;
    const void *codes;           /* device, u32 [n_out][n_in / 8], 16-byte aligned */
    const void *scales, *biases; /* device, [n_out][n_in / group] */
    void *y;                     /* device, [n_row][y_stride], see brim_w4_epilogue */
    int64_t y_stride;
    enum brim_w4_epilogue epilogue; /* zero: y is bf16 */
    const float *out_bias;          /* device, f32 [n_out] in the order of W's rows, or NULL */
};

enum brim_w4_planes { BRIM_W4_PLANES_BF16 = 0, BRIM_W4_PLANES_F32 = 1 };

/* Device bytes of the partial planes [split][n_row][n_out]; 0 for split 1. */
size_t brim_cuda_w4_workspace_bytes(const brim_split_plan *plan, int64_t n_row, int64_t n_out,
                                    enum brim_w4_planes planes);

/* The three kernels below know every epilogue but SWIGLU. */

/* n_row <= 8: every output by one warp, f32 throughout, the affine identity
 * sum(w x) = scale sum(q x) + bias sum(x) per group. */
brim_status brim_cuda_w4_matvec(const struct brim_cuda_w4 *args, void *stream, brim_error *err);

/* One thread an output, any n_row; f32 throughout: the ladder's step before weights are reused. */
brim_status brim_cuda_w4_naive(const struct brim_cuda_w4 *args, void *stream, brim_error *err);

/* 32 x 32 output tiles on mma.sync; weights are rounded to bf16 as they are unpacked. With
 * plan->split > 1 grid z is the partition, each writes its own plane, and a second kernel sums the
 * planes in partition order in f32 and casts once. Split 1 is the unsplit kernel, to the bit. */
brim_status brim_cuda_w4_tiled(const struct brim_cuda_w4 *args, const brim_split_plan *plan,
                               enum brim_w4_planes planes, void *workspace, void *stream,
                               brim_error *err);

#ifdef __cplusplus
}
#endif
#endif
