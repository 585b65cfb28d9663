/* SPDX-License-Identifier: Apache-2.0
 * y = x W^T for weights that are not 4-bit: f32, f16, bf16, and Q8_0 as int8 with f16 scales.
 *
 * Matvec, n_row <= 8: a warp owns two outputs (of SwiGLU a gate and its up) and all rows, a lane 8
 * inputs of every 256, f32 throughout, a fixed butterfly at the end: same bits for every n_row.
 * Tile: 64 x 64 outputs, 32 inputs a step, weights rounded to bf16 on the way to shared memory,
 * mma.sync with f32 sums; rows of 40 elements put the eight rows of an ldmatrix in distinct banks.
 * What lies past an edge is read as zero and not stored. */
#include "cuda/model/common.cuh"
#include "cuda/model/ops.h"
#include "cuda/ptx/mma.cuh"

namespace
{

enum form { FORM_F32 = 0, FORM_F16 = 1, FORM_BF16 = 2, FORM_Q8 = 3 };
enum { N_WARP = 8, OUT_PER_WARP = 2, TILE = 64, STEP = 32, SMEM_STRIDE = 40 };

template <int form> BRIM_DEVICE float weight_at(const brim_cuda_table &t, int64_t at)
{
    if (form == FORM_Q8)
        return load_f32(t.scales, BRIM_DTYPE_F16, at / 32) * (float)((const int8_t *)t.data)[at];
    return load_f32(t.data, (enum brim_dtype)form, at);
}

/* 8 weights from element `at` on, 8 | at. */
template <int form> BRIM_DEVICE void weights_at(const brim_cuda_table &t, int64_t at, float (&w)[8])
{
    if (form == FORM_F32) {
        uint4 lo = ld_stream_v4((const float *)t.data + at);
        uint4 hi = ld_stream_v4((const float *)t.data + at + 4);
        uint32_t bits[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
#pragma unroll
        for (int j = 0; j < 8; j++) w[j] = __uint_as_float(bits[j]);
    } else if (form == FORM_Q8) {
        uint2 v = *(const uint2 *)((const int8_t *)t.data + at);
        float scale = load_f32(t.scales, BRIM_DTYPE_F16, at / 32);
#pragma unroll
        for (int j = 0; j < 8; j++)
            w[j] = scale * (float)(int8_t)((j < 4 ? v.x : v.y) >> (8 * (j % 4)));
    } else {
        uint4 v = ld_stream_v4((const uint16_t *)t.data + at);
        uint32_t pair[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (form == FORM_BF16) {
                w[2 * j] = bf16_lo(pair[j]), w[2 * j + 1] = bf16_hi(pair[j]);
            } else {
                float2 f = __half22float2(*(const __half2 *)&pair[j]);
                w[2 * j] = f.x, w[2 * j + 1] = f.y;
            }
        }
    }
}

BRIM_DEVICE float silu_times(float gate, float up)
{
    return gate / (1.0f + __expf(-gate)) * up;
}

/* One result, or gate and up of SwiGLU's output `out`. */
BRIM_DEVICE void store_result(const brim_cuda_dense_args &a, int64_t row, int64_t out, float v)
{
    int64_t at = row * a.y_stride + out;
    if (a.epilogue == BRIM_W4_STORE_F32)
        ((float *)a.y)[at] = v;
    else if (a.epilogue == BRIM_W4_ADD_F32)
        ((float *)a.y)[at] += v;
    else
        ((__nv_bfloat16 *)a.y)[at] = __float2bfloat16_rn(v);
}

/* aligned: n_in % 8 == 0 and rows of x and W on 16 bytes (Q8: codes on 8). */
template <int form, int max_row, bool aligned>
__global__ void __launch_bounds__(N_WARP * 32) dense_matvec(brim_cuda_dense_args a)
{
    griddepcontrol_launch_dependents();
    int lane = threadIdx.x % 32;
    int64_t index = (int64_t)blockIdx.x * N_WARP + threadIdx.x / 32, n_in = a.w.n_in;
    bool swiglu = a.epilogue == BRIM_W4_SWIGLU;
    int64_t first = swiglu ? index / 8 * 16 + index % 8 : index * OUT_PER_WARP;
    if (first >= a.w.n_out) return;
    int64_t second = first + (swiglu ? 8 : 1);
    bool pair = second < a.w.n_out;
    /* a missing output recomputes the first */
    const int64_t at[OUT_PER_WARP] = {first * n_in, (pair ? second : first) * n_in};
    griddepcontrol_wait();
    float acc[OUT_PER_WARP][max_row] = {};
    const uint16_t *x = (const uint16_t *)a.x;
    if (aligned) {
#pragma unroll 4
        for (int64_t in = lane * 8; in < n_in; in += 256) {
            float w[OUT_PER_WARP][8];
#pragma unroll
            for (int o = 0; o < OUT_PER_WARP; o++) weights_at<form>(a.w, at[o] + in, w[o]);
#pragma unroll
            for (int row = 0; row < max_row; row++) {
                if (row >= a.n_row) break;
                uint4 v = *(const uint4 *)(x + row * a.x_stride + in);
                float xs[8] = {bf16_lo(v.x), bf16_hi(v.x), bf16_lo(v.y), bf16_hi(v.y),
                               bf16_lo(v.z), bf16_hi(v.z), bf16_lo(v.w), bf16_hi(v.w)};
#pragma unroll
                for (int j = 0; j < 8; j++)
#pragma unroll
                    for (int o = 0; o < OUT_PER_WARP; o++)
                        acc[o][row] = __fmaf_rn(w[o][j], xs[j], acc[o][row]);
            }
        }
    } else {
        for (int64_t in = lane; in < n_in; in += 32) {
            float w[OUT_PER_WARP];
#pragma unroll
            for (int o = 0; o < OUT_PER_WARP; o++) w[o] = weight_at<form>(a.w, at[o] + in);
#pragma unroll
            for (int row = 0; row < max_row; row++) {
                if (row >= a.n_row) break;
                float xs = load_f32(x, BRIM_DTYPE_BF16, row * a.x_stride + in);
#pragma unroll
                for (int o = 0; o < OUT_PER_WARP; o++)
                    acc[o][row] = __fmaf_rn(w[o], xs, acc[o][row]);
            }
        }
    }
#pragma unroll
    for (int row = 0; row < max_row; row++) {
        float v = warp_sum(acc[0][row]), u = warp_sum(acc[1][row]);
        if (lane != 0 || row >= a.n_row) continue;
        if (a.out_bias) v += a.out_bias[first], u += pair ? a.out_bias[second] : 0;
        store_result(a, row, swiglu ? index : first, swiglu ? silu_times(v, u) : v);
        if (pair && !swiglu) store_result(a, row, second, u);
    }
}

/* 8 bf16 of a tile row; zero outside. */
BRIM_DEVICE uint4 x_piece(const brim_cuda_dense_args &a, int64_t row, int64_t in, bool aligned)
{
    const uint16_t *x = (const uint16_t *)a.x + row * a.x_stride;
    if (row >= a.n_row || in >= a.w.n_in) return make_uint4(0, 0, 0, 0);
    if (aligned) return *(const uint4 *)(x + in);
    uint32_t v[4] = {};
#pragma unroll
    for (int j = 0; j < 8; j++)
        if (in + j < a.w.n_in) v[j / 2] |= (uint32_t)x[in + j] << (j % 2 * 16);
    return make_uint4(v[0], v[1], v[2], v[3]);
}

template <int form>
BRIM_DEVICE uint4 w_piece(const brim_cuda_dense_args &a, int64_t out, int64_t in, bool aligned)
{
    if (out >= a.w.n_out || in >= a.w.n_in) return make_uint4(0, 0, 0, 0);
    float w[8];
    if (aligned) {
        weights_at<form>(a.w, out * a.w.n_in + in, w);
    } else {
#pragma unroll
        for (int j = 0; j < 8; j++)
            w[j] = in + j < a.w.n_in ? weight_at<form>(a.w, out * a.w.n_in + in + j) : 0;
    }
    return make_uint4(bf16x2_pack(w[0], w[1]), bf16x2_pack(w[2], w[3]), bf16x2_pack(w[4], w[5]),
                      bf16x2_pack(w[6], w[7]));
}

template <int form, bool aligned>
__global__ void __launch_bounds__(128) dense_tile(brim_cuda_dense_args a)
{
    __shared__ __align__(16) uint16_t s_x[TILE][SMEM_STRIDE], s_w[TILE][SMEM_STRIDE];
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    int64_t row0 = (int64_t)blockIdx.y * TILE, out0 = (int64_t)blockIdx.x * TILE;
    int tile_row = warp / 2 * 32, tile_out = warp % 2 * 32;
    float acc[2][4][4] = {};
    uint4 next_x[2], next_w[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        next_x[i] = x_piece(a, row0 + i * 32 + t / 4, t % 4 * 8, aligned);
        next_w[i] = w_piece<form>(a, out0 + i * 32 + t / 4, t % 4 * 8, aligned);
    }
    for (int64_t in = 0; in < a.w.n_in; in += STEP) {
        __syncthreads(); /* the previous step's fragments have been read */
#pragma unroll
        for (int i = 0; i < 2; i++) {
            *(uint4 *)&s_x[i * 32 + t / 4][t % 4 * 8] = next_x[i];
            *(uint4 *)&s_w[i * 32 + t / 4][t % 4 * 8] = next_w[i];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 2; i++) {
            next_x[i] = x_piece(a, row0 + i * 32 + t / 4, in + STEP + t % 4 * 8, aligned);
            next_w[i] = w_piece<form>(a, out0 + i * 32 + t / 4, in + STEP + t % 4 * 8, aligned);
        }
#pragma unroll
        for (int k = 0; k < STEP / 16; k++) {
            uint32_t fx[2][4], fw[2][4];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                ldmatrix_x4(fx[i],
                            smem_u32(&s_x[tile_row + i * 16 + lane % 16][k * 16 + lane / 16 * 8]));
                /* outputs 0-7 and 8-15, each for inputs 0-7 and 8-15 */
                ldmatrix_x4(fw[i], smem_u32(&s_w[tile_out + i * 16 + lane / 16 * 8 + lane % 8]
                                                [k * 16 + lane / 8 % 2 * 8]));
            }
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    mma_bf16_16816(acc[i][j], fx[i], fw[j / 2][j % 2 * 2],
                                   fw[j / 2][j % 2 * 2 + 1]);
        }
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    int64_t row = row0 + tile_row + i * 16 + h * 8 + lane / 4;
                    int64_t out = out0 + tile_out + j * 8 + lane % 4 * 2 + e;
                    if (row >= a.n_row || out >= a.w.n_out) continue;
                    float v = acc[i][j][2 * h + e] + (a.out_bias ? a.out_bias[out] : 0);
                    if (a.epilogue != BRIM_W4_SWIGLU) {
                        store_result(a, row, out, v);
                    } else if (j % 2 == 0) {
                        float up =
                            acc[i][j + 1][2 * h + e] + (a.out_bias ? a.out_bias[out + 8] : 0);
                        store_result(a, row, out / 16 * 8 + out % 8, silu_times(v, up));
                    }
                }
}

template <int form, bool aligned>
brim_status launch_form(const brim_cuda_dense_args &a, cudaStream_t stream, brim_error *err)
{
    brim_launch_shape shape = {};
    shape.pdl = a.pdl;
    if (a.n_row > 8) {
        shape.grid = dim3((unsigned)((a.w.n_out + TILE - 1) / TILE),
                          (unsigned)((a.n_row + TILE - 1) / TILE));
        shape.block = dim3(128);
        return BRIM_LAUNCH((dense_tile<form, aligned>), shape, stream, a, err);
    }
    shape.grid =
        dim3((unsigned)((a.w.n_out + N_WARP * OUT_PER_WARP - 1) / (N_WARP * OUT_PER_WARP)));
    shape.block = dim3(N_WARP * 32);
    if (a.n_row == 1) return BRIM_LAUNCH((dense_matvec<form, 1, aligned>), shape, stream, a, err);
    return BRIM_LAUNCH((dense_matvec<form, 8, aligned>), shape, stream, a, err);
}

template <int form>
brim_status launch_aligned(const brim_cuda_dense_args &a, cudaStream_t stream, brim_error *err)
{
    bool aligned = a.w.n_in % 8 == 0 && a.x_stride % 8 == 0 && (uintptr_t)a.x % 16 == 0 &&
                   (uintptr_t)a.w.data % 16 == 0;
    return aligned ? launch_form<form, true>(a, stream, err)
                   : launch_form<form, false>(a, stream, err);
}

} // namespace

