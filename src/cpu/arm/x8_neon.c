/* SPDX-License-Identifier: Apache-2.0
 * int8 activations on base NEON: products in 16 bits, two at a time. A sum of two is at most
 * 2 * 128 * 127 = 32512. */
#include <arm_neon.h>

static inline __attribute__((always_inline)) int32x4_t dot4(int32x4_t acc, int8x16_t a, int8x16_t b)
{
    int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b));
    int16x8_t high = vmull_high_s8(a, b);
    return vpadalq_s16(acc, vpaddq_s16(low, high));
}

#define DOT4 dot4
#define NAME(stem) stem##_neon
#include "cpu/arm/x8_tmpl.h"
