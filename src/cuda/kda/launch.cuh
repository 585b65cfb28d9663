/* SPDX-License-Identifier: Apache-2.0
 * The launchers of the routes, one kernel instance each: the whole list. */
#ifndef BRIM_CUDA_KDA_LAUNCH_CUH
#define BRIM_CUDA_KDA_LAUNCH_CUH

#include "cuda/kda/params.cuh"
#include "cuda/launch.h"

/* pdl: the kernel waits by itself for the launch before it. A launch of no CTAs is none: it brings
 * the kernel's code onto the device (brim_kda_cuda_load). */
static inline brim_launch_shape kda_shape(int64_t n_cta, int cluster, int n_thread, int smem_bytes,
                                          bool pdl)
{
    brim_launch_shape shape = {};
    shape.grid = dim3((unsigned)n_cta);
    shape.block = dim3(n_thread);
    shape.smem_bytes = smem_bytes;
    shape.cluster = cluster;
    shape.pdl = pdl;
    shape.load = n_cta == 0;
    return shape;
}

/* A cluster a task, of a route that may follow the split's segments and finish their task. */
static inline brim_launch_shape kda_task_shape(const kda_params &p, int cluster, int n_thread,
                                               int smem_bytes)
{
    return kda_shape(p.n_seq * p.n_value_head * cluster, cluster, n_thread, smem_bytes,
                     p.cuts.record != nullptr);
}

/* The instance of a kernel for gates with or without a bound, as p has them. */
#define KDA_LAUNCH(kernel, shape)                                         \
    (p.lower_bound < 0 ? BRIM_LAUNCH(kernel<true>, shape, stream, p, err) \
                       : BRIM_LAUNCH(kernel<false>, shape, stream, p, err))

/* The same of a serial route that may stand behind segments: it has instances of its own for that,
 * so that what finishes their task costs the others nothing. */
#define KDA_LAUNCH_SERIAL(kernel, shape) \
    (p.cuts.record ? KDA_LAUNCH_AS(kernel, true, shape) : KDA_LAUNCH_AS(kernel, false, shape))
/* And of one that never does. */
#define KDA_LAUNCH_ALONE(kernel, shape) KDA_LAUNCH_AS(kernel, false, shape)
#define KDA_LAUNCH_AS(kernel, behind, shape)                                        \
    (p.lower_bound < 0 ? BRIM_LAUNCH((kernel<true, behind>), shape, stream, p, err) \
                       : BRIM_LAUNCH((kernel<false, behind>), shape, stream, p, err))

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
