/* SPDX-License-Identifier: Apache-2.0
 * Host entry of the KDA kernels. Includes no CUDA header; src/backend/nocuda.c stands in for it in
 * a build without CUDA. */
#ifndef BRIM_CUDA_KDA_KDA_H
#define BRIM_CUDA_KDA_KDA_H

#include "base/status.h"
#include "brim/kernels.h"
#include "plan/kda_route.h"
#include "plan/kda_split.h"

#ifdef __cplusplus
extern "C" {
#endif

/* SMs of the calling thread's current device, which must be one this build has code for. Two
 * attribute queries, allowed while a stream is being captured. */
brim_status brim_kda_cuda_processors(int64_t *n_processor, brim_error *err);
/* Would the kernels take these (already checked) arguments on this route? */
brim_status brim_kda_cuda_supported(const brim_kda_args *args, enum brim_kda_route route,
                                    brim_error *err);
/* Bring the code of what a call launches onto the device, which else its first launch in a process
 * does, with memory of its own. With split as below. */
brim_status brim_kda_cuda_load(const brim_kda_args *args, enum brim_kda_route route,
                               const struct brim_kda_split_plan *split, brim_error *err);
/* Enqueue. The arguments have passed brim_kda_check and brim_kda_cuda_supported. With `split` the
 * segments run first and `route` computes the tasks that may not be cut; else split is NULL. */
brim_status brim_kda_cuda_launch(const brim_kda_args *args, enum brim_kda_route route,
                                 const struct brim_kda_split_plan *split, brim_error *err);
brim_status brim_kda_cuda_workspace_init(void *workspace, size_t n_bytes, void *stream,
                                         brim_error *err);

#ifdef __cplusplus
}
#endif
#endif
