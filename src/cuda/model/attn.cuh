/* SPDX-License-Identifier: Apache-2.0
 * What the attention kernels share: the online softmax in powers of two. Scores are multiplied by
 * scale * log2(e) in f32; a maximum of -inf means that nothing was seen. */
#ifndef BRIM_CUDA_MODEL_ATTN_CUH
#define BRIM_CUDA_MODEL_ATTN_CUH

#include <math_constants.h>

#include "cuda/model/attn.h"
#include "cuda/model/common.cuh"
#include "cuda/model/ops.h"
#include "cuda/ptx/math.cuh"

#define ATTN_LOG2E 1.4426950408889634f

/* What to subtract from scores whose maximum is `largest`: never -inf, so that -inf - -inf does
 * not turn a score that takes no part into NaN. */
BRIM_DEVICE float attn_base(float largest)
{
    return largest == -CUDART_INF_F ? 0.0f : largest;
}

/* 2^(from - to): what a sum relative to `from` is multiplied by to be relative to `to` >= from. */
BRIM_DEVICE float attn_keep(float from, float to)
{
    return ex2_approx(from - attn_base(to));
}

/* Two f16; NaN and infinity become zero where `low` and `high` ask for it. */
BRIM_DEVICE uint32_t attn_finite(uint32_t pair, bool low, bool high)
{
    if (low && (pair & 0x7C00) == 0x7C00) pair &= 0xFFFF0000;
    if (high && (pair & 0x7C000000) == 0x7C000000) pair &= 0xFFFF;
    return pair;
}

/* Bits 15 and 31: whether the low and the high f16 of a pair is NaN or infinite. Other bits may be
 * set as well. */
BRIM_DEVICE uint32_t attn_not_finite(uint32_t pair)
{
    return (pair & 0x7C007C00u) + 0x04000400u;
}

/* Any head_dim and both cache types, on the CUDA cores; args->workspace is not used. */
extern "C" brim_status brim_cuda_attn_any(const brim_cuda_attention_args *args, cudaStream_t stream,
                                          brim_error *err);

/* The checks every form needs. */
extern "C" brim_status brim_cuda_attn_check(const brim_cuda_attention_args *args, brim_error *err);

#endif
