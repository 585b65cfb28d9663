/* SPDX-License-Identifier: Apache-2.0
 * The ways in which the kernels hand shared memory from its writers to its readers, each alone in a
 * kernel of its own and correct by the PTX memory model, for racecheck beside the kernels: what is
 * reported here too is no fault of theirs (docs/verification.md). Every number is checked; exit
 * status 1 on a wrong one.
 *     sanitize_barrier relay|pair|turns|load|acked|join|counted|kept|lane
 *     sanitize_barrier cluster N_THREAD N_ROUND */
#include <string.h>

#include "cuda_ok.h"
#include "cuda/launch.h"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/sync.cuh"

enum { N_READER = 128, N_WRITER = 128, N_STAGE = 2, N_CHUNK = 14 };
enum { N_THREAD = 288, RELAY_THREAD = N_READER + 2 * N_WRITER };
enum { STAGE_BYTES = 512, AT_FULL = N_STAGE * STAGE_BYTES, AT_MINE = AT_FULL + 8 * N_STAGE };
enum { CROSSED_STAGES = 3, CROSSED_BYTES = 3 * STAGE_BYTES }; /* of relay and turns */
enum { N_BLOCK = 8 };                                         /* of cluster */
enum { AT_THEIRS = AT_MINE + 8 * N_STAGE, SMEM_BYTES = AT_THEIRS + 8 * N_STAGE };
enum { LANE_PANEL = 4096, LANE_BYTES = 2 * LANE_PANEL, LANE_THREAD = 2 * N_READER + 2 * N_WRITER };

struct handover {
    float *sum;        /* of each reader of each CTA */
    const float *from; /* load, acked: N_CHUNK packets */
    bool acked;
    int n_round; /* cluster */
};

static __host__ __device__ float share_of(uint32_t group, uint32_t warp)
{
    return (float)(100 * group + warp + 1);
}

/* The thread's four numbers of chunk c: its lane's among 128. */
BRIM_DEVICE float read_stage(uint32_t stage)
{
    float4 x = ld_shared_v4_f32(stage + (threadIdx.x & 31) * 16);
    return x.x + x.y + x.z + x.w;
}

/* The same when they are there, by a reader; then its warp arrives at `free`. */
BRIM_DEVICE float take_stage(uint32_t stage, uint32_t full, uint32_t parity, uint32_t free)
{
    mbarrier_wait(full, parity);
    float sum = read_stage(stage);
    __syncwarp();
    if ((threadIdx.x & 31) == 0) mbarrier_arrive(free);
    return sum;
}

/* One thread: n mbarriers that take n_arrival each; their fence comes behind the last. */
BRIM_DEVICE void init_all(uint32_t at, int n, int n_arrival)
{
#pragma unroll
    for (int i = 0; i < n; i++) mbarrier_init(at + 8 * i, n_arrival);
}

/* A group's stage, three parts with the chunk's numbers each: its threads write the second and the
 * third, meet, and read each other's numbers into the first, which the readers read. Nobody reads
 * the third before the end, as what only tensor cores and pushes read. */
BRIM_DEVICE void write_crossed(uint32_t stage, int c, int group)
{
    int i = threadIdx.x % N_WRITER, other = (i + N_WRITER / 2) % N_WRITER;
    st_shared_f32(stage + STAGE_BYTES + 4 * i, (float)(128 * c + i));
    st_shared_f32(stage + 2 * STAGE_BYTES + 4 * i, (float)(128 * c + i));
    named_barrier_sync(1 + group, N_WRITER);
    float x = ld_shared_f32(stage + STAGE_BYTES + 4 * other);
    st_shared_f32(stage + 4 * other, x);
}

BRIM_DEVICE void write_stage(uint32_t stage, int c)
{
    int i = threadIdx.x - N_READER;
    st_shared_f32(stage + 4 * i, (float)(128 * c + i));
    fence_proxy_async_shared(); /* before the push */
    named_barrier_sync(1, N_WRITER);
}

