/* SPDX-License-Identifier: Apache-2.0
 * Matrix kernels of every tier: values against double precision within the bounds of
 * docs/numerics.md, exact where the meaning is exact. u is half an ulp of 1, 2^-24. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/check.h"
#include "check/bench_linear.h"
#include "cpu/linear.h"

static const double u = 0x1p-24;

/* One case; a kernel reads what concerns it. */
struct spec {
    enum brim_linear_kind kind;
    enum brim_weight_kind weight;
    enum brim_dtype dtype;
    int group;
    int64_t n_out, n_in, n_row;
    int n_panel, accumulate, special;
    enum brim_activation_mode mode;
    struct brim_pool *pool;
};

static float check_uniform(struct check *c)
{
    return 2 * brim_rng_uniform(&c->rng) - 1;
}

static int check_below(struct check *c, int n)
{
    return (int)(brim_rng_u32(&c->rng) % (uint32_t)n);
}

static bool check_close(struct check *c, int64_t i, int64_t j, double got, double want,
                        double bound)
{
    if (isnan(want) ? isnan(got) : fabs(got - want) <= bound) return true;
    check_fail(c, "[%lld][%lld] is %.9g, want %.9g, error %.3g > %.3g", (long long)i, (long long)j,
               got, want, fabs(got - want), bound);
    return false;
}

static const enum brim_dtype dtypes[] = {BRIM_DTYPE_F32, BRIM_DTYPE_F16, BRIM_DTYPE_BF16};

static void put(enum brim_dtype dtype, uint8_t *to, size_t i, float value)
{
    uint16_t half = dtype == BRIM_DTYPE_F16 ? brim_f16_from_f32(value) : brim_bf16_from_f32(value);
    if (dtype == BRIM_DTYPE_F32)
        memcpy(to + 4 * i, &value, 4);
    else
        memcpy(to + 2 * i, &half, 2);
}

/* Scales as files hold them: mostly plain, some zero, some subnormal, both signs. */
static float scale_value(struct check *c, enum brim_dtype dtype)
{
    switch (check_below(c, 12)) {
    case 0:
        return 0;
    case 1:
        return dtype == BRIM_DTYPE_F16 ? 0x3p-24f : 0x3p-130f;
    case 2:
        return -0.0f;
    default:
        return 0.1f * check_uniform(c);
    }
}

/* ---- panels with random contents, and their weights in double ---- */

static struct brim_panel make_panel(struct check *c, enum brim_linear_kind kind,
                                    enum brim_dtype dtype, int group, int64_t n_in)
{
    size_t n_bytes = 0, n = (size_t)n_in;
    if (kind == BRIM_LINEAR_DENSE) n_bytes = n * BRIM_PANEL * brim_dtype_bytes(dtype);
    if (kind == BRIM_LINEAR_W4) n_bytes = n / (size_t)group * brim_w4_group_bytes(dtype, group);
    if (kind == BRIM_LINEAR_Q8) n_bytes = brim_q8_scale_bytes(n_in) + n * BRIM_PANEL;
    n_bytes = (n_bytes + 63) / 64 * 64;
    uint8_t *data = check_alloc(c, n_bytes, 64);
    for (size_t i = 0; i < n_bytes; i++) data[i] = (uint8_t)brim_rng_u32(&c->rng);
    struct brim_panel panel = {.data = data, .dtype = dtype, .group = group, .n_in = n_in};
    if (kind == BRIM_LINEAR_DENSE)
        for (size_t i = 0; i < n * BRIM_PANEL; i++) put(dtype, data, i, scale_value(c, dtype));
    if (kind == BRIM_LINEAR_W4)
        for (size_t g = 0; g < n / (size_t)group; g++)
            for (size_t i = 0; i < 2 * BRIM_PANEL; i++)
                put(dtype, data + g * brim_w4_group_bytes(dtype, group), i, scale_value(c, dtype));
    if (kind == BRIM_LINEAR_Q8)
        for (size_t i = 0; i < n / 32 * BRIM_PANEL; i++)
            put(BRIM_DTYPE_F16, data, i, scale_value(c, BRIM_DTYPE_F16));
    return panel;
}

struct weight {
    double scale, code, bias; /* w = scale * code + bias */
};

