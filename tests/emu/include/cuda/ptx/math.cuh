/* SPDX-License-Identifier: Apache-2.0
 * src/cuda/ptx/math.cuh for the emulator: exact functions where the device approximates. */
#ifndef BRIM_CUDA_PTX_MATH_CUH
#define BRIM_CUDA_PTX_MATH_CUH

#include <math.h>

#include "cuda/ptx/sync.cuh"

static inline float emu_flush(float x)
{
    return fabsf(x) < 1.17549435e-38f ? copysignf(0, x) : x;
}

BRIM_DEVICE float ex2_approx(float x)
{
    return emu_flush(exp2f(x));
}

#endif
