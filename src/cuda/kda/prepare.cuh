/* SPDX-License-Identifier: Apache-2.0
 * K1: one preparation instance (128 threads) turns a chunk's q, k, v, g, beta into its packet.
 *
 * Stages, a named barrier between them: norms and the gate's running sum (thread = channel pair x
 * half of the chunk); decayed rows; the three 16 x 16 blocks of k k^T and q k^T (one warp each);
 * the triangular inverse in fp32 (one warp, lane = column); W = INV diag(beta) kd and Z = INV
 * diag(beta) V (warp = 32 columns). Numerics: src/cpu/ref/kda_chunk.c rounds at the same places.
 * Tokens past the end have q, k, v, beta and log decay zero, so they change nothing. */
#ifndef BRIM_CUDA_KDA_PREPARE_CUH
#define BRIM_CUDA_KDA_PREPARE_CUH

#include "cuda/kda/params.cuh"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/mma.cuh"

BRIM_DEVICE uint32_t kda_lds(uint32_t addr)
{
    uint32_t v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(addr) : "memory");
    return v;
}

BRIM_DEVICE float kda_lds_f32(uint32_t addr)
{
    return __uint_as_float(kda_lds(addr));
}

BRIM_DEVICE float2 kda_lds_f32x2(uint32_t addr)
{
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(addr) : "memory");
    return v;
}

BRIM_DEVICE float4 kda_lds_f32x4(uint32_t addr)
{
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(addr)
                 : "memory");
    return v;
}

BRIM_DEVICE uint4 kda_lds_v4(uint32_t addr)
{
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(addr)
                 : "memory");
    return v;
}

BRIM_DEVICE void kda_sts(uint32_t addr, uint32_t v)
{
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(addr), "r"(v) : "memory");
}

BRIM_DEVICE void kda_sts_f32(uint32_t addr, float v)
{
    kda_sts(addr, __float_as_uint(v));
}

BRIM_DEVICE void kda_sts_b16(uint32_t addr, uint32_t v)
{
    asm volatile(
        "{\n\t.reg .b16 h;\n\tcvt.u16.u32 h, %1;\n\tst.shared.b16 [%0], h;\n\t}" ::"r"(addr), "r"(v)
        : "memory");
}

BRIM_DEVICE void kda_sts_v4_zero(uint32_t addr)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(addr), "r"(0) : "memory");
}

/* State of an instance between chunks. */
struct kda_prep {
    uint32_t work;                  /* shared memory of the instance */
    uint32_t bar;                   /* its named barrier */
    int tid;                        /* 0..127 */
    int flip;                       /* which k tile the current chunk uses */
    float beta;                     /* raw beta of token tid of the next chunk (threads 0..31) */
    float gate_mul[2], gate_add[2]; /* exponent of the sigmoid is gate_mul * raw + gate_add */
};

/* One [32][128] bf16 tile, rows past the end as zeros. */
BRIM_DEVICE void kda_load_tile(uint32_t tile, const __nv_bfloat16 *src, int64_t stride, int n_valid,
                               int tid)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int row = (tid >> 4) + 8 * i, piece = tid & 15;
        bool valid = row < n_valid;
        cp_async_16(tile + kda_tile_at(row, piece), src + (valid ? row : 0) * stride + piece * 8,
                    valid);
    }
}

BRIM_DEVICE float kda_load_beta(const kda_params &p, const kda_task &t, int chunk, int tid)
{
    int64_t row = (int64_t)chunk * KDA_CHUNK + tid;
    if (tid >= KDA_CHUNK || row >= t.n_tok) return 0;
    if (p.beta_f32) return ((const float *)t.beta)[row * p.beta_stride.token];
    return __bfloat162float(((const __nv_bfloat16 *)t.beta)[row * p.beta_stride.token]);
}

/* q, k and (unless it is read as fp32) g of a chunk, asynchronously, as one group; k goes to tile
 * `flip`. */
