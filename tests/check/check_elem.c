/* SPDX-License-Identifier: Apache-2.0
 * Element-wise operators. Bounds: docs/numerics.md. */
#include "check/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double ulp = 0x1p-23; /* relative spacing of f32, at most */

static const int64_t lengths[] = {1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 100, 128, 576, 1536, 2563};
enum { N_LENGTH = sizeof lengths / sizeof *lengths };

struct elem_bench {
    float *x, *y, *out;
    uint16_t *half;
    int64_t n;
};

/* A sum of positive terms in lanes of n / 16 additions, each off by half an ulp at most. */
static double lane_sum_bound(int64_t n)
{
    return ((double)n / 16 + 8) * ulp / 2;
}

/* ---- rmsnorm ---- */

static void call_rmsnorm(const struct brim_cpu_ops *ops, void *arg)
{
    struct elem_bench *b = arg;
    ops->rmsnorm(b->x, b->y, 1e-5f, b->n, b->out);
}

static void case_rmsnorm(struct check *c, const void *param)
{
    int64_t n = *(const int64_t *)param;
    float *x = check_floats(c, n, -3, 3), *weight = check_floats(c, n, -2, 2);
    float *expected = check_poison(c, n), *got = check_poison(c, n);
    c->ref->rmsnorm(x, weight, 1e-5f, n, expected);
    c->ops->rmsnorm(x, weight, 1e-5f, n, got);
    check_near(c, "out", expected, got, n, 0, lane_sum_bound(n) + 2 * ulp);
    struct elem_bench bench = {.x = x, .y = weight, .out = got, .n = n};
    if (n == 576) check_bench(c, "rmsnorm 576", 8.0 * (double)n, "B", call_rmsnorm, &bench);
    float *in_place = check_copy(c, x, n);
    c->ops->rmsnorm(x, weight, 1e-5f, n, got);
    c->ops->rmsnorm(in_place, weight, 1e-5f, n, in_place);
    check_equal(c, "in place", got, in_place, (size_t)n * sizeof *got);
}

/* ---- rope ---- */

struct rope_case {
    int n_head, head_dim;
};

static void case_rope(struct check *c, const void *param)
{
    const struct rope_case *p = param;
    int64_t half = p->head_dim / 2, n = (int64_t)p->n_head * p->head_dim;
    float *x = check_floats(c, n, -4, 4), *angle = check_floats(c, half, -3, 3);
    float *cosine = check_poison(c, half), *sine = check_poison(c, half);
    for (int64_t i = 0; i < half; i++) {
        cosine[i] = cosf(angle[i]);
        sine[i] = sinf(angle[i]);
    }
    float *got = check_copy(c, x, n);
    c->ref->rope(x, cosine, sine, p->n_head, p->head_dim);
    c->ops->rope(got, cosine, sine, p->n_head, p->head_dim);
    /* Two products of at most 4, one sum of at most 5.7: half an ulp of 4 and of 8 each. */
    check_near(c, "x", x, got, n, 2 * (2 * 4 + 8) * ulp / 2, 0);
}

/* ---- swiglu, add, exp, softmax ---- */

static void call_swiglu(const struct brim_cpu_ops *ops, void *arg)
{
    struct elem_bench *b = arg;
    ops->swiglu(b->x, b->y, b->n, b->out);
}

static void case_swiglu(struct check *c, const void *param)
{
    int64_t n = *(const int64_t *)param;
    float *gate = check_floats(c, n, -12, 12), *up = check_floats(c, n, -3, 3);
    float *expected = check_poison(c, n), *got = check_poison(c, n);
    gate[n / 2] = -200; /* e^200 overflows: the product is zero, not NaN */
    c->ref->swiglu(gate, up, n, expected);
    c->ops->swiglu(gate, up, n, got);
    if (fabsf(got[n / 2]) > 0) check_fail(c, "silu(-200) is %g", (double)got[n / 2]);
    check_near(c, "out", expected, got, n, 0, 6 * ulp);
    struct elem_bench bench = {.x = gate, .y = up, .out = got, .n = n};
    if (n == 1536) check_bench(c, "swiglu 1536", 12.0 * (double)n, "B", call_swiglu, &bench);
    float *in_place = check_copy(c, gate, n);
    c->ops->swiglu(gate, up, n, got);
    c->ops->swiglu(in_place, up, n, in_place);
    check_equal(c, "in place", got, in_place, (size_t)n * sizeof *got);
}

static void case_add(struct check *c, const void *param)
{
    int64_t n = *(const int64_t *)param;
    float *x = check_floats(c, n, -3, 3), *y = check_floats(c, n, -3, 3);
    float *got = check_copy(c, x, n);
    c->ref->add(x, y, n);
    c->ops->add(got, y, n);
    check_equal(c, "x", x, got, (size_t)n * sizeof *x);
}

