/* SPDX-License-Identifier: Apache-2.0
 * 8-bit panels with f32 activations, and the quantizer of activations, NEON. */
#include "cpu/arm/panel_neon.h"
#include "cpu/cpu_init.h"

enum { ROWS = 4 };

/* Byte b of every lane as an integer times 2^24, then as float; 2^-24 goes into the scale. */
ALWAYS_INLINE float32x4_t byte_f32(uint32x4_t words, int b)
{
    uint32x4_t top = vandq_u32(vshlq_u32(words, vdupq_n_s32(24 - 8 * b)), vdupq_n_u32(0xFF000000u));
    return vcvtq_f32_s32(vreinterpretq_s32_u32(top));
}

ALWAYS_INLINE float32x4_t block_scale(const struct brim_panel *w, int64_t in, size_t lane)
{
    return vmulq_n_f32(load4(BRIM_DTYPE_F16, brim_q8_scales(w, in) + 2 * lane), 0x1p-24f);
}

/* Input (from 0) that byte b of vector v of a block holds: the inverse of brim_x8_order. */
ALWAYS_INLINE int input_of(int v, int b)
{
    return v / 2 * 8 + 2 * b + v % 2;
}

ALWAYS_INLINE void matvec_rows(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                               const float *x, int64_t x_stride, const int n_row, int quarter,
                               float *y, int64_t y_stride)
{
    size_t lane = (size_t)(QUARTER * quarter);
    float32x4_t total[ROWS];
    for (int row = 0; row < n_row; row++) total[row] = vdupq_n_f32(0);
    for (int64_t in = in_begin; in < in_end; in += 32, x += 32) {
        const uint8_t *codes = (const uint8_t *)brim_q8_codes(w, in) + 4 * lane;
        float32x4_t part[ROWS][2];
        for (int row = 0; row < n_row; row++) part[row][0] = part[row][1] = vdupq_n_f32(0);
#pragma GCC unroll 8
        for (int v = 0; v < 8; v++) {
            uint32x4_t words = load_words(codes + 64 * v);
#pragma GCC unroll 4
            for (int b = 0; b < 4; b++) {
                float32x4_t q = byte_f32(words, b);
#pragma GCC unroll 4
                for (int row = 0; row < n_row; row++)
                    part[row][b % 2] =
                        vfmaq_n_f32(part[row][b % 2], q, x[row * x_stride + input_of(v, b)]);
            }
        }
        float32x4_t scale = block_scale(w, in, lane);
        for (int row = 0; row < n_row; row++)
            total[row] = vfmaq_f32(total[row], scale, vaddq_f32(part[row][0], part[row][1]));
    }
    for (int row = 0; row < n_row; row++) vst1q_f32(y + row * y_stride + lane, total[row]);
}

static void q8_matvec_neon(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                           const float *x, int64_t x_stride, int n_row, float *y, int64_t y_stride)
{
    for (int row = 0; row < n_row; row += ROWS) {
        int n = n_row - row < ROWS ? n_row - row : ROWS;
        const float *xr = x + row * x_stride;
        float *yr = y + row * y_stride;
        for (int quarter = 0; quarter < 4; quarter++) {
#define BODY(c) matvec_rows(w, in_begin, in_end, xr, x_stride, c, quarter, yr, y_stride)
            WITH_ROWS_4(n, BODY)
#undef BODY
        }
    }
}

static void q8_unpack_neon(const struct brim_panel *w, int64_t in_begin, int64_t in_end, float *out)
{
    for (int64_t in = in_begin; in < in_end; in += 32, out += 32 * BRIM_PANEL) {
        for (size_t lane = 0; lane < BRIM_PANEL; lane += QUARTER) {
            const uint8_t *codes = (const uint8_t *)brim_q8_codes(w, in) + 4 * lane;
            float32x4_t scale = block_scale(w, in, lane);
            for (int v = 0; v < 8; v++) {
                uint32x4_t words = load_words(codes + 64 * v);
#pragma GCC unroll 4
                for (int b = 0; b < 4; b++)
                    vst1q_f32(out + input_of(v, b) * BRIM_PANEL + lane,
                              vmulq_f32(scale, byte_f32(words, b)));
            }
        }
    }
}

/* The same integers and scales as x_quantize_c, to the bit. */
static void x_quantize_neon(const float *x, int64_t x_stride, int n_row, int64_t n_group,
                            uint8_t *tile)
{
    for (int64_t g = 0; g < n_group; g++) {
        struct brim_x8_out out = brim_x8_out_at(tile, n_row, g);
        for (int row = 0; row < n_row; row++) {
            const float *at = x + row * x_stride + g * BRIM_X8_GROUP;
            uint32x4_t most = vdupq_n_u32(0);
            for (int k = 0; k < BRIM_X8_GROUP; k += 4) {
                uint32x4_t bits = vreinterpretq_u32_f32(vld1q_f32(at + k));
                most = vmaxq_u32(most, vandq_u32(bits, vdupq_n_u32(0x7FFFFFFF)));
            }
            uint32_t max_bits = vmaxvq_u32(most);
            float max = brim_f32_from_bits(max_bits), scale = 0, inverse = 0;
            if (max_bits >= 0x7F800000) {
                scale = brim_f32_from_bits(0x7FC00000);
            } else if (max >= 0x1p-100f) {
                scale = max / 127.0f;
                inverse = 127.0f / max;
            }
            int32x4_t sum = vdupq_n_s32(0);
            for (int k = 0; k < BRIM_X8_GROUP; k += 8) {
                int32x4_t a = vdupq_n_s32(0), b = a;
                if (inverse > 0) {
                    a = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(at + k), inverse));
                    b = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(at + k + 4), inverse));
                }
                sum = vaddq_s32(sum, vaddq_s32(a, b));
                /* inputs 0 2 4 6 of eight, then 1 3 5 7 */
                int16x8_t order =
                    vcombine_s16(vmovn_s32(vuzp1q_s32(a, b)), vmovn_s32(vuzp2q_s32(a, b)));
                vst1_s8(out.q + row * BRIM_X8_GROUP + k, vmovn_s16(order));
            }
            int32_t code_sum = vaddvq_s32(sum);
            out.scale[row] = scale;
            out.sum[row] = scale * (float)code_sum;
            out.code_sum[row] = code_sum;
        }
    }
}

void brim_cpu_init_q8_neon(struct brim_cpu_ops *ops)
{
    ops->q8_matvec = q8_matvec_neon;
    ops->q8_unpack = q8_unpack_neon;
    ops->x_quantize = x_quantize_neon;
}
