/* SPDX-License-Identifier: Apache-2.0
 * See cluster.h; weight order in pack.h.
 *
 * Grid: one cluster of `split` CTAs a tile of 64 n_slab outputs x n_tok tokens; CTA `rank` of it
 * takes units [n_unit rank / split, n_unit (rank + 1) / split) of 128 inputs. Warpgroup w
 * multiplies slab w of the tile. Weights: global -> registers, DEPTH units ahead; they are unpacked
 * to bf16 fragments while the tensor cores multiply the half before. Activations: TMA into a ring
 * of STAGES panels (128-byte swizzle, zeros beyond n_row and n_in), shared by the warpgroups. Join:
 * every CTA leaves its f32 sums in shared memory as fragment blocks [slab][token
 * block][warp][lane]; rank r of the cluster adds every split-th row of four blocks over all ranks
 * in rank order and stores it (epilogue.cuh). One cluster barrier before, one after, so that no CTA
 * leaves while its sums are being read.
 *
 * Barriers: full[stage] (one arrival + the bytes of a panel), empty[stage] (one arrival a warp).
 * Shared memory: max(STAGES * n_tok * 256, n_slab * n_tok * 256) bytes, ring and sums in
 * the same place. */
#include "cuda/launch.h"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tensormap.h"
#include "cuda/w4/cluster.h"
#include "cuda/w4/epilogue.cuh"
#include "cuda/w4/unpack.cuh"

namespace
{

enum { STAGES = 4 };

__host__ __device__ constexpr int depth_of(int n_tok)
{
    return n_tok <= 16 ? 3 : 2;
}
/* CTAs that must fit on a multiprocessor: plan/w4_cluster.c counts on it. */
__host__ __device__ constexpr int residency_of(int n_tok)
{
    return n_tok <= 16 ? 3 : 2;
}

struct cluster_params {
    CUtensorMap x_map;
    w4_epilogue out;
    const uint8_t *codes;
    const void *params;
    int n_slab_all, n_unit, n_tile_token, split;
    bool pdl;
};

template <int n_tok, int n_slab, enum brim_dtype dtype, int groups>
__global__ void __launch_bounds__(n_slab * 128, residency_of(n_tok))
    w4_cluster(const __grid_constant__ cluster_params p)
{
    constexpr int DEPTH = depth_of(n_tok);
    constexpr uint32_t stage_bytes = n_tok * 256, panel_bytes = n_tok * 128;
    extern __shared__ __align__(1024) uint8_t s_ring[];
    __shared__ __align__(8) uint64_t s_full[STAGES], s_empty[STAGES];
    const uint32_t ring = smem_u32(s_ring), full = smem_u32(s_full), empty = smem_u32(s_empty);
    const int t = threadIdx.x, wg = t / 128, warp = t / 32 % 4, lane = t % 32;
    const int tile = blockIdx.x / p.split, rank = blockIdx.x % p.split;
    const int tile_out = tile / p.n_tile_token, tile_token = tile % p.n_tile_token;
    const int begin = p.n_unit * rank / p.split, end = p.n_unit * (rank + 1) / p.split;

    int slab = tile_out * n_slab + wg;
    if (slab >= p.n_slab_all) slab = p.n_slab_all - 1; /* computed, never stored */
    const int64_t unit0 = (int64_t)slab * p.n_unit;
    packed_unit<dtype, groups> weights[DEPTH];
#pragma unroll
    for (int d = 0; d < DEPTH; d++)
        if (begin + d < end) weights[d].load(p.codes, p.params, unit0 + begin + d, warp, lane);

    if (t == 0) {
        tma_prefetch_map(&p.x_map);
        for (int s = 0; s < STAGES; s++) {
            mbarrier_init(full + s * 8, 1);
            mbarrier_init(empty + s * 8, n_slab * 4);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    auto load_x = [&](int unit) {
        int stage = (unit - begin) % STAGES;
        uint32_t dst = ring + stage * stage_bytes;
        mbarrier_arrive_expect_tx(full + stage * 8, stage_bytes);
        tma_load_2d(dst, &p.x_map, unit * BRIM_W4_UNIT, tile_token * n_tok, full + stage * 8);
        tma_load_2d(dst + panel_bytes, &p.x_map, unit * BRIM_W4_UNIT + 64, tile_token * n_tok,
                    full + stage * 8);
    };
    if (p.pdl) {
        griddepcontrol_launch_dependents(); /* the successor may load its weights as well */
        griddepcontrol_wait(); /* weights do not depend on the predecessor; x and y do */
    }
    if (t == 0)
        for (int u = begin; u < end && u < begin + STAGES - 1; u++) load_x(u);

    float acc[n_tok / 2];
#pragma unroll
    for (int i = 0; i < n_tok / 2; i++) acc[i] = 0;

    for (int base = begin; base < end; base += DEPTH) {
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            int unit = base + d, i = unit - begin;
            if (unit >= end) break;
            if (t == 0 && unit + STAGES - 1 < end) {
                /* The panel of unit - 1 is reused: all warps must have multiplied it. */
                if (i > 0) mbarrier_wait(empty + (i - 1) % STAGES * 8, (i - 1) / STAGES & 1);
                load_x(unit + STAGES - 1);
            }
            uint32_t stage = ring + i % STAGES * stage_bytes, frag[2][4][4];
            weights[d].unpack(0, frag[0]);
            mbarrier_wait(full + i % STAGES * 8, i / STAGES & 1);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4; k++)
                wgmma_m64k16<n_tok>::template rs<1, 0>(acc, frag[0][k],
                                                       wgmma_desc_128b(stage + k * 32, 16, 1024));
            wgmma_commit();
            weights[d].unpack(1, frag[1]); /* while the first half multiplies */
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4; k++)
                wgmma_m64k16<n_tok>::template rs<1, 0>(
                    acc, frag[1][k], wgmma_desc_128b(stage + panel_bytes + k * 32, 16, 1024));
            wgmma_commit();
            if (unit + DEPTH < end)
                weights[d].load(p.codes, p.params, unit0 + unit + DEPTH, warp, lane);
            wgmma_wait<0>();
            if (lane == 0) mbarrier_arrive(empty + i % STAGES * 8);
        }
    }

