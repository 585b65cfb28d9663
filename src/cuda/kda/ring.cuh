/* SPDX-License-Identifier: Apache-2.0
 * The owner-helper routes but c4-m128, whose kernel is its own: a cluster per (sequence, value
 * head). The first n_owner ranks carry the state, all 128 value rows or 64 each; the others prepare
 * chunks, four instances each, and hand them over through a ring of `depth` packets in global
 * memory (mailbox.cuh). Chunk c is prepared by helper c % n_helper, instance c / n_helper % 4, and
 * lies in slot c % depth.
 *
 * Owner, 512 threads: 2 / n_owner consumer warpgroups, then one warp each for: a loading lane a
 * stage; two acknowledging lanes for alternate packets, because a release takes longer than a load
 * may wait; the output of a warpgroup. Barriers: full[stage] one arrival and the packet's bytes,
 * empty[stage] the consumer warps and the acknowledging lane; four of the output's panels a
 * warpgroup (advance.cuh). Helper: instance i is warpgroup i with named barrier 1 + i; named
 * barriers 9-11 stagger their start. No helper waits for the epoch before he needs it: rank 0 sends
 * it to every CTA's shared memory, behind the cluster's barrier, at which all arrive once their own
 * mbarrier for it stands. */
#ifndef BRIM_CUDA_KDA_RING_CUH
#define BRIM_CUDA_KDA_RING_CUH

#include "cuda/kda/ahead.cuh"
#include "cuda/kda/finish.cuh"
#include "cuda/kda/launch.cuh"
#include "cuda/kda/mailbox.cuh"
#include "cuda/kda/prepare.cuh"

template <int owners, int helpers, int slots, bool bounded, bool behind> struct kda_ring {
    static constexpr int n_owner = owners, n_helper = helpers, depth = slots;
    static constexpr int n_wg = 2 / owners; /* consumer warpgroups of an owner */
    static constexpr int n_stage = 4, n_ack = 2, n_instance = 4;
    static constexpr int n_thread = 512;
    typedef kda_lean_of<bounded> layout; /* of a preparation instance's memory */
    typedef typename kda_span_of<behind>::type span;
    static constexpr int consumer_registers = owners == 1 ? 232 : 240,
                         other_registers = owners == 1 ? 24 : 88;
    static constexpr int at_panels = n_stage * KDA_PACKET_BYTES;
    static constexpr int owner_bytes = at_panels + n_wg * 2 * KDA_PANEL,
                         helper_bytes = n_instance * KDA_LEAN_BYTES;
    static constexpr int at_barrier = owner_bytes > helper_bytes ? owner_bytes : helper_bytes;
    static constexpr int smem_bytes = at_barrier + 2 * n_stage * 8 + 32 + 64 + 1024;
    static_assert(smem_bytes <= 232448, "more shared memory than a block can have");
    static_assert(n_stage % n_ack == 0, "a lane must see every phase of the barriers it waits for");
    static_assert(depth <= KDA_MAX_DEPTH, "a task has no more control words");
    static_assert(4 * n_wg + n_stage + n_ack + n_wg <= n_thread / 32, "a warp for every role");
};

struct kda_ring_memory {
    uint32_t base, full, empty, epoch, told, panel_bars; /* told: the epoch is there */
};

template <class R>
BRIM_DEVICE void kda_ring_load(const kda_params &p, const kda_mailbox &m, const kda_ring_memory &s,
                               int n_chunk, int stage, int owner)
{
    for (int c = stage; c < n_chunk; c += R::n_stage) {
        if (c >= R::n_stage) mbarrier_wait(s.empty + 8 * stage, (c / R::n_stage - 1) & 1);
        KDA_HOOK(p, KDA_AT_LOAD, c);
        kda_mailbox_load<R::n_owner>(m, c % R::depth, (uint32_t)(c / R::depth), owner,
                                     s.base + stage * KDA_PACKET_BYTES, s.full + 8 * stage);
    }
}

template <class R>
BRIM_DEVICE void kda_ring_ack(const kda_params &p, const kda_mailbox &m, const kda_ring_memory &s,
                              int n_chunk, int first, int owner)
{
    for (int c = first; c < n_chunk; c += R::n_ack) {
        int stage = c % R::n_stage;
        mbarrier_wait(s.full + 8 * stage, (c / R::n_stage) & 1);
        KDA_HOOK(p, KDA_AT_ACK, c);
        kda_mailbox_ack(m, c % R::depth, (uint32_t)(c / R::depth), owner, R::n_owner);
        mbarrier_arrive(s.empty + 8 * stage);
    }
}

