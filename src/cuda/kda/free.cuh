/* SPDX-License-Identifier: Apache-2.0
 * The decayed rows of a chunk under a gate without a bound, where no anchor is safe: every factor
 * here is at most 1. The unit is the quarter of a chunk, one warp's eight tokens.
 *
 * Inside a quarter the products of k and q with k are formed pair by pair on the CUDA cores: w_x =
 * k_x 2^(G_r - G_x) follows from the row before by one multiplication with the token's decay, and
 * at the last row it is the quarter's column for the blocks below. Between the quarters of a half
 * rows count G from their quarter's start and columns to their quarter's end; between the halves as
 * with a bound. Rows of both halves count from the half's start in the k tile, for W. */
#ifndef BRIM_CUDA_KDA_FREE_CUH
#define BRIM_CUDA_KDA_FREE_CUH

#include "cuda/kda/decay.cuh"

/* Where the q rows of the odd quarters wait for kda_pairs_free: 16 rows of 256 bytes. */
template <class L> BRIM_DEVICE uint32_t kda_free_rows(const kda_prep &s, uint32_t packet)
{
    return L::lean ? s.work + L::v : packet + KDA_PACKET_W;
}

/* Each lane has (x, y): lanes with `bit` set keep the sum of y, the others that of x. */
BRIM_DEVICE void kda_fold(float (&x)[4], const float (&y)[4], int bit, int lane)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float keep = lane & bit ? y[i] : x[i], send = lane & bit ? x[i] : y[i];
        x[i] = keep + __shfl_xor_sync(0xFFFFFFFF, send, bit);
    }
}

BRIM_DEVICE void kda_copy4(float (&to)[4], const float (&from)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) to[i] = from[i];
}

BRIM_DEVICE void kda_scale4(float (&x)[4], const float (&by)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] *= by[i];
}

/* g: log2 decay of each token. Fills the k tile (rows from the half's start), the g tile (even
 * quarters: columns to the quarter's end; odd: rows from the quarter's start), the q tile (first
 * half: columns to the half's end; second: query rows from its start), qd, kr and gamma of the
 * packet, and the 8 x 8 blocks on the diagonals of Mqk and L. */
template <class L>
BRIM_DEVICE void kda_decay_free(const kda_params &p, const kda_prep &s, uint32_t k_tile,
                                uint32_t packet, const float (&g)[32])
{
    int warp = s.tid >> 5, lane = s.tid & 31;
    bool odd = warp & 1, second = warp & 2;
    uint32_t small = s.work + L::small;
    float beside[4], other[4]; /* decay of the half's other quarter, of the other half */
    {
        float t0[4], t1[4], t2[4], t3[4];
        uint32_t total = small + KDA_SMALL_TOTAL + lane * 16;
        kda_load4(t0, total + warp * 512);
        kda_load4(t1, total + (warp ^ 1) * 512);
        kda_load4(t2, total + (warp ^ 2) * 512);
        kda_load4(t3, total + (warp ^ 3) * 512);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            beside[i] = ex2_approx(t1[i]);
            other[i] = ex2_approx(t2[i] + t3[i]);
            t0[i] = ex2_approx(t0[i] + t1[i] + t2[i] + t3[i]);
        }
        if (warp == 0) {
            uint32_t at = packet + KDA_PACKET_GAMMA;
            st_shared_v2_u32(at + kda_gamma_at(2 * lane), __float_as_uint(t0[0]),
                             __float_as_uint(t0[1]));
            st_shared_v2_u32(at + kda_gamma_at(2 * lane + 1), __float_as_uint(t0[2]),
                             __float_as_uint(t0[3]));
        }
        if (warp == 2)
            st_shared_v4(small + KDA_SMALL_HALF + lane * 16,
                         make_float4(other[0], other[1], other[2], other[3]));
    }
    uint32_t tile_at = kda_tile_at(warp * 8, lane >> 1) + (lane & 1) * 8;
    uint32_t panel_at = packet + kda_panel_at(warp * 8, lane >> 1) + (lane & 1) * 8;
    uint32_t k_at = k_tile + tile_at, work_at = s.work + tile_at;
    uint32_t rows_at =
        kda_free_rows<L>(s, packet) + kda_tile_at((warp >> 1) * 8, lane >> 1) + (lane & 1) * 8;
    float w[8][4], prefix[4] = {1, 1, 1, 1}, sum[3][4]; /* one, two, four rows folded */
#pragma unroll
    for (int r = 0; r < 8; r++) {
        float k[4], q[4], d[4] = {};
        kda_unpack(k, ld_shared_v2((k_at ^ (r << 4)) + r * 256));
        kda_unpack(q, ld_shared_v2((work_at ^ (r << 4)) + L::q + r * 256));
        float2 norm = ld_shared_v2_f32(small + KDA_SMALL_NORM + (warp * 8 + r) * 8);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float decay = ex2_approx(g[4 * r + i]);
            k[i] *= norm.y;
            q[i] *= norm.x;
            prefix[i] *= decay;
#pragma unroll
            for (int x = 0; x < r; x++) w[x][i] *= decay;
            w[r][i] = k[i];
        }
        /* pairs: a lane's four channels by fp32, the sum over its quad by the tensor core: column x
         * of d, row quad for k k^T, quad + 8 for q k^T; the quads' sum by the folds */
#pragma unroll
        for (int x = 0; x <= r; x += 2) {
            float dot[4] = {}; /* k and q with w_x, then with w_(x+1) */
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (x < r) dot[0] = fmaf(k[i], w[x][i], dot[0]);
                dot[1] = fmaf(q[i], w[x][i], dot[1]);
                if (x + 1 < r) dot[2] = fmaf(k[i], w[x + 1][i], dot[2]);
                if (x + 1 <= r) dot[3] = fmaf(q[i], w[x + 1][i], dot[3]);
            }
            mma_tf32_1688(d, dot[0], dot[1], dot[2], dot[3], lane >> 2 == x ? 1.0f : 0.0f,
                          lane >> 2 == x + 1 ? 1.0f : 0.0f);
        }
        if (r & 1) {
            kda_fold(sum[0], d, 16, lane);
            if (r & 2) {
                kda_fold(sum[1], sum[0], 8, lane);
                if (r & 4)
                    kda_fold(sum[2], sum[1], 4, lane);
                else
                    kda_copy4(sum[2], sum[1]);
            } else {
                kda_copy4(sum[1], sum[0]);
            }
        } else {
            kda_copy4(sum[0], d);
        }
        uint32_t to = (work_at ^ (r << 4)) + r * 256, out = (panel_at ^ (r << 4)) + r * 128;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            k[i] *= prefix[i];
            q[i] *= prefix[i];
        }
        if (odd) {
            kda_store_bf16x4(to + L::g, k);
            kda_store_bf16x4((rows_at ^ (r << 4)) + r * 256, q);
            kda_scale4(k, beside);
            kda_scale4(q, beside);
        }
        kda_store_bf16x4((k_at ^ (r << 4)) + r * 256, k);
        if (second) {
            kda_store_bf16x4(to + L::q, q);
            kda_scale4(q, other);
        }
        kda_store_bf16x4(out + KDA_PACKET_QD, q);
    }
#pragma unroll
    for (int x = 0; x < 8; x++) {
        uint32_t to = (work_at ^ (x << 4)) + x * 256, out = (panel_at ^ (x << 4)) + x * 128;
        if (!odd) {
            kda_store_bf16x4(to + L::g, w[x]);
            kda_scale4(w[x], beside);
        }
        if (!second) {
            kda_store_bf16x4(to + L::q, w[x]);
            kda_scale4(w[x], other);
        }
        kda_store_bf16x4(out + KDA_PACKET_KR, w[x]);
    }
    /* this lane's row of the 8 x 8 blocks, at columns x and x + 1 */
    int r = (lane >> 4 & 1) | (lane >> 2 & 2) | (lane & 4), x = 2 * (lane & 3);
    int in_half = (warp & 1) * 8 + r;
    float beta = ld_shared_f32(small + KDA_SMALL_BETA + s.flip * 128 + (warp * 8 + r) * 4);
    uint32_t mqk = packet + KDA_PACKET_MQK, l_at = mqk + (in_half & 3) * 4;
    st_shared_u32(mqk + kda_panel_at(warp * 8 + r, warp) + x * 2,
                  bf16x2_pack(sum[2][2], sum[2][3]));
    st_shared_f32(l_at + kda_inv_at(warp * 8 + x, in_half >> 2), sum[2][0] * beta);
    st_shared_f32(l_at + kda_inv_at(warp * 8 + x + 1, in_half >> 2), sum[2][1] * beta);
    if (!odd && lane < 8)
        st_shared_v4_u32(mqk + kda_panel_at(warp * 8 + lane, warp + 1), 0, 0, 0, 0);
}

/* Warp block = 0, 1: the block of that half between its quarters, of L and Mqk: rows of k and q,
 * eight each, in one fragment. */
template <class L>
BRIM_DEVICE void kda_pairs_free(const kda_prep &s, uint32_t packet, int block, int lane)
{
    uint32_t k_at = s.work + L::g + kda_tile_at(block * 16 + 8 + (lane & 7), lane >> 4);
    uint32_t q_at = kda_free_rows<L>(s, packet) + kda_tile_at(block * 8 + (lane & 7), lane >> 4);
    uint32_t a_at = lane & 8 ? q_at : k_at;
    uint32_t b_at = s.work + L::g + kda_tile_at(block * 16 + (lane & 7), lane >> 3);
    uint32_t a[8][4], b[4][4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        ldmatrix_x4(b[i], b_at ^ (i << 6));
        ldmatrix_x4(a[2 * i], a_at ^ (i << 6));
        ldmatrix_x4(a[2 * i + 1], a_at ^ (i << 6 | 32));
    }
    int row = lane >> 2, x = 2 * (lane & 3);
    float beta = ld_shared_f32(s.work + L::small + KDA_SMALL_BETA + s.flip * 128 +
                               (block * 16 + 8 + row) * 4);
    float d[2][4] = {};
#pragma unroll
    for (int i = 0; i < 8; i++)
        mma_bf16_16816(d[i & 1], a[i], b[i >> 1][2 * (i & 1)], b[i >> 1][2 * (i & 1) + 1]);
#pragma unroll
    for (int i = 0; i < 4; i++) d[0][i] += d[1][i];
    uint32_t mqk = packet + KDA_PACKET_MQK, l_at = mqk + (row & 3) * 4;
    st_shared_u32(mqk + kda_panel_at(block * 16 + 8 + row, 2 * block) + x * 2,
                  bf16x2_pack(d[0][2], d[0][3]));
    st_shared_f32(l_at + kda_inv_at(block * 16 + x, 2 + (row >> 2)), d[0][0] * beta);
    st_shared_f32(l_at + kda_inv_at(block * 16 + x + 1, 2 + (row >> 2)), d[0][1] * beta);
}

#endif
