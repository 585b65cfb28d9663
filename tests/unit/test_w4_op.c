/* SPDX-License-Identifier: Apache-2.0
 * The W4 operator of kernels.h on the CPU: values against an fp64 product, the split's numerics,
 * plans, and every refusal of its contract.
 * ctest labels: threads */
#define _DEFAULT_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "brim/kernels.h"
#include "tensor/dtype.h"

/* A product in host memory: bf16 x and y with rows longer than they need be, poison between them
 * and behind. */
struct product {
    brim_w4_args args;
    uint16_t *x, *y;
    uint32_t *codes;
    void *scales, *biases;
    float *weights; /* [n_out][n_in], of the rounded scales and biases */
    double *ref;    /* [n_row][n_out] */
};

enum { PAD = 3, POISON = 0xFFFF };

static float gaussian(struct brim_rng *rng)
{
    float sum = 0;
    for (int i = 0; i < 12; i++) sum += brim_rng_uniform(rng);
    return sum - 6;
}

static float store_param(brim_kernel_dtype dtype, void *to, int64_t i, float v)
{
    if (dtype == BRIM_KERNEL_F32) return ((float *)to)[i] = v;
    uint16_t h = dtype == BRIM_KERNEL_F16 ? brim_f16_from_f32(v) : brim_bf16_from_f32(v);
    ((uint16_t *)to)[i] = h;
    return dtype == BRIM_KERNEL_F16 ? brim_f32_from_f16(h) : brim_f32_from_bf16(h);
}

static struct product product_make(int64_t n_row, int64_t n_in, int64_t n_out, int group,
                                   brim_kernel_dtype dtype, uint64_t seed)
{
    struct product p = {0};
    struct brim_rng rng;
    brim_rng_seed(&rng, seed + (uint64_t)(n_row * 131 + n_in * 17 + n_out));
    brim_w4_args_init(&p.args);
    p.args.device = BRIM_KERNEL_CPU;
    p.args.n_row = n_row, p.args.n_in = n_in, p.args.n_out = n_out, p.args.group = group;
    p.args.param_dtype = dtype;
    p.args.x_stride = n_in + PAD, p.args.y_stride = n_out + PAD;
    size_t n_param = (size_t)(n_out * (n_in / group));
    p.x = malloc((size_t)(n_row * p.args.x_stride) * 2);
    p.y = malloc((size_t)(n_row * p.args.y_stride) * 2);
    p.codes = malloc((size_t)(n_out * n_in / 2));
    p.scales = malloc(n_param * 4);
    p.biases = malloc(n_param * 4);
    p.weights = malloc((size_t)(n_out * n_in) * sizeof(float));
    p.ref = malloc((size_t)(n_row * n_out) * sizeof(double));
    memset(p.x, 0xFF, (size_t)(n_row * p.args.x_stride) * 2);
    memset(p.y, 0xFF, (size_t)(n_row * p.args.y_stride) * 2);
    for (int64_t r = 0; r < n_row; r++)
        for (int64_t k = 0; k < n_in; k++)
            p.x[r * p.args.x_stride + k] = brim_bf16_from_f32(gaussian(&rng));
    for (int64_t i = 0; i < n_out * n_in / 8; i++) p.codes[i] = brim_rng_u32(&rng);
    for (int64_t o = 0; o < n_out; o++)
        for (int64_t g = 0; g < n_in / group; g++) {
            float s = (brim_rng_uniform(&rng) < 0.5f ? -1.0f : 1.0f) *
                      (0.1f + 0.1f * brim_rng_uniform(&rng));
            int64_t at = o * (n_in / group) + g;
            float b = store_param(dtype, p.biases, at, -7.5f * s + 0.05f * gaussian(&rng));
            s = store_param(dtype, p.scales, at, s);
            for (int k = 0; k < group; k++) {
                int64_t w = o * n_in + g * group + k;
                p.weights[w] = s * (float)(p.codes[w / 8] >> (w % 8 * 4) & 15) + b;
            }
        }
    for (int64_t r = 0; r < n_row; r++)
        for (int64_t o = 0; o < n_out; o++) {
            double sum = 0;
            for (int64_t k = 0; k < n_in; k++)
                sum += (double)p.weights[o * n_in + k] *
                       (double)brim_f32_from_bf16(p.x[r * p.args.x_stride + k]);
            p.ref[r * n_out + o] = sum;
        }
    p.args.x = p.x, p.args.y = p.y, p.args.codes = p.codes;
    p.args.scales = p.scales, p.args.biases = p.biases;
    return p;
}

