/* SPDX-License-Identifier: Apache-2.0
 * Stands in for the CUDA backend in a build without nvcc. */
#include "backend/backend.h"

brim_status brim_backend_cuda_open(struct brim_backend **out,
                                   const struct brim_backend_cuda_options *options, brim_error *err)
{
    (void)options;
    *out = NULL;
    return brim_fail(err, BRIM_E_DEVICE,
                     "device cuda: this build of brim has no CUDA kernels; the CPU is available");
}
