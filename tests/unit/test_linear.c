/* SPDX-License-Identifier: Apache-2.0
 * linear: packing of every kind, rows back, products against double precision, on every tier this
 * processor has, and the same bits for any number of threads.
 * ctest labels: threads */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "cpu/linear.h"

struct fixture {
    struct brim_weight w;
    void *data, *scales, *biases;
};

static float small_value(struct brim_rng *rng)
{
    return brim_rng_uniform(rng) - 0.5f;
}

static void put(enum brim_dtype dtype, void *to, size_t i, float value)
{
    uint16_t half = dtype == BRIM_DTYPE_F16 ? brim_f16_from_f32(value) : brim_bf16_from_f32(value);
    if (dtype == BRIM_DTYPE_F32)
        memcpy((uint8_t *)to + 4 * i, &value, 4);
    else
        memcpy((uint8_t *)to + 2 * i, &half, 2);
}

/* Exactly n_bytes at an odd address, as a file whose header is not padded gives them. Freed by
 * drop through the address before. */
static void *odd_block(size_t n_bytes)
{
    uint8_t *block = malloc(n_bytes + 1);
    assert_non_null(block);
    return block + 1;
}

static void odd_free(void *data)
{
    if (data) free((uint8_t *)data - 1);
}

static struct fixture make(enum brim_weight_kind kind, enum brim_dtype dtype, int group,
                           int64_t n_out, int64_t n_in, uint64_t seed)
{
    struct brim_rng rng;
    brim_rng_seed(&rng, seed);
    struct fixture f = {
        .w = {.kind = kind, .dtype = dtype, .n_out = n_out, .n_in = n_in, .group = group}};
    f.w.data_bytes = (size_t)n_out * brim_weight_row_bytes(&f.w);
    f.data = odd_block(f.w.data_bytes);
    f.w.data = f.data;
    uint8_t *bytes = f.data;
    for (size_t i = 0; i < f.w.data_bytes; i++) bytes[i] = (uint8_t)brim_rng_u32(&rng);
    if (kind == BRIM_WEIGHT_DENSE)
        for (size_t i = 0; i < (size_t)(n_out * n_in); i++) put(dtype, bytes, i, small_value(&rng));
    if (kind == BRIM_WEIGHT_AFFINE4) {
        size_t n = (size_t)(n_out * (n_in / group));
        f.scales = odd_block(n * brim_dtype_bytes(dtype));
        f.biases = odd_block(n * brim_dtype_bytes(dtype));
        for (size_t i = 0; i < n; i++) {
            put(dtype, f.scales, i, 0.1f * small_value(&rng));
            put(dtype, f.biases, i, small_value(&rng));
        }
        f.w.scales = f.scales;
        f.w.biases = f.biases;
    }
    if (kind == BRIM_WEIGHT_Q4_0 || kind == BRIM_WEIGHT_Q4_1 || kind == BRIM_WEIGHT_Q8_0) {
        size_t block = kind == BRIM_WEIGHT_Q4_0 ? 18 : kind == BRIM_WEIGHT_Q4_1 ? 20 : 34;
        for (size_t at = 0; at < f.w.data_bytes; at += block) {
            put(BRIM_DTYPE_F16, bytes + at, 0, 0.1f * small_value(&rng));
            if (kind == BRIM_WEIGHT_Q4_1) put(BRIM_DTYPE_F16, bytes + at, 1, small_value(&rng));
        }
    }
    return f;
}

static void drop(struct fixture *f)
{
    odd_free(f->data);
    odd_free(f->scales);
    odd_free(f->biases);
}

static const struct {
    enum brim_weight_kind kind;
    enum brim_dtype dtype;
    int group;
} kinds[] = {
    {BRIM_WEIGHT_DENSE, BRIM_DTYPE_F32, 0},      {BRIM_WEIGHT_DENSE, BRIM_DTYPE_F16, 0},
    {BRIM_WEIGHT_DENSE, BRIM_DTYPE_BF16, 0},     {BRIM_WEIGHT_AFFINE4, BRIM_DTYPE_BF16, 32},
    {BRIM_WEIGHT_AFFINE4, BRIM_DTYPE_F16, 64},   {BRIM_WEIGHT_AFFINE4, BRIM_DTYPE_F32, 128},
    {BRIM_WEIGHT_AFFINE4, BRIM_DTYPE_BF16, 128}, {BRIM_WEIGHT_Q4_0, BRIM_DTYPE_F16, 32},
    {BRIM_WEIGHT_Q4_1, BRIM_DTYPE_F16, 32},      {BRIM_WEIGHT_Q8_0, BRIM_DTYPE_F16, 32},
};
enum { N_KIND = sizeof kinds / sizeof *kinds };

