/* SPDX-License-Identifier: Apache-2.0
 * The plain meaning of every stored form, on blocks written by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "tensor/weight.h"

static void put_f16(uint8_t *at, float value)
{
    uint16_t half = brim_f16_from_f32(value);
    memcpy(at, &half, sizeof half);
}

/* Codes of a block of 32 in the order of their values: low nibbles first, then high ones. */
static void put_nibbles(uint8_t *at, const int *q)
{
    for (int i = 0; i < 16; i++) at[i] = (uint8_t)(q[i] | q[i + 16] << 4);
}

static void ggml_blocks(void **state)
{
    (void)state;
    struct brim_rng rng;
    brim_rng_seed(&rng, 3);
    /* 3 rows of 96 values; the buffers begin at an odd address, as in a file they may */
    enum { N_OUT = 3, N_IN = 96 };
    static const struct {
        enum brim_weight_kind kind;
        size_t block_bytes;
    } kinds[] = {{BRIM_WEIGHT_Q4_0, 18}, {BRIM_WEIGHT_Q4_1, 20}, {BRIM_WEIGHT_Q8_0, 34}};
    for (size_t k = 0; k < 3; k++) {
        size_t n_bytes = N_OUT * (N_IN / 32) * kinds[k].block_bytes;
        uint8_t *raw = malloc(n_bytes + 1), *data = raw + 1;
        float expected[N_OUT][N_IN];
        for (int block = 0; block < N_OUT * N_IN / 32; block++) {
            uint8_t *at = data + (size_t)block * kinds[k].block_bytes;
            float *out = &expected[0][0] + block * 32;
            float d = 0.25f * (float)(block - 4), m = -1.5f + (float)block;
            int q[32];
            put_f16(at, d);
            if (kinds[k].kind == BRIM_WEIGHT_Q4_1) put_f16(at + 2, m);
            for (int i = 0; i < 32; i++) {
                q[i] = (int)(brim_rng_u32(&rng) >> 28);
                if (kinds[k].kind == BRIM_WEIGHT_Q4_0)
                    out[i] = d * (float)(q[i] - 8);
                else if (kinds[k].kind == BRIM_WEIGHT_Q4_1)
                    out[i] = d * (float)q[i] + m;
                else {
                    int8_t value = (int8_t)(q[i] * 17 - 128);
                    memcpy(at + 2 + i, &value, 1);
                    out[i] = d * (float)value;
                }
            }
            if (kinds[k].kind != BRIM_WEIGHT_Q8_0) put_nibbles(at + kinds[k].block_bytes - 16, q);
        }
        struct brim_weight w = {.kind = kinds[k].kind,
                                .dtype = BRIM_DTYPE_F16,
                                .n_out = N_OUT,
                                .n_in = N_IN,
                                .group = 32,
                                .data = data,
                                .data_bytes = n_bytes};
        assert_int_equal(brim_weight_row_bytes(&w) * N_OUT, n_bytes);
        float *row = malloc(N_IN * sizeof *row); /* exact size: an overrun is seen */
        for (int64_t i = 0; i < N_OUT; i++) {
            brim_weight_row_f32(&w, i, row);
            for (int j = 0; j < N_IN; j++) assert_true(row[j] == expected[i][j]);
        }
        free(row);
        free(raw);
    }
}

static void affine4_and_dense(void **state)
{
    (void)state;
    struct brim_rng rng;
    brim_rng_seed(&rng, 4);
    enum { N_OUT = 5 };
    static const enum brim_dtype dtypes[] = {BRIM_DTYPE_F32, BRIM_DTYPE_F16, BRIM_DTYPE_BF16};
    static const int groups[] = {32, 64, 128};
    for (int c = 0; c < 9; c++) {
        enum brim_dtype dtype = dtypes[c % 3];
        size_t item = brim_dtype_bytes(dtype);
        int group = groups[c / 3], n_in = group * 3, n_group = 3;
        uint8_t *words = malloc((size_t)(N_OUT * n_in / 2) + 1);
        uint8_t *scales = malloc(N_OUT * 3 * item + 1), *biases = malloc(N_OUT * 3 * item + 1);
        for (int i = 0; i < N_OUT * n_in / 8; i++) {
            uint32_t word = brim_rng_u32(&rng);
            memcpy(words + 1 + 4 * i, &word, 4);
        }
        for (int i = 0; i < N_OUT * n_group; i++) { /* exact in all three types, both signs */
            float scale = (float)(i - 7) * 0.125f, bias = (float)(7 - i) * 2;
            uint16_t half[2] = {brim_f16_from_f32(scale), brim_f16_from_f32(bias)};
            if (dtype == BRIM_DTYPE_BF16) half[0] = brim_bf16_from_f32(scale);
            if (dtype == BRIM_DTYPE_BF16) half[1] = brim_bf16_from_f32(bias);
            memcpy(scales + 1 + (size_t)i * item, item == 4 ? (void *)&scale : &half[0], item);
            memcpy(biases + 1 + (size_t)i * item, item == 4 ? (void *)&bias : &half[1], item);
        }
        struct brim_weight w = {.kind = BRIM_WEIGHT_AFFINE4,
                                .dtype = dtype,
                                .n_out = N_OUT,
                                .n_in = n_in,
                                .group = group,
                                .data = words + 1,
                                .scales = scales + 1,
                                .biases = biases + 1};
        float *row = malloc((size_t)n_in * sizeof *row);
        for (int r = 0; r < N_OUT; r++) {
            brim_weight_row_f32(&w, r, row);
            for (int i = 0; i < n_in; i++) {
                uint32_t word;
                memcpy(&word, words + 1 + 4 * (r * n_in / 8 + i / 8), 4);
                int g = r * n_group + i / group;
                float q = (float)(word >> (i % 8 * 4) & 15);
                assert_true(row[i] == (float)(g - 7) * 0.125f * q + (float)(7 - g) * 2);
            }
        }
        /* the scales, read as a dense matrix */
        struct brim_weight dense = {.dtype = dtype, .n_out = N_OUT, .n_in = 3, .data = scales + 1};
        assert_int_equal(brim_weight_row_bytes(&dense), 3 * item);
        brim_weight_row_f32(&dense, 4, row);
        for (int i = 0; i < 3; i++) assert_true(row[i] == (float)(12 + i - 7) * 0.125f);
        free(row);
        free(words);
        free(scales);
        free(biases);
    }
}

/* Rows of a Llama projection in a GGUF file lie in pairs: (0, d/2), (1, d/2 + 1), ... */
static void rows_in_rotary_order(void **state)
{
    (void)state;
    enum { N_HEAD = 3, D = 8 };
    float data[N_HEAD * D];
    for (int h = 0; h < N_HEAD; h++)
        for (int i = 0; i < D / 2; i++) {
            data[h * D + 2 * i] = (float)(h * D + i);
            data[h * D + 2 * i + 1] = (float)(h * D + D / 2 + i);
        }
    struct brim_weight w = {.dtype = BRIM_DTYPE_F32,
                            .n_out = N_HEAD * D,
                            .n_in = 1,
                            .data = data,
                            .n_rope_head = N_HEAD};
    for (int64_t row = 0; row < w.n_out; row++) {
        float value;
        brim_weight_row_f32(&w, row, &value);
        assert_true(value == (float)row);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ggml_blocks),
        cmocka_unit_test(affine4_and_dense),
        cmocka_unit_test(rows_in_rotary_order),
    };
    return cmocka_run_group_tests_name("weight", tests, NULL, NULL);
}
