/* SPDX-License-Identifier: Apache-2.0
 * One wrapper per instruction: arithmetic that C has no operator for. */
#ifndef BRIM_CUDA_PTX_MATH_CUH
#define BRIM_CUDA_PTX_MATH_CUH

#include "cuda/ptx/sync.cuh"

/* 2^x within 2 ulp, subnormal results to 0; 2^0 is 1, 2^-inf is 0. */
BRIM_DEVICE float ex2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif
