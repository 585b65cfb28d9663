/* SPDX-License-Identifier: Apache-2.0
 * CUDA's collectives of a warp and of a block over the emulator's (emu.h). */
#ifndef BRIM_EMU_WARP_H
#define BRIM_EMU_WARP_H

#include "emu.h"

/* What lane `from` brings, for a T of at most 8 bytes. */
template <class T> static inline T emu_from_lane(uint32_t mask, T own, int from, const char *where)
{
    const T *all = emu_warp(mask, own, where);
    if (!(mask >> from & 1)) emu_die("%s: reads lane %d, which is not in %08x", where, from, mask);
    return all[from];
}

template <class T> static inline T __shfl_sync(uint32_t mask, T own, int from, int width = 32)
{
    int lane = emu_lane();
    return emu_from_lane(mask, own, (lane & ~(width - 1)) | (from & (width - 1)), "shfl");
}

template <class T> static inline T __shfl_xor_sync(uint32_t mask, T own, int by, int width = 32)
{
    int lane = emu_lane(), from = lane ^ by;
    return emu_from_lane(mask, own, from >= (lane & ~(width - 1)) + width ? lane : from,
                         "shfl.bfly");
}

template <class T> static inline T __shfl_up_sync(uint32_t mask, T own, unsigned by, int width = 32)
{
    int lane = emu_lane(), from = lane - (int)by;
    return emu_from_lane(mask, own, from < (lane & ~(width - 1)) ? lane : from, "shfl.up");
}

template <class T>
static inline T __shfl_down_sync(uint32_t mask, T own, unsigned by, int width = 32)
{
    int lane = emu_lane(), from = lane + (int)by;
    return emu_from_lane(mask, own, from >= (lane & ~(width - 1)) + width ? lane : from,
                         "shfl.down");
}

static inline void __syncwarp(uint32_t mask = 0xFFFFFFFFu)
{
    emu_warp(mask, "syncwarp");
}

static inline unsigned __ballot_sync(uint32_t mask, int vote)
{
    uint32_t own = vote != 0, all_votes = 0;
    const uint32_t *all = emu_warp(mask, own, "ballot");
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1) all_votes |= all[i] << i;
    return all_votes;
}

static inline int __any_sync(uint32_t mask, int vote)
{
    return __ballot_sync(mask, vote) != 0;
}

static inline int __all_sync(uint32_t mask, int vote)
{
    return __ballot_sync(mask, vote) == mask;
}

template <class T> static inline T __reduce_max_sync(uint32_t mask, T own)
{
    const T *all = emu_warp(mask, own, "redux");
    T largest = own;
    for (int i = 0; i < 32; i++)
        if ((mask >> i & 1) && all[i] > largest) largest = all[i];
    return largest;
}

static inline void __syncthreads(void)
{
    emu_barrier(0, 0, true);
}

static inline int __syncthreads_count(int vote)
{
    return (int)emu_barrier_count(vote != 0);
}

static inline int __syncthreads_or(int vote)
{
    return emu_barrier_count(vote != 0) > 0;
}

#endif
