/* SPDX-License-Identifier: Apache-2.0
 * First part of K1: norms, log decay and the decayed rows of a chunk.
 *
 * Warp w has tokens 8 w .. 8 w + 7, lane l of it channels 4 l .. 4 l + 3, so that norms stay inside
 * a warp and the running sum of the gate inside a thread; what crosses warps is one total a
 * channel. Per element: two special-function operations for the gate, two for the factors 2^+-G. */
#ifndef BRIM_CUDA_KDA_DECAY_CUH
#define BRIM_CUDA_KDA_DECAY_CUH

#include "cuda/kda/tile.cuh"
#include "cuda/ptx/mma.cuh"

/* 2^-mid, exact. */
BRIM_DEVICE float kda_unmid(const kda_params &p)
{
    return __uint_as_float((uint32_t)(127 - p.mid) << 23);
}

BRIM_DEVICE void kda_unpack(float (&x)[4], uint2 raw)
{
    x[0] = bf16_lo(raw.x), x[1] = bf16_hi(raw.x);
    x[2] = bf16_lo(raw.y), x[3] = bf16_hi(raw.y);
}

BRIM_DEVICE void kda_load4(float (&x)[4], uint32_t addr)
{
    float4 v = ld_shared_v4_f32(addr);
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
}

BRIM_DEVICE void kda_store_bf16x4(uint32_t addr, const float (&x)[4])
{
    st_shared_v2_u32(addr, bf16x2_pack(x[0], x[1]), bf16x2_pack(x[2], x[3]));
}

/* Log2 decay of one token and channel under the softplus gate, at exponent y = log2 e (raw + bias):
 * -a log2(1 + 2^y). Where the sum has lost the small term's bits a series replaces the logarithm.
 */
BRIM_DEVICE float kda_softplus(float y, float minus_a)
{
    float t = ex2_approx(-fabsf(y)); /* at most 1 */
    float series = fmaf(fmaf(fmaf(fmaf(0.2f, t, -0.25f), t, 0.33333333f), t, -0.5f), t, 1.0f);
    series *= t * 1.4426950408889634f; /* t < 1/16: within 2e-7 */
    float sum = t < 0.0625f ? series : lg2_approx(1.0f + t);
    return minus_a * (fmaxf(y, 0.0f) + sum);
}

/* Does this lane hold the diagonal element of row lane / 4 of an 8 x 8 result, columns 2 (lane % 4)
 * + e? */
BRIM_DEVICE bool kda_own_row(int lane)
{
    return (lane & 3) == lane >> 3;
}

/* Running log2 decay g[4 j + i] of token 8 w + j, channel 4 l + i, from the warp's first token on
 * (without a bound: of the token alone, and at least -128, which 2^x takes for zero like all
 * below); the eight tokens' goes to TOTAL. Between the tokens: 1 / norm of the warp's rows of q and
 * k, to NORM; q's carries the scale and 2^-mid. The squares' sums are the diagonal of X X^T on the
 * tensor cores, with rows 0-7 of X from q and 8-15 from k; an A fragment is also the B fragment of
 * its transpose. They are taken in the first tokens' time, to be done when the last one is. With a
 * bound the product of a token's own q and k, with norms and scale, comes along; it is returned to
 * the lanes of kda_own_row.
 */
template <class L>
BRIM_DEVICE float kda_gate(const kda_params &p, const kda_task &t, const kda_prep &s, int chunk,
                           uint32_t k_tile, float (&g)[32])
{
    const float log2e = 1.4426950408889634f;
    int warp = s.tid >> 5, lane = s.tid & 31;
    int n_valid = t.n_tok - chunk * KDA_CHUNK - warp * 8; /* of this warp's tokens; any sign */
    float qq[2][4] = {}, kk[2][4] = {};                   /* two chains each */
    uint32_t x_at =
        (lane & 8 ? k_tile : s.work + L::q) + kda_tile_at(warp * 8 + (lane & 7), lane >> 4);
    /* the next step's arrive during this one's products, which are not worth a branch */
    uint32_t x[2][4];
    auto norm_fetch = [&](int i) { ldmatrix_x4(x[i & 1], x_at ^ (i << 5)); };
    auto norm_step = [&](int i) {
        const uint32_t(&a)[4] = x[i & 1];
        if (i < 7) norm_fetch(i + 1);
        mma_bf16_16816(qq[i & 1], a, a[0], a[2]);
        mma_bf16_16816(kk[i & 1], a, a[1], a[3]);
    };
    int row = lane >> 2;
    float own = 0;
    auto norms = [&] {
        float nq = rsqrt_approx((row & 1 ? qq[0][1] + qq[1][1] : qq[0][0] + qq[1][0]) + 1e-6f);
        float nk = rsqrt_approx((row & 1 ? kk[0][3] + kk[1][3] : kk[0][2] + kk[1][2]) + 1e-6f);
        nq = p.l2norm ? nq : 1.0f, nk = p.l2norm ? nk : 1.0f;
        if (kda_own_row(lane))
            st_shared_v2_u32(s.work + L::small + KDA_SMALL_NORM + (warp * 8 + row) * 8,
                             __float_as_uint(nq * (p.scale * kda_unmid(p))), __float_as_uint(nk));
        if constexpr (L::bounded) {
            own = row & 1 ? kk[0][1] + kk[1][1] : kk[0][0] + kk[1][0];
            own = own * nk * (nq * p.scale);
        }
    };
    norm_fetch(0);
    uint32_t at = s.work + L::g + kda_tile_at(warp * 8, lane >> 1) + (lane & 1) * 8;
    float sum[4] = {};
    auto put = [&](int j, int i, float decay,
                   float by) { /* log2 decay = decay * by */
                               if constexpr (L::bounded) {
                                   g[4 * j + i] = sum[i] = fmaf(decay, by, sum[i]);
                               } else {
                                   g[4 * j + i] = max_nan(decay * by, -128.0f);
                                   sum[i] += g[4 * j + i];
                               }
    };
    if (__builtin_expect(p.gate != BRIM_KDA_GATE_GIVEN, 1)) {
        float inverse = p.inverse_bound;
        uint2 word[8];
#pragma unroll
        for (int j = 0; j < 8; j++) word[j] = ld_shared_v2((at ^ (j << 4)) + j * 256);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float raw[4];
            kda_unpack(raw, word[j]);
            if (j < 4) norm_step(2 * j), norm_step(2 * j + 1);
            if (j == 5) norms();
            float live = j < n_valid ? 1.0f : 0.0f;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if constexpr (L::bounded) {
                    float e = ex2_approx(fmaf(raw[i], s.gate_mul, s.gate_add[i]));
                    put(j, i, rcp_approx(fmaf(e, inverse, inverse)), live);
                } else {
                    put(j, i, kda_softplus(fmaf(raw[i], log2e, s.gate_add[i]), s.gate_mul), live);
                }
            }
        }
    } else if (p.g_f32) {
        const float *row = (const float *)t.g +
                           ((int64_t)chunk * KDA_CHUNK + warp * 8) * p.g_stride.token + 4 * lane;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float4 raw = make_float4(0, 0, 0, 0);
            if (j < n_valid) raw = *(const float4 *)(row + j * p.g_stride.token);
            g[4 * j] = raw.x, g[4 * j + 1] = raw.y, g[4 * j + 2] = raw.z, g[4 * j + 3] = raw.w;
        }
#pragma unroll
        for (int j = 0; j < 8; j++) {
            norm_step(j);
#pragma unroll
            for (int i = 0; i < 4; i++) put(j, i, g[4 * j + i], log2e);
        }
        norms();
    } else {
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float raw[4]; /* zero past the end */
            kda_unpack(raw, ld_shared_v2((at ^ (j << 4)) + j * 256));
            norm_step(j);
#pragma unroll
            for (int i = 0; i < 4; i++) put(j, i, raw[i], log2e);
        }
        norms();
    }
    st_shared_v4(s.work + L::small + KDA_SMALL_TOTAL + warp * 512 + lane * 16,
                 make_float4(sum[0], sum[1], sum[2], sum[3]));
    return own;
}

/* Decayed rows of this warp's tokens, into the tiles and the packet. G counts from the start of the
 * half. The k tile gets k 2^(G + mid), `columns` k 2^-(G + mid); q's norm has given 2^-mid away, so
 * its rows are q 2^G: the second half's are `rows`, the first half's the packet's. A half knows no
 * token behind its row: only kr and the columns of the block below the diagonal (k 2^(end - G), the
 * first half of `rows`) look ahead. */