static void product_free(struct product *p)
{
    free(p->x), free(p->y), free(p->codes), free(p->scales), free(p->biases), free(p->weights);
    free(p->ref);
}

/* rms error over the rms of the output; fails where a word between the rows changed. */
static double product_error(const struct product *p)
{
    double err2 = 0, ref2 = 0;
    const brim_w4_args *a = &p->args;
    for (int64_t r = 0; r < a->n_row; r++) {
        for (int64_t o = 0; o < a->n_out; o++) {
            double got = (double)brim_f32_from_bf16(p->y[r * a->y_stride + o]);
            double want = p->ref[r * a->n_out + o];
            err2 += (got - want) * (got - want), ref2 += want * want;
        }
        for (int64_t o = a->n_out; o < a->y_stride; o++)
            assert_int_equal(p->y[r * a->y_stride + o], POISON);
    }
    return sqrt(err2 / ref2);
}

static void run(const struct product *p)
{
    brim_error err = {0};
    if (brim_w4_matmul(&p->args, &err) != BRIM_OK) fail_msg("%s", err.text);
}

static uint16_t *copy_y(const struct product *p)
{
    size_t n = (size_t)(p->args.n_row * p->args.y_stride) * 2;
    uint16_t *y = malloc(n);
    memcpy(y, p->y, n);
    return y;
}

static int same_y(const struct product *p, const uint16_t *y)
{
    return !memcmp(p->y, y, (size_t)(p->args.n_row * p->args.y_stride) * 2);
}

/* One rounding of the output to bf16 is 1.66e-3 of its rms; three sigma of that over few outputs.
 */
static double bound_of(const struct product *p, double rms)
{
    return rms * (1 + 3 / sqrt(2.0 * (double)(p->args.n_row * p->args.n_out)));
}

static void against_fp64(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, 2, 8, 9, 13, 97, 100};
    static const struct {
        int64_t n_in, n_out;
        int group;
        brim_kernel_dtype dtype;
    } cases[] = {{128, 16, 128, BRIM_KERNEL_BF16}, {576, 50, 32, BRIM_KERNEL_F16},
                 {320, 33, 64, BRIM_KERNEL_F32},   {640, 17, 128, BRIM_KERNEL_F16},
                 {32, 1, 32, BRIM_KERNEL_BF16},    {96, 40, 32, BRIM_KERNEL_F32}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            struct product p = product_make(rows[r], cases[c].n_in, cases[c].n_out, cases[c].group,
                                            cases[c].dtype, c);
            run(&p);
            double e = product_error(&p);
            if (!(e <= bound_of(&p, 1.9e-3)))
                fail_msg("case %zu rows %d: %.2e", c, (int)rows[r], e);
            /* any number of threads, to the bit */
            uint16_t *first = copy_y(&p);
            for (int n = 2; n <= 5; n += 3) {
                memset(p.y, 0xFF, (size_t)(p.args.n_row * p.args.y_stride) * 2);
                p.args.n_thread = n;
                run(&p);
                assert_true(same_y(&p, first));
            }
            free(first);
            product_free(&p);
        }
}

static void f32_in_and_out(void **state)
{
    (void)state;
    for (int n_row = 3; n_row < 30; n_row += 17) {
        struct product p = product_make(n_row, 256, 40, 128, BRIM_KERNEL_BF16, 9);
        int64_t xs = p.args.x_stride, ys = p.args.y_stride;
        float *x = malloc((size_t)(n_row * xs) * 4), *y = malloc((size_t)(n_row * ys) * 4);
        for (int64_t i = 0; i < n_row * xs; i++) x[i] = brim_f32_from_bf16(p.x[i]);
        p.args.x = x, p.args.y = y;
        p.args.x_dtype = p.args.y_dtype = BRIM_KERNEL_F32;
        run(&p);
        for (int64_t r = 0; r < n_row; r++)
            for (int64_t o = 0; o < 40; o++)
                assert_true(fabs((double)y[r * ys + o] - p.ref[r * 40 + o]) < 1e-3);
        free(x), free(y);
        product_free(&p);
    }
}

