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

/* The same in boxes of 32 columns: 64-byte rows, 64-byte swizzle. */
brim_status brim_tensormap_bf16_narrow(CUtensorMap *map, const void *base, int64_t n_row,
                                       int64_t n_col, int64_t stride, int box_rows,
                                       brim_error *err);

/* Plain bytes: n_row rows of row_bytes (a multiple of 16), cut into boxes of box_rows x box_bytes
 * (a multiple of 16, at most 2048) that land row after row. base on 16 bytes. Columns of a box
 * count in units of BRIM_TENSORMAP_WORD bytes. */
enum { BRIM_TENSORMAP_WORD = 8 };
brim_status brim_tensormap_bytes(CUtensorMap *map, const void *base, int64_t n_row,
                                 int64_t row_bytes, int box_rows, int box_bytes, brim_error *err);

#endif