/* The third parts of all stages, when nobody writes any more. */
BRIM_DEVICE float read_unread(uint32_t base)
{
    float sum = 0;
    for (uint32_t s = 0; s < CROSSED_STAGES; s++)
        sum += read_stage(base + s * CROSSED_BYTES + 2 * STAGE_BYTES);
    return sum;
}

/* relay: a group writes a stage and meets at a named barrier, then one of its threads arrives at
 * the mbarrier that the readers wait for; the readers' four warps arrive at the one that the
 * writers wait for. Group g has chunks g, g + 2, ...; three stages, so that both groups come to
 * each. */
static __global__ void __launch_bounds__(RELAY_THREAD, 1) brim_sanitize_relay(handover p)
{
    enum { STAGES = CROSSED_STAGES, BYTES = CROSSED_BYTES };
    __shared__ __align__(128) char raw[STAGES * BYTES + 16 * STAGES];
    uint32_t base = smem_u32(raw), full = base + STAGES * BYTES, free = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        init_all(full, STAGES, 1);
        init_all(free, STAGES, N_READER / 32);
        fence_mbarrier_init();
    }
    __syncthreads();
    int group = (int)(threadIdx.x - N_READER) / N_WRITER;
    float sum = 0;
    for (int c = 0; c < N_CHUNK; c++) {
        uint32_t s = (uint32_t)c % STAGES, use = (uint32_t)c / STAGES, stage = base + s * BYTES;
        if (threadIdx.x < N_READER) {
            sum += take_stage(stage, full + 8 * s, use & 1, free + 8 * s);
        } else if (group == c % 2) {
            if (use > 0) mbarrier_wait(free + 8 * s, (use - 1) & 1);
            write_crossed(stage, c, group);
            named_barrier_sync(1 + group, N_WRITER);
            if (threadIdx.x % N_WRITER == 0) mbarrier_arrive(full + 8 * s);
        }
    }
    __syncthreads();
    if (threadIdx.x < N_READER) p.sum[threadIdx.x] = sum + read_unread(base);
}

/* pair: chunk c is written by CTA c % 2 and lies in stage c % 2 of both. The thread that arrives
 * also pushes the stage into the other CTA's; a stage is free when this CTA's readers have arrived
 * and a fifth warp of the other says that the push has. */
static __global__ void __launch_bounds__(N_THREAD, 1) brim_sanitize_pair(handover p)
{
    __shared__ __align__(128) char raw[SMEM_BYTES];
    uint32_t base = smem_u32(raw), full = base + AT_FULL, mine = base + AT_MINE;
    uint32_t theirs = base + AT_THEIRS, rank = cluster_ctarank(), other = rank ^ 1;
    if (threadIdx.x == 0) {
        init_all(full, N_STAGE, 1);
        init_all(mine, N_STAGE, N_READER / 32 + 1);
        init_all(theirs, N_STAGE, N_READER / 32);
        fence_mbarrier_init();
    }
    cluster_sync();
    float sum = 0;
    for (int c = 0; c < N_CHUNK; c++) {
        uint32_t s = (uint32_t)c % N_STAGE, use = (uint32_t)c / N_STAGE, writer = (uint32_t)c & 1;
        uint32_t stage = base + s * STAGE_BYTES;
        if (threadIdx.x < N_READER) {
            mbarrier_wait(full + 8 * s, use & 1);
            sum += read_stage(stage);
            __syncwarp();
            if ((threadIdx.x & 31) == 0)
                mbarrier_arrive_cluster(mapa_u32((writer == rank ? mine : theirs) + 8 * s, writer));
        } else if (threadIdx.x < N_READER + N_WRITER) {
            if (writer != rank) continue;
            if (use > 0) mbarrier_wait_cluster(mine + 8 * s, (use - 1) & 1);
            write_stage(stage, c);
            if (threadIdx.x == N_READER) {
                mbarrier_arrive(full + 8 * s);
                if (use > 0) mbarrier_wait_cluster(theirs + 8 * s, (use - 1) & 1);
                uint32_t full_there = mapa_u32(full + 8 * s, other);
                mbarrier_arrive_expect_tx_cluster(full_there, STAGE_BYTES);
                bulk_push(mapa_u32(stage, other), stage, STAGE_BYTES, full_there);
            }
        } else if (threadIdx.x == N_READER + N_WRITER && writer != rank) {
            mbarrier_wait(full + 8 * s, use & 1);
            mbarrier_arrive_cluster(mapa_u32(mine + 8 * s, other));
        }
    }
    if (threadIdx.x < N_READER) p.sum[blockIdx.x * N_READER + threadIdx.x] = sum;
    cluster_sync();
}

