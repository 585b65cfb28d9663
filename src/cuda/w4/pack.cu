/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/w4/pack.h"

#include "cuda/launch.h"
#include "cuda/w4/w4.h"

namespace
{

struct pack_params {
    brim_cuda_w4 a;
    brim_cuda_w4_packed out;
};

/* Block = one unit, 256 threads: thread t builds words t, t + 256, ... then copies parameters. */
__global__ void w4_pack(pack_params p)
{
    int64_t unit = blockIdx.x % p.out.n_unit, slab = blockIdx.x / p.out.n_unit;
    int64_t out0 = slab * BRIM_W4_SLAB, in0 = unit * BRIM_W4_UNIT;
    __shared__ uint32_t s_words[BRIM_W4_UNIT_BYTES / 4];
    for (int i = threadIdx.x; i < BRIM_W4_UNIT_BYTES / 4; i += blockDim.x) s_words[i] = 0;
    __syncthreads();
    const uint32_t *codes = (const uint32_t *)p.a.codes;
    for (int i = threadIdx.x; i < BRIM_W4_SLAB * BRIM_W4_UNIT; i += blockDim.x) {
        int out = i / BRIM_W4_UNIT, in = i % BRIM_W4_UNIT;
        if (out0 + out >= p.a.n_out || in0 + in >= p.a.n_in) continue;
        int64_t at = (out0 + out) * p.a.n_in + in0 + in;
        uint32_t code = codes[at / 8] >> (at % 8 * 4) & 15u;
        int word, nibble;
        brim_w4_pack_index(out, in, &word, &nibble);
        atomicOr(&s_words[word], code << (4 * nibble));
    }
    __syncthreads();
    uint32_t *dst = (uint32_t *)p.out.codes + (int64_t)blockIdx.x * (BRIM_W4_UNIT_BYTES / 4);
    for (int i = threadIdx.x; i < BRIM_W4_UNIT_BYTES / 4; i += blockDim.x) dst[i] = s_words[i];

    int n_group = BRIM_W4_UNIT / p.a.group;
    bool wide = p.a.param_dtype == BRIM_DTYPE_F32;
    int64_t base = (int64_t)blockIdx.x * n_group * BRIM_W4_SLAB * 2;
    for (int i = threadIdx.x; i < n_group * BRIM_W4_SLAB; i += blockDim.x) {
        int out = i % BRIM_W4_SLAB, group = i / BRIM_W4_SLAB;
        bool inside = out0 + out < p.a.n_out && in0 + group * p.a.group < p.a.n_in;
        int64_t src = (out0 + out) * (p.a.n_in / p.a.group) + in0 / p.a.group + group;
        int64_t at = base + brim_w4_pack_param(out, group);
        if (wide) {
            ((uint32_t *)p.out.params)[at] = inside ? ((const uint32_t *)p.a.scales)[src] : 0;
            ((uint32_t *)p.out.params)[at + 2] = inside ? ((const uint32_t *)p.a.biases)[src] : 0;
        } else {
            ((uint16_t *)p.out.params)[at] = inside ? ((const uint16_t *)p.a.scales)[src] : 0;
            ((uint16_t *)p.out.params)[at + 2] = inside ? ((const uint16_t *)p.a.biases)[src] : 0;
        }
    }
}

} // namespace

extern "C" size_t brim_cuda_w4_packed_codes_bytes(int64_t n_out, int64_t n_in)
{
    return (size_t)((n_out + BRIM_W4_SLAB - 1) / BRIM_W4_SLAB) *
           (size_t)((n_in + BRIM_W4_UNIT - 1) / BRIM_W4_UNIT) * BRIM_W4_UNIT_BYTES;
}

extern "C" size_t brim_cuda_w4_packed_params_bytes(int64_t n_out, int64_t n_in, int group,
                                                   enum brim_dtype param_dtype)
{
    return brim_cuda_w4_packed_codes_bytes(n_out, n_in) / BRIM_W4_UNIT_BYTES *
           (size_t)(BRIM_W4_UNIT / group) * BRIM_W4_SLAB * 2 * brim_dtype_bytes(param_dtype);
}

extern "C" brim_status brim_cuda_w4_pack(const struct brim_cuda_w4 *args,
                                         struct brim_cuda_w4_packed *out, void *stream,
                                         brim_error *err)
{
    out->n_out = args->n_out;
    out->n_in = args->n_in;
    out->n_slab = (args->n_out + BRIM_W4_SLAB - 1) / BRIM_W4_SLAB;
    out->n_unit = (args->n_in + BRIM_W4_UNIT - 1) / BRIM_W4_UNIT;
    out->group = args->group;
    out->param_dtype = args->param_dtype;
    pack_params p = {*args, *out};
    int64_t n_block = out->n_slab * out->n_unit;
    BRIM_REQUIRE(err, n_block <= INT32_MAX, BRIM_E_SHAPE, "weights: %lld units exceed the grid",
                 (long long)n_block);
    brim_launch_shape shape = {};
    shape.grid = dim3((unsigned)n_block);
    shape.block = dim3(256);
    return BRIM_LAUNCH(w4_pack, shape, (cudaStream_t)stream, p, err);
}
