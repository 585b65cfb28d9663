/* SPDX-License-Identifier: Apache-2.0
 * src/cuda/ptx/tma.cuh for the emulator: boxes as the emulated driver has encoded them. */
#ifndef BRIM_CUDA_PTX_TMA_CUH
#define BRIM_CUDA_PTX_TMA_CUH

#include <cuda.h>

#include "cuda/ptx/sync.cuh"
#include "emu_tensormap.h"

static inline emu_tensormap emu_map_of(const CUtensorMap *map)
{
    emu_tensormap m;
    memcpy(&m, map, sizeof m);
    if (m.made != EMU_TENSORMAP_MADE) emu_die("a tensor map that nobody has encoded");
    return m;
}

/* Calls piece(shared number, address in the tensor, bytes of 16 that exist there) for every 16
 * bytes of a box. */
template <class Piece>
static inline void emu_box(const emu_tensormap &m, int col, int row, uint32_t shared, Piece piece)
{
    uint32_t pitch = m.box[0] * m.element_bytes, n_swizzle = m.swizzle_bytes / 16;
    if (shared % 128) emu_die("tensor copy at shared address %x", shared);
    for (uint32_t r = 0; r < m.box[1]; r++)
        for (uint32_t b = 0; b < pitch; b += 16) {
            uint32_t at = shared + r * pitch + b;
            if (n_swizzle) at ^= (at >> 7 & (n_swizzle - 1)) << 4;
            int64_t y = (int64_t)row + r, begin = (int64_t)col * m.element_bytes + b,
                    end = (int64_t)m.size[0] * m.element_bytes;
            int64_t n = y < 0 || y >= (int64_t)m.size[1] || begin < 0 ? 0 : end - begin;
            n = n < 0 ? 0 : n > 16 ? 16 : n;
            piece(at, m.base + (n ? y * (int64_t)m.stride_bytes + begin : 0), (uint32_t)n);
        }
}

BRIM_DEVICE void tma_prefetch_map(const CUtensorMap *map)
{
    emu_map_of(map);
}

BRIM_DEVICE void tma_load_2d(uint32_t dst, const CUtensorMap *map, int col, int row, uint32_t bar)
{
    emu_tensormap m = emu_map_of(map);
    emu_deliver([=] {
        uint32_t n_bytes = 0;
        emu_box(m, col, row, dst, [&](uint32_t at, const char *from, uint32_t n) {
            char *to = (char *)emu_shared(at, 16, 16);
            memset(to, 0, 16);
            if (n) memcpy(to, from, n);
            emu_async_wrote(at, 16);
            n_bytes += 16;
        });
        emu_mbarrier_deliver(bar, n_bytes);
    });
}

BRIM_DEVICE void tma_store_2d(const CUtensorMap *map, int col, int row, uint32_t src)
{
    emu_tensormap m = emu_map_of(map);
    emu_box(m, col, row, src, [](uint32_t at, char *, uint32_t) { emu_async_reads(at, 16); });
    emu_later(EMU_BULK, [=] {
        emu_box(m, col, row, src, [](uint32_t at, char *to, uint32_t n) {
            if (n) memcpy(to, emu_shared(at, 16, 16), n);
        });
    });
}

#endif
