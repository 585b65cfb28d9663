/* SPDX-License-Identifier: Apache-2.0
 * K2: one consumer warpgroup carries 64 value rows of the state, S^T [64 V][128 K], in wgmma
 * accumulators through the chunks of a task:
 *     U^T = Z^T - S^T W^T     O^T = S^T qd^T + U^T Mqk^T     S^T <- S^T diag(gamma) + U^T kr
 * An accumulator packed to bf16 is the next product's A operand, so S and U never leave registers.
 * W arrives negated and Z is the accumulator's first value. O of a chunk is stored while the
 * products of the next one run. */
#ifndef BRIM_CUDA_KDA_ADVANCE_CUH
#define BRIM_CUDA_KDA_ADVANCE_CUH

#include "cuda/kda/params.cuh"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/wgmma.cuh"

/* Volatile: must stay between the issue of a product and the wait for it, where the code has it. */
BRIM_DEVICE void kda_scale(float &x, float by)
{
    mul_here(x, by);
}

/* Element (v, k) of one head's state in the caller's layout. */
BRIM_DEVICE int kda_state_at(const kda_params &p, int v, int k)
{
    return p.k_first ? k * 128 + v : v * 128 + k;
}

/* Two neighbours of K in a state, which lie beside each other unless K comes first. */
template <bool k_first> BRIM_DEVICE void kda_pair_put(float *at, float x, float y)
{
    if (k_first)
        at[0] = x, at[128] = y;
    else
        *(float2 *)at = make_float2(x, y);
}

template <bool k_first> BRIM_DEVICE void kda_pair_put(uint16_t *at, float x, float y)
{
    uint32_t pair = bf16x2_pack(x, y);
    if (k_first)
        at[0] = (uint16_t)pair, at[128] = (uint16_t)(pair >> 16);
    else
        *(uint32_t *)at = pair;
}

/* each(i, where a lane's values i and i + 1 of one head's state lie): at constant distances, so
 * that every form is a run of plain loads or stores. */
template <bool k_first, class T, class Each>
BRIM_DEVICE void kda_state_each(T *at, int row, int col, Each each)
{
    T *first = at + (k_first ? col * 128 + row : row * 128 + col);
#pragma unroll
    for (int i = 0; i < 64; i += 2)
        each(i, first + (i >> 2) * (k_first ? 1024 : 8) + (i >> 1 & 1) * (k_first ? 8 : 1024));
}

template <class T>
BRIM_DEVICE void kda_state_put(T *at, int k_first, int row, int col, const float (&s)[64])
{
    if (k_first)
        kda_state_each<true>(at, row, col,
                             [&](int i, T *x) { kda_pair_put<true>(x, s[i], s[i + 1]); });
    else
        kda_state_each<false>(at, row, col,
                              [&](int i, T *x) { kda_pair_put<false>(x, s[i], s[i + 1]); });
}

/* A few at a time: their loads are under way at once, and not all by each form on its own, as they
 * are stored: registers that several branches write cost the loop over chunks its overlap of
 * products and decay (10 % of K2). given: is the initial state this task's at all? */
BRIM_DEVICE void kda_state_load(const kda_params &p, const kda_task &t, int row, int col,
                                float (&s)[64], bool given = true)
{
    enum { N_AT_ONCE = 16 };
    int64_t slot = p.state_index ? p.state_index[t.seq] : t.seq;
    bool read = p.initial && !(p.state_index && (slot < 0 || slot >= p.n_slot)) &&
                !(p.fresh && p.fresh[t.seq]) && given;
    int64_t at = slot * p.state_stride + (int64_t)t.head * 16384;
#pragma unroll
    for (int i = 0; i < 64; i += N_AT_ONCE) {
        float x[N_AT_ONCE] = {};
        auto each = [&](auto load) {
#pragma unroll
            for (int n = 0; n < N_AT_ONCE; n++)
                x[n] = load(at + kda_state_at(p, row + 8 * ((i + n) >> 1 & 1),
                                              8 * ((i + n) >> 2) + col + ((i + n) & 1)));
        };
        if (read) {
            if (p.state_f32)
                each([&](int64_t j) { return ((const float *)p.initial)[j]; });
            else
                each([&](int64_t j) {
                    return __bfloat162float(((const __nv_bfloat16 *)p.initial)[j]);
                });
        }
#pragma unroll
        for (int n = 0; n < N_AT_ONCE; n++) s[i + n] = x[n];
    }
}

