/* SPDX-License-Identifier: Apache-2.0
 * Row-wise operators: embedding rows, the row kept, RMSNorm, the rotary table, SwiGLU, residual
 * add. Each kernel lets its successor start at once and waits for its predecessor only before it
 * reads activations. A row's result does not depend on the other rows. */
#include "cuda/model/common.cuh"
#include "cuda/model/ops.h"

namespace
{

enum { NORM_VECTORS = 4 }; /* float4 a thread keeps in registers */

__device__ float table_value(const brim_cuda_table &t, int64_t row, int64_t col)
{
    int64_t at = row * t.n_in + col;
    switch (t.kind) {
    case BRIM_WEIGHT_AFFINE4: {
        uint32_t word = ((const uint32_t *)t.data)[at / 8];
        float scale = load_f32(t.scales, t.dtype, at / t.group);
        float bias = load_f32(t.biases, t.dtype, at / t.group);
        return __fmaf_rn(scale, (float)(word >> (4 * (at % 8)) & 15u), bias);
    }
    case BRIM_WEIGHT_Q8_0:
        return load_f32(t.scales, BRIM_DTYPE_F16, at / 32) * (float)((const int8_t *)t.data)[at];
    default:
        return load_f32(t.data, t.dtype, at);
    }
}

__global__ void __launch_bounds__(128) embed(brim_cuda_embed_args a)
{
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    int64_t row = blockIdx.y, col = (int64_t)blockIdx.x * 128 + threadIdx.x;
    if (col >= a.table.n_in) return;
    int64_t id = a.ids[row];
    bool ok = id >= 0 && id < a.table.n_out;
    a.x[row * a.x_stride + col] = ok ? table_value(a.table, id, col) : __int_as_float(0x7FC00000);
}

/* Block y: a buffer. */
__global__ void __launch_bounds__(128) keep(brim_cuda_keep_args a)
{
    griddepcontrol_launch_dependents();
    int64_t n = a.buffers[blockIdx.y].row_bytes / 16, i = (int64_t)blockIdx.x * 128 + threadIdx.x;
    uint4 *data = (uint4 *)a.buffers[blockIdx.y].data;
    griddepcontrol_wait();
    int64_t row = *a.row;
    if (i < n && row > 0) data[i] = data[row * n + i];
}

/* n % 4 == 0, rows of x and weight on 16 bytes, n <= 4 NORM_VECTORS blockDim. */
__global__ void __launch_bounds__(1024) rmsnorm_vector(brim_cuda_rmsnorm_args a)
{
    __shared__ float part[32];
    griddepcontrol_launch_dependents();
    int64_t row = blockIdx.x;
    int n_vector = (int)(a.n / 4);
    const float4 *x = (const float4 *)(a.x + row * a.x_stride);
    const float4 *weight = (const float4 *)a.weight;
    float4 v[NORM_VECTORS], w[NORM_VECTORS];
#pragma unroll
    for (int j = 0; j < NORM_VECTORS; j++) {
        int i = threadIdx.x + j * blockDim.x;
        if (i < n_vector) w[j] = weight[i];
    }
    griddepcontrol_wait();
    float sum = 0;
#pragma unroll
    for (int j = 0; j < NORM_VECTORS; j++) {
        int i = threadIdx.x + j * blockDim.x;
        if (i < n_vector) {
            v[j] = x[i];
            sum += v[j].x * v[j].x + v[j].y * v[j].y + v[j].z * v[j].z + v[j].w * v[j].w;
        }
    }
    float inv = 1.0f / sqrtf(block_sum(sum, part) / (float)a.n + a.eps);
    uint2 *y = (uint2 *)((uint16_t *)a.y + row * a.y_stride);
#pragma unroll
    for (int j = 0; j < NORM_VECTORS; j++) {
        int i = threadIdx.x + j * blockDim.x;
        if (i < n_vector)
            y[i] = make_uint2(bf16x2_pack(v[j].x * inv * w[j].x, v[j].y * inv * w[j].y),
                              bf16x2_pack(v[j].z * inv * w[j].z, v[j].w * inv * w[j].w));
    }
}

__global__ void __launch_bounds__(256) rmsnorm_any(brim_cuda_rmsnorm_args a)
{
    __shared__ float part[32];
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    const float *x = a.x + (int64_t)blockIdx.x * a.x_stride;
    float sum = 0;
    for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) sum += x[i] * x[i];
    float inv = 1.0f / sqrtf(block_sum(sum, part) / (float)a.n + a.eps);
    for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x)
        store_f32(a.y, BRIM_DTYPE_BF16, blockIdx.x * a.y_stride + i, x[i] * inv * a.weight[i]);
}

