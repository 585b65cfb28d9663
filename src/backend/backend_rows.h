/* SPDX-License-Identifier: Apache-2.0
 * Rows of weights in the order and form a GPU wants them, made on the host: which row of which part
 * comes next, and its codes, scales and biases. Needs no device, so that tests hold it everywhere.
 */
#ifndef BRIM_BACKEND_BACKEND_ROWS_H
#define BRIM_BACKEND_BACKEND_ROWS_H

#include "cuda/model/ops.h"
#include "tensor/weight.h"

/* Parts that become one matrix on the device; brim_weight_can_join holds. */
struct brim_cuda_source {
    const struct brim_weight *parts;
    int n_part;
    bool paired; /* two parts of equal height, a multiple of 8, in the order of brim_w4_pair_row */
    enum brim_dtype param_dtype; /* of AFFINE4 scales and biases; set by brim_cuda_rows_describe */
    const char *name;            /* for error texts */
};

/* Kind, type, group and shape of the matrix, pointers NULL: DENSE, Q8_0, or AFFINE4, which Q4_0 and
 * Q4_1 become in groups of 32 with f16 parameters (f32 where -8 d does not fit), exactly. */
struct brim_cuda_table brim_cuda_rows_describe(struct brim_cuda_source *s);

enum brim_cuda_array { BRIM_CUDA_DATA, BRIM_CUDA_SCALES, BRIM_CUDA_BIASES };
/* Bytes of a row of an array of *w; 0 where the kind has none. */
size_t brim_cuda_row_bytes(const struct brim_cuda_table *w, enum brim_cuda_array array);
/* Row `row` of the device's matrix. BRIM_E_NOT_FINITE names the row, as the parts lie side by side,
 * and the group whose scale or bias is not. */
brim_status brim_cuda_row_fill(const struct brim_cuda_source *s, enum brim_cuda_array array,
                               int64_t row, uint8_t *out, brim_error *err);

/* Are the bf16 scales of the matrix what the kernels of packed weights take? BRIM_E_RANGE names the
 * row and the group of the first that is not; other types and kinds pass. */
brim_status brim_cuda_rows_check_packable(const struct brim_cuda_source *s, brim_error *err);

#endif
