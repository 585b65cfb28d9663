/* SPDX-License-Identifier: Apache-2.0
 * Matrices as the CPU kernels read them, and y = x W^T over them.
 *
 * Every kind is kept in panels of 16 output rows (the last one padded with zero rows), so that one
 * aligned vector load serves 16, 8 or 4 rows on AVX-512, AVX2 or NEON: one layout for all tiers.
 *   W4     per panel and group of 32, 64 or 128 inputs: scales[16], biases[16] in the file's dtype,
 *          then group/8 vectors of 16 u32; lane r of vector j holds inputs 8j..8j+7 of row r, four
 *          bits each, least significant first (the word order of MLX)
 *   Q8     per panel and block of 32: scales f16[16], then 8 vectors of 16 x 4 int8
 *   DENSE  per panel: [n_in][16] elements in the file's dtype
 * No conversion narrows: Q4_0 and Q4_1 become W4 with f16 (or, where f16 could not hold -8 d, f32)
 * scales and biases. */
#ifndef BRIM_CPU_LINEAR_H
#define BRIM_CPU_LINEAR_H

#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "base/status.h"
#include "cpu/cpu_ops.h"
#include "tensor/weight.h"

enum { BRIM_PANEL = 16 };

enum brim_linear_kind { BRIM_LINEAR_DENSE, BRIM_LINEAR_W4, BRIM_LINEAR_Q8 };

struct brim_linear {
    enum brim_linear_kind kind;
    enum brim_dtype dtype; /* DENSE: elements; W4: scales and biases; Q8: F16 */
    int64_t n_out, n_in, n_panel;
    int group;
    size_t panel_bytes;
    uint8_t *panels; /* n_panel * panel_bytes, 64-byte aligned, owned */
    float *bias;     /* additive, [n_out], owned, or NULL */
};

/* Repack `n_part` matrices of equal n_in, one after the other along n_out, into one (fused QKV or
 * gate and up). Parts of different kinds or groups are allowed only if n_part == 1; the caller asks
 * brim_linear_can_fuse first. Scales and biases must be finite: otherwise BRIM_E_NOT_FINITE, with
 * `name` and the group in the text. On failure *out is zeroed. Runs on the pool. */
brim_status brim_linear_pack(struct brim_linear *out, const struct brim_weight *parts, int n_part,
                             const char *name, struct brim_pool *pool, brim_error *err);
int brim_linear_can_fuse(const struct brim_weight *parts, int n_part);
void brim_linear_free(struct brim_linear *linear);
/* Row `row` as float out[n_in]: the embedding gather, and the inverse of packing. */
void brim_linear_row_f32(const struct brim_linear *linear, int64_t row, float *out);

/* How activations enter a product. */
enum brim_activation_mode {
    BRIM_ACTIVATIONS_F32 = 0, /* as they are */
    BRIM_ACTIVATIONS_INT8 =
        1 /* quantized per row and group of 32: own error bound, see docs/numerics.md */
};

/* Scratch bytes brim_linear_run needs for up to n_row rows. */
size_t brim_linear_scratch_bytes(const struct brim_linear *linear, int64_t n_row, int n_thread);

/* y[n_row][y_stride] = x[n_row][x_stride] W^T (+ bias). Strides in elements. The result does not
 * depend on the number of threads. x and y must not overlap; n_row == 0 touches nothing. */
void brim_linear_run(const struct brim_cpu_ops *ops, struct brim_pool *pool,
                     const struct brim_linear *linear, enum brim_activation_mode mode,
                     const float *x, int64_t x_stride, int64_t n_row, float *y, int64_t y_stride,
                     void *scratch);

#endif
