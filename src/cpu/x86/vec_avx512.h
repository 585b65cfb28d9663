/* SPDX-License-Identifier: Apache-2.0
 * Sixteen floats on AVX-512: the vocabulary of elem_tmpl.h and attn_tmpl.h. Included by *_avx512.c
 * only. Meaning of every function: see vec_avx2.h. */
#ifndef BRIM_CPU_X86_VEC_AVX512_H
#define BRIM_CPU_X86_VEC_AVX512_H

#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__)
#error "compile this file with the flags of the avx512 tier"
#endif

#include <immintrin.h>
#include <stdint.h>

#define VEC_INLINE static inline __attribute__((always_inline))

typedef __m512 v16;

VEC_INLINE v16 v16_zero(void)
{
    return _mm512_setzero_ps();
}
VEC_INLINE v16 v16_set1(float x)
{
    return _mm512_set1_ps(x);
}
VEC_INLINE v16 v16_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
VEC_INLINE void v16_store(float *p, v16 a)
{
    _mm512_storeu_ps(p, a);
}
VEC_INLINE __mmask16 v16_first(int n)
{
    return (__mmask16)((1u << n) - 1);
}
VEC_INLINE v16 v16_load_n(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(v16_first(n), p);
}
VEC_INLINE void v16_store_n(float *p, v16 a, int n)
{
    _mm512_mask_storeu_ps(p, v16_first(n), a);
}
VEC_INLINE v16 v16_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
VEC_INLINE void v16_store_f16(uint16_t *p, v16 a)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
VEC_INLINE v16 v16_add(v16 a, v16 b)
{
    return _mm512_add_ps(a, b);
}
VEC_INLINE v16 v16_sub(v16 a, v16 b)
{
    return _mm512_sub_ps(a, b);
}
VEC_INLINE v16 v16_mul(v16 a, v16 b)
{
    return _mm512_mul_ps(a, b);
}
VEC_INLINE v16 v16_div(v16 a, v16 b)
{
    return _mm512_div_ps(a, b);
}
VEC_INLINE v16 v16_max(v16 a, v16 b)
{
    return _mm512_max_ps(a, b);
}
VEC_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}
VEC_INLINE v16 v16_fnma(v16 a, v16 b, v16 c)
{
    return _mm512_fnmadd_ps(a, b, c);
}
VEC_INLINE v16 v16_first_n(v16 a, v16 b, int n)
{
    return _mm512_mask_blend_ps(v16_first(n), b, a);
}
VEC_INLINE v16 v16_zero_if_less(v16 x, float limit, v16 a)
{
    return _mm512_mask_mov_ps(a, _mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_LT_OQ),
                              _mm512_setzero_ps());
}
VEC_INLINE v16 v16_other_unless_le(v16 x, float limit, v16 a, v16 b)
{
    return _mm512_mask_mov_ps(a, _mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_NLE_UQ), b);
}
VEC_INLINE v16 v16_add_exponent(v16 a, v16 t)
{
    return _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_castps_si512(a), _mm512_slli_epi32(_mm512_castps_si512(t), 23)));
}
VEC_INLINE float v16_sum(v16 a)
{
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
VEC_INLINE float v16_largest(v16 a)
{
    __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

#endif
