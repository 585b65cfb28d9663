/* SPDX-License-Identifier: Apache-2.0
 * The W4 kernels for decoding, one to eight rows: weights stream once from memory into mma.sync
 * fragments as exact codes, scale and bias are applied to the f32 sums of a group. The sums of a
 * row do not depend on the other rows; under one plan not on their number either, under the chosen
 * plans one and two rows share bits (int8), and three to eight (bf16). */
#ifndef BRIM_CUDA_W4_GEMV_H
#define BRIM_CUDA_W4_GEMV_H

#include "cuda/w4/pack.h"
#include "cuda/w4/w4.h"
#include "plan/w4_gemv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where x comes from instead of args->x: x * rsqrt(mean(x^2) + eps) * weight, the RMSNorm of an f32
 * row; rounded to bf16 by the kernel on bf16. */
struct brim_cuda_w4_norm {
    const float *x; /* device, f32 [n_row][x_stride], rows on 16 bytes */
    int64_t x_stride;
    const float *weight; /* device, f32 [n_in], on 16 bytes */
    float eps;
};

/* y = x W^T for n_row <= BRIM_W4_GEMV_ROWS; args gives x (or norm does, else NULL), y, strides,
 * epilogue and out_bias; the weights are `w`. Rows of x start on 16 bytes; what follows n_in
 * elements of a row is not read. With pdl the kernel may start before its predecessor ends; until
 * that one has ended it reads only what no kernel writes: weights, out_bias, norm->weight. y may be
 * any buffer that x and norm->x are not part of, except that with BRIM_W4_ADD_F32 it holds the
 * residual. No workspace. */
brim_status brim_cuda_w4_gemv(const struct brim_cuda_w4 *args, const struct brim_cuda_w4_packed *w,
                              const struct brim_cuda_w4_norm *norm,
                              const struct brim_w4_gemv_plan *plan, int pdl, void *stream,
                              brim_error *err);

/* The same on integer tensor cores (gemv_int8.cu): what brim_cuda_w4_gemv calls where plan->kernel
 * is BRIM_W4_GEMV_INT8. x is rounded to 2^-23 of the largest of its group (docs/numerics.md), and
 * with a norm that is its only rounding; a group with NaN or infinity makes its row NaN. */
brim_status brim_cuda_w4_gemv_int8(const struct brim_cuda_w4 *args,
                                   const struct brim_cuda_w4_packed *w,
                                   const struct brim_cuda_w4_norm *norm,
                                   const struct brim_w4_gemv_plan *plan, int pdl, void *stream,
                                   brim_error *err);

#ifdef __cplusplus
}
#endif
#endif
