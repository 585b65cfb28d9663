/* SPDX-License-Identifier: Apache-2.0
 * See stream.h; weight order in pack.h, what leaves the kernel in epilogue.cuh.
 *
 * A tile is 64 n_slab outputs x n_tok tokens: n_slab consumer warpgroups, a slab each, and one that
 * copies. A step is 64 inputs: a panel of activations (TMA, 128-byte swizzle, zeros beyond n_row
 * and n_in), half a unit of codes of each slab and its parameters (bulk copies). Steps pass through
 * a ring of n_stage stages, over the borders of tiles: full[stage] counts the copying threads, one
 * a slab and one for activations, and the step's bytes; empty[stage] one arrival a consumer warp. A
 * consumer unpacks two k-steps into one of two fragment sets while the products of the other run.
 * Split 1: a CTA takes every gridDim-th tile. Split > 1: a cluster of `split` CTAs takes one tile,
 * CTA `rank` the steps [n_step rank / split, n_step (rank + 1) / split); the f32 sums are left in
 * the ring's memory as fragment blocks [slab][8 tokens][warp][lane], and each CTA adds its share of
 * them over all ranks in rank order. One cluster barrier before, one after, so that none leaves
 * while it is read. */
#include "cuda/launch.h"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tensormap.h"
#include "cuda/w4/epilogue.cuh"
#include "cuda/w4/stream.h"
#include "cuda/w4/unpack.cuh"

namespace
{

enum {
    STEP = 64,                      /* inputs */
    CODES = BRIM_W4_UNIT_BYTES / 2, /* bytes of a slab in a step */
    MAX_STAGES = 16,
    MAX_SLABS = 4,
    /* Launched with 96 registers a thread, five warps to a quarter of the multiprocessor; after
     * setmaxnreg 4 * 112 + 32 = 5 * 96. */
    CONSUMER_REGISTERS = 112,
    COPY_REGISTERS = 32,
    STAGING = 1024 /* bytes a consumer warp: 32 tokens x 16 outputs bf16 on their way out */
};

struct stream_params {
    CUtensorMap x_map;
    w4_epilogue out;
    const uint8_t *codes, *params;
    uint32_t x_bytes, stage_bytes; /* of a panel; from stage to stage */
    uint32_t param_bytes;          /* of a slab in a step */
    uint32_t unit_param_bytes;     /* of a slab in a unit */
    uint32_t chunk_param_bytes;    /* from inputs 0..31 of a step to 32..63: 0 unless group 32 */
    int param_shift;               /* steps that share parameters: 1 << param_shift */
    uint32_t staging_at;           /* offset in shared memory */
    int n_slab_all, n_unit, n_step;
    int n_tile, n_tile_token, n_slab, n_stage, split;
    bool wide; /* y takes 16-byte stores */
    bool pdl;
};

/* The line of steps of a CTA: steps begin .. end - 1 of tiles first, first + stride, ... */
struct line {
    int first, stride, begin, end;
};

/* One thread a slab: weights are there before the predecessor ends, so it waits for nothing else
 * than room. */
BRIM_DEVICE void copy_weights(const stream_params &p, const line &at, uint32_t ring, uint32_t full,
                              uint32_t empty, int slab_of_tile)
{
    const uint32_t codes_at = ring + p.x_bytes + slab_of_tile * CODES;
    const uint32_t params_at = ring + p.x_bytes + p.n_slab * CODES + slab_of_tile * p.param_bytes;
    int stage = 0;
    uint32_t phase = 1, offset = 0; /* the first round finds every stage empty */
    for (int tile = at.first; tile < p.n_tile; tile += at.stride) {
        int slab = tile / p.n_tile_token * p.n_slab + slab_of_tile;
        if (slab >= p.n_slab_all) slab = p.n_slab_all - 1; /* computed, never stored */
        const int64_t unit0 = (int64_t)slab * p.n_unit;
        const uint8_t *codes = p.codes + unit0 * BRIM_W4_UNIT_BYTES + (int64_t)at.begin * CODES;
        const uint8_t *params = p.params + unit0 * p.unit_param_bytes;
        for (int step = at.begin; step < at.end; step++) {
            mbarrier_wait(empty + stage * 8, phase);
            mbarrier_arrive_expect_tx(full + stage * 8, CODES + p.param_bytes);
            bulk_load(codes_at + offset, codes, CODES, full + stage * 8);
            bulk_load(params_at + offset,
                      params + (uint32_t)(step >> p.param_shift) * p.param_bytes, p.param_bytes,
                      full + stage * 8);
            codes += CODES;
            offset += p.stage_bytes;
            if (++stage == p.n_stage) stage = 0, offset = 0, phase ^= 1;
        }
    }
}

/* One thread of the CTA. */
BRIM_DEVICE void copy_activations(const stream_params &p, const line &at, uint32_t ring,
                                  uint32_t full, uint32_t empty, int n_tok)
{
    int stage = 0;
    uint32_t phase = 1;
    for (int tile = at.first; tile < p.n_tile; tile += at.stride) {
        const int row = tile % p.n_tile_token * n_tok;
        for (int step = at.begin; step < at.end; step++) {
            mbarrier_wait(empty + stage * 8, phase);
            mbarrier_arrive_expect_tx(full + stage * 8, p.x_bytes);
            tma_load_2d(ring + stage * p.stage_bytes, &p.x_map, step * STEP, row, full + stage * 8);
            if (++stage == p.n_stage) stage = 0, phase ^= 1;
        }
    }
}

/* The descriptor n_bytes further; no carry leaves its address field. */
BRIM_DEVICE uint64_t desc_at(uint64_t desc, uint32_t n_bytes)
{
    return (desc & 0xFFFFFFFF00000000ull) | ((uint32_t)desc + n_bytes / 16);
}

/* Register i of a fragment, as code_pair of unpack.cuh, with the mask and the exponent in one
 * instruction: the ALU pipe, half as wide as the others, is what unpacking waits for. `exponent` is
 * 0x43004300, kept in a register: two different constants fit into no instruction. */
BRIM_DEVICE __nv_bfloat162 code_pair_lop3(uint32_t word, int i, uint32_t exponent)
{
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;"
        : "=r"(r)
        : "r"(word >> (4 * i)), "n"(0x000F000F), "r"(exponent));
    return __hsub2(*(__nv_bfloat162 *)&r, *(const __nv_bfloat162 *)&exponent);
}

