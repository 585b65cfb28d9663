/* SPDX-License-Identifier: Apache-2.0
 * CUDA's collectives of a warp and of a block over the emulator's (emu.h). */
#ifndef BRIM_EMU_WARP_H
#define BRIM_EMU_WARP_H

#include "emu.h"

/* What lane `from` brings, for a T of at most 8 bytes. */
template <class T> static inline T emu_from_lane(uint32_t mask, T own, int from, const char *where)
{
    const char *all = emu_warp(mask, &own, sizeof own, where);
    T value;
    if (!(mask >> from & 1)) emu_die("%s: reads lane %d, which is not in %08x", where, from, mask);
    memcpy(&value, all + from * 64, sizeof value);
    return value;
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
    emu_warp(mask, nullptr, 0, "syncwarp");
}

static inline unsigned __ballot_sync(uint32_t mask, int vote)
{
    uint32_t own = vote != 0, all_votes = 0;
    const char *all = emu_warp(mask, &own, sizeof own, "ballot");
    for (int i = 0; i < 32; i++) {
        if (!(mask >> i & 1)) continue;
        memcpy(&own, all + i * 64, sizeof own);
        all_votes |= own << i;
    }
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
    const char *all = emu_warp(mask, &own, sizeof own, "redux");
    T largest = own, other;
    for (int i = 0; i < 32; i++) {
        if (!(mask >> i & 1)) continue;
        memcpy(&other, all + i * 64, sizeof other);
        if (other > largest) largest = other;
    }
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
