/* SPDX-License-Identifier: Apache-2.0
 * What the kernels that choose a token share: candidates as keys that are ordered as they are, and
 * the ids that may be chosen. */
#ifndef BRIM_CUDA_MODEL_SAMPLE_CUH
#define BRIM_CUDA_MODEL_SAMPLE_CUH

#include "cuda/model/common.cuh"
#include "cuda/model/ops.h"

enum { KEY_LOW_BITS = 32, MAX_RANGES = 32 /* kept in shared memory */ };

/* Float bits as an unsigned number of the same order; -0 equals 0. */
BRIM_DEVICE uint32_t ordered_bits(float value)
{
    uint32_t bits = __float_as_uint(value + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

BRIM_DEVICE unsigned long long key_of(float logit, int id)
{
    return (unsigned long long)ordered_bits(logit) << KEY_LOW_BITS | (uint32_t)~id;
}

BRIM_DEVICE int key_id(unsigned long long key)
{
    return (int)~(uint32_t)key;
}

/* The largest of a warp in every lane. */
BRIM_DEVICE unsigned long long warp_best(unsigned long long key)
{
    uint32_t high = (uint32_t)(key >> KEY_LOW_BITS), low = (uint32_t)key;
    uint32_t most = __reduce_max_sync(0xFFFFFFFFu, high);
    uint32_t of_most = __reduce_max_sync(0xFFFFFFFFu, high == most ? low : 0);
    return (unsigned long long)most << KEY_LOW_BITS | of_most;
}

BRIM_DEVICE bool may_choose(const int32_t *ranges, int n_range, int id)
{
    bool inside = false;
    for (int r = 0; r < n_range; r++) inside |= id >= ranges[2 * r] && id < ranges[2 * r + 1];
    return inside;
}

/* likeliest.cu: brim_cuda_sample of temperature 0 without a penalty. */
brim_status brim_cuda_likeliest(const struct brim_cuda_sample_args *args, void *stream,
                                brim_error *err);

#endif