static struct weight weight_at(const struct brim_panel *w, enum brim_linear_kind kind, int64_t in,
                               int lane)
{
    size_t l = (size_t)lane;
    if (kind == BRIM_LINEAR_DENSE)
        return (struct weight){1, brim_dtype_load(w->dtype, w->data, (size_t)in * BRIM_PANEL + l),
                               0};
    if (kind == BRIM_LINEAR_Q8) {
        size_t at = (size_t)brim_x8_order((int)(in % 32));
        const int8_t *block = brim_q8_codes(w, in - in % 32);
        return (struct weight){brim_dtype_load(BRIM_DTYPE_F16, brim_q8_scales(w, in), l),
                               block[at / 4 * 4 * BRIM_PANEL + l * 4 + at % 4], 0};
    }
    const uint8_t *group =
        w->data + (size_t)(in / w->group) * brim_w4_group_bytes(w->dtype, w->group);
    const uint8_t *codes = group + 2 * BRIM_PANEL * brim_dtype_bytes(w->dtype);
    size_t k = (size_t)(in % w->group);
    /* little-endian words: input 8j + i is a nibble of byte i / 2 of word j */
    uint8_t byte = codes[(k / 8 * BRIM_PANEL + l) * 4 + k % 8 / 2];
    return (struct weight){brim_dtype_load(w->dtype, group, l), byte >> (k % 2 * 4) & 15,
                           brim_dtype_load(w->dtype, group, BRIM_PANEL + l)};
}

static float *make_x(struct check *c, int64_t n_row, int64_t stride, int64_t n_in)
{
    float *x = check_alloc(c, (size_t)((n_row - 1) * stride + n_in) * sizeof *x, 4);
    for (int64_t row = 0; row < n_row; row++)
        for (int64_t k = 0; k < n_in; k++) {
            float value = 4 * check_uniform(c);
            x[row * stride + k] = check_below(c, 64) == 0 ? 6e4f : value;
        }
    return x;
}

/* y of n_row rows with stride, and its end at the last lane of the last row. */
static float *make_y(struct check *c, int64_t n_row, int64_t stride, int width)
{
    return check_alloc(c, (size_t)((n_row - 1) * stride + width) * sizeof(float), 4);
}

/* What lies between the rows of y must still be 0xFF. */
static void check_gaps(struct check *c, const float *y, int64_t n_row, int64_t stride, int width)
{
    for (int64_t i = 0; i < (n_row - 1) * stride; i++)
        if (i % stride >= width && brim_f32_bits(y[i]) != 0xFFFFFFFF) {
            check_fail(c, "wrote beyond the %d results of row %lld", width,
                       (long long)(i / stride));
            return;
        }
}

/* ---- one kernel each ---- */

static void matvec_case(struct check *c, const void *param)
{
    const struct spec *s = param;
    enum brim_linear_kind kind = s->kind;
    enum brim_dtype dtype = s->dtype;
    int group = s->group, n_row = (int)s->n_row;
    int64_t n_in = s->n_in;

    struct brim_panel w = make_panel(c, kind, dtype, group, n_in);
    /* the last two thirds of the inputs, on a group boundary */
    int64_t unit = group ? group : 1, begin = n_in / unit / 3 * unit, n = n_in - begin;
    int64_t x_stride = n + 5, y_stride = BRIM_PANEL + 3, n_group = group ? n / group : 0;
    float *x = make_x(c, n_row, x_stride, n), *y = make_y(c, n_row, y_stride, BRIM_PANEL);
    float *sum = check_alloc(c, (size_t)(n_row * n_group) * sizeof *sum, 4);
    for (int64_t row = 0; row < n_row; row++)
        for (int64_t g = 0; g < n_group; g++) {
            double exact = 0;
            for (int64_t k = 0; k < group; k++) exact += (double)x[row * x_stride + g * group + k];
            sum[row * n_group + g] = (float)exact;
        }
    if (kind == BRIM_LINEAR_W4)
        c->ops->w4_matvec(&w, begin, n_in, x, x_stride, sum, n_group, n_row, y, y_stride);
    else if (kind == BRIM_LINEAR_Q8)
        c->ops->q8_matvec(&w, begin, n_in, x, x_stride, n_row, y, y_stride);
    else
        c->ops->dense_matvec(&w, begin, n_in, x, x_stride, n_row, y, y_stride);
    double roundings = kind == BRIM_LINEAR_DENSE ? (double)n + 3 : group + 2 * (double)n_group + 4;
    for (int row = 0; row < n_row; row++)
        for (int lane = 0; lane < BRIM_PANEL; lane++) {
            double want = 0, magnitude = 0;
            for (int64_t k = 0; k < n; k++) {
                struct weight p = weight_at(&w, kind, begin + k, lane);
                double xk = x[row * x_stride + k];
                want += (p.scale * p.code + p.bias) * xk;
                magnitude += (fabs(p.scale * p.code) + fabs(p.bias)) * fabs(xk);
            }
            check_close(c, row, lane, y[row * y_stride + lane], want,
                        roundings * u * magnitude + 0x1p-140 * (double)n);
        }
    check_gaps(c, y, n_row, y_stride, BRIM_PANEL);
}