BRIM_DEVICE void kda_prefetch(const kda_params &p, const kda_task &t, int chunk, const kda_prep &s,
                              int flip)
{
    int64_t row = (int64_t)chunk * KDA_CHUNK;
    int n_valid = t.n_tok - chunk * KDA_CHUNK;
    if (chunk < t.n_chunk) {
        kda_load_tile(s.work + KDA_WORK_Q, t.q + row * p.q_stride.token, p.q_stride.token, n_valid,
                      s.tid);
        kda_load_tile(s.work + KDA_WORK_K + flip * KDA_TILE, t.k + row * p.k_stride.token,
                      p.k_stride.token, n_valid, s.tid);
        if (!p.g_f32)
            kda_load_tile(s.work + KDA_WORK_G, (const __nv_bfloat16 *)t.g + row * p.g_stride.token,
                          p.g_stride.token, n_valid, s.tid);
    }
    cp_async_commit();
}

BRIM_DEVICE void kda_prep_init(const kda_params &p, const kda_task &t, kda_prep &s, uint32_t work,
                               uint32_t bar, int tid, int first_chunk)
{
    s.work = work;
    s.bar = bar;
    s.tid = tid;
    s.flip = 0;
    float a = p.a_log ? __expf(p.a_log[t.head]) : 1.0f;
    float mul = -a * 1.4426950408889634f;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        float bias = p.dt_bias ? p.dt_bias[t.head * 128 + 2 * (tid & 63) + e] : 0.0f;
        s.gate_mul[e] = mul;
        s.gate_add[e] = bias * mul;
    }
    kda_prefetch(p, t, first_chunk, s, 0);
    s.beta = kda_load_beta(p, t, first_chunk, tid);
}

/* 1 / norm of each token of q and k; q's factor carries the scale. Four threads a token. */
BRIM_DEVICE void kda_norms(const kda_params &p, const kda_prep &s, uint32_t k_tile)
{
    int row = s.tid >> 2, quarter = s.tid & 3;
    float nq = 0, nk = 0;
    if (p.l2norm) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t at = kda_tile_at(row, quarter * 4 + i);
            uint4 a = kda_lds_v4(s.work + KDA_WORK_Q + at), b = kda_lds_v4(k_tile + at);
            uint32_t qs[4] = {a.x, a.y, a.z, a.w}, ks[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float q0 = bf16_lo(qs[j]), q1 = bf16_hi(qs[j]), k0 = bf16_lo(ks[j]),
                      k1 = bf16_hi(ks[j]);
                nq = fmaf(q0, q0, fmaf(q1, q1, nq));
                nk = fmaf(k0, k0, fmaf(k1, k1, nk));
            }
        }
#pragma unroll
        for (int d = 1; d < 4; d *= 2) {
            nq += __shfl_xor_sync(~0u, nq, d);
            nk += __shfl_xor_sync(~0u, nk, d);
        }
        nq = rsqrtf(nq + 1e-6f);
        nk = rsqrtf(nk + 1e-6f);
    } else {
        nq = nk = 1;
    }
    if (quarter == 0) {
        uint32_t at = s.work + KDA_WORK_NORM + row * 8;
        kda_sts_f32(at, nq * p.scale);
        kda_sts_f32(at + 4, nk);
    }
}

