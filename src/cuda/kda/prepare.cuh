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

/* The two arrangements of an instance's memory, layout.h. */
struct kda_full {
    static constexpr bool lean = false;
    static constexpr int q = KDA_FULL_Q, k = KDA_FULL_K, g = KDA_FULL_G, v = KDA_FULL_V,
                         l = KDA_FULL_L;
    static constexpr int scratch = KDA_FULL_SCRATCH, inv = KDA_FULL_INV;
    static constexpr int norm = KDA_FULL_SMALL + KDA_SMALL_NORM,
                         beta = KDA_FULL_SMALL + KDA_SMALL_BETA;
    static constexpr int total = KDA_FULL_SMALL + KDA_SMALL_TOTAL,
                         half = KDA_FULL_SMALL + KDA_SMALL_HALF;
};

struct kda_lean {
    static constexpr bool lean = true;
    static constexpr int q = KDA_LEAN_Q, k = KDA_LEAN_K, g = KDA_LEAN_G, v = KDA_LEAN_V,
                         l = KDA_LEAN_L;
    static constexpr int scratch = KDA_LEAN_SCRATCH, inv = KDA_LEAN_INV;
    static constexpr int norm = KDA_LEAN_SMALL + KDA_SMALL_NORM,
                         beta = KDA_LEAN_SMALL + KDA_SMALL_BETA;
    static constexpr int total = KDA_LEAN_SMALL + KDA_SMALL_TOTAL,
                         half = KDA_LEAN_SMALL + KDA_SMALL_HALF;
};

/* State of an instance between chunks. */
struct kda_prep {
    uint32_t work; /* shared memory of the instance */
    uint32_t bar;  /* its named barrier */
    int tid;       /* 0..127 */
    int flip;      /* which k tile the current chunk uses */
    uint32_t beta; /* bits of beta of token tid of the next chunk (threads 0..31) */
    float gate_mul[2], gate_add[2]; /* exponent of the sigmoid is gate_mul * raw + gate_add */
};

/* One [32][128] bf16 tile, rows past the end as zeros (their addresses are formed, not read). */
BRIM_DEVICE void kda_load_tile(uint32_t tile, const __nv_bfloat16 *src, int64_t stride, int n_valid,
                               int tid)
{
    int row = tid >> 4, piece = tid & 15;
    uint32_t to = tile + kda_tile_at(row, piece); /* rows 8 apart have the same swizzle */
    asm volatile(""
                 : "+l"(stride)); /* opaque: its multiples are not worth registers across chunks */
    const __nv_bfloat16 *from = src + row * stride + piece * 8;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        cp_async_16(to + i * 8 * 256, from, row + 8 * i < n_valid);
        from += 8 * stride;
    }
}

/* Volatile and unconverted: the load is in flight while the current chunk is prepared. */
BRIM_DEVICE uint32_t kda_load_beta(const kda_params &p, const kda_task &t, int chunk, int tid)
{
    int64_t row = (int64_t)chunk * KDA_CHUNK + tid;
    uint32_t bits = 0;
    if (tid >= KDA_CHUNK || row >= t.n_tok) return 0;
    if (p.beta_f32) {
        asm volatile("ld.global.nc.b32 %0, [%1];"
                     : "=r"(bits)
                     : "l"((const float *)t.beta + row * p.beta_stride.token));
    } else {
        asm volatile("{\n\t.reg .b16 h;\n\tld.global.nc.b16 h, [%1];\n\tcvt.u32.u16 %0, h;\n\t}"
                     : "=r"(bits)
                     : "l"((const __nv_bfloat16 *)t.beta + row * p.beta_stride.token));
    }
    return bits;
}

/* q, k and (unless it is read as fp32) g of a chunk, asynchronously, as one group; k goes to tile
 * `flip`. The lean arrangement fetches v with them. */