    /* All panels have been consumed by all warps of this CTA: the ring becomes the sums. */
    __syncthreads();
    float4 *s_sum = (float4 *)s_ring;
    constexpr int n_block = n_tok / 8 * n_slab * 4; /* 16 outputs x 8 tokens each */
#pragma unroll
    for (int j = 0; j < n_tok / 8; j++)
        s_sum[((wg * (n_tok / 8) + j) * 4 + warp) * 32 + lane] =
            make_float4(acc[4 * j], acc[4 * j + 1], acc[4 * j + 2], acc[4 * j + 3]);
    if (p.split > 1)
        cluster_sync();
    else
        __syncthreads();
    for (int b = rank * (n_slab * 4) + t / 32; b < n_block; b += p.split * n_slab * 4) {
        uint32_t at = ring + (b * 32 + lane) * 16;
        float4 part[8], sum;
#pragma unroll
        for (int r = 0; r < 8; r++)
            if (r < p.split) part[r] = ld_shared_cluster_v4(p.split > 1 ? mapa_u32(at, r) : at);
        sum = part[0];
#pragma unroll
        for (int r = 1; r < 8; r++)
            if (r < p.split)
                sum.x += part[r].x, sum.y += part[r].y, sum.z += part[r].z, sum.w += part[r].w;
        int s = b / (n_tok / 2), j = b / 4 % (n_tok / 8);
        w4_store_block(p.out, sum, (int64_t)(tile_out * n_slab + s) * 64 + b % 4 * 16,
                       (int64_t)tile_token * n_tok + j * 8, lane);
    }
    if (p.split > 1) cluster_sync();
}