BRIM_DEVICE uint32_t kda_ring_epoch(const kda_ring_memory &s)
{
    mbarrier_wait_cluster(s.told, 0);
    return ld_shared_u32(s.epoch);
}

/* One lane of rank 0, when all CTAs have arrived. */
BRIM_DEVICE void kda_ring_tell(const kda_ring_memory &s, uint32_t epoch, int n_cta)
{
    float4 word = make_float4(__uint_as_float(epoch), 0, 0, 0);
    for (int rank = 0; rank < n_cta; rank++)
        st_async_v4(mapa_u32(s.epoch, (uint32_t)rank), word, mapa_u32(s.told, (uint32_t)rank));
}

template <class R>
BRIM_DEVICE void kda_ring_help(const kda_params &p, const kda_task &t, kda_mailbox &m,
                               const kda_ring_memory &memory, int helper, int tid)
{
    int instance = tid >> 7, first = instance * R::n_helper + helper;
    if (first >= t.n_chunk) {
        kda_ring_epoch(memory); /* nothing is sent to a CTA that has ended */
        return;
    }
    kda_prep s;
    kda_prep_init<typename R::layout>(p, t, s, memory.base + instance * KDA_LEAN_BYTES,
                                      1 + instance, tid & 127, first);
    /* The first chunks start one behind the other, so that the owner gets its first packet early:
     * an instance begins when its predecessor has the gate of its own first chunk. */
    if (instance > 0) named_barrier_sync(8 + instance, 256);
    KDA_HOOK(p, KDA_AT_FIRST, first);
    bool lead = instance < R::n_instance - 1 && first + R::n_helper < t.n_chunk;
    for (int c = first; c < t.n_chunk; c += R::n_helper * R::n_instance) {
        int next = c + R::n_helper * R::n_instance, slot = c % R::depth;
        uint32_t use = (uint32_t)(c / R::depth);
        kda_prepare<typename R::layout>(p, t, s, c, next, s.work, [&] {
            if (lead) named_barrier_arrive(9 + instance, 256);
            lead = false;
        });
        KDA_HOOK(p, KDA_AT_PACKET, c);
        fence_proxy_async_shared(); /* ordinary stores, read by the bulk store */
        if (c == first) {
            m.epoch = kda_ring_epoch(memory);
            KDA_HOOK(p, KDA_AT_EPOCH, c);
        }
        named_barrier_sync(s.bar, 128);
        if (s.tid == 0) {
            kda_mailbox_store(m, slot, use, R::n_owner, s.work);
            bulk_wait_read_all();
        }
        named_barrier_sync(s.bar, 128); /* read: the packet's tiles may be filled again */
        kda_prefetch<typename R::layout>(p, t, next, s, 0);
        if (s.tid == 0) {
            KDA_HOOK(p, KDA_AT_PUBLISH, c);
            kda_mailbox_publish(m, slot, use);
        }
    }
}