static void unpack_case(struct check *c, const void *param)
{
    const struct spec *s = param;
    enum brim_linear_kind kind = s->kind;
    enum brim_dtype dtype = s->dtype;
    int group = s->group;
    int64_t n_in = s->n_in;

    struct brim_panel w = make_panel(c, kind, dtype, group, n_in);
    int64_t unit = group ? group : 1, begin = n_in / unit / 3 * unit, n = n_in - begin;
    float *out = check_alloc(c, (size_t)n * BRIM_PANEL * sizeof *out, 4);
    if (kind == BRIM_LINEAR_W4)
        c->ops->w4_unpack(&w, begin, n_in, out);
    else if (kind == BRIM_LINEAR_Q8)
        c->ops->q8_unpack(&w, begin, n_in, out);
    else
        c->ops->dense_unpack(&w, begin, n_in, out);
    for (int64_t k = 0; k < n; k++)
        for (int lane = 0; lane < BRIM_PANEL; lane++) {
            struct weight p = weight_at(&w, kind, begin + k, lane);
            double want = p.scale * p.code + p.bias;
            /* DENSE and Q8: at most one rounding, none of it visible but by the cast */
            bool exact = kind != BRIM_LINEAR_W4;
            double bound = 2 * u * (fabs(p.scale * p.code) + fabs(p.bias)) + 0x1p-148;
            check_close(c, k, lane, out[k * BRIM_PANEL + lane], exact ? (double)(float)want : want,
                        exact ? 0 : bound);
        }
}

static void gemm_case(struct check *c, const void *param)
{
    const struct spec *s = param;
    int n_panel = s->n_panel, n_row = (int)s->n_row, accumulate = s->accumulate;
    int64_t n_k = s->n_in;

    int64_t w_stride = (n_k + 2) * BRIM_PANEL, y_stride = n_panel * BRIM_PANEL + 5;
    size_t n_w = (size_t)((n_panel - 1) * w_stride + n_k * BRIM_PANEL);
    float *w = check_alloc(c, n_w * sizeof *w, 4);
    for (size_t i = 0; i < n_w; i++) w[i] = check_uniform(c);
    float *x = check_alloc(c, (size_t)(n_k * n_row) * sizeof *x, 4);
    for (int64_t i = 0; i < n_k * n_row; i++) x[i] = check_uniform(c);
    int width = n_panel * BRIM_PANEL;
    float *y = make_y(c, n_row, y_stride, width);
    double *before = check_alloc(c, (size_t)(n_row * width) * sizeof *before, 4);
    for (int row = 0; row < n_row; row++)
        for (int i = 0; i < width; i++) {
            if (accumulate) y[row * y_stride + i] = check_uniform(c);
            before[row * width + i] = accumulate ? (double)y[row * y_stride + i] : 0;
        }
    c->ops->gemm(w, w_stride, n_panel, n_k, x, n_row, y, y_stride, accumulate);
    for (int row = 0; row < n_row; row++)
        for (int i = 0; i < width; i++) {
            double want = before[row * width + i], magnitude = fabs(want);
            for (int64_t k = 0; k < n_k; k++) {
                double wk = w[i / BRIM_PANEL * w_stride + k * BRIM_PANEL + i % BRIM_PANEL];
                want += wk * (double)x[k * n_row + row];
                magnitude += fabs(wk * (double)x[k * n_row + row]);
            }
            check_close(c, row, i, y[row * y_stride + i], want, ((double)n_k + 1) * u * magnitude);
        }
    check_gaps(c, y, n_row, y_stride, width);
}