BRIM_DEVICE void kda_state_store(const kda_params &p, void *to, int64_t at, int row, int col,
                                 const float (&s)[64])
{
    if (p.state_f32)
        kda_state_put((float *)to + at, p.k_first, row, col, s);
    else
        kda_state_put((uint16_t *)to + at, p.k_first, row, col, s);
}

/* A checkpoint, from inside the loop over chunks: one run of stores for every form, because the
 * four of kda_state_put would lengthen the loop. */
BRIM_DEVICE void kda_checkpoint_store(const kda_params &p, int64_t at, int row, int col,
                                      const float (&s)[64])
{
#pragma unroll
    for (int j = 0; j < 16; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float x = s[4 * j + 2 * h], y = s[4 * j + 2 * h + 1];
            int v = row + 8 * h, k = 8 * j + col;
            int64_t i = at + kda_state_at(p, v, k);
            int step = p.k_first ? 128 : 1;
            if (p.state_f32) {
                ((float *)p.checkpoints)[i] = x;
                ((float *)p.checkpoints)[i + step] = y;
            } else {
                ((__nv_bfloat16 *)p.checkpoints)[i] = __float2bfloat16_rn(x);
                ((__nv_bfloat16 *)p.checkpoints)[i + step] = __float2bfloat16_rn(y);
            }
        }
}

/* The 64 values of a warpgroup on their way to the output's token rows. Each warp puts its 16
 * values, transposed, into its own columns of a panel of 128-byte token rows; from there whole rows
 * are moved, four to an instruction: storing a warp's own 32 bytes of 32 rows would take 32 tag
 * cycles an instruction, 0.28 us a chunk (measured). Where spare warps exist one of them per
 * warpgroup moves the rows (kda_out_writer), else the consumer warps do, eight rows each. */
struct kda_out {
    char *out;    /* where this lane's piece of the next chunk's first rows goes */
    int64_t four; /* bytes of four tokens */
    int left;     /* tokens from this lane's first row on, at most 0 behind the end */
    int quiet;    /* chunks still to be passed over */
};

BRIM_DEVICE kda_out kda_out_make(const kda_params &p, const kda_task &t, int wg, int token,
                                 int piece)
{
    kda_out w;
    w.out = (char *)(t.out + token * p.out_stride.token + wg * 64 + piece * 8);
    w.four = 8 * p.out_stride.token;
    w.left = t.n_tok - token;
    w.quiet = 0;
    return w;
}

/* `at`: offset of this lane's matrix row in the panel. */
BRIM_DEVICE void kda_out_put(uint32_t panel, uint32_t at, const uint32_t (&o)[8])
{
    uint32_t low[4] = {o[0], o[1], o[2], o[3]}, high[4] = {o[4], o[5], o[6], o[7]};
    stmatrix_x4_trans(panel + at, low);
    stmatrix_x4_trans(panel + at + 2048, high); /* tokens 16..31: the same swizzle */
}

/* Eight rows from `get` on; four rows on, bit 2 of the swizzle flips. */
BRIM_DEVICE void kda_out_move(kda_out &w, uint32_t panel, uint32_t get, int wg)
{
    named_barrier_sync(14 + wg, 128);
    uint4 a = ld_shared_v4(panel + get), b = ld_shared_v4(panel + (get ^ 64) + 512);
    bool wanted = w.quiet <= 0;
    if (wanted && w.left > 0) *(uint4 *)w.out = a;
    if (wanted && w.left > 4) *(uint4 *)(w.out + w.four) = b;
    w.quiet--;
    w.out += 8 * w.four;
    w.left -= KDA_CHUNK;
}

/* Two panels and four mbarriers a warpgroup: put[i] takes its four warps, taken[i] the writer. */
struct kda_panels {
    uint32_t at, put, taken;
};

