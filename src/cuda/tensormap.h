/* SPDX-License-Identifier: Apache-2.0
 * Tensor maps: how the copy engine sees a matrix in global memory. Made on the host per call and
 * passed by value, so there is no device object to own. Only .cu files include this. */
#ifndef BRIM_CUDA_TENSORMAP_H
#define BRIM_CUDA_TENSORMAP_H

#include <cuda.h>
#include <stdint.h>

#include "base/status.h"

/* bf16 matrix [n_row][stride], n_col of each row visible, cut into boxes of box_rows x 64 columns
 * that land as 128-byte rows with the 128-byte swizzle. base and stride * 2 are multiples of 16
 * bytes. */
brim_status brim_tensormap_bf16(CUtensorMap *map, const void *base, int64_t n_row, int64_t n_col,
                                int64_t stride, int box_rows, brim_error *err);

#endif