/* turns: chunk c is written by CTA c % 2, there by group c / 2 % 2 as in relay, and lies in stage c
 * % 3 of both, pushed as a whole; a stage is free when both CTAs' readers have arrived, at the
 * mbarrier of the CTA whose turn it is. */
static __global__ void __launch_bounds__(RELAY_THREAD, 1) brim_sanitize_turns(handover p)
{
    enum { STAGES = CROSSED_STAGES, BYTES = CROSSED_BYTES };
    __shared__ __align__(128) char raw[STAGES * BYTES + 16 * STAGES];
    uint32_t base = smem_u32(raw), full = base + STAGES * BYTES, free = full + 8 * STAGES;
    uint32_t rank = cluster_ctarank(), other_cta = rank ^ 1;
    if (threadIdx.x == 0) {
        init_all(full, STAGES, 1);
        init_all(free, STAGES, 2 * N_READER / 32);
        fence_mbarrier_init();
    }
    cluster_sync();
    int group = (int)(threadIdx.x - N_READER) / N_WRITER;
    float sum = 0;
    for (int c = 0; c < N_CHUNK; c++) {
        uint32_t s = (uint32_t)c % STAGES, use = (uint32_t)c / STAGES, stage = base + s * BYTES;
        if (threadIdx.x < N_READER) {
            mbarrier_wait(full + 8 * s, use & 1);
            sum += read_stage(stage);
            __syncwarp();
            if ((threadIdx.x & 31) == 0)
                mbarrier_arrive_cluster(mapa_u32(free + 8 * s, (uint32_t)(c + STAGES) & 1));
        } else if (rank == (uint32_t)c % 2 && group == c / 2 % 2) {
            if (use > 0) mbarrier_wait_cluster(free + 8 * s, ((use - 1) >> 1) & 1);
            write_crossed(stage, c, group);
            fence_proxy_async_shared();
            named_barrier_sync(1 + group, N_WRITER);
            if (threadIdx.x % N_WRITER == 0) {
                uint32_t full_there = mapa_u32(full + 8 * s, other_cta);
                mbarrier_arrive_expect_tx_cluster(full_there, BYTES);
                bulk_push(mapa_u32(stage, other_cta), stage, BYTES, full_there);
                mbarrier_arrive(full + 8 * s);
            }
        }
    }
    cluster_sync();
    if (threadIdx.x < N_READER)
        p.sum[blockIdx.x * N_READER + threadIdx.x] = sum + read_unread(base);
}

/* load: one lane, in the first warp behind the readers, fills the stages by bulk loads, each when
 * the readers' four warps have arrived. acked: one of the second warp waits for the load and
 * arrives as well. */
static __global__ void __launch_bounds__(N_THREAD, 1) brim_sanitize_load(handover p)
{
    __shared__ __align__(128) char raw[SMEM_BYTES];
    uint32_t base = smem_u32(raw), full = base + AT_FULL, free = base + AT_MINE;
    if (threadIdx.x == 0) {
        init_all(full, N_STAGE, 1);
        init_all(free, N_STAGE, N_READER / 32 + (p.acked ? 1 : 0));
        fence_mbarrier_init();
    }
    __syncthreads();
    float sum = 0;
    for (int c = 0; c < N_CHUNK; c++) {
        uint32_t s = (uint32_t)c % N_STAGE, use = (uint32_t)c / N_STAGE;
        if (threadIdx.x < N_READER) {
            sum += take_stage(base + s * STAGE_BYTES, full + 8 * s, use & 1, free + 8 * s);
        } else if (threadIdx.x == N_READER) {
            if (use > 0) mbarrier_wait(free + 8 * s, (use - 1) & 1);
            mbarrier_arrive_expect_tx(full + 8 * s, STAGE_BYTES);
            bulk_load(base + s * STAGE_BYTES, p.from + c * (STAGE_BYTES / 4), STAGE_BYTES,
                      full + 8 * s);
        } else if (threadIdx.x == N_READER + 32 && p.acked) {
            mbarrier_wait(full + 8 * s, use & 1);
            mbarrier_arrive(free + 8 * s);
        }
    }
    if (threadIdx.x < N_READER) p.sum[threadIdx.x] = sum;
}

