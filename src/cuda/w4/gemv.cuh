/* SPDX-License-Identifier: Apache-2.0
 * What the two W4 kernels for one to eight rows share (gemv.cu on bf16, gemv_int8.cu on integers):
 * parameters, the ring of weights of a warp, the norm in front, the join and the epilogues, and the
 * launcher's arithmetic. Included once in a .cu. */
#ifndef BRIM_CUDA_W4_GEMV_CUH
#define BRIM_CUDA_W4_GEMV_CUH

#include "cuda/launch.h"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/send.cuh"
#include "cuda/w4/dequant.cuh"
#include "cuda/w4/gemv.h"

namespace
{

enum {
    MAX_ROW = BRIM_W4_GEMV_ROWS,
    MAX_WARP = BRIM_W4_GEMV_WARPS,
    MAX_DEPTH = 4,
    PAIR_OUT = 32,
    CODE_BYTES = 2048, /* of a pair and one unit */
    SUM_STRIDE = 36,   /* floats between rows of a warp's 32 sums: stores fall in distinct banks */
    /* Two CTAs share a multiprocessor, so that the next kernel's weights travel early. */
    SMEM_SHARED = 114 * 1024 - 1024 - 512,
    SMEM_MOST = 227 * 1024 - 512
};

struct gemv_params {
    /* What the first loads need comes first: a line of constants may have to be fetched. */
    const uint8_t *codes, *params;
    int n_unit, n_pair, n_part, split_log2, n_pair_all, depth;
    uint32_t pair_recip; /* i / n_pair = i * pair_recip >> 16 for i < 128 */
    uint32_t part_recip; /* 2^31 / (split n_part), rounded up */
    const uint16_t *x;
    int64_t x_stride;
    const float *norm_x; /* or NULL: x is given */
    int64_t norm_x_stride;
    const float *norm_weight;
    int n_in, n_out, n_row;
    float norm_eps;
    bool pdl;
    enum brim_w4_gemv_release release;
    enum brim_w4_epilogue epilogue;
    /* Offsets in shared memory, bytes; the ring is at 0. */
    uint32_t at_x, at_group, at_join, row_bytes;
    void *y;
    int64_t y_stride;
    const float *out_bias;
};

/* First unit of a part of the cluster, brim_w4_gemv_part: n_unit part / (split n_part), exact for
 * products below 2^23. */
BRIM_DEVICE int unit_of_part(const gemv_params &p, int part)
{
    return (int)__umulhi(2u * (uint32_t)(p.n_unit * part), p.part_recip);
}

/* What a warp has of the weights, units [begin, end) of a pair, and its CTA of x: n_chunk chunks of
 * eight inputs from input in0 on. */
struct gemv_share {
    int pair; /* one past the end is read as the last, not stored */
    int begin, end, cta_begin, n_chunk, in0;
};

BRIM_DEVICE gemv_share share_of(const gemv_params &p, int warp, int rank, int pair0)
{
    gemv_share s;
    const int part = (int)(warp * p.pair_recip >> 16), part0 = rank * p.n_part;
    s.pair = min(pair0 + warp - part * p.n_pair, p.n_pair_all - 1);
    s.begin = unit_of_part(p, part0 + part), s.end = unit_of_part(p, part0 + part + 1);
    s.cta_begin = unit_of_part(p, part0);
    s.n_chunk = (unit_of_part(p, part0 + p.n_part) - s.cta_begin) * 16;
    s.in0 = s.cta_begin * BRIM_W4_UNIT;
    return s;
}

template <enum brim_dtype dtype> struct quad; /* {scale g, scale g + 8, bias g, bias g + 8} */
template <> struct quad<BRIM_DTYPE_F32> {
    enum { BYTES = 16 };
    static __device__ float4 load(const uint8_t *at) { return *(const float4 *)at; }
};
template <> struct quad<BRIM_DTYPE_F16> {
    enum { BYTES = 8 };
    static __device__ float4 load(const uint8_t *at)
    {
        uint2 v = *(const uint2 *)at;
        float2 s = __half22float2(*(const __half2 *)&v.x),
               b = __half22float2(*(const __half2 *)&v.y);
        return make_float4(s.x, s.y, b.x, b.y);
    }
};
template <> struct quad<BRIM_DTYPE_BF16> {
    enum { BYTES = 8 };
    static __device__ float4 load(const uint8_t *at)
    {
        uint2 v = *(const uint2 *)at;
        return make_float4(bf16_lo(v.x), bf16_hi(v.x), bf16_lo(v.y), bf16_hi(v.y));
    }
};

/* Until at most depth - 1 of the youngest groups are in flight. */
BRIM_DEVICE void wait_oldest(int depth)
{
    if (depth == 4)
        cp_async_wait<3>();
    else if (depth == 3)
        cp_async_wait<2>();
    else if (depth == 2)
        cp_async_wait<1>();
    else
        cp_async_wait<0>();
}

/* What one warp reads, unit after unit, and the form in which it lies in a slot of the ring: codes
 * [half][fragment 2][lane] of 16 bytes, then parameters [group][fragment 2][g 8] of quads. */
template <enum brim_dtype dtype, int groups> struct weight_stream {
    enum {
        PAIR_BYTES = 16 * quad<dtype>::BYTES, /* parameters of a group of a pair */
        PIECES = PAIR_BYTES / 16,
        SLOT_BYTES = CODE_BYTES + groups * PAIR_BYTES
    };
    const uint8_t *codes, *params; /* this lane's */

    __device__ weight_stream(const gemv_params &p, int pair, int unit, int lane)
    {
        int64_t at = (int64_t)(pair / 2) * p.n_unit + unit;
        codes = p.codes + at * BRIM_W4_UNIT_BYTES + pair % 2 * 1024 + lane * 16;
        params = p.params + at * (groups * 2 * PAIR_BYTES) +
                 (lane / PIECES * 2 + pair % 2) * PAIR_BYTES + lane % PIECES * 16;
    }

    /* The next unit into a slot; `dst` is this lane's first byte of it. */
    __device__ void next(uint32_t dst, int lane)
    {
        cp_async_16(dst, codes, true);
        cp_async_16(dst + 512, codes + 512, true);
        cp_async_16(dst + 1024, codes + 2048, true);
        cp_async_16(dst + 1536, codes + 2560, true);
#pragma unroll
        for (int i = 0; i < groups * PIECES; i += 32)
            if (i + lane < groups * PIECES)
                cp_async_16(dst + CODE_BYTES + i * 16, params + i / PIECES * 2 * PAIR_BYTES, true);
        codes += BRIM_W4_UNIT_BYTES;
        params += groups * 2 * PAIR_BYTES;
    }

    /* The first of units [begin, end) into a warp's ring; a group of copies for each slot. */
    __device__ void fill(uint8_t *ring, int depth, int begin, int end, int lane)
    {
#pragma unroll 1
        for (int d = 0; d < depth; d++) {
            if (begin + d < end) next(smem_u32(ring) + d * SLOT_BYTES + lane * 16, lane);
            cp_async_commit();
        }
    }
};

BRIM_DEVICE float sum_squares(float4 v, float sum)
{
    return __fmaf_rn(v.x, v.x, __fmaf_rn(v.y, v.y, __fmaf_rn(v.z, v.z, __fmaf_rn(v.w, v.w, sum))));
}

BRIM_DEVICE float warp_sum(float v)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, step);
    return v;
}

