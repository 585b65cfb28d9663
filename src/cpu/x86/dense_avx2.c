/* SPDX-License-Identifier: Apache-2.0
 * Dense panels and the product of unpacked panels, AVX2. */
#include "cpu/cpu_init.h"
#include "cpu/x86/panel_avx2.h"
#include "cpu/x86/x_pack.h"

enum { MATVEC_ROWS = 4, GEMM_ROWS = 6 };

ALWAYS_INLINE void matvec_rows(const struct brim_panel *w, const enum brim_dtype dtype,
                               int64_t in_begin, int64_t in_end, const float *x, int64_t x_stride,
                               const int n_row, float *y, int64_t y_stride)
{
    size_t element = brim_dtype_bytes(dtype), step = BRIM_PANEL * element;
    const uint8_t *at = w->data + (size_t)in_begin * step;
    __m256 total[MATVEC_ROWS][2];
#pragma GCC unroll 4
    for (int row = 0; row < n_row; row++) total[row][0] = total[row][1] = _mm256_setzero_ps();
    for (int64_t k = 0; k < in_end - in_begin; k++, at += step) {
        _mm_prefetch((const char *)at + 1024, _MM_HINT_T0);
        __m256 low = load8(dtype, at), high = load8(dtype, at + HALF * element);
#pragma GCC unroll 4
        for (int row = 0; row < n_row; row++) {
            __m256 value = _mm256_set1_ps(x[row * x_stride + k]);
            total[row][0] = _mm256_fmadd_ps(low, value, total[row][0]);
            total[row][1] = _mm256_fmadd_ps(high, value, total[row][1]);
        }
    }
#pragma GCC unroll 4
    for (int row = 0; row < n_row; row++) {
        _mm256_storeu_ps(y + row * y_stride, total[row][0]);
        _mm256_storeu_ps(y + row * y_stride + HALF, total[row][1]);
    }
}

static void dense_matvec_avx2(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                              const float *x, int64_t x_stride, int n_row, float *y,
                              int64_t y_stride)
{
    for (int row = 0; row < n_row; row += MATVEC_ROWS) {
        int n = n_row - row < MATVEC_ROWS ? n_row - row : MATVEC_ROWS;
        const float *xr = x + row * x_stride;
        float *yr = y + row * y_stride;
#define BODY_F32(c) matvec_rows(w, BRIM_DTYPE_F32, in_begin, in_end, xr, x_stride, c, yr, y_stride)
#define BODY_F16(c) matvec_rows(w, BRIM_DTYPE_F16, in_begin, in_end, xr, x_stride, c, yr, y_stride)
#define BODY_BF16(c) \
    matvec_rows(w, BRIM_DTYPE_BF16, in_begin, in_end, xr, x_stride, c, yr, y_stride)
        if (w->dtype == BRIM_DTYPE_F32) {
            WITH_ROWS_4(n, BODY_F32)
        } else if (w->dtype == BRIM_DTYPE_F16) {
            WITH_ROWS_4(n, BODY_F16)
        } else {
            WITH_ROWS_4(n, BODY_BF16)
        }
    }
}

static void dense_unpack_avx2(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                              float *out)
{
    size_t element = brim_dtype_bytes(w->dtype);
    const uint8_t *at = w->data + (size_t)in_begin * BRIM_PANEL * element;
    int64_t n = (in_end - in_begin) * 2;
    for (int64_t i = 0; i < n; i++, at += HALF * element, out += HALF)
        _mm256_storeu_ps(out, load8(w->dtype, at));
}

/* 2 x 6 sums, two vectors of weights and a broadcast fill the sixteen registers. */
ALWAYS_INLINE void gemm_tile(const float *w, int64_t n_k, const float *x, const int n_row, float *y,
                             int64_t y_stride, int accumulate)
{
    __m256 total[GEMM_ROWS][2];
#pragma GCC unroll 6
    for (int row = 0; row < n_row; row++) {
        float *to = y + row * y_stride;
        total[row][0] = accumulate ? _mm256_loadu_ps(to) : _mm256_setzero_ps();
        total[row][1] = accumulate ? _mm256_loadu_ps(to + HALF) : _mm256_setzero_ps();
    }
    for (int64_t k = 0; k < n_k; k++, w += BRIM_PANEL, x += n_row) {
        __m256 low = _mm256_loadu_ps(w), high = _mm256_loadu_ps(w + HALF);
#pragma GCC unroll 6
        for (int row = 0; row < n_row; row++) {
            __m256 value = _mm256_set1_ps(x[row]);
            total[row][0] = _mm256_fmadd_ps(low, value, total[row][0]);
            total[row][1] = _mm256_fmadd_ps(high, value, total[row][1]);
        }
    }
#pragma GCC unroll 6
    for (int row = 0; row < n_row; row++) {
        _mm256_storeu_ps(y + row * y_stride, total[row][0]);
        _mm256_storeu_ps(y + row * y_stride + HALF, total[row][1]);
    }
}

static void gemm_avx2(const float *w, int64_t w_stride, int n_panel, int64_t n_k, const float *x,
                      int n_row, float *y, int64_t y_stride, int accumulate)
{
    for (int panel = 0; panel < n_panel; panel++, w += w_stride, y += BRIM_PANEL) {
#define BODY(n) gemm_tile(w, n_k, x, n, y, y_stride, accumulate)
        WITH_ROWS_6(n_row, BODY)
#undef BODY
    }
}

void brim_cpu_init_dense_avx2(struct brim_cpu_ops *ops)
{
    ops->dense_matvec = dense_matvec_avx2;
    ops->dense_unpack = dense_unpack_avx2;
    ops->x_pack = x_pack_x86;
    ops->gemm = gemm_avx2;
    ops->gemm_rows = GEMM_ROWS;
}
