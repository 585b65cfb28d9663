/* SPDX-License-Identifier: Apache-2.0
 * Panels times int8 activations. The including file defines
 *   DOT4(acc, a, b)  acc[i] += a[4i] b[4i] + ... + a[4i+3] b[4i+3] over int8x16_t
 *   NAME(stem)       the names of this build */
#include "cpu/arm/panel_neon.h"
#include "cpu/cpu_init.h"

enum { ROWS = 4 };

/* Add one group of 32 of one row: codes q[8] of four lanes against its record. */
ALWAYS_INLINE float32x4_t group_dot(const int8x16_t *q, const int8_t *xq, float scale)
{
    int32x4_t dot = vdupq_n_s32(0);
#pragma GCC unroll 8
    for (int v = 0; v < 8; v++) dot = DOT4(dot, q[v], broadcast4(xq + 4 * v));
    return vmulq_n_f32(vcvtq_f32_s32(dot), scale);
}

static void NAME(w4_x8)(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                        const uint8_t *tile, int n_row, float *y, int64_t y_stride)
{
    size_t element = brim_dtype_bytes(w->dtype);
    size_t group_bytes = brim_w4_group_bytes(w->dtype, w->group);
    for (size_t lane = 0; lane < BRIM_PANEL; lane += QUARTER) {
        const uint8_t *at = w->data + (size_t)(in_begin / w->group) * group_bytes;
        const uint8_t *record = tile;
        float32x4_t total[ROWS];
        for (int row = 0; row < n_row; row++) total[row] = vdupq_n_f32(0);
        for (int64_t in = in_begin; in < in_end; in += w->group, at += group_bytes) {
            float32x4_t scale = load4(w->dtype, at + lane * element);
            float32x4_t bias = load4(w->dtype, at + (BRIM_PANEL + lane) * element);
            const uint8_t *codes = at + 2 * BRIM_PANEL * element + 4 * lane;
            for (int part = 0; part < w->group; part += 32, codes += 256) {
                int8x16_t q[8];
                for (int v = 0; v < 4; v++) {
                    uint8x16_t words = vld1q_u8(codes + 64 * v);
                    q[2 * v] = vreinterpretq_s8_u8(vandq_u8(words, vdupq_n_u8(15)));
                    q[2 * v + 1] = vreinterpretq_s8_u8(vshrq_n_u8(words, 4));
                }
                const struct brim_x8_record x = brim_x8_record_at(record, n_row, 0);
                for (int row = 0; row < n_row; row++) {
                    float32x4_t dot = group_dot(q, x.q + row * BRIM_X8_GROUP, x.scale[row]);
                    total[row] = vfmaq_f32(total[row], scale, dot);
                    total[row] = vfmaq_n_f32(total[row], bias, x.sum[row]);
                }
                record += n_row * BRIM_X8_RECORD;
            }
        }
        for (int row = 0; row < n_row; row++) vst1q_f32(y + row * y_stride + lane, total[row]);
    }
}

static void NAME(q8_x8)(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                        const uint8_t *tile, int n_row, float *y, int64_t y_stride)
{
    for (size_t lane = 0; lane < BRIM_PANEL; lane += QUARTER) {
        const uint8_t *record = tile;
        float32x4_t total[ROWS];
        for (int row = 0; row < n_row; row++) total[row] = vdupq_n_f32(0);
        for (int64_t in = in_begin; in < in_end; in += 32, record += n_row * BRIM_X8_RECORD) {
            const int8_t *codes = brim_q8_codes(w, in) + 4 * lane;
            int8x16_t q[8];
            for (int v = 0; v < 8; v++) q[v] = vld1q_s8(codes + 64 * v);
            float32x4_t scale = load4(BRIM_DTYPE_F16, brim_q8_scales(w, in) + 2 * lane);
            const struct brim_x8_record x = brim_x8_record_at(record, n_row, 0);
            for (int row = 0; row < n_row; row++)
                total[row] = vfmaq_f32(total[row], scale,
                                       group_dot(q, x.q + row * BRIM_X8_GROUP, x.scale[row]));
        }
        for (int row = 0; row < n_row; row++) vst1q_f32(y + row * y_stride + lane, total[row]);
    }
}

void NAME(brim_cpu_init_x8)(struct brim_cpu_ops *ops)
{
    ops->w4_x8 = NAME(w4_x8);
    ops->q8_x8 = NAME(q8_x8);
    ops->x8_rows = ROWS;
}