/* Outputs out0 .. out0 + 15 of tokens row0 .. row0 + 31, as four fragment blocks of a warp. bf16
 * goes through the warp's 1 KB of staging, so that a lane stores 16 bytes and a token's outputs
 * fill whole sectors; f32 fills them as it lies. */
BRIM_DEVICE void store_blocks(const stream_params &p, float4 (&v)[4], int64_t out0, int64_t row0,
                              int lane, uint8_t *staging)
{
    const w4_epilogue &e = p.out;
    if (out0 >= e.n_out || row0 >= e.n_row) return;
    const int g = lane / 4, c = lane % 4;
    if (e.out_bias) {
        float b0 = out0 + g < e.n_out ? __ldg(e.out_bias + out0 + g) : 0;
        float b1 = out0 + g + 8 < e.n_out ? __ldg(e.out_bias + out0 + g + 8) : 0;
#pragma unroll
        for (int j = 0; j < 4; j++) v[j].x += b0, v[j].y += b0, v[j].z += b1, v[j].w += b1;
    }
    if (e.kind == BRIM_W4_STORE_F32 || e.kind == BRIM_W4_ADD_F32) {
        float *y = (float *)e.y + (row0 + 2 * c) * e.y_stride + out0 + g;
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float *at = y + (8 * j + i % 2) * e.y_stride + i / 2 * 8;
                float sum = i == 0 ? v[j].x : i == 1 ? v[j].y : i == 2 ? v[j].z : v[j].w;
                if (row0 + 8 * j + 2 * c + i % 2 >= e.n_row || out0 + g + i / 2 * 8 >= e.n_out)
                    continue;
                *at = e.kind == BRIM_W4_ADD_F32 ? *at + sum : sum;
            }
        }
        return;
    }
    /* Staging: [token 32][output 16], or [token 32][output 8] of gate and up together. Lane l gives
     * stmatrix the place of row l % 8 of matrix l / 8, and reads back 16 bytes at 16 l. */
    const bool pairs = e.kind == BRIM_W4_SWIGLU;
    const uint32_t at = smem_u32(staging);
    __syncwarp(); /* what was staged before has been read */
    if (pairs) {
        uint32_t r[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            r[j] = bf16x2_pack(w4_silu(v[j].x) * v[j].z, w4_silu(v[j].y) * v[j].w);
        stmatrix_x4_trans(at + lane * 16, r);
    } else {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float4 &a = v[2 * i], &b = v[2 * i + 1];
            uint32_t r[4] = {bf16x2_pack(a.x, a.y), bf16x2_pack(a.z, a.w), bf16x2_pack(b.x, b.y),
                             bf16x2_pack(b.z, b.w)};
            int token = 16 * i + lane / 16 * 8 + lane % 8;
            stmatrix_x4_trans(at + token * 32 + lane / 8 % 2 * 16, r);
        }
    }
    __syncwarp();
    const int64_t n_out = pairs ? e.n_out / 2 : e.n_out;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (pairs && i == 1) break;
        const int64_t row = row0 + (pairs ? lane : 16 * i + lane / 2);
        const int64_t o = pairs ? out0 / 2 : out0 + lane % 2 * 8;
        if (row >= e.n_row || o >= n_out) continue;
        uint16_t *y = (uint16_t *)e.y + row * e.y_stride + o;
        const uint16_t *src = (const uint16_t *)(staging + i * 512 + lane * 16);
        if (p.wide && o + 8 <= n_out) {
            *(uint4 *)y = *(const uint4 *)src;
        } else {
            for (int k = 0; k < 8 && o + k < n_out; k++) y[k] = src[k];
        }
    }
}