static void rows_come_back_exactly(void **state)
{
    (void)state;
    const int64_t outs[] = {1, 15, 16, 17, 36};
    for (int k = 0; k < N_KIND; k++) {
        for (size_t o = 0; o < sizeof outs / sizeof *outs; o++) {
            int64_t n_in = kinds[k].group == 128 ? 384 : 576;
            struct fixture f =
                make(kinds[k].kind, kinds[k].dtype, kinds[k].group, outs[o], n_in, 7 + o);
            if (outs[o] == 36) f.w.n_rope_head = 3;
            struct brim_linear linear;
            assert_int_equal(brim_linear_pack(&linear, &f.w, 1, "w", NULL, NULL), BRIM_OK);
            float *want = malloc((size_t)n_in * 4), *got = malloc((size_t)n_in * 4);
            for (int64_t row = 0; row < outs[o]; row++) {
                brim_weight_row_f32(&f.w, row, want);
                brim_linear_row_f32(&linear, row, got);
                assert_memory_equal(want, got, (size_t)n_in * 4);
            }
            free(want);
            free(got);
            brim_linear_free(&linear);
            drop(&f);
        }
    }
}

/* One product on one pool. y has three spare columns, poisoned. */
static float *product(const struct brim_cpu_ops *ops, const struct brim_linear *linear,
                      enum brim_activation_mode mode, int n_thread, const float *x, int64_t n_row)
{
    struct brim_pool *pool;
    assert_int_equal(brim_pool_create(&pool, n_thread, NULL), BRIM_OK);
    int64_t stride = linear->n_out + 3;
    size_t n_scratch = brim_linear_scratch_bytes(linear, n_row, n_thread);
    float *y = malloc((size_t)(n_row * stride + 1) * 4);
    uint8_t *scratch = malloc(n_scratch);
    for (int64_t i = 0; i <= n_row * stride; i++) y[i] = NAN;
    memset(scratch, 0xFF, n_scratch);
    brim_linear_run(ops, pool, linear, mode, x, linear->n_in, n_row, y, stride, scratch);
    for (int64_t row = 0; row < n_row; row++)
        for (int64_t i = 0; i < stride; i++)
            assert_int_equal(isnan(y[row * stride + i]) != 0, i >= linear->n_out);
    assert_true(isnan(y[n_row * stride]));
    free(scratch);
    brim_pool_free(&pool);
    return y;
}

/* Every result against the same sum in double. f32: each of at most n_in + 8 roundings is bounded
 * by half an ulp of the sum of magnitudes, where |scale| q and |bias| count apart: at most 40
 * |w|max here. int8: half a step, max |x| / 254, for every weight. */
static void check(const struct fixture *f, const float *bias, enum brim_activation_mode mode,
                  const float *x, int64_t n_row, const float *y)
{
    int64_t n_in = f->w.n_in, n_out = f->w.n_out, stride = n_out + 3;
    float *w = malloc((size_t)n_in * 4);
    for (int64_t out = 0; out < n_out; out++) {
        brim_weight_row_f32(&f->w, out, w);
        double w_max = 0.1;
        for (int64_t k = 0; k < n_in; k++) w_max = fmax(w_max, fabs((double)w[k]));
        for (int64_t row = 0; row < n_row; row++) {
            double sum = bias ? bias[out] : 0, magnitude = 0, steps = 0;
            for (int64_t g = 0; g < n_in; g += 32) {
                double x_max = 0, w_sum = 0;
                for (int64_t k = g; k < g + 32; k++) {
                    double xk = x[row * n_in + k];
                    sum += xk * w[k];
                    magnitude += fabs(xk) * w_max;
                    x_max = fmax(x_max, fabs(xk));
                    w_sum += fabs((double)w[k]);
                }
                steps += w_sum * x_max / 254;
            }
            double bound = (double)(n_in + 8) * 0x1p-24 * (3 * magnitude + 1);
            if (mode && f->w.kind != BRIM_WEIGHT_DENSE) bound += 1.001 * steps;
            double error = fabs((double)y[row * stride + out] - sum);
            if (!(error <= bound)) {
                print_error("kind %s row %d out %d: %g, want %g, error %g > %g\n",
                            brim_weight_kind_name(f->w.kind), (int)row, (int)out,
                            (double)y[row * stride + out], sum, error, bound);
                fail();
            }
        }
    }
    free(w);
}