/* The same bits as unpacking first. */
static void w4_gemm_case(struct check *c, const void *param)
{
    const struct spec *s = param;
    int n_row = (int)s->n_row;
    struct brim_panel w = make_panel(c, BRIM_LINEAR_W4, s->dtype, s->group, s->n_in);
    int64_t begin = s->n_in / s->group / 3 * s->group, n = s->n_in - begin;
    int64_t y_stride = BRIM_PANEL + 7;
    float *x = check_floats(c, n * n_row, -1, 1);
    float *unpacked = check_alloc(c, (size_t)n * BRIM_PANEL * sizeof *unpacked, 4);
    float *want = make_y(c, n_row, y_stride, BRIM_PANEL);
    float *got = make_y(c, n_row, y_stride, BRIM_PANEL);
    c->ops->w4_unpack(&w, begin, s->n_in, unpacked);
    c->ops->gemm(unpacked, 0, 1, n, x, n_row, want, y_stride, 0);
    c->ops->w4_gemm(&w, begin, s->n_in, x, n_row, got, y_stride);
    size_t n_bytes = (size_t)((n_row - 1) * y_stride + BRIM_PANEL) * sizeof(float);
    check_equal(c, "y", want, got, n_bytes);
}

static void x_pack_case(struct check *c, const void *param)
{
    const struct spec *s = param;
    int n_row = (int)s->n_row;
    int64_t n_k = s->n_in;

    float *x = make_x(c, n_row, n_k + 1, n_k);
    float *out = check_alloc(c, (size_t)(n_k * n_row) * sizeof *out, 4);
    float *want = check_alloc(c, (size_t)(n_k * n_row) * sizeof *want, 4);
    for (int64_t k = 0; k < n_k; k++)
        for (int row = 0; row < n_row; row++) want[k * n_row + row] = x[row * (n_k + 1) + k];
    c->ops->x_pack(x, n_k + 1, n_row, n_k, out);
    check_equal(c, "tile", want, out, (size_t)(n_k * n_row) * sizeof *out);
}

static uint8_t *quantized(struct check *c, const struct brim_cpu_ops *ops, const float *x,
                          int64_t x_stride, int n_row, int64_t n_group)
{
    uint8_t *tile = check_alloc(c, (size_t)(n_row * n_group) * BRIM_X8_RECORD, 4);
    ops->x_quantize(x, x_stride, n_row, n_group, tile);
    return tile;
}

static void x_quantize_case(struct check *c, const void *param)
{
    const struct spec *s = param;
    int n_row = (int)s->n_row, special = s->special;
    int64_t n_group = s->n_in / 32;

    static const float specials[] = {0, INFINITY, NAN, 0x1p-149f, 0x1p-101f, 3e38f, -INFINITY};
    float *x = make_x(c, n_row, n_group * 32 + 1, n_group * 32);
    if (special == 0) memset(x, 0, 32 * sizeof *x);
    if (special == 3 || special == 4)
        for (int k = 0; k < 32; k++) x[k] = 0;
    if (special >= 0) x[check_below(c, 32)] = specials[special];
    uint8_t *got = quantized(c, c->ops, x, n_group * 32 + 1, n_row, n_group);
    uint8_t *want = quantized(c, c->ref, x, n_group * 32 + 1, n_row, n_group);
    check_equal(c, "records", want, got, (size_t)(n_row * n_group) * BRIM_X8_RECORD);
    /* and the meaning: every value within half a step of what it stands for */
    for (int64_t g = 0; g < n_group && special < 0; g++) {
        struct brim_x8_record r = brim_x8_record_at(got, n_row, g);
        for (int row = 0; row < n_row; row++)
            for (int k = 0; k < 32; k++) {
                float scale = r.scale[row];
                check_close(c, row, g * 32 + k, (double)scale * r.q[row * 32 + brim_x8_order(k)],
                            x[row * (n_group * 32 + 1) + g * 32 + k], 0.5001 * (double)scale);
            }
    }
}

