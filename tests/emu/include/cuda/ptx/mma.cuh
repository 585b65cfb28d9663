/* SPDX-License-Identifier: Apache-2.0
 * src/cuda/ptx/mma.cuh for the emulator. Each lane brings its fragments and computes its own four
 * elements; products are summed exactly (in f64) and rounded once with the accumulator. */
#ifndef BRIM_CUDA_PTX_MMA_CUH
#define BRIM_CUDA_PTX_MMA_CUH

#include "cuda/ptx/sync.cuh"
#include "emu_number.h"

/* n_reg registers of a (16 rows, 8 columns more for every two registers) and half as many of b, two
 * 16-bit elements in each. */
template <int n_reg, float (*number)(uint16_t)>
BRIM_DEVICE void emu_mma_16(float (&d)[4], const uint32_t *a, const uint32_t *b)
{
    uint32_t own[6];
    memcpy(own, a, n_reg * 4);
    memcpy(own + 4, b, n_reg * 2);
    const char *all = emu_warp(0xFFFFFFFF, own, sizeof own, "mma");
    int lane = emu_lane(), g = lane >> 2, c = lane & 3;
    for (int i = 0; i < 4; i++) {
        int row = g + 8 * (i >> 1), col = 2 * c + (i & 1);
        double sum = d[i];
        for (int k = 0; k < 4 * n_reg; k++) {
            const uint32_t *x = (const uint32_t *)(all + ((row & 7) * 4 + (k & 7) / 2) * 64);
            const uint32_t *y = (const uint32_t *)(all + (col * 4 + (k & 7) / 2) * 64);
            uint32_t p = x[(row >> 3) + 2 * (k >> 3)], q = y[4 + (k >> 3)];
            sum += (double)number((uint16_t)(p >> 16 * (k & 1))) *
                   (double)number((uint16_t)(q >> 16 * (k & 1)));
        }
        d[i] = (float)sum;
    }
}

BRIM_DEVICE void mma_bf16_16816(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    uint32_t b[2] = {b0, b1};
    emu_mma_16<4, emu_of_bf16>(d, a, b);
}

BRIM_DEVICE void mma_bf16_1688(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    uint32_t a[2] = {a0, a1};
    emu_mma_16<2, emu_of_bf16>(d, a, &b);
}

BRIM_DEVICE void mma_f16_16816(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    uint32_t b[2] = {b0, b1};
    emu_mma_16<4, emu_of_f16>(d, a, b);
}

BRIM_DEVICE void mma_tf32_1688(float (&d)[4], float a0, float a1, float a2, float a3, float b0,
                               float b1)
{
    float own[6] = {emu_tf32(a0), emu_tf32(a1), emu_tf32(a2),
                    emu_tf32(a3), emu_tf32(b0), emu_tf32(b1)};
    const char *all = emu_warp(0xFFFFFFFF, own, sizeof own, "mma");
    int lane = emu_lane(), g = lane >> 2, c = lane & 3;
    for (int i = 0; i < 4; i++) {
        int row = g + 8 * (i >> 1), col = 2 * c + (i & 1);
        double sum = d[i];
        for (int k = 0; k < 8; k++) {
            const float *x = (const float *)(all + ((row & 7) * 4 + (k & 3)) * 64);
            const float *y = (const float *)(all + (col * 4 + (k & 3)) * 64);
            sum += (double)x[(row >> 3) + 2 * (k >> 2)] * (double)y[4 + (k >> 2)];
        }
        d[i] = (float)sum;
    }
}

/* d[16][8] = c + a[16][32] b[32][8], a unsigned and b signed bytes; c and sums wrap. */
BRIM_DEVICE void emu_mma_u8s8(uint32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    uint32_t own[6] = {a[0], a[1], a[2], a[3], b0, b1};
    const char *all = emu_warp(0xFFFFFFFF, own, sizeof own, "mma");
    int lane = emu_lane(), g = lane >> 2, c = lane & 3;
    for (int i = 0; i < 4; i++) {
        int row = g + 8 * (i >> 1), col = 2 * c + (i & 1);
        for (int k = 0; k < 32; k++) {
            const uint32_t *x = (const uint32_t *)(all + ((row & 7) * 4 + (k & 15) / 4) * 64);
            const uint32_t *y = (const uint32_t *)(all + (col * 4 + (k & 15) / 4) * 64);
            uint32_t p = x[(row >> 3) + 2 * (k >> 4)] >> 8 * (k & 3),
                     q = y[4 + (k >> 4)] >> 8 * (k & 3);
            d[i] += (uint32_t)((int)(uint8_t)p * (int8_t)(uint8_t)q);
        }
    }
}

BRIM_DEVICE void mma_u8s8_16832(uint32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                uint32_t c)
{
    for (int i = 0; i < 4; i++) d[i] = c;
    emu_mma_u8s8(d, a, b0, b1);
}

BRIM_DEVICE void mma_u8s8_16832(uint32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    emu_mma_u8s8(d, a, b0, b1);
}

#endif
