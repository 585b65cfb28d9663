/* SPDX-License-Identifier: Apache-2.0
 * The 32 x 32 cooperative tile, whole or split along the reduction.
 *
 * Block of 128 threads = 4 warps, each a 16 x 16 quadrant of the tile as two m16n8k16 columns.
 * Step: 32 inputs. Thread t brings 8 values of x (row t/4, piece t%4) and one word of codes
 * (output t/4, word t%4), unpacked to bf16; scale and bias change once per group. The next step's
 * global loads are in flight while this one multiplies. Grid: x outputs, y rows, z partition; a
 * partition starts and ends on a group, so it never waits for another's parameters.
 * Shared rows are 40 elements apart: 80 bytes put the eight rows of an ldmatrix in distinct banks.
 * Rows and outputs past the edge are read as zero and not stored. */
#include "cuda/launch.h"
#include "cuda/ptx/mma.cuh"
#include "cuda/w4/dequant.cuh"
#include "cuda/w4/w4.h"

namespace
{

enum { TILE = 32, STEP = 32, N_THREAD = 128, SMEM_STRIDE = 40 };
enum target { TARGET_Y = 0, TARGET_PLANE_BF16 = 1, TARGET_PLANE_F32 = 2 };

struct tile_params {
    brim_cuda_w4 a;
    int64_t partition_inputs;
    void *planes; /* [split][n_row][n_out] */
};

template <int target> __global__ void __launch_bounds__(N_THREAD) w4_tile(tile_params p)
{
    __shared__ __align__(16) uint16_t s_x[TILE][SMEM_STRIDE], s_w[TILE][SMEM_STRIDE];
    const brim_cuda_w4 &a = p.a;
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    int64_t row0 = (int64_t)blockIdx.y * TILE, out0 = (int64_t)blockIdx.x * TILE;
    int64_t begin = blockIdx.z * p.partition_inputs, end = begin + p.partition_inputs;

    int64_t my_row = row0 + t / 4, my_out = out0 + t / 4;
    bool row_ok = my_row < a.n_row, out_ok = my_out < a.n_out;
    const uint16_t *x = (const uint16_t *)a.x + (row_ok ? my_row : 0) * a.x_stride + t % 4 * 8;
    const uint32_t *codes =
        (const uint32_t *)a.codes + (out_ok ? my_out : 0) * (a.n_in / 8) + t % 4;
    int64_t group0 = (out_ok ? my_out : 0) * (a.n_in / a.group);

    const uint4 zero = make_uint4(0, 0, 0, 0);
    uint4 next_x = row_ok ? *(const uint4 *)(x + begin) : zero;
    uint32_t next_word = codes[begin / 8];
    float scale = 0, bias = 0, acc[2][4] = {};
    int quad_row = warp / 2 * 16, quad_out = warp % 2 * 16;

    for (int64_t in = begin; in < end; in += STEP) {
        if (in % a.group == 0) {
            scale = out_ok ? w4_param(a.scales, a.param_dtype, group0 + in / a.group) : 0;
            bias = out_ok ? w4_param(a.biases, a.param_dtype, group0 + in / a.group) : 0;
        }
        __syncthreads(); /* the previous step's fragments have been read */
        *(uint4 *)&s_x[t / 4][t % 4 * 8] = next_x;
        *(uint4 *)&s_w[t / 4][t % 4 * 8] = w4_word_bf16(next_word, scale, bias);
        __syncthreads();
        if (in + STEP < end) {
            if (row_ok) next_x = *(const uint4 *)(x + in + STEP);
            next_word = codes[(in + STEP) / 8];
        }
#pragma unroll
        for (int k = 0; k < STEP; k += 16) {
            uint32_t frag_x[4], frag_w[4];
            ldmatrix_x4(frag_x, smem_u32(&s_x[quad_row + lane % 16][k + lane / 16 * 8]));
            ldmatrix_x4(frag_w,
                        smem_u32(&s_w[quad_out + lane % 8 + lane / 16 * 8][k + lane / 8 % 2 * 8]));
            mma_bf16_16816(acc[0], frag_x, frag_w[0], frag_w[1]);
            mma_bf16_16816(acc[1], frag_x, frag_w[2], frag_w[3]);
        }
    }

#pragma unroll
    for (int n = 0; n < 2; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int64_t row = row0 + quad_row + lane / 4 + i / 2 * 8;
            int64_t out = out0 + quad_out + n * 8 + lane % 4 * 2 + i % 2;
            if (row >= a.n_row || out >= a.n_out) continue;
            int64_t plane = (int64_t)blockIdx.z * a.n_row * a.n_out + row * a.n_out + out;
            if (target == TARGET_Y)
                w4_store(a, row, out, acc[n][i]);
            else if (target == TARGET_PLANE_BF16)
                ((__nv_bfloat16 *)p.planes)[plane] = __float2bfloat16_rn(acc[n][i]);
            else
                ((float *)p.planes)[plane] = acc[n][i];
        }
    }
}

