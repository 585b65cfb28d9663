/* SPDX-License-Identifier: Apache-2.0
 * The Hopper W4 kernel for many rows: a copy warp feeds weights and activations through shared
 * memory, up to four warpgroups unpack weights into wgmma's register operand; where tiles are
 * few, a cluster shares the reduction of each. No workspace, no counters. */
#ifndef BRIM_CUDA_W4_STREAM_H
#define BRIM_CUDA_W4_STREAM_H

#include "cuda/w4/pack.h"
#include "cuda/w4/w4.h"
#include "plan/w4_stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y = x W^T, or what args->epilogue makes of it. args gives x, y, n_row, the strides, epilogue and
 * out_bias; the weights are `w`. Rows of x start on 16 bytes. With pdl the kernel may start before
 * its predecessor ends; until that one has ended it reads only weights. */
brim_status brim_cuda_w4_stream(const struct brim_cuda_w4 *args,
                                const struct brim_cuda_w4_packed *w,
                                const struct brim_w4_stream_plan *plan, int pdl, void *stream,
                                brim_error *err);

#ifdef __cplusplus
}
#endif
#endif