extern "C" brim_status brim_cuda_dense(const struct brim_cuda_dense_args *args, void *stream,
                                       brim_error *err)
{
    BRIM_REQUIRE(err, args->w.kind == BRIM_WEIGHT_DENSE || args->w.kind == BRIM_WEIGHT_Q8_0,
                 BRIM_E_UNSUPPORTED, "dense: weights of kind %d are neither dense nor q8_0",
                 (int)args->w.kind);
    BRIM_REQUIRE(err, args->epilogue != BRIM_W4_SWIGLU || args->w.n_out % 16 == 0, BRIM_E_SHAPE,
                 "dense: SwiGLU wants a multiple of 16 outputs, not %lld",
                 (long long)args->w.n_out);
    BRIM_REQUIRE(err, args->n_row <= (int64_t)BRIM_GRID_Y_MAX * TILE, BRIM_E_RANGE,
                 "dense: %lld rows, at most %lld", (long long)args->n_row,
                 (long long)BRIM_GRID_Y_MAX * TILE);
    if (args->n_row == 0 || args->w.n_out == 0) return BRIM_OK;
    cudaStream_t s = (cudaStream_t)stream;
    if (args->w.kind == BRIM_WEIGHT_Q8_0) return launch_aligned<FORM_Q8>(*args, s, err);
    switch (args->w.dtype) {
    case BRIM_DTYPE_F32:
        return launch_aligned<FORM_F32>(*args, s, err);
    case BRIM_DTYPE_F16:
        return launch_aligned<FORM_F16>(*args, s, err);
    case BRIM_DTYPE_BF16:
        return launch_aligned<FORM_BF16>(*args, s, err);
    default:
        return brim_fail(err, BRIM_E_UNSUPPORTED, "dense: weights of type %s",
                         brim_dtype_name(args->w.dtype));
    }
}
