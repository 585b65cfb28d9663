/* SPDX-License-Identifier: Apache-2.0
 * The launchers of the routes, one kernel instance each: the whole list. */
#ifndef BRIM_CUDA_KDA_LAUNCH_CUH
#define BRIM_CUDA_KDA_LAUNCH_CUH

#include "cuda/kda/params.cuh"
#include "cuda/launch.h"

typedef brim_status kda_launcher(const kda_params &p, cudaStream_t stream, brim_error *err);

kda_launcher brim_kda_launch_m128, brim_kda_launch_m64, brim_kda_launch_pair, brim_kda_launch_queue;
kda_launcher brim_kda_launch_c4_m128, brim_kda_launch_c4_m64, brim_kda_launch_c5_m64,
    brim_kda_launch_c6_m64, brim_kda_launch_c8_m128;
/* The segments of p.cuts; another route's launch with the same p follows and finishes. */
brim_status brim_kda_launch_split(const kda_params &p, int64_t n_slot, cudaStream_t stream,
                                  brim_error *err);
/* The exact join, three launches one behind the other (join.cuh). */
brim_status brim_kda_launch_map(const kda_params &p, int64_t n_slot, cudaStream_t stream,
                                brim_error *err);
brim_status brim_kda_launch_join(const kda_params &p, cudaStream_t stream, brim_error *err);
brim_status brim_kda_launch_out(const kda_params &p, int64_t n_slot, cudaStream_t stream,
                                brim_error *err);

#endif