/* Q17: every seam of the tiles, with outputs that fill none. */
static void row_counts_at_the_seams(void **state)
{
    (void)state;
    static const int rows[] = {15, 16, 17, 31,  32,  33,  63,  64, 65,
                               95, 96, 97, 127, 128, 129, 160, 161};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct product p = product_make(rows[r], 160, 35, 32, BRIM_KERNEL_BF16, 11);
        run(&p);
        double e = product_error(&p);
        if (!(e <= bound_of(&p, 1.9e-3))) fail_msg("rows %d: %.2e", rows[r], e);
        product_free(&p);
    }
}

/* Q13: one channel of 6e4, beyond what f16 sums would hold. */
static void a_large_channel(void **state)
{
    (void)state;
    for (int n_row = 2; n_row <= 20; n_row += 9) {
        struct product p = product_make(n_row, 256, 24, 128, BRIM_KERNEL_F16, 4);
        const float large = brim_f32_from_bf16(brim_bf16_from_f32(6e4f));
        for (int64_t r = 0; r < n_row; r++) {
            uint16_t *x = &p.x[r * p.args.x_stride + 77];
            for (int64_t o = 0; o < 24; o++)
                p.ref[r * 24 + o] += (double)p.weights[o * 256 + 77] *
                                     ((double)large - (double)brim_f32_from_bf16(*x));
            *x = brim_bf16_from_f32(large);
        }
        run(&p);
        double e = product_error(&p);
        if (!(e <= bound_of(&p, 1.9e-3))) fail_msg("rows %d: %.2e", n_row, e);
        product_free(&p);
    }
}

/* A row's result does not depend on its neighbours, on either side of the matvec's limit. */
static void rows_stand_alone(void **state)
{
    (void)state;
    struct product p = product_make(100, 256, 24, 64, BRIM_KERNEL_BF16, 3);
    run(&p);
    uint16_t *all = copy_y(&p);
    for (int64_t begin = 0; begin < 100; begin += 13) {
        brim_w4_args args = p.args;
        args.x = p.x + begin * args.x_stride, args.y = p.y;
        args.n_row = 100 - begin < 13 ? 100 - begin : 13;
        if (args.n_row <= 8) continue;
        assert_int_equal(brim_w4_matmul(&args, NULL), BRIM_OK);
        assert_memory_equal(p.y, all + begin * args.y_stride,
                            (size_t)(args.n_row * args.y_stride) * 2);
    }
    free(all);
    product_free(&p);
}

/* The numbers of splitting: f32 planes cost nothing, bf16 planes one more rounding; pinned, by the
 * course's rule, and off. */
static void splits(void **state)
{
    (void)state;
    struct product p = product_make(17, 2560, 40, 128, BRIM_KERNEL_BF16, 5);
    run(&p);
    uint16_t *whole = copy_y(&p);
    assert_true(product_error(&p) <= bound_of(&p, 1.9e-3));
    brim_w4_plan plan;
    p.args.policy = BRIM_W4_POLICY_COURSE;
    assert_int_equal(brim_w4_plan_make(&p.args, &plan, NULL), BRIM_OK);
    assert_int_equal(plan.split.split, 10); /* 16 lowered to a divisor of 20 groups */
    run(&p);
    assert_false(same_y(&p, whole));
    double e = product_error(&p);
    if (!(e <= bound_of(&p, 3.0e-3)) || !(e > 1.9e-3)) fail_msg("bf16 planes: %.2e", e);
    p.args.plane_dtype = BRIM_KERNEL_F32;
    run(&p);
    assert_true(product_error(&p) <= bound_of(&p, 1.9e-3));
    p.args.split = BRIM_W4_SPLIT_OFF;
    run(&p);
    assert_true(same_y(&p, whole));
    p.args.split = BRIM_W4_SPLIT_PINNED;
    p.args.plane_dtype = BRIM_KERNEL_BF16;
    for (int64_t split = 1; split <= 20; split++) {
        if (20 % split) continue;
        brim_split_plan pin = {.split = split, .partition_inputs = 2560 / split};
        p.args.pinned = &pin;
        run(&p);
        assert_true(same_y(&p, whole) == (split == 1));
        assert_true(product_error(&p) <= bound_of(&p, 3.0e-3));
    }
    /* A pinned split also holds for few rows, where the matvec would run. */
    brim_split_plan pin = {.split = 5, .partition_inputs = 512};
    p.args.n_row = 2, p.args.pinned = &pin;
    assert_int_equal(brim_w4_plan_make(&p.args, &plan, NULL), BRIM_OK);
    assert_int_equal(plan.split.split, 5);
    run(&p);
    free(whole);
    product_free(&p);
}

