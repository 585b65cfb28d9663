/* SPDX-License-Identifier: Apache-2.0
 * src/cuda/ptx/copy.cuh for the emulator. */
#ifndef BRIM_CUDA_PTX_COPY_CUH
#define BRIM_CUDA_PTX_COPY_CUH

#include "cuda/ptx/sync.cuh"
#include "emu_number.h"

static inline void emu_check_global(const void *ptr, uint32_t alignment, const char *what)
{
    if ((uintptr_t)ptr & (alignment - 1))
        emu_die("%s: %p is not aligned to %u", what, ptr, alignment);
}

/* ---- cp.async
 * ------------------------------------------------------------------------------------ */

BRIM_DEVICE void cp_async_16(uint32_t dst, const void *src, bool valid)
{
    void *to = emu_shared(dst, 16, 16);
    emu_check_global(src, 16, "cp.async");
    emu_later(EMU_CP_ASYNC, [=] {
        if (valid)
            memcpy(to, src, 16);
        else
            memset(to, 0, 16);
        emu_stored(dst, 16); /* the generic proxy */
    });
}

BRIM_DEVICE void cp_async_16_stream(uint32_t dst, const void *src)
{
    cp_async_16(dst, src, true);
}

BRIM_DEVICE void cp_async_16(uint32_t dst, const void *src)
{
    cp_async_16(dst, src, true);
}

BRIM_DEVICE void cp_async_commit(void)
{
    emu_commit(EMU_CP_ASYNC);
}

template <int n_pending> BRIM_DEVICE void cp_async_wait(void)
{
    emu_wait(EMU_CP_ASYNC, n_pending);
}

/* ---- bulk copies
 * ------------------------------------------------------------------------------------ */

BRIM_DEVICE void emu_check_bulk(uint32_t n_bytes)
{
    if (n_bytes == 0 || n_bytes % 16) emu_die("bulk copy of %u bytes", n_bytes);
}

BRIM_DEVICE void bulk_load(uint32_t dst, const void *src, uint32_t n_bytes, uint32_t bar)
{
    emu_check_bulk(n_bytes);
    emu_check_global(src, 16, "bulk copy");
    emu_shared(dst, n_bytes, 16);
    emu_deliver([=] {
        memcpy(emu_shared(dst, n_bytes, 16), src, n_bytes);
        emu_async_wrote(dst, n_bytes);
        emu_mbarrier_deliver(bar, n_bytes);
    });
}

BRIM_DEVICE void bulk_store(void *dst, uint32_t src, uint32_t n_bytes)
{
    emu_check_bulk(n_bytes);
    emu_check_global(dst, 16, "bulk copy");
    const void *from = emu_shared(src, n_bytes, 16);
    emu_async_reads(src, n_bytes);
    emu_later(EMU_BULK, [=] { memcpy(dst, from, n_bytes); });
}

BRIM_DEVICE void bulk_push(uint32_t remote_dst, uint32_t src, uint32_t n_bytes, uint32_t remote_bar)
{
    emu_check_bulk(n_bytes);
    emu_async_reads(src, n_bytes);
    emu_deliver([=] {
        memcpy(emu_shared(remote_dst, n_bytes, 16), emu_shared(src, n_bytes, 16), n_bytes);
        emu_async_wrote(remote_dst, n_bytes);
        emu_mbarrier_deliver(remote_bar, n_bytes);
    });
}

BRIM_DEVICE void bulk_commit(void)
{
    emu_commit(EMU_BULK);
}

BRIM_DEVICE void bulk_wait_all(void)
{
    emu_wait(EMU_BULK, 0);
}

BRIM_DEVICE void bulk_wait_read_all(void)
{
    emu_wait(EMU_BULK, 0);
}

