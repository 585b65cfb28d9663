/* SPDX-License-Identifier: Apache-2.0
 * Rows on their way to a GPU (src/backend/backend_rows.h), without one: whatever the file's kind,
 * the device's arrays hold the weights of the file, number for number, in the order asked for. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backend/backend_rows.h"
#include "cuda/w4/w4.h"
#include "tensor/dtype.h"

enum { N_IN = 128, MAX_PART = 3 };

static uint32_t state = 1;

static uint32_t next(void)
{
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

static float some_float(void)
{
    return (float)((int)(next() % 2001) - 1000) / 777.0f;
}

static void put(enum brim_dtype dtype, uint8_t *at, float value)
{
    uint16_t half = dtype == BRIM_DTYPE_BF16 ? brim_bf16_from_f32(value) : brim_f16_from_f32(value);
    if (dtype == BRIM_DTYPE_F32)
        memcpy(at, &value, 4);
    else
        memcpy(at, &half, 2);
}

static size_t block_bytes(enum brim_weight_kind kind)
{
    return kind == BRIM_WEIGHT_Q4_0 ? 18 : kind == BRIM_WEIGHT_Q4_1 ? 20 : 34;
}

/* A matrix with numbers in it; data, scales and biases by malloc. */
static struct brim_weight make(enum brim_weight_kind kind, enum brim_dtype dtype, int group,
                               int64_t n_out, int n_rope_head)
{
    struct brim_weight w = {.kind = kind,
                            .dtype = dtype,
                            .n_out = n_out,
                            .n_in = N_IN,
                            .group = group,
                            .n_rope_head = n_rope_head};
    w.data_bytes = (size_t)n_out * brim_weight_row_bytes(&w);
    uint8_t *data = malloc(w.data_bytes);
    assert_non_null(data);
    for (size_t i = 0; i < w.data_bytes; i++) data[i] = (uint8_t)next();
    w.data = data;
    if (kind == BRIM_WEIGHT_DENSE) {
        for (int64_t i = 0; i < n_out * N_IN; i++)
            put(dtype, data + (size_t)i * brim_dtype_bytes(dtype), some_float());
    } else if (kind == BRIM_WEIGHT_AFFINE4) {
        size_t n = (size_t)(n_out * (N_IN / group)), element = brim_dtype_bytes(dtype);
        uint8_t *params = malloc(2 * n * element);
        assert_non_null(params);
        for (size_t i = 0; i < 2 * n; i++) put(dtype, params + i * element, some_float());
        w.scales = params;
        w.biases = params + n * element;
    } else {
        size_t block = block_bytes(kind);
        for (size_t at = 0; at < w.data_bytes; at += block) {
            put(BRIM_DTYPE_F16, data + at, some_float());
            if (kind == BRIM_WEIGHT_Q4_1) put(BRIM_DTYPE_F16, data + at + 2, some_float());
        }
    }
    return w;
}

static void release(struct brim_weight *w)
{
    free((void *)(uintptr_t)w->data);
    free((void *)(uintptr_t)w->scales);
}

/* Row `row` of the device's arrays as numbers. */
static void row_back(const struct brim_cuda_source *s, const struct brim_cuda_table *table,
                     int64_t row, float *out)
{
    uint8_t data[N_IN * 4], scales[N_IN], biases[N_IN];
    uint8_t *const arrays[] = {data, scales, biases};
    for (int a = 0; a < 3; a++) {
        brim_error err = {0};
        size_t n = brim_cuda_row_bytes(table, (enum brim_cuda_array)a);
        assert_true(n <= (a == 0 ? sizeof data : sizeof scales));
        if (n > 0 &&
            brim_cuda_row_fill(s, (enum brim_cuda_array)a, row, arrays[a], &err) != BRIM_OK)
            fail_msg("%s", err.text);
    }
    if (table->kind == BRIM_WEIGHT_Q8_0) {
        for (int64_t i = 0; i < N_IN; i++)
            out[i] =
                brim_dtype_load(BRIM_DTYPE_F16, scales, (size_t)i / 32) * (float)(int8_t)data[i];
        return;
    }
    const struct brim_weight w = {.kind = table->kind,
                                  .dtype = table->dtype,
                                  .n_out = 1,
                                  .n_in = N_IN,
                                  .group = table->group,
                                  .data = data,
                                  .data_bytes = sizeof data,
                                  .scales = scales,
                                  .biases = biases};
    brim_weight_row_f32(&w, 0, out);
}