BRIM_DEVICE kda_panels kda_panels_of(uint32_t staging, uint32_t bars, int wg)
{
    kda_panels s = {staging + wg * 2 * KDA_PANEL, bars + wg * 32, bars + wg * 32 + 16};
    return s;
}

/* One warp: the rows of every chunk of a warpgroup but the first `quiet`. */
BRIM_DEVICE void kda_out_writer(const kda_params &p, const kda_task &t, kda_panels s, int wg,
                                int lane, int quiet)
{
    kda_out w = kda_out_make(p, t, wg, lane >> 3, lane & 7);
    uint32_t get = swizzle_128b(lane >> 3, lane & 7);
#pragma unroll 1
    for (int k = 0; k < t.n_chunk; k++) {
        uint32_t panel = s.at + (k & 1) * KDA_PANEL;
        mbarrier_wait(s.put + 8 * (k & 1), (k >> 1) & 1);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint4 v[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = ld_shared_v4(panel + (get ^ (i & 1) * 64) + (half * 4 + i) * 512);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (w.left > 0 && k >= quiet) *(uint4 *)w.out = v[i];
                w.out += w.four;
                w.left -= 4;
            }
        }
        __syncwarp();
        if (lane == 0) mbarrier_arrive(s.taken + 8 * (k & 1));
    }
}

/* A whole sequence. */
struct kda_whole {
    static constexpr bool cut = false, joined = false, queued = false, rest = false;
    static constexpr int quiet = 0;
};

/* What segments have left of a sequence, all of it at chunk0 = 0 (finish.cuh). */
struct kda_rest {
    static constexpr bool cut = false, joined = false, queued = false, rest = true;
    int chunk0; /* the sequence's chunk that is 0 here; where it is not 0 the state before it is */
    int quiet;  /* chunks to be passed over without output */
};

/* A whole sequence, one of several that a CTA works through. */
struct kda_queued {
    static constexpr bool cut = false, joined = false, queued = true, rest = false;
    uint32_t first; /* packets of those before */
};

/* One segment of a sequence with the window before it; chunks counted from the window's first. */
struct kda_segment {
    static constexpr bool cut = true, joined = false, queued = false, rest = false;
    int chunk0;             /* the sequence's chunk that is 0 here */
    int quiet;              /* chunks of the window: no output */
    int mark;               /* where the next segment's window begins; -1: there is none */
    bool zero;              /* starts from zero, not from the initial state */
    bool last;              /* its state is the sequence's final one */
    float *final;           /* where that goes, or null: to its destination at once */
    uint32_t wrote, before; /* shared memory, a float for each consumer warp: shares of |S|^2 where
                               the window ends, and at `mark` */
};

/* Behind its barriers: one that takes each consumer warp with all that it records, or that stops,
 * and each instance at its end; one that takes each that has stopped, for an instance that would
 * wait for its stage in vain; then a word a stage, nonzero in place of a packet. */
BRIM_DEVICE uint32_t kda_segment_done(uint32_t empty, int n_stage)
{
    return empty + 8 * n_stage;
}

BRIM_DEVICE uint32_t kda_segment_gone(uint32_t empty, int n_stage)
{
    return empty + 8 * n_stage + 8;
}

BRIM_DEVICE uint32_t kda_segment_stop(uint32_t empty, int n_stage)
{
    return empty + 8 * n_stage + 16;
}

/* One segment whose incoming state is known; chunks counted from its first. */
struct kda_joined {
    static constexpr bool cut = false, joined = true, queued = false, rest = false;
    int chunk0;        /* the sequence's chunk that is 0 here */
    bool last;         /* its state is the sequence's final one */
    const float *from; /* the state before it, [128 V][128 K] */
};

/* 64 value rows of a state [128 V][128 K] as they lie in the accumulators. */
BRIM_DEVICE void kda_plain_load(const float *from, int row, int col, float (&s)[64])
{
#pragma unroll
    for (int j = 0; j < 16; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float2 x = *(const float2 *)(from + (row + 8 * h) * 128 + 8 * j + col);
            s[4 * j + 2 * h] = x.x;
            s[4 * j + 2 * h + 1] = x.y;
        }
}

