/* SPDX-License-Identifier: Apache-2.0
 * Where the bytes of one chunk lie: the packet that preparation hands to the recurrence, and the
 * working tiles of one preparation instance. Plain C, so that the host tests the same functions. */
#ifndef BRIM_CUDA_KDA_LAYOUT_H
#define BRIM_CUDA_KDA_LAYOUT_H

#include <stdint.h>

#if defined(__CUDACC__)
#define KDA_BOTH static __host__ __device__ __forceinline__
#else
#define KDA_BOTH static inline
#endif

enum {
    KDA_CHUNK = 32,
    KDA_SUB = 16,
    KDA_PANEL = 4096, /* 32 rows of 128 bytes with the 128-byte swizzle: 64 bf16 columns */

    /* Packet. W (negated), qd and kr as [32 tokens][128 K], Z as [32 tokens][128 V], two panels
     * each; Mqk as [32][32] in the left half of a panel; gamma as 128 floats. */
    KDA_PACKET_W = 0,
    KDA_PACKET_QD = 2 * KDA_PANEL,
    KDA_PACKET_KR = 4 * KDA_PANEL,
    KDA_PACKET_Z = 6 * KDA_PANEL,
    KDA_PACKET_MQK = 8 * KDA_PANEL,
    KDA_PACKET_GAMMA = 9 * KDA_PANEL,
    KDA_PACKET_USED = KDA_PACKET_GAMMA + 512,
    KDA_PACKET_BYTES = 37 * 1024, /* stages start on 1024 bytes, as the swizzle wants */

    /* Instance. Raw q, k, g, v tiles are [32 tokens][128] bf16 in rows of 256 bytes; q becomes the
     * scaled query rows and the columns of the block below the diagonal, k becomes k 2^G, g becomes
     * the columns of the diagonal blocks, each element in its own place. */
    KDA_TILE = 8192,
    KDA_WORK_K = 0, /* two: the next chunk's k arrives while this one's is in use */
    KDA_WORK_Q = 2 * KDA_TILE,
    KDA_WORK_G = 3 * KDA_TILE,
    KDA_WORK_V = 4 * KDA_TILE,
    KDA_WORK_L = 5 * KDA_TILE, /* float, column x at x * KDA_L_PITCH, rows below the diagonal */
    KDA_L_PITCH = 36, /* keeps 16-byte loads aligned and the fragment stores free of conflicts */
    KDA_WORK_INV = KDA_WORK_L + 32 * KDA_L_PITCH * 4, /* bf16 [32][32], rows of 64 bytes */
    KDA_WORK_NORM = KDA_WORK_INV + 2048,              /* float2 [32]: factors of q and k */
    KDA_WORK_BETA = KDA_WORK_NORM + 256,              /* float [32] */
    KDA_WORK_TOTAL = KDA_WORK_BETA + 128,             /* float [2][128]: log2 decay of each half */
    KDA_WORK_HALF = KDA_WORK_TOTAL + 1024,            /* float [128]: decay of the first half */
    KDA_WORK_BYTES = KDA_WORK_HALF + 512
};

/* Byte of 16-byte piece `piece` (0..15) of row `row` in a tile of 256-byte rows: eight rows of one
 * piece lie in eight different bank groups. */
KDA_BOTH uint32_t kda_tile_at(int row, int piece)
{
    return (uint32_t)(row * 256 + ((piece ^ (row & 7)) << 4));
}

/* The same piece in a pair of packet panels. */
KDA_BOTH uint32_t kda_panel_at(int row, int piece)
{
    return (uint32_t)((piece >> 3) * KDA_PANEL + row * 128 + (((piece & 7) ^ (row & 7)) << 4));
}

/* Piece `piece` (0..3) of row `row` of the inverse. */
KDA_BOTH uint32_t kda_inv_at(int row, int piece)
{
    return (uint32_t)(row * 64 + ((piece ^ ((row >> 1) & 3)) << 4));
}

#endif
