/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/dtype.h"

const char *brim_dtype_name(enum brim_dtype dtype)
{
    static const char *const names[] = {"f32", "f16", "bf16", "u32", "u8"};
    return names[dtype];
}

float brim_f32_from_f16(uint16_t f16)
{
    uint32_t sign = (uint32_t)(f16 & 0x8000) << 16;
    uint32_t rest = f16 & 0x7FFF;
    if (rest >= 0x7C00) return brim_f32_from_bits(sign | 0x7F800000 | (rest & 0x3FF) << 13);
    if (rest < 0x0400) { /* subnormal: the mantissa counts units of 2^-24 */
        float magnitude = (float)rest * 0x1p-24f;
        return brim_f32_from_bits(sign | brim_f32_bits(magnitude));
    }
    return brim_f32_from_bits(sign | ((rest << 13) + ((127 - 15) << 23)));
}

uint16_t brim_f16_from_f32(float value)
{
    uint32_t bits = brim_f32_bits(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7FFFFFFF;
    if (bits > 0x7F800000) return (uint16_t)(sign | 0x7E00);
    if (bits >= 0x47800000) return (uint16_t)(sign | 0x7C00); /* >= 65536 */
    if (bits < 0x38800000) { /* below 2^-14: adding 0.5 lines the mantissa up with 2^-24 units */
        float shifted = brim_f32_from_bits(bits) + 0.5f;
        return (uint16_t)(sign | (brim_f32_bits(shifted) - 0x3F000000));
    }
    uint32_t rounded = bits + 0xFFF + (bits >> 13 & 1);
    return (uint16_t)(sign | ((rounded - ((127 - 15) << 23)) >> 13));
}

float brim_dtype_load(enum brim_dtype dtype, const void *data, size_t i)
{
    const uint8_t *at = (const uint8_t *)data + i * brim_dtype_bytes(dtype);
    if (dtype == BRIM_DTYPE_F32) {
        uint32_t bits;
        memcpy(&bits, at, sizeof bits);
        return brim_f32_from_bits(bits);
    }
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return dtype == BRIM_DTYPE_F16 ? brim_f32_from_f16(half) : brim_f32_from_bf16(half);
}

void brim_dtype_to_f32(enum brim_dtype dtype, const void *data, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) out[i] = brim_dtype_load(dtype, data, i);
}