static void x8_case(struct check *c, const void *param)
{
    const struct spec *s = param;
    enum brim_linear_kind kind = s->kind;
    enum brim_dtype dtype = s->dtype;
    int group = s->group, n_row = (int)s->n_row;
    int64_t n_in = s->n_in;

    struct brim_panel w = make_panel(c, kind, dtype, group, n_in);
    int64_t begin = n_in / group / 3 * group, n = n_in - begin, y_stride = BRIM_PANEL + 1;
    float *x = make_x(c, n_row, n, n), *y = make_y(c, n_row, y_stride, BRIM_PANEL);
    uint8_t *tile = quantized(c, c->ref, x, n, n_row, n / 32);
    if (kind == BRIM_LINEAR_W4)
        c->ops->w4_x8(&w, begin, n_in, tile, n_row, y, y_stride);
    else
        c->ops->q8_x8(&w, begin, n_in, tile, n_row, y, y_stride);
    for (int row = 0; row < n_row; row++)
        for (int lane = 0; lane < BRIM_PANEL; lane++) {
            double want = 0, magnitude = 0;
            for (int64_t g = 0; g < n / 32; g++) {
                struct brim_x8_record r = brim_x8_record_at(tile, n_row, g);
                double dot = 0, bias = 0;
                for (int k = 0; k < 32; k++) {
                    struct weight p = weight_at(&w, kind, begin + g * 32 + k, lane);
                    dot += p.scale * p.code * r.q[row * 32 + brim_x8_order(k)];
                    bias = p.bias;
                }
                dot *= (double)r.scale[row];
                want += dot + bias * (double)r.sum[row];
                magnitude += fabs(dot) + fabs(bias * (double)r.sum[row]);
            }
            /* integers are exact; each group rounds a product and two sums */
            check_close(c, row, lane, y[row * y_stride + lane], want,
                        (2 * (double)n / 32 + 4) * u * magnitude + 0x1p-140 * (double)n);
        }
    check_gaps(c, y, n_row, y_stride, BRIM_PANEL);
}

/* ---- whole products through brim_linear_run ---- */

static void linear_case(struct check *c, const void *param)
{
    const struct spec *s = param;
    enum brim_weight_kind kind = s->weight;
    enum brim_activation_mode mode = s->mode;
    struct brim_pool *pool = s->pool;
    int64_t n_out = s->n_out, n_in = s->n_in, n_row = s->n_row;

    struct brim_weight w = {
        .kind = kind, .dtype = BRIM_DTYPE_F16, .n_out = n_out, .n_in = n_in, .group = 32};
    w.data_bytes = (size_t)n_out * brim_weight_row_bytes(&w);
    uint8_t *data = check_alloc(c, w.data_bytes, 4);
    for (size_t i = 0; i < w.data_bytes; i++) data[i] = (uint8_t)brim_rng_u32(&c->rng);
    size_t block = brim_weight_row_bytes(&w) / (size_t)(n_in / 32);
    for (size_t at = 0; at < w.data_bytes; at += block) {
        put(BRIM_DTYPE_F16, data + at, 0, 0.1f * check_uniform(c));
        if (kind == BRIM_WEIGHT_Q4_1) put(BRIM_DTYPE_F16, data + at, 1, check_uniform(c));
    }
    w.data = data;
    struct brim_linear linear;
    brim_error err;
    if (brim_linear_pack(&linear, &w, 1, "w", pool, &err) != BRIM_OK) {
        check_fail(c, "%s", err.text);
        return;
    }
    float *x = make_x(c, n_row, n_in, n_in);
    float *y = make_y(c, n_row, n_out, (int)n_out);
    size_t n_scratch = brim_linear_scratch_bytes(&linear, n_row, brim_pool_size(pool));
    void *scratch = check_alloc(c, n_scratch, 4);
    brim_linear_run(c->ops, pool, &linear, mode, x, n_in, n_row, y, n_out, scratch);
    float *row_f32 = check_alloc(c, (size_t)n_in * sizeof *row_f32, 4);
    for (int64_t out = 0; out < n_out; out++) {
        brim_weight_row_f32(&w, out, row_f32);
        for (int64_t row = 0; row < n_row; row++) {
            double want = 0, magnitude = 0, steps = 0;
            for (int64_t g = 0; g < n_in; g += 32) {
                double x_max = 0, w_sum = 0;
                for (int64_t k = g; k < g + 32; k++) {
                    double xk = x[row * n_in + k], wk = row_f32[k];
                    want += xk * wk;
                    magnitude += fabs(xk) * (fabs(wk) + 2); /* |bias| <= 1 counts twice */
                    x_max = fmax(x_max, fabs(xk));
                    w_sum += fabs(wk);
                }
                steps += w_sum * x_max / 254;
            }
            double bound = ((double)n_in + 4) * u * magnitude;
            if (mode == BRIM_ACTIVATIONS_INT8) bound += 1.0001 * steps;
            if (!check_close(c, row, out, y[row * n_out + out], want, bound)) break;
        }
    }
    brim_linear_free(&linear);
}

static void run(struct check *c, check_fn *fn, const char *name, struct spec spec)
{
    check_case(c, fn, &spec, "%s dtype=%s group=%d n_out=%lld n_in=%lld n_row=%lld %d %d %d %d",
               name, brim_dtype_name(spec.dtype), spec.group, (long long)spec.n_out,
               (long long)spec.n_in, (long long)spec.n_row, spec.n_panel, spec.accumulate,
               spec.special, (int)spec.mode);
}