/* Sum over the ranks of the cluster of this CTA's share of its tile: lines of 32 tokens of the 16
 * outputs of a warp. */
BRIM_DEVICE void join(const stream_params &p, uint32_t ring, int tile, int rank, int n_tok, int t,
                      uint8_t *staging)
{
    const int lane = t % 32, n_line = p.n_slab * (n_tok / 32) * 4, n_warp = p.n_slab * 4;
    for (int line = rank * n_warp + t / 32; line < n_line; line += p.split * n_warp) {
        const int slab = line / (n_tok / 8), j = line / 4 % (n_tok / 32) * 4, w = line % 4;
        float4 sum[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t at = ring + (((slab * (n_tok / 8) + j + i) * 4 + w) * 32 + lane) * 16;
            float4 part[8];
#pragma unroll
            for (int r = 0; r < 8; r++)
                if (r < p.split) part[r] = ld_shared_cluster_v4(mapa_u32(at, r));
            sum[i] = part[0];
#pragma unroll
            for (int r = 1; r < 8; r++)
                if (r < p.split)
                    sum[i].x += part[r].x, sum[i].y += part[r].y, sum[i].z += part[r].z,
                        sum[i].w += part[r].w;
        }
        store_blocks(p, sum, ((int64_t)(tile / p.n_tile_token * p.n_slab + slab) * 4 + w) * 16,
                     (int64_t)(tile % p.n_tile_token) * n_tok + j * 8, lane, staging);
    }
}

