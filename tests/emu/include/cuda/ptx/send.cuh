/* SPDX-License-Identifier: Apache-2.0
 * What src/cuda/ptx/send.cuh wraps, on the emulator. */
#ifndef BRIM_CUDA_PTX_SEND_CUH
#define BRIM_CUDA_PTX_SEND_CUH

#include "cuda/ptx/sync.cuh"

BRIM_DEVICE void st_async_f32(uint32_t addr, float value, uint32_t bar)
{
    emu_deliver([=] {
        *(float *)emu_shared(addr, 4, 4) = value;
        emu_async_wrote(addr, 4);
        emu_mbarrier_deliver(bar, 4);
    });
}

#endif