BRIM_DEVICE void kda_plain_store(float *to, int row, int col, const float (&s)[64])
{
#pragma unroll
    for (int j = 0; j < 16; j++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            *(float2 *)(to + (row + 8 * h) * 128 + 8 * j + col) =
                make_float2(s[4 * j + 2 * h], s[4 * j + 2 * h + 1]);
}

/* More than 64 roundings among numbers below 2^-126 can lose. */
#define KDA_SQUARES_LOST 1e-42f

/* This warp's share of |S|^2, to `wrote` no more than that, to `before`, unless S is 0, no less. */
BRIM_DEVICE void kda_record_norm(const kda_segment &range, int c, const float (&s)[64], int wg,
                                 int warp, int lane)
{
    float sums[4] = {};
    uint32_t any = 0;
#pragma unroll
    for (int i = 0; i < 64; i++) {
        sums[i & 3] = fmaf(s[i], s[i], sums[i & 3]);
        any |= __float_as_uint(s[i]);
    }
    float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    float least = any << 1 ? KDA_SQUARES_LOST : 0;
#pragma unroll
    for (int i = 16; i > 0; i >>= 1) {
        sum += __shfl_xor_sync(0xFFFFFFFF, sum, i);
        least += __shfl_xor_sync(0xFFFFFFFF, least, i);
    }
    if (lane) return;
    if (c == range.quiet) st_shared_f32(range.wrote + (wg * 4 + warp) * 4, sum);
    if (c == range.mark) st_shared_f32(range.before + (wg * 4 + warp) * 4, sum + least);
}

/* wg: which 64 value rows. Stage of chunk c is c % n_stage at stages + that * KDA_PACKET_BYTES;
 * full and empty are arrays of mbarriers, one a stage. `empty` takes one arrival of every consumer
 * warp. hold_gamma spends 32 registers to read gamma ahead. With has_writer the output passes
 * through `panels` to a warp that stores it, else through the Z panel of the next chunk's stage,
 * which its warps have read by then (only where the stage is refilled by ordinary stores). */
template <int n_stage, bool hold_gamma, bool has_writer, class Range>
BRIM_DEVICE void kda_advance(const kda_params &p, const kda_task &t, const Range &range,
                             uint32_t stages, uint32_t full, uint32_t empty, kda_panels panels,
                             int wg, int tid)
{
    int warp = tid >> 5, lane = tid & 31;
    int row = wg * 64 + warp * 16 + (lane >> 2), col = 2 * (lane & 3);
    float s[64], y[16], o[16];
    uint32_t a[8][4], u[2][4], packed[8];
    if constexpr (Range::cut) {
        if (range.zero) {
#pragma unroll
            for (int i = 0; i < 64; i++) s[i] = 0;
        } else {
            kda_state_load(p, t, row, col, s);
        }
    } else if constexpr (Range::joined) {
        kda_plain_load(range.from, row, col, s);
    } else if constexpr (Range::rest) {
        kda_state_load(p, t, row, col, s, range.chunk0 == 0);
    } else {
        kda_state_load(p, t, row, col, s);
    }
    int z_token = ((lane >> 4) << 3) + (lane & 7), z_piece = 2 * warp + ((lane >> 3) & 1);
    uint32_t z_at = KDA_PACKET_Z + wg * KDA_PANEL + swizzle_128b(z_token, z_piece);
    int stage = 0;
    uint32_t parity = 0;
    if constexpr (Range::queued) {
        stage = (int)(range.first % n_stage);
        parity = range.first / n_stage & 1;
    }
    uint32_t z[8];
    float4 gamma[8];
    uint32_t gamma_at =
        KDA_PACKET_GAMMA + kda_gamma_at(lane & 3); /* its piece 0; the others by xor */
    auto load_gamma = [&](uint32_t packet,
                          int i) { /* columns 16 i + col .. + 1 and 16 i + 8 + col .. + 1 */
                                   gamma[i] = ld_shared_v4_f32(packet + (gamma_at ^ (i << 4)));
    };
    auto load_ahead = [&](uint32_t packet) { /* what the chain wants in registers */
#pragma unroll
                                             for (int j = 0; j < 2; j++) {
                                                 uint32_t r[4];
                                                 ldmatrix_x4_trans(r, packet + z_at + j * 16 * 128);
#pragma unroll
                                                 for (int i = 0; i < 4; i++) z[4 * j + i] = r[i];
                                             }
#pragma unroll
                                             for (int i = 0; hold_gamma && i < 8; i++)
                                                 load_gamma(packet, i);
    };
    uint32_t put_at = swizzle_128b(z_token, z_piece);
    kda_out out = kda_out_make(p, t, wg, warp * 8 + (lane >> 3), lane & 7);
    if constexpr (Range::cut || Range::rest) out.quiet = range.quiet;
    uint32_t get_at = swizzle_128b(warp * 8 + (lane >> 3), lane & 7);
    /* O of chunk k, packed, on its way */
    auto put_out = [&](int k, uint32_t z_panel) {
        uint32_t panel = has_writer ? panels.at + (k & 1) * KDA_PANEL : z_panel;
        if (has_writer && k >= 2) mbarrier_wait(panels.taken + 8 * (k & 1), ((k >> 1) - 1) & 1);
        kda_out_put(panel, put_at, packed);
        if (has_writer) {
            __syncwarp();
            if (lane == 0) mbarrier_arrive(panels.put + 8 * (k & 1));
        }
    };
#pragma unroll
    for (int i = 0; i < 8; i++) packed[i] = 0;
    if (t.n_chunk > 0) {
        mbarrier_wait(full + 8 * stage, parity);
        load_ahead(stages + stage * KDA_PACKET_BYTES);
    }

#pragma unroll 1
    for (int c = 0; c < t.n_chunk; c++) {
        uint32_t packet = stages + stage * KDA_PACKET_BYTES;
        if constexpr (Range::cut) {
            uint32_t stop = ld_shared_u32(kda_segment_stop(empty, n_stage) + 4 * stage);
            if (stop) { /* the same for all consumers: written before the stage was full */
                if (lane == 0) {
                    mbarrier_arrive(kda_segment_gone(empty, n_stage));
                    if (c <= max(range.quiet, range.mark))
                        mbarrier_arrive(kda_segment_done(empty, n_stage));
                }
                return;
            }
            if (c == range.quiet || c == range.mark) kda_record_norm(range, c, s, wg, warp, lane);
            if (lane == 0 && c == max(range.quiet, range.mark))
                mbarrier_arrive(kda_segment_done(empty, n_stage));
        }
        uint64_t desc_w = wgmma_desc_128b(packet + KDA_PACKET_W, 16, 1024);
        uint64_t desc_q = wgmma_desc_128b(packet + KDA_PACKET_QD, 16, 1024);
        uint64_t desc_k = wgmma_desc_128b(packet + KDA_PACKET_KR, KDA_PANEL, 1024);
        uint64_t desc_m = wgmma_desc_128b(packet + KDA_PACKET_MQK, 16, 1024);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            y[2 * i] = bf16_lo(z[i]);
            y[2 * i + 1] = bf16_hi(z[i]);
        }
#pragma unroll
        for (int k = 0; k < 8; k++)
#pragma unroll
            for (int r = 0; r < 4; r++)
                a[k][r] = bf16x2_pack(s[8 * k + 2 * r], s[8 * k + 2 * r + 1]);
        KDA_HOOK(p, KDA_AT_CHUNK, c);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 8; k++)
            wgmma_m64k16<32>::rs<1, 0>(y, a[k], desc_w + (k >> 2) * (KDA_PANEL >> 4) + (k & 3) * 2);
        wgmma_commit();
        wgmma_m64k16<32>::rs<0, 0>(o, a[0], desc_q);
#pragma unroll
        for (int k = 1; k < 8; k++)
            wgmma_m64k16<32>::rs<1, 0>(o, a[k], desc_q + (k >> 2) * (KDA_PANEL >> 4) + (k & 3) * 2);
        wgmma_commit();
        /* while they run: decay the state, which the products read through `a`; no branch may stand
         * before that, or ptxas waits for the products there */
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (!hold_gamma) load_gamma(packet, i);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                kda_scale(s[8 * i + 2 * h], gamma[i].x);
                kda_scale(s[8 * i + 2 * h + 1], gamma[i].y);
                kda_scale(s[8 * i + 4 + 2 * h], gamma[i].z);
                kda_scale(s[8 * i + 4 + 2 * h + 1], gamma[i].w);
            }
        }
        uint32_t z_panel = packet + KDA_PACKET_Z + wg * KDA_PANEL;
        if (!has_writer && c > 0) put_out(c - 1, z_panel);
        wgmma_wait<1>();
        wgmma_pin(y);
