/* SPDX-License-Identifier: Apache-2.0
 * Prefill attention on wgmma: f16 cache, head_dim 64 or 128, causal, a prefix may be cached.
 *
 * A block is 128 rows of one query head (64 where that leaves multiprocessors empty): a consumer
 * warpgroup for each 64 rows and a producer that keeps two stages of 128 keys and values in flight,
 * by tensor maps. The tile in which the last row's keys end is copied by cp.async, because what
 * lies behind them must arrive as zero. A consumer's score accumulators, packed to f16, are the A
 * operand of the product with the values. Two consumers take turns with the tensor cores, so that
 * one multiplies while the other does its softmax. Keys are taken 128 at a time from position 0, so
 * a row's bits follow from its own position. A block with a result that is not finite goes through
 * its tiles once more (consume). Grid: x heads, y row tiles, the longest first. */
#include "cuda/model/attn.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma_f16.cuh"
#include "cuda/tensormap.h"

/* Outside the namespace: the emulator gives it storage by this name. */
extern __shared__ uint8_t smem_raw[];

namespace
{

enum {
    GROUP_ROWS = 64,
    KEYS = 128,
    N_STAGE = 2,
    N_SM = 132,       /* of an H200: fewer blocks of 128 rows than this are halved */
    PANEL = 128 * 128 /* 128 rows of 64 f16 with the 128-byte swizzle */
};

template <int head_dim, int n_group> struct layout {
    enum {
        N_PANEL = head_dim / 64,
        TILE = N_PANEL * PANEL,
        Q_PANEL = n_group * GROUP_ROWS * 128,
        Q = 0,
        K = N_PANEL * Q_PANEL,
        V = K + N_STAGE * TILE,
        /* mbarriers: q, then full and empty of each K and V stage; as many for the second pass */
        BARS = V + N_STAGE * TILE,
        PASS_BARS = 8 * (1 + 4 * N_STAGE),
        AGAIN = BARS + 2 * PASS_BARS, /* whether a second pass is needed */
        SMEM_BYTES = AGAIN + 8 + 1024 /* alignment */
    };
};

struct prefill_params {
    CUtensorMap q, k, v; /* [n_row][n_head head_dim]; [n_head_kv n_position][head_dim] */
    brim_cuda_attention_args a;
};

/* Addresses of the barriers of a slot: stages in the order K0 V0 K1 V1. */
BRIM_DEVICE uint32_t bar_full(uint32_t bars, int slot)
{
    return bars + 8 + slot * 16;
}

BRIM_DEVICE uint32_t bar_empty(uint32_t bars, int slot)
{
    return bars + 16 + slot * 16;
}

/* 128 rows of a [.][head_dim] f16 matrix into a swizzled tile; those from n_row on become zero,
 * with `finite` also each NaN and infinity. By the 128 threads of the producer; thread 0 says when
 * all is there. */
template <int head_dim, bool finite>
BRIM_DEVICE void copy_tile(uint32_t tile, const uint16_t *from, int n_row, int thread, uint32_t bar)
{
    enum { PIECES = head_dim / 8 };
#pragma unroll 4
    for (int i = 0; i < PIECES; i++) {
        int row = (i * 128 + thread) / PIECES, piece = (i * 128 + thread) % PIECES;
        bool inside = row < n_row;
        uint32_t to = tile + piece / 8 * PANEL + swizzle_128b(row, piece % 8);
        const uint16_t *at = from + (inside ? row : 0) * head_dim + piece * 8;
        if (finite) {
            uint4 v = inside ? *(const uint4 *)at : make_uint4(0, 0, 0, 0);
            st_shared_v4_u32(to, attn_finite(v.x, true, true), attn_finite(v.y, true, true),
                             attn_finite(v.z, true, true), attn_finite(v.w, true, true));
        } else {
            cp_async_16(to, at, inside);
        }
    }
    cp_async_commit();
    cp_async_wait<0>();
    fence_proxy_async_shared(); /* wgmma will read what was written here */
    named_barrier_sync(3, 128);
    if (thread == 0) mbarrier_arrive(bar);
}

/* Queries of the block, head and row0 of the grid. */
template <int head_dim, int n_group>
BRIM_DEVICE void load_queries(const prefill_params &p, uint32_t smem, uint32_t bars, int head,
                              int row0)
{
    typedef layout<head_dim, n_group> L;
    mbarrier_arrive_expect_tx(bars, L::N_PANEL * L::Q_PANEL);
    for (int panel = 0; panel < L::N_PANEL; panel++)
        tma_load_2d(smem + L::Q + panel * L::Q_PANEL, &p.q, head * head_dim + panel * 64, row0,
                    bars);
}

/* Piece i is K (even) or V (odd) of tile i / 2. */
template <int head_dim, int n_group>
BRIM_DEVICE void produce(const prefill_params &p, uint32_t smem, int head, int row0, int n_key)
{
    typedef layout<head_dim, n_group> L;
    const brim_cuda_kv &kv = p.a.kv;
    int thread = threadIdx.x - n_group * 128, head_kv = head / (p.a.n_head / kv.n_head_kv);
    uint32_t bars = smem + L::BARS;
    int row_kv = head_kv * (int)kv.n_position, n_full = 2 * (n_key / KEYS);
    if (thread == 0) {
        load_queries<head_dim, n_group>(p, smem, bars, head, row0);
#pragma unroll 1
        for (int i = 0; i < n_full; i++) {
            int slot = i % (2 * N_STAGE), use = i / (2 * N_STAGE);
            if (use > 0) mbarrier_wait(bar_empty(bars, slot), (use - 1) & 1);
            uint32_t tile = smem + (i % 2 ? L::V : L::K) + i / 2 % N_STAGE * L::TILE;
            mbarrier_arrive_expect_tx(bar_full(bars, slot), L::TILE);
            for (int panel = 0; panel < L::N_PANEL; panel++)
                tma_load_2d(tile + panel * PANEL, i % 2 ? &p.v : &p.k, panel * 64,
                            row_kv + i / 2 * KEYS, bar_full(bars, slot));
        }
    }
    if (n_key % KEYS == 0) return;
    named_barrier_sync(3, 128); /* the waits below are for phases that come after those above */
    for (int i = n_full; i < n_full + 2; i++) {
        int slot = i % (2 * N_STAGE), use = i / (2 * N_STAGE), key0 = i / 2 * KEYS;
        if (use > 0) mbarrier_wait(bar_empty(bars, slot), (use - 1) & 1);
        copy_tile<head_dim, false>(smem + (i % 2 ? L::V : L::K) + i / 2 % N_STAGE * L::TILE,
                                   (const uint16_t *)(i % 2 ? kv.v : kv.k) +
                                       ((int64_t)row_kv + key0) * head_dim,
                                   n_key - key0, thread, bar_full(bars, slot));
    }
}

/* The same for the second pass: every tile by the producer's threads, with zero for each value that
 * is NaN or infinite. */
template <int head_dim, int n_group>
BRIM_DEVICE void produce_finite(const prefill_params &p, uint32_t smem, int head, int row0,
                                int n_key)
{
    typedef layout<head_dim, n_group> L;
    const brim_cuda_kv &kv = p.a.kv;
    int thread = threadIdx.x - n_group * 128, head_kv = head / (p.a.n_head / kv.n_head_kv);
    uint32_t bars = smem + L::BARS + L::PASS_BARS;
    if (thread == 0) load_queries<head_dim, n_group>(p, smem, bars, head, row0);
#pragma unroll 1
    for (int i = 0; i < 2 * ((n_key + KEYS - 1) / KEYS); i++) {
        int slot = i % (2 * N_STAGE), use = i / (2 * N_STAGE), key0 = i / 2 * KEYS;
        if (use > 0) mbarrier_wait(bar_empty(bars, slot), (use - 1) & 1);
        uint32_t tile = smem + (i % 2 ? L::V : L::K) + i / 2 % N_STAGE * L::TILE;
        int64_t at = ((int64_t)head_kv * kv.n_position + key0) * head_dim;
        if (i % 2)
            copy_tile<head_dim, true>(tile, (const uint16_t *)kv.v + at, n_key - key0, thread,
                                      bar_full(bars, slot));
        else
            copy_tile<head_dim, false>(tile, (const uint16_t *)kv.k + at, n_key - key0, thread,
                                       bar_full(bars, slot));
    }
}

/* s = q k^T of 64 rows and 128 keys; to be committed. */
template <int head_dim, int q_panel>
BRIM_DEVICE void multiply_keys(float (&s)[KEYS / 2], uint32_t q, uint32_t k)
{
    uint64_t desc_q = wgmma_desc_128b(q, 16, 1024), desc_k = wgmma_desc_128b(k, 16, 1024);
    wgmma_f16_m64k16<KEYS>::template ss<0>(s, desc_q, desc_k);
#pragma unroll
    for (int i = 1; i < head_dim / 16; i++) {
        wgmma_f16_m64k16<KEYS>::template ss<1>(s, desc_q + i / 4 * (q_panel >> 4) + i % 4 * 2,
                                               desc_k + i / 4 * (PANEL >> 4) + i % 4 * 2);
    }
}

/* acc += p v. */
template <int head_dim>
BRIM_DEVICE void multiply_values(float (&acc)[head_dim / 2], const uint32_t (&p)[KEYS / 16][4],
                                 uint32_t v)
{
    uint64_t desc_v = wgmma_desc_128b(v, PANEL, 1024);
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++)
        wgmma_f16_m64k16<head_dim>::template rs<1, 1>(acc, p[i], desc_v + i * (2048 >> 4));
}

