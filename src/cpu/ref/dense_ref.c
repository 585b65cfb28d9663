/* SPDX-License-Identifier: Apache-2.0
 * Dense panels and the product of unpacked panels, plain C. */
#include <string.h>

#include "cpu/cpu_init.h"
#include "cpu/linear.h"

static const uint8_t *dense_row(const struct brim_panel *w, int64_t in)
{
    return w->data + (size_t)in * BRIM_PANEL * brim_dtype_bytes(w->dtype);
}

static void dense_matvec_c(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                           const float *x, int64_t x_stride, int n_row, float *y, int64_t y_stride)
{
    float total[BRIM_MATVEC_ROWS][BRIM_PANEL];
    memset(total, 0, sizeof total);
    for (int64_t in = in_begin; in < in_end; in++) {
        float weight[BRIM_PANEL];
        brim_dtype_to_f32(w->dtype, dense_row(w, in), BRIM_PANEL, weight);
        for (int row = 0; row < n_row; row++)
            for (int lane = 0; lane < BRIM_PANEL; lane++)
                total[row][lane] += weight[lane] * x[row * x_stride + (in - in_begin)];
    }
    for (int row = 0; row < n_row; row++) memcpy(y + row * y_stride, total[row], sizeof total[row]);
}

static void dense_unpack_c(const struct brim_panel *w, int64_t in_begin, int64_t in_end, float *out)
{
    brim_dtype_to_f32(w->dtype, dense_row(w, in_begin), (size_t)(in_end - in_begin) * BRIM_PANEL,
                      out);
}

static void x_pack_c(const float *x, int64_t x_stride, int n_row, int64_t n_k, float *out)
{
    for (int64_t k = 0; k < n_k; k++)
        for (int row = 0; row < n_row; row++) out[k * n_row + row] = x[row * x_stride + k];
}

static void gemm_c(const float *w, int64_t w_stride, int n_panel, int64_t n_k, const float *x,
                   int n_row, float *y, int64_t y_stride, int accumulate)
{
    for (int panel = 0; panel < n_panel; panel++, w += w_stride, y += BRIM_PANEL) {
        float total[4][BRIM_PANEL];
        memset(total, 0, sizeof total);
        if (accumulate)
            for (int row = 0; row < n_row; row++)
                memcpy(total[row], y + row * y_stride, sizeof total[row]);
        for (int64_t k = 0; k < n_k; k++)
            for (int row = 0; row < n_row; row++)
                for (int lane = 0; lane < BRIM_PANEL; lane++)
                    total[row][lane] += w[k * BRIM_PANEL + lane] * x[k * n_row + row];
        for (int row = 0; row < n_row; row++)
            memcpy(y + row * y_stride, total[row], sizeof total[row]);
    }
}

void brim_cpu_init_dense_c(struct brim_cpu_ops *ops)
{
    ops->dense_matvec = dense_matvec_c;
    ops->dense_unpack = dense_unpack_c;
    ops->x_pack = x_pack_c;
    ops->gemm = gemm_c;
    ops->gemm_rows = 4;
}
