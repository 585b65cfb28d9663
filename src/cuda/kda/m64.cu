/* SPDX-License-Identifier: Apache-2.0
 * Route m64: a cluster of two CTAs per (sequence, value head), 64 value rows of the state each.
 * Each prepares alternate chunks, in turn by its two instances, into a stage of its own and pushes
 * the packet, less its own half of Z, into the same stage of the other.
 *
 * Warps 0-3 consume (208 registers), warps 4-11 are the instances (128), warp 12 stores the output.
 * Barriers of each CTA: full[stage] one arrival, of the own instance or, by the other CTA, with the
 * bytes it pushes; empty[stage] the four consumer warps of both CTAs, since a packet is written in
 * both at once. The warps arrive where the stage's next packet will be prepared, every other time
 * in each CTA (the number of stages is odd), so that no phase of a barrier passes unseen; named
 * barriers 1 and 2 belong to the instances. Shared memory: 3 stages of 37 KB, 2 instances, 8 KB of
 * output panels. */
#include "cuda/kda/ahead.cuh"
#include "cuda/kda/finish.cuh"
#include "cuda/kda/launch.cuh"
#include "cuda/kda/prepare.cuh"

enum { M64_STAGES = 3, M64_INSTANCES = 2, M64_THREADS = 512 };
enum {
    M64_AT_PANELS = M64_STAGES * KDA_PACKET_BYTES,
    M64_AT_WORK = M64_AT_PANELS + 2 * KDA_PANEL,
    M64_AT_BARRIER = KDA_PACKET_USED, /* in the gap behind stage 0's packet */
    M64_SMEM_BYTES =
        M64_AT_WORK + M64_INSTANCES * KDA_FULL_BYTES + 1024 /* the stages are aligned by hand */
};
static_assert(KDA_PACKET_USED + 2 * M64_STAGES * 8 + 32 <= KDA_PACKET_BYTES,
              "the barriers fit there");
static_assert(M64_STAGES % 2 == 1, "a stage's packets come from both CTAs in turn");
static_assert(M64_SMEM_BYTES <= 232448, "more shared memory than a block can have");

template <bool bounded>
static __global__ void __launch_bounds__(M64_THREADS, 1)
    brim_kda_m64_sm90(const __grid_constant__ kda_params p)
{
    extern __shared__ char raw[];
    uint32_t base = (smem_u32(raw) + 1023) & ~1023u;
    uint32_t full = base + M64_AT_BARRIER, empty = full + 8 * M64_STAGES;
    int tid = threadIdx.x, rank = (int)cluster_ctarank();
    kda_panels panels = kda_panels_of(base + M64_AT_PANELS, empty + 8 * M64_STAGES, 0);
    if (tid == 0) {
        for (int i = 0; i < M64_STAGES; i++) {
            mbarrier_init(full + 8 * i, 1);
            mbarrier_init(empty + 8 * i, 8);
        }
        for (int i = 0; i < 2; i++) {
            mbarrier_init(panels.put + 8 * i, 4);
            mbarrier_init(panels.taken + 8 * i, 1);
        }
        fence_mbarrier_init();
    }
    cluster_sync();
    kda_task t;
    kda_whole range;
    if (!kda_task_start(p, t, range, blockIdx.x / 2, rank == 0, tid, [] { cluster_sync(); }))
        return;

    if (tid < 128) {
        setmaxnreg_inc<208>();
        uint32_t even = mapa_u32(empty, 0), odd = mapa_u32(empty, 1);
        kda_advance_ahead<M64_STAGES, false>(
            p, t, range, base, full, panels, rank, tid, [&](int chunk, int stage) {
                mbarrier_arrive_cluster(((chunk + M64_STAGES) & 1 ? odd : even) + 8 * stage);
            });
    } else if (tid < 384) {
        int instance = (tid - 128) >> 7, within = tid & 127, first = 2 * instance + rank;
        uint32_t other_base = mapa_u32(base, (uint32_t)rank ^ 1),
                 other_full = mapa_u32(full, (uint32_t)rank ^ 1);
        kda_half half = kda_half_of(rank ^ 1);
        if (first < t.n_chunk) {
            typedef kda_full_of<bounded> layout;
            kda_prep s;
            kda_prep_init<layout>(p, t, s, base + M64_AT_WORK + instance * KDA_FULL_BYTES,
                                  1 + instance, within, first);
            for (int c = first; c < t.n_chunk; c += 2 * M64_INSTANCES) {
                int stage = c % M64_STAGES, use = c / M64_STAGES;
                uint32_t at = stage * KDA_PACKET_BYTES, packet = base + at;
                kda_prepare<layout>(p, t, s, c, c + 2 * M64_INSTANCES, packet, [&] {
                    if (use > 0) mbarrier_wait_cluster(empty + 8 * stage, ((use - 1) >> 1) & 1);
                });
                KDA_HOOK(p, KDA_AT_PACKET, c);
                /* written by ordinary stores, read by wgmma and the bulk copy */
                fence_proxy_async_shared();
                named_barrier_sync(s.bar, 128);
                if (s.tid == 0) {
                    uint32_t bar = other_full + 8 * stage;
                    mbarrier_arrive_expect_tx_cluster(bar, KDA_PACKET_USED - KDA_PANEL);
                    bulk_push(other_base + at, packet, half.end, bar);
                    bulk_push(other_base + at + half.begin, packet + half.begin,
                              KDA_PACKET_USED - half.begin, bar);
                    mbarrier_arrive(full + 8 * stage);
                }
            }
        }
        if (rank == 0) kda_zero_tail(p, t.seq, t.head, tid - 128, 256);
    } else {
        setmaxnreg_dec<40>();
        if (tid < 416) kda_out_writer(p, t, panels, rank, tid & 31, range.quiet);
    }
    cluster_sync(); /* nobody leaves while the other may push or arrive */
}

brim_status brim_kda_launch_m64(const kda_params &p, cudaStream_t stream, brim_error *err)
{
    return KDA_LAUNCH(brim_kda_m64_sm90, kda_task_shape(p, 2, M64_THREADS, M64_SMEM_BYTES));
}
