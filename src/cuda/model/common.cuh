/* SPDX-License-Identifier: Apache-2.0
 * Small device helpers of the model's kernels: typed loads, sums over a warp or a block in a fixed
 * order, the launch shape. */
#ifndef BRIM_CUDA_MODEL_COMMON_CUH
#define BRIM_CUDA_MODEL_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/launch.h"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/sync.cuh"
#include "tensor/dtype.h"

/* Element i of an array of F32, F16 or BF16. */
BRIM_DEVICE float load_f32(const void *data, enum brim_dtype dtype, int64_t i)
{
    if (dtype == BRIM_DTYPE_F32) return ((const float *)data)[i];
    if (dtype == BRIM_DTYPE_F16) return __half2float(((const __half *)data)[i]);
    return __bfloat162float(((const __nv_bfloat16 *)data)[i]);
}

/* Round to nearest even; f16 overflows to infinity. */
BRIM_DEVICE void store_f32(void *data, enum brim_dtype dtype, int64_t i, float value)
{
    if (dtype == BRIM_DTYPE_F32)
        ((float *)data)[i] = value;
    else if (dtype == BRIM_DTYPE_F16)
        ((__half *)data)[i] = __float2half_rn(value);
    else
        ((__nv_bfloat16 *)data)[i] = __float2bfloat16_rn(value);
}

/* Every lane gets the sum, always folded in the same order. */
BRIM_DEVICE float warp_sum(float v)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, step);
    return v;
}

BRIM_DEVICE float warp_max(float v)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(0xFFFFFFFFu, v, step));
    return v;
}

/* Every thread of a block of whole warps gets the sum. part: shared, [32]; free again after the
 * next barrier. */
BRIM_DEVICE float block_sum(float v, float *part)
{
    v = warp_sum(v);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    return warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? part[threadIdx.x % 32] : 0.0f);
}

/* One thread per `per_thread` of n values in x, a row of the grid in y. */
static inline brim_launch_shape elementwise_shape(int64_t n_row, int64_t n, int per_thread,
                                                  bool pdl)
{
    int64_t n_thread = (n + per_thread - 1) / per_thread;
    brim_launch_shape shape = {};
    shape.block = dim3(128);
    shape.grid = dim3((unsigned)((n_thread + 127) / 128), (unsigned)n_row);
    shape.pdl = pdl;
    return shape;
}

/* Rows go to grid y, which ends at 65535: longer steps are cut. */
#define BRIM_GRID_Y_MAX 65535

#endif