template <class L>
BRIM_DEVICE void kda_prefetch(const kda_params &p, const kda_task &t, int chunk, const kda_prep &s,
                              int flip)
{
    int64_t row = (int64_t)chunk * KDA_CHUNK;
    int n_valid = t.n_tok - chunk * KDA_CHUNK;
    if (chunk < t.n_chunk) {
        kda_load_tile(s.work + L::k + flip * KDA_TILE, t.k + row * p.k_stride.token,
                      p.k_stride.token, n_valid, s.tid);
        kda_load_tile(s.work + L::q, t.q + row * p.q_stride.token, p.q_stride.token, n_valid,
                      s.tid);
        if (!p.g_f32)
            kda_load_tile(s.work + L::g, (const __nv_bfloat16 *)t.g + row * p.g_stride.token,
                          p.g_stride.token, n_valid, s.tid);
        if (L::lean)
            kda_load_tile(s.work + L::v, t.v + row * p.v_stride.token, p.v_stride.token, n_valid,
                          s.tid);
    }
    cp_async_commit();
}

template <class L>
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
    kda_prefetch<L>(p, t, first_chunk, s, 0);
    s.beta = kda_load_beta(p, t, first_chunk, tid);
}

/* 1 / norm of each token of q and k; q's factor carries the scale. The squares' sums are the
 * diagonal of X X^T on the tensor cores: warp 0, 1 rows 0-15, 16-31 of q, warp 2, 3 of k. An A
 * fragment is also the B fragment of its transpose. */
template <class L>
BRIM_DEVICE void kda_norms(const kda_params &p, const kda_prep &s, uint32_t k_tile)
{
    int warp = s.tid >> 5, lane = s.tid & 31;
    uint32_t tile = warp < 2 ? s.work + L::q : k_tile;
    int row0 = (warp & 1) * 16, row = lane >> 2;
    float low[4] = {}, high[4] = {};
    if (p.l2norm) {
        uint32_t a[4][4];
#pragma unroll
        for (int i0 = 0; i0 < 8; i0 += 4) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                ldmatrix_x4(a[i],
                            tile + kda_tile_at(row0 + (lane & 15), 2 * (i0 + i) + (lane >> 4)));
#pragma unroll
            for (int i = 0; i < 4; i++) {
                mma_bf16_16816(low, a[i], a[i][0], a[i][2]);
                mma_bf16_16816(high, a[i], a[i][1], a[i][3]);
            }
        }
    }
    if ((lane & 3) == row >> 1) { /* the lane with column 2 (lane % 4) + e == row */
        float factor = warp < 2 ? p.scale : 1.0f, n0 = 1, n1 = 1;
        if (p.l2norm) {
            n0 = rsqrtf((row & 1 ? low[1] : low[0]) + 1e-6f);
            n1 = rsqrtf((row & 1 ? high[3] : high[2]) + 1e-6f);
        }
        uint32_t at = s.work + L::norm + (row0 + row) * 8 + (warp < 2 ? 0 : 4);
        kda_sts_f32(at, n0 * factor);
        kda_sts_f32(at + 64, n1 * factor);
    }
}

/* Running log2 decay of two channels over the 16 tokens of this thread's half: g[2 j + e]. */
template <class L>
BRIM_DEVICE void kda_gate(const kda_params &p, const kda_task &t, const kda_prep &s, int chunk,
                          float (&g)[32])
{
    const float log2e = 1.4426950408889634f;
    int half = s.tid >> 6, pair = s.tid & 63;
    int n_valid = t.n_tok - chunk * KDA_CHUNK - half * KDA_SUB; /* of this half; may be negative */
    uint32_t tile = s.work + L::g + half * KDA_SUB * 256 + (pair & 3) * 4;
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
    uint32_t at = s.work + L::total + half * 512 + pair * 8;
    kda_sts_f32(at, g[30]);
    kda_sts_f32(at + 4, g[31]);
}

/* Decayed rows of this thread's half and channel pair, into the tiles and the packet. */
template <class L, int half>
BRIM_DEVICE void kda_decay(const kda_params &p, const kda_prep &s, uint32_t k_tile, uint32_t packet,
                           const float (&g)[32])
{
    const float mid = (float)p.mid;
    int pair = s.tid & 63, piece = pair >> 2, within = (pair & 3) * 4;
    float2 total0 = kda_lds_f32x2(s.work + L::total + pair * 8);
    float2 total1 = kda_lds_f32x2(s.work + L::total + 512 + pair * 8);
    float end0 = kda_exp2(total0.x), end1 = kda_exp2(total0.y); /* of the first half */
    float last0 = kda_exp2(total1.x), last1 = kda_exp2(total1.y);
    float back0, back1; /* column factor at the half's end, times 2^mid */
    if (half == 0) {
        back0 = kda_exp2(total0.x + mid), back1 = kda_exp2(total0.y + mid);
        kda_sts_f32(packet + KDA_PACKET_GAMMA + kda_gamma_at(pair), end0 * last0);
        kda_sts_f32(packet + KDA_PACKET_GAMMA + kda_gamma_at(pair) + 4, end1 * last1);
    } else {
        back0 = kda_exp2(total1.x + mid), back1 = kda_exp2(total1.y + mid);
        kda_sts_f32(s.work + L::half + pair * 8, end0);
        kda_sts_f32(s.work + L::half + pair * 8 + 4, end1);
    }
    /* four tokens at a time: all loads, then the arithmetic, so that the latencies overlap */
#pragma unroll
    for (int j0 = 0; j0 < 16; j0 += 4) {
        uint32_t q_raw[4], k_raw[4];
        float2 norm[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = half * KDA_SUB + j0 + i;
            uint32_t at = kda_tile_at(row, piece) + within;
            q_raw[i] = kda_lds(s.work + L::q + at);
            k_raw[i] = kda_lds(k_tile + at);
            norm[i] = kda_lds_f32x2(s.work + L::norm + row * 8);
        }
        uint32_t word[4][5]; /* k 2^g, columns, q 2^g, qd or ko, kr */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int j = j0 + i;
            float up0 = kda_exp2(g[2 * j]), up1 = kda_exp2(g[2 * j + 1]);
            float k0 = bf16_lo(k_raw[i]) * norm[i].y, k1 = bf16_hi(k_raw[i]) * norm[i].y;
            float down0 = k0 * kda_exp2(-g[2 * j] - mid),
                  down1 = k1 * kda_exp2(-g[2 * j + 1] - mid);
            float q0 = bf16_lo(q_raw[i]) * norm[i].x * up0,
                  q1 = bf16_hi(q_raw[i]) * norm[i].x * up1;
            word[i][0] = bf16x2_pack(k0 * up0, k1 * up1);
            word[i][1] = bf16x2_pack(down0, down1);
            word[i][2] = bf16x2_pack(q0, q1);
            float o0 = down0 * back0, o1 = down1 * back1;
            if (half == 0) {
                word[i][3] = bf16x2_pack(o0, o1);
                word[i][4] = bf16x2_pack(o0 * last0, o1 * last1);
            } else {
                word[i][3] = bf16x2_pack(q0 * end0, q1 * end1);
                word[i][4] = bf16x2_pack(o0, o1);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = half * KDA_SUB + j0 + i;
            uint32_t at = kda_tile_at(row, piece) + within, out = kda_panel_at(row, piece) + within;
            kda_sts(k_tile + at, word[i][0]);
            kda_sts(s.work + L::g + at, word[i][1]);
            kda_sts(half == 0 ? packet + KDA_PACKET_QD + out : s.work + L::q + at, word[i][2]);
            kda_sts(half == 0 ? s.work + L::q + at : packet + KDA_PACKET_QD + out, word[i][3]);
            kda_sts(packet + KDA_PACKET_KR + out, word[i][4]);
        }
    }
}