static void case_f16(struct check *c, const void *param)
{
    int64_t n = *(const int64_t *)param;
    static const float special[] = {0.0f,     -0.0f,         65504.0f,  65519.99f,   65520.0f,
                                    -1e10f,   INFINITY,      -INFINITY, 6.1035e-5f,  5.9604645e-8f,
                                    2.98e-8f, 2.9802326e-8f, 1e-30f,    1.00048828f, 1.00146484f};
    float *x = check_floats(c, n, -100, 100);
    for (int64_t i = 0; i < n; i++) {
        if (i % 3 == 0) x[i] = special[(size_t)(i / 3) % (sizeof special / sizeof *special)];
        if (i % 3 == 1) x[i] *= 1e-6f;
    }
    size_t n_bytes = (size_t)n * sizeof(uint16_t);
    uint16_t *expected = check_alloc(c, n_bytes, 2), *got = check_alloc(c, n_bytes, 2);
    c->ref->f16_from_f32(x, n, expected);
    c->ops->f16_from_f32(x, n, got);
    check_equal(c, "out", expected, got, n_bytes);
    x[n - 1] = NAN;
    c->ops->f16_from_f32(x, n, got);
    if ((got[n - 1] & 0x7FFF) <= 0x7C00) check_fail(c, "NaN became %04x", got[n - 1]);
}

static void case_exp(struct check *c, const void *param)
{
    int64_t n = *(const int64_t *)param;
    float *x = check_floats(c, n, -90, 90);
    float *expected = check_poison(c, n), *got = check_poison(c, n);
    c->ref->exp(x, n, expected);
    c->ops->exp(x, n, got);
    check_near(c, "out", expected, got, n, 0, 3 * ulp);
}

/* Every 1021st float against the C library in double. */
static void case_exp_all(struct check *c, const void *param)
{
    (void)param;
    enum { N = 4096 };
    float *x = check_poison(c, N), *got = check_poison(c, N);
    double bound = c->ops->tier == BRIM_CPU_TIER_C ? 2 : 1, worst = 0;
    uint64_t bits = 0;
    while (bits <= UINT32_MAX) {
        int64_t n = 0;
        for (; n < N && bits <= UINT32_MAX; bits += 1021)
            x[n++] = brim_f32_from_bits((uint32_t)bits);
        c->ops->exp(x, n, got);
        for (int64_t i = 0; i < n; i++) {
            if (isnan(x[i]) ? !isnan(got[i]) : x[i] < -87.3365f ? got[i] != 0 : false)
                check_fail(c, "exp(%.9g) is %.9g", (double)x[i], (double)got[i]);
            if (x[i] > 88.7228f && got[i] != INFINITY)
                check_fail(c, "exp(%.9g) is %.9g", (double)x[i], (double)got[i]);
            if (!(x[i] >= -87.3365f && x[i] <= 88.7228f)) continue;
            double exact = exp((double)x[i]);
            int exponent;
            frexp(exact, &exponent);
            double error = fabs((double)got[i] - exact) / ldexp(1, exponent - 24);
            if (error > worst) worst = error;
            if (!(error <= bound))
                check_fail(c, "exp(%.9g) is %.9g, off by %.3g ulp", (double)x[i], (double)got[i],
                           error);
        }
    }
    if (c->bench) printf("exp: worst error %.4f ulp\n", worst);
}

static void call_softmax(const struct brim_cpu_ops *ops, void *arg)
{
    struct elem_bench *b = arg;
    memcpy(b->out, b->x, (size_t)b->n * sizeof *b->x);
    ops->softmax(b->out, b->n);
}

static void case_softmax(struct check *c, const void *param)
{
    int64_t n = *(const int64_t *)param;
    float *x = check_floats(c, n, -30, 30);
    float *expected = check_copy(c, x, n), *got = check_copy(c, x, n);
    c->ref->softmax(expected, n);
    c->ops->softmax(got, n);
    check_near(c, "x", expected, got, n, 0, lane_sum_bound(n) + 8 * ulp);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)got[i];
    if (fabs(sum - 1) > lane_sum_bound(n) + 2 * ulp) check_fail(c, "sums to %.9g", sum);
    struct elem_bench bench = {.x = x, .out = got, .n = n};
    if (n == 2563) check_bench(c, "softmax 2563", 4.0 * (double)n, "B", call_softmax, &bench);
    float *poisoned = check_copy(c, x, n);
    poisoned[n / 3] = NAN;
    c->ops->softmax(poisoned, n);
    for (int64_t i = 0; i < n; i++) {
        if (!isnan(poisoned[i])) check_fail(c, "NaN among the values left %g", (double)poisoned[i]);
    }
}

void check_elem(struct check *c)
{
    static const struct {
        const char *name;
        check_fn *fn;
    } cases[] = {{"rmsnorm", case_rmsnorm},  {"swiglu", case_swiglu}, {"add", case_add},
                 {"f16_from_f32", case_f16}, {"exp", case_exp},       {"softmax", case_softmax}};
    for (size_t op = 0; op < sizeof cases / sizeof *cases; op++) {
        for (int i = 0; i < N_LENGTH; i++)
            check_case(c, cases[op].fn, &lengths[i], "%s n=%lld", cases[op].name,
                       (long long)lengths[i]);
    }
    static const struct rope_case ropes[] = {{1, 8}, {3, 64}, {9, 64}, {4, 128}, {2, 40}, {1, 256}};
    for (size_t i = 0; i < sizeof ropes / sizeof *ropes; i++)
        check_case(c, case_rope, &ropes[i], "rope n_head=%d head_dim=%d", ropes[i].n_head,
                   ropes[i].head_dim);
    check_case(c, case_exp_all, NULL, "exp over the floats");
}
