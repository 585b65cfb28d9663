/* SPDX-License-Identifier: Apache-2.0
 * One warp, one head: RMSNorm and rotation. A lane holds pairs 2 lane, 2 lane + 1 of every 64
 * (element i of the low half with element i of the high half). The rotation's own kernel and decode
 * attention, which may do it on the way, share this, so their bits are the same. */
#ifndef BRIM_CUDA_MODEL_ROTATE_CUH
#define BRIM_CUDA_MODEL_ROTATE_CUH

#include "cuda/model/common.cuh"

BRIM_DEVICE float2 load_pair(const void *data, enum brim_dtype dtype, int64_t i)
{
    if (dtype == BRIM_DTYPE_F32) return *(const float2 *)((const float *)data + i);
    uint32_t v = *(const uint32_t *)((const uint16_t *)data + i);
    return make_float2(bf16_lo(v), bf16_hi(v));
}

/* n_step: head_dim is at most 128 n_step. */
template <int n_step> struct head_pairs {
    float2 low[n_step], high[n_step];
};

/* Products and sums are fused where it says so, not where a compiler likes it: the bits are those
 * of every use. `in`: where the head begins. norm, table (of its position: cosines, sines): NULL
 * for none. */
template <int n_step, enum brim_dtype in_dtype>
BRIM_DEVICE head_pairs<n_step> rotate_head(const void *qkv, int64_t in, int head_dim,
                                           const float *norm, float eps, const float *table)
{
    head_pairs<n_step> h = {};
    int half_dim = head_dim / 2, lane = threadIdx.x % 32;
    float2 cosine[n_step], sine[n_step], norm_low[n_step], norm_high[n_step];
    float sum = 0;
#pragma unroll
    for (int step = 0; step < n_step; step++) {
        int i = step * 64 + 2 * lane;
        if (i >= half_dim) continue;
        h.low[step] = load_pair(qkv, in_dtype, in + i);
        h.high[step] = load_pair(qkv, in_dtype, in + half_dim + i);
        if (table) {
            cosine[step] = *(const float2 *)(table + i);
            sine[step] = *(const float2 *)(table + half_dim + i);
        }
        if (norm) {
            norm_low[step] = *(const float2 *)(norm + i);
            norm_high[step] = *(const float2 *)(norm + half_dim + i);
        }
    }
    if (norm) {
#pragma unroll
        for (int step = 0; step < n_step; step++) {
            float2 p = h.low[step], r = h.high[step];
            sum = __fmaf_rn(p.y, p.y, __fmaf_rn(p.x, p.x, sum));
            sum = __fmaf_rn(r.y, r.y, __fmaf_rn(r.x, r.x, sum));
        }
    }
    float inv = norm ? 1.0f / sqrtf(warp_sum(sum) / (float)head_dim + eps) : 1.0f;
#pragma unroll
    for (int step = 0; step < n_step; step++) {
        if (step * 64 + 2 * lane >= half_dim) continue;
        float2 p = h.low[step], r = h.high[step];
        if (norm) {
            p.x = __fmul_rn(__fmul_rn(p.x, inv), norm_low[step].x);
            p.y = __fmul_rn(__fmul_rn(p.y, inv), norm_low[step].y);
            r.x = __fmul_rn(__fmul_rn(r.x, inv), norm_high[step].x);
            r.y = __fmul_rn(__fmul_rn(r.y, inv), norm_high[step].y);
        }
        if (table) {
            float2 c = cosine[step], s = sine[step];
            float2 turned = make_float2(__fmaf_rn(p.x, c.x, -__fmul_rn(r.x, s.x)),
                                        __fmaf_rn(p.y, c.y, -__fmul_rn(r.y, s.y)));
            r = make_float2(__fmaf_rn(r.x, c.x, __fmul_rn(p.x, s.x)),
                            __fmaf_rn(r.y, c.y, __fmul_rn(p.y, s.y)));
            p = turned;
        }
        h.low[step] = p, h.high[step] = r;
    }
    return h;
}

#endif
