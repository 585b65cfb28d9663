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
    asm volatile("mul.f32 %0, %0, %1;" : "+f"(x) : "f"(by));
}

/* Element (v, k) of one head's state in the caller's layout. */
BRIM_DEVICE int kda_state_at(const kda_params &p, int v, int k)
{
    return p.k_first ? k * 128 + v : v * 128 + k;
}

BRIM_DEVICE void kda_state_load(const kda_params &p, const kda_task &t, int row, int col,
                                float (&s)[64])
{
    int64_t slot = p.state_index ? p.state_index[t.seq] : t.seq;
    bool read = p.initial && !(p.state_index && (slot < 0 || slot >= p.n_slot)) &&
                !(p.fresh && p.fresh[t.seq]);
    int64_t at = slot * p.state_stride + (int64_t)t.head * 16384;
#pragma unroll
    for (int j = 0; j < 16; j++)
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int64_t i = at + kda_state_at(p, row + 8 * h, 8 * j + col + e);
                float x = 0;
                if (read)
                    x = p.state_f32 ? ((const float *)p.initial)[i]
                                    : __bfloat162float(((const __nv_bfloat16 *)p.initial)[i]);
                s[4 * j + 2 * h + e] = x;
            }
}

BRIM_DEVICE void kda_state_store(const kda_params &p, void *to, int64_t at, int row, int col,
                                 const float (&s)[64])
{
#pragma unroll
    for (int j = 0; j < 16; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float x = s[4 * j + 2 * h], y = s[4 * j + 2 * h + 1];
            int64_t i = at + kda_state_at(p, row + 8 * h, 8 * j + col);
            int step = p.k_first ? 128 : 1;
            if (p.state_f32) {
                ((float *)to)[i] = x;
                ((float *)to)[i + step] = y;
            } else {
                ((__nv_bfloat16 *)to)[i] = __float2bfloat16_rn(x);
                ((__nv_bfloat16 *)to)[i + step] = __float2bfloat16_rn(y);
            }
        }
}

/* Sixteen value rows of one warp to the output's token rows, through 1 KB of staging of its own. */
BRIM_DEVICE void kda_out_store(const kda_params &p, const kda_task &t, int chunk, uint32_t staging,
                               int value, const uint32_t (&o)[8], int lane)
{
#pragma unroll
    for (int j = 0; j < 2; j++) {
        int token = 16 * j + ((lane >> 4) << 3) + (lane & 7), piece = (lane >> 3) & 1;
        uint32_t r[4] = {o[4 * j], o[4 * j + 1], o[4 * j + 2], o[4 * j + 3]};
        stmatrix_x4_trans(staging + token * 32 + ((piece ^ ((token >> 2) & 1)) << 4), r);
    }
    __syncwarp();
    int64_t row = (int64_t)chunk * KDA_CHUNK + lane;
    uint4 a, b;
    uint32_t at = staging + lane * 32, flip = (lane >> 2) & 1;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w)
                 : "r"(at + flip * 16)
                 : "memory");
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b.x), "=r"(b.y), "=r"(b.z), "=r"(b.w)
                 : "r"(at + (flip ^ 1) * 16)
                 : "memory");
    if (row < t.n_tok) {
        uint4 *to = (uint4 *)(t.out + row * p.out_stride.token + value);
        to[0] = a;
        to[1] = b;
    }
    __syncwarp();
}

/* wg: which 64 value rows. Stage of chunk c is c % n_stage at stages + that * KDA_PACKET_BYTES;
 * full and empty are arrays of mbarriers, one a stage. `empty` takes one arrival of every consumer
 * warp. */
template <int n_stage, bool hold_gamma>
BRIM_DEVICE void kda_advance(const kda_params &p, const kda_task &t, uint32_t stages, uint32_t full,
                             uint32_t empty, uint32_t staging, int wg, int tid)
{
    int warp = tid >> 5, lane = tid & 31;
    int row = wg * 64 + warp * 16 + (lane >> 2), col = 2 * (lane & 3);
    uint32_t own_staging = staging + (wg * 4 + warp) * 1024;
    float s[64], y[16], o[16];
    uint32_t a[8][4], u[2][4], packed[8];
    kda_state_load(p, t, row, col, s);
    int z_token = ((lane >> 4) << 3) + (lane & 7), z_piece = 2 * warp + ((lane >> 3) & 1);
    uint32_t z_at = KDA_PACKET_Z + wg * KDA_PANEL + swizzle_128b(z_token, z_piece);
    int stage = 0;
    uint32_t parity = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) packed[i] = 0;