static void products_match_double_for_any_threads(void **state)
{
    (void)state;
    struct brim_cpu_info info = brim_cpu_detect();
    const int64_t rows[] = {0, 1, 2, 7, 8, 9, 13, 33, 64};
    const int64_t outs[] = {1, 16, 31, 70};
    for (int tier = 0; tier < 4; tier++) {
        if (!brim_cpu_tier_ok(&info, (enum brim_cpu_tier)tier)) continue;
        const struct brim_cpu_ops *ops = brim_cpu_ops_get((enum brim_cpu_tier)tier, &info);
        for (int k = 0; k < N_KIND; k++) {
            for (size_t c = 0; c < sizeof rows / sizeof *rows * 4; c++) {
                int64_t n_row = rows[c / 4], n_out = outs[c % 4];
                int64_t n_in = kinds[k].group == 128 ? 384 : 320;
                struct fixture f =
                    make(kinds[k].kind, kinds[k].dtype, kinds[k].group, n_out, n_in, c + 11);
                struct brim_linear linear;
                assert_int_equal(brim_linear_pack(&linear, &f.w, 1, "w", NULL, NULL), BRIM_OK);
                struct brim_rng rng;
                brim_rng_seed(&rng, c);
                if (c % 3 == 0) {
                    linear.bias = brim_alloc((size_t)n_out * 4);
                    for (int64_t i = 0; i < n_out; i++) linear.bias[i] = small_value(&rng);
                }
                float *x = malloc((size_t)(n_row * n_in) * 4 + 4);
                for (int64_t i = 0; i < n_row * n_in; i++) x[i] = 4 * small_value(&rng);
                for (int mode = 0; mode < 2; mode++) {
                    enum brim_activation_mode m = (enum brim_activation_mode)mode;
                    float *y = product(ops, &linear, m, 1, x, n_row);
                    check(&f, linear.bias, m, x, n_row, y);
                    const int n_threads[] = {2, 3, 5};
                    for (size_t t = c % 3; t < 3; t += 3) { /* every third case for each */
                        int n_thread = n_threads[t];
                        float *again = product(ops, &linear, m, n_thread, x, n_row);
                        assert_memory_equal(y, again, (size_t)(n_row * (n_out + 3)) * 4);
                        free(again);
                    }
                    free(y);
                }
                free(x);
                brim_linear_free(&linear);
                drop(&f);
            }
        }
    }
}

/* Few outputs and a long reduction: the sum is split. One hash over many runs and thread counts,
 * and within the bound of the unsplit product, which runs the same kernel on one partition. */
static void split_reductions_repeat(void **state)
{
    (void)state;
    struct brim_cpu_info info = brim_cpu_detect();
    const struct brim_cpu_ops *ops = brim_cpu_ops_get(info.tier, &info);
    struct fixture f = make(BRIM_WEIGHT_AFFINE4, BRIM_DTYPE_BF16, 128, 40, 9728, 17);
    struct brim_linear linear;
    assert_int_equal(brim_linear_pack(&linear, &f.w, 1, "w", NULL, NULL), BRIM_OK);
    enum { N_ROW = 16, N_Y = N_ROW * 43 };
    float *x = malloc(N_ROW * 9728 * sizeof *x);
    struct brim_rng rng;
    brim_rng_seed(&rng, 5);
    for (int i = 0; i < N_ROW * 9728; i++) x[i] = small_value(&rng);
    float *y = product(ops, &linear, BRIM_ACTIVATIONS_F32, 1, x, N_ROW);
    check(&f, NULL, BRIM_ACTIVATIONS_F32, x, N_ROW, y);
    for (int i = 0; i < 20; i++) {
        float *again = product(ops, &linear, BRIM_ACTIVATIONS_F32, 1 + i % 4, x, N_ROW);
        assert_memory_equal(y, again, N_Y * sizeof *y);
        free(again);
    }
    linear.level = BRIM_MATMUL_TILED;
    float *unsplit = product(ops, &linear, BRIM_ACTIVATIONS_F32, 2, x, N_ROW);
    check(&f, NULL, BRIM_ACTIVATIONS_F32, x, N_ROW, unsplit);
    assert_memory_not_equal(y, unsplit, N_Y * sizeof *y); /* it was split */
    free(unsplit);
    free(y);
    free(x);
    brim_linear_free(&linear);
    drop(&f);
}