#pragma unroll
        for (int k = 0; k < 2; k++)
#pragma unroll
            for (int r = 0; r < 4; r++)
                u[k][r] = bf16x2_pack(y[8 * k + 2 * r], y[8 * k + 2 * r + 1]);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 2; k++) wgmma_m64k16<128>::rs<1, 1>(s, u[k], desc_k + k * (2048 >> 4));
        wgmma_commit();
#pragma unroll
        for (int k = 0; k < 2; k++) wgmma_m64k16<32>::rs<1, 0>(o, u[k], desc_m + k * 2);
        wgmma_commit();
        /* while they run: hand the last O on and fetch what the next chunk starts with */
        if (has_writer && c > 0) put_out(c - 1, z_panel);
        int last_stage = stage;
        if (++stage == n_stage) {
            stage = 0;
            parity ^= 1;
        }
        if (c + 1 < t.n_chunk) {
            mbarrier_wait(full + 8 * stage, parity);
            load_ahead(stages + stage * KDA_PACKET_BYTES);
        }
        if (!has_writer && c > 0) kda_out_move(out, z_panel, get_at, wg);
        wgmma_wait<0>();
        wgmma_pin(s);
        wgmma_pin(o);
        /* all reads of the packet are complete; but the last O will pass through its Z panel */
        if (!has_writer) __syncwarp(); /* of the panel too, by every lane */
        if (lane == 0 && !(Range::queued && c + 1 == t.n_chunk))
            mbarrier_arrive(empty + 8 * last_stage);
