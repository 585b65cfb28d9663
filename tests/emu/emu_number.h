/* SPDX-License-Identifier: Apache-2.0
 * Numbers of the tensor cores on the CPU: to nearest even, NaN to the one NaN of the device. */
#ifndef BRIM_EMU_NUMBER_H
#define BRIM_EMU_NUMBER_H

#include <stdint.h>
#include <string.h>

static inline float emu_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static inline uint32_t emu_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

static inline uint16_t emu_bf16(float x)
{
    if (x != x) return 0x7FFF;
    uint32_t bits = emu_bits(x);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static inline float emu_of_bf16(uint16_t x)
{
    return emu_float((uint32_t)x << 16);
}

static inline uint16_t emu_f16(float x)
{
    if (x != x) return 0x7FFF;
    _Float16 h = (_Float16)x;
    uint16_t bits;
    memcpy(&bits, &h, 2);
    return bits;
}

static inline float emu_of_f16(uint16_t x)
{
    _Float16 h;
    memcpy(&h, &x, 2);
    float f = (float)h;
    __asm__("" : "+x"(f)); /* or f16 to f64 becomes one step, which is a slow function */
    return f;
}

/* The upper 19 bits, which a tensor core reads of an f32 operand. */
static inline float emu_tf32(float x)
{
    return emu_float(emu_bits(x) & 0xFFFFE000u);
}

#endif