static void the_course_for_every_projection(void **state)
{
    (void)state;
    static const struct {
        int64_t n_in, n_out;
        int last[3], split[4]; /* rows up to which a split holds; then the last */
    } table[] = {
        {2560, 4096, {32, 32, 32}, {2, 2, 2, 1}}, {2560, 1024, {32, 64, 160}, {10, 5, 2, 1}},
        {4096, 2560, {32, 64, 64}, {4, 2, 2, 1}}, {2560, 9728, {8, 8, 8}, {1, 1, 1, 1}},
        {9728, 2560, {32, 64, 64}, {4, 2, 2, 1}}, {2560, 151936, {8, 8, 8}, {1, 1, 1, 1}}};
    static uint32_t word[8];
    for (size_t t = 0; t < sizeof table / sizeof *table; t++)
        for (int m = 1; m <= 2048; m++) {
            brim_w4_args args;
            brim_w4_plan plan;
            brim_error err = {0};
            brim_w4_args_init(&args);
            args.device = BRIM_KERNEL_CPU, args.policy = BRIM_W4_POLICY_COURSE;
            args.n_row = m, args.n_in = args.x_stride = table[t].n_in;
            args.n_out = args.y_stride = table[t].n_out;
            /* a plan reads no data: places far apart stand for the arrays */
            args.x = word, args.codes = word, args.scales = word, args.biases = word;
            args.y = (void *)(UINTPTR_MAX / 4 * 3 & ~(uintptr_t)255);
            if (brim_w4_plan_make(&args, &plan, &err) != BRIM_OK) fail_msg("%s", err.text);
            int i = 0;
            while (i < 3 && m > table[t].last[i]) i++;
            assert_int_equal(plan.split.split, m <= 8 ? 1 : table[t].split[i]);
            assert_int_equal(plan.split.matvec, m <= 8);
            assert_int_equal(plan.split.base_groups, (m + 31) / 32 * ((table[t].n_out + 31) / 32));
        }
}

static void nothing_to_do(void **state)
{
    (void)state;
    brim_w4_args args;
    brim_w4_plan plan;
    size_t n_bytes = 77;
    brim_w4_args_init(&args);
    args.device = BRIM_KERNEL_CPU, args.n_in = 2560, args.n_out = 1024;
    assert_int_equal(brim_w4_matmul(&args, NULL), BRIM_OK); /* every pointer is null */
    assert_int_equal(brim_w4_supported(&args, NULL), BRIM_OK);
    assert_int_equal(brim_w4_workspace_bytes(&args, &n_bytes, NULL), BRIM_OK);
    assert_int_equal(n_bytes, 0);
    assert_int_equal(brim_w4_plan_make(&args, &plan, NULL), BRIM_OK);
    assert_string_equal(plan.kernel, "none");
    assert_int_equal(plan.accumulates, 0);
    args.device = BRIM_KERNEL_CUDA; /* also without a device */
    assert_int_equal(brim_w4_matmul(&args, NULL), BRIM_OK);
    args.group = 16; /* but not with a wrong shape */
    assert_int_equal(brim_w4_matmul(&args, NULL), BRIM_E_RANGE);
    struct product p = product_make(4, 128, 8, 128, BRIM_KERNEL_BF16, 1);
    p.args.n_row = 0;
    run(&p);
    for (int64_t i = 0; i < 4 * p.args.y_stride; i++) assert_int_equal(p.y[i], POISON);
    p.args.n_row = 4, p.args.n_out = 0;
    run(&p);
    for (int64_t i = 0; i < 4 * p.args.y_stride; i++) assert_int_equal(p.y[i], POISON);
    product_free(&p);
}

