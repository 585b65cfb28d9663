/* SPDX-License-Identifier: Apache-2.0
 * One wrapper per instruction: cp.async, bulk copies, streaming loads, ldmatrix and stmatrix. */
#ifndef BRIM_CUDA_PTX_COPY_CUH
#define BRIM_CUDA_PTX_COPY_CUH

#include "cuda/ptx/sync.cuh"

/* ---- cp.async: 16 bytes, generic proxy ------------------------------------------------------- */

/* Copies 16 bytes if `valid`, else writes 16 zero bytes. */
BRIM_DEVICE void cp_async_16(uint32_t dst, const void *src, bool valid)
{
    uint32_t n_bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(n_bytes)
                 : "memory");
}

/* 16 bytes of a long stream: the cache brings the whole 256-byte block. */
BRIM_DEVICE void cp_async_16_stream(uint32_t dst, const void *src)
{
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(dst), "l"(src)
                 : "memory");
}

BRIM_DEVICE void cp_async_16(uint32_t dst, const void *src)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory");
}

BRIM_DEVICE void cp_async_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int n_pending> BRIM_DEVICE void cp_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(n_pending) : "memory");
}

/* ---- bulk copies: multiples of 16 bytes, 16-byte aligned, async proxy -------------------------
 */

BRIM_DEVICE void bulk_load(uint32_t dst, const void *src, uint32_t n_bytes, uint32_t bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(dst),
                 "l"(src), "r"(n_bytes), "r"(bar)
                 : "memory");
}

BRIM_DEVICE void bulk_store(void *dst, uint32_t src, uint32_t n_bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(src),
                 "r"(n_bytes)
                 : "memory");
}

/* To the shared memory of another CTA of the cluster, completing on a barrier there. */
BRIM_DEVICE void bulk_push(uint32_t remote_dst, uint32_t src, uint32_t n_bytes, uint32_t remote_bar)
{
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(remote_dst),
                 "r"(src), "r"(n_bytes), "r"(remote_bar)
                 : "memory");
}

BRIM_DEVICE void bulk_commit(void)
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* All bulk stores of this thread are complete and globally performed (not merely read). */
BRIM_DEVICE void bulk_wait_all(void)
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* Their sources have been read and may be reused. */
BRIM_DEVICE void bulk_wait_read_all(void)
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* y += v where no other thread adds to the same word: a sum that does not wait for the old value.
 */
BRIM_DEVICE void red_add_f32(float *y, float v)
{
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(y), "f"(v) : "memory");
}

/* ---- streaming loads: each byte is used once --------------------------------------------------
 */

BRIM_DEVICE uint4 ld_stream_v4(const void *ptr)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(ptr));
    return v;
}

/* ---- shared memory by address, in order with the waits around it ----------------------------- */

BRIM_DEVICE uint4 ld_shared_v4(uint32_t addr)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(addr)
                 : "memory");
    return v;
}

BRIM_DEVICE void st_shared_v4(uint32_t addr, float4 v)
{
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(addr), "f"(v.x), "f"(v.y),
                 "f"(v.z), "f"(v.w)
                 : "memory");
}

BRIM_DEVICE uint2 ld_shared_v2(uint32_t addr)
{
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(addr) : "memory");
    return v;
}

BRIM_DEVICE float4 ld_shared_v4_f32(uint32_t addr)
{
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(addr)
                 : "memory");
    return v;
}

BRIM_DEVICE float2 ld_shared_v2_f32(uint32_t addr)
{
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(addr) : "memory");
    return v;
}

BRIM_DEVICE uint32_t ld_shared_u32(uint32_t addr)
{
    uint32_t v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(addr) : "memory");
    return v;
}

BRIM_DEVICE void st_shared_u32(uint32_t addr, uint32_t v)
{
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(addr), "r"(v) : "memory");
}

BRIM_DEVICE float ld_shared_f32(uint32_t addr)
{
    return __uint_as_float(ld_shared_u32(addr));
}

BRIM_DEVICE void st_shared_f32(uint32_t addr, float v)
{
    st_shared_u32(addr, __float_as_uint(v));
}

BRIM_DEVICE void st_shared_v2_u32(uint32_t addr, uint32_t x, uint32_t y)
{
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(addr), "r"(x), "r"(y) : "memory");
}

BRIM_DEVICE void st_shared_v4_u32(uint32_t addr, uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(x), "r"(y), "r"(z),
                 "r"(w)
                 : "memory");
}

/* ---- matrix fragments ------------------------------------------------------------------------ */

BRIM_DEVICE void ldmatrix_x4(uint32_t (&r)[4], uint32_t addr)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(addr)
                 : "memory");
}

BRIM_DEVICE void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t addr)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(addr)
                 : "memory");
}

BRIM_DEVICE void stmatrix_x4(uint32_t addr, const uint32_t (&r)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

BRIM_DEVICE void stmatrix_x4_trans(uint32_t addr, const uint32_t (&r)[4])
{
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
        : "memory");
}

/* Two floats to bf16x2, `lo` in the low half; round to nearest even. */
BRIM_DEVICE uint32_t bf16x2_pack(float lo, float hi)
{
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

/* Two floats to f16x2, `lo` in the low half; round to nearest even. */
BRIM_DEVICE uint32_t f16x2_pack(float lo, float hi)
{
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
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
