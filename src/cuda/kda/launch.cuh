/* SPDX-License-Identifier: Apache-2.0
 * The launchers of the routes, one kernel instance each: the whole list. */
#ifndef BRIM_CUDA_KDA_LAUNCH_CUH
#define BRIM_CUDA_KDA_LAUNCH_CUH

#include "cuda/kda/params.cuh"
#include "cuda/launch.h"

brim_status brim_kda_launch_m128(const kda_params &p, cudaStream_t stream, brim_error *err);
brim_status brim_kda_launch_c4_m128(const kda_params &p, cudaStream_t stream, brim_error *err);

#endif
