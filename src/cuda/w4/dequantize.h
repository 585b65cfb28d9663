/* SPDX-License-Identifier: Apache-2.0
 * A 4-bit or Q8_0 matrix as dense bf16 on the device: the first rung of the ladder. */
#ifndef BRIM_CUDA_W4_DEQUANTIZE_H
#define BRIM_CUDA_W4_DEQUANTIZE_H

#include "cuda/model/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

struct brim_cuda_dequantize_args {
    struct brim_cuda_table w; /* AFFINE4 or Q8_0 */
    void *out;                /* bf16 [n_out][n_in] */
};
/* Each weight in f32, rounded once. */
brim_status brim_cuda_dequantize(const struct brim_cuda_dequantize_args *args, void *stream,
                                 brim_error *err);

#ifdef __cplusplus
}
#endif
#endif
