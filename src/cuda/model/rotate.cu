/* SPDX-License-Identifier: Apache-2.0
 * Between the qkv projection and attention: RMSNorm per head, rotation of the halves, the cache
 * write. One warp a head (rotate.cuh). head_dim is a multiple of 4, at most 256. */
#include "cuda/model/ops.h"
#include "cuda/model/rotate.cuh"

namespace
{

enum { N_WARP = 4, MAX_STEP = BRIM_CUDA_MAX_HEAD_DIM / 128 };

BRIM_DEVICE void store_pair(void *data, enum brim_dtype dtype, int64_t i, float2 v)
{
    if (dtype == BRIM_DTYPE_F32)
        *(float2 *)((float *)data + i) = v;
    else
        *(__half2 *)((__half *)data + i) = __floats2half2_rn(v.x, v.y);
}

template <enum brim_dtype in_dtype>
__global__ void __launch_bounds__(N_WARP * 32) rotate(brim_cuda_rotate_args a)
{
    griddepcontrol_launch_dependents();
    int64_t row = blockIdx.y;
    int lane = threadIdx.x % 32, head = blockIdx.x * N_WARP + threadIdx.x / 32;
    int n_head_kv = a.kv.n_head_kv, head_dim = a.kv.head_dim, half_dim = head_dim / 2;
    if (head >= a.n_head + 2 * n_head_kv) return;
    bool is_q = head < a.n_head, is_v = head >= a.n_head + n_head_kv;
    const float *norm = is_q ? a.q_norm : is_v ? NULL : a.k_norm;
    griddepcontrol_wait();
    int64_t position = *a.first_pos + row;
    if (position < 0 || position >= a.kv.n_position) return;
    int64_t in = row * a.qkv_stride + (int64_t)head * head_dim;
    head_pairs<MAX_STEP> h = rotate_head<MAX_STEP, in_dtype>(
        a.qkv, in, head_dim, norm, a.eps, is_v ? NULL : a.rope_table + position * head_dim);
    void *out = is_q ? a.q : is_v ? a.kv.v : a.kv.k;
    int64_t at =
        is_q ? (row * a.n_head + head) * head_dim
             : ((int64_t)((head - a.n_head) % n_head_kv) * a.kv.n_position + position) * head_dim;
#pragma unroll
    for (int step = 0; step < MAX_STEP; step++) {
        int i = step * 64 + 2 * lane;
        if (i >= half_dim) continue;
        store_pair(out, a.kv.dtype, at + i, h.low[step]);
        store_pair(out, a.kv.dtype, at + half_dim + i, h.high[step]);
    }
}

} // namespace

extern "C" brim_status brim_cuda_rotate(const struct brim_cuda_rotate_args *args, void *stream,
                                        brim_error *err)
{
    BRIM_REQUIRE(err,
                 args->kv.head_dim % 4 == 0 && args->kv.head_dim > 0 &&
                     args->kv.head_dim <= BRIM_CUDA_MAX_HEAD_DIM,
                 BRIM_E_UNSUPPORTED, "rotate: head_dim %d is not a multiple of 4 of at most %d",
                 args->kv.head_dim, BRIM_CUDA_MAX_HEAD_DIM);
    int n_head = args->n_head + 2 * args->kv.n_head_kv;
    brim_launch_shape shape = {};
    shape.block = dim3(N_WARP * 32);
    shape.pdl = args->pdl;
    BRIM_REQUIRE(err, args->n_row <= BRIM_GRID_Y_MAX, BRIM_E_RANGE,
                 "rotate: %lld rows in one step, at most %d", (long long)args->n_row,
                 BRIM_GRID_Y_MAX);
    if (args->n_row == 0) return BRIM_OK;
    shape.grid = dim3((unsigned)((n_head + N_WARP - 1) / N_WARP), (unsigned)args->n_row);
    if (args->qkv_dtype == BRIM_DTYPE_F32)
        return BRIM_LAUNCH(rotate<BRIM_DTYPE_F32>, shape, (cudaStream_t)stream, *args, err);
    return BRIM_LAUNCH(rotate<BRIM_DTYPE_BF16>, shape, (cudaStream_t)stream, *args, err);
}
