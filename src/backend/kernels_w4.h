/* SPDX-License-Identifier: Apache-2.0
 * The contract of brim_w4_args in code; private to src/backend/kernels_w4*.c. */
#ifndef BRIM_BACKEND_KERNELS_W4_H
#define BRIM_BACKEND_KERNELS_W4_H

#include <stdbool.h>

#include "base/status.h"
#include "brim/kernels.h"
#include "tensor/dtype.h"

/* Device, n_in, n_out, group and param_dtype: what a matrix alone is. */
brim_status brim_w4_check_matrix(const brim_w4_args *args, brim_error *err);
/* That, rows, other types, level, split: everything but pointers, which n_row == 0 leaves unread.
 */
brim_status brim_w4_check_shape(const brim_w4_args *args, brim_error *err);
/* Bytes of x and y from their first elements to their last; n_row of at least 1. */
brim_status brim_w4_check_spans(const brim_w4_args *args, uint64_t *x_bytes, uint64_t *y_bytes,
                                brim_error *err);
/* Pointers, alignment, strides, overlap. `packed`: the call reads args->packed, of `packed_bytes`,
 * not codes, scales and biases. */
brim_status brim_w4_check_data(const brim_w4_args *args, bool packed, size_t packed_bytes,
                               brim_error *err);
/* The three arrays of a matrix in the checkpoint's order. */
brim_status brim_w4_check_weights(const brim_w4_args *args, brim_error *err);
/* The pinned plan, against the shape. */
brim_status brim_w4_check_pinned(const brim_w4_args *args, brim_error *err);

/* F32, F16 or BF16 as the library names it; the caller has checked that it is one. */
static inline enum brim_dtype brim_w4_dtype(brim_kernel_dtype dtype)
{
    return dtype == BRIM_KERNEL_F32   ? BRIM_DTYPE_F32
           : dtype == BRIM_KERNEL_F16 ? BRIM_DTYPE_F16
                                      : BRIM_DTYPE_BF16;
}

#endif
