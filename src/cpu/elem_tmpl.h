/* SPDX-License-Identifier: Apache-2.0
 * Element-wise operators over sixteen lanes: one body compiled per tier. The including file first
 * includes its vec_*.h. What each operator means: src/cpu/ref/elem_ref.c; the sums run in the same
 * lanes and fold in the same order. */
#ifndef BRIM_CPU_ELEM_TMPL_H
#define BRIM_CPU_ELEM_TMPL_H

#include <math.h>
#include <string.h>

#include "cpu/cpu_ops.h"
#include "cpu/vec_exp.h"

static void rmsnorm_vec(const float *x, const float *weight, float eps, int64_t n, float *out)
{
    v16 sum = v16_zero();
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        v16 a = v16_load(x + i);
        sum = v16_fma(a, a, sum);
    }
    int tail = (int)(n - i);
    if (tail) {
        v16 a = v16_load_n(x + i, tail);
        sum = v16_fma(a, a, sum);
    }
    v16 inv = v16_set1(1.0f / sqrtf(v16_sum(sum) / (float)n + eps));
    for (i = 0; i + 16 <= n; i += 16)
        v16_store(out + i, v16_mul(v16_mul(v16_load(x + i), inv), v16_load(weight + i)));
    if (tail)
        v16_store_n(out + i,
                    v16_mul(v16_mul(v16_load_n(x + i, tail), inv), v16_load_n(weight + i, tail)),
                    tail);
}

static void rope_vec(float *x, const float *cos_half, const float *sin_half, int n_head,
                     int head_dim)
{
    int half = head_dim / 2;
    for (int i = 0; i < half; i += 16) {
        int n = half - i < 16 ? half - i : 16;
        v16 c = n == 16 ? v16_load(cos_half + i) : v16_load_n(cos_half + i, n);
        v16 s = n == 16 ? v16_load(sin_half + i) : v16_load_n(sin_half + i, n);
        for (int head = 0; head < n_head; head++) {
            float *low = x + (int64_t)head * head_dim + i, *high = low + half;
            v16 a = n == 16 ? v16_load(low) : v16_load_n(low, n);
            v16 b = n == 16 ? v16_load(high) : v16_load_n(high, n);
            v16 first = v16_fnma(b, s, v16_mul(a, c)), second = v16_fma(a, s, v16_mul(b, c));
            if (n == 16) {
                v16_store(low, first);
                v16_store(high, second);
            } else {
                v16_store_n(low, first, n);
                v16_store_n(high, second, n);
            }
        }
    }
}

VEC_INLINE v16 silu_mul(v16 gate, v16 up)
{
    v16 e = v16_exp(v16_sub(v16_zero(), gate));
    return v16_mul(v16_div(gate, v16_add(v16_set1(1.0f), e)), up);
}

static void swiglu_vec(const float *gate, const float *up, int64_t n, float *out)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) v16_store(out + i, silu_mul(v16_load(gate + i), v16_load(up + i)));
    int tail = (int)(n - i);
    if (tail)
        v16_store_n(out + i, silu_mul(v16_load_n(gate + i, tail), v16_load_n(up + i, tail)), tail);
}

static void add_vec(float *x, const float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) v16_store(x + i, v16_add(v16_load(x + i), v16_load(y + i)));
    int tail = (int)(n - i);
    if (tail) v16_store_n(x + i, v16_add(v16_load_n(x + i, tail), v16_load_n(y + i, tail)), tail);
}

static void f16_from_f32_vec(const float *x, int64_t n, uint16_t *out)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) v16_store_f16(out + i, v16_load(x + i));
    int tail = (int)(n - i);
    if (tail) {
        uint16_t half[16];
        v16_store_f16(half, v16_load_n(x + i, tail));
        memcpy(out + i, half, (size_t)tail * sizeof *out);
    }
}

static void exp_vec(const float *x, int64_t n, float *out)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) v16_store(out + i, v16_exp(v16_load(x + i)));
    int tail = (int)(n - i);
    if (tail) v16_store_n(out + i, v16_exp(v16_load_n(x + i, tail)), tail);
}

static void softmax_vec(float *x, int64_t n)
{
    v16 low = v16_set1(-INFINITY), top = low;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) top = v16_max(top, v16_load(x + i));
    int tail = (int)(n - i);
    if (tail) top = v16_max(top, v16_first_n(v16_load_n(x + i, tail), low, tail));
    v16 largest = v16_set1(v16_largest(top)), sum = v16_zero();
    for (i = 0; i + 16 <= n; i += 16) {
        v16 e = v16_exp(v16_sub(v16_load(x + i), largest));
        v16_store(x + i, e);
        sum = v16_add(sum, e);
    }
    if (tail) {
        v16 e = v16_exp(v16_sub(v16_load_n(x + i, tail), largest));
        v16_store_n(x + i, e, tail);
        sum = v16_add(sum, v16_first_n(e, v16_zero(), tail));
    }
    v16 inv = v16_set1(1.0f / v16_sum(sum));
    for (i = 0; i + 16 <= n; i += 16) v16_store(x + i, v16_mul(v16_load(x + i), inv));
    if (tail) v16_store_n(x + i, v16_mul(v16_load_n(x + i, tail), inv), tail);
}

static void init_elem_vec(struct brim_cpu_ops *ops)
{
    ops->rmsnorm = rmsnorm_vec;
    ops->rope = rope_vec;
    ops->swiglu = swiglu_vec;
    ops->add = add_vec;
    ops->f16_from_f32 = f16_from_f32_vec;
    ops->exp = exp_vec;
    ops->softmax = softmax_vec;
}

#endif