static void scratch_serves_fewer_rows_too(void **state)
{
    (void)state;
    struct fixture f = make(BRIM_WEIGHT_Q4_1, BRIM_DTYPE_F16, 32, 20, 64, 5);
    struct brim_linear linear;
    assert_int_equal(brim_linear_pack(&linear, &f.w, 1, "w", NULL, NULL), BRIM_OK);
    for (int64_t n_row = 0; n_row < 600; n_row++)
        assert_true(brim_linear_scratch_bytes(&linear, n_row, 2) <=
                    brim_linear_scratch_bytes(&linear, n_row + 1, 2));
    struct brim_cpu_info info = brim_cpu_detect();
    float *x = calloc(256 * 64, sizeof *x), *y = malloc(256 * 20 * sizeof *y);
    void *scratch = malloc(brim_linear_scratch_bytes(&linear, 257, 1));
    brim_linear_run(brim_cpu_ops_get(info.tier, &info), NULL, &linear, BRIM_ACTIVATIONS_F32, x, 64,
                    256, y, 20, scratch);
    free(scratch);
    free(y);
    free(x);
    brim_linear_free(&linear);
    drop(&f);
}

/* x given once and read for every row. */
static void a_stride_of_zero_repeats_the_row(void **state)
{
    (void)state;
    struct brim_cpu_info info = brim_cpu_detect();
    const struct brim_cpu_ops *ops = brim_cpu_ops_get(info.tier, &info);
    struct fixture f = make(BRIM_WEIGHT_Q4_1, BRIM_DTYPE_F16, 32, 20, 64, 5);
    struct brim_linear linear;
    assert_int_equal(brim_linear_pack(&linear, &f.w, 1, "w", NULL, NULL), BRIM_OK);
    float x[64], y[13 * 20];
    for (int k = 0; k < 64; k++) x[k] = (float)(k % 7) - 3;
    void *scratch = malloc(brim_linear_scratch_bytes(&linear, 13, 1));
    for (int mode = 0; mode < 2; mode++) {
        for (int64_t n_row = 5; n_row <= 13; n_row += 8) {
            brim_linear_run(ops, NULL, &linear, (enum brim_activation_mode)mode, x, 0, n_row, y, 20,
                            scratch);
            for (int64_t row = 1; row < n_row; row++)
                assert_memory_equal(y, y + row * 20, 20 * sizeof *y);
        }
    }
    free(scratch);
    brim_linear_free(&linear);
    drop(&f);
}

/* On one path (matvec up to 8 rows, tiles without a split, int8) a row has the same bits in any
 * company. */
static void rows_do_not_see_each_other(void **state)
{
    (void)state;
    struct brim_cpu_info info = brim_cpu_detect();
    enum { N_OUT = 20, N_IN = 384, N_ROW = 40 };
    float *x = malloc(N_ROW * N_IN * sizeof *x);
    struct brim_rng rng;
    brim_rng_seed(&rng, 9);
    for (int i = 0; i < N_ROW * N_IN; i++) x[i] = small_value(&rng);
    for (int tier = 0; tier < 4; tier++) {
        if (!brim_cpu_tier_ok(&info, (enum brim_cpu_tier)tier)) continue;
        const struct brim_cpu_ops *ops = brim_cpu_ops_get((enum brim_cpu_tier)tier, &info);
        for (int k = 0; k < N_KIND; k++) {
            struct fixture f = make(kinds[k].kind, kinds[k].dtype, kinds[k].group, N_OUT, N_IN, 5);
            struct brim_linear linear;
            assert_int_equal(
                brim_linear_pack_level(&linear, &f.w, 1, "w", BRIM_MATMUL_TILED, NULL, NULL),
                BRIM_OK);
            for (int path = 0; path < 3; path++) { /* matvec, tiles, int8 */
                enum brim_activation_mode mode = (enum brim_activation_mode)(path == 2);
                bool dense = linear.kind == BRIM_LINEAR_DENSE;
                if (path == 2 && dense) continue; /* has no int8 path */
                int64_t most = path == 0 ? 8 : N_ROW;
                float *y = product(ops, &linear, mode, 1, x, most);
                for (int64_t n_row = path == 1 ? 9 : 1; n_row < most; n_row += path ? 3 : 1) {
                    float *fewer = product(ops, &linear, mode, 1, x, n_row);
                    assert_memory_equal(y, fewer, (size_t)(n_row * (N_OUT + 3)) * sizeof *y);
                    free(fewer);
                }
                free(y);
            }
            brim_linear_free(&linear);
            drop(&f);
        }
    }
    free(x);
}

