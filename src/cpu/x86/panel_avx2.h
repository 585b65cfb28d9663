/* SPDX-License-Identifier: Apache-2.0
 * Loads shared by the AVX2 matrix kernels: a vector of a panel is two ymm, of rows 0..7 and 8..15.
 * With sixteen registers a kernel takes one half of a panel at a time. */
#ifndef BRIM_CPU_X86_PANEL_AVX2_H
#define BRIM_CPU_X86_PANEL_AVX2_H

#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "this file needs the flags of the avx2 tier"
#endif

#include <immintrin.h>

#include "cpu/linear.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { HALF = BRIM_PANEL / 2 };

/* Eight elements of any floating type. */
ALWAYS_INLINE __m256 load8(enum brim_dtype dtype, const uint8_t *at)
{
    if (dtype == BRIM_DTYPE_F32) return _mm256_loadu_ps((const float *)(const void *)at);
    __m128i half = _mm_loadu_si128((const __m128i *)(const void *)at);
    if (dtype == BRIM_DTYPE_F16) return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

ALWAYS_INLINE __m256i load_codes(const uint8_t *at)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

/* Four bytes of activations in every lane. */
ALWAYS_INLINE __m256i broadcast4(const int8_t *at)
{
    int32_t four;
    memcpy(&four, at, sizeof four);
    return _mm256_set1_epi32(four);
}

/* Call body(n) with n a constant, so that its accumulators stay in registers. */
#define WITH_ROWS_4(n, body) \
    switch (n) {             \
    case 1:                  \
        body(1);             \
        break;               \
    case 2:                  \
        body(2);             \
        break;               \
    case 3:                  \
        body(3);             \
        break;               \
    case 4:                  \
        body(4);             \
        break;               \
    }

#define WITH_ROWS_6(n, body) \
    switch (n) {             \
    case 1:                  \
        body(1);             \
        break;               \
    case 2:                  \
        body(2);             \
        break;               \
    case 3:                  \
        body(3);             \
        break;               \
    case 4:                  \
        body(4);             \
        break;               \
    case 5:                  \
        body(5);             \
        break;               \
    case 6:                  \
        body(6);             \
        break;               \
    }

#endif