struct row_state {
    float largest[2], sum[2]; /* rows g and g + 8; sum of this lane's columns */
};

/* Scores to weights, the result so far to the new maximum. limit[h]: the last column row h of this
 * lane sees, counted from the tile's first key and this lane's first column. */
template <int n_acc, bool masked>
BRIM_DEVICE void softmax(float (&s)[KEYS / 2], uint32_t (&p)[KEYS / 16][4], float (&acc)[n_acc],
                         row_state &r, const int (&limit)[2], float scale)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = -CUDART_INF_F;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &x = s[4 * j + 2 * h + e];
                if (masked && 8 * j + e > limit[h]) x = -CUDART_INF_F;
                top = fmaxf(top, x);
            }
        top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 2));
        top = fmaxf(top * scale, r.largest[h]);
        float keep = attn_keep(r.largest[h], top), base = attn_base(top), sum = 0;
        r.largest[h] = top;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &x = s[4 * j + 2 * h + e];
                x = ex2_approx(__fmaf_rn(x, scale, -base));
                sum += x;
            }
        r.sum[h] = r.sum[h] * keep + sum;
#pragma unroll
        for (int j = 0; j < n_acc / 4; j++)
            acc[4 * j + 2 * h] *= keep, acc[4 * j + 2 * h + 1] *= keep;
    }
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) p[i][j] = f16x2_pack(s[8 * i + 2 * j], s[8 * i + 2 * j + 1]);
}