/* Running log2 decay of two channels over the 16 tokens of this thread's half: g[2 j + e]. */
BRIM_DEVICE void kda_gate(const kda_params &p, const kda_task &t, const kda_prep &s, int chunk,
                          float (&g)[32])
{
    const float log2e = 1.4426950408889634f;
    int half = s.tid >> 6, pair = s.tid & 63;
    int n_valid = t.n_tok - chunk * KDA_CHUNK - half * KDA_SUB; /* of this half; may be negative */
    uint32_t tile = s.work + KDA_WORK_G + half * KDA_SUB * 256 + (pair & 3) * 4;
    float sum0 = 0, sum1 = 0;
    if (p.gate == BRIM_KDA_GATE_LOWER_BOUND) {
        float bound = p.lower_bound * log2e;
#pragma unroll
        for (int j = 0; j < 16; j++) {
            uint32_t raw = kda_lds(tile + kda_tile_at(j, pair >> 2));
            float d0 =
                bound * kda_rcp(1 + kda_exp2(fmaf(bf16_lo(raw), s.gate_mul[0], s.gate_add[0])));
            float d1 =
                bound * kda_rcp(1 + kda_exp2(fmaf(bf16_hi(raw), s.gate_mul[1], s.gate_add[1])));
            if (j < n_valid) {
                sum0 += d0;
                sum1 += d1;
            }
            g[2 * j] = sum0;
            g[2 * j + 1] = sum1;
        }
    } else if (p.g_f32) {
        const float *row = (const float *)t.g +
                           ((int64_t)chunk * KDA_CHUNK + half * KDA_SUB) * p.g_stride.token +
                           2 * pair;
#pragma unroll
        for (int j = 0; j < 16; j++) {
            float2 raw = make_float2(0, 0);
            if (j < n_valid) raw = *(const float2 *)(row + j * p.g_stride.token);
            g[2 * j] = raw.x * log2e;
            g[2 * j + 1] = raw.y * log2e;
        }
#pragma unroll
        for (int j = 1; j < 16; j++) {
            g[2 * j] += g[2 * j - 2];
            g[2 * j + 1] += g[2 * j - 1];
        }
    } else {
#pragma unroll
        for (int j = 0; j < 16; j++) {
            uint32_t raw = kda_lds(tile + kda_tile_at(j, pair >> 2)); /* zero past the end */
            sum0 = fmaf(bf16_lo(raw), log2e, sum0);
            sum1 = fmaf(bf16_hi(raw), log2e, sum1);
            g[2 * j] = sum0;
            g[2 * j + 1] = sum1;
        }
    }
    uint32_t at = s.work + KDA_WORK_TOTAL + half * 512 + pair * 8;
    kda_sts_f32(at, g[30]);
    kda_sts_f32(at + 4, g[31]);
}

/* Decayed rows of this thread's half and channel pair, into the tiles and the packet. */
template <int half>
BRIM_DEVICE void kda_decay(const kda_params &p, const kda_prep &s, uint32_t k_tile, uint32_t packet,
                           const float (&g)[32])
{
    const float mid = (float)p.mid;
    int pair = s.tid & 63, piece = pair >> 2, within = (pair & 3) * 4;
    float2 total0 = kda_lds_f32x2(s.work + KDA_WORK_TOTAL + pair * 8);
    float2 total1 = kda_lds_f32x2(s.work + KDA_WORK_TOTAL + 512 + pair * 8);
    float end0 = kda_exp2(total0.x), end1 = kda_exp2(total0.y); /* of the first half */
    float last0 = kda_exp2(total1.x), last1 = kda_exp2(total1.y);
    float back0, back1; /* column factor at the half's end, times 2^mid */
    if (half == 0) {
        back0 = kda_exp2(total0.x + mid), back1 = kda_exp2(total0.y + mid);
        kda_sts_f32(packet + KDA_PACKET_GAMMA + pair * 8, end0 * last0);
        kda_sts_f32(packet + KDA_PACKET_GAMMA + pair * 8 + 4, end1 * last1);
    } else {
        back0 = kda_exp2(total1.x + mid), back1 = kda_exp2(total1.y + mid);
        kda_sts_f32(s.work + KDA_WORK_HALF + pair * 8, end0);
        kda_sts_f32(s.work + KDA_WORK_HALF + pair * 8 + 4, end1);
    }
#pragma unroll
    for (int j = 0; j < 16; j++) {
        int row = half * KDA_SUB + j;
        uint32_t at = kda_tile_at(row, piece) + within, out = kda_panel_at(row, piece) + within;
        float2 norm = kda_lds_f32x2(s.work + KDA_WORK_NORM + row * 8);
        uint32_t q_raw = kda_lds(s.work + KDA_WORK_Q + at), k_raw = kda_lds(k_tile + at);
        float q0 = bf16_lo(q_raw) * norm.x, q1 = bf16_hi(q_raw) * norm.x;
        float k0 = bf16_lo(k_raw) * norm.y, k1 = bf16_hi(k_raw) * norm.y;
        float up0 = kda_exp2(g[2 * j]), up1 = kda_exp2(g[2 * j + 1]);
        float down0 = k0 * kda_exp2(-g[2 * j] - mid), down1 = k1 * kda_exp2(-g[2 * j + 1] - mid);
        q0 *= up0, q1 *= up1;
        kda_sts(k_tile + at, bf16x2_pack(k0 * up0, k1 * up1));
        kda_sts(s.work + KDA_WORK_G + at, bf16x2_pack(down0, down1));
        if (half == 0) {
            float o0 = down0 * back0, o1 = down1 * back1;
            kda_sts(packet + KDA_PACKET_QD + out, bf16x2_pack(q0, q1));
            kda_sts(s.work + KDA_WORK_Q + at, bf16x2_pack(o0, o1));
            kda_sts(packet + KDA_PACKET_KR + out, bf16x2_pack(o0 * last0, o1 * last1));
        } else {
            kda_sts(s.work + KDA_WORK_Q + at, bf16x2_pack(q0, q1));
            kda_sts(packet + KDA_PACKET_QD + out, bf16x2_pack(q0 * end0, q1 * end1));
            kda_sts(packet + KDA_PACKET_KR + out, bf16x2_pack(down0 * back0, down1 * back1));
        }
    }
}