/* Sums of squares of the warps, of one row; the order depends on the number of warps alone. */
BRIM_DEVICE float row_scale(const gemv_params &p, const float (&part)[MAX_WARP], int n_warp)
{
    float sum = 0;
#pragma unroll
    for (int w = 0; w < MAX_WARP; w++) sum += w < n_warp ? part[w] : 0;
    return rsqrtf(sum / (float)p.n_in + p.norm_eps);
}

/* 1 / sqrt(mean(x^2) + eps): of row 0, and of all rows into s_inv where there may be more. Barriers
 * inside. */
template <int n_row_max>
BRIM_DEVICE float norm_rows(const gemv_params &p, float (*s_part)[MAX_WARP], float *s_inv)
{
    const int t = threadIdx.x, lane = t % 32, n_warp = blockDim.x / 32, n = p.n_in / 4;
    constexpr int batch = n_row_max == 1 ? 1 : 4, reach = n_row_max == 1 ? 3 : 1;
#pragma unroll 1
    for (int row0 = 0; row0 < p.n_row; row0 += batch) {
        float sum[batch] = {};
#pragma unroll 1
        for (int first = t; first < n; first += blockDim.x * reach) {
            float4 v[batch * reach];
#pragma unroll
            for (int k = 0; k < batch * reach; k++) {
                int r = row0 + k / reach, i = first + k % reach * blockDim.x;
                v[k] = make_float4(0, 0, 0, 0);
                if (r < p.n_row && i < n)
                    v[k] = ((const float4 *)(p.norm_x + r * p.norm_x_stride))[i];
            }
#pragma unroll
            for (int k = 0; k < batch * reach; k++)
                sum[k / reach] = sum_squares(v[k], sum[k / reach]);
        }
#pragma unroll
        for (int step = 16; step > 0; step /= 2)
#pragma unroll
            for (int r = 0; r < batch; r++) sum[r] += __shfl_xor_sync(0xFFFFFFFFu, sum[r], step);
        if (lane == 0)
#pragma unroll
            for (int r = 0; r < batch; r++)
                if (row0 + r < p.n_row) s_part[row0 + r][t / 32] = sum[r];
    }
    __syncthreads();
    if (n_row_max > 1) {
        for (int row = t / 32; row < p.n_row; row += n_warp) {
            float inv = row_scale(p, s_part[row], n_warp);
            if (lane == 0) s_inv[row] = inv;
        }
        __syncthreads();
    }
    return row_scale(p, s_part[0], n_warp);
}

