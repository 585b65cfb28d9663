/* SPDX-License-Identifier: Apache-2.0
 * W4 matvec for n_row <= 8 in the checkpoint's layout.
 *
 * Block of 8 warps; a warp owns two outputs and all rows, so a weight is read once whatever n_row
 * is. A lane takes 32 consecutive inputs of both outputs at a time (16 bytes of codes each, always
 * inside one group), 1024 inputs a warp step. f32 throughout: per lane and 32 inputs
 *     acc[row] += scale * sum(q x) + bias * sum(x)
 * then a fixed butterfly over the lanes: same bits on every run and for every n_row. */
#include "cuda/launch.h"
#include "cuda/w4/dequant.cuh"
#include "cuda/w4/w4.h"

namespace
{

enum { N_WARP = 8, OUT_PER_WARP = 2, LANE_INPUTS = 32 };

template <int max_row> __global__ void __launch_bounds__(N_WARP * 32) w4_matvec(brim_cuda_w4 a)
{
    int lane = threadIdx.x % 32;
    int64_t out0 = ((int64_t)blockIdx.x * N_WARP + threadIdx.x / 32) * OUT_PER_WARP;
    if (out0 >= a.n_out) return;
    int n_out = a.n_out - out0 < OUT_PER_WARP ? (int)(a.n_out - out0) : OUT_PER_WARP;
    int64_t n_group = a.n_in / a.group;
    float acc[OUT_PER_WARP][max_row] = {};
    for (int64_t in = (int64_t)lane * LANE_INPUTS; in < a.n_in; in += 32 * LANE_INPUTS) {
        uint32_t words[OUT_PER_WARP][4];
        float scale[OUT_PER_WARP], bias[OUT_PER_WARP];
#pragma unroll
        for (int o = 0; o < OUT_PER_WARP; o++) {
            int64_t out = out0 + (o < n_out ? o : 0); /* a missing output recomputes the first */
            uint4 v = ld_stream_v4((const uint8_t *)a.codes + (out * a.n_in + in) / 2);
            words[o][0] = v.x, words[o][1] = v.y, words[o][2] = v.z, words[o][3] = v.w;
            int64_t g = out * n_group + in / a.group;
            scale[o] = w4_param(a.scales, a.param_dtype, g);
            bias[o] = w4_param(a.biases, a.param_dtype, g);
        }
#pragma unroll
        for (int row = 0; row < max_row; row++) {
            if (row >= a.n_row) break;
            const uint4 *x = (const uint4 *)((const uint16_t *)a.x + row * a.x_stride + in);
            float dot[OUT_PER_WARP] = {}, sum = 0;
#pragma unroll
            for (int w = 0; w < 4; w++) {
                uint4 v = x[w];
                float xs[8] = {bf16_lo(v.x), bf16_hi(v.x), bf16_lo(v.y), bf16_hi(v.y),
                               bf16_lo(v.z), bf16_hi(v.z), bf16_lo(v.w), bf16_hi(v.w)};
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    sum += xs[j];
#pragma unroll
                    for (int o = 0; o < OUT_PER_WARP; o++)
                        dot[o] = __fmaf_rn(w4_code(words[o][w], j), xs[j], dot[o]);
                }
            }
#pragma unroll
            for (int o = 0; o < OUT_PER_WARP; o++)
                acc[o][row] += __fmaf_rn(scale[o], dot[o], bias[o] * sum);
        }
    }
#pragma unroll
    for (int o = 0; o < OUT_PER_WARP; o++) {
#pragma unroll
        for (int row = 0; row < max_row; row++) {
            float v = acc[o][row];
#pragma unroll
            for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, step);
            if (lane == 0 && o < n_out && row < a.n_row) w4_store(a, row, out0 + o, v);
        }
    }
}

} // namespace

extern "C" brim_status brim_cuda_w4_matvec(const struct brim_cuda_w4 *args, void *stream,
                                           brim_error *err)
{
    if (args->n_row == 0 || args->n_out == 0) return BRIM_OK;
    brim_launch_shape shape = {};
    shape.grid =
        dim3((unsigned)((args->n_out + N_WARP * OUT_PER_WARP - 1) / (N_WARP * OUT_PER_WARP)));
    shape.block = dim3(N_WARP * 32);
    cudaStream_t s = (cudaStream_t)stream;
    if (args->n_row == 1) return BRIM_LAUNCH(w4_matvec<1>, shape, s, *args, err);
    if (args->n_row == 2) return BRIM_LAUNCH(w4_matvec<2>, shape, s, *args, err);
    if (args->n_row <= 4) return BRIM_LAUNCH(w4_matvec<4>, shape, s, *args, err);
    return BRIM_LAUNCH(w4_matvec<8>, shape, s, *args, err);
}