/* The consumers' turns: a turn begins when the other has issued its products. The second one's
 * first turn follows the first one's; nothing is left to wait for at the end. */
template <int n_group> BRIM_DEVICE void turn_begin(int group)
{
    if (n_group > 1) named_barrier_sync(1 + group, 256);
}

template <int n_group> BRIM_DEVICE void turn_end(int group)
{
    if (n_group > 1) named_barrier_arrive(2 - group, 256);
}

/* Which of two results (1, 2), dimensions d and d + 1, are not finite because of a value before
 * position n_key. */
BRIM_DEVICE int caused_by_values(const brim_cuda_kv &kv, int head_kv, int64_t n_key, int d)
{
    const uint16_t *v = (const uint16_t *)kv.v + (int64_t)head_kv * kv.n_position * kv.head_dim + d;
    int cause = 0;
#pragma unroll 1
    for (int64_t key = 0; key < n_key; key++, v += kv.head_dim) {
        uint32_t pair = *(const uint32_t *)v;
        cause |= (pair & 0x7C00) == 0x7C00 ? 1 : 0;
        cause |= (pair & 0x7C000000) == 0x7C000000 ? 2 : 0;
    }
    return cause;
}

/* True if a result is not finite, in the first pass. The second replaces each of those whose cause
 * is no value that its row sees: weights of zero do not hide a NaN or an infinity in the others. */