/* The call and its query give this answer; then `a` is the whole case again. */
static void refused(const struct product *p, brim_w4_args *a, brim_status status, const char *text,
                    int line)
{
    brim_error err = {0};
    brim_status got = brim_w4_matmul(a, &err);
    if (got != status || !strstr(err.text, text))
        fail_msg("line %d: %s: %s", line, brim_status_name(got), err.text);
    assert_int_equal(brim_w4_supported(a, NULL), status);
    *a = p->args;
}

static void refusals(void **state)
{
    (void)state;
    struct product p = product_make(9, 256, 8, 64, BRIM_KERNEL_F32, 1);
    brim_w4_args a = p.args;
#define REFUSED(status, text) refused(&p, &a, status, text, __LINE__)
    a.n_in = 256 + 32, REFUSED(BRIM_E_SHAPE, "288 is not a positive multiple of the group, 64");
    a.n_in = 576, a.group = 128; /* half of 1152, as two shards would have it */
    REFUSED(BRIM_E_SHAPE, "576 is not a positive multiple of the group, 128");
    a.n_in = 200, a.group = 128, REFUSED(BRIM_E_SHAPE, "200 is not a positive multiple");
    a.n_in = 1040, a.group = 32, REFUSED(BRIM_E_SHAPE, "1040 is not a positive multiple");
    a.n_in = 0, REFUSED(BRIM_E_SHAPE, "n_in 0 is not a positive multiple");
    a.n_in = -64, REFUSED(BRIM_E_SHAPE, "n_in -64");
    a.group = 48, REFUSED(BRIM_E_RANGE, "group is 48");
    a.group = 256, REFUSED(BRIM_E_RANGE, "group is 256");
    a.group = 0, REFUSED(BRIM_E_RANGE, "group is 0");
    a.n_row = -1, REFUSED(BRIM_E_SHAPE, "n_row -1");
    a.n_out = -1, REFUSED(BRIM_E_SHAPE, "n_out -1");
    a.n_out = INT64_MAX / 64, REFUSED(BRIM_E_SHAPE, "weights are too many");
    a.n_row = INT64_MAX / 64, REFUSED(BRIM_E_SHAPE, "more than memory can hold");
    a.device = (brim_kernel_device)0, REFUSED(BRIM_E_ARGUMENT, "neither CPU nor CUDA");
    a.n_thread = -1, REFUSED(BRIM_E_RANGE, "n_thread -1");
    a.x = NULL, REFUSED(BRIM_E_ARGUMENT, "x is null");
    a.y = NULL, REFUSED(BRIM_E_ARGUMENT, "y is null");
    a.codes = NULL, REFUSED(BRIM_E_ARGUMENT, "codes is null");
    a.scales = NULL, REFUSED(BRIM_E_ARGUMENT, "scales is null");
    a.biases = NULL, REFUSED(BRIM_E_ARGUMENT, "biases is null");
    a.x = (char *)p.x + 1, REFUSED(BRIM_E_ALIGNMENT, "x is not 2-byte aligned");
    a.y = (char *)p.y + 1, REFUSED(BRIM_E_ALIGNMENT, "y is not 2-byte aligned");
    a.codes = (char *)p.codes + 2, REFUSED(BRIM_E_ALIGNMENT, "codes is not 4-byte aligned");
    a.scales = (char *)p.scales + 2, REFUSED(BRIM_E_ALIGNMENT, "scales or biases is not aligned");
    a.biases = (char *)p.biases + 2, REFUSED(BRIM_E_ALIGNMENT, "scales or biases is not aligned");
    a.x_stride = 255, REFUSED(BRIM_E_STRIDE, "the stride of x is 255; at least 256");
    a.x_stride = 0, REFUSED(BRIM_E_STRIDE, "the stride of x is 0"); /* a broadcast row */
    a.y_stride = 0, REFUSED(BRIM_E_STRIDE, "the stride of y is 0");
    a.x_stride = -256, REFUSED(BRIM_E_STRIDE, "the stride of x is -256");
    a.y_stride = 7, REFUSED(BRIM_E_STRIDE, "the stride of y is 7; at least 8");
    a.param_dtype = (brim_kernel_dtype)0, REFUSED(BRIM_E_DTYPE, "param_dtype 0");
    a.x_dtype = BRIM_KERNEL_F16, REFUSED(BRIM_E_DTYPE, "x must be bf16");
    a.y_dtype = BRIM_KERNEL_F16, REFUSED(BRIM_E_DTYPE, "y must be bf16");
    a.plane_dtype = BRIM_KERNEL_F16, REFUSED(BRIM_E_DTYPE, "plane_dtype 3");
    a.level = (brim_w4_level)9, REFUSED(BRIM_E_ARGUMENT, "level 9");
    a.level = BRIM_W4_HOPPER, REFUSED(BRIM_E_UNSUPPORTED, "Hopper kernels belong to CUDA");
    a.packed = p.codes, REFUSED(BRIM_E_ARGUMENT, "packed weights belong to CUDA");
    a.split = (brim_w4_split)7, REFUSED(BRIM_E_ARGUMENT, "split 7");
    a.policy = (brim_w4_policy)7, REFUSED(BRIM_E_ARGUMENT, "policy 7");
    a.split = BRIM_W4_SPLIT_PINNED, REFUSED(BRIM_E_ARGUMENT, "`pinned` is null");
    brim_split_plan pin = {.split = 2, .partition_inputs = 128};
    a.pinned = &pin, REFUSED(BRIM_E_ARGUMENT, "split is not pinned");
#define PINNED(...)                       \
    pin = (brim_split_plan){__VA_ARGS__}; \
    a.pinned = &pin, a.split = BRIM_W4_SPLIT_PINNED
    PINNED(.split = 3, .partition_inputs = 85), REFUSED(BRIM_E_SHAPE, "pinned split 3");
    PINNED(.split = 8, .partition_inputs = 32), REFUSED(BRIM_E_SHAPE, "pinned split 8");
    PINNED(.split = 2, .partition_inputs = 64), REFUSED(BRIM_E_SHAPE, "partitions of 64");
    PINNED(.split = 0, .partition_inputs = 0), REFUSED(BRIM_E_RANGE, "pinned split 0");
    PINNED(.split = 1, .partition_inputs = 256, .matvec = 1), REFUSED(BRIM_E_SHAPE, "9 rows");
    PINNED(.split = 2, .partition_inputs = 128),
        a.level = BRIM_W4_MATVEC, REFUSED(BRIM_E_ARGUMENT, "belongs to the level tiled");
    /* y over each of the inputs, at their last byte */
    a.y = p.x + 8 * p.args.x_stride + 254, REFUSED(BRIM_E_ARGUMENT, "y overlaps x");
    /* one row, so that it does not reach the block behind, whichever that is */
    a.n_row = 1, a.y = (char *)p.codes + 1022, REFUSED(BRIM_E_ARGUMENT, "y overlaps codes");
    a.n_row = 1, a.y = (char *)p.scales + 126, REFUSED(BRIM_E_ARGUMENT, "y overlaps scales");
    a.n_row = 1, a.y = (char *)p.biases, REFUSED(BRIM_E_ARGUMENT, "y overlaps biases");
    a.workspace = p.y, a.workspace_bytes = 2, REFUSED(BRIM_E_ARGUMENT, "y overlaps the workspace");
    assert_int_equal(brim_w4_matmul(NULL, NULL), BRIM_E_ARGUMENT);
    for (int64_t i = 0; i < 9 * p.args.y_stride; i++) assert_int_equal(p.y[i], POISON);
    run(&p);
    product_free(&p);
}

