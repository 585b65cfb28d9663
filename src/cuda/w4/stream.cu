/* SPDX-License-Identifier: Apache-2.0
 * See stream.h; weight order in pack.h, what leaves the kernel in epilogue.cuh.
 *
 * A tile is 64 n_slab outputs x n_tok tokens: n_slab consumer warpgroups, a slab each, and one that
 * copies. A step is 64 inputs: a panel of activations (128-byte swizzle, zeros beyond n_row and
 * n_in), half a unit of codes of each slab and its parameters, three TMA copies. Steps pass through
 * a ring of n_stage stages, over the borders of tiles: full[stage] counts the two copying threads
 * and the step's bytes, empty[stage] one arrival a consumer warp. A consumer unpacks two k-steps
 * into one of two fragment sets while the products of the other run. Not split: a CTA takes every
 * gridDim-th tile, and bf16 tiles leave by TMA from memory of their own. Split: a cluster takes one
 * tile, CTA `rank` its part of the steps. A line of sums is 32 tokens of a warp's 16 outputs, four
 * fragment blocks; line l belongs to rank l % split, which is sent it by all (st.async; the bytes
 * count on its barrier) and adds them in rank order. The memory for that is no other's, so a rank
 * waits for nothing but that the others have begun: the halves of a cluster barrier. */
#include "cuda/launch.h"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tensormap.h"
#include "cuda/w4/stream.h"
#include "cuda/w4/stream_store.cuh"
#include "cuda/w4/unpack.cuh"

/* Outside the namespace: the emulator gives it storage by this name. */
extern __shared__ __align__(1024) uint8_t s_ring[];

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
    STAGING = 1024, /* bytes a consumer warp: 32 tokens x 16 outputs bf16 on their way out */
    LINE = 2048     /* bytes of a line of sums, f32 */
};

struct stream_params {
    /* Activations; codes and parameters, a row a slab: a copy a step for all slabs of the tile. */
    CUtensorMap x_map, codes_map, params_map;
    stream_out out;
    uint32_t x_bytes, param_bytes; /* in a step: the panel, the parameters of a slab */
    uint32_t stage_bytes;          /* from stage to stage */
    uint32_t group_bytes;          /* from inputs 0..31 of a step to 32..63, group 32 */
    uint32_t staging_at, join_at;  /* offsets in shared memory */
    int param_shift;               /* steps that share parameters: 1 << param_shift */
    int n_step, n_slab, n_stage, split;
    int n_own;                                              /* lines of a rank, at most */
    uint32_t split_inverse;                                 /* ceil(2^32 / split) */
    int n_tile_out, n_tile_token, stride_out, stride_token; /* see struct course */
    uint32_t dry; /* 1: uniform, and nothing that the compiler knows */
    bool pdl;
};

/* The way of a CTA: steps begin .. end - 1 of tile (out, token), then the same of the tile that
 * lies stride_out and stride_token further, tokens first. */
struct course {
    int out, token, begin, end;

    __device__ __forceinline__ bool more(const stream_params &p) const
    {
        return out < p.n_tile_out;
    }
    __device__ __forceinline__ void next_tile(const stream_params &p)
    {
        out += p.stride_out, token += p.stride_token;
        if (token >= p.n_tile_token) token -= p.n_tile_token, out++;
    }
};

/* Where a role stands in the ring, and the parity of its round. */
struct ring_place {
    int stage;
    uint32_t phase;

    __device__ __forceinline__ uint32_t full(uint32_t bars) const { return bars + stage * 8; }
    __device__ __forceinline__ uint32_t empty(uint32_t bars) const
    {
        return bars + (MAX_STAGES + stage) * 8;
    }
    __device__ __forceinline__ void advance(int n_stage)
    {
        if (++stage == n_stage) stage = 0, phase ^= 1;
    }
};

/* One thread of the CTA copies codes and parameters, another activations. Weights are there before
 * the predecessor ends, so the first waits for nothing but room. A slab beyond the matrix arrives
 * as zeros. */
BRIM_DEVICE void copy_weights(const stream_params &p, course at, uint32_t ring, uint32_t bars)
{
    const uint32_t bytes = p.n_slab * (CODES + p.param_bytes);
    ring_place s = {0, 1}; /* the first round finds every stage empty */
    for (; at.more(p); at.next_tile(p)) {
        const int slab = at.out * p.n_slab;
        for (int step = at.begin; step < at.end; step++) {
            const uint32_t dst = ring + s.stage * p.stage_bytes + p.x_bytes;
            mbarrier_wait(s.empty(bars), s.phase);
            mbarrier_arrive_expect_tx(s.full(bars), bytes);
            tma_load_2d(dst, &p.codes_map, step * (CODES / BRIM_TENSORMAP_WORD), slab,
                        s.full(bars));
            tma_load_2d(dst + p.n_slab * CODES, &p.params_map,
                        (step >> p.param_shift) * (int)(p.param_bytes / BRIM_TENSORMAP_WORD), slab,
                        s.full(bars));
            s.advance(p.n_stage);
        }
    }
}