#pragma unroll 1
    for (int c = 0; c < t.n_chunk; c++) {
        uint32_t packet = stages + stage * KDA_PACKET_BYTES;
        uint64_t desc_w = wgmma_desc_128b(packet + KDA_PACKET_W, 16, 1024);
        uint64_t desc_q = wgmma_desc_128b(packet + KDA_PACKET_QD, 16, 1024);
        uint64_t desc_k = wgmma_desc_128b(packet + KDA_PACKET_KR, KDA_PANEL, 1024);
        uint64_t desc_m = wgmma_desc_128b(packet + KDA_PACKET_MQK, 16, 1024);
#pragma unroll
        for (int k = 0; k < 8; k++)
#pragma unroll
            for (int r = 0; r < 4; r++)
                a[k][r] = bf16x2_pack(s[8 * k + 2 * r], s[8 * k + 2 * r + 1]);
        mbarrier_wait(full + 8 * stage, parity);
#pragma unroll
        for (int j = 0; j < 2; j++) {
            uint32_t z[4];
            ldmatrix_x4_trans(z, packet + z_at + j * 16 * 128);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                y[8 * j + 2 * i] = bf16_lo(z[i]);
                y[8 * j + 2 * i + 1] = bf16_hi(z[i]);
            }
        }
        float2 gamma[16];
        auto load_gamma = [&](int j) {
            asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                         : "=f"(gamma[j].x), "=f"(gamma[j].y)
                         : "r"(packet + KDA_PACKET_GAMMA + (8 * j + col) * 4)
                         : "memory");
        };
#pragma unroll
        for (int j = 0; hold_gamma && j < 16; j++) load_gamma(j);
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
        /* while they run: decay the state, which the products read through `a`, and store the last
         * O */
#pragma unroll
        for (int j = 0; j < 16; j++) {
            if (!hold_gamma) load_gamma(j);
            kda_scale(s[4 * j], gamma[j].x);
            kda_scale(s[4 * j + 1], gamma[j].y);
            kda_scale(s[4 * j + 2], gamma[j].x);
            kda_scale(s[4 * j + 3], gamma[j].y);
        }
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
        if (c > 0) kda_out_store(p, t, c - 1, own_staging, wg * 64 + warp * 16, packed, lane);
        wgmma_wait<0>();
        wgmma_pin(s);
        wgmma_pin(o);
        if (lane == 0)
            mbarrier_arrive(empty + 8 * stage); /* all reads of the packet are complete */
#pragma unroll
        for (int i = 0; i < 8; i++) packed[i] = bf16x2_pack(o[2 * i], o[2 * i + 1]);
        if (p.checkpoints && (c & 1) && (c + 1) * KDA_CHUNK <= t.n_tok) {
            asm volatile("" : "+r"(row), "+r"(col)); /* opaque: no addresses kept across chunks */
            int64_t first = p.offset_bytes ? t.row0 / 64 : t.seq * (p.n_tok / 64);
            kda_state_store(p, p.checkpoints,
                            ((first + (c >> 1)) * p.n_value_head + t.head) * 16384, row, col, s);
        }
        if (++stage == n_stage) {
            stage = 0;
            parity ^= 1;
        }
    }
    if (t.n_chunk > 0)
        kda_out_store(p, t, t.n_chunk - 1, own_staging, wg * 64 + warp * 16, packed, lane);
    int64_t slot = p.state_index ? p.state_index[t.seq] : t.seq;
    if (p.final && !(p.state_index && (slot < 0 || slot >= p.n_slot)))
        kda_state_store(p, p.final, slot * p.state_stride + (int64_t)t.head * 16384, row, col, s);
}

#endif