BRIM_DEVICE void red_add_f32(float *y, float v)
{
    uint32_t *word = (uint32_t *)y, old = __atomic_load_n(word, __ATOMIC_RELAXED), next;
    do {
        float sum;
        memcpy(&sum, &old, 4);
        sum += v;
        memcpy(&next, &sum, 4);
    } while (
        !__atomic_compare_exchange_n(word, &old, next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

/* ---- loads and stores
 * ---------------------------------------------------------------------------------- */

BRIM_DEVICE uint4 ld_stream_v4(const void *ptr)
{
    emu_check_global(ptr, 16, "ld.v4");
    return *(const uint4 *)ptr;
}

BRIM_DEVICE uint4 ld_shared_v4(uint32_t addr)
{
    return emu_load<uint4>(addr);
}

BRIM_DEVICE void st_shared_v4(uint32_t addr, float4 v)
{
    emu_store<float4>(addr, v);
}

BRIM_DEVICE uint2 ld_shared_v2(uint32_t addr)
{
    return emu_load<uint2>(addr);
}

BRIM_DEVICE float4 ld_shared_v4_f32(uint32_t addr)
{
    return emu_load<float4>(addr);
}

BRIM_DEVICE float2 ld_shared_v2_f32(uint32_t addr)
{
    return emu_load<float2>(addr);
}

BRIM_DEVICE uint32_t ld_shared_u32(uint32_t addr)
{
    return emu_load<uint32_t>(addr);
}

BRIM_DEVICE void st_shared_u32(uint32_t addr, uint32_t v)
{
    emu_store<uint32_t>(addr, v);
}

BRIM_DEVICE float ld_shared_f32(uint32_t addr)
{
    return emu_load<float>(addr);
}

BRIM_DEVICE void st_shared_f32(uint32_t addr, float v)
{
    emu_store<float>(addr, v);
}

BRIM_DEVICE void st_shared_v2_u32(uint32_t addr, uint32_t x, uint32_t y)
{
    emu_store<uint2>(addr, make_uint2(x, y));
}

BRIM_DEVICE void st_shared_v4_u32(uint32_t addr, uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    emu_store<uint4>(addr, make_uint4(x, y, z, w));
}

/* ---- matrix fragments: matrix i's row r is where lane 8 i + r says; lane t holds row t / 4,
 * columns 2 (t % 4) and + 1, or, transposed, the element with row and column exchanged -----------
 */

template <bool transposed> BRIM_DEVICE void emu_ldmatrix(uint32_t (&r)[4], uint32_t addr)
{
    struct bundle {
        uint16_t x[8];
    } own;
    memcpy(&own, emu_shared(addr, 16, 16), 16);
    const bundle *all = emu_warp(0xFFFFFFFF, own, "ldmatrix");
    int lane = emu_lane(), g = lane >> 2, c = 2 * (lane & 3);
    for (int i = 0; i < 4; i++) {
        auto at = [&](int matrix_row, int col) { return (uint32_t)all[8 * i + matrix_row].x[col]; };
        r[i] = transposed ? at(c, g) | at(c + 1, g) << 16 : at(g, c) | at(g, c + 1) << 16;
    }
}

BRIM_DEVICE void ldmatrix_x4(uint32_t (&r)[4], uint32_t addr)
{
    emu_ldmatrix<false>(r, addr);
}

BRIM_DEVICE void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t addr)
{
    emu_ldmatrix<true>(r, addr);
}

template <bool transposed> BRIM_DEVICE void emu_stmatrix(uint32_t addr, const uint32_t (&r)[4])
{
    uint16_t *row = (uint16_t *)emu_shared(addr, 16, 16);
    struct bundle {
        uint32_t pair[4];
    } brought;
    memcpy(&brought, r, 16);
    const bundle *all = emu_warp(0xFFFFFFFF, brought, "stmatrix");
    int lane = emu_lane(), i = lane >> 3, own = lane & 7;
    for (int col = 0; col < 8; col++) {
        int g = transposed ? col : own, c = transposed ? own : col; /* who holds the element */
        uint32_t pair = all[4 * g + c / 2].pair[i];
        row[col] = (uint16_t)(pair >> 16 * (c & 1));
    }
    emu_stored(addr, 16);
}

BRIM_DEVICE void stmatrix_x4(uint32_t addr, const uint32_t (&r)[4])
{
    emu_stmatrix<false>(addr, r);
}

BRIM_DEVICE void stmatrix_x4_trans(uint32_t addr, const uint32_t (&r)[4])
{
    emu_stmatrix<true>(addr, r);
}

/* ---- conversions
 * ------------------------------------------------------------------------------------------ */

BRIM_DEVICE uint32_t bf16x2_pack(float lo, float hi)
{
    return (uint32_t)emu_bf16(lo) | (uint32_t)emu_bf16(hi) << 16;
}

BRIM_DEVICE uint32_t f16x2_pack(float lo, float hi)
{
    return (uint32_t)emu_f16(lo) | (uint32_t)emu_f16(hi) << 16;
}

BRIM_DEVICE float bf16_lo(uint32_t pair)
{
    return __uint_as_float(pair << 16);
}

BRIM_DEVICE float bf16_hi(uint32_t pair)
{
    return __uint_as_float(pair & 0xFFFF0000u);
}

#endif