template <int head_dim, int n_group, bool second>
BRIM_DEVICE bool consume(const brim_cuda_attention_args &a, uint32_t smem, int head, int row0,
                         int first_pos, int n_key)
{
    typedef layout<head_dim, n_group> L;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = warp / 4;
    uint32_t bars = smem + L::BARS + (second ? L::PASS_BARS : 0),
             q = smem + L::Q + group * GROUP_ROWS * 128;
    int row = warp * 16 + lane / 4; /* of the block's, and row + 8 */
    int n_tile = (n_key + KEYS - 1) / KEYS;
    float scale = a.scale * ATTN_LOG2E;
    float s[KEYS / 2], acc[head_dim / 2];
    uint32_t p[KEYS / 16][4];
    row_state r = {{-CUDART_INF_F, -CUDART_INF_F}, {0, 0}};
#pragma unroll
    for (int i = 0; i < head_dim / 2; i++) acc[i] = 0;
    /* The first tile in which this warpgroup's first row does not see every key. */
    int n_free = (first_pos + row0 + group * GROUP_ROWS + 1) / KEYS;

    mbarrier_wait(bars, 0);
    mbarrier_wait(bar_full(bars, 0), 0);
    if (group == 1) turn_end<n_group>(group);
    turn_begin<n_group>(group);
    wgmma_fence();
    multiply_keys<head_dim, L::Q_PANEL>(s, q, smem + L::K);
    wgmma_commit();
    turn_end<n_group>(group);
    wgmma_wait<0>();
    wgmma_pin(s);
    mbarrier_arrive(bar_empty(bars, 0));
#pragma unroll 1
    for (int i = 0; i < n_tile; i++) {
        int limit[2];
#pragma unroll
        for (int h = 0; h < 2; h++)
            limit[h] = first_pos + row0 + row + 8 * h - i * KEYS - lane % 4 * 2;
        if (i < n_free)
            softmax<head_dim / 2, false>(s, p, acc, r, limit, scale);
        else
            softmax<head_dim / 2, true>(s, p, acc, r, limit, scale);
        int slot_v = i % N_STAGE * 2 + 1, slot_k = (i + 1) % N_STAGE * 2;
        mbarrier_wait(bar_full(bars, slot_v), i / N_STAGE & 1);
        if (i + 1 == n_tile) break;
        mbarrier_wait(bar_full(bars, slot_k), (i + 1) / N_STAGE & 1);
        turn_begin<n_group>(group);
        wgmma_pin(acc);
        wgmma_fence();
        multiply_values<head_dim>(acc, p, smem + L::V + i % N_STAGE * L::TILE);
        multiply_keys<head_dim, L::Q_PANEL>(s, q, smem + L::K + (i + 1) % N_STAGE * L::TILE);
        wgmma_commit();
        turn_end<n_group>(group);
        wgmma_wait<0>();
        wgmma_pin(s);
        wgmma_pin(acc);
        mbarrier_arrive(bar_empty(bars, slot_v));
        mbarrier_arrive(bar_empty(bars, slot_k));
    }
    turn_begin<n_group>(group);
    wgmma_pin(acc);
    wgmma_fence();
    multiply_values<head_dim>(acc, p, smem + L::V + (n_tile - 1) % N_STAGE * L::TILE);
    wgmma_commit();
    if (group == 0) turn_end<n_group>(group);
    wgmma_wait<0>();
    wgmma_pin(acc);
    uint32_t aside = q + (row - group * GROUP_ROWS) * 128 + lane % 4 * 4; /* of this lane alone */
    uint32_t bad[4] = {0, 0, 0, 0}; /* bits 15 and 31 once a result is not finite */
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = r.sum[h] + __shfl_xor_sync(0xFFFFFFFFu, r.sum[h], 1);
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
        float inv = 1.0f / sum;
        int64_t at = row0 + row + 8 * h;
        if (at >= a.n_row) continue;
        uint32_t *out =
            (uint32_t *)((uint16_t *)a.out + at * a.out_stride + head * head_dim) + lane % 4;
#pragma unroll
        for (int j = 0; j < head_dim / 8; j++) {
            uint32_t pair = bf16x2_pack(acc[4 * j + 2 * h] * inv, acc[4 * j + 2 * h + 1] * inv);
            if (second) { /* aside, where this group's queries were: what follows is no place for
                           * 64 copies of a loop */
                st_shared_u32(aside + j / 8 * L::Q_PANEL + h * 1024 + j % 8 * 16, pair);
            } else {
                bad[j % 4] |= (pair & 0x7F807F80u) + 0x00800080u;
                out[4 * j] = pair;
            }
        }
    }
    if (!second) return ((bad[0] | bad[1] | bad[2] | bad[3]) & 0x80008000u) != 0;
    int head_kv = head / (a.n_head / a.kv.n_head_kv);