/* Sums [row][32 outputs] of each warp, at the start of its ring, through the parts of the CTA and
 * the CTAs of the cluster to y; `scale_of(row)`: what they lack, asked in rank 0. `residual`: of
 * this warp's first item. Begins with a barrier. */
template <int n_row_max, int slot_bytes, typename scale>
BRIM_DEVICE void join_and_store(const gemv_params &p, uint8_t *smem, uint64_t *joined, int rank,
                                int pair0, int warp, int lane, int n_warp, float residual,
                                scale scale_of)
{
    __syncthreads();
    const int n_item = p.n_row * p.n_pair, n_elem = n_item * PAIR_OUT;
    float *s_join = (float *)(smem + p.at_join); /* in rank 0: [rank - 1][item][32] */
    uint32_t to = 0, bar = 0;
    if (p.split_log2 > 0 && rank > 0) {
        cluster_wait();
        to = mapa_u32(smem_u32(s_join + (rank - 1) * n_elem), 0);
        bar = mapa_u32(smem_u32(joined), 0);
    }
#pragma unroll 1
    for (int item = warp; item < n_item; item += n_warp) {
        const int row = n_row_max == 1 ? 0 : (int)(item * p.pair_recip >> 16);
        const int own = item - row * p.n_pair, o = (pair0 + own) * PAIR_OUT + lane;
        const float *from =
            (const float *)(smem + own * p.depth * slot_bytes) + row * SUM_STRIDE + lane;
        const int stride = p.n_pair * p.depth * (slot_bytes / 4);
        float v[MAX_WARP], sum = 0;
#pragma unroll
        for (int s = 0; s < MAX_WARP; s++) v[s] = s < p.n_part ? from[s * stride] : 0;
#pragma unroll
        for (int s = 0; s < MAX_WARP; s++) sum += v[s];
        if (rank > 0) {
            st_async_f32(to + (item * PAIR_OUT + lane) * 4, sum, bar);
            continue;
        }
        if (p.split_log2 > 0) {
            mbarrier_wait_cluster(smem_u32(joined), 0);
            for (int r = 0; r < (1 << p.split_log2) - 1; r++)
                sum += s_join[r * n_elem + item * PAIR_OUT + lane];
        }
        sum *= scale_of(row);
        const bool inside = o < p.n_out;
        if (p.out_bias && inside) sum += __ldg(p.out_bias + o);
        int64_t y = row * p.y_stride + o;
        if (p.epilogue == BRIM_W4_SWIGLU) {
            /* Outputs o % 16 < 8 are gates, their ups eight lanes on. */
            float up = __shfl_down_sync(0xFFFFFFFFu, sum, 8);
            if (inside && o % 16 < 8)
                ((__nv_bfloat16 *)p.y)[row * p.y_stride + o / 16 * 8 + o % 8] =
                    __float2bfloat16_rn(__fdividef(sum, 1.0f + __expf(-sum)) * up);
        } else if (inside) {
            if (p.epilogue == BRIM_W4_STORE_BF16)
                ((__nv_bfloat16 *)p.y)[y] = __float2bfloat16_rn(sum);
            else if (p.epilogue == BRIM_W4_STORE_F32)
                ((float *)p.y)[y] = sum;
            else
                ((float *)p.y)[y] = (item == warp ? residual : ((const float *)p.y)[y]) + sum;
        }
    }
    /* Nobody leaves a cluster before all of it has begun. */
    if (p.split_log2 > 0 && rank == 0) cluster_wait();
}

