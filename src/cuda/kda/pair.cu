/* SPDX-License-Identifier: Apache-2.0
 * Route pair: a cluster of two CTAs per (sequence, value head), 64 value rows of the state each,
 * four preparation instances together. Chunk c is prepared by CTA c % 2 as a packet in its own
 * stage c % 4, read there by its own consumers and pushed, less their half of Z, into the other's.
 *
 * Warps 0-3 consume (208 registers), 4-11 are two instances (128; 136 without a bound on the gate),
 * 12 stores the output, 13 reports pushes that have arrived. An instance owns a stage in its CTA
 * for good, so that it waits for two things alone, and apart: to write the packet, until its
 * predecessor has been read here and has arrived there (`mine`: four consumer warps here and the
 * other's warp 13); to push it, until the predecessor has been read there (`theirs`: the four
 * consumer warps there). full[stage]: one arrival, of the own instance or of the other CTA's with
 * the bytes it pushes. Whoever waits at a barrier waits for every phase of it. Shared memory: 4
 * stages of 37 KB, 2 instances of 35 KB, 8 KB of output panels, to the last byte. */
#include "cuda/kda/ahead.cuh"
#include "cuda/kda/finish.cuh"
#include "cuda/kda/launch.cuh"
#include "cuda/kda/prepare.cuh"

enum { PAIR_STAGES = 4, PAIR_INSTANCES = 2, PAIR_THREADS = 512 };
enum {
    PAIR_AT_PANELS = PAIR_STAGES * KDA_PACKET_BYTES,
    PAIR_AT_WORK = PAIR_AT_PANELS + 2 * KDA_PANEL,
    PAIR_AT_BARRIER = KDA_PACKET_USED, /* in the gap behind stage 0's packet */
    PAIR_SMEM_BYTES =
        PAIR_AT_WORK + PAIR_INSTANCES * KDA_APART_BYTES + 1024 /* the stages are aligned by hand */
};
static_assert(KDA_PACKET_USED + 3 * PAIR_STAGES * 8 + 32 <= KDA_PACKET_BYTES,
              "the barriers fit there");
static_assert(PAIR_STAGES == 2 * PAIR_INSTANCES, "a stage for every instance of both CTAs");
static_assert(PAIR_SMEM_BYTES <= 232448, "more shared memory than a block can have");

/* Barriers, one a stage; those of the other CTA by their addresses in the cluster. */
struct pair_barriers {
    uint32_t full, mine, theirs, panels;
};

BRIM_DEVICE pair_barriers pair_barriers_of(uint32_t base)
{
    pair_barriers b;
    b.full = base + PAIR_AT_BARRIER;
    b.mine = b.full + 8 * PAIR_STAGES;
    b.theirs = b.mine + 8 * PAIR_STAGES;
    b.panels = b.theirs + 8 * PAIR_STAGES;
    return b;
}

/* The packet of chunk c, complete in this CTA's stage, to both. One thread of its instance. */
BRIM_DEVICE void pair_publish(const kda_params &p, uint32_t base, const pair_barriers &b, int rank,
                              int c)
{
    uint32_t stage = (uint32_t)c % PAIR_STAGES, other = (uint32_t)rank ^ 1;
    uint32_t packet = base + stage * KDA_PACKET_BYTES, full = b.full + 8 * stage;
    mbarrier_arrive(full);
    KDA_HOOK(p, KDA_AT_PUBLISH, c);
    if (c >= PAIR_STAGES) mbarrier_wait_cluster(b.theirs + 8 * stage, (c / PAIR_STAGES - 1) & 1);
    uint32_t there = mapa_u32(packet, other), full_there = mapa_u32(full, other);
    kda_half half = kda_half_of(rank ^ 1);
    mbarrier_arrive_expect_tx_cluster(full_there, KDA_PACKET_USED - KDA_PANEL);
    bulk_push(there, packet, half.end, full_there);
    bulk_push(there + half.begin, packet + half.begin, KDA_PACKET_USED - half.begin, full_there);
}

