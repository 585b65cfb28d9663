/* SPDX-License-Identifier: Apache-2.0
 * Tensor-core products on the warp (mma.sync). wgmma lives in wgmma.cuh. */
#ifndef BRIM_CUDA_PTX_MMA_CUH
#define BRIM_CUDA_PTX_MMA_CUH

#include "cuda/ptx/sync.cuh"

/* d[16][8] += a[16][16] b[16][8]: bf16 operands, f32 accumulators, a row-major, b column-major.
 * Lane t holds d rows t/4 and t/4 + 8, columns 2 (t%4) and + 1. */
BRIM_DEVICE void mma_bf16_16816(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The same over eight steps: d[16][8] += a[16][8] b[8][8]. */
BRIM_DEVICE void mma_bf16_1688(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(b));
}

/* The same with f16 operands. */
BRIM_DEVICE void mma_f16_16816(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* d[16][8] += a[16][8] b[8][8], fp32 operands of which the upper 19 bits count: lane t holds a at
 * rows t/4 and t/4 + 8 (a0, a1), columns t%4 and t%4 + 4 (a2, a3), b at rows t%4 and + 4, column
 * t/4. */
BRIM_DEVICE void mma_tf32_1688(float (&d)[4], float a0, float a1, float a2, float a3, float b0,
                               float b1)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(__float_as_uint(a0)), "r"(__float_as_uint(a1)), "r"(__float_as_uint(a2)),
          "r"(__float_as_uint(a3)), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}

/* d[16][8] = c + a[16][32] b[32][8]: a unsigned and b signed bytes, sums in wrapping s32, c the
 * same everywhere. Lane t holds d as above; byte j of a[0], a[1] is a at rows t/4 and t/4 + 8,
 * column 4 (t%4) + j, a[2] and a[3] are 16 columns on; byte j of b0 is b at row 4 (t%4) + j, column
 * t/4, b1 16 rows on. */
BRIM_DEVICE void mma_u8s8_16832(uint32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                uint32_t c)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c));
}

/* The same, added to d. */
BRIM_DEVICE void mma_u8s8_16832(uint32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif
