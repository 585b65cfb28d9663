/* SPDX-License-Identifier: Apache-2.0
 * See cluster.h; weight order in pack.h.
 *
 * Grid (split, tiles of 64 n_slab outputs, tiles of n_tok tokens): one cluster a tile; CTA `rank`
 * takes one of `split` stretches of the units of 128 inputs, the first ones a unit more. Block
 * (128, n_slab, n_part): warpgroup (slab, part) multiplies slab `slab` by every n_part-th unit from
 * `part` on; the first warp also refills the ring of activations. Weights: cp.async into a ring
 * of DEPTH units that belongs to one warp, which alone waits for it. Activations: TMA into n_stage
 * panels (128-byte swizzle, zeros beyond n_row and n_in). The second half of a unit is unpacked
 * while the first multiplies, the next unit's first half while the second does. Join: the parts of
 * a CTA meet in its shared memory; then every CTA sends each fragment block of 16 outputs x 8
 * tokens to the rank that owns it, which adds the ranks in order and stores (epilogue.cuh).
 *
 * Barriers: full[stage] (one arrival + the bytes of a panel), empty[stage] (one arrival for each
 * warp that multiplies the panel), joined (one arrival + the bytes of all ranks' blocks). One
 * cluster barrier, arrived at the start where the join has memory of its own, else after the last
 * unit: no rank writes into memory that is in use. Memory: brim_w4_cluster_lay_out. */
#include "cuda/launch.h"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tensormap.h"
#include "cuda/w4/cluster.h"
#include "cuda/w4/epilogue.cuh"
#include "cuda/w4/unpack.cuh"

/* Outside the namespace: the emulator gives it storage by this name. */
extern __shared__ __align__(1024) uint8_t s_mem[];

namespace
{

enum {
    MAX_SPLIT = 8,
    BLOCK_BYTES = 512,   /* 16 outputs x 8 tokens, f32 */
    WARP_CODES = 1024,   /* of a warp's unit: BRIM_W4_UNIT_BYTES / 4, in two halves */
    BARRIER_BYTES = 1024 /* before the panels, which their swizzle aligns */
};

/* How scales and biases are read: bf16 with one group a unit, bf16, f16 or f32. */
enum form { FORM_BF16_128, FORM_BF16, FORM_WIDE };

struct cluster_params {
    CUtensorMap x_map;
    w4_epilogue out;
    const uint8_t *codes, *params;
    int n_slab_all, n_unit;
    int unit_each, unit_more; /* n_unit = split * unit_each + unit_more */
    int split, n_slab, n_part, n_stage;
    int slab_recip;                        /* ceil(256 / n_slab) */
    int pair_shift;                        /* 32 inputs -> group: 0, 1, 2 */
    int group_bytes, piece_shift, n_piece; /* a warp's parameters of one group: 64 or 128 bytes,
                                              in 16-byte pieces 2^piece_shift, n_piece a unit */
    int unit_param_bytes;                  /* of a unit, all warps */
    int warp_bytes, slot_bytes;            /* of a warp: all its weights; one unit */
    int join_at, n_own;                    /* see brim_w4_cluster_layout */
    bool f16, pdl;
};

/* Parameters of one group, read from the slot, and their use. */
template <int form> struct form_params {
    folded_params g;
    static constexpr float unfold = W4_UNFOLD;
    __device__ void load(uint32_t group_at, int lane, bool)
    {
        g.set(ld_shared_v2(group_at + lane / 4 * 8));
    }
    __device__ void unpack(uint32_t word, uint32_t (&frag)[4]) const { g.unpack(word, frag); }
};
template <> struct form_params<FORM_WIDE> {
    group_params<BRIM_DTYPE_F32> g;
    static constexpr float unfold = 1;
    __device__ void load(uint32_t group_at, int lane, bool f16)
    {
        /* No branch: ptxas serializes wgmma around one. */
        const uint32_t at = group_at + lane / 4 * (f16 ? 8 : 16);
        uint2 lo = ld_shared_v2(at), hi = ld_shared_v2(at + (f16 ? 0 : 8));
        float2 s = __half22float2(*(const __half2 *)&lo.x);
        float2 b = __half22float2(*(const __half2 *)&lo.y);
        g.v.x = f16 ? s.x : __uint_as_float(lo.x), g.v.y = f16 ? s.y : __uint_as_float(lo.y);
        g.v.z = f16 ? b.x : __uint_as_float(hi.x), g.v.w = f16 ? b.y : __uint_as_float(hi.y);
    }
    __device__ void unpack(uint32_t word, uint32_t (&frag)[4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) frag[i] = g.apply(code_pair(word, i), i % 2);
    }
};

/* A value that is the same in all lanes, as one register of the warp. */
BRIM_DEVICE int uniform(int v)
{
    return (int)__reduce_max_sync(0xFFFFFFFFu, (unsigned)v);
}

template <int n_tok, int form>
__global__ void __launch_bounds__(brim_w4_cluster_max_warpgroups(n_tok) * 128)
    w4_cluster(const __grid_constant__ cluster_params p)
{
    constexpr int DEPTH = brim_w4_cluster_depth(n_tok);
    constexpr uint32_t stage_bytes = n_tok * 256, panel_bytes = n_tok * 128;
    /* Barriers first, by offset: an address of their own would be formed anew at every use. */
    uint8_t *s_ring = s_mem + BARRIER_BYTES;
    const uint32_t full = smem_u32(s_mem), empty = full + BRIM_W4_CLUSTER_STAGES * 8;
    const uint32_t joined = empty + BRIM_W4_CLUSTER_STAGES * 8, ring = full + BARRIER_BYTES;
    const int warp = uniform(threadIdx.x / 32), lane = threadIdx.x % 32;
    const int slab_here = uniform(threadIdx.y), part = uniform(threadIdx.z);
    const int warp_all = (part * p.n_slab + slab_here) * 4 + warp;
    const int n_warp = p.n_slab * p.n_part * 4;
    const int rank = blockIdx.x, tile_out = blockIdx.y, tile_token = blockIdx.z;
    const int begin = rank * p.unit_each + min(rank, p.unit_more);
    const int n_panel = p.unit_each + (rank < p.unit_more);
    const int n_block = 4 * p.n_slab * (n_tok / 8);
    const int n_mine = min(p.n_own, n_block - rank * p.n_own); /* may be negative */
    /* Weights of this warp: its units, one after the other, into the slots of its ring. */
    const int slab = min(tile_out * p.n_slab + slab_here, p.n_slab_all - 1); /* last: not stored */
    const uint32_t my_ring = ring + p.n_stage * stage_bytes + warp_all * p.warp_bytes;
    const int64_t unit0 = (int64_t)slab * p.n_unit + begin + part;
    const uint8_t *next_codes =
        p.codes + unit0 * BRIM_W4_UNIT_BYTES + warp * (WARP_CODES / 2) + lane * 16;
    const uint8_t *next_params = p.params + unit0 * p.unit_param_bytes +
                                 ((lane >> p.piece_shift) * 4 + warp) * p.group_bytes +
                                 (lane & ((1 << p.piece_shift) - 1)) * 16;
    auto load_weights = [&](uint32_t slot_at) {
        uint32_t dst = slot_at + lane * 16;
        cp_async_16_stream(dst, next_codes);
        cp_async_16_stream(dst + WARP_CODES / 2, next_codes + BRIM_W4_UNIT_BYTES / 2);
        if (lane < p.n_piece) cp_async_16_stream(dst + WARP_CODES, next_params);
        next_codes += p.n_part * BRIM_W4_UNIT_BYTES;
        next_params += p.n_part * p.unit_param_bytes;
    };
    auto load_x = [&](int panel, int stage) {
        uint32_t dst = ring + stage * stage_bytes;
        int in = (begin + panel) * BRIM_W4_UNIT;
        mbarrier_arrive_expect_tx(full + stage * 8, stage_bytes);
        tma_load_2d(dst, &p.x_map, in, tile_token * n_tok, full + stage * 8);
        tma_load_2d(dst + panel_bytes, &p.x_map, in + 64, tile_token * n_tok, full + stage * 8);
    };
    /* One warp makes the barriers and, a lane a panel, loads activations at once, unless they must
     * wait for the kernel before; the others' weights need no barrier and wait for none. */
    const int n_first = min(p.n_stage, n_panel);
    if (warp_all == 0) {
        if (lane == 0) {
#pragma unroll 1
            for (uint32_t at = full; at < full + p.n_stage * 8; at += 8) {
                mbarrier_init(at, 1);
                mbarrier_init(at + (empty - full), p.n_slab * 4);
            }
            mbarrier_init(joined, 1);
            fence_mbarrier_init();
            mbarrier_arrive_expect_tx(joined, max(n_mine, 0) * (p.split - 1) * BLOCK_BYTES);
        }
        __syncwarp();
        if (!p.pdl && lane < n_first) load_x(lane, lane);
    }
#pragma unroll 1
    for (int d = 0; d < DEPTH; d++) {
        if (part + d * p.n_part < n_panel) load_weights(my_ring + d * p.slot_bytes);
        cp_async_commit();
    }
    if (p.pdl) {
        griddepcontrol_launch_dependents(); /* the successor may load its weights too */
        griddepcontrol_wait();              /* what x and y depend on; weights do not */
        if (warp_all == 0 && lane < n_first) load_x(lane, lane);
    }
    __syncthreads();
    /* Before a rank writes here: this CTA runs and its barriers are ready, and if the join lies
     * over the panels, all is read. */
    if (p.split > 1 && p.join_at) cluster_arrive_relaxed();

    uint32_t frag[2][4][4];
    form_params<form> params;
    /* Fragments of k-steps 4 h .. 4 h + 3; parameters change every 32 inputs at most. */
    auto unpack = [&](uint4 codes, int h, uint32_t slot_at) {
        const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (form == FORM_BF16_128 ? h + k == 0 : k % 2 == 0)
                params.load(slot_at + WARP_CODES +
                                ((h * 2 + k / 2) >> p.pair_shift) * p.group_bytes,
                            lane, p.f16);
            params.unpack(words[k], frag[h][k]);
        }
    };
    const uint32_t ring_end = my_ring + DEPTH * p.slot_bytes;
    const bool refilled = n_panel > p.n_stage;
    constexpr uint32_t desc_step = stage_bytes >> 4, desc_high = 1u << 30 | 1024 >> 4;
    int refill = p.n_stage, refill_stage = 0, refill_parity = 0; /* of the first warp */
    float acc[n_tok / 2];
#pragma unroll
    for (int i = 0; i < n_tok / 2; i++) acc[i] = 0;
    uint32_t slot_at = my_ring;
    /* Panel `part` is the first of this warpgroup (part < n_stage where there is work): its
     * barrier and the low word of its descriptor go round the ring together. */
    uint32_t bar = full + part * 8, bar_before = 0, parity = 0;
    uint32_t desc_low = (ring & 0x3FFFF) >> 4 | (16 >> 4) << 16;
    desc_low += part * desc_step;
    auto desc_of = [&](uint32_t at) { return (uint64_t)desc_high << 32 | (desc_low + at); };
#pragma unroll 1
    for (int panel = part; panel < n_panel; panel += p.n_part) {
        if (refilled && warp_all == 0 && panel >= 2 * p.n_part) {
            /* Panels of the last round but one, of all parts: each is refilled when it has been
             * read. With n_stage >= 2 n_part (or nothing to refill) none waits for what is not
             * loaded, so this ends. The whole warp waits: one lane's loop in this one would
             * take the places of both from the registers that a warp shares. */
#pragma unroll 1
            for (int q = 0; q < p.n_part && refill < n_panel; q++, refill++) {
                mbarrier_wait(empty + refill_stage * 8, refill_parity);
                if (lane == 0) load_x(refill, refill_stage);
                if (++refill_stage == p.n_stage) refill_stage = 0, refill_parity ^= 1;
            }
        }
        cp_async_wait<DEPTH - 1>();
        __syncwarp(); /* parameters come by other lanes' copies */
        uint4 codes0 = ld_shared_v4(slot_at + lane * 16);
        uint4 codes1 = ld_shared_v4(slot_at + WARP_CODES / 2 + lane * 16);
        wgmma_wait<1>(); /* the unit before has read frag[0] */
        unpack(codes0, 0, slot_at);
        mbarrier_wait(bar, parity);
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < 4; s++)
            wgmma_m64k16<n_tok>::template rs<1, 0>(acc, frag[0][s], desc_of(s * 2));
        wgmma_commit();
        wgmma_wait<1>(); /* the unit before is done: frag[1] and its panel are free */
        if (refilled && panel >= p.n_part && lane == 0)
            mbarrier_arrive(bar_before + (empty - full));
        unpack(codes1, 1, slot_at);
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < 4; s++)
            wgmma_m64k16<n_tok>::template rs<1, 0>(acc, frag[1][s],
                                                   desc_of((panel_bytes >> 4) + s * 2));
        wgmma_commit();
        __syncwarp(); /* all lanes have read the slot */
        if (panel + DEPTH * p.n_part < n_panel) load_weights(slot_at);
        cp_async_commit();
        slot_at += p.slot_bytes;
        if (slot_at == ring_end) slot_at = my_ring;
        bar_before = bar;
        bar += p.n_part * 8;
        desc_low += p.n_part * desc_step;
        if (bar >= full + p.n_stage * 8) {
            bar -= p.n_stage * 8;
            desc_low -= p.n_stage * desc_step;
            parity ^= 1;
        }
    }
    wgmma_wait<0>();

    /* The parts of a slab meet in the warps' own memory, added in order by part 0. */
    if (p.n_part > 1) {
        float4 *dump = (float4 *)(s_ring + p.n_stage * stage_bytes) + lane;
        const int warp_vec = p.warp_bytes / 16;
        if (part > 0) {
#pragma unroll
            for (int j = 0; j < n_tok / 8; j++)
                dump[warp_all * warp_vec + j * 32] =
                    make_float4(acc[4 * j], acc[4 * j + 1], acc[4 * j + 2], acc[4 * j + 3]);
        }
        __syncthreads();
        if (part == 0) {
#pragma unroll 1
            for (int q = 1; q < p.n_part; q++) {
                const float4 *src = dump + (warp_all + q * p.n_slab * 4) * warp_vec;
#pragma unroll
                for (int j = 0; j < n_tok / 8; j++) {
                    float4 v = src[j * 32];
                    acc[4 * j] += v.x, acc[4 * j + 1] += v.y;
                    acc[4 * j + 2] += v.z, acc[4 * j + 3] += v.w;
                }
            }
        }
    }
    if (!p.join_at) __syncthreads(); /* the join overwrites what other warps read */
    if (p.split > 1) {
        if (!p.join_at) cluster_arrive_relaxed();
        cluster_wait();
    }
    /* Block e = (warp, slab, 8 tokens) belongs to rank e / n_own. */
    const uint32_t join = ring + p.join_at + lane * 16;
    if (part == 0) {
        int at = (warp * p.n_slab + slab_here) * (n_tok / 8), owner = 0;
        while (at >= p.n_own) at -= p.n_own, owner++;
#pragma unroll
        for (int j = 0; j < n_tok / 8; j++) {
            const float4 v =
                make_float4(acc[4 * j], acc[4 * j + 1], acc[4 * j + 2], acc[4 * j + 3]);
            const uint32_t dst = join + (rank * p.n_own + at) * BLOCK_BYTES;
            if (owner == rank)
                st_shared_v4(dst, v);
            else
                st_async_v4(mapa_u32(dst, owner), v, mapa_u32(joined, owner));
            if (++at == p.n_own) at = 0, owner++;
        }
    }
    __syncthreads();                /* this rank's own blocks */
    if (warp_all >= n_mine) return; /* its sums on the way are in no memory of this CTA */
    mbarrier_wait(joined, 0);
