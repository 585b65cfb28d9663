/* SPDX-License-Identifier: Apache-2.0
 * Element-wise operators: the specification. Sums run in sixteen lanes, element i in lane i mod 16,
 * and are folded in a fixed order, so that tiers differ by rounding of fused operations alone. */
#include <math.h>

#include "cpu/cpu_init.h"
#include "cpu/ref/exp_ref.h"

static void rmsnorm_c(const float *x, const float *weight, float eps, int64_t n, float *out)
{
    float lane[16] = {0};
    for (int64_t i = 0; i < n; i++) lane[i % 16] += x[i] * x[i];
    float inv = 1.0f / sqrtf(sum_lanes_ref(lane) / (float)n + eps);
    for (int64_t i = 0; i < n; i++) out[i] = x[i] * inv * weight[i];
}

static void rope_c(float *x, const float *cos_half, const float *sin_half, int n_head, int head_dim)
{
    int half = head_dim / 2;
    for (int head = 0; head < n_head; head++) {
        float *low = x + (int64_t)head * head_dim, *high = low + half;
        for (int i = 0; i < half; i++) {
            float a = low[i], b = high[i];
            low[i] = a * cos_half[i] - b * sin_half[i];
            high[i] = b * cos_half[i] + a * sin_half[i];
        }
    }
}

static void swiglu_c(const float *gate, const float *up, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = gate[i] / (1.0f + exp_ref(-gate[i])) * up[i];
}

static void add_c(float *x, const float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] += y[i];
}

static void f16_from_f32_c(const float *x, int64_t n, uint16_t *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = brim_f16_from_f32(x[i]);
}

static void exp_c(const float *x, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = exp_ref(x[i]);
}

static void softmax_c(float *x, int64_t n)
{
    float largest = -INFINITY;
    for (int64_t i = 0; i < n; i++) largest = x[i] > largest ? x[i] : largest;
    float lane[16] = {0};
    for (int64_t i = 0; i < n; i++) {
        x[i] = exp_ref(x[i] - largest);
        lane[i % 16] += x[i];
    }
    float inv = 1.0f / sum_lanes_ref(lane);
    for (int64_t i = 0; i < n; i++) x[i] *= inv;
}

void brim_cpu_init_elem_c(struct brim_cpu_ops *ops)
{
    ops->rmsnorm = rmsnorm_c;
    ops->rope = rope_c;
    ops->swiglu = swiglu_c;
    ops->add = add_c;
    ops->f16_from_f32 = f16_from_f32_c;
    ops->exp = exp_c;
    ops->softmax = softmax_c;
}