/* The barrier on which sums of other CTAs will come to rank 0, and this CTA's arrival in the
 * cluster; waited for before the first of them is sent. */
BRIM_DEVICE void begin_join(const gemv_params &p, uint64_t *joined, int rank)
{
    if (p.split_log2 == 0) return;
    if (threadIdx.x == 0 && rank == 0) {
        mbarrier_init(smem_u32(joined), 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(smem_u32(joined), (uint32_t)(((1 << p.split_log2) - 1) * p.n_row *
                                                               p.n_pair * PAIR_OUT * 4));
    }
    cluster_arrive_relaxed();
}

/* The successor may load its weights as well, if this is where the plan lets it. */
BRIM_DEVICE void release_at(const gemv_params &p, enum brim_w4_gemv_release here)
{
    if (p.pdl && p.release == here) griddepcontrol_launch_dependents();
}

/* The host's half. A form is a kernel: `place_x` puts what it keeps of x (at_x, at_group,
 * row_bytes) behind byte `at` and returns the end, `launch` starts it. */
template <typename form, enum brim_dtype dtype>
brim_status launch_groups(const gemv_params &p, int group, brim_launch_shape shape,
                          cudaStream_t stream, brim_error *err)
{
    switch (group) {
    case 32:
        return form::template launch<dtype, 4>(p, shape, stream, err);
    case 64:
        return form::template launch<dtype, 2>(p, shape, stream, err);
    default:
        return form::template launch<dtype, 1>(p, shape, stream, err);
    }
}

/* Places of the shared arrays for p->n_row rows and p->depth; returns the bytes. */
template <typename form> int64_t place(gemv_params *p, const brim_cuda_w4_packed *w, int n_unit_cta)
{
    int64_t groups = BRIM_W4_UNIT / w->group;
    int64_t slot_bytes = CODE_BYTES + groups * 64 * (int64_t)brim_dtype_bytes(w->param_dtype);
    int64_t at = (int64_t)p->n_part * p->n_pair * p->depth * slot_bytes;
    at = form::place_x(p, at, groups, n_unit_cta);
    p->at_join = (uint32_t)at;
    return at + ((1 << p->split_log2) - 1) * (int64_t)p->n_row * p->n_pair * PAIR_OUT * 4;
}

template <typename form>
brim_status gemv_run(const struct brim_cuda_w4 *args, const struct brim_cuda_w4_packed *w,
                     const struct brim_cuda_w4_norm *norm, const struct brim_w4_gemv_plan *plan,
                     int pdl, cudaStream_t stream, brim_error *err)
{
    if (args->n_row == 0 || w->n_out == 0) return BRIM_OK;
    BRIM_REQUIRE(err, args->n_row >= 1 && args->n_row <= MAX_ROW, BRIM_E_SHAPE,
                 "n_row %lld: this kernel takes 1 to %d rows", (long long)args->n_row, MAX_ROW);
    BRIM_REQUIRE(
        err, plan->n_cta <= INT32_MAX && w->n_out < INT32_MAX - 1024 && plan->n_unit <= UINT16_MAX,
        BRIM_E_SHAPE, "n_out %lld, n_in %lld: more than one launch takes", (long long)w->n_out,
        (long long)w->n_in);
    BRIM_REQUIRE(err, args->epilogue != BRIM_W4_SWIGLU || w->n_out % 16 == 0, BRIM_E_SHAPE,
                 "n_out %lld: gate and up in pairs are a multiple of 16", (long long)w->n_out);
    gemv_params p = {};
    p.n_in = (int)w->n_in;
    p.n_out = (int)w->n_out;
    p.n_unit = (int)plan->n_unit;
    p.n_pair_all = (int)((w->n_out + PAIR_OUT - 1) / PAIR_OUT);
    p.n_pair = plan->n_pair;
    p.n_part = plan->n_part;
    while (1 << p.split_log2 < plan->split) p.split_log2++;
    p.pair_recip = 65536u / (uint32_t)plan->n_pair + 1;
    const uint32_t n_part_all = (uint32_t)(plan->split * plan->n_part);
    p.part_recip = ((1u << 31) + n_part_all - 1) / n_part_all;
    p.codes = (const uint8_t *)w->codes;
    p.params = (const uint8_t *)w->params;
    p.out_bias = args->out_bias;
    p.x_stride = args->x_stride;
    p.y_stride = args->y_stride;
    p.epilogue = args->epilogue;
    p.pdl = pdl != 0;
    p.release = plan->release;
    if (norm) {
        p.norm_x_stride = norm->x_stride;
        p.norm_weight = norm->weight;
        p.norm_eps = norm->eps;
    }
    int warp_units = 0, cta_units = 0;
    for (int i = 0; i < plan->split * p.n_part; i++) {
        int64_t begin = brim_w4_gemv_part(plan, i), n = brim_w4_gemv_part(plan, i + 1) - begin;
        if (n > warp_units) warp_units = (int)n;
        if (i % p.n_part != 0) continue;
        n = brim_w4_gemv_part(plan, i + p.n_part) - begin;
        if (n > cta_units) cta_units = (int)n;
    }
    /* As many units in flight as a warp has, up to four; fewer where that lets two CTAs share a
     * multiprocessor; the rows of a call in several launches where even that does not fit. */
    int n_row = p.n_row = (int)args->n_row;
    p.depth = plan->depth > 0 && plan->depth < MAX_DEPTH ? plan->depth : MAX_DEPTH;
    if (p.depth > warp_units) p.depth = warp_units;
    while (p.depth > 2 && place<form>(&p, w, cta_units) > SMEM_SHARED) p.depth--;
    while (n_row > 1 && place<form>(&p, w, cta_units) > SMEM_MOST)
        n_row = p.n_row = (n_row + 1) / 2;
    BRIM_REQUIRE(err, place<form>(&p, w, cta_units) <= SMEM_MOST, BRIM_E_SHAPE,
                 "n_in %lld: a row does not fit into shared memory", (long long)w->n_in);
    brim_launch_shape shape = {};
    shape.grid = dim3((unsigned)plan->n_cta);
    shape.block = dim3((unsigned)(plan->n_pair * plan->n_part * 32));
    shape.cluster = (unsigned)plan->split;
    shape.pdl = pdl != 0;
    size_t y_bytes =
        args->epilogue == BRIM_W4_STORE_F32 || args->epilogue == BRIM_W4_ADD_F32 ? 4 : 2;
    for (int row = 0; row < args->n_row; row += n_row) {
        p.n_row = args->n_row - row < n_row ? (int)args->n_row - row : n_row;
        shape.smem_bytes = (unsigned)place<form>(&p, w, cta_units);
        p.x = (const uint16_t *)args->x + row * args->x_stride;
        p.norm_x = norm ? norm->x + row * norm->x_stride : nullptr;
        p.y = (uint8_t *)args->y + row * args->y_stride * y_bytes;
        switch (w->param_dtype) {
        case BRIM_DTYPE_F32:
            BRIM_TRY((launch_groups<form, BRIM_DTYPE_F32>(p, w->group, shape, stream, err)));
            break;
        case BRIM_DTYPE_F16:
            BRIM_TRY((launch_groups<form, BRIM_DTYPE_F16>(p, w->group, shape, stream, err)));
            break;
        default:
            BRIM_TRY((launch_groups<form, BRIM_DTYPE_BF16>(p, w->group, shape, stream, err)));
        }
    }
    return BRIM_OK;
}

} // namespace

#endif
