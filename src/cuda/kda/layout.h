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
     * each; Mqk as [32][32] in the left half of a panel, whose right half holds L, then the inverse
     * while the packet is prepared and is dead for its reader; gamma as 128 floats. */
    KDA_PACKET_W = 0,
    KDA_PACKET_QD = 2 * KDA_PANEL,
    KDA_PACKET_KR = 4 * KDA_PANEL,
    KDA_PACKET_Z = 6 * KDA_PANEL,
    KDA_PACKET_MQK = 8 * KDA_PANEL,
    KDA_PACKET_GAMMA = 9 * KDA_PANEL,
    KDA_PACKET_USED = KDA_PACKET_GAMMA + 512,
    KDA_PACKET_BYTES = 37 * 1024, /* stages start on 1024 bytes, as the swizzle wants */
};

/* Working memory of a preparation instance, on 256 bytes. Raw q, k, g, v tiles are [32 tokens][128]
 * bf16 in rows of 256 bytes; k becomes k 2^G, each element in its own place. Of a helper, and
 * without a bound on the gate, q becomes the scaled query rows and the columns of the block below
 * the diagonal, g the columns of the diagonal blocks; elsewhere these lie in the packet (tile.cuh).
 * SMALL: NORM float2 [32], factors of q and k; BETA float [2][32], this chunk's and the next one's;
 * HALF float [128], decay of the first half; TOTAL float [4][128], log2 decay of eight tokens each,
 * later the inverses of the diagonal blocks: four matrices [16 columns][16 rows] of bf16, both
 * halves of P and of Q (prepare.cuh). */
enum {
    KDA_TILE = 8192,

    /* within SMALL */
    KDA_SMALL_NORM = 0,
    KDA_SMALL_BETA = 256,
    KDA_SMALL_HALF = 512,
    KDA_SMALL_TOTAL = 1024,
    KDA_SMALL_BYTES = KDA_SMALL_TOTAL + 2048,

    /* Fused: the packet is a stage elsewhere; the next chunk's rows arrive while this one is
     * solved, k and v in second tiles because the old ones are in use until the end. */
    KDA_FULL_K = 0,
    KDA_FULL_Q = 2 * KDA_TILE,
    KDA_FULL_G = 3 * KDA_TILE,
    KDA_FULL_V = 4 * KDA_TILE,
    KDA_FULL_SMALL = 6 * KDA_TILE,
    KDA_FULL_BYTES = (KDA_FULL_SMALL + KDA_SMALL_BYTES + 255) / 256 * 256,

    /* Pair: the packet is a stage elsewhere, every tile there once; q and g are fetched while this
     * chunk is solved, k and v behind it. */
    KDA_APART_Q = 0,
    KDA_APART_G = KDA_TILE,
    KDA_APART_K = 2 * KDA_TILE,
    KDA_APART_V = 3 * KDA_TILE,
    KDA_APART_SMALL = 4 * KDA_TILE,
    KDA_APART_BYTES = (KDA_APART_SMALL + KDA_SMALL_BYTES + 255) / 256 * 256,

    /* Helper: the packet is assembled here, W over the dead q tile and Z over the dead g tile. */
    KDA_LEAN_Q = KDA_PACKET_W,
    KDA_LEAN_G = KDA_PACKET_Z,
    KDA_LEAN_K = KDA_PACKET_USED,
    KDA_LEAN_V = KDA_LEAN_K + KDA_TILE,
    KDA_LEAN_SMALL = KDA_LEAN_V + KDA_TILE,
    KDA_LEAN_BYTES = (KDA_LEAN_SMALL + KDA_SMALL_BYTES + 255) / 256 * 256,

    /* Workspace of an owner-helper route: control words of task i at i * KDA_CONTROL_BYTES, each on
     * a line of its own: the epoch, then one word a slot; packets behind those of the most tasks.
     */
    KDA_LINE = 128,
    KDA_CONTROL_BYTES = 40 * KDA_LINE,
    KDA_MAX_DEPTH = 37,
    KDA_TICKET_WORD = 38 * KDA_LINE / 4, /* of the first task: route queue's counter of tasks */
    KDA_DROP_LINE = 39, /* what a task's segments agree upon: kda_cut_word, split.cuh */

    KDA_MAX_WINDOW = 8,

    /* Record of a segment and head: |S|^2 of the state its window wrote and of its state where the
     * next segment's window begins; from BOUND on the bound on the map of each chunk of the window.
     */
    KDA_RECORD_WROTE = 0,
    KDA_RECORD_BEFORE = 1,
    KDA_RECORD_BOUND = 4,
    KDA_RECORD_FLOATS = KDA_RECORD_BOUND + KDA_MAX_WINDOW
};

/* What a cut may drop, of the state before it and of what its window wrote. */
#define KDA_FORGOTTEN 5.9604645e-8f /* 2^-24 */
/* Bound (a) is not looked at where bound (b) is smaller than that by so much. */
#define KDA_SURE 0.0009765625f /* 2^-10 */

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

/* Byte of channels 2 pair, 2 pair + 1 in gamma: a consumer lane wants the pairs 4 j + lane % 4 and
 * finds two of them in each of eight 16-byte pieces; the four lanes' pieces lie in different banks.
 */
KDA_BOTH uint32_t kda_gamma_at(int pair)
{
    int c = pair & 3, j = pair >> 2;
    return (uint32_t)(c * 128 + (((j >> 1) ^ (2 * c)) << 4) + (j & 1) * 8);
}

/* What a consumer of 64 value rows needs of a packet: bytes [0, end) and [begin, used). */
typedef struct kda_half {
    uint32_t end, begin;
} kda_half;

KDA_BOTH kda_half kda_half_of(int rows)
{
    kda_half h;
    h.end = (uint32_t)(KDA_PACKET_Z + (rows == 0 ? KDA_PANEL : 0));
    h.begin = h.end + KDA_PANEL;
    return h;
}

/* Piece `piece` (0..3) of column `row` of the inverse, in the right half of Mqk's panel; before it
 * is known rows 4 piece .. + 3 of a column of L's diagonal blocks, as floats. */
KDA_BOTH uint32_t kda_inv_at(int row, int piece)
{
    return (uint32_t)(row * 128 + (((4 + piece) ^ (row & 7)) << 4));
}

/* Piece `piece` (0, 1) of row `row` of a 16 x 16 bf16 matrix in rows of 32 bytes. */
KDA_BOTH uint32_t kda_square_at(int row, int piece)
{
    return (uint32_t)(row * 32 + ((piece ^ ((row >> 2) & 1)) << 4));
}

#endif
