/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/w4/dequantize.h"

#include "cuda/launch.h"
#include "cuda/w4/dequant.cuh"

namespace
{

/* A thread makes eight neighbours of a row: one word of 4-bit codes, or eight bytes. */
__global__ void __launch_bounds__(256) w4_dequantize(struct brim_cuda_dequantize_args p)
{
    int64_t n = p.w.n_out * (p.w.n_in / 8);
    int64_t step = (int64_t)gridDim.x * 256;
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < n; i += step) {
        bool affine = p.w.kind == BRIM_WEIGHT_AFFINE4;
        int64_t group = i * 8 / (affine ? p.w.group : 32); /* n_in is a multiple of the group */
        enum brim_dtype dtype = affine ? p.w.dtype : BRIM_DTYPE_F16;
        float scale = w4_param(p.w.scales, dtype, group);
        uint4 out;
        if (affine) {
            float bias = w4_param(p.w.biases, dtype, group);
            out = w4_word_bf16(((const uint32_t *)p.w.data)[i], scale, bias);
        } else {
            const int8_t *q = (const int8_t *)p.w.data + i * 8;
            float w[8];
#pragma unroll
            for (int j = 0; j < 8; j++) w[j] = scale * (float)q[j];
            out = make_uint4(bf16x2_pack(w[0], w[1]), bf16x2_pack(w[2], w[3]),
                             bf16x2_pack(w[4], w[5]), bf16x2_pack(w[6], w[7]));
        }
        ((uint4 *)p.out)[i] = out;
    }
}

} // namespace

extern "C" brim_status brim_cuda_dequantize(const struct brim_cuda_dequantize_args *args,
                                            void *stream, brim_error *err)
{
    int64_t n_block = (args->w.n_out * (args->w.n_in / 8) + 255) / 256;
    brim_launch_shape shape = {};
    shape.grid = dim3((unsigned)(n_block < 65536 ? n_block : 65536));
    shape.block = dim3(256);
    return BRIM_LAUNCH(w4_dequantize, shape, (cudaStream_t)stream, *args, err);
}
