/* SPDX-License-Identifier: Apache-2.0
 * Sixteen floats on AArch64: the vocabulary of elem_tmpl.h and attn_tmpl.h. Meaning of every
 * function: see src/cpu/x86/vec_avx2.h. */
#ifndef BRIM_CPU_ARM_VEC_NEON_H
#define BRIM_CPU_ARM_VEC_NEON_H

#include <arm_neon.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define VEC_INLINE static inline __attribute__((always_inline))

typedef struct {
    float32x4_t a, b, c, d; /* lanes 0..3, 4..7, 8..11, 12..15 */
} v16;

#define V16_MAP2(op, x, y) \
    ((v16){op((x).a, (y).a), op((x).b, (y).b), op((x).c, (y).c), op((x).d, (y).d)})
#define V16_MAP3(op, x, y, z)                                                         \
    ((v16){op((x).a, (y).a, (z).a), op((x).b, (y).b, (z).b), op((x).c, (y).c, (z).c), \
           op((x).d, (y).d, (z).d)})

VEC_INLINE v16 v16_set1(float x)
{
    float32x4_t v = vdupq_n_f32(x);
    return (v16){v, v, v, v};
}
VEC_INLINE v16 v16_zero(void)
{
    return v16_set1(0);
}
VEC_INLINE v16 v16_load(const float *p)
{
    return (v16){vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
VEC_INLINE void v16_store(float *p, v16 x)
{
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
    vst1q_f32(p + 8, x.c);
    vst1q_f32(p + 12, x.d);
}
VEC_INLINE v16 v16_load_n(const float *p, int n)
{
    float buffer[16] = {0};
    memcpy(buffer, p, (size_t)n * sizeof *p);
    return v16_load(buffer);
}
VEC_INLINE void v16_store_n(float *p, v16 x, int n)
{
    float buffer[16];
    v16_store(buffer, x);
    memcpy(p, buffer, (size_t)n * sizeof *p);
}
VEC_INLINE v16 v16_load_f16(const uint16_t *p)
{
    float16x8_t lo = vreinterpretq_f16_u16(vld1q_u16(p));
    float16x8_t hi = vreinterpretq_f16_u16(vld1q_u16(p + 8));
    return (v16){vcvt_f32_f16(vget_low_f16(lo)), vcvt_high_f32_f16(lo),
                 vcvt_f32_f16(vget_low_f16(hi)), vcvt_high_f32_f16(hi)};
}
VEC_INLINE void v16_store_f16(uint16_t *p, v16 x)
{
    vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.a), x.b)));
    vst1q_u16(p + 8, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.c), x.d)));
}
VEC_INLINE v16 v16_add(v16 x, v16 y)
{
    return V16_MAP2(vaddq_f32, x, y);
}
VEC_INLINE v16 v16_sub(v16 x, v16 y)
{
    return V16_MAP2(vsubq_f32, x, y);
}
VEC_INLINE v16 v16_mul(v16 x, v16 y)
{
    return V16_MAP2(vmulq_f32, x, y);
}
VEC_INLINE v16 v16_div(v16 x, v16 y)
{
    return V16_MAP2(vdivq_f32, x, y);
}
VEC_INLINE v16 v16_max(v16 x, v16 y)
{
    return V16_MAP2(vmaxq_f32, x, y);
}
VEC_INLINE v16 v16_fma(v16 x, v16 y, v16 z)
{
    return V16_MAP3(vfmaq_f32, z, x, y);
}
VEC_INLINE v16 v16_fnma(v16 x, v16 y, v16 z)
{
    return V16_MAP3(vfmsq_f32, z, x, y);
}
VEC_INLINE v16 v16_first_n(v16 x, v16 y, int n)
{
    static const int32_t lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    int32x4_t bound = vdupq_n_s32(n);
    return (v16){vbslq_f32(vcltq_s32(vld1q_s32(lane), bound), x.a, y.a),
                 vbslq_f32(vcltq_s32(vld1q_s32(lane + 4), bound), x.b, y.b),
                 vbslq_f32(vcltq_s32(vld1q_s32(lane + 8), bound), x.c, y.c),
                 vbslq_f32(vcltq_s32(vld1q_s32(lane + 12), bound), x.d, y.d)};
}
VEC_INLINE v16 v16_zero_if_less(v16 x, float limit, v16 y)
{
    float32x4_t bound = vdupq_n_f32(limit), zero = vdupq_n_f32(0);
    return (v16){
        vbslq_f32(vcltq_f32(x.a, bound), zero, y.a), vbslq_f32(vcltq_f32(x.b, bound), zero, y.b),
        vbslq_f32(vcltq_f32(x.c, bound), zero, y.c), vbslq_f32(vcltq_f32(x.d, bound), zero, y.d)};
}
VEC_INLINE v16 v16_other_unless_le(v16 x, float limit, v16 y, v16 z)
{
    float32x4_t bound = vdupq_n_f32(limit);
    return (v16){
        vbslq_f32(vcleq_f32(x.a, bound), y.a, z.a), vbslq_f32(vcleq_f32(x.b, bound), y.b, z.b),
        vbslq_f32(vcleq_f32(x.c, bound), y.c, z.c), vbslq_f32(vcleq_f32(x.d, bound), y.d, z.d)};
}
VEC_INLINE float32x4_t v4_add_exponent(float32x4_t x, float32x4_t t)
{
    return vreinterpretq_f32_u32(
        vaddq_u32(vreinterpretq_u32_f32(x), vshlq_n_u32(vreinterpretq_u32_f32(t), 23)));
}
VEC_INLINE v16 v16_add_exponent(v16 x, v16 t)
{
    return V16_MAP2(v4_add_exponent, x, t);
}
VEC_INLINE float v16_sum(v16 x)
{
    float32x4_t v = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
    float32x2_t pair = vadd_f32(vget_low_f32(v), vget_high_f32(v));
    return vget_lane_f32(pair, 0) + vget_lane_f32(pair, 1);
}
VEC_INLINE float v16_largest(v16 x)
{
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.a, x.c), vmaxq_f32(x.b, x.d)));
}

#endif
