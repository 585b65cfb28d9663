/* SPDX-License-Identifier: Apache-2.0
 * src/cuda/ptx/mma.cuh for the emulator: the last lane that comes computes for the warp. */
#ifndef BRIM_CUDA_PTX_MMA_CUH
#define BRIM_CUDA_PTX_MMA_CUH

#include "cuda/ptx/sync.cuh"
#include "emu_number.h"

enum emu_mma_kind { EMU_MMA_BF16, EMU_MMA_F16, EMU_MMA_TF32, EMU_MMA_BYTES };

/* d, four words a lane, += a b; a row of a and a column of b are n_word words, 4 or 8. */
void emu_mma(emu_mma_kind kind, void *d, const void *a, const void *b, int n_word);

BRIM_DEVICE void mma_bf16_16816(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    uint32_t b[2] = {b0, b1};
    emu_mma(EMU_MMA_BF16, d, a, b, 8);
}

BRIM_DEVICE void mma_bf16_1688(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    uint32_t a[2] = {a0, a1};
    emu_mma(EMU_MMA_BF16, d, a, &b, 4);
}

BRIM_DEVICE void mma_f16_16816(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    uint32_t b[2] = {b0, b1};
    emu_mma(EMU_MMA_F16, d, a, b, 8);
}

BRIM_DEVICE void mma_tf32_1688(float (&d)[4], float a0, float a1, float a2, float a3, float b0,
                               float b1)
{
    float a[4] = {emu_tf32(a0), emu_tf32(a1), emu_tf32(a2), emu_tf32(a3)};
    float b[2] = {emu_tf32(b0), emu_tf32(b1)};
    emu_mma(EMU_MMA_TF32, d, a, b, 8);
}

/* d[16][8] = c + a[16][32] b[32][8], a unsigned and b signed bytes; c and sums wrap. */
BRIM_DEVICE void mma_u8s8_16832(uint32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    uint32_t b[2] = {b0, b1};
    emu_mma(EMU_MMA_BYTES, d, a, b, 8);
}

BRIM_DEVICE void mma_u8s8_16832(uint32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                uint32_t c)
{
    for (int i = 0; i < 4; i++) d[i] = c;
    mma_u8s8_16832(d, a, b0, b1);
}

#endif
