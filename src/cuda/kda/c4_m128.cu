/* SPDX-License-Identifier: Apache-2.0
 * Route c4-m128: a cluster of four CTAs per (sequence, value head). Rank 0 owns the state and runs
 * the recurrence; ranks 1-3 prepare chunks, four instances each, and hand them over through a ring
 * of 15 packets in global memory (mailbox.cuh). Chunk c is prepared by rank 1 + c % 3, instance c /
 * 3 % 4, and lies in slot c % 15; the owner starts on chunk 0 as soon as it is there.
 *
 * Owner, 512 threads: warps 0-7 two consumer warpgroups (208 registers); warps 8-11 one loader lane
 * a stage; warps 12, 13 an acknowledging lane each for alternate packets, because a release takes
 * longer than a load may wait; warps 14, 15 store the output of one warpgroup each. Barriers:
 * full[stage] one arrival and the packet's bytes, empty[stage] 8 consumer warps and the
 * acknowledging lane; four of the output's panels a warpgroup (advance.cuh). Helper: instance i is
 * warpgroup i with named barrier 1 + i (128 registers); named barriers 9-11 stagger their start.
 * Shared memory: owner 4 stages of 37 KB and 16 KB of panels, helper 4 instances of 56.4 KB. */
#include "cuda/kda/advance.cuh"
#include "cuda/kda/finish.cuh"
#include "cuda/kda/launch.cuh"
#include "cuda/kda/mailbox.cuh"
#include "cuda/kda/prepare.cuh"

enum { N_STAGE = 4, N_ACK = 2, N_HELPER = 3, N_INSTANCE = 4, DEPTH = 15 };
enum { N_THREAD = 512, STAGING = 16384 };
enum {
    AT_STAGING = N_STAGE * KDA_PACKET_BYTES,
    OWNER_BYTES = AT_STAGING + STAGING,
    HELPER_BYTES = N_INSTANCE * KDA_LEAN_BYTES,
    AT_BARRIER = (OWNER_BYTES > HELPER_BYTES ? OWNER_BYTES : HELPER_BYTES),
    SMEM_BYTES = AT_BARRIER + 2 * N_STAGE * 8 + 16 + 64 + 1024
};
static_assert(SMEM_BYTES <= 232448, "more shared memory than a block can have");

BRIM_DEVICE void owner_load(const kda_params &p, const kda_mailbox &m, int n_chunk, int stage,
                            uint32_t stages, uint32_t full, uint32_t empty)
{
    for (int c = stage; c < n_chunk; c += N_STAGE) {
        if (c >= N_STAGE) mbarrier_wait(empty + 8 * stage, (c / N_STAGE - 1) & 1);
        KDA_HOOK(p, KDA_AT_LOAD, c);
        kda_mailbox_load<1>(m, c % DEPTH, (uint32_t)(c / DEPTH), 0,
                            stages + stage * KDA_PACKET_BYTES, full + 8 * stage);
    }
}

BRIM_DEVICE void owner_ack(const kda_params &p, const kda_mailbox &m, int n_chunk, int first,
                           uint32_t full, uint32_t empty)
{
    for (int c = first; c < n_chunk; c += N_ACK) {
        int stage = c % N_STAGE;
        mbarrier_wait(full + 8 * stage, (c / N_STAGE) & 1);
        KDA_HOOK(p, KDA_AT_ACK, c);
        kda_mailbox_ack(m, c % DEPTH, (uint32_t)(c / DEPTH), 0, 1);
        mbarrier_arrive(empty + 8 * stage);
    }
}

