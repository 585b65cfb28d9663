/* SPDX-License-Identifier: Apache-2.0
 * Dense panels and the product of unpacked panels, NEON. */
#include "cpu/arm/panel_neon.h"
#include "cpu/cpu_init.h"

enum { ROWS = 4, GEMM_ROWS = 6 };

ALWAYS_INLINE void matvec_rows(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                               const float *x, int64_t x_stride, const int n_row, float *y,
                               int64_t y_stride)
{
    size_t element = brim_dtype_bytes(w->dtype), step = BRIM_PANEL * element;
    const uint8_t *at = w->data + (size_t)in_begin * step;
    float32x4_t total[ROWS][4];
    for (int row = 0; row < n_row; row++)
        for (int i = 0; i < 4; i++) total[row][i] = vdupq_n_f32(0);
    for (int64_t k = 0; k < in_end - in_begin; k++, at += step) {
        float32x4_t weight[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            weight[i] = load4(w->dtype, at + (size_t)(QUARTER * i) * element);
#pragma GCC unroll 4
        for (int row = 0; row < n_row; row++)
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                total[row][i] = vfmaq_n_f32(total[row][i], weight[i], x[row * x_stride + k]);
    }
    for (int row = 0; row < n_row; row++)
        for (int i = 0; i < 4; i++) vst1q_f32(y + row * y_stride + QUARTER * i, total[row][i]);
}

static void dense_matvec_neon(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                              const float *x, int64_t x_stride, int n_row, float *y,
                              int64_t y_stride)
{
    for (int row = 0; row < n_row; row += ROWS) {
        int n = n_row - row < ROWS ? n_row - row : ROWS;
        const float *xr = x + row * x_stride;
        float *yr = y + row * y_stride;
#define BODY(c) matvec_rows(w, in_begin, in_end, xr, x_stride, c, yr, y_stride)
        WITH_ROWS_4(n, BODY)
#undef BODY
    }
}

static void dense_unpack_neon(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                              float *out)
{
    size_t element = brim_dtype_bytes(w->dtype);
    const uint8_t *at = w->data + (size_t)in_begin * BRIM_PANEL * element;
    for (int64_t i = 0; i < (in_end - in_begin) * 4; i++, at += QUARTER * element, out += QUARTER)
        vst1q_f32(out, load4(w->dtype, at));
}

/* 4 x 6 sums, four vectors of weights and a value of x: 29 of 32 registers. */
ALWAYS_INLINE void gemm_tile(const float *w, int64_t n_k, const float *x, const int n_row, float *y,
                             int64_t y_stride, int accumulate)
{
    float32x4_t total[GEMM_ROWS][4];
#pragma GCC unroll 6
    for (int row = 0; row < n_row; row++)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            total[row][i] =
                accumulate ? vld1q_f32(y + row * y_stride + QUARTER * i) : vdupq_n_f32(0);
    for (int64_t k = 0; k < n_k; k++, w += BRIM_PANEL, x += n_row) {
        float32x4_t weight[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) weight[i] = vld1q_f32(w + QUARTER * i);
#pragma GCC unroll 6
        for (int row = 0; row < n_row; row++)
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                total[row][i] = vfmaq_n_f32(total[row][i], weight[i], x[row]);
    }
#pragma GCC unroll 6
    for (int row = 0; row < n_row; row++)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) vst1q_f32(y + row * y_stride + QUARTER * i, total[row][i]);
}

static void gemm_neon(const float *w, int64_t w_stride, int n_panel, int64_t n_k, const float *x,
                      int n_row, float *y, int64_t y_stride, int accumulate)
{
    for (int panel = 0; panel < n_panel; panel++, w += w_stride, y += BRIM_PANEL) {
#define BODY(n) gemm_tile(w, n_k, x, n, y, y_stride, accumulate)
        WITH_ROWS_6(n_row, BODY)
#undef BODY
    }
}

void brim_cpu_init_dense_neon(struct brim_cpu_ops *ops)
{
    ops->dense_matvec = dense_matvec_neon;
    ops->dense_unpack = dense_unpack_neon;
    ops->gemm = gemm_neon;
    ops->gemm_rows = GEMM_ROWS;
}