/* What only CUDA takes is refused for its own reason before any device is asked. */
static void refusals_of_cuda(void **state)
{
    (void)state;
    struct product p = product_make(9, 256, 8, 64, BRIM_KERNEL_BF16, 1);
    brim_w4_args a = p.args;
    size_t n_bytes;
    brim_error err = {0};
    p.args.device = BRIM_KERNEL_CUDA;
    p.args.x_stride = 264;
    p.args.x = (void *)4096, p.args.codes = (void *)65536, p.args.scales = (void *)131072;
    p.args.biases = (void *)196608, p.args.y = (void *)262144;
    a = p.args;
    a.x_dtype = BRIM_KERNEL_F32, REFUSED(BRIM_E_DTYPE, "x must be bf16");
    a.y_dtype = BRIM_KERNEL_F32, REFUSED(BRIM_E_DTYPE, "y must be bf16");
    a.x = (void *)4104, REFUSED(BRIM_E_ALIGNMENT, "x is not 16-byte aligned");
    a.x_stride = 260, REFUSED(BRIM_E_STRIDE, "at least 256 and a multiple of 8");
    a.codes = (void *)65544, REFUSED(BRIM_E_ALIGNMENT, "codes is not 16-byte aligned");
    a.scales = NULL, REFUSED(BRIM_E_ARGUMENT, "scales is null");
    a.level = BRIM_W4_HOPPER, REFUSED(BRIM_E_ARGUMENT, "need `packed`, from brim_w4_pack");
    a.level = BRIM_W4_HOPPER, a.packed = (void *)4224,
    REFUSED(BRIM_E_ALIGNMENT, "packed is not 256-byte aligned");
    p.args.device = BRIM_KERNEL_CPU, p.args.x = p.x, p.args.y = p.y, p.args.codes = p.codes;
    p.args.scales = p.scales, p.args.biases = p.biases;
    a = p.args;
    assert_int_equal(brim_w4_pack_bytes(&a, &n_bytes, &err), BRIM_E_UNSUPPORTED);
    assert_int_equal(brim_w4_pack(&a, p.y, NULL), BRIM_E_UNSUPPORTED);
    assert_int_equal(brim_w4_workspace_init(BRIM_KERNEL_CPU, NULL, 0, NULL, NULL), BRIM_OK);
    assert_int_equal(brim_w4_workspace_init(BRIM_KERNEL_CUDA, NULL, 64, NULL, NULL),
                     BRIM_E_WORKSPACE);
    assert_int_equal(brim_w4_workspace_init(BRIM_KERNEL_CUDA, (void *)264, 64, NULL, NULL),
                     BRIM_E_ALIGNMENT);
    product_free(&p);
}