__global__ void __launch_bounds__(128) rope_table(brim_cuda_rope_table_args a)
{
    int64_t at = (int64_t)blockIdx.x * 128 + threadIdx.x;
    if (at >= a.n_position * a.n_pair) return;
    int64_t position = at / a.n_pair, pair = at % a.n_pair;
    double sine, cosine;
    sincos((double)position * a.inv_freq[pair], &sine, &cosine);
    float *out = a.table + position * 2 * a.n_pair + pair;
    out[0] = (float)(cosine * a.amplitude);
    out[a.n_pair] = (float)(sine * a.amplitude);
}

/* brim_w4_pair_row on the device. */
__device__ int64_t pair_row(int64_t row, int up)
{
    return row / 8 * 16 + up * 8 + row % 8;
}

__device__ float swiglu_of(float gate, float up)
{
    return gate / (1.0f + __expf(-gate)) * up;
}

__device__ void unpack_bf16(uint4 v, float (&out)[8])
{
    out[0] = bf16_lo(v.x), out[1] = bf16_hi(v.x), out[2] = bf16_lo(v.y), out[3] = bf16_hi(v.y);
    out[4] = bf16_lo(v.z), out[5] = bf16_hi(v.z), out[6] = bf16_lo(v.w), out[7] = bf16_hi(v.w);
}

/* n_ff % 8 == 0, bf16 in, 16-byte rows: 8 outputs a thread. */
__global__ void __launch_bounds__(128) swiglu_vector(brim_cuda_swiglu_args a)
{
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    int64_t row = blockIdx.y, i = ((int64_t)blockIdx.x * 128 + threadIdx.x) * 8;
    if (i >= a.n_ff) return;
    const uint16_t *in = (const uint16_t *)a.gate_up + row * a.gate_up_stride;
    float gate[8], up[8];
    unpack_bf16(*(const uint4 *)(in + (a.paired ? 2 * i : i)), gate);
    unpack_bf16(*(const uint4 *)(in + (a.paired ? 2 * i + 8 : i + a.n_ff)), up);
#pragma unroll
    for (int j = 0; j < 8; j++) gate[j] = swiglu_of(gate[j], up[j]);
    *(uint4 *)((uint16_t *)a.y + row * a.y_stride + i) =
        make_uint4(bf16x2_pack(gate[0], gate[1]), bf16x2_pack(gate[2], gate[3]),
                   bf16x2_pack(gate[4], gate[5]), bf16x2_pack(gate[6], gate[7]));
}

__global__ void __launch_bounds__(128) swiglu_any(brim_cuda_swiglu_args a)
{
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    int64_t row = blockIdx.y, i = (int64_t)blockIdx.x * 128 + threadIdx.x;
    if (i >= a.n_ff) return;
    int64_t gate_at = row * a.gate_up_stride + (a.paired ? pair_row(i, 0) : i);
    int64_t up_at = row * a.gate_up_stride + (a.paired ? pair_row(i, 1) : i + a.n_ff);
    store_f32(a.y, BRIM_DTYPE_BF16, row * a.y_stride + i,
              swiglu_of(load_f32(a.gate_up, a.gate_up_dtype, gate_at),
                        load_f32(a.gate_up, a.gate_up_dtype, up_at)));
}

__global__ void __launch_bounds__(128) add(brim_cuda_add_args a)
{
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    int64_t row = blockIdx.y, i = (int64_t)blockIdx.x * 128 + threadIdx.x;
    if (i < a.n) a.x[row * a.x_stride + i] += load_f32(a.y, a.y_dtype, row * a.y_stride + i);
}

bool aligned(const void *ptr)
{
    return (uintptr_t)ptr % 16 == 0;
}

} // namespace

extern "C" brim_status brim_cuda_embed(const struct brim_cuda_embed_args *args, void *stream,
                                       brim_error *err)
{
    for (int64_t row = 0; row < args->n_row; row += BRIM_GRID_Y_MAX) {
        brim_cuda_embed_args part = *args;
        part.n_row = args->n_row - row < BRIM_GRID_Y_MAX ? args->n_row - row : BRIM_GRID_Y_MAX;
        part.ids += row;
        part.x += row * args->x_stride;
        BRIM_TRY(BRIM_LAUNCH(embed, elementwise_shape(part.n_row, part.table.n_in, 1, part.pdl),
                             (cudaStream_t)stream, part, err));
    }
    return BRIM_OK;
}

