/* SPDX-License-Identifier: Apache-2.0
 * K2 with everything it can know ahead in registers: the same products in the same order as
 * kda_advance (advance.cuh), so the same bits, for owners that have registers to spend. While the
 * update of a chunk runs, the last output is handed on and Z and gamma of the next chunk are
 * fetched; the stores of checkpoints stay out of the inner loop. */
#ifndef BRIM_CUDA_KDA_AHEAD_CUH
#define BRIM_CUDA_KDA_AHEAD_CUH

#include "cuda/kda/advance.cuh"

/* x * by, not before `after` is known (-0, which changes no sum). Volatile: must stay between the
 * issue of a product and the wait for it, where the code has it. */
BRIM_DEVICE void kda_scale_after(float &x, float by, float after)
{
    fma_here(x, by, after);
}

/* wg: which 64 value rows. Stage of chunk c is c % n_stage at stages + that * KDA_PACKET_BYTES;
 * full is an array of mbarriers, one a stage; done(chunk, stage) is called by one lane of every
 * consumer warp when all its reads of the packet are complete. The output passes through `panels`
 * to a warp that stores it. twice: two images of the packed state (240 registers, else 208), so
 * that the products of O run behind the update, while the next chunk's state is packed.
 *
 * A warp stands at each product until the tensor unit takes it (16 cycles for 32 columns), and
 * ptxas puts a wait where the state is touched between products: so the decay follows the last
 * product of a batch, where it runs under the latency of Y. */
template <int n_stage, bool twice, class Range, class Done>
BRIM_DEVICE void kda_advance_ahead(const kda_params &p, const kda_task &t, const Range &range,
                                   uint32_t stages, uint32_t full, kda_panels panels, int wg,
                                   int tid, Done done)
{
    int warp = tid >> 5, lane = tid & 31;
    int row = wg * 64 + warp * 16 + (lane >> 2), col = 2 * (lane & 3);
    float s[64], y[16], o[16];
    uint32_t image[twice ? 2 : 1][8][4], u[2][4], packed[8], z[8];
    float4 gamma[8];
    if constexpr (Range::rest)
        kda_state_load(p, t, row, col, s, range.chunk0 == 0);
    else
        kda_state_load(p, t, row, col, s);
    int z_token = ((lane >> 4) << 3) + (lane & 7), z_piece = 2 * warp + ((lane >> 3) & 1);
    uint32_t z_at = KDA_PACKET_Z + wg * KDA_PANEL + swizzle_128b(z_token, z_piece);
    uint32_t gamma_at =
        KDA_PACKET_GAMMA + kda_gamma_at(lane & 3); /* its piece 0; the others by xor */
    uint32_t put_at = swizzle_128b(z_token, z_piece);
    int c = 0, stage = 0, last_stage = 0;
    uint32_t parity = 0;
    /* columns 16 i + col .. + 1 and 16 i + 8 + col .. + 1 */
    auto load_gamma = [&](uint32_t packet, int i) {
        gamma[i] = ld_shared_v4_f32(packet + (gamma_at ^ (i << 4)));
    };
    /* what the chain wants in registers: Z as the accumulator of U, gamma */
    auto widen_z = [&]() {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            y[2 * i] = bf16_lo(z[i]);
            y[2 * i + 1] = bf16_hi(z[i]);
        }
    };
    auto load_ahead = [&](uint32_t packet) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            uint32_t r[4];
            ldmatrix_x4_trans(r, packet + z_at + j * 16 * 128);
#pragma unroll
            for (int i = 0; i < 4; i++) z[4 * j + i] = r[i];
        }