BRIM_DEVICE void copy_activations(const stream_params &p, course at, uint32_t ring, uint32_t bars,
                                  int n_tok)
{
    ring_place s = {0, 1};
    for (; at.more(p); at.next_tile(p)) {
        for (int step = at.begin; step < at.end; step++) {
            mbarrier_wait(s.empty(bars), s.phase);
            mbarrier_arrive_expect_tx(s.full(bars), p.x_bytes);
            tma_load_2d(ring + s.stage * p.stage_bytes, &p.x_map, step * STEP, at.token * n_tok,
                        s.full(bars));
            s.advance(p.n_stage);
        }
    }
}

/* Parameters of one group in shared memory, and their use; sums times `unfold` are the product's.
 * f16 and f32: the pair code_pair of unpack.cuh, with the mask and the exponent in one instruction:
 * the ALU pipe, half as wide as the others, is what unpacking waits for. `exponent` is 0x43004300,
 * kept in a register: two different constants fit into no instruction. */
template <enum brim_dtype dtype> struct step_params {
    group_params<dtype> g;
    static constexpr float unfold = 1;
    __device__ void load(uint32_t addr)
    {
        if (dtype == BRIM_DTYPE_F16) {
            const uint2 v = ld_shared_v2(addr);
            memcpy(&g.v, &v, sizeof v);
        } else {
            const uint4 v = ld_shared_v4(addr);
            memcpy(&g.v, &v, sizeof g.v);
        }
    }
    __device__ void unpack(uint32_t word, uint32_t exponent, uint32_t (&frag)[4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t r = lop3_and_or<0x000F000F>(word >> (4 * i), exponent);
            frag[i] =
                g.apply(__hsub2(*(__nv_bfloat162 *)&r, *(const __nv_bfloat162 *)&exponent), i % 2);
        }
    }
};
template <> struct step_params<BRIM_DTYPE_BF16> {
    folded_params g;
    static constexpr float unfold = W4_UNFOLD;
    __device__ void load(uint32_t addr) { g.set(ld_shared_v2(addr)); }
    __device__ void unpack(uint32_t word, uint32_t, uint32_t (&frag)[4]) const
    {
        g.unpack(word, frag);
    }
};