template <class R>
BRIM_DEVICE void kda_ring_own(const kda_params &p, const kda_task &t, const typename R::span &range,
                              kda_mailbox &m, const kda_ring_memory &s, int owner, int tid)
{
    int warp = tid >> 5, lane = tid & 31;
    if (tid == 0) {
        for (int i = 0; i < R::n_stage; i++) {
            mbarrier_init(s.full + 8 * i, 1);
            mbarrier_init(s.empty + 8 * i, 4 * R::n_wg + 1);
        }
        for (int i = 0; i < 2 * R::n_wg; i++) {
            kda_panels panels = kda_panels_of(0, s.panel_bars, i >> 1);
            mbarrier_init(panels.put + 8 * (i & 1), 4);
            mbarrier_init(panels.taken + 8 * (i & 1), 1);
        }
        fence_mbarrier_init();
    }
    named_barrier_sync(0, R::n_thread);
    uint32_t panels = s.base + R::at_panels;
    if (warp < 4 * R::n_wg) {
        setmaxnreg_inc<R::consumer_registers>();
        int wg = warp >> 2;
        kda_advance_ahead<R::n_stage, true>(
            p, t, range, s.base, s.full, kda_panels_of(panels, s.panel_bars, wg),
            R::n_owner == 1 ? wg : owner, tid & 127,
            [&](int, int stage) { mbarrier_arrive(s.empty + 8 * stage); });
    } else {
        setmaxnreg_dec<R::other_registers>();
        int role = warp - 4 * R::n_wg;
        if (owner == 0 && role == 0) {
            if (lane == 0) m.epoch = kda_mailbox_open(m, t.n_chunk, R::depth);
            __syncwarp();
            cluster_wait();
            if (lane == 0) kda_ring_tell(s, m.epoch, R::n_owner + R::n_helper);
            __syncwarp();
        }
        m.epoch = kda_ring_epoch(s);
        int writer = role - R::n_stage - R::n_ack;
        if (writer >= 0) {
            if (writer < R::n_wg)
                kda_out_writer(p, t, kda_panels_of(panels, s.panel_bars, writer),
                               R::n_owner == 1 ? writer : owner, lane, range.quiet);
        } else if (lane == 0) {
            if (role < R::n_stage)
                kda_ring_load<R>(p, m, s, t.n_chunk, role, owner);
            else
                kda_ring_ack<R>(p, m, s, t.n_chunk, role - R::n_stage, owner);
        }
        __syncwarp();
    }
}

template <class R> BRIM_DEVICE void kda_ring_run(const kda_params &p, char *raw)
{
    kda_ring_memory s;
    s.base = (smem_u32(raw) + 1023) & ~1023u;
    s.full = s.base + R::at_barrier;
    s.empty = s.full + 8 * R::n_stage;
    s.epoch = s.empty + 8 * R::n_stage;
    s.told = s.epoch + 16;
    s.panel_bars = s.told + 16;
    constexpr int n_cta = R::n_owner + R::n_helper;
    int tid = threadIdx.x, rank = (int)cluster_ctarank(), task = blockIdx.x / n_cta;
    kda_task t;
    typename R::span range;
    if (!kda_task_start(p, t, range, task, rank == 0, tid, [] { cluster_sync(); })) return;
    kda_mailbox m;
    m.words = p.control + (int64_t)task * (KDA_CONTROL_BYTES / 4);
    m.packets = p.ring + (int64_t)task * R::depth * KDA_PACKET_USED;
    m.epoch = 0;
    if (tid == 0) {
        mbarrier_init(s.told, 1);
        mbarrier_arrive_expect_tx(s.told, 16);
        fence_mbarrier_init();
    }
    named_barrier_sync(0, R::n_thread);
    cluster_arrive();
    if (rank < R::n_owner) {
        kda_ring_own<R>(p, t, range, m, s, rank, tid);
    } else {
        kda_ring_help<R>(p, t, m, s, rank - R::n_owner, tid);
        if (rank == R::n_owner) kda_zero_tail(p, t.seq, t.head, tid, R::n_thread);
    }
    /* The sender has waited. An end without a wait would be counted as one more arrival. */
    if (rank > 0 || tid >> 5 != 4 * R::n_wg) cluster_wait();
}

/* One route: its kernels, with and without a bound on the gate, and its launcher, which does so by
 * KDA_LAUNCH_SERIAL or KDA_LAUNCH_ALONE. */
#define KDA_RING_ROUTE(name, n_owner, n_helper, depth, launch)                                    \
    template <bool bounded, bool behind>                                                          \
    static __global__ void __launch_bounds__(512, 1)                                              \
        brim_kda_##name##_sm90(const __grid_constant__ kda_params p)                              \
    {                                                                                             \
        extern __shared__ char raw[];                                                             \
        kda_ring_run<kda_ring<n_owner, n_helper, depth, bounded, behind>>(p, raw);                \
    }                                                                                             \
    brim_status brim_kda_launch_##name(const kda_params &p, cudaStream_t stream, brim_error *err) \
    {                                                                                             \
        typedef kda_ring<n_owner, n_helper, depth, true, false> ring;                             \
        return launch(brim_kda_##name##_sm90,                                                     \
                      kda_task_shape(p, n_owner + n_helper, ring::n_thread, ring::smem_bytes));   \
    }

#endif