template <int n_tok, int n_slab, enum brim_dtype dtype>
brim_status launch_groups(const cluster_params &p, int group, brim_launch_shape shape,
                          cudaStream_t stream, brim_error *err)
{
    switch (group) {
    case 32:
        return BRIM_LAUNCH((w4_cluster<n_tok, n_slab, dtype, 4>), shape, stream, p, err);
    case 64:
        return BRIM_LAUNCH((w4_cluster<n_tok, n_slab, dtype, 2>), shape, stream, p, err);
    default:
        return BRIM_LAUNCH((w4_cluster<n_tok, n_slab, dtype, 1>), shape, stream, p, err);
    }
}

template <int n_tok, int n_slab>
brim_status launch_dtype(const cluster_params &p, const brim_cuda_w4_packed *w,
                         brim_launch_shape shape, cudaStream_t stream, brim_error *err)
{
    switch (w->param_dtype) {
    case BRIM_DTYPE_F32:
        return launch_groups<n_tok, n_slab, BRIM_DTYPE_F32>(p, w->group, shape, stream, err);
    case BRIM_DTYPE_F16:
        return launch_groups<n_tok, n_slab, BRIM_DTYPE_F16>(p, w->group, shape, stream, err);
    default:
        return launch_groups<n_tok, n_slab, BRIM_DTYPE_BF16>(p, w->group, shape, stream, err);
    }
}

} // namespace

extern "C" brim_status brim_cuda_w4_cluster(const struct brim_cuda_w4 *args,
                                            const struct brim_cuda_w4_packed *w,
                                            const struct brim_w4_cluster_plan *plan, int pdl,
                                            void *stream, brim_error *err)
{
    if (args->n_row == 0 || w->n_out == 0) return BRIM_OK;
    int64_t n_cta = plan->n_tile_out * plan->n_tile_token * plan->split;
    BRIM_REQUIRE(err, n_cta <= INT32_MAX && w->n_in <= INT32_MAX, BRIM_E_SHAPE,
                 "n_row %lld, n_out %lld, n_in %lld: more tiles than one launch takes",
                 (long long)args->n_row, (long long)w->n_out, (long long)w->n_in);
    cluster_params p = {};
    BRIM_TRY(brim_tensormap_bf16(&p.x_map, args->x, args->n_row, w->n_in, args->x_stride,
                                 plan->n_token, err));
    p.out = w4_epilogue_of(args, w->n_out);
    p.codes = (const uint8_t *)w->codes;
    p.params = w->params;
    p.n_slab_all = (int)w->n_slab;
    p.n_unit = (int)plan->n_unit;
    p.n_tile_token = (int)plan->n_tile_token;
    p.split = plan->split;
    p.pdl = pdl != 0;
    int ring_bytes = STAGES * plan->n_token * 256;
    int sum_bytes = plan->n_slab * plan->n_token * 64 * 4;
    brim_launch_shape shape = {};
    shape.grid = dim3((unsigned)n_cta);
    shape.block = dim3((unsigned)plan->n_slab * 128);
    shape.smem_bytes = (unsigned)(ring_bytes > sum_bytes ? ring_bytes : sum_bytes);
    shape.cluster = (unsigned)plan->split;
    shape.pdl = pdl != 0;
    cudaStream_t s = (cudaStream_t)stream;
    switch (plan->n_token) {
    case 8:
        return launch_dtype<8, 1>(p, w, shape, s, err);
    case 16:
        return launch_dtype<16, 1>(p, w, shape, s, err);
    case 32:
        return launch_dtype<32, 2>(p, w, shape, s, err);
    case 64:
        return launch_dtype<64, 2>(p, w, shape, s, err);
    }
    return brim_fail(err, BRIM_E_ARGUMENT, "plan: no kernel for tiles of %d tokens", plan->n_token);
}
