/* SPDX-License-Identifier: Apache-2.0
 * Exact join, first launch: two CTAs a (segment, value head). One carries the state that the
 * segment writes from zero (the first segment's from the initial state), the other its map: 128
 * value columns that start from the identity, without values. Neither writes outputs. The last
 * segment of a task has neither, the first no map. Behind a launch with windows nothing is done for
 * tasks whose cuts hold. */
#include "cuda/kda/advance.cuh"
#include "cuda/kda/join.cuh"
#include "cuda/kda/launch.cuh"

/* The update of kda_advance alone, 64 value rows. map: from the identity with Z = 0, and the state
 * and U are read as sums of two bf16 each: a map's error acts on all value columns alike and does
 * not average over them (docs/numerics.md, "Joining"). */
template <bool map>
BRIM_DEVICE void kda_carry(const kda_params &p, const kda_task &t, bool initial, float *to,
                           uint32_t stages, uint32_t full, uint32_t empty, int wg, int tid)
{
    int warp = tid >> 5, lane = tid & 31;
    int row = wg * 64 + warp * 16 + (lane >> 2), col = 2 * (lane & 3);
    float s[64], y[16];
    uint32_t a[8][4], u[2][4], low[2][4];
    if (!map && initial) {
        kda_state_load(p, t, row, col, s);
    } else {
#pragma unroll
        for (int j = 0; j < 16; j++)
#pragma unroll
            for (int h = 0; h < 2; h++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    s[4 * j + 2 * h + e] = map && row + 8 * h == 8 * j + col + e ? 1.0f : 0.0f;
    }
    int z_token = ((lane >> 4) << 3) + (lane & 7), z_piece = 2 * warp + ((lane >> 3) & 1);
    uint32_t z_at = KDA_PACKET_Z + wg * KDA_PANEL + swizzle_128b(z_token, z_piece);
    uint32_t gamma_at = KDA_PACKET_GAMMA + kda_gamma_at(lane & 3);
    int stage = 0;
    uint32_t parity = 0;
#pragma unroll 1
    for (int c = 0; c < t.n_chunk; c++) {
        uint32_t packet = stages + stage * KDA_PACKET_BYTES;
        mbarrier_wait(full + 8 * stage, parity);
        uint64_t desc_w = wgmma_desc_128b(packet + KDA_PACKET_W, 16, 1024);
        uint64_t desc_k = wgmma_desc_128b(packet + KDA_PACKET_KR, KDA_PANEL, 1024);
#pragma unroll
        for (int j = 0; j < 2; j++) {
            uint32_t z[4] = {};
            if (!map) ldmatrix_x4_trans(z, packet + z_at + j * 16 * 128);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                y[8 * j + 2 * i] = bf16_lo(z[i]);
                y[8 * j + 2 * i + 1] = bf16_hi(z[i]);
            }
        }
#pragma unroll
        for (int k = 0; k < 8; k++)
#pragma unroll
            for (int r = 0; r < 4; r++)
                a[k][r] = bf16x2_pack(s[8 * k + 2 * r], s[8 * k + 2 * r + 1]);
        auto products = [&] {
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 8; k++)
                wgmma_m64k16<32>::rs<1, 0>(y, a[k],
                                           desc_w + (k >> 2) * (KDA_PANEL >> 4) + (k & 3) * 2);
            wgmma_commit();
        };
        products();
        if (map) { /* the second halves take the registers of the first */
            wgmma_wait<0>();
            wgmma_pin(y);
#pragma unroll
            for (int k = 0; k < 8; k++)
#pragma unroll
                for (int r = 0; r < 4; r++)
                    a[k][r] = bf16x2_pack(s[8 * k + 2 * r] - bf16_lo(a[k][r]),
                                          s[8 * k + 2 * r + 1] - bf16_hi(a[k][r]));
            products();
        }
        /* while they run: decay the state, which the products read through `a` */
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float4 gamma = ld_shared_v4_f32(packet + (gamma_at ^ (i << 4)));
#pragma unroll
            for (int h = 0; h < 2; h++) {
                kda_scale(s[8 * i + 2 * h], gamma.x);
                kda_scale(s[8 * i + 2 * h + 1], gamma.y);
                kda_scale(s[8 * i + 4 + 2 * h], gamma.z);
                kda_scale(s[8 * i + 4 + 2 * h + 1], gamma.w);
            }
        }
        wgmma_wait<0>();
        wgmma_pin(y);