template <class L, int half>
BRIM_DEVICE void kda_decay(const kda_params &p, const kda_prep &s, uint32_t k_tile, uint32_t packet,
                           float (&g)[32])
{
    int warp = s.tid >> 5, lane = s.tid & 31;
    const float mid = (float)p.mid;
    uint32_t small = s.work + L::small;
    float start[4], back[4], other[4]; /* other: decay of the other half */
    {
        float t0[4], t1[4], t2[4], t3[4];
        uint32_t total = small + KDA_SMALL_TOTAL + lane * 16;
        kda_load4(t0, total + half * 1024);
        kda_load4(t1, total + half * 1024 + 512);
        kda_load4(t2, total + (1 - half) * 1024);
        kda_load4(t3, total + (1 - half) * 1024 + 512);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            start[i] = warp & 1 ? mid + t0[i] : mid;
            back[i] = ex2_approx(mid + t0[i] + t1[i]);
            other[i] = ex2_approx(t2[i] + t3[i]);
        }
    }
    if (half == 1 && warp == 3) { /* the first half's warps have more to do */
        float unmid = kda_unmid(p), gamma[4];
#pragma unroll
        for (int i = 0; i < 4; i++) gamma[i] = back[i] * unmid * other[i];
        uint32_t at = packet + KDA_PACKET_GAMMA;
        st_shared_v2_u32(at + kda_gamma_at(2 * lane), __float_as_uint(gamma[0]),
                         __float_as_uint(gamma[1]));
        st_shared_v2_u32(at + kda_gamma_at(2 * lane + 1), __float_as_uint(gamma[2]),
                         __float_as_uint(gamma[3]));
    }
    if (half == 1 && warp == 2)
        st_shared_v4(small + KDA_SMALL_HALF + lane * 16,
                     make_float4(other[0], other[1], other[2], other[3]));

    uint32_t tile_at = kda_tile_at(warp * 8, lane >> 1) + (lane & 1) * 8;
    uint32_t panel_at = packet + kda_panel_at(warp * 8, lane >> 1) + (lane & 1) * 8;
    uint32_t k_at = k_tile + tile_at, work_at = s.work + tile_at;
    uint32_t pair_at = kda_pair_tiles<L>(s, packet) + tile_at;
    /* one token at a time: the next one's factors are under way during the products, the rows of
     * the one after it on their way from memory */
    uint32_t norm_at = small + KDA_SMALL_NORM + warp * 64;
    uint2 q_raw[2], k_raw[2];
    float norm[2][2], up[2][4], down[2][4];
    auto fetch = [&](int j) {
        k_raw[j & 1] = ld_shared_v2((k_at ^ (j << 4)) + j * 256);
        q_raw[j & 1] = ld_shared_v2((work_at ^ (j << 4)) + L::q + j * 256);
        float2 n = ld_shared_v2_f32(norm_at + j * 8);
        norm[j & 1][0] = n.x, norm[j & 1][1] = n.y;
    };
    auto factors = [&](int j) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            up[j & 1][i] = ex2_approx(g[4 * j + i]);
            down[j & 1][i] = ex2_approx(-g[4 * j + i]);
        }
    };
    fetch(0);
#pragma unroll
    for (int i = 0; i < 32; i++) g[i] += start[i & 3];
    factors(0);
#pragma unroll 1
    for (int part = 0;; part++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float q[4], k[4], kd[4], o[4], x[4];
            kda_unpack(q, q_raw[j & 1]);
            kda_unpack(k, k_raw[j & 1]);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                k[i] *= norm[j & 1][1];
                q[i] *= norm[j & 1][0];
            }
            uint32_t k_to = (k_at ^ (j << 4)) + j * 256;
            uint32_t to = (pair_at ^ (j << 4)) + j * 256, out = (panel_at ^ (j << 4)) + j * 128;
            if (j == 3) { /* the next four */
                k_at = (k_at ^ 64) + 1024, work_at = (work_at ^ 64) + 1024;
                pair_at = (pair_at ^ 64) + 1024;
                panel_at = (panel_at ^ 64) + 512, norm_at += 32;
            }
            if (j < 3 || part == 0) {
                fetch((j + 1) & 3);
                factors(j + 1);
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                q[i] *= up[j & 1][i];
                kd[i] = k[i] * up[j & 1][i];
                k[i] *= down[j & 1][i];
                o[i] = k[i] * back[i];
                x[i] = (half == 0 ? o[i] : q[i]) * other[i];
            }
            kda_store_bf16x4(k_to, kd);
            kda_store_bf16x4(to + L::columns, k);
            kda_store_bf16x4(half == 0 ? out + KDA_PACKET_QD : to + L::rows, q);
            kda_store_bf16x4(half == 0 ? to + L::rows : out + KDA_PACKET_QD, half == 0 ? o : x);
            kda_store_bf16x4(out + KDA_PACKET_KR, half == 0 ? x : o);
        }
        if (part) break;
#pragma unroll
        for (int i = 0; i < 16; i++) g[i] = g[16 + i];
    }
}

#endif
