/* SPDX-License-Identifier: Apache-2.0
 * 4-bit panels, NEON, f32 activations. Products with int8 activations are in x8_neon.c. */
#include "cpu/arm/panel_neon.h"
#include "cpu/cpu_init.h"

enum { ROWS = 4 };

/* Code j of every word, as float. */
ALWAYS_INLINE float32x4_t code_f32(uint32x4_t words, int j)
{
    return vcvtq_f32_u32(vandq_u32(vshlq_u32(words, vdupq_n_s32(-4 * j)), vdupq_n_u32(15)));
}

/* One quarter of the panel by the affine identity per group, see w4_ref.c. */
ALWAYS_INLINE void matvec_rows(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                               const float *x, int64_t x_stride, const float *x_sum,
                               int64_t sum_stride, const int n_row, int quarter, float *y,
                               int64_t y_stride)
{
    size_t element = brim_dtype_bytes(w->dtype), lane = (size_t)(QUARTER * quarter);
    size_t group_bytes = brim_w4_group_bytes(w->dtype, w->group);
    const uint8_t *at = w->data + (size_t)(in_begin / w->group) * group_bytes;
    float32x4_t total[ROWS];
    for (int row = 0; row < n_row; row++) total[row] = vdupq_n_f32(0);
    for (int64_t in = in_begin; in < in_end; in += w->group, at += group_bytes, x_sum++) {
        const uint8_t *codes = at + 2 * BRIM_PANEL * element + 4 * lane;
        float32x4_t part[ROWS][2]; /* even and odd inputs */
        for (int row = 0; row < n_row; row++) part[row][0] = part[row][1] = vdupq_n_f32(0);
        for (int v = 0; v < w->group / 8; v++, codes += 64, x += 8) {
            uint32x4_t words = load_words(codes);
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) {
                float32x4_t q = code_f32(words, j);
#pragma GCC unroll 4
                for (int row = 0; row < n_row; row++)
                    part[row][j % 2] = vfmaq_n_f32(part[row][j % 2], q, x[row * x_stride + j]);
            }
        }
        float32x4_t scale = load4(w->dtype, at + lane * element);
        float32x4_t bias = load4(w->dtype, at + (BRIM_PANEL + lane) * element);
        for (int row = 0; row < n_row; row++) {
            total[row] = vfmaq_f32(total[row], scale, vaddq_f32(part[row][0], part[row][1]));
            total[row] = vfmaq_n_f32(total[row], bias, x_sum[row * sum_stride]);
        }
    }
    for (int row = 0; row < n_row; row++) vst1q_f32(y + row * y_stride + lane, total[row]);
}

static void w4_matvec_neon(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                           const float *x, int64_t x_stride, const float *x_sum, int64_t sum_stride,
                           int n_row, float *y, int64_t y_stride)
{
    for (int row = 0; row < n_row; row += ROWS) {
        int n = n_row - row < ROWS ? n_row - row : ROWS;
        const float *xr = x + row * x_stride, *sum = x_sum + row * sum_stride;
        float *yr = y + row * y_stride;
        for (int quarter = 0; quarter < 4; quarter++) {
#define BODY(c) \
    matvec_rows(w, in_begin, in_end, xr, x_stride, sum, sum_stride, c, quarter, yr, y_stride)
            WITH_ROWS_4(n, BODY)
#undef BODY
        }
    }
}

static void w4_unpack_neon(const struct brim_panel *w, int64_t in_begin, int64_t in_end, float *out)
{
    size_t element = brim_dtype_bytes(w->dtype);
    size_t group_bytes = brim_w4_group_bytes(w->dtype, w->group);
    const uint8_t *at = w->data + (size_t)(in_begin / w->group) * group_bytes;
    for (int64_t in = in_begin; in < in_end; in += w->group, at += group_bytes) {
        for (size_t lane = 0; lane < BRIM_PANEL; lane += QUARTER) {
            float32x4_t scale = load4(w->dtype, at + lane * element);
            float32x4_t bias = load4(w->dtype, at + (BRIM_PANEL + lane) * element);
            const uint8_t *codes = at + 2 * BRIM_PANEL * element + 4 * lane;
            float *to = out + lane;
            for (int v = 0; v < w->group / 8; v++, codes += 64, to += 8 * BRIM_PANEL) {
                uint32x4_t words = load_words(codes);
#pragma GCC unroll 8
                for (int j = 0; j < 8; j++)
                    vst1q_f32(to + j * BRIM_PANEL, vfmaq_f32(bias, scale, code_f32(words, j)));
            }
        }
        out += w->group * BRIM_PANEL;
    }
}

void brim_cpu_init_w4_neon(struct brim_cpu_ops *ops)
{
    ops->w4_matvec = w4_matvec_neon;
    ops->w4_unpack = w4_unpack_neon;
}
