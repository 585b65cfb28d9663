/* SPDX-License-Identifier: Apache-2.0
 * Attention for any head_dim up to 256 and both cache types, on the CUDA cores in f32: head sizes
 * without a tensor-core form, and caches kept in f32.
 * A block of 8 warps is one query head of one row. Warp w takes the keys 32 w.. of every 256, a
 * lane scores one key, then owns every 32nd dimension of the result; the warps' states are merged
 * in order. */
#include "cuda/model/attn.cuh"

namespace
{

enum { N_WARP = 8, CHUNK = 32, LANE_DIMS = BRIM_CUDA_MAX_HEAD_DIM / 32 };

template <enum brim_dtype dtype>
__global__ void __launch_bounds__(N_WARP * 32) attention_any(brim_cuda_attention_args a)
{
    __shared__ float s_q[BRIM_CUDA_MAX_HEAD_DIM];
    __shared__ float s_acc[N_WARP][BRIM_CUDA_MAX_HEAD_DIM], s_largest[N_WARP], s_sum[N_WARP];
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    int head = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int head_dim = a.kv.head_dim, head_kv = head / (a.n_head / a.kv.n_head_kv);
    int64_t row = blockIdx.y, n_key = *a.first_pos + row + 1;
    if (n_key > a.kv.n_position) return;
    for (int d = threadIdx.x; d < head_dim; d += N_WARP * 32)
        s_q[d] = load_f32(a.q, dtype, (row * a.n_head + head) * head_dim + d);
    __syncthreads();

    int64_t first = (int64_t)head_kv * a.kv.n_position * head_dim;
    float scale = a.scale * ATTN_LOG2E, largest = -CUDART_INF_F, sum = 0, acc[LANE_DIMS] = {};
    for (int64_t key0 = warp * CHUNK; key0 < n_key; key0 += N_WARP * CHUNK) {
        int64_t key = key0 + lane;
        float score = -CUDART_INF_F;
        if (key < n_key) {
            float dot = 0;
            for (int d = 0; d < head_dim; d++)
                dot = __fmaf_rn(s_q[d], load_f32(a.kv.k, dtype, first + key * head_dim + d), dot);
            score = dot * scale;
        }
        float to = fmaxf(largest, warp_max(score)), keep = attn_keep(largest, to);
        float weight = ex2_approx(score - attn_base(to));
        largest = to;
        sum = sum * keep + warp_sum(weight);
        for (int i = 0; i < LANE_DIMS; i++) acc[i] *= keep;
        int n = n_key - key0 < CHUNK ? (int)(n_key - key0) : CHUNK;
        for (int j = 0; j < n; j++) {
            float w = __shfl_sync(0xFFFFFFFFu, weight, j);
            int64_t v = first + (key0 + j) * head_dim;
#pragma unroll
            for (int i = 0; i < LANE_DIMS; i++) {
                int d = lane + 32 * i;
                if (d < head_dim) acc[i] = __fmaf_rn(w, load_f32(a.kv.v, dtype, v + d), acc[i]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < LANE_DIMS; i++) s_acc[warp][lane + 32 * i] = acc[i];
    if (lane == 0) s_largest[warp] = largest, s_sum[warp] = sum;
    __syncthreads();
    float to = -CUDART_INF_F, total = 0;
    for (int w = 0; w < N_WARP; w++) to = fmaxf(to, s_largest[w]);
    for (int w = 0; w < N_WARP; w++) total += s_sum[w] * attn_keep(s_largest[w], to);
    for (int d = threadIdx.x; d < head_dim; d += N_WARP * 32) {
        float out = 0;
        for (int w = 0; w < N_WARP; w++) out += s_acc[w][d] * attn_keep(s_largest[w], to);
        store_f32(a.out, BRIM_DTYPE_BF16, row * a.out_stride + head * head_dim + d, out / total);
    }
}

} // namespace

extern "C" brim_status brim_cuda_attn_check(const brim_cuda_attention_args *args, brim_error *err)
{
    const brim_cuda_kv &kv = args->kv;
    BRIM_REQUIRE(err, kv.head_dim >= 1 && kv.head_dim <= BRIM_CUDA_MAX_HEAD_DIM, BRIM_E_UNSUPPORTED,
                 "attention: head_dim %d is not 1..%d", kv.head_dim, BRIM_CUDA_MAX_HEAD_DIM);
    BRIM_REQUIRE(err, kv.n_head_kv >= 1 && args->n_head % kv.n_head_kv == 0, BRIM_E_ARGUMENT,
                 "attention: %d query heads do not share %d key heads evenly", args->n_head,
                 kv.n_head_kv);
    BRIM_REQUIRE(err, kv.dtype == BRIM_DTYPE_F16 || kv.dtype == BRIM_DTYPE_F32, BRIM_E_UNSUPPORTED,
                 "attention: a cache of %s", brim_dtype_name(kv.dtype));
    BRIM_REQUIRE(err, args->n_row >= 0 && args->n_row <= BRIM_GRID_Y_MAX, BRIM_E_RANGE,
                 "attention: %lld rows in one step, at most %d", (long long)args->n_row,
                 BRIM_GRID_Y_MAX);
    return BRIM_OK;
}

extern "C" brim_status brim_cuda_attn_any(const brim_cuda_attention_args *args, cudaStream_t stream,
                                          brim_error *err)
{
    brim_launch_shape shape = {};
    shape.grid = dim3((unsigned)args->n_head, (unsigned)args->n_row);
    shape.block = dim3(N_WARP * 32);
    shape.pdl = args->pdl;
    if (args->kv.dtype == BRIM_DTYPE_F32)
        return BRIM_LAUNCH(attention_any<BRIM_DTYPE_F32>, shape, stream, *args, err);
    return BRIM_LAUNCH(attention_any<BRIM_DTYPE_F16>, shape, stream, *args, err);
}