static void check(const struct brim_weight *parts, int n_part, bool paired, const char *what)
{
    struct brim_cuda_source s = {.parts = parts, .n_part = n_part, .paired = paired, .name = what};
    struct brim_cuda_table table = brim_cuda_rows_describe(&s);
    int64_t side = 0;
    for (int p = 0; p < n_part; p++) {
        for (int64_t row = 0; row < parts[p].n_out; row++) {
            float expected[N_IN], got[N_IN];
            brim_weight_row_f32(&parts[p], row, expected);
            row_back(&s, &table, paired ? brim_w4_pair_row(row, p) : side + row, got);
            for (int i = 0; i < N_IN; i++)
                if (got[i] != expected[i])
                    fail_msg("%s: part %d, row %d, input %d: %g, expected %g", what, p, (int)row, i,
                             (double)got[i], (double)expected[i]);
        }
        side += parts[p].n_out;
    }
    assert_int_equal(table.n_out, side);
    assert_int_equal(table.n_in, N_IN);
}

static const struct {
    enum brim_weight_kind kind;
    enum brim_dtype dtype;
    int group;
    const char *name;
} forms[] = {
    {BRIM_WEIGHT_DENSE, BRIM_DTYPE_F32, 0, "dense f32"},
    {BRIM_WEIGHT_DENSE, BRIM_DTYPE_BF16, 0, "dense bf16"},
    {BRIM_WEIGHT_AFFINE4, BRIM_DTYPE_BF16, 128, "affine4 bf16 128"},
    {BRIM_WEIGHT_AFFINE4, BRIM_DTYPE_F16, 64, "affine4 f16 64"},
    {BRIM_WEIGHT_AFFINE4, BRIM_DTYPE_F32, 32, "affine4 f32 32"},
    {BRIM_WEIGHT_Q4_0, BRIM_DTYPE_F16, 32, "q4_0"},
    {BRIM_WEIGHT_Q4_1, BRIM_DTYPE_F16, 32, "q4_1"},
    {BRIM_WEIGHT_Q8_0, BRIM_DTYPE_F16, 32, "q8_0"},
};
enum { N_FORM = sizeof forms / sizeof *forms };

static void side_by_side(void **unused)
{
    (void)unused;
    for (int f = 0; f < N_FORM; f++) {
        /* q and k of four and two rotary heads, v as it is */
        struct brim_weight parts[MAX_PART] = {
            make(forms[f].kind, forms[f].dtype, forms[f].group, 32, 4),
            make(forms[f].kind, forms[f].dtype, forms[f].group, 16, 2),
            make(forms[f].kind, forms[f].dtype, forms[f].group, 13, 0),
        };
        check(parts, MAX_PART, false, forms[f].name);
        check(parts, 1, false, forms[f].name);
        for (int p = 0; p < MAX_PART; p++) release(&parts[p]);
    }
}

static void gate_and_up(void **unused)
{
    (void)unused;
    for (int f = 0; f < N_FORM; f++) {
        struct brim_weight parts[2] = {
            make(forms[f].kind, forms[f].dtype, forms[f].group, 40, 0),
            make(forms[f].kind, forms[f].dtype, forms[f].group, 40, 0),
        };
        check(parts, 2, true, forms[f].name);
        release(&parts[0]);
        release(&parts[1]);
    }
}

/* -8 d beyond f16's range makes the parameters of the whole matrix f32. */
static void wide_q4_0(void **unused)
{
    (void)unused;
    struct brim_weight parts[2] = {make(BRIM_WEIGHT_Q4_0, BRIM_DTYPE_F16, 32, 8, 0),
                                   make(BRIM_WEIGHT_Q4_0, BRIM_DTYPE_F16, 32, 8, 0)};
    struct brim_cuda_source s = {.parts = parts, .n_part = 2, .name = "w"};
    assert_int_equal(brim_cuda_rows_describe(&s).dtype, BRIM_DTYPE_F16);
    put(BRIM_DTYPE_F16, (uint8_t *)(uintptr_t)parts[1].data + 18 * 5, -9000.0f);
    assert_int_equal(brim_cuda_rows_describe(&s).dtype, BRIM_DTYPE_F32);
    check(parts, 2, false, "wide q4_0");
    release(&parts[0]);
    release(&parts[1]);
}

/* The text names the row as the parts lie side by side, whatever the device's order, and the group.
 */
