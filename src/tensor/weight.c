/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/weight.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"

static uint16_t load_u16(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

size_t brim_weight_row_bytes(const struct brim_weight *w)
{
    size_t n_in = (size_t)w->n_in;
    switch (w->kind) {
    case BRIM_WEIGHT_DENSE:
        return n_in * brim_dtype_bytes(w->dtype);
    case BRIM_WEIGHT_AFFINE4:
        return n_in / 2;
    case BRIM_WEIGHT_Q4_0:
        return n_in / 32 * 18;
    case BRIM_WEIGHT_Q4_1:
        return n_in / 32 * 20;
    case BRIM_WEIGHT_Q8_0:
        return n_in / 32 * 34;
    }
    return 0;
}

const char *brim_weight_kind_name(enum brim_weight_kind kind)
{
    static const char *const names[] = {"dense", "affine4", "q4_0", "q4_1", "q8_0"};
    return names[kind];
}

void brim_weight_row_f32(const struct brim_weight *w, int64_t row, float *out)
{
    size_t file_row = (size_t)brim_weight_file_row(w, row), n_in = (size_t)w->n_in;
    const uint8_t *at = (const uint8_t *)w->data + file_row * brim_weight_row_bytes(w);
    switch (w->kind) {
    case BRIM_WEIGHT_DENSE:
        brim_dtype_to_f32(w->dtype, at, n_in, out);
        return;
    case BRIM_WEIGHT_AFFINE4:
        for (size_t first = 0, group = (size_t)w->group; first < n_in; first += group) {
            size_t g = file_row * (n_in / group) + first / group;
            float scale = brim_dtype_load(w->dtype, w->scales, g);
            float bias = brim_dtype_load(w->dtype, w->biases, g);
            /* little-endian words, least significant nibble first: byte i/2, low nibble when even
             */
            for (size_t i = first; i < first + group && i < n_in; i++)
                out[i] = scale * (float)(at[i / 2] >> (i % 2 * 4) & 15) + bias;
        }
        return;
    case BRIM_WEIGHT_Q4_0:
    case BRIM_WEIGHT_Q4_1: {
        bool has_min = w->kind == BRIM_WEIGHT_Q4_1;
        size_t head = has_min ? 4 : 2;
        for (size_t block = 0; block < n_in / 32; block++, at += head + 16) {
            float d = brim_f32_from_f16(load_u16(at));
            float m = has_min ? brim_f32_from_f16(load_u16(at + 2)) : -8 * d;
            for (size_t i = 0; i < 32; i++) {
                int q = at[head + i % 16] >> (i / 16 * 4) & 15;
                out[block * 32 + i] = d * (float)q + m;
            }
        }
        return;
    }
    case BRIM_WEIGHT_Q8_0:
        for (size_t block = 0; block < n_in / 32; block++, at += 34) {
            float d = brim_f32_from_f16(load_u16(at));
            for (size_t i = 0; i < 32; i++) out[block * 32 + i] = d * (float)(int8_t)at[2 + i];
        }
        return;
    }
}

brim_status brim_weight_check(const struct brim_weight *w, const char *name, brim_error *err)
{
    BRIM_REQUIRE(err, w->n_out >= 0 && w->n_in >= 0, BRIM_E_SHAPE, "%s: negative dimension", name);
    bool quantized = w->kind != BRIM_WEIGHT_DENSE, affine = w->kind == BRIM_WEIGHT_AFFINE4;
    int group = affine ? w->group : 32;
    BRIM_REQUIRE(err, group == 32 || group == 64 || group == 128, BRIM_E_UNSUPPORTED,
                 "%s: groups of %d are not supported (32, 64 and 128 are)", name, group);
    BRIM_REQUIRE(err, !quantized || w->n_in % group == 0, BRIM_E_SHAPE,
                 "%s: %" PRId64 " inputs are not a multiple of the group of %d", name, w->n_in,
                 group);
    BRIM_REQUIRE(err,
                 w->dtype == BRIM_DTYPE_F32 || w->dtype == BRIM_DTYPE_F16 ||
                     w->dtype == BRIM_DTYPE_BF16,
                 BRIM_E_DTYPE, "%s: element type %s is not one of f32, f16, bf16", name,
                 brim_dtype_name(w->dtype));
    uint64_t need;
    BRIM_REQUIRE(err,
                 brim_mul_u64((uint64_t)w->n_out, brim_weight_row_bytes(w), &need) &&
                     need <= w->data_bytes,
                 BRIM_E_SHAPE, "%s: %zu bytes are too few for %" PRId64 " x %" PRId64 " %s", name,
                 w->data_bytes, w->n_out, w->n_in, brim_weight_kind_name(w->kind));
    BRIM_REQUIRE(err, w->data || need == 0, BRIM_E_MISSING, "%s: no data", name);
    BRIM_REQUIRE(err, !affine || need == 0 || (w->scales && w->biases), BRIM_E_MISSING,
                 "%s: scales or biases are missing", name);
    BRIM_REQUIRE(err,
                 w->n_rope_head == 0 ||
                     (w->n_rope_head > 0 && w->n_out % (2 * (int64_t)w->n_rope_head) == 0),
                 BRIM_E_SHAPE, "%s: %" PRId64 " rows do not divide into %d heads", name, w->n_out,
                 w->n_rope_head);
    return BRIM_OK;
}

bool brim_weight_can_join(const struct brim_weight *parts, int n_part)
{
    for (int i = 1; i < n_part; i++)
        if (parts[i].kind != parts[0].kind || parts[i].dtype != parts[0].dtype ||
            parts[i].group != parts[0].group || parts[i].n_in != parts[0].n_in)
            return false;
    return true;
}

bool brim_weight_q4_0_overflows(const struct brim_weight *w)
{
    const uint8_t *at = w->data;
    for (int64_t block = 0; block < w->n_out * (w->n_in / 32); block++, at += 18) {
        if ((load_u16(at) & 0x7FFF) >= 0x7000) return true; /* 8192 * 8 = 65536 */
    }
    return false;
}
