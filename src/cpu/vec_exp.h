/* SPDX-License-Identifier: Apache-2.0
 * e^x in sixteen lanes, the steps of exp_poly.h. Included after a vec_*.h. */
#ifndef BRIM_CPU_VEC_EXP_H
#define BRIM_CPU_VEC_EXP_H

#include <math.h>

#include "cpu/exp_poly.h"

VEC_INLINE v16 v16_exp(v16 x)
{
    v16 magic = v16_set1(BRIM_EXP_MAGIC), one = v16_set1(1.0f);
    v16 t = v16_fma(x, v16_set1(BRIM_EXP_LOG2E), magic);
    v16 n = v16_sub(t, magic);
    v16 r = v16_fnma(n, v16_set1(BRIM_EXP_LN2_HI), x);
    r = v16_fnma(n, v16_set1(BRIM_EXP_LN2_LO), r);
    v16 p = v16_set1(BRIM_EXP_C6);
    p = v16_fma(p, r, v16_set1(BRIM_EXP_C5));
    p = v16_fma(p, r, v16_set1(BRIM_EXP_C4));
    p = v16_fma(p, r, v16_set1(BRIM_EXP_C3));
    p = v16_fma(p, r, v16_set1(BRIM_EXP_C2));
    p = v16_fma(p, r, one);
    p = v16_fma(p, r, one);
    p = v16_zero_if_less(x, BRIM_EXP_LOW, v16_add_exponent(p, t));
    /* x + inf is +inf for what overflows and NaN for NaN. */
    return v16_other_unless_le(x, BRIM_EXP_HIGH, p, v16_add(x, v16_set1(INFINITY)));
}

#endif
