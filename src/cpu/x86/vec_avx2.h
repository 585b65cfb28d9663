/* SPDX-License-Identifier: Apache-2.0
 * Sixteen floats on AVX2: the vocabulary of elem_tmpl.h and attn_tmpl.h. Included by *_avx2.c only.
 */
#ifndef BRIM_CPU_X86_VEC_AVX2_H
#define BRIM_CPU_X86_VEC_AVX2_H

#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "compile this file with the flags of the avx2 tier"
#endif

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define VEC_INLINE static inline __attribute__((always_inline))

typedef struct {
    __m256 lo, hi; /* lanes 0..7 and 8..15 */
} v16;

#define V16_MAP2(op, a, b) ((v16){op((a).lo, (b).lo), op((a).hi, (b).hi)})

VEC_INLINE v16 v16_zero(void)
{
    return (v16){_mm256_setzero_ps(), _mm256_setzero_ps()};
}
VEC_INLINE v16 v16_set1(float x)
{
    return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
VEC_INLINE v16 v16_load(const float *p)
{
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
VEC_INLINE void v16_store(float *p, v16 a)
{
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
/* Lanes 0..n-1 of eight set. */
VEC_INLINE __m256i v8_first(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
/* The first n (0..16) floats, zero behind them; nothing else is read. Through memory: masked stores
 * are microcoded on Zen, and qemu's masked loads touch the masked lanes. */
VEC_INLINE v16 v16_load_n(const float *p, int n)
{
    float buffer[16] = {0};
    memcpy(buffer, p, (size_t)n * sizeof *p);
    return v16_load(buffer);
}
/* The first n lanes; nothing else is written. */
VEC_INLINE void v16_store_n(float *p, v16 a, int n)
{
    float buffer[16];
    v16_store(buffer, a);
    memcpy(p, buffer, (size_t)n * sizeof *p);
}
VEC_INLINE v16 v16_load_f16(const uint16_t *p)
{
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
/* Nearest even. */
VEC_INLINE void v16_store_f16(uint16_t *p, v16 a)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}
VEC_INLINE v16 v16_add(v16 a, v16 b)
{
    return V16_MAP2(_mm256_add_ps, a, b);
}
VEC_INLINE v16 v16_sub(v16 a, v16 b)
{
    return V16_MAP2(_mm256_sub_ps, a, b);
}
VEC_INLINE v16 v16_mul(v16 a, v16 b)
{
    return V16_MAP2(_mm256_mul_ps, a, b);
}
VEC_INLINE v16 v16_div(v16 a, v16 b)
{
    return V16_MAP2(_mm256_div_ps, a, b);
}
/* The larger; NaN where b is NaN, either of them where a alone is. */
VEC_INLINE v16 v16_max(v16 a, v16 b)
{
    return V16_MAP2(_mm256_max_ps, a, b);
}
/* a b + c and c - a b, rounded once. */
VEC_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    return (v16){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
VEC_INLINE v16 v16_fnma(v16 a, v16 b, v16 c)
{
    return (v16){_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
/* Lanes 0..n-1 from a, the others from b. */
VEC_INLINE v16 v16_first_n(v16 a, v16 b, int n)
{
    return (v16){_mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(v8_first(n))),
                 _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(v8_first(n - 8)))};
}
/* x < limit ? 0 : a */
VEC_INLINE v16 v16_zero_if_less(v16 x, float limit, v16 a)
{
    __m256 bound = _mm256_set1_ps(limit);
    return (v16){_mm256_andnot_ps(_mm256_cmp_ps(x.lo, bound, _CMP_LT_OQ), a.lo),
                 _mm256_andnot_ps(_mm256_cmp_ps(x.hi, bound, _CMP_LT_OQ), a.hi)};
}
/* x <= limit ? a : b, so b where x is NaN */
VEC_INLINE v16 v16_other_unless_le(v16 x, float limit, v16 a, v16 b)
{
    __m256 bound = _mm256_set1_ps(limit);
    return (v16){_mm256_blendv_ps(b.lo, a.lo, _mm256_cmp_ps(x.lo, bound, _CMP_LE_OQ)),
                 _mm256_blendv_ps(b.hi, a.hi, _mm256_cmp_ps(x.hi, bound, _CMP_LE_OQ))};
}
/* a 2^n, n in the low bits of t (see exp_poly.h); the result must be normal. */
VEC_INLINE v16 v16_add_exponent(v16 a, v16 t)
{
    __m256i lo = _mm256_slli_epi32(_mm256_castps_si256(t.lo), 23);
    __m256i hi = _mm256_slli_epi32(_mm256_castps_si256(t.hi), 23);
    return (v16){_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a.lo), lo)),
                 _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a.hi), hi))};
}
/* Lanes half the width apart are added, 16 -> 8 -> 4 -> 2 -> 1, as sum_lanes_ref does. */
VEC_INLINE float v16_sum(v16 a)
{
    __m256 b = _mm256_add_ps(a.lo, a.hi);
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
VEC_INLINE float v16_largest(v16 a)
{
    __m256 b = _mm256_max_ps(a.lo, a.hi);
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

#endif