#pragma unroll
        for (int i = 0; i < 8; i++) load_gamma(packet, i);
    };
    auto decay = [&](float after) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                kda_scale_after(s[8 * i + 2 * h], gamma[i].x, after);
                kda_scale_after(s[8 * i + 2 * h + 1], gamma[i].y, after);
                kda_scale_after(s[8 * i + 4 + 2 * h], gamma[i].z, after);
                kda_scale_after(s[8 * i + 4 + 2 * h + 1], gamma[i].w, after);
            }
        }
    };
    auto pack_state = [&](uint32_t(&a)[8][4]) {
#pragma unroll
        for (int k = 0; k < 8; k++)
#pragma unroll
            for (int r = 0; r < 4; r++)
                a[k][r] = bf16x2_pack(s[8 * k + 2 * r], s[8 * k + 2 * r + 1]);
    };
    auto pack_out = [&]() {
#pragma unroll
        for (int i = 0; i < 8; i++) packed[i] = bf16x2_pack(o[2 * i], o[2 * i + 1]);
    };
    /* O of chunk k, packed, on its way */
    /* Before its first use a panel's barrier is in phase 0: the one before has ended. */
    auto panel_bar = [&](int k) { return panels.taken + 8 * (k & 1); };
    auto panel_parity = [&](int k) { return (uint32_t)(((k >> 1) - 1) & 1); };
    auto announce = [&](int k) {
        __syncwarp();
        if (lane == 0) mbarrier_arrive(panels.put + 8 * (k & 1));
    };
    /* Chunk c, whose state is packed in a. On return the next one's is packed in next; twice: O is
     * under way. */
    auto advance = [&](uint32_t(&a)[8][4], uint32_t(&next)[8][4]) {
        int before_last = last_stage;
        uint32_t packet = stages + stage * KDA_PACKET_BYTES;
        uint64_t desc_w = wgmma_desc_128b(packet + KDA_PACKET_W, 16, 1024);
        uint64_t desc_q = wgmma_desc_128b(packet + KDA_PACKET_QD, 16, 1024);
        uint64_t desc_k = wgmma_desc_128b(packet + KDA_PACKET_KR, KDA_PANEL, 1024);
        uint64_t desc_m = wgmma_desc_128b(packet + KDA_PACKET_MQK, 16, 1024);
        auto issue_o = [&]() {
            wgmma_m64k16<32>::rs<0, 0>(o, a[0], desc_q);
#pragma unroll
            for (int k = 1; k < 8; k++)
                wgmma_m64k16<32>::rs<1, 0>(o, a[k],
                                           desc_q + (k >> 2) * (KDA_PANEL >> 4) + (k & 3) * 2);
        };
        KDA_HOOK(p, KDA_AT_CHUNK, c);
        wgmma_fence();
        uint32_t now;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            if (k == 6) now = clock_u32();
            wgmma_m64k16<32>::rs<1, 0>(y, a[k], desc_w + (k >> 2) * (KDA_PANEL >> 4) + (k & 3) * 2);
        }
        float after = __uint_as_float((now & p.zero) ^ 0x80000000u);
        wgmma_commit();
        if (!twice) {
            issue_o();
            wgmma_commit();
        }
        decay(after); /* no branch may stand before it, or ptxas waits for the products there */
        if (twice)
            wgmma_wait<0>(); /* and for O of the last chunk */
        else
            wgmma_wait<1>();
        wgmma_pin(y);
#pragma unroll
        for (int k = 0; k < 2; k++)
#pragma unroll
            for (int r = 0; r < 4; r++)
                u[k][r] = bf16x2_pack(y[8 * k + 2 * r], y[8 * k + 2 * r + 1]);
        if (twice) {
            wgmma_pin(o);
            pack_out();
        }
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 2; k++) wgmma_m64k16<128>::rs<1, 1>(s, u[k], desc_k + k * (2048 >> 4));
        wgmma_commit();
        /* While they run: hand the last O on and fetch what the next chunk starts with. A look at a
         * barrier takes 90 cycles: both are begun at once, and the loads' latency passes under the
         * output. */
        last_stage = stage;
        bool wrap = stage + 1 == n_stage, more = c + 1 < t.n_chunk;
        stage = wrap ? 0 : stage + 1;
        parity ^= wrap;
        bool taken = mbarrier_test(panel_bar(c - 1), panel_parity(c - 1));
        if (more) {
            mbarrier_wait(full + 8 * stage, parity);
            load_ahead(stages + stage * KDA_PACKET_BYTES);
        }
        if (twice) issue_o();
