/* SPDX-License-Identifier: Apache-2.0
 * How attention cuts its work, as plain C that the host tests too: the split of the cache in
 * decode, the shared-memory places of keys and values. Everything follows from a row's own
 * position and the model's shape, so a row's bits follow from them too. */
#ifndef BRIM_CUDA_MODEL_ATTN_H
#define BRIM_CUDA_MODEL_ATTN_H

#include <stdint.h>

#if defined(__CUDACC__)
#define ATTN_BOTH static __host__ __device__ __forceinline__
#else
#define ATTN_BOTH static inline
#endif

enum {
    ATTN_TILE_ROWS = 16, /* queries (token x head of one group) of a decode block: an mma tile */
    ATTN_WARP_KEYS = 16,
    ATTN_DECODE_WARPS = 8,
    ATTN_STEP_KEYS = ATTN_WARP_KEYS * ATTN_DECODE_WARPS,
    ATTN_MAX_SPLIT = 64,
    /* Up to here one block has all keys: it takes as long as splitting and merging would. */
    ATTN_UNSPLIT_KEYS = 512,
    /* Blocks wanted for one query: the multiprocessors of an H200. A constant, so that the bits
     * are the same on every device. */
    ATTN_DECODE_BLOCKS = 132
};

/* Blocks that share the keys of one key head. */
ATTN_BOTH int attn_n_split(int n_head_kv)
{
    int n = ATTN_DECODE_BLOCKS / n_head_kv;
    return n < 1 ? 1 : n > ATTN_MAX_SPLIT ? ATTN_MAX_SPLIT : n;
}

/* Keys of one split for a row that sees n_key >= 1 of them: whole steps, spread evenly, unless they
 * are few. Split s has the keys s * length...; the row has attn_n_part splits that hold any. 32-bit
 * numbers: a 64-bit division takes a tenth of a microsecond on the device. */
ATTN_BOTH int attn_split_keys(int n_key, int n_split)
{
    if (n_key <= ATTN_UNSPLIT_KEYS) return ATTN_UNSPLIT_KEYS;
    unsigned n_step = ((unsigned)n_key + ATTN_STEP_KEYS - 1) / ATTN_STEP_KEYS;
    return (int)((n_step + (unsigned)n_split - 1) / (unsigned)n_split * ATTN_STEP_KEYS);
}

ATTN_BOTH int attn_n_part(int n_key, int split_keys)
{
    return (int)(((unsigned)n_key + (unsigned)split_keys - 1) / (unsigned)split_keys);
}

/* Tokens whose heads fill a tile, n_head / n_head_kv heads each. */
ATTN_BOTH int attn_tile_tokens(int gqa)
{
    return ATTN_TILE_ROWS / gqa;
}

/* Byte of 16-byte piece `piece` of row `row`, rows of row_bytes = 128 or 256: the eight rows of a
 * matrix fragment lie in eight different bank groups. */
ATTN_BOTH uint32_t attn_piece_at(int row, int piece, int row_bytes)
{
    return (uint32_t)(row * row_bytes + ((piece ^ (row & 7)) << 4));
}

#endif