#pragma unroll 1
    for (int i = 0; i < head_dim / 4; i++) {
        int h = i % 2, j = i / 2, d = 8 * j + lane % 4 * 2;
        int64_t at = row0 + row + 8 * h;
        if (at >= a.n_row) continue;
        uint32_t *out = (uint32_t *)((uint16_t *)a.out + at * a.out_stride + head * head_dim + d);
        uint32_t got = *out;
        int odd = ((got & 0x7F80) == 0x7F80 ? 1 : 0) | ((got & 0x7F800000) == 0x7F800000 ? 2 : 0);
        if (odd == 0) continue;
        odd &= ~caused_by_values(a.kv, head_kv, first_pos + at + 1, d);
        uint32_t mask = (odd & 1 ? 0xFFFFu : 0) | (odd & 2 ? 0xFFFF0000u : 0);
        uint32_t again = ld_shared_u32(aside + j / 8 * L::Q_PANEL + h * 1024 + j % 8 * 16);
        *out = (got & ~mask) | (again & mask);
    }
    return false;
}

/* By one thread: the barriers of a pass. */
template <int n_group> BRIM_DEVICE void make_barriers(uint32_t bars)
{
    mbarrier_init(bars, 1);
    for (int slot = 0; slot < 2 * N_STAGE; slot++) {
        mbarrier_init(bar_full(bars, slot), 1);
        mbarrier_init(bar_empty(bars, slot), n_group * 128);
    }
}

/* End the first pass: whether a second must follow. No barrier here is for the whole block, because
 * the roles come to different ones: the consumers agree among themselves, one warp of the producer
 * waits for them all and the others for it. */
template <int n_group> BRIM_DEVICE bool consume_again(uint32_t again)
{
    named_barrier_arrive(4, 32 + 128 * n_group);
    named_barrier_sync(5, 128 * n_group);
    return ld_shared_u32(again) != 0;
}

template <int n_group> BRIM_DEVICE bool produce_again(uint32_t again)
{
    if (threadIdx.x < n_group * 128 + 32) named_barrier_sync(4, 32 + 128 * n_group);
    named_barrier_sync(3, 128);
    return ld_shared_u32(again) != 0;
}