template <int n_tok, enum brim_dtype dtype>
__global__ void __launch_bounds__((MAX_SLABS + 1) * 128, 1)
    w4_stream(const __grid_constant__ stream_params p)
{
    extern __shared__ __align__(1024) uint8_t s_ring[];
    __shared__ __align__(8) uint64_t s_full[MAX_STAGES], s_empty[MAX_STAGES];
    const uint32_t ring = smem_u32(s_ring), full = smem_u32(s_full), empty = smem_u32(s_empty);
    const int t = threadIdx.x, wg = t / 128, warp = t / 32 % 4, lane = t % 32;
    const int rank = blockIdx.x % p.split;
    const line at = {(int)blockIdx.x / p.split, (int)gridDim.x / p.split, p.n_step * rank / p.split,
                     p.n_step * (rank + 1) / p.split};

    if (t == 0) {
        tma_prefetch_map(&p.x_map);
        for (int s = 0; s < p.n_stage; s++) {
            mbarrier_init(full + s * 8, p.n_slab + 1);
            mbarrier_init(empty + s * 8, p.n_slab * 4);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    if (p.pdl) griddepcontrol_launch_dependents(); /* the successor may load weights as well */

    if (wg == p.n_slab) {
        setmaxnreg_dec<COPY_REGISTERS>();
        if (lane == 0 && warp < p.n_slab) copy_weights(p, at, ring, full, empty, warp);
        if (lane == 1 && warp == 3) {
            if (p.pdl) griddepcontrol_wait(); /* weights do not depend on the predecessor; x does */
            copy_activations(p, at, ring, full, empty, n_tok);
        }
        __syncwarp();
        if (p.split > 1) {
            cluster_sync();
            cluster_sync();
        }
    } else {
        setmaxnreg_inc<CONSUMER_REGISTERS>();
        if (p.pdl) griddepcontrol_wait(); /* y */
        const uint32_t codes_at = p.x_bytes + wg * CODES + (warp * 32 + lane) * 16;
        const uint32_t params_at = p.x_bytes + p.n_slab * CODES + wg * p.param_bytes +
                                   (warp * 8 + lane / 4) * 4 * (dtype == BRIM_DTYPE_F32 ? 4 : 2);
        uint8_t *staging = s_ring + p.staging_at + t / 32 * STAGING;
        uint32_t exponent;
        asm volatile("mov.b32 %0, 0x43004300;" : "=r"(exponent));
        int stage = 0;
        uint32_t phase = 0;
        for (int tile = at.first; tile < p.n_tile; tile += at.stride) {
            float acc[n_tok / 2];
            uint32_t frag[2][2][4];
#pragma unroll
            for (int i = 0; i < n_tok / 2; i++) acc[i] = 0;
            uint32_t before = 0; /* barrier of the step before */
            for (int step = at.begin; step < at.end; step++) {
                mbarrier_wait(full + stage * 8, phase);
                const uint8_t *src = s_ring + stage * p.stage_bytes;
                const uint64_t desc = wgmma_desc_128b(ring + stage * p.stage_bytes, 16, 1024);
                const uint4 codes = *(const uint4 *)(src + codes_at);
                group_params<dtype> group[2];
                group[0].v = *(const decltype(group[0].v) *)(src + params_at);
                group[1].v = *(const decltype(group[0].v) *)(src + params_at + p.chunk_param_bytes);
                const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    wgmma_wait<1>(); /* the products that read this fragment set */
                    if (c == 1 && step > at.begin && lane == 0) mbarrier_arrive(before);
#pragma unroll
                    for (int k = 0; k < 2; k++)
#pragma unroll
                        for (int i = 0; i < 4; i++)
                            frag[c][k][i] = group[c].apply(
                                code_pair_lop3(words[c * 2 + k], i, exponent), i % 2);
                    wgmma_fence();
#pragma unroll
                    for (int k = 0; k < 2; k++)
                        wgmma_m64k16<n_tok>::template rs<1, 0>(acc, frag[c][k],
                                                               desc_at(desc, (c * 2 + k) * 32));
                    wgmma_commit();
                }
                before = empty + stage * 8;
                if (++stage == p.n_stage) stage = 0, phase ^= 1;
            }
            wgmma_wait<0>();
            if (lane == 0) mbarrier_arrive(before);
            if (p.split > 1) {
                /* All have multiplied all panels: the ring becomes the sums. */
                named_barrier_sync(1, p.n_slab * 128);
                float4 *s_sum = (float4 *)s_ring;
#pragma unroll
                for (int j = 0; j < n_tok / 8; j++)
                    s_sum[((wg * (n_tok / 8) + j) * 4 + warp) * 32 + lane] =
                        make_float4(acc[4 * j], acc[4 * j + 1], acc[4 * j + 2], acc[4 * j + 3]);
            } else {
                const int64_t out0 =
                    ((int64_t)(tile / p.n_tile_token * p.n_slab + wg) * 4 + warp) * 16;
                const int64_t row0 = (int64_t)(tile % p.n_tile_token) * n_tok;
#pragma unroll
                for (int j = 0; j < n_tok / 8; j += 4) {
                    float4 v[4];
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const float *a = acc + 4 * (j + i);
                        v[i] = make_float4(a[0], a[1], a[2], a[3]);
                    }
                    store_blocks(p, v, out0, row0 + j * 8, lane, staging);
                }
            }
        }
        if (p.split > 1) {
            cluster_sync();
            join(p, ring, at.first, rank, n_tok, t, staging);
            cluster_sync();
        }
    }
}

template <int n_tok>
brim_status launch_dtype(const stream_params &p, enum brim_dtype dtype, brim_launch_shape shape,
                         cudaStream_t stream, brim_error *err)
{
    switch (dtype) {
    case BRIM_DTYPE_F32:
        return BRIM_LAUNCH((w4_stream<n_tok, BRIM_DTYPE_F32>), shape, stream, p, err);
    case BRIM_DTYPE_F16:
        return BRIM_LAUNCH((w4_stream<n_tok, BRIM_DTYPE_F16>), shape, stream, p, err);
    default:
        return BRIM_LAUNCH((w4_stream<n_tok, BRIM_DTYPE_BF16>), shape, stream, p, err);
    }
}

