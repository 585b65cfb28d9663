/* SPDX-License-Identifier: Apache-2.0
 * Stands in for the CUDA backend in a build without nvcc. */
#include "backend/backend.h"
#include "backend/cuda_level.h"

brim_status brim_backend_cuda_open(struct brim_backend **out,
                                   const struct brim_backend_cuda_options *options, brim_error *err)
{
    *out = NULL;
    enum brim_cuda_level level;
    BRIM_TRY(brim_cuda_level_parse(options->level, &level, err));
    return brim_fail(err, BRIM_E_DEVICE,
                     "device cuda: this build of brim has no CUDA kernels; the CPU is available");
}