static void not_finite(void **unused)
{
    (void)unused;
    for (int f = 2; f < N_FORM; f++) {
        int group = forms[f].group;
        struct brim_weight parts[2] = {make(forms[f].kind, forms[f].dtype, group, 16, 0),
                                       make(forms[f].kind, forms[f].dtype, group, 16, 0)};
        int g = N_IN / group - 1, row = 9;
        if (forms[f].kind == BRIM_WEIGHT_AFFINE4)
            put(forms[f].dtype,
                (uint8_t *)(uintptr_t)parts[1].scales +
                    (size_t)(row * (N_IN / group) + g) * brim_dtype_bytes(forms[f].dtype),
                INFINITY);
        else
            put(BRIM_DTYPE_F16,
                (uint8_t *)(uintptr_t)parts[1].data +
                    (size_t)(row * (N_IN / 32) + g) * block_bytes(forms[f].kind),
                NAN);
        struct brim_cuda_source s = {.parts = parts, .n_part = 2, .paired = true, .name = "gate"};
        (void)brim_cuda_rows_describe(&s);
        uint8_t out[N_IN * 4];
        brim_error err = {0};
        assert_int_equal(
            brim_cuda_row_fill(&s, BRIM_CUDA_SCALES, brim_w4_pair_row(row, 1), out, &err),
            BRIM_E_NOT_FINITE);
        char expected[64];
        snprintf(expected, sizeof expected, "gate: the scale or bias of row 25, group %d", g);
        if (!strstr(err.text, expected)) fail_msg("%s: \"%s\"", forms[f].name, err.text);
        assert_int_equal(
            brim_cuda_row_fill(&s, BRIM_CUDA_SCALES, brim_w4_pair_row(row, 0), out, &err), BRIM_OK);
        release(&parts[0]);
        release(&parts[1]);
    }
}

/* bf16 scales from 2^34 on are refused by row and group; just below they pass, and other types of
 * scale have no such limit. */
static void scales_the_packed_kernels_take(void **unused)
{
    (void)unused;
    const uint16_t below = 0x507F, limit = 0x5080;
    assert_true(brim_f32_from_bf16(below) < 17179869184.0f);
    assert_true(brim_f32_from_bf16(limit) == 17179869184.0f);
    for (int sign = 0; sign < 2; sign++) {
        struct brim_weight parts[2] = {make(BRIM_WEIGHT_AFFINE4, BRIM_DTYPE_BF16, 64, 16, 0),
                                       make(BRIM_WEIGHT_AFFINE4, BRIM_DTYPE_BF16, 64, 16, 0)};
        struct brim_cuda_source s = {.parts = parts, .n_part = 2, .name = "model.layers.3.q_proj"};
        brim_error err = {0};
        (void)brim_cuda_rows_describe(&s);
        uint16_t *at = (uint16_t *)(uintptr_t)parts[1].scales + 9 * (N_IN / 64) + 1;
        const uint16_t minus = sign ? 0x8000 : 0;
        *at = below | minus;
        if (brim_cuda_rows_check_packable(&s, &err) != BRIM_OK) fail_msg("%s", err.text);
        *at = limit | minus;
        assert_int_equal(brim_cuda_rows_check_packable(&s, &err), BRIM_E_RANGE);
        if (!strstr(err.text, "model.layers.3.q_proj: the scale of row 25, group 1 is not below"))
            fail_msg("\"%s\"", err.text);
        release(&parts[0]);
        release(&parts[1]);
    }
    for (int f = 0; f < N_FORM; f++) {
        struct brim_weight w = make(forms[f].kind, forms[f].dtype, forms[f].group, 8, 0);
        struct brim_cuda_source s = {.parts = &w, .n_part = 1, .name = "w"};
        (void)brim_cuda_rows_describe(&s);
        if (w.scales && w.dtype == BRIM_DTYPE_F32)
            put(BRIM_DTYPE_F32, (uint8_t *)(uintptr_t)w.scales, 1e30f);
        assert_int_equal(brim_cuda_rows_check_packable(&s, NULL), BRIM_OK);
        release(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(side_by_side),
        cmocka_unit_test(gate_and_up),
        cmocka_unit_test(wide_q4_0),
        cmocka_unit_test(not_finite),
        cmocka_unit_test(scales_the_packed_kernels_take),
    };
    return cmocka_run_group_tests_name("cuda_rows", tests, NULL, NULL);
}
