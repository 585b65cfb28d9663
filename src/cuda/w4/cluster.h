/* SPDX-License-Identifier: Apache-2.0
 * The Hopper W4 kernel for few rows: the reduction of an output tile is split over the CTAs of a
 * cluster and joined in distributed shared memory. No workspace, no counters. */
#ifndef BRIM_CUDA_W4_CLUSTER_H
#define BRIM_CUDA_W4_CLUSTER_H

#include "cuda/w4/pack.h"
#include "cuda/w4/w4.h"
#include "plan/w4_cluster.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y = x W^T. args gives x, y, n_row, the strides, epilogue and out_bias; the weights are `w`:
 * groups of 32, 64 and 128, parameters f32, f16 or bf16, n_in any multiple of the group, every
 * epilogue. SWIGLU wants n_out a multiple of 16. Rows of x start on 16 bytes. With pdl the kernel
 * may start before its predecessor ends; until that one has ended it reads only weights. */
brim_status brim_cuda_w4_cluster(const struct brim_cuda_w4 *args,
                                 const struct brim_cuda_w4_packed *w,
                                 const struct brim_w4_cluster_plan *plan, int pdl, void *stream,
                                 brim_error *err);

#ifdef __cplusplus
}
#endif
#endif
