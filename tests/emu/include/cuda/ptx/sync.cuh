/* SPDX-License-Identifier: Apache-2.0
 * src/cuda/ptx/sync.cuh for the emulator: the same names, the meaning of the PTX ISA. Of
 * fences only that between the proxies has an effect: it is missed where it is not (emu.h). */
#ifndef BRIM_CUDA_PTX_SYNC_CUH
#define BRIM_CUDA_PTX_SYNC_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#include "emu.h"

#define BRIM_DEVICE static inline

BRIM_DEVICE uint32_t smem_u32(const void *ptr)
{
    return emu_shared_number(ptr);
}

/* A T of shared memory by number. */
template <class T> BRIM_DEVICE T emu_load(uint32_t addr)
{
    return *(const T *)emu_shared(addr, sizeof(T), alignof(T));
}

template <class T> BRIM_DEVICE void emu_store(uint32_t addr, T value)
{
    *(T *)emu_shared(addr, sizeof(T), alignof(T)) = value;
    emu_stored(addr, sizeof(T));
}

/* ---- mbarrier -------------------------------------------------------------------------------- */

BRIM_DEVICE void mbarrier_init(uint32_t bar, uint32_t n_arrival)
{
    emu_mbarrier_init(bar, n_arrival);
}

BRIM_DEVICE void fence_mbarrier_init(void) {}

BRIM_DEVICE void mbarrier_arrive(uint32_t bar)
{
    emu_mbarrier_arrive(bar);
}

BRIM_DEVICE void mbarrier_arrive_expect_tx(uint32_t bar, uint32_t n_bytes)
{
    emu_mbarrier_expect(bar, n_bytes);
    emu_mbarrier_arrive(bar);
}

BRIM_DEVICE void mbarrier_arrive_cluster(uint32_t remote_bar)
{
    emu_mbarrier_arrive(remote_bar);
}

BRIM_DEVICE void mbarrier_arrive_expect_tx_cluster(uint32_t remote_bar, uint32_t n_bytes)
{
    mbarrier_arrive_expect_tx(remote_bar, n_bytes);
}

BRIM_DEVICE bool mbarrier_try_wait(uint32_t bar, uint32_t parity)
{
    return emu_mbarrier_try(bar, parity);
}

BRIM_DEVICE bool mbarrier_test(uint32_t bar, uint32_t parity)
{
    if (emu_mbarrier_passed(bar, parity)) return true;
    emu_yield("mbarrier, tested");
    return false;
}

#define BRIM_WAITING() ((void)0)

BRIM_DEVICE void mbarrier_wait(uint32_t bar, uint32_t parity)
{
    emu_mbarrier_wait(bar, parity);
}

BRIM_DEVICE bool mbarrier_try_wait_cluster(uint32_t bar, uint32_t parity)
{
    return emu_mbarrier_try(bar, parity);
}

BRIM_DEVICE void mbarrier_wait_cluster(uint32_t bar, uint32_t parity)
{
    mbarrier_wait(bar, parity);
}

/* ---- fences between the generic and the async proxy ------------------------------------------ */

BRIM_DEVICE void fence_proxy_async_shared(void)
{
    emu_fence_async();
}

BRIM_DEVICE void fence_proxy_async(void)
{
    emu_fence_async();
}

/* ---- scoped access to control words ---------------------------------------------------------- */

BRIM_DEVICE uint32_t ld_acquire_gpu(const uint32_t *ptr)
{
    emu_yield("a word in global memory");
    return __atomic_load_n(ptr, __ATOMIC_ACQUIRE);
}

BRIM_DEVICE uint32_t ld_relaxed_gpu(const uint32_t *ptr)
{
    emu_yield("a word in global memory");
    return __atomic_load_n(ptr, __ATOMIC_RELAXED);
}

BRIM_DEVICE float4 ld_relaxed_gpu_v4(const float *ptr)
{
    emu_yield("four words in global memory");
    float x[4];
    for (int i = 0; i < 4; i++) __atomic_load(ptr + i, x + i, __ATOMIC_RELAXED);
    return make_float4(x[0], x[1], x[2], x[3]);
}

BRIM_DEVICE void st_release_gpu(uint32_t *ptr, uint32_t value)
{
    __atomic_store_n(ptr, value, __ATOMIC_RELEASE);
    emu_moved();
}