/* Rows 2^31 elements apart, in a mapping of which only the touched pages exist. */
static void offsets_beyond_31_bits(void **state)
{
    (void)state;
    const int64_t stride = ((int64_t)1 << 31) + 64;
    for (int n_row = 2; n_row <= 9; n_row += 7) {
        size_t n_bytes = (size_t)((n_row - 1) * stride + 256) * 2;
        uint16_t *x = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        uint16_t *y = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (x == MAP_FAILED || y == MAP_FAILED) {
            print_message("SKIP: no address space for %zu sparse bytes\n", n_bytes);
            skip();
        }
        struct product p = product_make(n_row, 256, 24, 128, BRIM_KERNEL_BF16, 2);
        run(&p);
        brim_w4_args far = p.args;
        far.x = x, far.y = y, far.x_stride = far.y_stride = stride;
        for (int r = 0; r < n_row; r++) memcpy(x + r * stride, p.x + r * p.args.x_stride, 512);
        assert_int_equal(brim_w4_matmul(&far, NULL), BRIM_OK);
        for (int r = 0; r < n_row; r++)
            assert_memory_equal(y + r * stride, p.y + r * p.args.y_stride, 48);
        munmap(x, n_bytes), munmap(y, n_bytes);
        product_free(&p);
    }
}

/* The size of a packed matrix is asked for before there is a product: fields that belong to one may
 * hold anything. What it depends on is checked. */
