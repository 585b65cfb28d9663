/* SPDX-License-Identifier: Apache-2.0
 * Loads shared by the NEON matrix kernels: a vector of a panel is four registers of four rows; a
 * kernel takes one quarter of a panel at a time unless it says otherwise. */
#ifndef BRIM_CPU_ARM_PANEL_NEON_H
#define BRIM_CPU_ARM_PANEL_NEON_H

#include <arm_neon.h>
#include <string.h>

#include "cpu/linear.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { QUARTER = BRIM_PANEL / 4 };

/* Four elements of any floating type. */
ALWAYS_INLINE float32x4_t load4(enum brim_dtype dtype, const uint8_t *at)
{
    if (dtype == BRIM_DTYPE_F32) return vreinterpretq_f32_u8(vld1q_u8(at));
    uint16x4_t half = vreinterpret_u16_u8(vld1_u8(at));
    if (dtype == BRIM_DTYPE_F16) return vcvt_f32_f16(vreinterpret_f16_u16(half));
    return vreinterpretq_f32_u32(vshll_n_u16(half, 16));
}

/* Four words of codes. */
ALWAYS_INLINE uint32x4_t load_words(const uint8_t *at)
{
    return vreinterpretq_u32_u8(vld1q_u8(at));
}

/* Four bytes of activations in every lane. */
ALWAYS_INLINE int8x16_t broadcast4(const int8_t *at)
{
    int32_t four;
    memcpy(&four, at, sizeof four);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
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
