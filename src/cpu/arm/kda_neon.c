/* SPDX-License-Identifier: Apache-2.0
 * KDA of the neon tier: a vector is two registers, so that the eight sums of a product are sixteen
 * chains, as many as a core with four multiply-add pipes of latency four has in flight. */
#include "cpu/arm/vec_neon.h"
#include "cpu/cpu_init.h"

typedef struct {
    float32x4_t lo, hi;
} v8;

#define LANES 8
#define VEC v8
#define LOAD(p) ((v8){vld1q_f32(p), vld1q_f32((p) + 4)})
#define STORE(p, v) (vst1q_f32(p, (v).lo), vst1q_f32((p) + 4, (v).hi))
#define SET1(x) set1(x)
#define MUL(a, b) mul(a, b)
#define FMA(a, b, c) fma8(a, b, c)

static inline v8 set1(float x)
{
    float32x4_t v = vdupq_n_f32(x);
    return (v8){v, v};
}

static inline v8 mul(v8 a, v8 b)
{
    return (v8){vmulq_f32(a.lo, b.lo), vmulq_f32(a.hi, b.hi)};
}

static inline v8 fma8(v8 a, v8 b, v8 c)
{
    return (v8){vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi)};
}

#include "cpu/kda_tmpl.h"

void brim_cpu_init_kda_neon(struct brim_cpu_ops *ops)
{
    init_kda_vec(ops);
}