/* Warps 0, 1, 2: blocks (0,0), (1,1), (1,0) of L and Mqk. Warp 3 clears Mqk's block (0,1). */
BRIM_DEVICE void kda_pairs(const kda_params &p, const kda_prep &s, uint32_t k_tile, uint32_t packet)
{
    int warp = s.tid >> 5, lane = s.tid & 31;
    if (warp == 3) {
        kda_sts_v4_zero(packet + KDA_PACKET_MQK + kda_panel_at(lane >> 1, 2 + (lane & 1)));
        return;
    }
    int row0 = warp == 0 ? 0 : KDA_SUB, col0 = warp == 1 ? KDA_SUB : 0;
    /* block (0,0) finds its query rows in the packet, the others in the q tile */
    uint32_t q_base = warp == 0 ? packet + KDA_PACKET_QD : s.work + KDA_WORK_Q;
    uint32_t q_pitch = warp == 0 ? 128 : 256, q_half = warp == 0 ? KDA_PANEL : 128;
    uint32_t columns = s.work + (warp == 2 ? KDA_WORK_Q : KDA_WORK_G);
    int a_row = row0 + (lane & 15), a_piece = lane >> 4;
    int b_row = col0 + (lane & 7) + ((lane >> 4) << 3), b_piece = (lane >> 3) & 1;
    float kk[2][4] = {}, qk[2][4] = {};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint32_t ka[4], qa[4], b[4];
        int piece = 2 * i + a_piece;
        ldmatrix_x4(ka, k_tile + kda_tile_at(a_row, piece));
        ldmatrix_x4(qa, q_base + a_row * q_pitch + (piece >> 3) * q_half +
                            (((piece & 7) ^ (a_row & 7)) << 4));
        ldmatrix_x4(b, columns + kda_tile_at(b_row, 2 * i + b_piece));
#pragma unroll
        for (int n = 0; n < 2; n++) {
            mma_bf16_16816(kk[n], ka, b[2 * n], b[2 * n + 1]);
            mma_bf16_16816(qk[n], qa, b[2 * n], b[2 * n + 1]);
        }
    }
    float back = warp == 2 ? 1.0f : kda_exp2((float)p.mid); /* a power of two: exact */
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int r = (lane >> 2) + 8 * h;
        float beta = kda_lds_f32(s.work + KDA_WORK_BETA + (row0 + r) * 4);
