/* SPDX-License-Identifier: Apache-2.0
 * CUDA's language for a C++ compiler: qualifiers, built-in variables (emu.h) and the scalar
 * intrinsics that brim uses. Shared variables are thread_local: a CTA is a thread of the system,
 * its CUDA threads are fibers of that. */
#ifndef BRIM_EMU_CUDA_RUNTIME_H
#define BRIM_EMU_CUDA_RUNTIME_H

#ifndef __cplusplus
#error "cuda_runtime.h is for .cu files; C includes cuda_runtime_api.h"
#endif

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The standard library's headers use __noinline__ for themselves: those that a .cu file or the
 * emulator may want come first. */
#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda_runtime_api.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ thread_local
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __maxnreg__(n)
#define __align__(n) __attribute__((aligned(n)))

static inline float2 make_float2(float x, float y)
{
    return float2{x, y};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return float4{x, y, z, w};
}
static inline uint2 make_uint2(unsigned x, unsigned y)
{
    return uint2{x, y};
}
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return uint4{x, y, z, w};
}
static inline int2 make_int2(int x, int y)
{
    return int2{x, y};
}
static inline int4 make_int4(int x, int y, int z, int w)
{
    return int4{x, y, z, w};
}

/* ---- numbers ----------------------------------------------------------------------------------
 */

template <class To, class From> static inline To emu_bit_cast(From x)
{
    static_assert(sizeof(To) == sizeof(From), "the same number of bits");
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}

static inline unsigned __float_as_uint(float x)
{
    return emu_bit_cast<unsigned>(x);
}
static inline int __float_as_int(float x)
{
    return emu_bit_cast<int>(x);
}
static inline float __uint_as_float(unsigned x)
{
    return emu_bit_cast<float>(x);
}
static inline float __int_as_float(int x)
{
    return emu_bit_cast<float>(x);
}
static inline long long __double_as_longlong(double x)
{
    return emu_bit_cast<long long>(x);
}
static inline double __longlong_as_double(long long x)
{
    return emu_bit_cast<double>(x);
}

static inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}
static inline float __fmul_rn(float x, float y)
{
    return x * y;
}
static inline float __fadd_rn(float x, float y)
{
    return x + y;
}

/* Exact to a rounding or two where the device is within some ulp. Macros: the C library has, or
 * will have, functions of these names. */
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define rsqrtf(x) emu_rsqrtf(x)
static inline float emu_rsqrtf(float x)
{
    return (float)(1 / sqrt((double)x));
}
static inline float __fdividef(float x, float y)
{
    float size = fabsf(y);
    if (size > 8.507059e37f && size <= 3.4028235e38f) return isinf(x) ? NAN : copysignf(0, x) * y;
    return x / y;
}

/* To the nearest, ties to even; beyond an int's range its end, NaN 0. */
static inline int __float2int_rn(float x)
{
    if (isnan(x)) return 0;
    return x >= 2147483648.0f ? INT32_MAX : x < -2147483648.0f ? INT32_MIN : (int)nearbyintf(x);
}

static inline unsigned __umulhi(unsigned x, unsigned y)
{
    return (unsigned)((uint64_t)x * y >> 32);
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}

/* Byte i of the result is byte (nibble i of selector) of y:x; the nibble's top bit spreads a sign.
 */
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    uint64_t pair = (uint64_t)y << 32 | x;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        unsigned which = selector >> (4 * i) & 15,
                 byte = (unsigned)(pair >> 8 * (which & 7)) & 0xFF;
        if (which & 8) byte = byte & 0x80 ? 0xFF : 0;
        r |= byte << 8 * i;
    }
    return r;
}

static inline unsigned __vmaxu2(unsigned x, unsigned y)
{
    unsigned low = std::max(x & 0xFFFF, y & 0xFFFF), high = std::max(x >> 16, y >> 16);
    return high << 16 | low;
}

/* CUDA's min and max take mixed integers, unsigned if one is. */
#define BRIM_EMU_MIN_MAX(type, a, b)                  \
    static inline type min(a x, b y)                  \
    {                                                 \
        return (type)x < (type)y ? (type)x : (type)y; \
    }                                                 \
    static inline type max(a x, b y)                  \
    {                                                 \
        return (type)x > (type)y ? (type)x : (type)y; \
    }
BRIM_EMU_MIN_MAX(int, int, int)
BRIM_EMU_MIN_MAX(unsigned, unsigned, unsigned)
BRIM_EMU_MIN_MAX(unsigned, int, unsigned)
BRIM_EMU_MIN_MAX(unsigned, unsigned, int)
BRIM_EMU_MIN_MAX(long, long, long)
BRIM_EMU_MIN_MAX(long, long, int)
BRIM_EMU_MIN_MAX(long, int, long)
BRIM_EMU_MIN_MAX(unsigned long, unsigned long, unsigned long)
BRIM_EMU_MIN_MAX(long long, long long, long long)
BRIM_EMU_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
#undef BRIM_EMU_MIN_MAX
static inline float min(float x, float y)
{
    return fminf(x, y);
}
static inline float max(float x, float y)
{
    return fmaxf(x, y);
}
static inline double min(double x, double y)
{
    return fmin(x, y);
}
static inline double max(double x, double y)
{
    return fmax(x, y);
}

/* ---- memory: CTAs are threads of the system, so atomics are real ------------------------------
 */

template <class T> static inline T __ldg(const T *ptr)
{
    return *ptr;
}
template <class T> static inline T __ldcg(const T *ptr)
{
    return *ptr;
}
template <class T> static inline T __ldcs(const T *ptr)
{
    return *ptr;
}
template <class T> static inline void __stcs(T *ptr, T value)
{
    *ptr = value;
}

static inline int atomicAdd(int *ptr, int value)
{
    return __atomic_fetch_add(ptr, value, __ATOMIC_RELAXED);
}
static inline unsigned atomicAdd(unsigned *ptr, unsigned value)
{
    return __atomic_fetch_add(ptr, value, __ATOMIC_RELAXED);
}
static inline unsigned long long atomicAdd(unsigned long long *ptr, unsigned long long value)
{
    return __atomic_fetch_add(ptr, value, __ATOMIC_RELAXED);
}
static inline float atomicAdd(float *ptr, float value)
{
    unsigned *word = (unsigned *)ptr, old = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(word, &old, __float_as_uint(__uint_as_float(old) + value),
                                        false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return __uint_as_float(old);
}
static inline unsigned atomicOr(unsigned *ptr, unsigned value)
{
    return __atomic_fetch_or(ptr, value, __ATOMIC_RELAXED);
}
static inline unsigned atomicExch(unsigned *ptr, unsigned value)
{
    return __atomic_exchange_n(ptr, value, __ATOMIC_RELAXED);
}
static inline unsigned atomicMax(unsigned *ptr, unsigned value)
{
    unsigned old = __atomic_load_n(ptr, __ATOMIC_RELAXED);
    while (old < value && !__atomic_compare_exchange_n(ptr, &old, value, false, __ATOMIC_RELAXED,
                                                       __ATOMIC_RELAXED)) {
    }
    return old;
}
static inline unsigned atomicCAS(unsigned *ptr, unsigned expected, unsigned value)
{
    __atomic_compare_exchange_n(ptr, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

static inline void __threadfence(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void __threadfence_block(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void __threadfence_system(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#include "emu.h"
#include "emu_warp.h"

#endif