BRIM_DEVICE uint32_t atom_or_release_gpu(uint32_t *ptr, uint32_t value)
{
    emu_moved();
    return __atomic_fetch_or(ptr, value, __ATOMIC_RELEASE);
}

BRIM_DEVICE void red_add_release_gpu(uint32_t *ptr, uint32_t value)
{
    emu_moved();
    __atomic_fetch_add(ptr, value, __ATOMIC_RELEASE);
}

BRIM_DEVICE uint32_t atom_add_acq_rel_gpu(uint32_t *ptr, uint32_t value)
{
    emu_moved();
    return __atomic_fetch_add(ptr, value, __ATOMIC_ACQ_REL);
}

BRIM_DEVICE uint32_t atom_add_shared(uint32_t addr, uint32_t value)
{
    emu_moved();
    return __atomic_fetch_add((uint32_t *)emu_shared(addr, 4, 4), value, __ATOMIC_RELAXED);
}

BRIM_DEVICE void red_max_shared(uint32_t addr, uint32_t value)
{
    emu_moved();
    uint32_t *at = (uint32_t *)emu_shared(addr, 4, 4), old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (old < value &&
           !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

/* ---- clusters -------------------------------------------------------------------------------- */

BRIM_DEVICE uint32_t cluster_ctarank(void)
{
    return emu_cluster_rank();
}

BRIM_DEVICE void cluster_arrive(void)
{
    emu_cluster_arrive();
}

BRIM_DEVICE uint32_t cluster_id_x(void)
{
    return blockIdx.x / emu_cluster_size();
}

BRIM_DEVICE void cluster_wait(void)
{
    emu_cluster_wait();
}

BRIM_DEVICE void cluster_sync(void)
{
    emu_cluster_arrive();
    emu_cluster_wait();
}

BRIM_DEVICE void cluster_sync_relaxed(void)
{
    cluster_sync();
}

BRIM_DEVICE void cluster_arrive_relaxed(void)
{
    emu_cluster_arrive();
}

BRIM_DEVICE uint32_t mapa_u32(uint32_t addr, uint32_t rank)
{
    return emu_mapa(addr, rank);
}

BRIM_DEVICE void st_shared_cluster_f32(uint32_t remote, float value)
{
    emu_store<float>(remote, value);
}

BRIM_DEVICE void st_shared_cluster_u32(uint32_t remote, uint32_t value)
{
    emu_store<uint32_t>(remote, value);
}

BRIM_DEVICE void st_shared_cluster_u64(uint32_t remote, unsigned long long value)
{
    emu_store<unsigned long long>(remote, value);
}

BRIM_DEVICE float4 ld_shared_cluster_v4(uint32_t addr)
{
    return emu_load<float4>(addr);
}

BRIM_DEVICE uint32_t ld_shared_cluster(uint32_t addr)
{
    return emu_load<uint32_t>(addr);
}

BRIM_DEVICE void st_async_v4(uint32_t addr, float4 v, uint32_t bar)
{
    emu_deliver([=] {
        *(float4 *)emu_shared(addr, 16, 16) = v;
        emu_async_wrote(addr, 16);
        emu_mbarrier_deliver(bar, 16);
    });
}

/* ---- programmatic dependent launch: here a kernel begins when the one before it has ended ------
 */

BRIM_DEVICE void griddepcontrol_wait(void) {}

BRIM_DEVICE void griddepcontrol_launch_dependents(void) {}

/* ---- named barriers and registers ------------------------------------------------------------ */

BRIM_DEVICE void named_barrier_sync(uint32_t id, uint32_t n_thread)
{
    emu_barrier(id, n_thread, true);
}

BRIM_DEVICE void named_barrier_arrive(uint32_t id, uint32_t n_thread)
{
    emu_barrier(id, n_thread, false);
}

template <int n_reg> BRIM_DEVICE void setmaxnreg_inc(void)
{
    static_assert(n_reg % 8 == 0 && n_reg >= 24 && n_reg <= 256, "as the instruction wants it");
}

template <int n_reg> BRIM_DEVICE void setmaxnreg_dec(void)
{
    static_assert(n_reg % 8 == 0 && n_reg >= 24 && n_reg <= 256, "as the instruction wants it");
}

#endif
