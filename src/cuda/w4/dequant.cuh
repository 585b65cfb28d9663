/* SPDX-License-Identifier: Apache-2.0
 * 4-bit codes to numbers. Value j of a word lies in bits 4j..4j+3. */
#ifndef BRIM_CUDA_W4_DEQUANT_CUH
#define BRIM_CUDA_W4_DEQUANT_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/ptx/copy.cuh"
#include "cuda/w4/w4.h"
#include "tensor/dtype.h"

/* Element i of an array of scales or biases; never narrowed below its own type. */
BRIM_DEVICE float w4_param(const void *params, enum brim_dtype dtype, int64_t i)
{
    if (dtype == BRIM_DTYPE_F32) return ((const float *)params)[i];
    if (dtype == BRIM_DTYPE_F16) return __half2float(((const __half *)params)[i]);
    return __bfloat162float(((const __nv_bfloat16 *)params)[i]);
}

BRIM_DEVICE float w4_code(uint32_t word, int j)
{
    return (float)(word >> (4 * j) & 15u);
}

/* Eight weights scale * q + bias, one fused multiply-add each, rounded to bf16: the 16 bytes of a
 * shared-memory tile row. */
BRIM_DEVICE uint4 w4_word_bf16(uint32_t word, float scale, float bias)
{
    float w[8];
#pragma unroll
    for (int j = 0; j < 8; j++) w[j] = __fmaf_rn(scale, w4_code(word, j), bias);
    return make_uint4(bf16x2_pack(w[0], w[1]), bf16x2_pack(w[2], w[3]), bf16x2_pack(w[4], w[5]),
                      bf16x2_pack(w[6], w[7]));
}

/* A finished sum leaves: bias, then what the epilogue says, SWIGLU excepted. */
BRIM_DEVICE void w4_store(const brim_cuda_w4 &a, int64_t row, int64_t out, float sum)
{
    if (a.out_bias) sum += a.out_bias[out];
    int64_t at = row * a.y_stride + out;
    if (a.epilogue == BRIM_W4_STORE_BF16)
        ((__nv_bfloat16 *)a.y)[at] = __float2bfloat16_rn(sum);
    else if (a.epilogue == BRIM_W4_STORE_F32)
        ((float *)a.y)[at] = sum;
    else
        ((float *)a.y)[at] += sum;
}

#endif