/* One instance: its chunks from `first` on, every fourth. */
template <bool bounded>
BRIM_DEVICE void pair_prepare(const kda_params &p, const kda_task &t, uint32_t base,
                              const pair_barriers &b, int rank, int instance, int tid)
{
    typedef kda_apart_of<bounded> layout;
    int first = 2 * instance + rank;
    if (first >= t.n_chunk) return;
    KDA_HOOK(p, KDA_AT_FIRST, first);
    kda_prep s;
    kda_prep_init<layout>(p, t, s, base + PAIR_AT_WORK + instance * KDA_APART_BYTES, 1 + instance,
                          tid, first);
#pragma unroll 1
    for (int c = first; c < t.n_chunk; c += PAIR_STAGES) {
        uint32_t stage = (uint32_t)c % PAIR_STAGES;
        kda_prepare<layout>(p, t, s, c, c + PAIR_STAGES, base + stage * KDA_PACKET_BYTES, [&] {
            if (c >= PAIR_STAGES)
                mbarrier_wait_cluster(b.mine + 8 * stage, (c / PAIR_STAGES - 1) & 1);
        });
        KDA_HOOK(p, KDA_AT_PACKET, c);
        /* written by ordinary stores, read by wgmma and the bulk copies */
        fence_proxy_async_shared();
        named_barrier_sync(s.bar, 128);
        if (s.tid == 0) pair_publish(p, base, b, rank, c);
        /* k and v were read until now */
        kda_fetch_kv<layout, 128>(p, t, c + PAIR_STAGES, s, 0, s.tid);
        cp_async_commit();
    }
}

/* One lane: tells the other CTA of each packet pushed here that it has arrived, and so been read
 * there. */
BRIM_DEVICE void pair_report(const kda_params &p, const kda_task &t, const pair_barriers &b,
                             int rank)
{
    uint32_t mine_there = mapa_u32(b.mine, (uint32_t)rank ^ 1);
    for (int c = rank ^ 1; c < t.n_chunk; c += 2) {
        int stage = c % PAIR_STAGES;
        mbarrier_wait(b.full + 8 * stage, (c / PAIR_STAGES) & 1);
        KDA_HOOK(p, KDA_AT_ACK, c);
        mbarrier_arrive_cluster(mine_there + 8 * stage);
    }
}

template <bool bounded, bool behind>
static __global__ void __launch_bounds__(PAIR_THREADS, 1)
    brim_kda_pair_sm90(const __grid_constant__ kda_params p)
{
    extern __shared__ char raw[];
    uint32_t base = (smem_u32(raw) + 1023) & ~1023u;
    int tid = threadIdx.x, rank = (int)cluster_ctarank();
    pair_barriers b = pair_barriers_of(base);
    kda_panels panels = kda_panels_of(base + PAIR_AT_PANELS, b.panels, 0);
    if (tid == 0) {
        for (int i = 0; i < PAIR_STAGES; i++) {
            mbarrier_init(b.full + 8 * i, 1);
            mbarrier_init(b.mine + 8 * i, 5);
            mbarrier_init(b.theirs + 8 * i, 4);
        }
        for (int i = 0; i < 2; i++) {
            mbarrier_init(panels.put + 8 * i, 4);
            mbarrier_init(panels.taken + 8 * i, 1);
        }
        fence_mbarrier_init();
    }
    cluster_sync();
    kda_task t;
    typename kda_span_of<behind>::type range;
    if (!kda_task_start(p, t, range, blockIdx.x / 2, rank == 0, tid, [] { cluster_sync(); }))
        return;

    if (tid < 128) {
        setmaxnreg_inc<208>();
        /* where to say that a stage of an even or odd chunk has been read: its preparer's CTA */
        uint32_t even = mapa_u32(rank == 0 ? b.mine : b.theirs, 0),
                 odd = mapa_u32(rank == 1 ? b.mine : b.theirs, 1);
        kda_advance_ahead<PAIR_STAGES, false>(
            p, t, range, base, b.full, panels, rank, tid, [&](int chunk, int stage) {
                mbarrier_arrive_cluster((chunk & 1 ? odd : even) + 8 * stage);
            });
    } else if (tid < 384) {
        if (!bounded) setmaxnreg_inc<136>();
        pair_prepare<bounded>(p, t, base, b, rank, (tid - 128) >> 7, tid & 127);
        if (rank == 0) kda_zero_tail(p, t.seq, t.head, tid - 128, 256);
    } else {
        setmaxnreg_dec<bounded ? 40 : 32>();
        if (tid < 416)
            kda_out_writer(p, t, panels, rank, tid & 31, range.quiet);
        else if (tid == 416)
            pair_report(p, t, b, rank);
        __syncwarp();
    }
    cluster_sync(); /* nobody leaves while the other may push or arrive */
}

brim_status brim_kda_launch_pair(const kda_params &p, cudaStream_t stream, brim_error *err)
{
    return KDA_LAUNCH_SERIAL(brim_kda_pair_sm90,
                             kda_task_shape(p, 2, PAIR_THREADS, PAIR_SMEM_BYTES));
}