template <int head_dim, int n_group>
__global__ void __launch_bounds__(128 + 128 * n_group, 1)
    attn_prefill(const __grid_constant__ prefill_params p)
{
    const brim_cuda_attention_args &a = p.a;
    typedef layout<head_dim, n_group> L;
    uint32_t smem = (smem_u32(smem_raw) + 1023) & ~1023u, bars = smem + L::BARS;
    if (threadIdx.x == 0) {
        make_barriers<n_group>(bars);
        make_barriers<n_group>(bars + L::PASS_BARS);
        fence_mbarrier_init();
        st_shared_u32(smem + L::AGAIN, 0);
        tma_prefetch_map(&p.q);
        tma_prefetch_map(&p.k);
        tma_prefetch_map(&p.v);
    }
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    __syncthreads();
    enum { ROWS = n_group * GROUP_ROWS };
    int head = blockIdx.x, row0 = (gridDim.y - 1 - blockIdx.y) * ROWS;
    int64_t first_key = *a.first_pos;
    bool inside = first_key >= 0 && first_key + a.n_row <= a.kv.n_position;
    int first_pos = (int)first_key, end = row0 + ROWS < a.n_row ? row0 + ROWS : (int)a.n_row;
    int n_key = first_pos + end;
    if (threadIdx.x >= n_group * 128) {
        if (n_group > 1) setmaxnreg_dec<40>();
        if (!inside) return;
        produce<head_dim, n_group>(p, smem, head, row0, n_key);
        if (produce_again<n_group>(smem + L::AGAIN))
            produce_finite<head_dim, n_group>(p, smem, head, row0, n_key);
    } else {
        if (n_group > 1) setmaxnreg_inc<232>();
        if (!inside) return;
        if (consume<head_dim, n_group, false>(a, smem, head, row0, first_pos, n_key))
            st_shared_u32(smem + L::AGAIN, 1);
        if (consume_again<n_group>(smem + L::AGAIN))
            consume<head_dim, n_group, true>(a, smem, head, row0, first_pos, n_key);
    }
}

template <int head_dim, int n_group>
brim_status launch(const brim_cuda_attention_args &a, cudaStream_t stream, brim_error *err)
{
    enum { ROWS = n_group * GROUP_ROWS };
    brim_launch_shape shape = {};
    shape.grid = dim3((unsigned)a.n_head, (unsigned)((a.n_row + ROWS - 1) / ROWS));
    shape.block = dim3(128 + 128 * n_group);
    shape.smem_bytes = layout<head_dim, n_group>::SMEM_BYTES;
    shape.pdl = a.pdl;
    prefill_params p = {};
    p.a = a;
    int64_t width = (int64_t)a.n_head * head_dim, n_kv = a.kv.n_head_kv * a.kv.n_position;
    BRIM_TRY(brim_tensormap_bf16(&p.q, a.q, a.n_row, width, width, ROWS, err));
    BRIM_TRY(brim_tensormap_bf16(&p.k, a.kv.k, n_kv, head_dim, head_dim, KEYS, err));
    BRIM_TRY(brim_tensormap_bf16(&p.v, a.kv.v, n_kv, head_dim, head_dim, KEYS, err));
    return BRIM_LAUNCH((attn_prefill<head_dim, n_group>), shape, stream, p, err);
}

} // namespace

extern "C" brim_status brim_cuda_attention_prefill(const struct brim_cuda_attention_args *args,
                                                   void *stream, brim_error *err)
{
    BRIM_TRY(brim_cuda_attn_check(args, err));
    if (args->n_row == 0) return BRIM_OK;
    cudaStream_t s = (cudaStream_t)stream;
    if (args->kv.dtype != BRIM_DTYPE_F16 || (args->kv.head_dim != 64 && args->kv.head_dim != 128))
        return brim_cuda_attn_any(args, s, err);
    BRIM_REQUIRE(err, args->kv.n_head_kv * args->kv.n_position <= INT32_MAX, BRIM_E_RANGE,
                 "attention: a cache of %lld positions is too long for prefill",
                 (long long)args->kv.n_position);
    bool halve = (args->n_row + 127) / 128 * args->n_head < N_SM;
    if (args->kv.head_dim == 64)
        return halve ? launch<64, 1>(*args, s, err) : launch<64, 2>(*args, s, err);
    return halve ? launch<128, 1>(*args, s, err) : launch<128, 2>(*args, s, err);
}
