/* SPDX-License-Identifier: Apache-2.0
 * A product with 4-bit weights straight from the checkpoint's order, for one call: no packed copy
 * is kept (cpu/linear.h keeps one). */
#ifndef BRIM_CPU_W4_DIRECT_H
#define BRIM_CPU_W4_DIRECT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/dtype.h"

/* y[n_row][n_out] = x[n_row][n_in] W^T. x and y F32 or BF16, strides in elements; codes u32
 * [n_out][n_in / 8]; scales and biases [n_out][n_in / group]. f32 sums of f32 weights; y is rounded
 * once. */
struct brim_w4_direct {
    int64_t n_row, n_in, n_out, x_stride, y_stride;
    int group;
    enum brim_dtype x_dtype, y_dtype, param_dtype;
    const void *x, *codes, *scales, *biases;
    void *y;
    bool matvec;      /* the affine identity, sum(w x) = scale sum(q x) + bias sum(x) per group;
                         at most 8 rows, split 1 */
    int64_t split;    /* partitions of the reduction: n_in / split is a multiple of group */
    bool planes_bf16; /* each partition's sum is rounded to bf16 before they are added in order */
};

/* Same bits for any n_thread. Allocates its scratch. */
brim_status brim_w4_direct_run(const struct brim_w4_direct *w, int n_thread, brim_error *err);

#endif