/* two: a step has two groups (of 32). */
template <int n_tok, enum brim_dtype dtype, bool two, bool split>
__global__ void __launch_bounds__((MAX_SLABS + 1) * 128, 1)
    w4_stream(const __grid_constant__ stream_params p)
{
    __shared__ __align__(8) uint64_t s_bars[2 * MAX_STAGES + 1]; /* full, empty, joined */
    const uint32_t ring = smem_u32(s_ring), bars = smem_u32(s_bars);
    const int t = threadIdx.x, wg = t / 128, warp = t / 32 % 4, lane = t % 32;
    /* Of blockIdx.x, not of the cluster's registers: the compiler keeps what follows uniform. */
    const int first = split ? __umulhi(blockIdx.x, p.split_inverse) : blockIdx.x;
    const int rank = split ? blockIdx.x - first * p.split : 0;
    constexpr float unfold = step_params<dtype>::unfold;

    const uint32_t joined = bars + 2 * MAX_STAGES * 8;
    const int n_line = p.n_slab * (n_tok / 8);

    if (wg == p.n_slab) {
        if (warp == 0) {
            if (lane < p.n_stage) {
                mbarrier_init(bars + lane * 8, 2);
                mbarrier_init(bars + (MAX_STAGES + lane) * 8, p.n_slab * 4);
            }
            if (split && lane == 31) mbarrier_init(joined, 1);
            fence_mbarrier_init();
            if (split && lane == 31) {
                const int n_mine = __umulhi(n_line - rank + p.split - 1, p.split_inverse);
                mbarrier_arrive_expect_tx(joined, n_mine * (p.split - 1) * LINE);
            }
        } else if (lane == 0) {
            tma_prefetch_map(warp == 1 ? &p.codes_map : warp == 2 ? &p.params_map : &p.x_map);
        }
    }
    course at = {first / p.n_tile_token, first % p.n_tile_token, 0, p.n_step};
    if (split) {
        at.begin = __umulhi(p.n_step * rank, p.split_inverse);
        at.end = __umulhi(p.n_step * (rank + 1), p.split_inverse);
    }
    __syncthreads();
    if (split) cluster_arrive_relaxed();           /* this CTA has begun: its barriers are there */
    if (p.pdl) griddepcontrol_launch_dependents(); /* the successor may load weights as well */

    if (wg == p.n_slab) {
        setmaxnreg_dec<COPY_REGISTERS>();
        if (warp == 0 && lane == 0) copy_weights(p, at, ring, bars);
        if (warp == 1 && lane == 0) {
            if (p.pdl) griddepcontrol_wait(); /* weights do not depend on the predecessor; x does */
            copy_activations(p, at, ring, bars, n_tok);
        }
        __syncwarp();
        if (split) cluster_wait();
    } else {
        setmaxnreg_inc<CONSUMER_REGISTERS>();
        /* In stage 0; the loop over steps finds them in registers. */
        uint32_t codes_at = ring + p.x_bytes + wg * CODES + (warp * 32 + lane) * 16;
        uint32_t params_at = ring + p.x_bytes + p.n_slab * CODES + wg * p.param_bytes +
                             (warp * 8 + lane / 4) * 4 * (dtype == BRIM_DTYPE_F32 ? 4 : 2);
        uint32_t desc_at = (uint32_t)wgmma_desc_128b(ring, 16, 1024), bars_at = bars;
        opaque(codes_at), opaque(params_at), opaque(desc_at), opaque(bars_at);
        const uint64_t desc_high = wgmma_desc_128b(0, 16, 1024) & 0xFFFFFFFF00000000ull;
        ring_place s = {0, 0};
        /* The first round is dry: one step of whatever lies in the ring, waiting for nothing, and
         * an end that stores nothing, so that the code is there when the first panel is. */
        uint32_t dry = p.dry;
#pragma unroll 1
        for (;;) {
            float acc[n_tok / 2];
            uint32_t frag[2][2][4];
#pragma unroll
            for (int i = 0; i < n_tok / 2; i++) acc[i] = 0;
            uint32_t before = 0; /* barrier of the step before */
            for (int n = dry ? 1 : at.end - at.begin; n > 0; n--) {
                uint32_t exponent = mov_here<0x43004300>(); /* not carried */
                if (!dry) mbarrier_wait(s.full(bars_at), s.phase);
                const uint32_t offset = s.stage * p.stage_bytes;
                const uint32_t desc = desc_at + offset / 16;
                step_params<dtype> group[2];
                const uint4 codes = ld_shared_v4(codes_at + offset);
                group[0].load(params_at + offset);
                if (two) group[1].load(params_at + offset + p.group_bytes);
                const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    wgmma_wait<1>(); /* the products that read this fragment set */
                    if (c == 1 && before && lane == 0) mbarrier_arrive(before);
#pragma unroll
                    for (int k = 0; k < 2; k++)
                        group[two ? c : 0].unpack(words[c * 2 + k], exponent, frag[c][k]);
                    wgmma_fence();
#pragma unroll
                    for (int k = 0; k < 2; k++)
                        wgmma_m64k16<n_tok>::template rs<1, 0>(
                            acc, frag[c][k], desc_high | (desc + (c * 2 + k) * 2));
                    wgmma_commit();
                }
                before = s.empty(bars_at);
                s.advance(p.n_stage);
            }
            wgmma_wait<0>();
            if (!dry && lane == 0) mbarrier_arrive(before);

            /* computed from here on: the loop over steps has no registers to carry it */
            const int t_now = tid_x(), lane_now = t_now % 32;
            const int64_t n_row = dry ? 0 : p.out.e.n_row, row0 = (int64_t)at.token * n_tok;
            if (split) {
                /* By shuffle: where the compiler cannot see that a warp stays together here, it
                 * keeps the places of the loop over steps in registers of threads. */
                const int warp_now = __shfl_sync(0xFFFFFFFFu, t_now / 32, 0);
                const uint32_t join = ring + p.join_at + lane_now * 16;
                if (!dry) {
                    cluster_wait();
#pragma unroll
                    for (int i = 0; i < n_tok / 32; i++) {
                        const int l = warp_now / 4 * (n_tok / 8) + i * 4 + warp_now % 4;
                        const int own = __umulhi(l, p.split_inverse), owner = l - own * p.split;
                        const uint32_t to = join + (rank * p.n_own + own) * LINE;
                        const uint32_t remote = mapa_u32(to, owner), bar = mapa_u32(joined, owner);
#pragma unroll
                        for (int j = 4 * i; j < 4 * i + 4; j++) {
                            const float4 v = make_float4(acc[4 * j], acc[4 * j + 1], acc[4 * j + 2],
                                                         acc[4 * j + 3]);
                            if (owner == rank)
                                st_shared_v4(to + j % 4 * 512, v);
                            else
                                st_async_v4(remote + j % 4 * 512, v, bar);
                        }
                    }
                    named_barrier_sync(1, p.n_slab * 128); /* this rank's own */
                    mbarrier_wait(joined, 0);
                }
#pragma unroll 1
                for (int own = warp_now;; own += p.n_slab * 4) {
                    const int l = own * p.split + rank;
                    if (l >= n_line) break;
                    const int slab = l / (n_tok / 8), i = l / 4 % (n_tok / 32), w = l % 4;
                    float4 v[4];
                    /* dry: of the ring, since others may be through here already */
                    sum_lines(dry ? ring : join + own * LINE, dry ? 0 : p.n_own * LINE, p.split, v);
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        v[j].x *= unfold, v[j].y *= unfold, v[j].z *= unfold, v[j].w *= unfold;
                    store_blocks(p.out, v, ((int64_t)(at.out * p.n_slab + slab) * 4 + w) * 16,
                                 row0 + i * 32, n_row, lane_now,
                                 s_ring + p.staging_at + t_now / 32 * STAGING);
                    if (dry) break;
                }
            } else {
                const int slab = at.out * p.n_slab + t_now / 128;
                const int64_t out0 = ((int64_t)slab * 4 + t_now / 32 % 4) * 16;
#pragma unroll
                for (int i = 0; i < n_tok / 2; i++) acc[i] *= unfold;
                if (p.out.e.out_bias) add_bias<n_tok>(p.out.e, acc, out0 + lane_now / 4);
                if (p.out.copies)
                    copy_tile<n_tok>(p.out, acc, slab, (int)row0,
                                     ring + p.staging_at + t_now / 128 * (n_tok * 128),
                                     2 + t_now / 128, t_now % 128, dry);
                else
                    store_tile<n_tok>(p.out.e, acc, out0, row0, n_row, lane_now);
            }
            if (dry) {
                dry = 0;
                s = {0, 0};
                if (p.pdl) griddepcontrol_wait(); /* y */
                continue;
            }
            if (split) break; /* the only tile */
            at.next_tile(p);
            if (!at.more(p)) break;
        }
        if (!split && t % 128 == 0) bulk_wait_all();
    }
}