#pragma unroll
        for (int n = 0; n < 2; n++) {
            int x = 8 * n + 2 * (lane & 3);
            bool below = warp == 2;
            /* selects, not products: above the diagonal the factored product may be infinite */
            float m0 = below || x <= r ? qk[n][2 * h] * back : 0.0f;
            float m1 = below || x + 1 <= r ? qk[n][2 * h + 1] * back : 0.0f;
            float l0 = below || x < r ? kk[n][2 * h] * back * beta : 0.0f;
            float l1 = below || x + 1 < r ? kk[n][2 * h + 1] * back * beta : 0.0f;
            int row = row0 + r, col = col0 + x;
            kda_sts(packet + KDA_PACKET_MQK + kda_panel_at(row, col >> 3) + (col & 7) * 2,
                    bf16x2_pack(m0, m1));
            kda_sts_f32(s.work + KDA_WORK_L + (col * KDA_L_PITCH + row) * 4, l0);
            kda_sts_f32(s.work + KDA_WORK_L + ((col + 1) * KDA_L_PITCH + row) * 4, l1);
        }
    }
}

/* One warp: column `lane` of (I + L)^-1 by forward substitution, times beta of the column, as bf16.
 */
BRIM_DEVICE void kda_invert(const kda_prep &s, int lane)
{
    float a[32];
#pragma unroll
    for (int r = 0; r < 32; r++) a[r] = r == lane ? 1.0f : 0.0f;
#pragma unroll
    for (int y = 0; y < 31; y++) {
#pragma unroll
        for (int r = (y + 1) & ~3; r < 32; r += 4) {
            float4 l = kda_lds_f32x4(s.work + KDA_WORK_L + (y * KDA_L_PITCH + r) * 4);
            if (r > y) a[r] = fmaf(-l.x, a[y], a[r]);
            if (r + 1 > y) a[r + 1] = fmaf(-l.y, a[y], a[r + 1]);
            if (r + 2 > y) a[r + 2] = fmaf(-l.z, a[y], a[r + 2]);
            if (r + 3 > y) a[r + 3] = fmaf(-l.w, a[y], a[r + 3]);
        }
    }
    float beta = kda_lds_f32(s.work + KDA_WORK_BETA + lane * 4);
#pragma unroll
    for (int r = 0; r < 32; r++) {
        uint32_t pair = bf16x2_pack(a[r] * beta, 0.0f);
        kda_sts_b16(s.work + KDA_WORK_INV + kda_inv_at(r, lane >> 3) + (lane & 7) * 2,
                    pair & 0xFFFF);
    }
}

