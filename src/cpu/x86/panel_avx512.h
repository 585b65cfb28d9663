/* SPDX-License-Identifier: Apache-2.0
 * Loads shared by the AVX-512 matrix kernels: one zmm is one vector of a panel. */
#ifndef BRIM_CPU_X86_PANEL_AVX512_H
#define BRIM_CPU_X86_PANEL_AVX512_H

#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512VNNI__)
#error "this file needs the flags of the avx512 tier"
#endif

#include <immintrin.h>

#include "cpu/linear.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Sixteen elements of any floating type. */
ALWAYS_INLINE __m512 load16(enum brim_dtype dtype, const uint8_t *at)
{
    if (dtype == BRIM_DTYPE_F32) return _mm512_loadu_ps(at);
    __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)at);
    if (dtype == BRIM_DTYPE_F16) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

ALWAYS_INLINE __m512i load_codes(const uint8_t *at)
{
    return _mm512_loadu_si512(at);
}

/* Four bytes of activations in every lane. */
ALWAYS_INLINE __m512i broadcast4(const int8_t *at)
{
    int32_t four;
    memcpy(&four, at, sizeof four);
    return _mm512_set1_epi32(four);
}

/* Call body(n) with n a constant, so that its accumulators stay in registers. */
#define WITH_ROWS_8(n, body) \
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
    case 7:                  \
        body(7);             \
        break;               \
    case 8:                  \
        body(8);             \
        break;               \
    }

#define WITH_ROWS_12(n, body) \
    switch (n) {              \
    case 1:                   \
        body(1);              \
        break;                \
    case 2:                   \
        body(2);              \
        break;                \
    case 3:                   \
        body(3);              \
        break;                \
    case 4:                   \
        body(4);              \
        break;                \
    case 5:                   \
        body(5);              \
        break;                \
    case 6:                   \
        body(6);              \
        break;                \
    case 7:                   \
        body(7);              \
        break;                \
    case 8:                   \
        body(8);              \
        break;                \
    case 9:                   \
        body(9);              \
        break;                \
    case 10:                  \
        body(10);             \
        break;                \
    case 11:                  \
        body(11);             \
        break;                \
    case 12:                  \
        body(12);             \
        break;                \
    }

#endif
