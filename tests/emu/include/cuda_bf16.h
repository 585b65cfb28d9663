/* SPDX-License-Identifier: Apache-2.0
 * bf16 as brim uses it. Arithmetic rounds once, to nearest even, and gives the device's one NaN. */
#ifndef BRIM_EMU_CUDA_BF16_H
#define BRIM_EMU_CUDA_BF16_H

#include "cuda_runtime.h"
#include "emu_number.h"

struct __nv_bfloat16 {
    uint16_t bits;
};

struct __attribute__((aligned(4))) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    return __nv_bfloat16{emu_bf16(x)};
}

static inline float __bfloat162float(__nv_bfloat16 x)
{
    return emu_of_bf16(x.bits);
}

static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x)
{
    return x.bits;
}

static inline float __low2float(__nv_bfloat162 x)
{
    return emu_of_bf16(x.x.bits);
}

static inline float __high2float(__nv_bfloat162 x)
{
    return emu_of_bf16(x.y.bits);
}

/* x as a float whose last bit tells whether anything was cut off, so that rounding it to bf16
 * rounds x once. x: in double a sum of a bf16 and a product of two is exact, but where one of them
 * is 2^36 times the other and cannot decide the rounding. */
static inline __nv_bfloat16 emu_bf16_of_double(double x)
{
    float near = (float)x;
    if (near != x && near - near == 0) {
        uint32_t bits = emu_bits(near);
        if (x > 0 ? near > x : near < x) bits--; /* towards zero */
        near = emu_float(bits | 1);
    }
    return __float2bfloat16_rn(near);
}

static inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b)
{
    return __nv_bfloat162{
        emu_bf16_of_double((double)emu_of_bf16(a.x.bits) * (double)emu_of_bf16(b.x.bits)),
        emu_bf16_of_double((double)emu_of_bf16(a.y.bits) * (double)emu_of_bf16(b.y.bits))};
}

static inline __nv_bfloat162 __hsub2(__nv_bfloat162 a, __nv_bfloat162 b)
{
    return __nv_bfloat162{
        emu_bf16_of_double((double)emu_of_bf16(a.x.bits) - (double)emu_of_bf16(b.x.bits)),
        emu_bf16_of_double((double)emu_of_bf16(a.y.bits) - (double)emu_of_bf16(b.y.bits))};
}

static inline __nv_bfloat162 __hadd2(__nv_bfloat162 a, __nv_bfloat162 b)
{
    return __nv_bfloat162{
        emu_bf16_of_double((double)emu_of_bf16(a.x.bits) + (double)emu_of_bf16(b.x.bits)),
        emu_bf16_of_double((double)emu_of_bf16(a.y.bits) + (double)emu_of_bf16(b.y.bits))};
}

static inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c)
{
    auto one = [](__nv_bfloat16 x, __nv_bfloat16 y, __nv_bfloat16 z) {
        return emu_bf16_of_double((double)emu_of_bf16(x.bits) * (double)emu_of_bf16(y.bits) +
                                  (double)emu_of_bf16(z.bits));
    };
    return __nv_bfloat162{one(a.x, b.x, c.x), one(a.y, b.y, c.y)};
}

#endif