static void levels_agree(void **state)
{
    (void)state;
    struct brim_cpu_info info = brim_cpu_detect();
    const struct brim_cpu_ops *ops = brim_cpu_ops_get(info.tier, &info);
    for (int k = 0; k < N_KIND; k++) {
        for (int level = 0; level < 4; level++) {
            struct fixture f = make(kinds[k].kind, kinds[k].dtype, kinds[k].group, 33, 384, 3);
            struct brim_linear linear;
            assert_int_equal(brim_linear_pack_level(&linear, &f.w, 1, "w",
                                                    (enum brim_matmul_level)level, NULL, NULL),
                             BRIM_OK);
            float x[14 * 384];
            for (int i = 0; i < 14 * 384; i++) x[i] = (float)(i % 23) - 11;
            for (int mode = 0; mode < 2; mode++) {
                float *y = product(ops, &linear, (enum brim_activation_mode)mode, 2, x, 14);
                check(&f, NULL, (enum brim_activation_mode)mode, x, 14, y);
                free(y);
            }
            brim_linear_free(&linear);
            drop(&f);
        }
    }
}

static void fused_parts_equal_single_ones(void **state)
{
    (void)state;
    struct fixture f[3] = {make(BRIM_WEIGHT_Q4_1, BRIM_DTYPE_F16, 32, 24, 64, 1),
                           make(BRIM_WEIGHT_Q4_1, BRIM_DTYPE_F16, 32, 8, 64, 2),
                           make(BRIM_WEIGHT_Q4_1, BRIM_DTYPE_F16, 32, 9, 64, 3)};
    f[0].w.n_rope_head = 3;
    const struct brim_weight parts[3] = {f[0].w, f[1].w, f[2].w};
    struct brim_linear linear;
    struct brim_pool *pool;
    assert_int_equal(brim_pool_create(&pool, 2, NULL), BRIM_OK);
    assert_true(brim_linear_can_fuse(parts, 3));
    assert_int_equal(brim_linear_pack(&linear, parts, 3, "qkv", pool, NULL), BRIM_OK);
    assert_int_equal(linear.n_out, 41);
    int64_t row = 0;
    for (int p = 0; p < 3; p++) {
        for (int64_t i = 0; i < parts[p].n_out; i++, row++) {
            float want[64], got[64];
            brim_weight_row_f32(&parts[p], i, want);
            brim_linear_row_f32(&linear, row, got);
            assert_memory_equal(want, got, sizeof want);
        }
    }
    brim_linear_free(&linear);
    struct brim_weight other = parts[1];
    other.kind = BRIM_WEIGHT_Q4_0;
    const struct brim_weight mixed[2] = {parts[0], other};
    assert_false(brim_linear_can_fuse(mixed, 2));
    assert_int_equal(brim_linear_pack(&linear, mixed, 2, "qk", pool, NULL), BRIM_E_ARGUMENT);
    brim_pool_free(&pool);
    for (int p = 0; p < 3; p++) drop(&f[p]);
}

static void scales_that_are_not_finite_are_named(void **state)
{
    (void)state;
    for (int k = 3; k < N_KIND; k++) {
        for (int level = 0; level < 4; level += 3) {
            struct fixture f = make(kinds[k].kind, kinds[k].dtype, kinds[k].group, 20, 256, 5);
            int64_t n_group = 256 / (kinds[k].group);
            if (kinds[k].kind == BRIM_WEIGHT_AFFINE4)
                put(kinds[k].dtype, k % 2 ? f.scales : f.biases, (size_t)(17 * n_group + 1),
                    k % 2 ? INFINITY : NAN);
            else
                put(BRIM_DTYPE_F16,
                    (uint8_t *)f.data +
                        f.w.data_bytes / (size_t)(20 * n_group) * (size_t)(17 * n_group + 1),
                    0, NAN);
            struct brim_linear linear;
            brim_error err = {0};
            assert_int_equal(brim_linear_pack_level(&linear, &f.w, 1, "blk.3.q",
                                                    (enum brim_matmul_level)level, NULL, &err),
                             BRIM_E_NOT_FINITE);
            assert_non_null(strstr(err.text, "blk.3.q"));
            assert_non_null(strstr(err.text, "row 17, group 1 "));
            assert_null(linear.panels);
            drop(&f);
        }
    }
}