static void pack_bytes_of_a_matrix_alone(void **state)
{
    (void)state;
    brim_w4_args a, good;
    size_t clean = 1, n_bytes = 2;
    brim_error err = {0};
    brim_w4_args_init(&good);
    good.device = BRIM_KERNEL_CUDA, good.n_in = 2560, good.n_out = 1000;
    assert_int_equal(brim_w4_pack_bytes(&good, &clean, &err), BRIM_OK);
    memset(&a, 0xA5, sizeof a);
    a.device = good.device, a.n_in = good.n_in, a.n_out = good.n_out, a.group = good.group;
    a.param_dtype = good.param_dtype;
    if (brim_w4_pack_bytes(&a, &n_bytes, &err) != BRIM_OK) fail_msg("%s", err.text);
    assert_int_equal(n_bytes, clean);
#define PACK_REFUSED(change, status, words)                               \
    do {                                                                  \
        a = good;                                                         \
        a.change;                                                         \
        assert_int_equal(brim_w4_pack_bytes(&a, &n_bytes, &err), status); \
        assert_non_null(strstr(err.text, words));                         \
        assert_int_equal(brim_w4_pack(&a, &a, NULL), status);             \
    } while (0)
    PACK_REFUSED(device = (brim_kernel_device)0, BRIM_E_ARGUMENT, "device 0");
    PACK_REFUSED(device = BRIM_KERNEL_CPU, BRIM_E_UNSUPPORTED, "belong to CUDA");
    PACK_REFUSED(group = 16, BRIM_E_RANGE, "group is 16");
    PACK_REFUSED(n_in = 2561, BRIM_E_SHAPE, "n_in 2561");
    PACK_REFUSED(n_in = 0, BRIM_E_SHAPE, "n_in 0");
    PACK_REFUSED(n_out = -1, BRIM_E_SHAPE, "n_out -1");
    PACK_REFUSED(n_out = INT64_MAX / 64, BRIM_E_SHAPE, "too many");
    PACK_REFUSED(param_dtype = (brim_kernel_dtype)0, BRIM_E_DTYPE, "param_dtype 0");
    assert_int_equal(brim_w4_pack_bytes(NULL, &n_bytes, &err), BRIM_E_ARGUMENT);
    assert_int_equal(brim_w4_pack_bytes(&good, NULL, &err), BRIM_E_ARGUMENT);
}

static void out_of_memory(void **state)
{
    (void)state;
    struct product p = product_make(9, 256, 40, 64, BRIM_KERNEL_BF16, 1);
    p.args.n_thread = 2;
    brim_error err = {0};
    brim_mem_fail_after(0);
    assert_int_equal(brim_w4_matmul(&p.args, &err), BRIM_E_NO_MEMORY);
    brim_mem_fail_after(-1);
    for (int64_t i = 0; i < 9 * p.args.y_stride; i++) assert_int_equal(p.y[i], POISON);
    product_free(&p);
}

static void printed_line(void **state)
{
    (void)state;
    struct product p = product_make(17, 2560, 40, 128, BRIM_KERNEL_BF16, 5);
    brim_w4_plan plan;
    char text[300], cut[9];
    p.args.policy = BRIM_W4_POLICY_COURSE;
    assert_int_equal(brim_w4_plan_make(&p.args, &plan, NULL), BRIM_OK);
    size_t len = brim_w4_plan_print(&plan, text, sizeof text);
    assert_string_equal(text,
                        "{\"kernel\":\"cpu\",\"split\":10,\"partition_inputs\":256,\"grid\":3,"
                        "\"tile_rows\":17,\"tile_outs\":16,\"cluster\":1,\"accumulates\":0,"
                        "\"reduces\":0,\"workspace_bytes\":0}");
    assert_int_equal(len, strlen(text));
    assert_int_equal(brim_w4_plan_print(&plan, cut, sizeof cut), len);
    assert_int_equal(strlen(cut), 8);
    product_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_fp64),
        cmocka_unit_test(f32_in_and_out),
        cmocka_unit_test(row_counts_at_the_seams),
        cmocka_unit_test(a_large_channel),
        cmocka_unit_test(rows_stand_alone),
        cmocka_unit_test(splits),
        cmocka_unit_test(the_course_for_every_projection),
        cmocka_unit_test(nothing_to_do),
        cmocka_unit_test(refusals),
        cmocka_unit_test(refusals_of_cuda),
        cmocka_unit_test(offsets_beyond_31_bits),
        cmocka_unit_test(pack_bytes_of_a_matrix_alone),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(printed_line),
    };
    return cmocka_run_group_tests_name("w4_op", tests, NULL, NULL);
}