/* join: lines [from CTA][warp][lane] of 16 bytes; warp w of a CTA writes line w of both CTAs, its
 * own by ordinary stores before a named barrier, the other's by st.async, and adds the two of warp
 * w + 1 here. */
static __global__ void __launch_bounds__(N_THREAD, 1) brim_sanitize_join(handover p)
{
    enum { LINE = 512, N_LINE = N_READER / 32, AT_BAR = 2 * N_LINE * LINE };
    __shared__ __align__(128) char raw[AT_BAR + 16];
    uint32_t base = smem_u32(raw), joined = base + AT_BAR, rank = cluster_ctarank();
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        mbarrier_init(joined, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(joined, N_LINE * LINE);
    }
    cluster_sync();
    if (threadIdx.x < N_READER) {
        uint32_t to = base + (rank * N_LINE + warp) * LINE + lane * 16;
        for (uint32_t owner = 0; owner < 2; owner++) {
            float first = (float)(4 * threadIdx.x + 1000 * rank + 2000 * owner);
            float4 v = make_float4(first, first + 1, first + 2, first + 3);
            if (owner == rank)
                st_shared_v4(to, v);
            else
                st_async_v4(mapa_u32(to, owner), v, mapa_u32(joined, owner));
        }
        named_barrier_sync(1, N_READER);
        mbarrier_wait(joined, 0);
        uint32_t at = base + (warp + 1) % N_LINE * LINE + lane * 16;
        float4 a = ld_shared_v4_f32(at), b = ld_shared_v4_f32(at + N_LINE * LINE);
        p.sum[rank * N_READER + threadIdx.x] = a.x + a.y + a.z + a.w + b.x + b.y + b.z + b.w;
    }
    cluster_sync();
}

/* counted: two groups each write four shares and meet at a named barrier, then one thread of each
 * counts them between two fences; the last to come reads the shares of both. */
static __global__ void __launch_bounds__(N_THREAD, 1) brim_sanitize_counted(handover p)
{
    __shared__ __align__(16) char raw[2 * 16 + 16];
    uint32_t base = smem_u32(raw), count = base + 32, group = threadIdx.x / 128;
    if (threadIdx.x == 0) st_shared_u32(count, 0);
    __syncthreads();
    if (group >= 2) return;
    uint32_t warp = threadIdx.x % 128 / 32;
    if (threadIdx.x % 32 == 0) st_shared_f32(base + 16 * group + 4 * warp, share_of(group, warp));
    named_barrier_sync(1 + (int)group, 128);
    if (threadIdx.x % 128 != 0) return;
    __threadfence_block();
    if (atom_add_shared(count, 1) != 1) return;
    __threadfence_block();
    float4 a = ld_shared_v4_f32(base), b = ld_shared_v4_f32(base + 16);
    for (int i = 0; i < N_READER; i++) p.sum[i] = a.x + a.y + a.z + a.w + b.x + b.y + b.z + b.w;
}

/* kept: a group writes a stage, of which each thread tells the readers, meets at a named barrier,
 * reads what its other threads have written, meets again, and one of its threads arrives, beside
 * the readers' warps, at the mbarrier that the next writers wait for. Groups and stages as in
 * relay. */