/* Warps 0, 1, 2: blocks (0,0), (1,1), (1,0) of L and Mqk. Warp 3 clears Mqk's block (0,1). */
template <class L>
BRIM_DEVICE void kda_pairs(const kda_params &p, const kda_prep &s, uint32_t k_tile, uint32_t packet)
{
    int warp = s.tid >> 5, lane = s.tid & 31;
    int row0 = warp == 0 ? 0 : KDA_SUB, col0 = warp == 1 ? KDA_SUB : 0;
    float kk[2][4] = {}, qk[2][4] = {};
    if (warp == 3) {
        kda_sts_v4_zero(packet + KDA_PACKET_MQK + kda_panel_at(lane >> 1, 2 + (lane & 1)));
    } else {
        /* block (0,0) finds its query rows in the packet, the others in the q tile */
        uint32_t q_base = warp == 0 ? packet + KDA_PACKET_QD : s.work + L::q;
        uint32_t q_pitch = warp == 0 ? 128 : 256, q_half = warp == 0 ? KDA_PANEL : 128;
        uint32_t columns = s.work + (warp == 2 ? L::q : L::g);
        int a_row = row0 + (lane & 15), a_piece = lane >> 4;
        int b_row = col0 + (lane & 7) + ((lane >> 4) << 3), b_piece = (lane >> 3) & 1;
        uint32_t ka[2][4], qa[2][4],
            b[2][4]; /* the next step's fragments arrive during this one's products */
        auto fetch = [&](int i) {
            int piece = 2 * i + a_piece;
            ldmatrix_x4(ka[i & 1], k_tile + kda_tile_at(a_row, piece));
            ldmatrix_x4(b[i & 1], columns + kda_tile_at(b_row, 2 * i + b_piece));
            ldmatrix_x4(qa[i & 1], q_base + a_row * q_pitch + (piece >> 3) * q_half +
                                       (((piece & 7) ^ (a_row & 7)) << 4));
        };
        fetch(0);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (i < 7) fetch(i + 1);
#pragma unroll
            for (int n = 0; n < 2; n++) {
                mma_bf16_16816(kk[n], ka[i & 1], b[i & 1][2 * n], b[i & 1][2 * n + 1]);
                mma_bf16_16816(qk[n], qa[i & 1], b[i & 1][2 * n], b[i & 1][2 * n + 1]);
            }
        }
    }
    if (L::lean) named_barrier_sync(s.bar, 128); /* L overwrites the q tile */
    if (warp == 3) return;
    float back = warp == 2 ? 1.0f : kda_exp2((float)p.mid); /* a power of two: exact */
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int r = (lane >> 2) + 8 * h;
        float beta = kda_lds_f32(s.work + L::beta + (row0 + r) * 4);
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
            kda_sts_f32(s.work + L::l + (col * KDA_L_PITCH + row) * 4, l0);
            kda_sts_f32(s.work + L::l + ((col + 1) * KDA_L_PITCH + row) * 4, l1);
        }
    }
}

/* (I + L)^-1 in fp32, times beta of the column, as bf16. With L = [[A, 0], [B, D]] it is
 * [[P, 0], [-Q B P, Q]], P = (I + A)^-1 and Q = (I + D)^-1 by forward substitution: one warp, lane
 * = a column of P (0..15) or of Q (16..31). Then all threads form B P and -Q (B P), two entries
 * each. P, Q and B P lie in scratch, float [16][20] each, by columns. */
enum { KDA_INV_PITCH = 20 };

template <class L>
BRIM_DEVICE void kda_store_inv(const kda_prep &s, int row, int col, float value, float beta)
{
    kda_sts_b16(s.work + L::inv + kda_inv_at(row, col >> 3) + (col & 7) * 2,
                bf16x2_pack(value * beta, 0.0f) & 0xFFFF);
}

