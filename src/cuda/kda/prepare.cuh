/* SPDX-License-Identifier: Apache-2.0
 * K1: one preparation instance (128 threads) turns a chunk's q, k, v, g, beta into its packet.
 *
 * Stages, a named barrier between them: norms and the gate's running sum; decayed rows (both
 * decay.cuh); the three 16 x 16 blocks of k k^T and q k^T (one warp each), while warp 3 fetches the
 * next chunk's q and g where their tiles are free; the inverse (warp 2, lane = column of a diagonal
 * block, then the block below them), while warps 1 and 3 fetch the rest; W = INV diag(beta) kd and
 * Z = INV diag(beta) V (warp = 32 columns). Numerics: src/cpu/ref/kda_chunk.c rounds at the same
 * places. Tokens past the end have q, k, v, beta and log decay zero, so they change nothing. */
#ifndef BRIM_CUDA_KDA_PREPARE_CUH
#define BRIM_CUDA_KDA_PREPARE_CUH

#include "cuda/kda/free.cuh"

/* Between the stages, for a program that times them (tests/cuda/bench_kda_prepare.cu). */
#ifndef KDA_STAMP
#define KDA_STAMP(stage) ((void)0)
#endif

/* Sums of two bf16, the second the rest of the first: 16 bits of the value. */
BRIM_DEVICE void kda_pack_split(uint32_t &high, uint32_t &low, float x, float y)
{
    high = bf16x2_pack(x, y);
    low = bf16x2_pack(x - bf16_lo(high), y - bf16_hi(high));
}

/* Where Mqk's diagonal element of a token waits, in fp32, for the warp that writes its block. */
BRIM_DEVICE uint32_t kda_own_at(uint32_t packet, int token)
{
    return packet + KDA_PACKET_MQK + kda_panel_at(token, token >> 4 << 1);
}

/* Warps 0, 1, 2: blocks (0,0), (1,1), (1,0) of L and Mqk. Warp 3 clears Mqk's block (0,1). Mqk's
 * diagonal is known: the decays of its factors cancel, their roundings would not. The diagonal
 * blocks of L go to memory; warp 2 keeps its block, split, as the second operand of a product:
 * rows lane / 4 + 8 h, columns 8 n + 2 (lane % 4) + e in [h][n]. */
template <class L>
BRIM_DEVICE void kda_pairs(const kda_params &p, const kda_prep &s, uint32_t k_tile, uint32_t packet,
                           uint32_t (&high)[2][2], uint32_t (&low)[2][2])
{
    int warp = s.tid >> 5, lane = s.tid & 31;
    int row0 = warp == 0 ? 0 : KDA_SUB, col0 = warp == 1 ? KDA_SUB : 0;
    float kk[2][4] = {}, qk[2][4] = {};
    if (warp == 3) {
        st_shared_v4_u32(packet + KDA_PACKET_MQK + kda_panel_at(lane >> 1, 2 + (lane & 1)), 0, 0, 0,
                         0);
        return;
    }
    if (!L::bounded && warp < 2) {
        kda_pairs_free<L>(s, packet, warp, lane);
        return;
    }
    /* block (0,0) finds its query rows in the packet */
    uint32_t tiles = kda_pair_tiles<L>(s, packet);
    uint32_t q_base = warp == 0 ? packet + KDA_PACKET_QD : tiles + L::rows;
    uint32_t q_pitch = warp == 0 ? 128 : 256, q_half = warp == 0 ? KDA_PANEL : 128;
    int a_row = row0 + (lane & 15), a_piece = lane >> 4;
    int b_row = col0 + (lane & 7) + ((lane >> 4) << 3), b_piece = (lane >> 3) & 1;
    uint32_t k_at = k_tile + kda_tile_at(a_row, a_piece);
    uint32_t b_at = tiles + (warp == 2 ? L::rows : L::columns) + kda_tile_at(b_row, b_piece);
    uint32_t q_at = q_base + a_row * q_pitch + ((a_piece ^ (a_row & 7)) << 4);
    uint32_t ka[3][4], qa[3][4], b[3][4]; /* those of two steps arrive during the products */
    auto fetch = [&](int i) {
        ldmatrix_x4(ka[i % 3], k_at ^ (i << 5));
        ldmatrix_x4(b[i % 3], b_at ^ (i << 5));
        ldmatrix_x4(qa[i % 3], (q_at ^ ((i & 3) << 5)) + (i >> 2) * q_half);
    };
    fetch(0);
    fetch(1);
    float beta[2], own[2] = {};
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = row0 + (lane >> 2) + 8 * h;
        beta[h] = ld_shared_f32(s.work + L::small + KDA_SMALL_BETA + s.flip * 128 + row * 4);
        if (L::bounded && warp < 2) own[h] = ld_shared_f32(kda_own_at(packet, row));
    }
    if (L::bounded) __syncwarp(); /* its place is written below */
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (i < 6) fetch(i + 2);
#pragma unroll
        for (int n = 0; n < 2; n++) {
            mma_bf16_16816(kk[n], ka[i % 3], b[i % 3][2 * n], b[i % 3][2 * n + 1]);
            mma_bf16_16816(qk[n], qa[i % 3], b[i % 3][2 * n], b[i % 3][2 * n + 1]);
        }
    }
    /* powers of two: exact. The rows of k carry 2^mid, the columns of diagonal blocks 2^-mid. */
    bool below = warp == 2;
    float unmid = kda_unmid(p), mid = __uint_as_float((uint32_t)(127 + p.mid) << 23);
    float kk_by = below ? unmid : 1.0f, qk_by = below ? 1.0f : mid;
    /* this lane's first elements of Mqk, and of L by columns; the others lie where bits of the
     * swizzle and whole rows lead from there */
    int r = lane >> 2, x = 2 * (lane & 3);
    uint32_t mqk = packet + KDA_PACKET_MQK;
    uint32_t mqk_at = mqk + kda_panel_at(row0 + r, col0 >> 3) + x * 2;
    uint32_t l_at = mqk + kda_inv_at(col0 + x, r >> 2) + (r & 3) * 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = r + 8 * h;