#pragma unroll
        for (int i = 0; i < 8; i++) packed[i] = bf16x2_pack(o[2 * i], o[2 * i + 1]);
        int whole_c = c;
        bool wanted = true;
        if constexpr (Range::cut || Range::rest) {
            whole_c += range.chunk0;
            wanted = c >= range.quiet;
        }
        if constexpr (Range::joined) whole_c += range.chunk0;
        if (p.checkpoints && (whole_c & 1) && (c + 1) * KDA_CHUNK <= t.n_tok && wanted) {
            opaque(row, col); /* no addresses kept across chunks */
            int64_t first = p.offset_bytes ? t.row0 / 64 : t.seq * (p.n_tok / 64);
            kda_checkpoint_store(p, ((first + (whole_c >> 1)) * p.n_value_head + t.head) * 16384,
                                 row, col, s);
        }
    }
    if (t.n_chunk > 0) {
        int last_stage = (t.n_chunk - 1) % n_stage;
        if constexpr (Range::queued) last_stage = stage > 0 ? stage - 1 : n_stage - 1;
        uint32_t z_panel = stages + last_stage * KDA_PACKET_BYTES + KDA_PACKET_Z + wg * KDA_PANEL;
        /* the panel is the one that the last-but-one O has just been read from, by all warps */
        if (!has_writer) named_barrier_sync(14 + wg, 128);
        put_out(t.n_chunk - 1, z_panel);
        if (!has_writer) kda_out_move(out, z_panel, get_at, wg);
        if constexpr (Range::queued) {
            __syncwarp();
            if (lane == 0) mbarrier_arrive(empty + 8 * last_stage);
        }
    }
    if constexpr (Range::cut) {
        if (!range.last) return;
        if (range.final) {
            kda_plain_store(range.final, row, col, s);
            return;
        }
    }
    if constexpr (Range::joined) {
        if (!range.last) return;
    }
    int64_t slot = p.state_index ? p.state_index[t.seq] : t.seq;
    if (p.final && !(p.state_index && (slot < 0 || slot >= p.n_slot)))
        kda_state_store(p, p.final, slot * p.state_stride + (int64_t)t.head * 16384, row, col, s);
}

#endif
