/* SPDX-License-Identifier: Apache-2.0
 * The Hopper W4 kernel: weights stream from memory into wgmma's register operand, activations are
 * the shared-memory operand, the reduction is cut evenly over all CTAs (stream-K) and joined in
 * order. */
#ifndef BRIM_CUDA_W4_STREAM_H
#define BRIM_CUDA_W4_STREAM_H

#include "cuda/w4/pack.h"
#include "cuda/w4/w4.h"
#include "plan/w4_stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A workspace begins with the counters, one a CTA, whatever the shape: products of any shape may
 * take turns in one block of memory. They must be zero before its first use; every launch leaves
 * them zero. */
enum { BRIM_W4_STREAM_COUNTER_BYTES = 4096 };

/* Device bytes of counters and partial sums. */
size_t brim_cuda_w4_stream_workspace_bytes(const struct brim_w4_stream_plan *plan);

/* y = x W^T. args gives x, y, n_row and the strides; the weights are `w`. Rows of x are 16-byte
 * aligned. With pdl the kernel may start before its predecessor ends and reads only weights until
 * then. */
brim_status brim_cuda_w4_stream(const struct brim_cuda_w4 *args,
                                const struct brim_cuda_w4_packed *w,
                                const struct brim_w4_stream_plan *plan, void *workspace, int pdl,
                                void *stream, brim_error *err);

#ifdef __cplusplus
}
#endif
#endif
