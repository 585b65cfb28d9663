/* SPDX-License-Identifier: Apache-2.0
 * The one way to launch a kernel and to check a CUDA call. Every kernel takes exactly one struct by
 * value, so a launch is a name, a shape and that struct. Only .cu files include this. */
#ifndef BRIM_CUDA_LAUNCH_H
#define BRIM_CUDA_LAUNCH_H

#include <cuda_runtime.h>

#include "base/status.h"

struct brim_launch_shape {
    dim3 grid, block;
    unsigned smem_bytes; /* dynamic shared memory */
    unsigned cluster;    /* CTAs per cluster along x; 0 or 1: none */
    bool pdl;            /* may start before its predecessor ends: the kernel waits by
                            griddepcontrol.wait before it touches what that one wrote */
    bool load;           /* runs nothing: brings the kernel's code onto the current device, which
                            its first launch does otherwise */
};

/* cudaError_t -> brim_status with a sentence naming `what`. */
brim_status brim_cuda_check(cudaError_t code, const char *what, brim_error *err);

/* Stream-ordered; no synchronization. An empty grid is a no-op. */
brim_status brim_launch_kernel(const char *name, const void *kernel, struct brim_launch_shape shape,
                               cudaStream_t stream, const void *params, brim_error *err);

/* params must have the kernel's own parameter type: checked by the unevaluated call. */
#define BRIM_LAUNCH(kernel, shape, stream, params, err) \
    ((void)sizeof(((kernel)(params)), 0),               \
     brim_launch_kernel(#kernel, (const void *)(kernel), (shape), (stream), &(params), (err)))

#endif
