/* SPDX-License-Identifier: Apache-2.0
 * One warp's share of a wgmma: 16 rows of d[64][n] += a[64][16] b[16][n]. */
#include <vector>

#include "cuda_runtime.h"

#include "cuda/ptx/wgmma.cuh"

void emu_multiply(emu_product *p)
{
    static thread_local double b[16][256];
    double a[16][16];
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < 16; k++) {
            uint16_t bits;
            if (p->a_shared) {
                bits = emu_operand(p->desc_a, false, 16 * p->warp + row, k);
            } else {
                /* a[0], a[1]: rows g, g + 8 at k < 8; a[2], a[3]: the same at k >= 8 */
                uint32_t pair = p->a[(row & 7) * 4 + (k & 7) / 2][(row >> 3) + 2 * (k >> 3)];
                bits = (uint16_t)(pair >> 16 * (k & 1));
            }
            a[row][k] = p->number(bits);
        }
    for (int k = 0; k < 16; k++)
        for (int col = 0; col < p->n; col++)
            b[k][col] = p->number(emu_operand(p->desc_b, p->transpose_b, col, k));
    for (int row = 0; row < 16; row++) {
        double sum[256];
        float *to[256];
        for (int col = 0; col < p->n; col++) {
            int lane = (row & 7) * 4 + (col & 7) / 2;
            to[col] = p->d[lane] + 4 * (col >> 3) + 2 * (row >> 3) + (col & 1);
            sum[col] = p->fresh ? 0 : *to[col];
        }
        for (int k = 0; k < 16; k++)
            for (int col = 0; col < p->n; col++) sum[col] += a[row][k] * b[k][col];
        for (int col = 0; col < p->n; col++) *to[col] = (float)sum[col];
    }
}
