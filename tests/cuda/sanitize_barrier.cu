/* SPDX-License-Identifier: Apache-2.0
 * The ways in which KDA's kernels hand a packet from its writers to its readers, each alone in a
 * kernel of its own and correct by the PTX memory model, for racecheck beside the kernels: what is
 * reported here too is no fault of theirs (docs/verification.md).
 *     sanitize_barrier relay|pair
 * relay: 128 threads write a stage and meet at a named barrier, then one of them arrives at the
 * mbarrier that the readers wait for; the readers' four warps arrive at the one that the writers
 * wait for. pair: the same in both CTAs of a cluster by turns, and the one thread also pushes the
 * stage into the other CTA's; a stage is free when this CTA's readers have arrived and a fifth warp
 * of the other says that the push has. Every number is checked. Exit status 1 on a wrong one. */
#include <string.h>

#include "cuda_ok.h"
#include "cuda/launch.h"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/sync.cuh"

enum { N_READER = 128, N_WRITER = 128, N_THREAD = 288, N_STAGE = 2, N_CHUNK = 8 };
enum { STAGE_BYTES = 512, AT_FULL = N_STAGE * STAGE_BYTES, AT_MINE = AT_FULL + 8 * N_STAGE };
enum { AT_THEIRS = AT_MINE + 8 * N_STAGE, SMEM_BYTES = AT_THEIRS + 8 * N_STAGE };

struct handover {
    float *sum; /* of each reader of each CTA */
};

/* The thread's four numbers of chunk c: its lane's among 128. */
BRIM_DEVICE float read_stage(uint32_t stage)
{
    float4 x = ld_shared_v4_f32(stage + (threadIdx.x & 31) * 16);
    return x.x + x.y + x.z + x.w;
}

BRIM_DEVICE void write_stage(uint32_t stage, int c)
{
    int i = threadIdx.x - N_READER;
    st_shared_f32(stage + 4 * i, (float)(128 * c + i));
    fence_proxy_async_shared(); /* before the push */
    named_barrier_sync(1, N_WRITER);
}

static __global__ void __launch_bounds__(N_THREAD, 1) brim_sanitize_relay(handover p)
{
    __shared__ __align__(128) char raw[SMEM_BYTES];
    uint32_t base = smem_u32(raw), full = base + AT_FULL, free = base + AT_MINE;
    if (threadIdx.x == 0) {
#pragma unroll
        for (int i = 0; i < N_STAGE; i++) {
            mbarrier_init(full + 8 * i, 1);
            mbarrier_init(free + 8 * i, N_READER / 32);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    float sum = 0;
    for (int c = 0; c < N_CHUNK; c++) {
        uint32_t s = (uint32_t)c % N_STAGE, use = (uint32_t)c / N_STAGE;
        if (threadIdx.x < N_READER) {
            mbarrier_wait(full + 8 * s, use & 1);
            sum += read_stage(base + s * STAGE_BYTES);
            __syncwarp();
            if ((threadIdx.x & 31) == 0) mbarrier_arrive(free + 8 * s);
        } else if (threadIdx.x < N_READER + N_WRITER) {
            if (use > 0) mbarrier_wait(free + 8 * s, (use - 1) & 1);
            write_stage(base + s * STAGE_BYTES, c);
            if (threadIdx.x == N_READER) mbarrier_arrive(full + 8 * s);
        }
    }
    if (threadIdx.x < N_READER) p.sum[blockIdx.x * N_READER + threadIdx.x] = sum;
}

/* Chunk c is written by CTA c % 2 and lies in stage c % 2 of both. */
static __global__ void __launch_bounds__(N_THREAD, 1) brim_sanitize_pair(handover p)
{
    __shared__ __align__(128) char raw[SMEM_BYTES];
    uint32_t base = smem_u32(raw), full = base + AT_FULL, mine = base + AT_MINE;
    uint32_t theirs = base + AT_THEIRS, rank = cluster_ctarank(), other = rank ^ 1;
    if (threadIdx.x == 0) {
#pragma unroll
        for (int i = 0; i < N_STAGE; i++) {
            mbarrier_init(full + 8 * i, 1);
            mbarrier_init(mine + 8 * i, N_READER / 32 + 1);
            mbarrier_init(theirs + 8 * i, N_READER / 32);
        }
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

int main(int argc, char **argv)
{
    int n_device;
    if (argc != 2 || (strcmp(argv[1], "relay") && strcmp(argv[1], "pair"))) {
        printf("sanitize_barrier relay|pair\n");
        return 2;
    }
    if (cudaGetDeviceCount(&n_device) != cudaSuccess || n_device == 0) {
        printf("SKIP: no CUDA device\n");
        return 77;
    }
    bool pair = !strcmp(argv[1], "pair");
    int n = pair ? 2 * N_READER : N_READER;
    float host[2 * N_READER];
    brim_error err = {};
    handover p = {(float *)device_alloc(sizeof host)};
    brim_launch_shape shape = {};
    shape.grid = dim3(pair ? 2 : 1), shape.block = dim3(N_THREAD), shape.cluster = pair ? 2 : 1;
    brim_status status = pair ? BRIM_LAUNCH(brim_sanitize_pair, shape, 0, p, &err)
                              : BRIM_LAUNCH(brim_sanitize_relay, shape, 0, p, &err);
    if (status != BRIM_OK) {
        printf("FAIL %s: %s\n", argv[1], err.text);
        return 1;
    }
    CUDA_OK(cudaMemcpy(host, p.sum, (size_t)n * 4, cudaMemcpyDeviceToHost));
    int n_wrong = 0;
    for (int i = 0; i < n; i++) {
        float want = 0;
        for (int c = 0; c < N_CHUNK; c++)
            for (int e = 0; e < 4; e++) want += (float)(128 * c + 4 * (i & 31) + e);
        n_wrong += host[i] != want;
    }
    printf("%s %s: %d of %d sums are wrong\n", n_wrong ? "FAIL" : "ok", argv[1], n_wrong, n);
    return n_wrong != 0;
}