template <int n_tok, bool two, bool split>
brim_status launch_dtype(const stream_params &p, enum brim_dtype dtype, brim_launch_shape shape,
                         cudaStream_t stream, brim_error *err)
{
    switch (dtype) {
    case BRIM_DTYPE_F32:
        return BRIM_LAUNCH((w4_stream<n_tok, BRIM_DTYPE_F32, two, split>), shape, stream, p, err);
    case BRIM_DTYPE_F16:
        return BRIM_LAUNCH((w4_stream<n_tok, BRIM_DTYPE_F16, two, split>), shape, stream, p, err);
    default:
        return BRIM_LAUNCH((w4_stream<n_tok, BRIM_DTYPE_BF16, two, split>), shape, stream, p, err);
    }
}

template <int n_tok, bool two>
brim_status launch_split(const stream_params &p, enum brim_dtype dtype, brim_launch_shape shape,
                         cudaStream_t stream, brim_error *err)
{
    return p.split > 1 ? launch_dtype<n_tok, two, true>(p, dtype, shape, stream, err)
                       : launch_dtype<n_tok, two, false>(p, dtype, shape, stream, err);
}

template <int n_tok>
brim_status launch_group(const stream_params &p, const struct brim_cuda_w4_packed *w,
                         brim_launch_shape shape, cudaStream_t stream, brim_error *err)
{
    return w->group == 32 ? launch_split<n_tok, true>(p, w->param_dtype, shape, stream, err)
                          : launch_split<n_tok, false>(p, w->param_dtype, shape, stream, err);
}