#pragma unroll 1
    for (int at = warp_all; at < n_mine; at += n_warp) {
        const float4 *src = (const float4 *)(s_ring + p.join_at + at * BLOCK_BYTES) + lane;
        float4 sum = src[0];
#pragma unroll
        for (int r = 1; r < MAX_SPLIT; r++) {
            if (r < p.split) {
                float4 v = src[r * p.n_own * (BLOCK_BYTES / 16)];
                sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
            }
        }
        constexpr float unfold = form_params<form>::unfold;
        sum.x *= unfold, sum.y *= unfold, sum.z *= unfold, sum.w *= unfold;
        const int e = rank * p.n_own + at, j = e % (n_tok / 8), ws = e / (n_tok / 8);
        const int w = ws * p.slab_recip >> 8, s = ws - w * p.n_slab; /* ws < 20: exact */
        w4_store_block(p.out, sum, ((int64_t)tile_out * p.n_slab + s) * BRIM_W4_SLAB + w * 16,
                       (int64_t)tile_token * n_tok + j * 8, lane);
    }
}

template <int n_tok>
brim_status launch_form(const cluster_params &p, const brim_cuda_w4_packed *w,
                        brim_launch_shape shape, cudaStream_t stream, brim_error *err)
{
    if (w->param_dtype != BRIM_DTYPE_BF16)
        return BRIM_LAUNCH((w4_cluster<n_tok, FORM_WIDE>), shape, stream, p, err);
    if (w->group < BRIM_W4_UNIT)
        return BRIM_LAUNCH((w4_cluster<n_tok, FORM_BF16>), shape, stream, p, err);
    return BRIM_LAUNCH((w4_cluster<n_tok, FORM_BF16_128>), shape, stream, p, err);
}

} // namespace