/* The ring: as many stages as fit, none more than a CTA has steps. */
void lay_out(stream_params *p, const struct brim_w4_stream_plan *plan, int group, int param_size,
             unsigned *smem_bytes)
{
    const int groups = BRIM_W4_UNIT / group;
    const uint32_t group_bytes = BRIM_W4_SLAB * 2 * (uint32_t)param_size;
    p->unit_param_bytes = group_bytes * groups;
    p->param_bytes = group_bytes * (groups == 4 ? 2 : 1);
    p->param_shift = groups == 1;
    p->chunk_param_bytes = groups == 4 ? group_bytes : 0;
    p->x_bytes = plan->n_token * STEP * 2;
    const uint32_t step_bytes = p->x_bytes + plan->n_slab * (CODES + p->param_bytes);
    p->stage_bytes = (step_bytes + 1023) / 1024 * 1024;
    const uint32_t staging = plan->n_slab * 4 * STAGING;
    const uint32_t room = 225 * 1024 - staging;
    int64_t n_stage = room / p->stage_bytes, steps = plan->n_step;
    if (plan->split > 1) steps = (steps + plan->split - 1) / plan->split;
    if (n_stage > MAX_STAGES) n_stage = MAX_STAGES;
    if (n_stage > steps) n_stage = steps;
    p->n_stage = (int)n_stage;
    p->staging_at = p->n_stage * p->stage_bytes;
    const uint32_t sum_bytes = plan->n_slab * plan->n_token * BRIM_W4_SLAB * 4;
    if (plan->split > 1 && p->staging_at < sum_bytes) p->staging_at = sum_bytes;
    *smem_bytes = p->staging_at + staging;
}

} // namespace

extern "C" brim_status brim_cuda_w4_stream(const struct brim_cuda_w4 *args,
                                           const struct brim_cuda_w4_packed *w,
                                           const struct brim_w4_stream_plan *plan, int pdl,
                                           void *stream, brim_error *err)
{
    if (args->n_row == 0 || w->n_out == 0) return BRIM_OK;
    const int64_t n_tile = plan->n_tile_out * plan->n_tile_token;
    BRIM_REQUIRE(err,
                 plan->split >= 1 && plan->split <= 8 && plan->n_slab >= 1 && plan->n_slab <= 4 &&
                     plan->n_step >= plan->split && plan->n_cta >= 1 &&
                     (plan->split == 1 || plan->n_cta == n_tile * plan->split),
                 BRIM_E_ARGUMENT, "plan: %d slabs, split %d, %lld CTAs are no schedule",
                 plan->n_slab, plan->split, (long long)plan->n_cta);
    BRIM_REQUIRE(err, n_tile * plan->split <= INT32_MAX && w->n_in <= INT32_MAX, BRIM_E_SHAPE,
                 "n_row %lld, n_out %lld, n_in %lld: more tiles than one launch takes",
                 (long long)args->n_row, (long long)w->n_out, (long long)w->n_in);
    stream_params p = {};
    BRIM_TRY(brim_tensormap_bf16(&p.x_map, args->x, args->n_row, w->n_in, args->x_stride,
                                 plan->n_token, err));
    p.out = w4_epilogue_of(args, w->n_out);
    p.codes = (const uint8_t *)w->codes;
    p.params = (const uint8_t *)w->params;
    p.n_slab_all = (int)w->n_slab;
    p.n_unit = (int)w->n_unit;
    p.n_step = (int)plan->n_step;
    p.n_tile = (int)n_tile;
    p.n_tile_token = (int)plan->n_tile_token;
    p.n_slab = plan->n_slab;
    p.split = plan->split;
    p.wide = ((uintptr_t)args->y & 15) == 0 && args->y_stride % 8 == 0;
    p.pdl = pdl != 0;
    brim_launch_shape shape = {};
    lay_out(&p, plan, w->group, (int)brim_dtype_bytes(w->param_dtype), &shape.smem_bytes);
    shape.grid = dim3((unsigned)plan->n_cta);
    shape.block = dim3((unsigned)(plan->n_slab + 1) * 128);
    shape.cluster = (unsigned)plan->split;
    shape.pdl = pdl != 0;
    cudaStream_t s = (cudaStream_t)stream;
    switch (plan->n_token) {
    case 64:
        return launch_dtype<64>(p, w->param_dtype, shape, s, err);
    case 96:
        return launch_dtype<96>(p, w->param_dtype, shape, s, err);
    case 128:
        return launch_dtype<128>(p, w->param_dtype, shape, s, err);
    }
    return brim_fail(err, BRIM_E_ARGUMENT, "plan: no kernel for tiles of %d tokens", plan->n_token);
}