static void shapes_are_checked(void **state)
{
    (void)state;
    struct brim_linear linear;
    brim_error err;
    struct fixture f = make(BRIM_WEIGHT_AFFINE4, BRIM_DTYPE_BF16, 32, 4, 256, 5);
    struct brim_weight w = f.w;
    w.n_in = 200;
    w.group = 128;
    assert_int_equal(brim_linear_pack(&linear, &w, 1, "w", NULL, &err), BRIM_E_SHAPE);
    w = f.w;
    w.group = 16;
    assert_int_equal(brim_linear_pack(&linear, &w, 1, "w", NULL, &err), BRIM_E_UNSUPPORTED);
    w = f.w;
    w.n_out = 5;
    assert_int_equal(brim_linear_pack(&linear, &w, 1, "w", NULL, &err), BRIM_E_SHAPE);
    w = f.w;
    w.biases = NULL;
    assert_int_equal(brim_linear_pack(&linear, &w, 1, "w", NULL, &err), BRIM_E_MISSING);
    for (int n = 0; n < 2; n++) {
        brim_mem_fail_after(n);
        brim_status status =
            brim_linear_pack_level(&linear, &f.w, 1, "w", BRIM_MATMUL_DENSE, NULL, &err);
        brim_mem_fail_after(-1);
        assert_int_equal(status, BRIM_E_NO_MEMORY);
        assert_null(linear.panels);
    }
    w = f.w;
    w.n_out = 0;
    assert_int_equal(brim_linear_pack(&linear, &w, 1, "w", NULL, &err), BRIM_OK);
    struct brim_cpu_info info = brim_cpu_detect();
    float x[256] = {0}, y = 5;
    brim_linear_run(brim_cpu_ops_get(BRIM_CPU_TIER_C, &info), NULL, &linear, BRIM_ACTIVATIONS_F32,
                    x, 256, 1, &y, 1, NULL);
    assert_true(y == 5);
    brim_linear_free(&linear);
    drop(&f);
}

/* -8 d of the largest f16 does not fit f16: such a matrix gets f32 scales. */
static void q4_0_with_huge_scales(void **state)
{
    (void)state;
    struct fixture f = make(BRIM_WEIGHT_Q4_0, BRIM_DTYPE_F16, 32, 3, 64, 5);
    struct brim_linear linear;
    const float ds[] = {65504.0f, -65504.0f, 8184.0f, 0x1p-24f, 0};
    for (size_t i = 0; i < sizeof ds / sizeof *ds; i++) {
        put(BRIM_DTYPE_F16, (uint8_t *)f.data + 18, 0, ds[i]);
        assert_int_equal(brim_linear_pack(&linear, &f.w, 1, "w", NULL, NULL), BRIM_OK);
        assert_int_equal(linear.dtype, i < 2 ? BRIM_DTYPE_F32 : BRIM_DTYPE_F16);
        float want[64], got[64];
        for (int row = 0; row < 3; row++) {
            brim_weight_row_f32(&f.w, row, want);
            brim_linear_row_f32(&linear, row, got);
            assert_memory_equal(want, got, sizeof want);
        }
        brim_linear_free(&linear);
    }
    drop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_back_exactly),
        cmocka_unit_test(products_match_double_for_any_threads),
        cmocka_unit_test(split_reductions_repeat),
        cmocka_unit_test(scratch_serves_fewer_rows_too),
        cmocka_unit_test(a_stride_of_zero_repeats_the_row),
        cmocka_unit_test(rows_do_not_see_each_other),
        cmocka_unit_test(levels_agree),
        cmocka_unit_test(fused_parts_equal_single_ones),
        cmocka_unit_test(scales_that_are_not_finite_are_named),
        cmocka_unit_test(shapes_are_checked),
        cmocka_unit_test(q4_0_with_huge_scales),
    };
    return cmocka_run_group_tests_name("linear", tests, NULL, NULL);
}
