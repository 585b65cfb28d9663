/* SPDX-License-Identifier: Apache-2.0
 * e^x in plain C, and the sum of sixteen lanes in the order every tier uses. */
#ifndef BRIM_CPU_REF_EXP_REF_H
#define BRIM_CPU_REF_EXP_REF_H

#include <stdint.h>

#include "cpu/exp_poly.h"
#include "tensor/dtype.h"

static inline float exp_ref(float x)
{
    if (x < BRIM_EXP_LOW) return 0;
    if (x > BRIM_EXP_HIGH) return brim_f32_from_bits(0x7F800000);
    if (x != x) return x;
    float t = x * BRIM_EXP_LOG2E + BRIM_EXP_MAGIC;
    float n = t - BRIM_EXP_MAGIC;
    float r = (x - n * BRIM_EXP_LN2_HI) - n * BRIM_EXP_LN2_LO;
    float p = BRIM_EXP_C6;
    p = p * r + BRIM_EXP_C5;
    p = p * r + BRIM_EXP_C4;
    p = p * r + BRIM_EXP_C3;
    p = p * r + BRIM_EXP_C2;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    /* The low bits of t are n + 2^22: shifted by 23 only n (modulo 2^9) remains. */
    return brim_f32_from_bits(brim_f32_bits(p) + (brim_f32_bits(t) << 23));
}

/* Pairs half the width apart are added, 16 -> 8 -> 4 -> 2 -> 1: the reduction of a vector register.
 */
static inline float sum_lanes_ref(const float lane[16])
{
    float sum[8];
    for (int i = 0; i < 8; i++) sum[i] = lane[i] + lane[i + 8];
    for (int width = 4; width > 0; width /= 2) {
        for (int i = 0; i < width; i++) sum[i] += sum[i + width];
    }
    return sum[0];
}

#endif
