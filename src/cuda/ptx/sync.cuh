/* SPDX-License-Identifier: Apache-2.0
 * One wrapper per instruction: mbarriers, proxy fences, scoped loads and stores, clusters,
 * programmatic dependent launch, register budgets. Names follow the PTX ISA. */
#ifndef BRIM_CUDA_PTX_SYNC_CUH
#define BRIM_CUDA_PTX_SYNC_CUH

#include <stdint.h>

#define BRIM_DEVICE static __device__ __forceinline__

/* Shared-memory address as the 32-bit number PTX wants. */
BRIM_DEVICE uint32_t smem_u32(const void *ptr)
{
    return (uint32_t)__cvta_generic_to_shared(ptr);
}

/* ---- mbarrier -------------------------------------------------------------------------------- */

BRIM_DEVICE void mbarrier_init(uint32_t bar, uint32_t n_arrival)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(n_arrival) : "memory");
}

/* Make initialised barriers visible to the async proxy and to the cluster. */
BRIM_DEVICE void fence_mbarrier_init(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

BRIM_DEVICE void mbarrier_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

/* Arrive, and announce n_bytes that bulk copies will deliver. */
BRIM_DEVICE void mbarrier_arrive_expect_tx(uint32_t bar, uint32_t n_bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(n_bytes)
                 : "memory");
}

/* Arrive at a barrier of another CTA of the cluster (address from mapa). */
BRIM_DEVICE void mbarrier_arrive_cluster(uint32_t remote_bar)
{
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(remote_bar)
                 : "memory");
}

/* The same at a barrier of another CTA of the cluster, where copies of this one will complete. */
BRIM_DEVICE void mbarrier_arrive_expect_tx_cluster(uint32_t remote_bar, uint32_t n_bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(
                     remote_bar),
                 "r"(n_bytes)
                 : "memory");
}

BRIM_DEVICE bool mbarrier_try_wait(uint32_t bar, uint32_t parity)
{
    uint32_t done;
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(done)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return done != 0;
}

/* The same without ever suspending the thread. */
BRIM_DEVICE bool mbarrier_test(uint32_t bar, uint32_t parity)
{
    uint32_t done;
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(done)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return done != 0;
}

/* In every loop that waits. A build for racecheck, which records each look of each thread at a
 * barrier, sleeps there (CMake: BRIM_WAIT_NS); any other does nothing. In that build too the first
 * half of a cluster barrier is the whole and the second nothing: racecheck holds who waits for a
 * phase until every thread of the cluster does, and some wait only at their end. */
#ifdef BRIM_WAIT_NS
#define BRIM_WAITING() asm volatile("nanosleep.u32 %0;" ::"n"(BRIM_WAIT_NS))
#else
#define BRIM_WAITING() ((void)0)
#endif

BRIM_DEVICE void mbarrier_wait(uint32_t bar, uint32_t parity)
{
    while (!mbarrier_try_wait(bar, parity)) BRIM_WAITING();
}

BRIM_DEVICE bool mbarrier_try_wait_cluster(uint32_t bar, uint32_t parity)
{
    uint32_t done;
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(done)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return done != 0;
}

BRIM_DEVICE void mbarrier_wait_cluster(uint32_t bar, uint32_t parity)
{
    while (!mbarrier_try_wait_cluster(bar, parity)) BRIM_WAITING();
}

/* ---- fences between the generic and the async proxy ------------------------------------------ */

/* Orders shared-memory writes of this thread before later async-proxy reads (wgmma, bulk copy). */
BRIM_DEVICE void fence_proxy_async_shared(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The same for every state space, global included. */
BRIM_DEVICE void fence_proxy_async(void)
{
    asm volatile("fence.proxy.async;" ::: "memory");
}

/* ---- scoped access to control words ---------------------------------------------------------- */

BRIM_DEVICE uint32_t ld_acquire_gpu(const uint32_t *ptr)
{
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(ptr) : "memory");
    return value;
}

BRIM_DEVICE uint32_t ld_relaxed_gpu(const uint32_t *ptr)
{
    uint32_t value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(ptr) : "memory");
    return value;
}

/* Four words, each on its own; on 16 bytes. */
BRIM_DEVICE float4 ld_relaxed_gpu_v4(const float *ptr)
{
    float4 v;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(ptr)
                 : "memory");
    return v;
}

BRIM_DEVICE void st_release_gpu(uint32_t *ptr, uint32_t value)
{
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(ptr), "r"(value) : "memory");
}

BRIM_DEVICE uint32_t atom_or_release_gpu(uint32_t *ptr, uint32_t value)
{
    uint32_t old;
    asm volatile("atom.or.release.gpu.global.b32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(ptr), "r"(value)
                 : "memory");
    return old;
}

