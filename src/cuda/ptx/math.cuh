/* SPDX-License-Identifier: Apache-2.0
 * One wrapper per instruction: arithmetic that C has no operator for, values that stay
 * where they are computed, special registers. ex2, rsqrt, lg2, rcp are those of the
 * special-function unit: 2 ulp, subnormal arguments and results are zero. */
#ifndef BRIM_CUDA_PTX_MATH_CUH
#define BRIM_CUDA_PTX_MATH_CUH

#include "cuda/ptx/sync.cuh"

/* 2^x within 2 ulp, subnormal results to 0; 2^0 is 1, 2^-inf is 0. */
BRIM_DEVICE float ex2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Of numbers below 2^-126 too. */
BRIM_DEVICE float sqrt_approx(float x)
{
    float y;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

BRIM_DEVICE float rsqrt_approx(float x)
{
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

BRIM_DEVICE float lg2_approx(float x)
{
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

BRIM_DEVICE float rcp_approx(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Of two numbers the larger, NaN if one is. */
BRIM_DEVICE float max_nan(float x, float y)
{
    float z;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

BRIM_DEVICE uint32_t mul_bf16x2(uint32_t x, uint32_t y)
{
    uint32_t z;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
    return z;
}

/* a & mask | b in one instruction. */
template <uint32_t mask> BRIM_DEVICE uint32_t lop3_and_or(uint32_t a, uint32_t b)
{
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(r) : "r"(a), "n"(mask), "r"(b));
    return r;
}

/* ---- arithmetic that stays where the code has it, between volatile instructions ---------------
 */

/* x *= by */
BRIM_DEVICE void mul_here(float &x, float by)
{
    asm volatile("mul.f32 %0, %0, %1;" : "+f"(x) : "f"(by));
}

/* x = x * by + plus */
BRIM_DEVICE void fma_here(float &x, float by, float plus)
{
    asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(x) : "f"(by), "f"(plus));
}

/* ---- values the compiler does not see through: it neither carries what is computed from them
 * over this place nor computes them again behind it ---------------------------------------------
 */

BRIM_DEVICE void opaque(uint32_t &v)
{
    asm volatile("" : "+r"(v));
}

BRIM_DEVICE void opaque(int64_t &v)
{
    asm volatile("" : "+l"(v));
}

BRIM_DEVICE void opaque(int &a, int &b)
{
    asm volatile("" : "+r"(a), "+r"(b));
}

BRIM_DEVICE void opaque(int &a, uint32_t &b)
{
    asm volatile("" : "+r"(a), "+r"(b));
}

/* A constant that is moved into a register here, not carried. */
template <uint32_t value> BRIM_DEVICE uint32_t mov_here(void)
{
    uint32_t r;
    asm volatile("mov.b32 %0, %1;" : "=r"(r) : "n"(value));
    return r;
}

/* ---- special registers ------------------------------------------------------------------------
 */

/* threadIdx.x, read here. */
BRIM_DEVICE int tid_x(void)
{
    int t;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
    return t;
}

/* Cycles of the multiprocessor, modulo 2^32; in order with memory. */
BRIM_DEVICE uint32_t clock_u32(void)
{
    uint32_t now;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(now)::"memory");
    return now;
}

/* About this many nanoseconds pass. */
BRIM_DEVICE void sleep_ns(uint32_t ns)
{
    __nanosleep(ns);
}

#endif
