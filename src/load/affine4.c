/* SPDX-License-Identifier: Apache-2.0 */
#include "load/affine4.h"

#include <math.h>
#include <string.h>

static void store(enum brim_dtype dtype, void *out, int64_t i, float value)
{
    uint8_t *at = (uint8_t *)out + (size_t)i * brim_dtype_bytes(dtype);
    uint16_t half;
    switch (dtype) {
    case BRIM_DTYPE_BF16:
        half = brim_bf16_from_f32(value);
        break;
    case BRIM_DTYPE_F16:
        half = brim_f16_from_f32(value);
        break;
    default:
        memcpy(at, &value, sizeof value);
        return;
    }
    memcpy(at, &half, sizeof half);
}

/* The end of larger magnitude (the edge) becomes exactly representable, and with it zero: the scale
 * is stretched so that the edge lies a whole number of steps from zero. Codes are taken with scale
 * and bias still in f32; only their stored copies are rounded to the checkpoint's type. Rounding is
 * to even (rint in the default mode). */
static bool encode_group(const float *w, int group, uint32_t *words, float *scale_out,
                         float *bias_out)
{
    float low = INFINITY, high = -INFINITY;
    bool finite = true;
    for (int i = 0; i < group; i++) {
        low = w[i] < low ? w[i] : low;
        high = w[i] > high ? w[i] : high;
        finite = finite && isfinite(w[i]);
    }
    if (!finite) return false;
    bool edge_is_low = fabsf(low) > fabsf(high);
    float step = (high - low) / 15.0f;
    float scale = step > 1e-7f ? step : 1e-7f;
    if (!edge_is_low) scale = -scale;
    float edge = edge_is_low ? low : high, bias = 0;
    float n_step = rintf(edge / scale);
    if (n_step != 0) {
        scale = edge / n_step;
        bias = edge;
    }
    for (int word = 0; word < group / 8; word++) {
        uint32_t bits = 0;
        for (int j = 0; j < 8; j++) {
            float q = rintf((w[word * 8 + j] - bias) / scale);
            q = q > 0 ? q : 0;
            q = q < 15 ? q : 15;
            bits |= (uint32_t)q << (4 * j);
        }
        words[word] = bits;
    }
    *scale_out = scale;
    *bias_out = bias;
    return true;
}

bool brim_affine4_encode(enum brim_dtype dtype, const void *row, int64_t n_in, int group,
                         uint32_t *words, void *scales, void *biases)
{
    float values[128];
    const uint8_t *at = row;
    for (int64_t g = 0; g < n_in / group; g++) {
        float scale, bias;
        brim_dtype_to_f32(dtype, at, (size_t)group, values);
        if (!encode_group(values, group, words, &scale, &bias)) return false;
        store(dtype, scales, g, scale);
        store(dtype, biases, g, bias);
        at += (size_t)group * brim_dtype_bytes(dtype);
        words += group / 8;
    }
    return true;
}
