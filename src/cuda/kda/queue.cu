/* SPDX-License-Identifier: Apache-2.0
 * Route queue: m128's roles and memory, in at most as many CTAs as there are processors, which take
 * tasks (sequence, value head) one after the other, the longest sequence first, until none is left.
 *
 * A CTA begins with the task of its own number; further ones come from a counter in the workspace
 * that the launcher clears. Instance 0 draws the next when it begins its last chunk of a task, not
 * earlier: a task drawn early would wait behind a long one. It hands the number to the 16 warps
 * through a ring of QUEUE_TICKETS words: drawn[slot] takes its arrival, read[slot] one of every
 * warp. So preparation runs ahead into the next task by as many chunks as there are stages while
 * the consumers finish the last. Packets are counted through all tasks of the CTA: packet n is
 * prepared by instance n % 2 into stage n % 3. A CTA that is not resident from the start delays its
 * first task, no other. */
#include "cuda/kda/advance.cuh"
#include "cuda/kda/kda.h"
#include "cuda/kda/launch.cuh"
#include "cuda/kda/prepare.cuh"

enum {
    QUEUE_STAGES = 3,
    QUEUE_INSTANCES = 2,
    QUEUE_THREADS = 512,
    QUEUE_TICKETS = 4,
    QUEUE_ORDER = 1024
};
enum {
    QUEUE_AT_WORK = QUEUE_STAGES * KDA_PACKET_BYTES,
    QUEUE_AT_ORDER = QUEUE_AT_WORK + QUEUE_INSTANCES * KDA_FULL_BYTES,
    QUEUE_AT_TICKETS = QUEUE_AT_ORDER + QUEUE_ORDER * 4,
    QUEUE_AT_BARRIER = QUEUE_AT_TICKETS + QUEUE_TICKETS * 4,
    QUEUE_SMEM_BYTES = QUEUE_AT_BARRIER + 2 * (QUEUE_STAGES + QUEUE_TICKETS) * 8 +
                       1024 /* the stages are aligned by hand */
};
static_assert(QUEUE_SMEM_BYTES <= 232448, "more shared memory than a block can have");
static_assert(QUEUE_AT_BARRIER % 8 == 0, "barriers lie on 8 bytes");
static_assert(QUEUE_ORDER * 4 <= KDA_PACKET_BYTES, "lengths are sorted in the first stage");

/* Shared memory. */
struct kda_queue {
    uint32_t base, full, empty, drawn, read;
    uint32_t n_task;
    bool sorted;
};

BRIM_DEVICE kda_queue queue_of(const kda_params &p, uint32_t base)
{
    kda_queue q;
    q.base = base;
    q.full = base + QUEUE_AT_BARRIER;
    q.empty = q.full + 8 * QUEUE_STAGES;
    q.drawn = q.empty + 8 * QUEUE_STAGES;
    q.read = q.drawn + 8 * QUEUE_TICKETS;
    q.n_task = (uint32_t)(p.n_seq * p.n_value_head);
    q.sorted = p.offset_bytes && p.n_seq <= QUEUE_ORDER;
    return q;
}

/* The sequences by length, of equal ones the first before. All threads; then a barrier. */
BRIM_DEVICE void queue_sort(const kda_params &p, const kda_queue &q, int tid)
{
    int n = (int)p.n_seq;
    for (int i = tid; i < n; i += QUEUE_THREADS) {
        int64_t length = kda_offset(p, i + 1) - kda_offset(p, i);
        st_shared_u32(q.base + 4 * i, length > 0 ? (uint32_t)length : 0);
    }
    __syncthreads();
    for (int i = tid; i < n; i += QUEUE_THREADS) {
        uint32_t length = ld_shared_u32(q.base + 4 * i), before = 0;
        for (int j = 0; j < n; j++) {
            uint32_t other = ld_shared_u32(q.base + 4 * j);
            before += other > length || (other == length && j < i);
        }
        st_shared_u32(q.base + QUEUE_AT_ORDER + 4 * before, (uint32_t)i);
    }
}

BRIM_DEVICE kda_task queue_task(const kda_params &p, const kda_queue &q, uint32_t ticket)
{
    uint32_t seq = ticket / (uint32_t)p.n_value_head, head = ticket - seq * p.n_value_head;
    if (q.sorted) seq = ld_shared_u32(q.base + QUEUE_AT_ORDER + 4 * seq);
    return kda_task_of(p, seq, head);
}

/* The CTA's draw number i. One thread. */
BRIM_DEVICE void queue_put(const kda_queue &q, uint32_t i, uint32_t ticket)
{
    uint32_t slot = i % QUEUE_TICKETS;
    if (i >= QUEUE_TICKETS) mbarrier_wait(q.read + 8 * slot, (i / QUEUE_TICKETS - 1) & 1);
    st_shared_u32(q.base + QUEUE_AT_TICKETS + 4 * slot, ticket);
    mbarrier_arrive(q.drawn + 8 * slot);
}

/* Whole warps. */
BRIM_DEVICE uint32_t queue_get(const kda_params &p, const kda_queue &q, uint32_t i)
{
    KDA_HOOK(p, KDA_AT_LOAD, (int)i);
    uint32_t slot = i % QUEUE_TICKETS;
    mbarrier_wait(q.drawn + 8 * slot, (i / QUEUE_TICKETS) & 1);
    uint32_t ticket = ld_shared_u32(q.base + QUEUE_AT_TICKETS + 4 * slot);
    __syncwarp();
    if ((threadIdx.x & 31) == 0) mbarrier_arrive(q.read + 8 * slot);
    return ticket;
}

