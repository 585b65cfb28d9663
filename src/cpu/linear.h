/* SPDX-License-Identifier: Apache-2.0
 * Matrices as the CPU kernels read them, and y = x W^T over them.
 *
 * Every kind is kept in panels of 16 output rows (the last one padded with zero rows), so that one
 * aligned vector load serves 16, 8 or 4 rows on AVX-512, AVX2 or NEON: one layout for all tiers.
 *   W4     per panel and group of 32, 64 or 128 inputs: scales[16], biases[16] in the file's dtype,
 *          then group/8 vectors of 16 u32; lane r of vector j holds inputs 8j..8j+7 of row r, four
 *          bits each, least significant first (the word order of MLX)
 *   Q8     per panel: f16 scales[n_in/32][16], padded to 64 bytes; then per block of 32 inputs 8
 *          vectors of 16 x 4 int8: vector v holds the inputs with brim_x8_order in 4v..4v+3
 *   DENSE  per panel: [n_in][16] elements in the file's dtype
 * No conversion narrows: Q4_0 and Q4_1 become W4 with f16 (or, where f16 could not hold -8 d, f32)
 * scales and biases. */
#ifndef BRIM_CPU_LINEAR_H
#define BRIM_CPU_LINEAR_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/pool.h"
#include "base/status.h"
#include "cpu/cpu_ops.h"
#include "tensor/weight.h"

enum { BRIM_PANEL = 16 };

enum brim_linear_kind { BRIM_LINEAR_DENSE, BRIM_LINEAR_W4, BRIM_LINEAR_Q8 };

/* How a product is computed. Only benchmarks ask for anything but the default. */
enum brim_matmul_level {
    BRIM_MATMUL_SPLIT_K = 0, /* tiled; the reduction is split when output tiles are few */
    BRIM_MATMUL_TILED = 1,   /* weights unpacked once for many rows */
    BRIM_MATMUL_MATVEC = 2,  /* one row after the other by the matvec kernel */
    BRIM_MATMUL_DENSE = 3    /* weights dequantized to f32 when packed */
};

struct brim_linear {
    enum brim_linear_kind kind;
    enum brim_matmul_level level;
    enum brim_dtype dtype; /* DENSE: elements; W4: scales and biases; Q8: F16 */
    int64_t n_out, n_in, n_panel;
    int group;          /* W4: 32, 64, 128; Q8: 32; DENSE: 0 */
    size_t panel_bytes; /* multiple of 64 */
    uint8_t *panels;    /* n_panel * panel_bytes, 64-byte aligned */
    bool owns_panels;   /* false: they live in an arena */
    float *bias;        /* additive, [n_out], brim_alloc, owned, or NULL: the caller sets it */
};

/* Repack `n_part` matrices of equal n_in, one after the other along n_out, into one (fused QKV or
 * gate and up). Parts of different kinds or groups are allowed only if n_part == 1; the caller asks
 * brim_linear_can_fuse first. Scales and biases must be finite: otherwise BRIM_E_NOT_FINITE, with
 * `name` and the group in the text. On failure *out is zeroed. Runs on the pool. */
brim_status brim_linear_pack(struct brim_linear *out, const struct brim_weight *parts, int n_part,
                             const char *name, struct brim_pool *pool, brim_error *err);
/* The same for another level; the level also decides how brim_linear_run computes. */
brim_status brim_linear_pack_level(struct brim_linear *out, const struct brim_weight *parts,
                                   int n_part, const char *name, enum brim_matmul_level level,
                                   struct brim_pool *pool, brim_error *err);
/* The same with the panels in `arena` (NULL: on their own), which must outlive *out. */
brim_status brim_linear_pack_in(struct brim_linear *out, const struct brim_weight *parts,
                                int n_part, const char *name, enum brim_matmul_level level,
                                struct brim_arena *arena, struct brim_pool *pool, brim_error *err);
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

/* ---- layout, shared with the kernels --------------------------------------------------------- */

/* Bytes of one group of a W4 panel. */
static inline size_t brim_w4_group_bytes(enum brim_dtype dtype, int group)
{
    return BRIM_PANEL * (2 * brim_dtype_bytes(dtype) + (size_t)group / 2);
}

/* Q8: f16 scales of the block at input `in`, and its codes. */
static inline const uint8_t *brim_q8_scales(const struct brim_panel *w, int64_t in)
{
    return w->data + (size_t)(in / 32) * BRIM_PANEL * 2;
}

static inline size_t brim_q8_scale_bytes(int64_t n_in)
{
    return ((size_t)(n_in / 32) * BRIM_PANEL * 2 + 63) / 64 * 64;
}

static inline const int8_t *brim_q8_codes(const struct brim_panel *w, int64_t in)
{
    return (const int8_t *)w->data + brim_q8_scale_bytes(w->n_in) + (size_t)in * BRIM_PANEL;
}

/* Where input k of a group of 32 stands in a record of int8 activations. Even inputs of eight come
 * before odd ones, as the low nibbles of a code word's bytes come before the high ones. */
static inline int brim_x8_order(int k)
{
    return k / 8 * 8 + k % 2 * 4 + k % 8 / 2;
}

enum { BRIM_X8_RECORD = BRIM_X8_GROUP + 12 }; /* bytes per row and group */

/* The record of group g in a tile of n_row rows. */
struct brim_x8_record {
    const int8_t *q;          /* [n_row][32] */
    const float *scale, *sum; /* [n_row] */
    const int32_t *code_sum;  /* [n_row] */
};

static inline struct brim_x8_record brim_x8_record_at(const uint8_t *tile, int n_row, int64_t g)
{
    const uint8_t *at = tile + (size_t)g * (size_t)n_row * BRIM_X8_RECORD;
    const float *scale = (const float *)(const void *)(at + n_row * BRIM_X8_GROUP);
    return (struct brim_x8_record){(const int8_t *)at, scale, scale + n_row,
                                   (const int32_t *)(const void *)(scale + 2 * n_row)};
}

/* The same, to write. */
struct brim_x8_out {
    int8_t *q;
    float *scale, *sum;
    int32_t *code_sum;
};

static inline struct brim_x8_out brim_x8_out_at(uint8_t *tile, int n_row, int64_t g)
{
    uint8_t *at = tile + (size_t)g * (size_t)n_row * BRIM_X8_RECORD;
    float *scale = (float *)(void *)(at + n_row * BRIM_X8_GROUP);
    return (struct brim_x8_out){(int8_t *)at, scale, scale + n_row,
                                (int32_t *)(void *)(scale + 2 * n_row)};
}

static inline struct brim_panel brim_linear_panel(const struct brim_linear *linear, int64_t index)
{
    return (struct brim_panel){.data = linear->panels + (size_t)index * linear->panel_bytes,
                               .dtype = linear->dtype,
                               .group = linear->group,
                               .n_in = linear->n_in};
}

#endif