BRIM_DEVICE uint32_t atom_add_acq_rel_gpu(uint32_t *ptr, uint32_t value)
{
    uint32_t old;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(ptr), "r"(value)
                 : "memory");
    return old;
}

/* The same, for whoever need not know what was there. */
BRIM_DEVICE void red_add_release_gpu(uint32_t *ptr, uint32_t value)
{
    asm volatile("red.add.release.gpu.global.u32 [%0], %1;" ::"l"(ptr), "r"(value) : "memory");
}

/* A word of shared memory; returns what it held before. */
BRIM_DEVICE uint32_t atom_add_shared(uint32_t addr, uint32_t value)
{
    uint32_t old;
    asm volatile("atom.shared.add.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "r"(addr), "r"(value)
                 : "memory");
    return old;
}

BRIM_DEVICE void red_max_shared(uint32_t addr, uint32_t value)
{
    asm volatile("red.shared.max.u32 [%0], %1;" ::"r"(addr), "r"(value) : "memory");
}

/* ---- clusters -------------------------------------------------------------------------------- */

BRIM_DEVICE uint32_t cluster_ctarank(void)
{
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* The first half of cluster_sync, ended by cluster_wait: what precedes it is seen there. Of the two
 * halves apart a kernel may use one phase only, and every thread must wait before it ends: a warp
 * that waited for a phase after others of its CTA had arrived at the next stood for ever (H200). */
BRIM_DEVICE void cluster_arrive(void)
{
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#ifdef BRIM_WAIT_NS
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

BRIM_DEVICE uint32_t cluster_id_x(void)
{
    uint32_t id;
    asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(id));
    return id;
}

/* All have come here; memory is not ordered. */
BRIM_DEVICE void cluster_sync_relaxed(void)
{
    asm volatile("barrier.cluster.arrive.relaxed;\n\tbarrier.cluster.wait;" ::: "memory");
}

BRIM_DEVICE void cluster_sync(void)
{
    asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}

/* The two halves of a cluster barrier, for work between them. This arrival orders nothing but what
 * fence_mbarrier_init did before it. */
BRIM_DEVICE void cluster_arrive_relaxed(void)
{
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#ifdef BRIM_WAIT_NS
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

BRIM_DEVICE void cluster_wait(void)
{
#ifndef BRIM_WAIT_NS
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

/* To an address from mapa. */
BRIM_DEVICE void st_shared_cluster_f32(uint32_t remote, float value)
{
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(value) : "memory");
}

BRIM_DEVICE void st_shared_cluster_u32(uint32_t remote, uint32_t value)
{
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(remote), "r"(value) : "memory");
}

BRIM_DEVICE void st_shared_cluster_u64(uint32_t remote, unsigned long long value)
{
    asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(remote), "l"(value) : "memory");
}

/* Address of the same shared-memory location in CTA `rank` of the cluster. */
BRIM_DEVICE uint32_t mapa_u32(uint32_t addr, uint32_t rank)
{
    uint32_t remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(addr), "r"(rank));
    return remote;
}

/* 16 bytes of any CTA of the cluster (address from mapa). */
BRIM_DEVICE float4 ld_shared_cluster_v4(uint32_t addr)
{
    float4 v;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(addr)
                 : "memory");
    return v;
}

/* 16 bytes into any CTA of the cluster; they count for the mbarrier `bar` of that CTA (both
 * addresses from mapa), whose completion makes them visible. Illegal outside a cluster launch. */
BRIM_DEVICE void st_async_v4(uint32_t addr, float4 v, uint32_t bar)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
                 "[%0], {%1, %2, %3, %4}, [%5];" ::"r"(addr),
                 "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(bar)
                 : "memory");
}

BRIM_DEVICE uint32_t ld_shared_cluster(uint32_t addr)
{
    uint32_t value;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(addr) : "memory");
    return value;
}

/* ---- programmatic dependent launch ----------------------------------------------------------- */

/* Block until the kernels this one depends on have ended and their writes are visible. */
BRIM_DEVICE void griddepcontrol_wait(void)
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

BRIM_DEVICE void griddepcontrol_launch_dependents(void)
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* ---- named barriers and registers ------------------------------------------------------------ */

BRIM_DEVICE void named_barrier_sync(uint32_t id, uint32_t n_thread)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n_thread) : "memory");
}

BRIM_DEVICE void named_barrier_arrive(uint32_t id, uint32_t n_thread)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n_thread) : "memory");
}

template <int n_reg> BRIM_DEVICE void setmaxnreg_inc(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n_reg));
}

template <int n_reg> BRIM_DEVICE void setmaxnreg_dec(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n_reg));
}

#endif
