/* SPDX-License-Identifier: Apache-2.0
 * src/cuda/ptx/math.cuh for the emulator: exact functions where the device approximates. */
#ifndef BRIM_CUDA_PTX_MATH_CUH
#define BRIM_CUDA_PTX_MATH_CUH

#include <math.h>

#include "cuda/ptx/sync.cuh"
#include "emu_number.h"

static inline float emu_flush(float x)
{
    return fabsf(x) < 1.17549435e-38f ? copysignf(0, x) : x;
}

BRIM_DEVICE float ex2_approx(float x)
{
    return emu_flush(exp2f(emu_flush(x)));
}

BRIM_DEVICE float sqrt_approx(float x)
{
    return sqrtf(x);
}

BRIM_DEVICE float rsqrt_approx(float x)
{
    return emu_flush(1 / sqrtf(emu_flush(x)));
}

BRIM_DEVICE float lg2_approx(float x)
{
    return log2f(emu_flush(x));
}

BRIM_DEVICE float rcp_approx(float x)
{
    return emu_flush(1 / emu_flush(x));
}

BRIM_DEVICE float max_nan(float x, float y)
{
    return x != x ? x : y != y ? y : fmaxf(x, y);
}

BRIM_DEVICE uint32_t mul_bf16x2(uint32_t x, uint32_t y)
{
    float low = emu_of_bf16((uint16_t)x) * emu_of_bf16((uint16_t)y);
    float high = emu_of_bf16((uint16_t)(x >> 16)) * emu_of_bf16((uint16_t)(y >> 16));
    return (uint32_t)emu_bf16(low) | (uint32_t)emu_bf16(high) << 16;
}

template <uint32_t mask> BRIM_DEVICE uint32_t lop3_and_or(uint32_t a, uint32_t b)
{
    return (a & mask) | b;
}

BRIM_DEVICE void mul_here(float &x, float by)
{
    x *= by;
}

BRIM_DEVICE void fma_here(float &x, float by, float plus)
{
    x = fmaf(x, by, plus);
}

template <class T> BRIM_DEVICE void opaque(T &) {}

template <class T, class U> BRIM_DEVICE void opaque(T &, U &) {}

template <uint32_t value> BRIM_DEVICE uint32_t mov_here(void)
{
    return value;
}

/* ---- special registers
 * ---------------------------------------------------------------------------- */

BRIM_DEVICE int tid_x(void)
{
    return (int)threadIdx.x;
}

/* Counts the calls: later is more. */
BRIM_DEVICE uint32_t clock_u32(void)
{
    static thread_local uint32_t now;
    return now += 32;
}

BRIM_DEVICE void sleep_ns(uint32_t ns)
{
    emu_sleep(ns / 64);
}

#endif