static __global__ void __launch_bounds__(RELAY_THREAD, 1) brim_sanitize_kept(handover p)
{
    enum { STAGES = CROSSED_STAGES };
    __shared__ __align__(128) char raw[STAGES * STAGE_BYTES + 16 * STAGES + 16];
    uint32_t base = smem_u32(raw), full = base + STAGES * STAGE_BYTES, free = full + 8 * STAGES;
    uint32_t wrong = free + 8 * STAGES; /* has a writer read another number than was written */
    if (threadIdx.x == 0) {
        st_shared_u32(wrong, 0);
        init_all(full, STAGES, N_WRITER);
        init_all(free, STAGES, N_READER / 32 + 1);
        fence_mbarrier_init();
    }
    __syncthreads();
    int group = (int)(threadIdx.x - N_READER) / N_WRITER, i = threadIdx.x % N_WRITER;
    int other = (i + N_WRITER / 2) % N_WRITER;
    float sum = 0, kept = 0;
    for (int c = 0; c < N_CHUNK; c++) {
        uint32_t s = (uint32_t)c % STAGES, use = (uint32_t)c / STAGES;
        uint32_t stage = base + s * STAGE_BYTES;
        if (threadIdx.x < N_READER) {
            sum += take_stage(stage, full + 8 * s, use & 1, free + 8 * s);
        } else if (group == c % 2) {
            if (use > 0) mbarrier_wait(free + 8 * s, (use - 1) & 1);
            st_shared_f32(stage + 4 * i, (float)(128 * c + i));
            mbarrier_arrive(full + 8 * s);
            named_barrier_sync(1 + group, N_WRITER);
            kept += ld_shared_f32(stage + 4 * other) - (float)(128 * c + other);
            named_barrier_sync(1 + group, N_WRITER);
            if (i == 0) mbarrier_arrive(free + 8 * s);
        }
    }
    if (kept != 0) st_shared_u32(wrong, 1);
    __syncthreads();
    if (threadIdx.x < N_READER) p.sum[threadIdx.x] = ld_shared_u32(wrong) ? -1 : sum;
}

/* A warp: to each number of 16 bytes of 32 rows, by matrices. at: this lane's row. */
BRIM_DEVICE void add_to_rows(uint32_t at, float by)
{
    uint32_t r[4];
    ldmatrix_x4(r, at);
#pragma unroll
    for (int i = 0; i < 4; i++) r[i] = __float_as_uint(__uint_as_float(r[i]) + by);
    stmatrix_x4(at, r);
}

/* lane: a group of writers waits for a stage, writes rows of it by ordinary stores, meets, and by
 * matrices puts other numbers there; each thread tells the readers. Each of their two groups has a
 * panel of it: a warp puts other numbers into its columns, the group meets, the lanes read whole
 * rows, the warp meets, and one lane arrives for it at the mbarrier that the next writers wait for.
 * The reads lie behind the group's barrier, so that only __syncwarp orders those of the other lanes
 * before the arrival. m128's panel of the last O; writers' groups and stages as in relay. */