#pragma unroll
        for (int k = 0; k < 2; k++)
#pragma unroll
            for (int r = 0; r < 4; r++) {
                float x = y[8 * k + 2 * r], z = y[8 * k + 2 * r + 1];
                u[k][r] = bf16x2_pack(x, z);
                low[k][r] = bf16x2_pack(x - bf16_lo(u[k][r]), z - bf16_hi(u[k][r]));
            }
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 2; k++) wgmma_m64k16<128>::rs<1, 1>(s, u[k], desc_k + k * (2048 >> 4));
#pragma unroll
        for (int k = 0; map && k < 2; k++)
            wgmma_m64k16<128>::rs<1, 1>(s, low[k], desc_k + k * (2048 >> 4));
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_pin(s);
        __syncwarp();
        if (lane == 0)
            mbarrier_arrive(empty + 8 * stage); /* all reads of the packet are complete */
        if (++stage == KDA_PART_STAGE) {
            stage = 0;
            parity ^= 1;
        }
    }
    kda_plain_store(to, row, col, s);
}

template <bool bounded>
static __global__ void __launch_bounds__(KDA_PART_THREAD, 1)
    brim_kda_map_sm90(const __grid_constant__ kda_params p)
{
    extern __shared__ char raw[];
    uint32_t base = (smem_u32(raw) + 1023) & ~1023u;
    uint32_t full = base + KDA_PART_BARRIER, empty = full + 8 * KDA_PART_STAGE;
    int tid = threadIdx.x, begin, end;
    bool map = blockIdx.x & 1;
    unsigned place = blockIdx.x >> 1;
    int head = (int)(place % (unsigned)p.n_value_head);
    uint32_t slot = place / (unsigned)p.n_value_head;
    kda_task t = kda_slot_task(p, slot, head, &begin, &end);
    /* before anything returns: the launches behind wait for this one alone */
    KDA_HOOK(p, KDA_AT_BEHIND, 0);
    griddepcontrol_wait();
    KDA_HOOK(p, KDA_AT_WAITED, 0);
    griddepcontrol_launch_dependents();
    uint32_t *words = kda_cut_words(p, t.seq, t.head);
    bool kept = !p.cuts.exact && kda_cuts_kept(words) == KDA_KEEP_ALL;
    if (map && begin == 0 && tid == 0) words[KDA_CUT_KEPT] = kept;
    if (kept || begin < 0 || end >= t.n_chunk || (map && begin == 0)) return;
    kda_task_narrow(p, t, begin, end);
    kda_part_barriers(full, empty, tid);
    if (tid < 256) {
        setmaxnreg_inc<160>();
        if (map)
            kda_carry<true>(p, t, false, kda_segment_map(p, slot, head), base, full, empty,
                            tid >> 7, tid & 127);
        else
            kda_carry<false>(p, t, begin == 0, kda_segment_written(p, slot, head), base, full,
                             empty, tid >> 7, tid & 127);
    } else {
        setmaxnreg_dec<96>();
        kda_part_feed<bounded>(p, t, base, full, empty, tid - 256);
    }
}

brim_status brim_kda_launch_map(const kda_params &p, int64_t n_slot, cudaStream_t stream,
                                brim_error *err)
{
    return KDA_LAUNCH(brim_kda_map_sm90, kda_shape(2 * n_slot * p.n_value_head, 1, KDA_PART_THREAD,
                                                   KDA_PART_SMEM, !p.cuts.exact));
}
