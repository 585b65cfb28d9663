/* SPDX-License-Identifier: Apache-2.0
 * f16 as brim uses it: conversions. */
#ifndef BRIM_EMU_CUDA_FP16_H
#define BRIM_EMU_CUDA_FP16_H

#include "cuda_runtime.h"
#include "emu_number.h"

struct __half {
    uint16_t bits;
};

struct __attribute__((aligned(4))) __half2 {
    __half x, y;
};

static inline __half __float2half_rn(float x)
{
    return __half{emu_f16(x)};
}

static inline float __half2float(__half x)
{
    return emu_of_f16(x.bits);
}

static inline unsigned short __half_as_ushort(__half x)
{
    return x.bits;
}

static inline __half2 __floats2half2_rn(float x, float y)
{
    return __half2{__float2half_rn(x), __float2half_rn(y)};
}

static inline float2 __half22float2(__half2 x)
{
    return float2{emu_of_f16(x.x.bits), emu_of_f16(x.y.bits)};
}

#endif