/* -W and Z; warp w has columns 32 w .. 32 w + 31 of both. */
BRIM_DEVICE void kda_solve(const kda_prep &s, uint32_t k_tile, uint32_t packet)
{
    int warp = s.tid >> 5, lane = s.tid & 31;
    uint32_t a00[4], a10[4], a11[4];
    ldmatrix_x4(a00, s.work + KDA_WORK_INV + kda_inv_at(lane & 15, lane >> 4));
    ldmatrix_x4(a10, s.work + KDA_WORK_INV + kda_inv_at(16 + (lane & 15), lane >> 4));
    ldmatrix_x4(a11, s.work + KDA_WORK_INV + kda_inv_at(16 + (lane & 15), 2 + (lane >> 4)));
    int b_row = (lane & 7) + ((lane >> 3) & 1) * 8;
#pragma unroll
    for (int which = 0; which < 2; which++) { /* W, then Z */
        uint32_t tile = which ? s.work + KDA_WORK_V : k_tile;
        uint32_t to = packet + (which ? KDA_PACKET_Z : KDA_PACKET_W);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int piece = warp * 4 + i * 2 + (lane >> 4);
            uint32_t b0[4], b1[4];
            ldmatrix_x4_trans(b0, tile + kda_tile_at(b_row, piece));
            ldmatrix_x4_trans(b1, tile + kda_tile_at(16 + b_row, piece));
#pragma unroll
            for (int n = 0; n < 2; n++) {
                float top[4] = {}, low[4] = {}, own[4] = {};
                mma_bf16_16816(top, a00, b0[2 * n], b0[2 * n + 1]);
                mma_bf16_16816(low, a10, b0[2 * n], b0[2 * n + 1]);
                int col = warp * 32 + i * 16 + n * 8 + 2 * (lane & 3);
                if (which) {
                    mma_bf16_16816(low, a11, b1[2 * n], b1[2 * n + 1]);
                } else {
                    /* the second half's k rows decay from the middle of the chunk on */
                    mma_bf16_16816(own, a11, b1[2 * n], b1[2 * n + 1]);
                    float2 end = kda_lds_f32x2(s.work + KDA_WORK_HALF + col * 4);
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        low[e] = -fmaf(e & 1 ? end.y : end.x, own[e], low[e]);
                        top[e] = -top[e];
                    }
                }
                int row = lane >> 2, at = (col & 7) * 2;
                kda_sts(to + kda_panel_at(row, col >> 3) + at, bf16x2_pack(top[0], top[1]));
                kda_sts(to + kda_panel_at(row + 8, col >> 3) + at, bf16x2_pack(top[2], top[3]));
                kda_sts(to + kda_panel_at(row + 16, col >> 3) + at, bf16x2_pack(low[0], low[1]));
                kda_sts(to + kda_panel_at(row + 24, col >> 3) + at, bf16x2_pack(low[2], low[3]));
            }
        }
    }
}

/* Prepare `chunk`; the instance's next one is `next`, whose rows are fetched on the way. `packet`
 * is a shared-memory stage; wait_stage() returns once it may be written. On return every thread's
 * part of the packet is written by ordinary stores: the caller fences the proxies and signals. */
template <class Wait>
BRIM_DEVICE void kda_prepare(const kda_params &p, const kda_task &t, kda_prep &s, int chunk,
                             int next, uint32_t packet, Wait wait_stage)
{
    uint32_t k_tile = s.work + KDA_WORK_K + s.flip * KDA_TILE;
    cp_async_wait<0>();
    named_barrier_sync(s.bar, 128); /* q, k, g are here; everybody is done with the last chunk */
    int64_t row = (int64_t)chunk * KDA_CHUNK;
    kda_load_tile(s.work + KDA_WORK_V, t.v + row * p.v_stride.token, p.v_stride.token,
                  t.n_tok - chunk * KDA_CHUNK, s.tid);
    cp_async_commit();
    if (s.tid < KDA_CHUNK) {
        float beta = s.beta;
        if (p.beta_logit) beta = kda_rcp(1 + kda_exp2(beta * -1.4426950408889634f));
        if (chunk * KDA_CHUNK + s.tid >= t.n_tok) beta = 0;
        kda_sts_f32(s.work + KDA_WORK_BETA + s.tid * 4, beta);
    }
    s.beta = kda_load_beta(p, t, next, s.tid);
    float g[32];
    kda_gate(p, t, s, chunk, g);
    kda_norms(p, s, k_tile);
    wait_stage();
    named_barrier_sync(s.bar, 128); /* norms, beta, totals */
    if (s.tid < 64)
        kda_decay<0>(p, s, k_tile, packet, g);
    else
        kda_decay<1>(p, s, k_tile, packet, g);
    named_barrier_sync(s.bar, 128); /* decayed rows */
    kda_pairs(p, s, k_tile, packet);
    named_barrier_sync(s.bar, 128); /* L; the q and g tiles are free */
    kda_prefetch(p, t, next, s, s.flip ^ 1);
    if ((s.tid >> 5) == 3) kda_invert(s, s.tid & 31);
    cp_async_wait<1>();             /* v */
    named_barrier_sync(s.bar, 128); /* inverse, v */
    kda_solve(s, k_tile, packet);
    s.flip ^= 1;
}

#endif
