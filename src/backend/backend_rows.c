/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/backend_rows.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* bf16 of 2^34: above it the scale times 2^93 of src/cuda/w4/unpack.cuh may leave bf16's range. */
enum { SCALE_LIMIT = (127 + 34) << 7 };

struct source_row {
    const struct brim_weight *part;
    size_t file_row;  /* where it lies in the file */
    int64_t side_row; /* of the parts side by side, for error texts */
};

/* Which row of the file is row `row` on the device. */
static struct source_row source_row(const struct brim_cuda_source *s, int64_t row)
{
    struct source_row at = {.side_row = row};
    int part = 0;
    if (s->paired) {
        part = row % 16 >= 8;
        row = row / 16 * 8 + row % 8;
        at.side_row = row + (part ? s->parts[0].n_out : 0);
    } else {
        while (row >= s->parts[part].n_out) row -= s->parts[part++].n_out;
    }
    at.part = &s->parts[part];
    at.file_row = (size_t)brim_weight_file_row(at.part, row);
    return at;
}

static uint16_t load_u16(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static bool finite_element(enum brim_dtype dtype, const uint8_t *at)
{
    if (dtype == BRIM_DTYPE_F16) return (load_u16(at) & 0x7C00) != 0x7C00;
    if (dtype == BRIM_DTYPE_BF16) return (load_u16(at) & 0x7F80) != 0x7F80;
    float value;
    memcpy(&value, at, sizeof value);
    return isfinite(value);
}

/* Fills one row of an array; false: a scale or bias is not finite, *group says which. */
typedef bool fill_fn(const struct brim_cuda_source *s, const struct source_row *at, uint8_t *out,
                     int64_t *group);

static bool fill_data(const struct brim_cuda_source *s, const struct source_row *at, uint8_t *out,
                      int64_t *group)
{
    (void)s;
    (void)group;
    size_t row_bytes = brim_weight_row_bytes(at->part);
    memcpy(out, (const uint8_t *)at->part->data + at->file_row * row_bytes, row_bytes);
    return true;
}

static bool copy_params(const struct source_row *at, const void *params, uint8_t *out,
                        int64_t *group)
{
    const struct brim_weight *w = at->part;
    size_t element = brim_dtype_bytes(w->dtype), n = (size_t)(w->n_in / w->group);
    memcpy(out, (const uint8_t *)params + at->file_row * n * element, n * element);
    for (size_t g = 0; g < n; g++) {
        *group = (int64_t)g;
        if (!finite_element(w->dtype, out + g * element)) return false;
    }
    return true;
}

static bool fill_scales(const struct brim_cuda_source *s, const struct source_row *at, uint8_t *out,
                        int64_t *group)
{
    (void)s;
    return copy_params(at, at->part->scales, out, group);
}

static bool fill_biases(const struct brim_cuda_source *s, const struct source_row *at, uint8_t *out,
                        int64_t *group)
{
    (void)s;
    return copy_params(at, at->part->biases, out, group);
}

/* GGUF blocks of 32: f16 d, Q4_1 also f16 m, then the codes. */
static size_t block_head(const struct brim_weight *w)
{
    return w->kind == BRIM_WEIGHT_Q4_1 ? 4 : 2;
}

static const uint8_t *gguf_row(const struct source_row *at)
{
    return (const uint8_t *)at->part->data + at->file_row * brim_weight_row_bytes(at->part);
}

static bool fill_q4_codes(const struct brim_cuda_source *s, const struct source_row *at,
                          uint8_t *out, int64_t *group)
{
    (void)s;
    (void)group;
    const uint8_t *from = gguf_row(at);
    size_t head = block_head(at->part);
    for (int64_t g = 0; g < at->part->n_in / 32; g++, from += head + 16, out += 16) {
        uint32_t words[4];
        brim_weight_q4_words(from + head, words);
        memcpy(out, words, sizeof words);
    }
    return true;
}

static void put_param(enum brim_dtype dtype, uint8_t *out, int64_t g, float value)
{
    if (dtype == BRIM_DTYPE_F32) {
        memcpy(out + 4 * g, &value, 4);
        return;
    }
    uint16_t half = brim_f16_from_f32(value); /* exact: see brim_weight_q4_0_overflows */
    memcpy(out + 2 * g, &half, 2);
}

static bool fill_q4_scales(const struct brim_cuda_source *s, const struct source_row *at,
                           uint8_t *out, int64_t *group)
{
    const uint8_t *from = gguf_row(at);
    size_t block = block_head(at->part) + 16;
    for (int64_t g = 0; g < at->part->n_in / 32; g++, from += block) {
        float d = brim_f32_from_f16(load_u16(from));
        *group = g;
        if (!isfinite(d)) return false;
        put_param(s->param_dtype, out, g, d);
    }
    return true;
}

static bool fill_q4_biases(const struct brim_cuda_source *s, const struct source_row *at,
                           uint8_t *out, int64_t *group)
{
    const uint8_t *from = gguf_row(at);
    bool has_min = at->part->kind == BRIM_WEIGHT_Q4_1;
    size_t block = block_head(at->part) + 16;
    for (int64_t g = 0; g < at->part->n_in / 32; g++, from += block) {
        float bias = has_min ? brim_f32_from_f16(load_u16(from + 2))
                             : -8 * brim_f32_from_f16(load_u16(from));
        *group = g;
        if (!isfinite(bias)) return false;
        put_param(s->param_dtype, out, g, bias);
    }
    return true;
}

static bool fill_q8_codes(const struct brim_cuda_source *s, const struct source_row *at,
                          uint8_t *out, int64_t *group)
{
    (void)s;
    (void)group;
    const uint8_t *from = gguf_row(at);
    for (int64_t g = 0; g < at->part->n_in / 32; g++, from += 34, out += 32)
        memcpy(out, from + 2, 32);
    return true;
}

static bool fill_q8_scales(const struct brim_cuda_source *s, const struct source_row *at,
                           uint8_t *out, int64_t *group)
{
    (void)s;
    const uint8_t *from = gguf_row(at);
    for (int64_t g = 0; g < at->part->n_in / 32; g++, from += 34) {
        *group = g;
        if (!finite_element(BRIM_DTYPE_F16, from)) return false;
        memcpy(out + 2 * g, from, 2);
    }
    return true;
}

/* ---- the interface ---- */

static fill_fn *const fills[][3] = {
    [BRIM_WEIGHT_DENSE] = {fill_data, NULL, NULL},
    [BRIM_WEIGHT_AFFINE4] = {fill_data, fill_scales, fill_biases},
    [BRIM_WEIGHT_Q4_0] = {fill_q4_codes, fill_q4_scales, fill_q4_biases},
    [BRIM_WEIGHT_Q4_1] = {fill_q4_codes, fill_q4_scales, fill_q4_biases},
    [BRIM_WEIGHT_Q8_0] = {fill_q8_codes, fill_q8_scales, NULL},
};

brim_status brim_cuda_row_fill(const struct brim_cuda_source *s, enum brim_cuda_array array,
                               int64_t row, uint8_t *out, brim_error *err)
{
    struct source_row at = source_row(s, row);
    int64_t group = 0;
    BRIM_REQUIRE(err, fills[at.part->kind][array](s, &at, out, &group), BRIM_E_NOT_FINITE,
                 "%s: the scale or bias of row %" PRId64 ", group %" PRId64 " is not finite",
                 s->name, at.side_row, group);
    return BRIM_OK;
}

brim_status brim_cuda_rows_check_packable(const struct brim_cuda_source *s, brim_error *err)
{
    if (s->parts[0].kind != BRIM_WEIGHT_AFFINE4 || s->param_dtype != BRIM_DTYPE_BF16)
        return BRIM_OK;
    int64_t side_row = 0;
    for (int i = 0; i < s->n_part; i++) {
        const struct brim_weight *w = &s->parts[i];
        const int64_t n_group = w->n_in / w->group;
        for (int64_t row = 0; row < w->n_out; row++, side_row++) {
            const uint8_t *at =
                (const uint8_t *)w->scales + (size_t)(brim_weight_file_row(w, row) * n_group) * 2;
            for (int64_t g = 0; g < n_group; g++)
                BRIM_REQUIRE(err, (load_u16(at + 2 * g) & 0x7FFF) < SCALE_LIMIT, BRIM_E_RANGE,
                             "%s: the scale of row %" PRId64 ", group %" PRId64
                             " is not below 2^34, which the kernels of level hopper need of bf16 "
                             "scales; the levels below it take any",
                             s->name, side_row, g);
        }
    }
    return BRIM_OK;
}

size_t brim_cuda_row_bytes(const struct brim_cuda_table *w, enum brim_cuda_array array)
{
    size_t n_in = (size_t)w->n_in, element = brim_dtype_bytes(w->dtype);
    switch (w->kind) {
    case BRIM_WEIGHT_DENSE:
        return array == BRIM_CUDA_DATA ? n_in * element : 0;
    case BRIM_WEIGHT_Q8_0:
        if (array == BRIM_CUDA_BIASES) return 0;
        return array == BRIM_CUDA_DATA ? n_in : n_in / 32 * 2;
    default:
        return array == BRIM_CUDA_DATA ? n_in / 2 : n_in / (size_t)w->group * element;
    }
}

struct brim_cuda_table brim_cuda_rows_describe(struct brim_cuda_source *s)
{
    const struct brim_weight *first = &s->parts[0];
    struct brim_cuda_table w = {.kind = first->kind, .dtype = first->dtype, .n_in = first->n_in};
    for (int i = 0; i < s->n_part; i++) w.n_out += s->parts[i].n_out;
    switch (first->kind) {
    case BRIM_WEIGHT_DENSE:
        break;
    case BRIM_WEIGHT_Q8_0:
        w.dtype = BRIM_DTYPE_F16;
        w.group = 32;
        break;
    case BRIM_WEIGHT_AFFINE4:
        w.group = first->group;
        break;
    case BRIM_WEIGHT_Q4_0:
    case BRIM_WEIGHT_Q4_1:
        w.kind = BRIM_WEIGHT_AFFINE4;
        w.group = 32;
        w.dtype = BRIM_DTYPE_F16;
        for (int i = 0; i < s->n_part; i++)
            if (s->parts[i].kind == BRIM_WEIGHT_Q4_0 && brim_weight_q4_0_overflows(&s->parts[i]))
                w.dtype = BRIM_DTYPE_F32;
        break;
    }
    s->param_dtype = w.dtype;
    return w;
}
