/* SPDX-License-Identifier: Apache-2.0
 * Single words sent into the shared memory of another CTA of the cluster (st_async_v4 in sync.cuh
 * sends 16 bytes). */
#ifndef BRIM_CUDA_PTX_SEND_CUH
#define BRIM_CUDA_PTX_SEND_CUH

#include "cuda/ptx/sync.cuh"

/* 4 bytes; they count for the mbarrier `bar` of that CTA (both addresses from mapa), whose
 * completion makes them visible. Illegal outside a cluster launch. */
BRIM_DEVICE void st_async_f32(uint32_t addr, float value, uint32_t bar)
{
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(addr),
        "f"(value), "r"(bar)
        : "memory");
}

#endif