extern "C" brim_status brim_cuda_keep(const struct brim_cuda_keep_args *args, void *stream,
                                      brim_error *err)
{
    int64_t most = 0;
    for (int i = 0; i < args->n_buffer; i++)
        if (args->buffers[i].row_bytes > most) most = args->buffers[i].row_bytes;
    if (most == 0) return BRIM_OK;
    return BRIM_LAUNCH(keep, elementwise_shape(args->n_buffer, most, 16, args->pdl),
                       (cudaStream_t)stream, *args, err);
}

extern "C" brim_status brim_cuda_rmsnorm(const struct brim_cuda_rmsnorm_args *args, void *stream,
                                         brim_error *err)
{
    if (args->n_row == 0) return BRIM_OK;
    brim_launch_shape shape = {};
    shape.grid = dim3((unsigned)args->n_row);
    shape.pdl = args->pdl;
    bool vector = args->n % 4 == 0 && args->n <= 4 * NORM_VECTORS * 1024 && aligned(args->x) &&
                  aligned(args->weight) && aligned(args->y) && args->x_stride % 4 == 0 &&
                  args->y_stride % 4 == 0;
    if (!vector) {
        shape.block = dim3(256);
        return BRIM_LAUNCH(rmsnorm_any, shape, (cudaStream_t)stream, *args, err);
    }
    int64_t n_thread = (args->n / 4 + 31) / 32 * 32;
    shape.block = dim3((unsigned)(n_thread < 1024 ? n_thread : 1024));
    return BRIM_LAUNCH(rmsnorm_vector, shape, (cudaStream_t)stream, *args, err);
}

extern "C" brim_status brim_cuda_rope_table(const struct brim_cuda_rope_table_args *args,
                                            void *stream, brim_error *err)
{
    brim_launch_shape shape = elementwise_shape(1, args->n_position * args->n_pair, 1, false);
    return BRIM_LAUNCH(rope_table, shape, (cudaStream_t)stream, *args, err);
}

extern "C" brim_status brim_cuda_swiglu(const struct brim_cuda_swiglu_args *args, void *stream,
                                        brim_error *err)
{
    bool vector = args->gate_up_dtype == BRIM_DTYPE_BF16 && args->n_ff % 8 == 0 &&
                  aligned(args->gate_up) && aligned(args->y) && args->gate_up_stride % 8 == 0 &&
                  args->y_stride % 8 == 0;
    size_t in_bytes = brim_dtype_bytes(args->gate_up_dtype);
    for (int64_t row = 0; row < args->n_row; row += BRIM_GRID_Y_MAX) {
        brim_cuda_swiglu_args part = *args;
        part.n_row = args->n_row - row < BRIM_GRID_Y_MAX ? args->n_row - row : BRIM_GRID_Y_MAX;
        part.gate_up = (const uint8_t *)args->gate_up + row * args->gate_up_stride * in_bytes;
        part.y = (uint16_t *)args->y + row * args->y_stride;
        brim_launch_shape shape =
            elementwise_shape(part.n_row, part.n_ff, vector ? 8 : 1, part.pdl);
        if (vector)
            BRIM_TRY(BRIM_LAUNCH(swiglu_vector, shape, (cudaStream_t)stream, part, err));
        else
            BRIM_TRY(BRIM_LAUNCH(swiglu_any, shape, (cudaStream_t)stream, part, err));
    }
    return BRIM_OK;
}

extern "C" brim_status brim_cuda_add(const struct brim_cuda_add_args *args, void *stream,
                                     brim_error *err)
{
    size_t y_bytes = brim_dtype_bytes(args->y_dtype);
    for (int64_t row = 0; row < args->n_row; row += BRIM_GRID_Y_MAX) {
        brim_cuda_add_args part = *args;
        part.n_row = args->n_row - row < BRIM_GRID_Y_MAX ? args->n_row - row : BRIM_GRID_Y_MAX;
        part.x += row * args->x_stride;
        part.y = (const uint8_t *)args->y + row * args->y_stride * y_bytes;
        BRIM_TRY(BRIM_LAUNCH(add, elementwise_shape(part.n_row, part.n, 1, part.pdl),
                             (cudaStream_t)stream, part, err));
    }
    return BRIM_OK;
}