template <class L> BRIM_DEVICE void kda_invert_halves(const kda_prep &s, uint32_t scratch, int lane)
{
    int base = lane & 16, col = lane & 15;
    uint32_t l_at = s.work + L::l + (base * KDA_L_PITCH + base) * 4;
    float a[16];
#pragma unroll
    for (int r = 0; r < 16; r++) a[r] = r == col ? 1.0f : 0.0f;
    float4 l[2][4];
    auto fetch = [&](int y) {
#pragma unroll
        for (int i = (y + 1) / 4; i < 4; i++)
            l[y & 1][i] = kda_lds_f32x4(l_at + (y * KDA_L_PITCH + 4 * i) * 4);
    };
    fetch(0);
#pragma unroll
    for (int y = 0; y < 15; y++) {
        if (y < 14) fetch(y + 1);
#pragma unroll
        for (int i = (y + 1) / 4; i < 4; i++) {
            float4 v = l[y & 1][i];
            if (4 * i > y) a[4 * i] = fmaf(-v.x, a[y], a[4 * i]);
            if (4 * i + 1 > y) a[4 * i + 1] = fmaf(-v.y, a[y], a[4 * i + 1]);
            if (4 * i + 2 > y) a[4 * i + 2] = fmaf(-v.z, a[y], a[4 * i + 2]);
            if (4 * i + 3 > y) a[4 * i + 3] = fmaf(-v.w, a[y], a[4 * i + 3]);
        }
    }
    float beta = kda_lds_f32(s.work + L::beta + lane * 4);
#pragma unroll
    for (int r = 0; r < 16; r += 4)
        asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(
                         scratch + (lane * KDA_INV_PITCH + r) * 4),
                     "f"(a[r]), "f"(a[r + 1]), "f"(a[r + 2]), "f"(a[r + 3])
                     : "memory");
#pragma unroll
    for (int r = 0; r < 16; r++) {
        kda_store_inv<L>(s, base + r, lane, a[r], beta);
        if (base) kda_store_inv<L>(s, r, lane, 0.0f, 0.0f); /* above the diagonal */
    }
}

/* out[row][col], out[row + 1][col] of M N for 16 x 16 M (columns at m, pitch floats apart) and N.
 */
BRIM_DEVICE float2 kda_small_product(uint32_t m, int m_pitch, uint32_t n, int row, int col)
{
    float2 sum = make_float2(0, 0);
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
        float4 b = kda_lds_f32x4(n + (col * KDA_INV_PITCH + i) * 4);
        float2 a0 = kda_lds_f32x2(m + (i * m_pitch + row) * 4),
               a1 = kda_lds_f32x2(m + ((i + 1) * m_pitch + row) * 4);
        float2 a2 = kda_lds_f32x2(m + ((i + 2) * m_pitch + row) * 4),
               a3 = kda_lds_f32x2(m + ((i + 3) * m_pitch + row) * 4);
        sum.x = fmaf(a3.x, b.w, fmaf(a2.x, b.z, fmaf(a1.x, b.y, fmaf(a0.x, b.x, sum.x))));
        sum.y = fmaf(a3.y, b.w, fmaf(a2.y, b.z, fmaf(a1.y, b.y, fmaf(a0.y, b.x, sum.y))));
    }
    return sum;
}