extern "C" brim_status brim_cuda_w4_cluster(const struct brim_cuda_w4 *args,
                                            const struct brim_cuda_w4_packed *w,
                                            const struct brim_w4_cluster_plan *plan, int pdl,
                                            void *stream, brim_error *err)
{
    if (args->n_row == 0 || w->n_out == 0) return BRIM_OK;
    BRIM_REQUIRE(err,
                 plan->n_tile_out <= 65535 && plan->n_tile_token <= 65535 &&
                     w->n_in <= INT32_MAX - BRIM_W4_UNIT && args->n_row <= INT32_MAX - 128,
                 BRIM_E_SHAPE,
                 "n_row %lld, n_out %lld, n_in %lld: more tiles than one launch takes",
                 (long long)args->n_row, (long long)w->n_out, (long long)w->n_in);
    int n_wg = plan->n_slab * plan->n_part;
    BRIM_REQUIRE(err,
                 plan->split >= 1 && plan->split <= MAX_SPLIT && n_wg >= 1 &&
                     n_wg <= brim_w4_cluster_max_warpgroups(plan->n_token) &&
                     plan->n_resident >= 1 && plan->n_resident <= 4,
                 BRIM_E_ARGUMENT, "plan: %d warpgroups of %d tokens, split %d", n_wg, plan->n_token,
                 plan->split);
    cluster_params p = {};
    BRIM_TRY(brim_tensormap_bf16(&p.x_map, args->x, args->n_row, w->n_in, args->x_stride,
                                 plan->n_token, err));
    p.out = w4_epilogue_of(args, w->n_out);
    p.codes = (const uint8_t *)w->codes;
    p.params = (const uint8_t *)w->params;
    p.n_slab_all = (int)w->n_slab;
    p.n_unit = (int)plan->n_unit;
    p.unit_each = p.n_unit / plan->split;
    p.unit_more = p.n_unit % plan->split;
    p.split = plan->split;
    p.n_slab = plan->n_slab;
    p.n_part = plan->n_part;
    p.slab_recip = (256 + p.n_slab - 1) / p.n_slab;
    const int groups = BRIM_W4_UNIT / w->group,
              param_bytes = w->param_dtype == BRIM_DTYPE_F32 ? 4 : 2;
    p.pair_shift = w->group == 32 ? 0 : w->group == 64 ? 1 : 2;
    p.group_bytes = param_bytes * 32;
    p.piece_shift = param_bytes == 4 ? 3 : 2;
    p.n_piece = groups << p.piece_shift;
    p.unit_param_bytes = groups * 4 * p.group_bytes;
    p.slot_bytes = WARP_CODES + groups * p.group_bytes;
    p.f16 = w->param_dtype == BRIM_DTYPE_F16;
    p.pdl = pdl != 0;
    struct brim_w4_cluster_layout layout = brim_w4_cluster_lay_out(plan, w->group, param_bytes);
    BRIM_REQUIRE(err, layout.n_stage > 0, BRIM_E_ARGUMENT,
                 "plan: %d warpgroups of %d tokens, %d at once, do not fit in shared memory", n_wg,
                 plan->n_token, plan->n_resident);
    p.n_stage = layout.n_stage;
    p.warp_bytes = layout.warp_bytes;
    p.n_own = layout.n_own;
    p.join_at = layout.join_at;
    brim_launch_shape shape = {};
    shape.smem_bytes = (unsigned)layout.n_byte + BARRIER_BYTES;
    shape.grid =
        dim3((unsigned)plan->split, (unsigned)plan->n_tile_out, (unsigned)plan->n_tile_token);
    shape.block = dim3(128, (unsigned)plan->n_slab, (unsigned)plan->n_part);
    shape.cluster = (unsigned)plan->split;
    shape.pdl = pdl != 0;
    cudaStream_t s = (cudaStream_t)stream;
    switch (plan->n_token) {
    case 16:
        return launch_form<16>(p, w, shape, s, err);
    case 32:
        return launch_form<32>(p, w, shape, s, err);
    case 48:
        return launch_form<48>(p, w, shape, s, err);
    case 64:
        return launch_form<64>(p, w, shape, s, err);
    case 80:
        return launch_form<80>(p, w, shape, s, err);
    case 96:
        return launch_form<96>(p, w, shape, s, err);
    case 112:
        return launch_form<112>(p, w, shape, s, err);
    case 128:
        return launch_form<128>(p, w, shape, s, err);
    }
    return brim_fail(err, BRIM_E_ARGUMENT, "plan: no kernel for tiles of %d tokens", plan->n_token);
}
