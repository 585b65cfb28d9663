/* SPDX-License-Identifier: Apache-2.0
 * 4-bit panels, plain C: the meaning that every tier is compared with. */
#include "cpu/cpu_init.h"
#include "cpu/linear.h"

static const uint8_t *w4_group(const struct brim_panel *w, int64_t in)
{
    return w->data + (size_t)(in / w->group) * brim_w4_group_bytes(w->dtype, w->group);
}

static void load_params(const struct brim_panel *w, const uint8_t *at, float *scale, float *bias)
{
    brim_dtype_to_f32(w->dtype, at, BRIM_PANEL, scale);
    brim_dtype_to_f32(w->dtype, at + BRIM_PANEL * brim_dtype_bytes(w->dtype), BRIM_PANEL, bias);
}

static const uint32_t *group_codes(const struct brim_panel *w, const uint8_t *at)
{
    return (const uint32_t *)(const void *)(at + 2 * BRIM_PANEL * brim_dtype_bytes(w->dtype));
}

/* Affine identity: sum (s q + b) x = s sum(q x) + b sum(x) in each group. */
static void w4_matvec_c(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                        const float *x, int64_t x_stride, const float *x_sum, int64_t sum_stride,
                        int n_row, float *y, int64_t y_stride)
{
    for (int row = 0; row < n_row; row++) {
        float total[BRIM_PANEL] = {0};
        for (int64_t in = in_begin; in < in_end; in += w->group) {
            const uint8_t *at = w4_group(w, in);
            const uint32_t *codes = group_codes(w, at);
            float scale[BRIM_PANEL], bias[BRIM_PANEL], part[BRIM_PANEL] = {0};
            load_params(w, at, scale, bias);
            const float *xg = x + row * x_stride + (in - in_begin);
            for (int k = 0; k < w->group; k++) {
                const uint32_t *word = codes + k / 8 * BRIM_PANEL;
                for (int lane = 0; lane < BRIM_PANEL; lane++)
                    part[lane] += (float)(int32_t)(word[lane] >> (k % 8 * 4) & 15) * xg[k];
            }
            float sum = x_sum[row * sum_stride + (in - in_begin) / w->group];
            for (int lane = 0; lane < BRIM_PANEL; lane++)
                total[lane] += scale[lane] * part[lane] + bias[lane] * sum;
        }
        for (int lane = 0; lane < BRIM_PANEL; lane++) y[row * y_stride + lane] = total[lane];
    }
}

static void w4_unpack_c(const struct brim_panel *w, int64_t in_begin, int64_t in_end, float *out)
{
    for (int64_t in = in_begin; in < in_end; in += w->group) {
        const uint8_t *at = w4_group(w, in);
        const uint32_t *codes = group_codes(w, at);
        float scale[BRIM_PANEL], bias[BRIM_PANEL];
        load_params(w, at, scale, bias);
        for (int k = 0; k < w->group; k++, out += BRIM_PANEL) {
            const uint32_t *word = codes + k / 8 * BRIM_PANEL;
            for (int lane = 0; lane < BRIM_PANEL; lane++)
                out[lane] =
                    scale[lane] * (float)(int32_t)(word[lane] >> (k % 8 * 4) & 15) + bias[lane];
        }
    }
}

static void w4_x8_c(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                    const uint8_t *tile, int n_row, float *y, int64_t y_stride)
{
    for (int row = 0; row < n_row; row++) {
        float total[BRIM_PANEL] = {0};
        for (int64_t in = in_begin; in < in_end; in += BRIM_X8_GROUP) {
            const uint8_t *at = w4_group(w, in);
            const uint32_t *codes = group_codes(w, at) + in % w->group / 8 * BRIM_PANEL;
            float scale[BRIM_PANEL], bias[BRIM_PANEL];
            load_params(w, at, scale, bias);
            struct brim_x8_record x = brim_x8_record_at(tile, n_row, (in - in_begin) / 32);
            int32_t dot[BRIM_PANEL] = {0};
            for (int k = 0; k < BRIM_X8_GROUP; k++) {
                const uint32_t *word = codes + k / 8 * BRIM_PANEL;
                const int8_t q = x.q[row * BRIM_X8_GROUP + brim_x8_order(k)];
                for (int lane = 0; lane < BRIM_PANEL; lane++)
                    dot[lane] += (int32_t)(word[lane] >> (k % 8 * 4) & 15) * q;
            }
            for (int lane = 0; lane < BRIM_PANEL; lane++)
                total[lane] +=
                    scale[lane] * ((float)dot[lane] * x.scale[row]) + bias[lane] * x.sum[row];
        }
        for (int lane = 0; lane < BRIM_PANEL; lane++) y[row * y_stride + lane] = total[lane];
    }
}

void brim_cpu_init_w4_c(struct brim_cpu_ops *ops)
{
    ops->w4_matvec = w4_matvec_c;
    ops->w4_unpack = w4_unpack_c;
    ops->w4_x8 = w4_x8_c;
}
