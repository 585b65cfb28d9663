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
 * the difference. */
BRIM_DEVICE __nv_bfloat162 code_pair(uint32_t word, int i)
{
    uint32_t r = (word >> (4 * i) & 0x000F000Fu) | 0x43004300u;
    const uint32_t base = 0x43004300u;
    return __hsub2(*(__nv_bfloat162 *)&r, *(const __nv_bfloat162 *)&base);
}

/* bf16 parameters of one group, ready for weights 2^-40 times theirs; sums are multiplied by
 * W4_UNFOLD once at the end.
 *
 * A nibble alone in the low bits of a bf16 is q 2^-133, subnormal and exact; one place higher it is
 * 16 q 2^-133, exact as well, since the spacing of the first normal numbers is the subnormals'. So
 * two of the four registers need no shift and none needs a magic number: half the instructions of
 * code_pair, and of the pipe that runs at half rate a third. 2^93 and 2^89 lift the scale; |scale|
 * must stay below 2^34 and rounding is bf16(scale q + bias) as long as that is above 2^-86. */
#define W4_UNFOLD 1099511627776.0f
struct folded_params {
    __nv_bfloat162 scale[2], bias[2]; /* of outputs g and g + 8 */

    /* {scale g, scale g + 8, bias g, bias g + 8} as packed */
    __device__ void set(uint2 v)
    {
        const uint32_t lift[2] = {0x6E006E00u /* 2^93 */, 0x6C006C00u /* 2^89 */};
        const uint32_t fold = 0x2B802B80u; /* 2^-40 */
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t s = __byte_perm(v.x, 0, h ? 0x3232 : 0x1010);
            uint32_t b = __byte_perm(v.y, 0, h ? 0x3232 : 0x1010);
            scale[h] = __hmul2(*(__nv_bfloat162 *)&s, *(const __nv_bfloat162 *)&lift[h]);
            bias[h] = __hmul2(*(__nv_bfloat162 *)&b, *(const __nv_bfloat162 *)&fold);
        }
    }
    /* The four registers of one k-step. */
    __device__ void unpack(uint32_t word, uint32_t (&frag)[4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t q = (i < 2 ? word : word >> 8) & (i % 2 ? 0x00F000F0u : 0x000F000Fu);
            __nv_bfloat162 w = __hfma2(*(__nv_bfloat162 *)&q, scale[i % 2], bias[i % 2]);
            frag[i] = *(uint32_t *)&w;
        }
    }
};

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