#pragma unroll
        for (int k = 0; k < 2; k++) wgmma_m64k16<32>::rs<1, 0>(o, u[k], desc_m + k * 2);
        wgmma_commit();
        if (twice && lane == 0 && c > 0) done(c - 1, before_last);
        if (c > 0) {
            if (!taken) mbarrier_wait(panel_bar(c - 1), panel_parity(c - 1));
            kda_out_put(panels.at + ((c - 1) & 1) * KDA_PANEL, put_at, packed);
            announce(c - 1);
        }
        widen_z();
        wgmma_wait<1>();
        wgmma_pin(s);
        pack_state(next);
        if (!twice) {
            wgmma_wait<0>();
            wgmma_pin(o);
            pack_out();
            if (lane == 0) done(c, last_stage);
        }
        c++;
    };
#pragma unroll
    for (int i = 0; i < 16; i++) o[i] = 0;
    pack_out();
    if (t.n_chunk > 0) {
        mbarrier_wait(full, 0);
        load_ahead(stages);
        widen_z();
        pack_state(image[0]);
    }
    /* The stores of checkpoints stay out of the inner loop, whose instructions are then near enough
     * to each other. */
    int n_saved = t.n_tok / BRIM_KDA_CHECKPOINT * 2; /* chunks before the last checkpoint */
    if constexpr (Range::rest)
        n_saved = (range.chunk0 + t.n_tok / KDA_CHUNK) / 2 * 2 - range.chunk0;
    while (c < t.n_chunk) {
        bool save = p.checkpoints && c < n_saved;
        int stop = save ? c + 2 : t.n_chunk;
        if constexpr (Range::rest)
            if (save) stop -= (c + range.chunk0) & 1;
#pragma unroll 1
        while (c < stop) {
            advance(image[0], image[twice ? 1 : 0]);
            if (twice) {
                if (c == stop) break;
                advance(image[twice ? 1 : 0], image[0]);
            }
        }
        if (Range::rest && twice && c == 1 && stop == 1) { /* begun at an odd chunk, and goes on */
            wgmma_wait<0>();
            wgmma_pin(o);
#pragma unroll
            for (int k = 0; k < 8; k++)
#pragma unroll
                for (int r = 0; r < 4; r++) image[0][k][r] = image[twice ? 1 : 0][k][r];
        }
        opaque(row, col); /* no addresses kept across chunks */
        int whole_c = c;
        if constexpr (Range::rest) {
            whole_c += range.chunk0;
            save &= c > range.quiet;
        }
        if (save) {
            int64_t first = p.offset_bytes ? t.row0 / 64 : t.seq * (p.n_tok / 64);
            int64_t at = (first + (whole_c >> 1) - 1) * p.n_value_head + t.head;
            kda_checkpoint_store(p, at * 16384, row, col, s);
        }
    }
    if (t.n_chunk > 0) {
        int k = t.n_chunk - 1;
        if (twice) {
            wgmma_wait<0>();
            wgmma_pin(o);
            pack_out();
            if (lane == 0) done(k, last_stage);
        }
        mbarrier_wait(panel_bar(k), panel_parity(k));
        kda_out_put(panels.at + (k & 1) * KDA_PANEL, put_at, packed);
        announce(k);
    }
    int64_t slot = p.state_index ? p.state_index[t.seq] : t.seq;
    if (p.final && !(p.state_index && (slot < 0 || slot >= p.n_slot)))
        kda_state_store(p, p.final, slot * p.state_stride + (int64_t)t.head * 16384, row, col, s);
    KDA_HOOK(p, KDA_AT_END, t.n_chunk);
}

#endif