#pragma unroll
        for (int n = 0; n < 2; n++) {
            int col = x + 8 * n;
            /* selects, not products: above the diagonal the factored product may be infinite */
            float m0 = below || col <= row ? qk[n][2 * h] * qk_by : 0.0f;
            float m1 = below || col + 1 <= row ? qk[n][2 * h + 1] * qk_by : 0.0f;
            if (L::bounded && n == h && !below && kda_own_row(lane)) {
                m0 = r & 1 ? m0 : own[h];
                m1 = r & 1 ? own[h] : m1;
            }
            st_shared_u32((mqk_at ^ (n << 4)) + h * 1024, bf16x2_pack(m0, m1));
        }
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int e = 0; e < 4; e++) kk[e >> 1][2 * h + (e & 1)] *= kk_by * beta[h];
    if (below) {
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int n = 0; n < 2; n++)
                kda_pack_split(high[h][n], low[h][n], kk[n][2 * h], kk[n][2 * h + 1]);
    } else { /* what lies on or above the diagonal is not read */
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int n = 0; n < 2; n++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    st_shared_f32((l_at ^ (h << 5 | e << 4)) + n * 1024 + e * 128,
                                  kk[n][2 * h + e]);
    }
}

/* Column `col` of (I + L)^-1 by forward substitution; L's columns, as floats, lie at l_at. */
BRIM_DEVICE void kda_substitute(float (&a)[16], uint32_t l_at, int col)
{
#pragma unroll
    for (int r = 0; r < 16; r++) a[r] = r == col ? 1.0f : 0.0f;
    float4 l[4][4]; /* three columns ahead */
    auto fetch = [&](int y) {
#pragma unroll
        for (int i = (y + 1) / 4; i < 4; i++)
            l[y % 4][i] = ld_shared_v4_f32(l_at + kda_inv_at(y, i));
    };
#pragma unroll
    for (int y = 0; y < 3; y++) fetch(y);
#pragma unroll
    for (int y = 0; y < 15; y++) {
        if (y < 12) fetch(y + 3);
#pragma unroll
        for (int i = (y + 1) / 4; i < 4; i++) {
            float4 v = l[y % 4][i];
            if (4 * i > y) a[4 * i] = fmaf(-v.x, a[y], a[4 * i]);
            if (4 * i + 1 > y) a[4 * i + 1] = fmaf(-v.y, a[y], a[4 * i + 1]);
            if (4 * i + 2 > y) a[4 * i + 2] = fmaf(-v.z, a[y], a[4 * i + 2]);
            if (4 * i + 3 > y) a[4 * i + 3] = fmaf(-v.w, a[y], a[4 * i + 3]);
        }
    }
}