static __global__ void __launch_bounds__(LANE_THREAD, 1) brim_sanitize_lane(handover p)
{
    enum { STAGES = CROSSED_STAGES };
    __shared__ __align__(128) char raw[STAGES * LANE_BYTES + 16 * STAGES];
    uint32_t base = smem_u32(raw), full = base + STAGES * LANE_BYTES, free = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        init_all(full, STAGES, N_WRITER);
        init_all(free, STAGES, 2 * N_READER / 32);
        fence_mbarrier_init();
    }
    __syncthreads();
    int group = (int)threadIdx.x / 128; /* 0, 1: readers; 2, 3: writers */
    uint32_t warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    float sum = 0;
    for (int c = 0; c < N_CHUNK; c++) {
        uint32_t s = (uint32_t)c % STAGES, use = (uint32_t)c / STAGES;
        uint32_t stage = base + s * LANE_BYTES;
        if (group < 2) {
            uint32_t panel = stage + (uint32_t)group * LANE_PANEL;
            mbarrier_wait(full + 8 * s, use & 1);
            for (uint32_t n = 0; n < 2; n++)
                add_to_rows(panel + lane * 128 + warp * 32 + n * 16, 2);
            named_barrier_sync(1 + group, N_READER);
            uint32_t rows = panel + warp * 1024 + lane * 16;
            float4 a = ld_shared_v4_f32(rows), b = ld_shared_v4_f32(rows + 512);
            sum += a.x + a.y + a.z + a.w + b.x + b.y + b.z + b.w;
            __syncwarp();
            if (lane == 0) mbarrier_arrive(free + 8 * s);
        } else if (group - 2 == c % 2) {
            if (use > 0) mbarrier_wait(free + 8 * s, (use - 1) & 1);
            named_barrier_sync(1 + group, N_WRITER);
            for (uint32_t n = 0; n < 8; n++) {
                uint32_t word = warp * 512 + n * 64 + lane * 2;
                float first = (float)(LANE_BYTES / 4 * (uint32_t)c + word);
                st_shared_v2_u32(stage + 4 * word, __float_as_uint(first),
                                 __float_as_uint(first + 1));
            }
            named_barrier_sync(1 + group, N_WRITER);
            uint32_t columns = stage + warp / 2 * LANE_PANEL + lane * 128 + warp % 2 * 64;
            for (uint32_t n = 0; n < 4; n++) add_to_rows(columns + n * 16, 1);
            mbarrier_arrive(full + 8 * s);
        }
    }
    if (group < 2) p.sum[threadIdx.x] = sum;
}

/* cluster: what a cluster barrier of 8 blocks costs. In every round each thread gives the next
 * block's a number; two sets of them, so that a barrier a round is enough. */
static __global__ void __launch_bounds__(1024, 1) brim_sanitize_cluster(handover p)
{
    __shared__ float from[2][1024];
    uint32_t rank = cluster_ctarank(), next = (rank + 1) % N_BLOCK;
    cluster_sync(); /* every block has started */
    float sum = 0;
    for (int r = 0; r < p.n_round; r++) {
        float *slot = &from[r & 1][threadIdx.x];
        st_shared_cluster_f32(mapa_u32(smem_u32(slot), next), (float)(rank * 64 + r));
        cluster_sync();
        sum += *(volatile float *)slot;
    }
    if (threadIdx.x < 32) p.sum[rank * 32 + threadIdx.x] = sum;
}

/* What reader i of CTA `rank`, in lane of group `rank`, must have. */
static float want_of(const char *way, const handover &p, int rank, int i)
{
    float want = 0;
    if (!strcmp(way, "cluster")) {
        int before = (rank * N_READER + i) / 32 + N_BLOCK - 1;
        for (int r = 0; r < p.n_round; r++) want += (float)(before % N_BLOCK * 64 + r);
        return want;
    }
    if (!strcmp(way, "counted")) {
        for (uint32_t w = 0; w < 8; w++) want += share_of(w / 4, w % 4);
        return want;
    }
    if (!strcmp(way, "join")) {
        for (int from = 0; from < 2; from++)
            for (int e = 0; e < 4; e++)
                want += (float)(4 * ((i + 32) % N_READER) + e + 1000 * from + 2000 * rank);
        return want;
    }
    if (!strcmp(way, "lane")) {
        for (int c = 0; c < N_CHUNK; c++)
            for (int e = 0; e < 8; e++) {
                int word = i / 32 * 256 + i % 32 * 4 + e / 4 * 128 + e % 4;
                want += (float)(LANE_BYTES / 4 * c + LANE_PANEL / 4 * rank + word + 3);
            }
        return want;
    }
    bool crossed = !strcmp(way, "relay") || !strcmp(way, "turns");
    for (int c = 0; c < N_CHUNK; c++) {
        int n_read = crossed && c >= N_CHUNK - CROSSED_STAGES ? 2 : 1;
        for (int e = 0; e < 4; e++) want += (float)(n_read * (128 * c + 4 * (i & 31) + e));
    }
    return want;
}

