/* SPDX-License-Identifier: Apache-2.0
 * 8-bit panels and int8 activations, plain C. */
#include <math.h>

#include "cpu/cpu_init.h"
#include "cpu/linear.h"

/* Weight of input `in` (from the block's first), row `lane`. */
static int q8_code(const int8_t *block, int in, int lane)
{
    int at = brim_x8_order(in);
    return block[at / 4 * (4 * BRIM_PANEL) + lane * 4 + at % 4];
}

static void q8_matvec_c(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                        const float *x, int64_t x_stride, int n_row, float *y, int64_t y_stride)
{
    for (int row = 0; row < n_row; row++) {
        float total[BRIM_PANEL] = {0};
        for (int64_t in = in_begin; in < in_end; in += 32) {
            const int8_t *block = brim_q8_codes(w, in);
            float scale[BRIM_PANEL], part[BRIM_PANEL] = {0};
            brim_dtype_to_f32(BRIM_DTYPE_F16, brim_q8_scales(w, in), BRIM_PANEL, scale);
            const float *xb = x + row * x_stride + (in - in_begin);
            for (int k = 0; k < 32; k++)
                for (int lane = 0; lane < BRIM_PANEL; lane++)
                    part[lane] += (float)q8_code(block, k, lane) * xb[k];
            for (int lane = 0; lane < BRIM_PANEL; lane++) total[lane] += scale[lane] * part[lane];
        }
        for (int lane = 0; lane < BRIM_PANEL; lane++) y[row * y_stride + lane] = total[lane];
    }
}

static void q8_unpack_c(const struct brim_panel *w, int64_t in_begin, int64_t in_end, float *out)
{
    for (int64_t in = in_begin; in < in_end; in += 32) {
        const int8_t *block = brim_q8_codes(w, in);
        float scale[BRIM_PANEL];
        brim_dtype_to_f32(BRIM_DTYPE_F16, brim_q8_scales(w, in), BRIM_PANEL, scale);
        for (int k = 0; k < 32; k++, out += BRIM_PANEL)
            for (int lane = 0; lane < BRIM_PANEL; lane++)
                out[lane] = scale[lane] * (float)q8_code(block, k, lane);
    }
}

static void q8_x8_c(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                    const uint8_t *tile, int n_row, float *y, int64_t y_stride)
{
    for (int row = 0; row < n_row; row++) {
        float total[BRIM_PANEL] = {0};
        for (int64_t in = in_begin; in < in_end; in += 32) {
            const int8_t *block = brim_q8_codes(w, in);
            float scale[BRIM_PANEL];
            brim_dtype_to_f32(BRIM_DTYPE_F16, brim_q8_scales(w, in), BRIM_PANEL, scale);
            struct brim_x8_record x = brim_x8_record_at(tile, n_row, (in - in_begin) / 32);
            for (int lane = 0; lane < BRIM_PANEL; lane++) {
                int32_t dot = 0;
                for (int k = 0; k < 32; k++)
                    dot += q8_code(block, k, lane) * x.q[row * 32 + brim_x8_order(k)];
                total[lane] += scale[lane] * ((float)dot * x.scale[row]);
            }
        }
        for (int lane = 0; lane < BRIM_PANEL; lane++) y[row * y_stride + lane] = total[lane];
    }
}

/* The largest magnitude m becomes 127. Below 2^-100, 127 / m could overflow: such a group counts as
 * zero. Magnitudes are compared as integers, where NaN is above infinity. */
static void x_quantize_c(const float *x, int64_t x_stride, int n_row, int64_t n_group,
                         uint8_t *tile)
{
    for (int64_t g = 0; g < n_group; g++) {
        struct brim_x8_out out = brim_x8_out_at(tile, n_row, g);
        for (int row = 0; row < n_row; row++) {
            const float *xg = x + row * x_stride + g * BRIM_X8_GROUP;
            uint32_t max_bits = 0;
            for (int k = 0; k < BRIM_X8_GROUP; k++) {
                uint32_t bits = brim_f32_bits(xg[k]) & 0x7FFFFFFF;
                if (bits > max_bits) max_bits = bits;
            }
            float max = brim_f32_from_bits(max_bits), scale, inverse;
            if (max_bits >= 0x7F800000) {
                scale = NAN;
                inverse = 0;
            } else {
                scale = max < 0x1p-100f ? 0 : max / 127.0f;
                inverse = max < 0x1p-100f ? 0 : 127.0f / max;
            }
            int32_t sum = 0;
            for (int k = 0; k < BRIM_X8_GROUP; k++) {
                int32_t q = inverse > 0 ? (int32_t)rintf(xg[k] * inverse) : 0;
                out.q[row * BRIM_X8_GROUP + brim_x8_order(k)] = (int8_t)q;
                sum += q;
            }
            out.scale[row] = scale;
            out.sum[row] = scale * (float)sum;
            out.code_sum[row] = sum;
        }
    }
}

void brim_cpu_init_q8_c(struct brim_cpu_ops *ops)
{
    ops->q8_matvec = q8_matvec_c;
    ops->q8_unpack = q8_unpack_c;
    ops->q8_x8 = q8_x8_c;
    ops->x8_rows = 4;
    ops->x_quantize = x_quantize_c;
}
