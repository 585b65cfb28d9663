/* SPDX-License-Identifier: Apache-2.0
 * Element types and their conversions. Only types that live in memory element by element; block
 * formats of files (Q4_0, ...) are enum brim_weight_kind in tensor/weight.h. */
#ifndef BRIM_TENSOR_DTYPE_H
#define BRIM_TENSOR_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

enum brim_dtype {
    BRIM_DTYPE_F32 = 0,
    BRIM_DTYPE_F16 = 1,
    BRIM_DTYPE_BF16 = 2,
    BRIM_DTYPE_U32 = 3,
    BRIM_DTYPE_U8 = 4
};

/* Bytes of one element. */
static inline size_t brim_dtype_bytes(enum brim_dtype dtype)
{
    static const uint8_t bytes[] = {4, 2, 2, 4, 1};
    return bytes[dtype];
}

/* "f32", "f16", "bf16", "u32", "u8". */
const char *brim_dtype_name(enum brim_dtype dtype);

static inline float brim_f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t brim_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float brim_f32_from_bf16(uint16_t bf16)
{
    return brim_f32_from_bits((uint32_t)bf16 << 16);
}

/* Round to nearest even; NaN stays a quiet NaN. */
static inline uint16_t brim_bf16_from_f32(float value)
{
    uint32_t bits = brim_f32_bits(value);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* Exact for every half, subnormals, infinities and NaN included. */
float brim_f32_from_f16(uint16_t f16);
/* Round to nearest even; overflow gives infinity. */
uint16_t brim_f16_from_f32(float value);

/* Element i of an array of F32, F16 or BF16 at any alignment. */
float brim_dtype_load(enum brim_dtype dtype, const void *data, size_t i);
/* Convert n elements from any alignment to float. */
void brim_dtype_to_f32(enum brim_dtype dtype, const void *data, size_t n, float *out);

#ifdef __cplusplus
}
#endif

#endif