static void check_kernels(struct check *c)
{
    static const int groups[] = {32, 64, 128};
    const struct spec q8 = {.kind = BRIM_LINEAR_Q8, .dtype = BRIM_DTYPE_F16, .group = 32};
    for (int n_row = 1; n_row <= BRIM_TILE_ROWS; n_row++) {
        struct spec s = q8;
        s.n_row = n_row;
        for (s.n_in = 32; s.n_in <= 576; s.n_in += 544) {
            if (n_row == 1) run(c, unpack_case, "q8_unpack", s);
            if (n_row <= BRIM_MATVEC_ROWS) run(c, matvec_case, "q8_matvec", s);
            if (n_row <= c->ops->x8_rows) run(c, x8_case, "q8_x8", s);
        }
        for (int d = 0; d < 9; d++) {
            s = (struct spec){.kind = BRIM_LINEAR_W4, .dtype = dtypes[d / 3], .n_row = n_row};
            s.group = groups[d % 3];
            for (int n = 1; n <= 9; n += n == 1 ? 1 : 7) {
                s.n_in = n * s.group;
                if (n_row == 1) run(c, unpack_case, "w4_unpack", s);
                if (n_row <= BRIM_MATVEC_ROWS) run(c, matvec_case, "w4_matvec", s);
                if (n_row <= c->ops->x8_rows) run(c, x8_case, "w4_x8", s);
                if (c->ops->w4_gemm && n_row <= c->ops->gemm_rows)
                    run(c, w4_gemm_case, "w4_gemm", s);
            }
        }
        for (int d = 0; d < 3; d++) {
            s = (struct spec){.kind = BRIM_LINEAR_DENSE, .dtype = dtypes[d], .n_row = n_row};
            for (s.n_in = 1; s.n_in <= 64; s.n_in = s.n_in * 3 + 1) {
                if (n_row == 1) run(c, unpack_case, "dense_unpack", s);
                if (n_row <= BRIM_MATVEC_ROWS) run(c, matvec_case, "dense_matvec", s);
            }
        }
        for (s.n_in = 0; s.n_in <= 31 && n_row <= c->ops->gemm_rows; s.n_in = s.n_in * 2 + 1) {
            run(c, x_pack_case, "x_pack", s);
            for (int flags = 0; flags < 4; flags++) {
                s.n_panel = 1 + flags / 2;
                s.accumulate = flags % 2;
                run(c, gemm_case, "gemm", s);
            }
        }
        for (int special = -1; special < 7 && n_row <= c->ops->x8_rows; special++)
            run(c, x_quantize_case, "x_quantize",
                (struct spec){.n_in = 96, .n_row = n_row, .special = special});
    }
}

/* Every seam of the row tiles, with outputs that end inside a panel. */
static void check_products(struct check *c)
{
    static const int64_t rows[] = {1,  2,  3,  7,  8,  9,  11, 12, 13,  15,  16, 17,
                                   23, 25, 31, 32, 33, 63, 64, 65, 127, 128, 129};
    struct brim_pool *pool = NULL;
    if (brim_pool_create(&pool, 2, NULL) != BRIM_OK) return;
    struct spec s = {.pool = pool, .dtype = BRIM_DTYPE_F16, .group = 32};
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        s.n_row = rows[i / 2];
        s.mode = (enum brim_activation_mode)(i % 2);
        s.weight = BRIM_WEIGHT_Q4_1;
        s.n_out = 49;
        s.n_in = 96;
        run(c, linear_case, "q4_1 product", s);
        s.weight = BRIM_WEIGHT_Q4_0;
        s.n_out = 7;
        s.n_in = 288;
        run(c, linear_case, "q4_0 product", s);
        s.weight = BRIM_WEIGHT_Q8_0;
        s.n_out = 33;
        s.n_in = 64;
        run(c, linear_case, "q8_0 product", s);
    }
    s.weight = BRIM_WEIGHT_Q4_1;
    s.n_out = s.n_in = 576;
    s.n_row = 33;
    s.mode = BRIM_ACTIVATIONS_F32;
    run(c, linear_case, "q4_1 product", s);
    brim_pool_free(&pool);
}

void check_linear(struct check *c)
{
    check_kernels(c);
    check_products(c);
    if (c->bench) bench_linear(c);
}
