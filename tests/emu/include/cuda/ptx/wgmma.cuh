/* SPDX-License-Identifier: Apache-2.0
 * src/cuda/ptx/wgmma.cuh for the emulator. Every warp multiplies its own 16 rows, when the last of
 * its lanes has come or as late as the wait for the product. Sums as in mma.cuh. */
#ifndef BRIM_CUDA_PTX_WGMMA_CUH
#define BRIM_CUDA_PTX_WGMMA_CUH

#include "cuda/ptx/sync.cuh"
#include "emu_number.h"

BRIM_DEVICE void wgmma_fence(void)
{
    emu_warp(0xFFFFFFFF, "wgmma.fence");
}

BRIM_DEVICE void wgmma_commit(void)
{
    emu_warp(0xFFFFFFFF, "wgmma.commit_group");
    emu_commit(EMU_WGMMA);
}

/* What is not yet done is kept by the warp's lane 0 for all; nobody passes before it is. */
template <int n_pending> BRIM_DEVICE void wgmma_wait(void)
{
    emu_warp(0xFFFFFFFF, "wgmma.wait_group");
    emu_wait(EMU_WGMMA, n_pending);
    emu_warp(0xFFFFFFFF, "wgmma.wait_group");
}

template <int n> BRIM_DEVICE void wgmma_pin(float (&r)[n])
{
    asm volatile("" : : "r"(&r[0]) : "memory");
}

BRIM_DEVICE uint64_t wgmma_desc_128b(uint32_t addr, uint32_t leading_bytes, uint32_t stride_bytes)
{
    if (addr > 0x3FFFF) emu_die("shared address %x in a descriptor", addr);
    return (uint64_t)((addr & 0x3FFFF) >> 4) | (uint64_t)(leading_bytes >> 4) << 16 |
           (uint64_t)(stride_bytes >> 4) << 32 | 1ull << 62;
}

static __host__ __device__ __forceinline__ uint32_t swizzle_128b(int row, int piece)
{
    return (uint32_t)(row * 128 + ((piece ^ (row & 7)) << 4));
}

/* Number of element (row, k) of an operand by descriptor, k-major, or with rows and columns
 * exchanged. */
static inline uint32_t emu_operand_at(uint64_t desc, bool transposed, int row, int k)
{
    uint32_t start = (uint32_t)(desc & 0x3FFF) << 4, leading = (uint32_t)(desc >> 16 & 0x3FFF) << 4,
             stride = (uint32_t)(desc >> 32 & 0x3FFF) << 4;
    uint32_t at =
        transposed
            ? start + (uint32_t)(row >> 6) * leading + (uint32_t)(k >> 3) * stride +
                  (uint32_t)(k & 7) * 128 + (uint32_t)(row & 63) * 2
            : start + (uint32_t)(row >> 3) * stride + (uint32_t)(row & 7) * 128 + (uint32_t)k * 2;
    return at ^ (at >> 7 & 7) << 4;
}

/* One product of a warp: what its lanes brought, worked off by whoever comes first. */
struct emu_product {
    float *d[32];
    uint32_t a[32][4];
    uint64_t desc_a, desc_b;
    int n, warp;                            /* warp: of the warpgroup */
    bool a_shared, fresh, transpose_b, f16; /* f16: not bf16 */
};
void emu_multiply(emu_product *p);

/* All lanes issue the same product; the last one makes it, and lane 0 owes it until the wait. */
BRIM_DEVICE void emu_wgmma(float *d, const uint32_t *a, uint64_t desc_a, uint64_t desc_b, int n,
                           bool fresh, bool transpose_b, bool f16)
{
    struct part {
        float *d;
        uint64_t desc_a, desc_b;
        uint32_t a[4];
    } own = {d, desc_a, desc_b, {0, 0, 0, 0}};
    if (a) memcpy(own.a, a, 16);
    const part *all = emu_warp(0xFFFFFFFF, own, "wgmma");
    if (emu_lane() == 0) {
        emu_product *p = new emu_product;
        for (int i = 0; i < 32; i++) {
            const part *x = &all[i];
            if (x->desc_a != desc_a || x->desc_b != desc_b)
                emu_die("wgmma: lanes of a warp bring different descriptors");
            p->d[i] = x->d;
            memcpy(p->a[i], x->a, 16);
        }
        p->desc_a = desc_a;
        p->desc_b = desc_b;
        p->n = n;
        p->warp = (int)(threadIdx.x >> 5 & 3);
        p->a_shared = !a;
        p->fresh = fresh;
        p->transpose_b = transpose_b;
        p->f16 = f16;
        emu_later(EMU_WGMMA, [p] {
            emu_multiply(p);
            delete p;
        });
    }
}

/* d += a b (or d = a b with scale_d 0). transpose_b: b is stored n-major ("MN-major"). */
template <int n, bool f16> struct emu_wgmma_of {
    template <int scale_d, int transpose_b>
    static inline void rs(float (&d)[n / 2], const uint32_t (&a)[4], uint64_t b)
    {
        emu_wgmma(d, a, 0, b, n, !scale_d, transpose_b, f16);
    }
    template <int scale_d> static inline void ss(float (&d)[n / 2], uint64_t a, uint64_t b)
    {
        emu_wgmma(d, nullptr, a, b, n, !scale_d, false, f16);
    }
};

template <int n> struct wgmma_m64k16 : emu_wgmma_of<n, false> {
};

#endif