/* d = (ah + al) (bh + bl) without al bl: three products in flight, then their sum. */
BRIM_DEVICE void kda_mma_split(float (&d)[4], const uint32_t (&ah)[4], const uint32_t (&al)[4],
                               const uint32_t (&bh)[2], const uint32_t (&bl)[2])
{
    float high[4] = {}, low[4] = {}, rest[4] = {};
    mma_bf16_16816(rest, al, bh[0], bh[1]);
    mma_bf16_16816(low, ah, bl[0], bl[1]);
    mma_bf16_16816(high, ah, bh[0], bh[1]);
#pragma unroll
    for (int i = 0; i < 4; i++) d[i] = high[i] + (low[i] + rest[i]);
}

/* Warp 2: (I + L)^-1 in fp32, times beta of the column, as bf16, transposed: with L = [[A, 0], [B,
 * D]] it is [[P, 0], [-Q B P, Q]], P = (I + A)^-1 and Q = (I + D)^-1. P and Q by substitution, lane
 * = a column of P (0..15) or of Q (16..31), which replaces the column of L. Split into two bf16
 * they also go to TOTAL's place, for the transpose of -Q B P as -(P^T B^T) Q^T in products of split
 * bf16. B is the second operand of the first product and its result the first of the second. */
template <class L>
BRIM_DEVICE void kda_invert(const kda_prep &s, uint32_t packet, const uint32_t (&bh)[2][2],
                            const uint32_t (&bl)[2][2], int lane)
{
    uint32_t small = s.work + L::small, at = small + KDA_SMALL_TOTAL;
    uint32_t columns = packet + KDA_PACKET_MQK;
    uint32_t beta_at = small + KDA_SMALL_BETA + s.flip * 128;
    int half = lane >> 4, col = lane & 15, row = lane >> 2;
    float a[16];
    kda_substitute(a, columns + half * 2048, col);
    float beta = ld_shared_f32(beta_at + lane * 4);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t high[4], low[4], to = at + half * 1024 + kda_square_at(col, i);
#pragma unroll
        for (int e = 0; e < 4; e++)
            kda_pack_split(high[e], low[e], a[8 * i + 2 * e], a[8 * i + 2 * e + 1]);
        st_shared_v4_u32(to, high[0], high[1], high[2], high[3]);
        st_shared_v4_u32(to + 512, low[0], low[1], low[2], low[3]);
    }
    __syncwarp(); /* P and Q are there, all lanes have read L */
    uint32_t ah[4], al[4], qh[4], ql[4];
    uint32_t p_at = at + kda_square_at(lane & 15, lane >> 4), q_at = p_at + 1024;
    ldmatrix_x4(ah, p_at);
    ldmatrix_x4(al, p_at + 512);
    ldmatrix_x4_trans(qh, q_at);
    ldmatrix_x4_trans(ql, q_at + 512);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t x[4];
#pragma unroll
        for (int e = 0; e < 4; e++)
            x[e] = bf16x2_pack(a[8 * i + 2 * e] * beta, a[8 * i + 2 * e + 1] * beta);
        st_shared_v4_u32(columns + kda_inv_at(lane, 2 * half + i), x[0], x[1], x[2], x[3]);
    }
    float d[2][4], e[2][4];
#pragma unroll
    for (int i = 0; i < 2; i++) kda_mma_split(d[i], ah, al, bh[i], bl[i]);
#pragma unroll
    for (int n = 0; n < 2; n++) {
        kda_pack_split(ah[2 * n], al[2 * n], d[n][0], d[n][1]);
        kda_pack_split(ah[2 * n + 1], al[2 * n + 1], d[n][2], d[n][3]);
    }
    uint32_t inv = columns + (lane & 3) * 4;
    float beta0 = -ld_shared_f32(beta_at + row * 4);
    float beta1 = -ld_shared_f32(beta_at + row * 4 + 32);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t high[2] = {qh[2 * i], qh[2 * i + 1]}, low[2] = {ql[2 * i], ql[2 * i + 1]};
        kda_mma_split(e[i], ah, al, high, low);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        st_shared_u32(inv + kda_inv_at(row, 2 + i), bf16x2_pack(e[i][0] * beta0, e[i][1] * beta0));
        st_shared_u32(inv + kda_inv_at(row + 8, 2 + i),
                      bf16x2_pack(e[i][2] * beta1, e[i][3] * beta1));
    }
}

