/* SPDX-License-Identifier: Apache-2.0
 * Packed weights (pack.h) to wgmma fragments: bf16(scale * q + bias), one rounding. */
#ifndef BRIM_CUDA_W4_UNPACK_CUH
#define BRIM_CUDA_W4_UNPACK_CUH

#include "cuda/ptx/copy.cuh"
#include "cuda/w4/dequant.cuh"
#include "cuda/w4/pack.h"

/* Scale and bias pairs of one group for outputs g and g + 8 of a lane. */
template <enum brim_dtype dtype> struct group_params;
template <> struct group_params<BRIM_DTYPE_BF16> {
    uint2 v;
    __device__ void load(const void *base, int64_t at) { v = __ldg((const uint2 *)base + at); }
    /* bf16x2 with both halves equal */
    __device__ __nv_bfloat162 scale(int h) const
    {
        uint32_t r = __byte_perm(v.x, 0, h ? 0x3232 : 0x1010);
        return *(__nv_bfloat162 *)&r;
    }
    __device__ __nv_bfloat162 bias(int h) const
    {
        uint32_t r = __byte_perm(v.y, 0, h ? 0x3232 : 0x1010);
        return *(__nv_bfloat162 *)&r;
    }
    /* q (exact in bf16) times scale plus bias, one rounding */
    __device__ uint32_t apply(__nv_bfloat162 q, int h) const
    {
        __nv_bfloat162 w = __hfma2(q, scale(h), bias(h));
        return *(uint32_t *)&w;
    }
};
template <> struct group_params<BRIM_DTYPE_F16> {
    uint2 v;
    __device__ void load(const void *base, int64_t at) { v = __ldg((const uint2 *)base + at); }
    __device__ uint32_t apply(__nv_bfloat162 q, int h) const
    {
        float2 s = __half22float2(*(const __half2 *)&v.x),
               b = __half22float2(*(const __half2 *)&v.y);
        float scale = h ? s.y : s.x, bias = h ? b.y : b.x;
        return bf16x2_pack(__fmaf_rn(scale, __low2float(q), bias),
                           __fmaf_rn(scale, __high2float(q), bias));
    }
};
template <> struct group_params<BRIM_DTYPE_F32> {
    float4 v;
    __device__ void load(const void *base, int64_t at) { v = __ldg((const float4 *)base + at); }
    __device__ uint32_t apply(__nv_bfloat162 q, int h) const
    {
        float scale = h ? v.y : v.x, bias = h ? v.w : v.z;
        return bf16x2_pack(__fmaf_rn(scale, __low2float(q), bias),
                           __fmaf_rn(scale, __high2float(q), bias));
    }
};

/* Register i of a fragment: nibbles i and i + 4 as bf16. 0x4300 | q is 128 + q exactly, and so is
 * the difference. `magic` is W4_MAGIC in a register that the compiler cannot see through (a kernel
 * parameter): then mask and magic are one instruction, of a pipe that runs at half rate. */
#define W4_MAGIC 0x43004300u
BRIM_DEVICE __nv_bfloat162 code_pair(uint32_t word, int i, uint32_t magic = W4_MAGIC)
{
    uint32_t r = (word >> (4 * i) & 0x000F000Fu) | magic;
    const uint32_t base = W4_MAGIC;
    return __hsub2(*(__nv_bfloat162 *)&r, *(const __nv_bfloat162 *)&base);
}

/* One unit of one warp as it comes from memory: 16 + 16 bytes of codes and the parameters of its
 * groups. */
template <enum brim_dtype dtype, int groups> struct packed_unit {
    uint4 codes[2];
    group_params<dtype> params[groups];

    /* `unit`: index over the whole matrix, slab * n_unit + unit of the slab. */
    __device__ void load(const uint8_t *all_codes, const void *all_params, int64_t unit, int warp,
                         int lane)
    {
        const uint8_t *src = all_codes + unit * BRIM_W4_UNIT_BYTES + (warp * 32 + lane) * 16;
        codes[0] = ld_stream_v4(src);
        codes[1] = ld_stream_v4(src + BRIM_W4_UNIT_BYTES / 2);
#pragma unroll
        for (int i = 0; i < groups; i++)
            params[i].load(all_params, ((unit * groups + i) * 4 + warp) * 8 + lane / 4);
    }

    /* Fragments of k-steps 4 which .. 4 which + 3. */
    __device__ void unpack(int which, uint32_t (&frag)[4][4]) const
    {
        const uint32_t words[4] = {codes[which].x, codes[which].y, codes[which].z, codes[which].w};
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                frag[k][i] =
                    params[(which * 4 + k) * groups / 8].apply(code_pair(words[k], i), i % 2);
    }
};

#endif
