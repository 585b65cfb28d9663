/* SPDX-License-Identifier: Apache-2.0
 * src/cuda/ptx/wgmma_f16.cuh for the emulator. */
#ifndef BRIM_CUDA_PTX_WGMMA_F16_CUH
#define BRIM_CUDA_PTX_WGMMA_F16_CUH

#include "cuda/ptx/wgmma.cuh"

template <int n> struct wgmma_f16_m64k16 : emu_wgmma_of<n, true> {
};

#endif