/* Of a tile's rows the warp's columns 32 w .. 32 w + 31, as second operands: the two halves' rows,
 * columns 16 i + 8 n at [i][2 n]. */
struct kda_fragments {
    uint32_t top[2][4], low[2][4];
};

BRIM_DEVICE void kda_fragments_load(kda_fragments &f, uint32_t tile, int warp, int lane)
{
    tile += kda_tile_at(lane & 15, warp * 4 + (lane >> 4));
#pragma unroll
    for (int i = 0; i < 2; i++) {
        ldmatrix_x4_trans(f.top[i], tile ^ (i << 5));
        ldmatrix_x4_trans(f.low[i], (tile ^ (i << 5)) + 16 * 256);
    }
}

template <class L>
BRIM_DEVICE void kda_fragments_v(kda_fragments &f, const kda_prep &s, int warp, int lane)
{
    kda_fragments_load(f, s.work + L::v + (L::twin ? s.flip * KDA_TILE : 0), warp, lane);
}

/* -W and Z; warp w has columns 32 w .. 32 w + 31 of both. f: those of v. */
template <class L>
BRIM_DEVICE void kda_solve(const kda_params &p, const kda_prep &s, uint32_t k_tile, uint32_t packet,
                           kda_fragments &f)
{
    int warp = s.tid >> 5, lane = s.tid & 31;
    uint32_t a00[4], a10[4], a11[4]; /* of INV diag(beta), stored by columns */
    uint32_t inv = packet + KDA_PACKET_MQK;
    int a_row = (lane & 7) + ((lane >> 4) << 3), a_piece = (lane >> 3) & 1;
    ldmatrix_x4_trans(a00, inv + kda_inv_at(a_row, a_piece));
    ldmatrix_x4_trans(a10, inv + kda_inv_at(a_row, 2 + a_piece));
    ldmatrix_x4_trans(a11, inv + kda_inv_at(16 + a_row, 2 + a_piece));
    uint32_t to = packet + kda_panel_at(lane, warp * 4);
    auto store = [&](uint32_t at, const float(&top)[4][4], const float(&low)[4][4]) {
#pragma unroll
        for (int n = 0; n < 4; n++) {
            uint32_t r[4] = {bf16x2_pack(top[n][0], top[n][1]), bf16x2_pack(top[n][2], top[n][3]),
                             bf16x2_pack(low[n][0], low[n][1]), bf16x2_pack(low[n][2], low[n][3])};
            stmatrix_x4((to ^ (n << 4)) + at, r);
        }
    };
    /* all products of a kind before the first result is used */
    auto product = [&](float(&d)[4][4], const uint32_t(&a)[4], const uint32_t(&b)[2][4]) {
#pragma unroll
        for (int n = 0; n < 4; n++)
            mma_bf16_16816(d[n], a, b[n >> 1][2 * (n & 1)], b[n >> 1][2 * (n & 1) + 1]);
    };
    {
        float top[4][4] = {}, low[4][4] = {};
        product(low, a10, f.top);
        product(top, a00, f.top);
        product(low, a11, f.low);
        kda_fragments_load(f, k_tile, warp, lane);
        store(KDA_PACKET_Z, top, low);
    }
    /* -W; the rows of the k tile carry 2^mid, those of the second half decay from its start on */
    uint32_t by = 0x80008000u | (uint32_t)(127 - p.mid) * 0x00800080u;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        a00[i] = mul_bf16x2(a00[i], by);
        a10[i] = mul_bf16x2(a10[i], by);
        a11[i] = mul_bf16x2(a11[i], by);
    }
    float top[4][4] = {}, low[4][4] = {}, own[4][4] = {};
    product(own, a11, f.low);
    product(low, a10, f.top);
    product(top, a00, f.top);
#pragma unroll
    for (int n = 0; n < 4; n++) {
        float2 end = ld_shared_v2_f32(s.work + L::small + KDA_SMALL_HALF +
                                      (warp * 32 + 8 * n + 2 * (lane & 3)) * 4);
#pragma unroll
        for (int e = 0; e < 4; e++) low[n][e] = fmaf(e & 1 ? end.y : end.x, own[n][e], low[n][e]);
    }
    store(KDA_PACKET_W, top, low);
}

