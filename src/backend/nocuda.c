/* SPDX-License-Identifier: Apache-2.0
 * Stands in for src/cuda in a build without nvcc. */
#include "cuda/device.h"

#ifndef BRIM_HAVE_CUDA
brim_status brim_cuda_device_get(int ordinal, struct brim_cuda_device *out, brim_error *err)
{
    (void)out;
    return brim_fail(err, BRIM_E_DEVICE, "CUDA device %d: this build of brim has no CUDA kernels",
                     ordinal);
}
#endif