struct reduce_params {
    brim_cuda_w4 a;
    const void *planes;
    int64_t split;
};

/* One thread an output: planes summed in partition order in f32, one cast. */
template <int target> __global__ void __launch_bounds__(256) w4_reduce(reduce_params p)
{
    int64_t n = p.a.n_row * p.a.n_out, i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    for (int64_t s = 0; s < p.split; s++)
        sum += target == TARGET_PLANE_F32
                   ? ((const float *)p.planes)[s * n + i]
                   : __bfloat162float(((const __nv_bfloat16 *)p.planes)[s * n + i]);
    w4_store(p.a, i / p.a.n_out, i % p.a.n_out, sum);
}

} // namespace

extern "C" size_t brim_cuda_w4_workspace_bytes(const brim_split_plan *plan, int64_t n_row,
                                               int64_t n_out, enum brim_w4_planes planes)
{
    if (plan->split <= 1) return 0;
    return (size_t)plan->split * (size_t)n_row * (size_t)n_out *
           (planes == BRIM_W4_PLANES_F32 ? 4 : 2);
}

extern "C" brim_status brim_cuda_w4_tiled(const struct brim_cuda_w4 *args,
                                          const brim_split_plan *plan, enum brim_w4_planes planes,
                                          void *workspace, void *stream, brim_error *err)
{
    if (args->n_row == 0 || args->n_out == 0) return BRIM_OK;
    cudaStream_t s = (cudaStream_t)stream;
    tile_params p = {};
    p.a = *args;
    p.partition_inputs = args->n_in / plan->split;
    p.planes = workspace;
    int64_t row_tiles = (args->n_row + TILE - 1) / TILE;
    /* The row axis of a grid ends at 65,535 tiles: two million rows. */
    BRIM_REQUIRE(err, row_tiles <= 65535, BRIM_E_SHAPE, "n_row: %lld rows exceed the grid",
                 (long long)args->n_row);
    brim_launch_shape shape = {};
    shape.grid = dim3((unsigned)((args->n_out + TILE - 1) / TILE), (unsigned)row_tiles,
                      (unsigned)plan->split);
    shape.block = dim3(N_THREAD);
    if (plan->split == 1) return BRIM_LAUNCH(w4_tile<TARGET_Y>, shape, s, p, err);

    bool f32 = planes == BRIM_W4_PLANES_F32;
    BRIM_TRY(f32 ? BRIM_LAUNCH(w4_tile<TARGET_PLANE_F32>, shape, s, p, err)
                 : BRIM_LAUNCH(w4_tile<TARGET_PLANE_BF16>, shape, s, p, err));
    reduce_params r = {};
    r.a = *args;
    r.planes = workspace;
    r.split = plan->split;
    brim_launch_shape reduce_shape = {};
    reduce_shape.grid = dim3((unsigned)((args->n_row * args->n_out + 255) / 256));
    reduce_shape.block = dim3(256);
    return f32 ? BRIM_LAUNCH(w4_reduce<TARGET_PLANE_F32>, reduce_shape, s, r, err)
               : BRIM_LAUNCH(w4_reduce<TARGET_PLANE_BF16>, reduce_shape, s, r, err);
}