/* Prepare `chunk`; the instance's next one is `next`, whose rows are fetched on the way. `packet`
 * is a shared-memory stage; wait_stage() returns once it may be written; meanwhile() is called by
 * warp 0, which has nothing to do during the inverse. On return every thread's part of the packet
 * is written by ordinary stores: the caller fences the proxies and signals. */
template <class L, class Wait, class Meanwhile>
BRIM_DEVICE void kda_prepare(const kda_params &p, const kda_task &t, kda_prep &s, int chunk,
                             int next, uint32_t packet, Wait wait_stage, Meanwhile meanwhile)
{
    /* else every address that depends on the thread is kept, and spilled, across chunks */
    opaque(s.tid, s.work);
    uint32_t k_tile = s.work + L::k + (L::twin ? s.flip * KDA_TILE : 0);
    int warp = s.tid >> 5, lane = s.tid & 31;
    cp_async_wait<0>();
    named_barrier_sync(s.bar, 128); /* the rows are here; everybody is done with the last chunk */
    KDA_STAMP(0);
    {
        float g[32];
        float own = kda_gate<L>(p, t, s, chunk, k_tile, g);
        wait_stage();
        if (L::bounded && kda_own_row(lane))
            st_shared_f32(kda_own_at(packet, warp * 8 + (lane >> 2)), own);
        named_barrier_sync(s.bar, 128); /* norms, totals */
        KDA_STAMP(1);
        if (!L::bounded)
            kda_decay_free<L>(p, s, k_tile, packet, g);
        else if (warp < 2)
            kda_decay<L, 0>(p, s, k_tile, packet, g);
        else
            kda_decay<L, 1>(p, s, k_tile, packet, g);
    }
    named_barrier_sync(s.bar, 128); /* decayed rows */
    KDA_STAMP(2);
    uint32_t below[2][2][2] = {}; /* of warp 2 */
    uint32_t beta = 0;            /* of the next chunk, on its way */
    if (warp == 3) beta = kda_load_beta(p, t, next, lane);
    kda_pairs<L>(p, s, k_tile, packet, below[0], below[1]);
    if (L::early && warp == 3) { /* it has no pairs */
        kda_fetch_qg<L, 32>(p, t, next, s, lane);
        cp_async_commit();
    }
    named_barrier_sync(s.bar, 128); /* L; the q and g tiles are free */
    KDA_STAMP(3);
    if (warp == 2) kda_invert<L>(s, packet, below[0], below[1], lane);
    if (warp == 0) meanwhile();
    if (!L::lean && (!L::early || L::twin) && (warp & 1)) {
        if (!L::early) kda_fetch_qg<L, 64>(p, t, next, s, (warp >> 1) * 32 + lane);
        if (L::twin) kda_fetch_kv<L, 64>(p, t, next, s, s.flip ^ 1, (warp >> 1) * 32 + lane);
        cp_async_commit();
    }
    constexpr bool v_late = L::lean && !L::bounded;
    if (v_late && (warp & 1)) {
        kda_fetch_v<L, 64>(p, t, chunk, s, (warp >> 1) * 32 + lane);
        cp_async_commit();
    }
    if (warp == 3) kda_store_beta<L>(p, t, next, s, s.flip ^ 1, lane, beta);
    kda_fragments f; /* of v: on their way while the inverse is waited for */
    if (v_late)
        cp_async_wait<0>();
    else
        kda_fragments_v<L>(f, s, warp, lane);
    named_barrier_sync(s.bar, 128); /* inverse */
    KDA_STAMP(4);
    if (v_late) kda_fragments_v<L>(f, s, warp, lane);
    kda_solve<L>(p, s, k_tile, packet, f);
    KDA_STAMP(5);
    s.flip ^= 1;
}

template <class L, class Wait>
BRIM_DEVICE void kda_prepare(const kda_params &p, const kda_task &t, kda_prep &s, int chunk,
                             int next, uint32_t packet, Wait wait_stage)
{
    kda_prepare<L>(p, t, s, chunk, next, packet, wait_stage, [] {});
}

#endif
