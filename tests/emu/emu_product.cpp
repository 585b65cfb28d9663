/* SPDX-License-Identifier: Apache-2.0
 * One warp's share of a wgmma: 16 rows of d[64][n] += a[64][16] b[16][n]. */
#include <vector>

#include "cuda_runtime.h"

#include "cuda/ptx/wgmma.cuh"

/* Elements are fetched one by one, what the asynchronous proxy may see is asked once for eight. */
static float operand(const emu_product *p, uint64_t desc, bool transposed, int row, int k)
{
    uint32_t at = emu_operand_at(desc, transposed, row, k);
    if (((transposed ? row : k) & 7) == 0) emu_async_reads(at, 16);
    return p->number(*(const uint16_t *)emu_shared(at, 2, 2));
}

void emu_multiply(emu_product *p)
{
    static thread_local double b[16][256];
    double a[16][16];
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < 16; k++) {
            if (p->a_shared) {
                a[row][k] = operand(p, p->desc_a, false, 16 * p->warp + row, k);
            } else {
                /* a[0], a[1]: rows g, g + 8 at k < 8; a[2], a[3]: the same at k >= 8 */
                uint32_t pair = p->a[(row & 7) * 4 + (k & 7) / 2][(row >> 3) + 2 * (k >> 3)];
                a[row][k] = p->number((uint16_t)(pair >> 16 * (k & 1)));
            }
        }
    for (int k = 0; k < 16; k++)
        for (int col = 0; col < p->n; col++)
            b[k][col] = operand(p, p->desc_b, p->transpose_b, col, k);
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