template <bool bounded>
BRIM_DEVICE void help(const kda_params &p, const kda_task &t, const kda_mailbox &m, uint32_t work,
                      int helper, int tid)
{
    int instance = tid >> 7, first = instance * N_HELPER + helper;
    if (first >= t.n_chunk) return;
    typedef kda_lean_of<bounded> layout;
    kda_prep s;
    kda_prep_init<layout>(p, t, s, work + instance * KDA_LEAN_BYTES, 1 + instance, tid & 127,
                          first);
    /* The first chunks start one behind the other, so that the owner gets its first packet early:
     * an instance begins when its predecessor has the gate of its own first chunk. */
    if (instance > 0) named_barrier_sync(8 + instance, 256);
    bool lead = instance < N_INSTANCE - 1 && first + N_HELPER < t.n_chunk;
    for (int c = first; c < t.n_chunk; c += N_HELPER * N_INSTANCE) {
        int next = c + N_HELPER * N_INSTANCE;
        kda_prepare<layout>(p, t, s, c, next, s.work, [&] {
            if (lead) named_barrier_arrive(9 + instance, 256);
            lead = false;
        });
        KDA_HOOK(p, KDA_AT_PACKET, c);
        fence_proxy_async_shared(); /* ordinary stores, read by the bulk store */
        named_barrier_sync(s.bar, 128);
        if (s.tid == 0) {
            kda_mailbox_store(m, c % DEPTH, (uint32_t)(c / DEPTH), 1, s.work);
            bulk_wait_read_all();
        }
        named_barrier_sync(s.bar,
                           128); /* the packet has been read: its tiles may be filled again */
        kda_prefetch<layout>(p, t, next, s, 0);
        if (s.tid == 0) {
            KDA_HOOK(p, KDA_AT_PUBLISH, c);
            kda_mailbox_publish(m, c % DEPTH, (uint32_t)(c / DEPTH));
        }
    }
}

template <bool bounded, bool behind>
static __global__ void __launch_bounds__(N_THREAD, 1)
    brim_kda_c4_m128_sm90(const __grid_constant__ kda_params p)
{
    extern __shared__ char raw[];
    uint32_t base = (smem_u32(raw) + 1023) & ~1023u;
    uint32_t full = base + AT_BARRIER, empty = full + 8 * N_STAGE,
             shared_epoch = empty + 8 * N_STAGE, panel_bars = shared_epoch + 16;
    int tid = threadIdx.x, rank = (int)cluster_ctarank(), task = blockIdx.x / (1 + N_HELPER);
    kda_task t;
    typename kda_span_of<behind>::type range;
    if (!kda_task_start(p, t, range, task, rank == 0, tid, [] { cluster_sync(); })) return;
    kda_mailbox m;
    m.words = p.control + (int64_t)task * (KDA_CONTROL_BYTES / 4);
    m.packets = p.ring + (int64_t)task * DEPTH * KDA_PACKET_USED;
    if (rank == 0 && tid == 0) {
        for (int i = 0; i < N_STAGE; i++) {
            mbarrier_init(full + 8 * i, 1);
            mbarrier_init(empty + 8 * i, 9);
        }
        for (int i = 0; i < 4; i++) {
            kda_panels s = kda_panels_of(0, panel_bars, i >> 1);
            mbarrier_init(s.put + 8 * (i & 1), 4);
            mbarrier_init(s.taken + 8 * (i & 1), 1);
        }
        fence_mbarrier_init();
        st_shared_u32(shared_epoch, kda_mailbox_open(m, t.n_chunk, DEPTH));
    }
    cluster_sync();
    m.epoch = ld_shared_cluster(mapa_u32(shared_epoch, 0));

    if (rank == 0) {
        int warp = tid >> 5;
        if (tid < 256) {
            setmaxnreg_inc<208>();
            kda_advance<N_STAGE, true, true>(p, t, range, base, full, empty,
                                             kda_panels_of(base + AT_STAGING, panel_bars, tid >> 7),
                                             tid >> 7, tid & 127);
        } else {
            setmaxnreg_dec<48>();
            if (warp >= 14) {
                kda_out_writer(p, t, kda_panels_of(base + AT_STAGING, panel_bars, warp - 14),
                               warp - 14, tid & 31, range.quiet);
            } else if ((tid & 31) == 0) {
                if (warp < 12)
                    owner_load(p, m, t.n_chunk, warp - 8, base, full, empty);
                else
                    owner_ack(p, m, t.n_chunk, warp - 12, full, empty);
            }
            __syncwarp();
        }
    } else {
        help<bounded>(p, t, m, base, rank - 1, tid);
        if (rank == 1) kda_zero_tail(p, t.seq, t.head, tid, N_THREAD);
    }
    cluster_sync(); /* rank 0's shared memory outlives the reads of its epoch */
}

brim_status brim_kda_launch_c4_m128(const kda_params &p, cudaStream_t stream, brim_error *err)
{
    return KDA_LAUNCH_SERIAL(brim_kda_c4_m128_sm90,
                             kda_task_shape(p, 1 + N_HELPER, N_THREAD, SMEM_BYTES));
}
