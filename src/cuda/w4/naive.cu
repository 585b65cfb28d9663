/* SPDX-License-Identifier: Apache-2.0
 * One thread an output, any number of rows: the first thing one would write, and the step of the
 * ladder before weights are reused. Prefill collapses on it by design.
 *
 * Block: 32 outputs x 8 rows; the threads of a warp read 32 rows of codes and share one row of x.
 * Each weight is scale * q + bias in f32, one rounding, summed in f32 in the order of the inputs.
 */
#include "cuda/launch.h"
#include "cuda/w4/dequant.cuh"
#include "cuda/w4/w4.h"

namespace
{

enum { OUTS = 32, ROWS = 8 };

struct naive_params {
    brim_cuda_w4 a;
    int64_t n_tile_out;
};

__global__ void __launch_bounds__(OUTS *ROWS) w4_naive(naive_params p)
{
    const brim_cuda_w4 &a = p.a;
    int64_t out = blockIdx.x % p.n_tile_out * OUTS + threadIdx.x % OUTS;
    int64_t row = blockIdx.x / p.n_tile_out * ROWS + threadIdx.x / OUTS;
    if (out >= a.n_out || row >= a.n_row) return;
    const uint16_t *x = (const uint16_t *)a.x + row * a.x_stride;
    const uint32_t *codes = (const uint32_t *)a.codes + out * (a.n_in / 8);
    float sum = 0, scale = 0, bias = 0;
    for (int64_t in = 0; in < a.n_in; in += 8) {
        if (in % a.group == 0) {
            int64_t g = out * (a.n_in / a.group) + in / a.group;
            scale = w4_param(a.scales, a.param_dtype, g);
            bias = w4_param(a.biases, a.param_dtype, g);
        }
        uint4 v = *(const uint4 *)(x + in);
        uint32_t word = codes[in / 8];
        float xs[8] = {bf16_lo(v.x), bf16_hi(v.x), bf16_lo(v.y), bf16_hi(v.y),
                       bf16_lo(v.z), bf16_hi(v.z), bf16_lo(v.w), bf16_hi(v.w)};
#pragma unroll
        for (int j = 0; j < 8; j++)
            sum = __fmaf_rn(__fmaf_rn(scale, w4_code(word, j), bias), xs[j], sum);
    }
    w4_store(a, row, out, sum);
}

} // namespace

extern "C" brim_status brim_cuda_w4_naive(const struct brim_cuda_w4 *args, void *stream,
                                          brim_error *err)
{
    if (args->n_row == 0 || args->n_out == 0) return BRIM_OK;
    naive_params p = {};
    p.a = *args;
    p.n_tile_out = (args->n_out + OUTS - 1) / OUTS;
    int64_t n_block = p.n_tile_out * ((args->n_row + ROWS - 1) / ROWS);
    BRIM_REQUIRE(err, n_block <= INT32_MAX, BRIM_E_SHAPE,
                 "n_row %lld, n_out %lld: more blocks than one launch takes",
                 (long long)args->n_row, (long long)args->n_out);
    brim_launch_shape shape = {};
    shape.grid = dim3((unsigned)n_block);
    shape.block = dim3(OUTS * ROWS);
    return BRIM_LAUNCH(w4_naive, shape, (cudaStream_t)stream, p, err);
}