/* The ring: as many stages as fit, none more than a CTA has steps. */
void lay_out(stream_params *p, const struct brim_w4_stream_plan *plan, int group, int param_size,
             unsigned *smem_bytes)
{
    p->group_bytes = BRIM_W4_SLAB * 2 * (uint32_t)param_size;
    p->param_bytes = p->group_bytes * (group == 32 ? 2 : 1);
    p->param_shift = group == BRIM_W4_UNIT;
    p->x_bytes = plan->n_token * STEP * 2;
    const uint32_t step_bytes = p->x_bytes + plan->n_slab * (CODES + p->param_bytes);
    p->stage_bytes = (step_bytes + 1023) / 1024 * 1024;
    const uint32_t staging = plan->split > 1 ? plan->n_slab * 4 * STAGING
                             : p->out.copies ? plan->n_slab * plan->n_token * 128
                                             : 0;
    const int n_line = plan->n_slab * plan->n_token / 8;
    p->n_own = (n_line + plan->split - 1) / plan->split;
    const uint32_t join = plan->split > 1 ? plan->split * p->n_own * LINE : 0;
    int64_t n_stage = (225 * 1024 - staging - join) / p->stage_bytes, steps = plan->n_step;
    if (plan->split > 1) steps = (steps + plan->split - 1) / plan->split;
    if (n_stage > MAX_STAGES) n_stage = MAX_STAGES;
    if (n_stage > steps) n_stage = steps;
    p->n_stage = (int)n_stage;
    p->join_at = p->n_stage * p->stage_bytes;
    p->staging_at = p->join_at + join;
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
    BRIM_REQUIRE(err, n_tile * plan->split <= 1 << 28 && w->n_in <= INT32_MAX, BRIM_E_SHAPE,
                 "n_row %lld, n_out %lld, n_in %lld: more tiles than one launch takes",
                 (long long)args->n_row, (long long)w->n_out, (long long)w->n_in);
    stream_params p = {};
    BRIM_TRY(brim_tensormap_bf16(&p.x_map, args->x, args->n_row, w->n_in, args->x_stride,
                                 plan->n_token, err));
    p.out.e = w4_epilogue_of(args, w->n_out);
    p.out.wide = ((uintptr_t)args->y & 15) == 0 && args->y_stride % 8 == 0;
    const bool pairs = args->epilogue == BRIM_W4_SWIGLU;
    p.out.copies =
        plan->split == 1 && p.out.wide && (pairs || args->epilogue == BRIM_W4_STORE_BF16);
    if (p.out.copies)
        BRIM_TRY((pairs ? brim_tensormap_bf16_narrow : brim_tensormap_bf16)(
            &p.out.y_map, args->y, args->n_row, pairs ? w->n_out / 2 : w->n_out, args->y_stride,
            plan->n_token, err));
    brim_launch_shape shape = {};
    const int param_size = (int)brim_dtype_bytes(w->param_dtype);
    lay_out(&p, plan, w->group, param_size, &shape.smem_bytes);
    BRIM_TRY(brim_tensormap_bytes(&p.codes_map, w->codes, w->n_slab, w->n_unit * BRIM_W4_UNIT_BYTES,
                                  plan->n_slab, CODES, err));
    BRIM_TRY(brim_tensormap_bytes(&p.params_map, w->params, w->n_slab,
                                  w->n_unit * (BRIM_W4_UNIT / w->group) * p.group_bytes,
                                  plan->n_slab, (int)p.param_bytes, err));
    p.n_step = (int)plan->n_step;
    p.n_tile_out = (int)plan->n_tile_out;
    p.n_tile_token = (int)plan->n_tile_token;
    /* Tiles at a time; a split has one. */
    const int64_t stride = plan->split > 1 ? n_tile : plan->n_cta;
    p.stride_out = (int)(stride / plan->n_tile_token);
    p.stride_token = (int)(stride % plan->n_tile_token);
    p.split_inverse = (uint32_t)(((1ull << 32) + plan->split - 1) / plan->split);
    p.n_slab = plan->n_slab;
    p.split = plan->split;
    p.pdl = pdl != 0;
    p.dry = 1;
    shape.grid = dim3((unsigned)plan->n_cta);
    shape.block = dim3((unsigned)(plan->n_slab + 1) * 128);
    shape.cluster = (unsigned)plan->split;
    shape.pdl = pdl != 0;
    cudaStream_t s = (cudaStream_t)stream;
    switch (plan->n_token) {
    case 64:
        return launch_group<64>(p, w, shape, s, err);
    case 96:
        return launch_group<96>(p, w, shape, s, err);
    case 128:
        return launch_group<128>(p, w, shape, s, err);
    }
    return brim_fail(err, BRIM_E_ARGUMENT, "plan: no kernel for tiles of %d tokens", plan->n_token);
}
