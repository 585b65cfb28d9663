/* SPDX-License-Identifier: Apache-2.0
 * Dense panels and the product of unpacked panels, AVX-512. */
#include "cpu/cpu_init.h"
#include "cpu/x86/panel_avx512.h"
#include "cpu/x86/x_pack.h"

ALWAYS_INLINE void matvec_rows(const struct brim_panel *w, const enum brim_dtype dtype,
                               int64_t in_begin, int64_t in_end, const float *x, int64_t x_stride,
                               const int n_row, float *y, int64_t y_stride)
{
    enum { CHAINS = 2 }; /* as in w4_avx512.c */
    size_t step = BRIM_PANEL * brim_dtype_bytes(dtype);
    const uint8_t *at = w->data + (size_t)in_begin * step;
    __m512 total[BRIM_MATVEC_ROWS * CHAINS];
#pragma GCC unroll 16
    for (int i = 0; i < n_row * CHAINS; i++) total[i] = _mm512_setzero_ps();
    int64_t n = in_end - in_begin, k = 0;
    for (; k + CHAINS <= n; k += CHAINS) {
#pragma GCC unroll 2
        for (int j = 0; j < CHAINS; j++, at += step) {
            _mm_prefetch((const char *)at + 1024, _MM_HINT_T0);
            __m512 weight = load16(dtype, at);
#pragma GCC unroll 8
            for (int row = 0; row < n_row; row++) {
                __m512 *to = &total[row * CHAINS + j % CHAINS];
                *to = _mm512_fmadd_ps(weight, _mm512_set1_ps(x[row * x_stride + k + j]), *to);
            }
        }
    }
    for (; k < n; k++, at += step) {
        __m512 weight = load16(dtype, at);
#pragma GCC unroll 8
        for (int row = 0; row < n_row; row++)
            total[row * CHAINS] =
                _mm512_fmadd_ps(weight, _mm512_set1_ps(x[row * x_stride + k]), total[row * CHAINS]);
    }
#pragma GCC unroll 8
    for (int row = 0; row < n_row; row++) {
        _mm512_storeu_ps(y + row * y_stride,
                         _mm512_add_ps(total[row * CHAINS], total[row * CHAINS + 1]));
    }
}

#define BODY_DTYPE(n, dtype) matvec_rows(w, dtype, in_begin, in_end, x, x_stride, n, y, y_stride)
#define BODY_F32(n) BODY_DTYPE(n, BRIM_DTYPE_F32)
#define BODY_F16(n) BODY_DTYPE(n, BRIM_DTYPE_F16)
#define BODY_BF16(n) BODY_DTYPE(n, BRIM_DTYPE_BF16)

static void dense_matvec_avx512(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                                const float *x, int64_t x_stride, int n_row, float *y,
                                int64_t y_stride)
{
    if (w->dtype == BRIM_DTYPE_F32) {
        WITH_ROWS_8(n_row, BODY_F32)
    } else if (w->dtype == BRIM_DTYPE_F16) {
        WITH_ROWS_8(n_row, BODY_F16)
    } else {
        WITH_ROWS_8(n_row, BODY_BF16)
    }
}

static void dense_unpack_avx512(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                                float *out)
{
    size_t step = BRIM_PANEL * brim_dtype_bytes(w->dtype);
    const uint8_t *at = w->data + (size_t)in_begin * step;
    for (int64_t in = in_begin; in < in_end; in++, at += step, out += BRIM_PANEL)
        _mm512_storeu_ps(out, load16(w->dtype, at));
}

/* Up to 2 x 12 sums in registers; an input costs two loads of weights and a broadcast per row. */
ALWAYS_INLINE void gemm_tile(const float *w, int64_t w_stride, const int n_panel, int64_t n_k,
                             const float *x, const int n_row, float *y, int64_t y_stride,
                             int accumulate)
{
    __m512 total[2 * BRIM_TILE_ROWS];
#pragma GCC unroll 12
    for (int row = 0; row < n_row; row++) {
#pragma GCC unroll 2
        for (int p = 0; p < n_panel; p++)
            total[row * n_panel + p] = accumulate
                                           ? _mm512_loadu_ps(y + row * y_stride + p * BRIM_PANEL)
                                           : _mm512_setzero_ps();
    }
    for (int64_t k = 0; k < n_k; k++, w += BRIM_PANEL, x += n_row) {
        __m512 weight[2];
#pragma GCC unroll 2
        for (int p = 0; p < n_panel; p++) weight[p] = _mm512_loadu_ps(w + p * w_stride);
#pragma GCC unroll 12
        for (int row = 0; row < n_row; row++) {
            __m512 value = _mm512_set1_ps(x[row]);
#pragma GCC unroll 2
            for (int p = 0; p < n_panel; p++)
                total[row * n_panel + p] =
                    _mm512_fmadd_ps(weight[p], value, total[row * n_panel + p]);
        }
    }
#pragma GCC unroll 12
    for (int row = 0; row < n_row; row++) {
#pragma GCC unroll 2
        for (int p = 0; p < n_panel; p++)
            _mm512_storeu_ps(y + row * y_stride + p * BRIM_PANEL, total[row * n_panel + p]);
    }
}

static void gemm_avx512(const float *w, int64_t w_stride, int n_panel, int64_t n_k, const float *x,
                        int n_row, float *y, int64_t y_stride, int accumulate)
{
#define BODY(n) gemm_tile(w, w_stride, 2, n_k, x, n, y, y_stride, accumulate)
    if (n_panel == 2) WITH_ROWS_12(n_row, BODY)
#undef BODY
#define BODY(n) gemm_tile(w, w_stride, 1, n_k, x, n, y, y_stride, accumulate)
    if (n_panel == 1) WITH_ROWS_12(n_row, BODY)
#undef BODY
}

void brim_cpu_init_dense_avx512(struct brim_cpu_ops *ops)
{
    ops->dense_matvec = dense_matvec_avx512;
    ops->dense_unpack = dense_unpack_avx512;
    ops->x_pack = x_pack_x86;
    ops->gemm = gemm_avx512;
    ops->gemm_rows = 12;
}
