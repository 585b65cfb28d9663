/* SPDX-License-Identifier: Apache-2.0
 * Tensor copies by a tensor map (src/cuda/tensormap.h), completing on an mbarrier. */
#ifndef BRIM_CUDA_PTX_TMA_CUH
#define BRIM_CUDA_PTX_TMA_CUH

#include <cuda.h>

#include "cuda/ptx/sync.cuh"

BRIM_DEVICE void tma_prefetch_map(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Box whose first element is (col, row) into shared memory; what lies outside the tensor arrives as
 * zero and counts as delivered. */
BRIM_DEVICE void tma_load_2d(uint32_t dst, const CUtensorMap *map, int col, int row, uint32_t bar)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(dst),
                 "l"(map), "r"(col), "r"(row), "r"(bar)
                 : "memory");
}

/* Shared memory to the box whose first element is (col, row); what lies outside the tensor is not
 * written. Joins the thread's current bulk group (copy.cuh). */
BRIM_DEVICE void tma_store_2d(const CUtensorMap *map, int col, int row, uint32_t src)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
        "r"(col), "r"(row), "r"(src)
        : "memory");
}

#endif
