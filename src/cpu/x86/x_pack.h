/* SPDX-License-Identifier: Apache-2.0
 * Transpose of a tile of activations in blocks of 4 x 4, for both x86 tiers. A tile whose rows are
 * not a multiple of four ends with a block that overlaps the one before: same values, same place.
 */
#ifndef BRIM_CPU_X86_X_PACK_H
#define BRIM_CPU_X86_X_PACK_H

#include <immintrin.h>
#include <stdint.h>

static void x_pack_block(const float *x, int64_t x_stride, float *out, int64_t n_row)
{
    __m128 a = _mm_loadu_ps(x), b = _mm_loadu_ps(x + x_stride);
    __m128 c = _mm_loadu_ps(x + 2 * x_stride), d = _mm_loadu_ps(x + 3 * x_stride);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(out, a);
    _mm_storeu_ps(out + n_row, b);
    _mm_storeu_ps(out + 2 * n_row, c);
    _mm_storeu_ps(out + 3 * n_row, d);
}

static void x_pack_x86(const float *x, int64_t x_stride, int n_row, int64_t n_k, float *out)
{
    int64_t k = 0;
    if (n_row >= 4) {
        for (; k + 4 <= n_k; k += 4) {
            for (int row = 0; row + 4 <= n_row; row += 4)
                x_pack_block(x + row * x_stride + k, x_stride, out + k * n_row + row, n_row);
            if (n_row % 4 != 0)
                x_pack_block(x + (n_row - 4) * x_stride + k, x_stride, out + k * n_row + n_row - 4,
                             n_row);
        }
    }
    for (; k < n_k; k++)
        for (int row = 0; row < n_row; row++) out[k * n_row + row] = x[row * x_stride + k];
}

#endif