/* -W and Z; warp w has columns 32 w .. 32 w + 31 of both. */
template <class L> BRIM_DEVICE void kda_solve(const kda_prep &s, uint32_t k_tile, uint32_t packet)
{
    int warp = s.tid >> 5, lane = s.tid & 31;
    uint32_t a00[4], a10[4], a11[4];
    ldmatrix_x4(a00, s.work + L::inv + kda_inv_at(lane & 15, lane >> 4));
    ldmatrix_x4(a10, s.work + L::inv + kda_inv_at(16 + (lane & 15), lane >> 4));
    ldmatrix_x4(a11, s.work + L::inv + kda_inv_at(16 + (lane & 15), 2 + (lane >> 4)));
    int b_row = (lane & 7) + ((lane >> 3) & 1) * 8;
#pragma unroll
    for (int which = 0; which < 2; which++) { /* W, then Z */
        uint32_t tile = which ? s.work + L::v : k_tile;
        uint32_t to = packet + (which ? KDA_PACKET_Z : KDA_PACKET_W);
        uint32_t b0s[2][4], b1s[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int piece = warp * 4 + i * 2 + (lane >> 4);
            ldmatrix_x4_trans(b0s[i], tile + kda_tile_at(b_row, piece));
            ldmatrix_x4_trans(b1s[i], tile + kda_tile_at(16 + b_row, piece));
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32_t(&b0)[4] = b0s[i], (&b1)[4] = b1s[i];
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
                    float2 end = kda_lds_f32x2(s.work + L::half + col * 4);
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
template <class L, class Wait>
BRIM_DEVICE void kda_prepare(const kda_params &p, const kda_task &t, kda_prep &s, int chunk,
                             int next, uint32_t packet, Wait wait_stage)
{
    /* opaque: else every address that depends on the thread is kept, and spilled, across chunks */
    asm volatile("" : "+r"(s.tid), "+r"(s.work));
    uint32_t k_tile = s.work + L::k + s.flip * KDA_TILE;
    cp_async_wait<0>();
    named_barrier_sync(s.bar, 128); /* q, k, g are here; everybody is done with the last chunk */
    if (!L::lean) {
        int64_t row = (int64_t)chunk * KDA_CHUNK;
        kda_load_tile(s.work + L::v, t.v + row * p.v_stride.token, p.v_stride.token,
                      t.n_tok - chunk * KDA_CHUNK, s.tid);
        cp_async_commit();
    }
    if (s.tid < KDA_CHUNK) {
        float beta = __uint_as_float(p.beta_f32 ? s.beta : s.beta << 16);
        if (p.beta_logit) beta = kda_rcp(1 + kda_exp2(beta * -1.4426950408889634f));
        if (chunk * KDA_CHUNK + s.tid >= t.n_tok) beta = 0;
        kda_sts_f32(s.work + L::beta + s.tid * 4, beta);
    }
    s.beta = kda_load_beta(p, t, next, s.tid);
    kda_norms<L>(p, s, k_tile);
    float g[32];
    kda_gate<L>(p, t, s, chunk, g);
    wait_stage();
    named_barrier_sync(s.bar, 128); /* norms, beta, totals */
    if (s.tid < 64)
        kda_decay<L, 0>(p, s, k_tile, packet, g);
    else
        kda_decay<L, 1>(p, s, k_tile, packet, g);
    named_barrier_sync(s.bar, 128); /* decayed rows */
    kda_pairs<L>(p, s, k_tile, packet);
    named_barrier_sync(s.bar, 128); /* L; the q and g tiles are free */
    uint32_t scratch = s.work + L::scratch;
    if ((s.tid >> 5) == 3) kda_invert_halves<L>(s, scratch, s.tid & 31);
    if (!L::lean) kda_prefetch<L>(p, t, next, s, s.flip ^ 1);
    named_barrier_sync(s.bar, 128); /* P, Q */
    int col = s.tid & 15, pair_row = (s.tid >> 4) * 2;
    float2 bp = kda_small_product(s.work + L::l + 16 * 4, KDA_L_PITCH, scratch, pair_row, col);
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(
                     scratch + ((32 + col) * KDA_INV_PITCH + pair_row) * 4),
                 "f"(bp.x), "f"(bp.y)
                 : "memory");
    named_barrier_sync(s.bar, 128); /* B P */
    float2 off = kda_small_product(scratch + 16 * KDA_INV_PITCH * 4, KDA_INV_PITCH,
                                   scratch + 32 * KDA_INV_PITCH * 4, pair_row, col);
    float beta_col = kda_lds_f32(s.work + L::beta + col * 4);
    kda_store_inv<L>(s, 16 + pair_row, col, -off.x, beta_col);
    kda_store_inv<L>(s, 17 + pair_row, col, -off.y, beta_col);
    if (!L::lean) cp_async_wait<1>(); /* v */
    named_barrier_sync(s.bar, 128);   /* inverse, v */
    kda_solve<L>(s, k_tile, packet);
    if (!L::lean) s.flip ^= 1;
}

#endif