BRIM_DEVICE void queue_advance(const kda_params &p, const kda_queue &q, int wg, int tid)
{
    kda_queued range = {0};
    uint32_t ticket = blockIdx.x;
    for (uint32_t i = 0; ticket < q.n_task; i++) {
        kda_task t = queue_task(p, q, ticket);
        kda_advance<QUEUE_STAGES, false, false>(p, t, range, q.base, q.full, q.empty, kda_panels(),
                                                wg, tid);
        range.first += (uint32_t)t.n_chunk;
        ticket = queue_get(p, q, i);
    }
}

template <bool bounded>
BRIM_DEVICE void queue_prepare(const kda_params &p, const kda_queue &q, int instance, int tid)
{
    typedef kda_full_of<bounded> layout;
    kda_prep s;
    s.tid = tid;
    s.bar = 1 + instance;
    uint32_t ticket = blockIdx.x, before = 0; /* packets of the tasks before */
    for (uint32_t i = 0; ticket < q.n_task; i++) {
        kda_task t = queue_task(p, q, ticket);
        uint32_t drawn = 0;
        auto draw = [&] { drawn = gridDim.x + atomicAdd(p.control + KDA_TICKET_WORD, 1u); };
        int first = (int)((instance - before) & 1);
        bool draws = instance == 0 && tid == 0;
        KDA_HOOK(p, KDA_AT_FIRST, first);
        if (draws && first + QUEUE_INSTANCES >= t.n_chunk) draw();
        if (first < t.n_chunk) {
            named_barrier_sync(s.bar, 128); /* everybody is done with the last task's tiles */
            kda_prep_init<layout>(p, t, s, q.base + QUEUE_AT_WORK + instance * KDA_FULL_BYTES,
                                  s.bar, tid, first);
            for (int c = first; c < t.n_chunk; c += QUEUE_INSTANCES) {
                uint32_t n = before + (uint32_t)c, stage = n % QUEUE_STAGES, use = n / QUEUE_STAGES;
                bool last = c + QUEUE_INSTANCES >= t.n_chunk;
                if (draws && last && c > first) draw();
                kda_prepare<layout>(p, t, s, c, c + QUEUE_INSTANCES,
                                    q.base + stage * KDA_PACKET_BYTES, [&] {
                                        if (use > 0)
                                            mbarrier_wait(q.empty + 8 * stage, (use - 1) & 1);
                                        if (draws && last) queue_put(q, i, drawn);
                                    });
                KDA_HOOK(p, KDA_AT_PACKET, c);
                /* the packet was written by ordinary stores and is read by wgmma */
                fence_proxy_async_shared();
                mbarrier_arrive(q.full + 8 * stage);
            }
        } else if (draws) {
            queue_put(q, i, drawn);
        }
        kda_zero_tail(p, t.seq, t.head, instance * 128 + tid, 256);
        before += (uint32_t)t.n_chunk;
        ticket = queue_get(p, q, i);
    }
}

template <bool bounded>
static __global__ void __launch_bounds__(QUEUE_THREADS, 1)
    brim_kda_queue_sm90(const __grid_constant__ kda_params p)
{
    extern __shared__ char raw[];
    kda_queue q = queue_of(p, (smem_u32(raw) + 1023) & ~1023u);
    int tid = threadIdx.x;
    if (tid == 0) {
        for (int i = 0; i < QUEUE_STAGES; i++) {
            mbarrier_init(q.full + 8 * i, 128);
            mbarrier_init(q.empty + 8 * i, 8);
        }
        for (int i = 0; i < QUEUE_TICKETS; i++) {
            mbarrier_init(q.drawn + 8 * i, 1);
            mbarrier_init(q.read + 8 * i, QUEUE_THREADS / 32);
        }
        fence_mbarrier_init();
    }
    if (q.sorted) queue_sort(p, q, tid);
    __syncthreads();
    if (tid < 256) {
        setmaxnreg_inc<160>();
        queue_advance(p, q, tid >> 7, tid & 127);
    } else {
        setmaxnreg_dec<96>();
        queue_prepare<bounded>(p, q, (tid - 256) >> 7, tid & 127);
    }
}

brim_status brim_kda_launch_queue(const kda_params &p, cudaStream_t stream, brim_error *err)
{
    int64_t n_task = p.n_seq * p.n_value_head, n_processor;
    BRIM_TRY(brim_kda_cuda_processors(&n_processor, err));
    BRIM_REQUIRE(err, n_task + n_processor <= INT32_MAX, BRIM_E_SHAPE,
                 "kda: route queue counts %lld tasks in 31 bits", (long long)n_task);
    if (n_task > 0)
        BRIM_TRY(brim_cuda_check(cudaMemsetAsync(p.control + KDA_TICKET_WORD, 0, 4, stream),
                                 "kda: clearing the tickets", err));
    return KDA_LAUNCH(brim_kda_queue_sm90, kda_shape(n_task < n_processor ? n_task : n_processor, 1,
                                                     QUEUE_THREADS, QUEUE_SMEM_BYTES, false));
}