static brim_status run(const char *way, const handover &p, brim_launch_shape shape, brim_error *err)
{
    if (!strcmp(way, "relay")) return BRIM_LAUNCH(brim_sanitize_relay, shape, 0, p, err);
    if (!strcmp(way, "pair")) return BRIM_LAUNCH(brim_sanitize_pair, shape, 0, p, err);
    if (!strcmp(way, "turns")) return BRIM_LAUNCH(brim_sanitize_turns, shape, 0, p, err);
    if (!strcmp(way, "join")) return BRIM_LAUNCH(brim_sanitize_join, shape, 0, p, err);
    if (!strcmp(way, "counted")) return BRIM_LAUNCH(brim_sanitize_counted, shape, 0, p, err);
    if (!strcmp(way, "kept")) return BRIM_LAUNCH(brim_sanitize_kept, shape, 0, p, err);
    if (!strcmp(way, "lane")) return BRIM_LAUNCH(brim_sanitize_lane, shape, 0, p, err);
    if (!strcmp(way, "cluster")) return BRIM_LAUNCH(brim_sanitize_cluster, shape, 0, p, err);
    return BRIM_LAUNCH(brim_sanitize_load, shape, 0, p, err);
}

int main(int argc, char **argv)
{
    static const char *const ways[] = {"relay", "pair",    "turns", "load", "acked",
                                       "join",  "counted", "kept",  "lane", "cluster"};
    const char *way = NULL;
    for (const char *w : ways)
        if (argc >= 2 && !strcmp(argv[1], w)) way = w;
    bool cluster = way && !strcmp(way, "cluster");
    int n_thread = cluster && argc == 4 ? atoi(argv[2]) : 0;
    if (!way || argc != (cluster ? 4 : 2) || (cluster && (n_thread < 32 || n_thread > 1024))) {
        printf("sanitize_barrier relay|pair|turns|load|acked|join|counted|kept|lane\n"
               "sanitize_barrier cluster N_THREAD N_ROUND\n");
        return 2;
    }
    int n_device;
    if (cudaGetDeviceCount(&n_device) != cudaSuccess || n_device == 0) {
        printf("SKIP: no CUDA device\n");
        return 77;
    }
    bool turns = !strcmp(way, "turns"), two = turns || !strcmp(way, "pair") || !strcmp(way, "join");
    bool lane = !strcmp(way, "lane");
    int n_cta = cluster ? N_BLOCK : two ? 2 : 1;
    int n = cluster || two || lane ? 2 * N_READER : N_READER;
    float packets[N_CHUNK * STAGE_BYTES / 4], host[2 * N_READER];
    for (int i = 0; i < N_CHUNK * STAGE_BYTES / 4; i++) packets[i] = (float)i;
    void *from = device_alloc(sizeof packets);
    CUDA_OK(cudaMemcpy(from, packets, sizeof packets, cudaMemcpyHostToDevice));
    brim_error err = {};
    handover p = {(float *)device_alloc(sizeof host), (const float *)from, !strcmp(way, "acked"),
                  cluster ? atoi(argv[3]) : 0};
    brim_launch_shape shape = {};
    shape.grid = dim3(n_cta), shape.cluster = n_cta;
    shape.block =
        dim3(turns || !strcmp(way, "relay") || !strcmp(way, "kept") ? RELAY_THREAD : N_THREAD);
    if (lane) shape.block = dim3(LANE_THREAD);
    if (cluster) shape.block = dim3((unsigned)n_thread);
    if (run(way, p, shape, &err) != BRIM_OK) {
        printf("FAIL %s: %s\n", way, err.text);
        return 1;
    }
    CUDA_OK(cudaMemcpy(host, p.sum, (size_t)n * 4, cudaMemcpyDeviceToHost));
    int n_wrong = 0;
    for (int i = 0; i < n; i++) n_wrong += host[i] != want_of(way, p, i / N_READER, i % N_READER);
    printf("%s %s: %d of %d sums are wrong\n", n_wrong ? "FAIL" : "ok", way, n_wrong, n);
    return n_wrong != 0;
}
