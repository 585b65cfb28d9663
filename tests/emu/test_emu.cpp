/* SPDX-License-Identifier: Apache-2.0
 * The emulator against what it stands for: layouts of matrix instructions element by element, every
 * way of waiting, and the mistakes it is there to catch, each of which must end a child process. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_runtime.h"

#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/wgmma_f16.cuh"

static int n_check, n_fail;

static void check(bool good, const char *what)
{
    n_check++;
    if (!good) n_fail++;
    if (!good) printf("failed: %s\n", what);
}

/* Small integers: exact in every type and sum. */
static float number(int row, int col)
{
    return (float)((row * 7 + col * 3) % 11 - 5);
}

static float product(const char *form, int row, int col)
{
    float sum = 0;
    for (int k = 0; k < 16; k++)
        sum += number(row, k) * (form[0] == 't' ? number(k, col) : number(col, k));
    return sum;
}

static float d_rs[64][64], d_trans[64][64], d_ss[64][64], d_mma[16][8];

extern __shared__ __align__(1024) char smem[];

static void spread(float (&d)[32], float (*to)[64])
{
    int warp = (int)threadIdx.x >> 5, g = emu_lane() >> 2, c = emu_lane() & 3;
    for (int i = 0; i < 32; i++)
        to[warp * 16 + g + 8 * (i >> 1 & 1)][8 * (i >> 2) + 2 * c + (i & 1)] = d[i];
}

static void products(void)
{
    uint32_t base = smem_u32(smem);
    int tid = (int)threadIdx.x, warp = tid >> 5, lane = emu_lane(), g = lane >> 2, c = lane & 3;
    for (int i = tid; i < 64 * 32; i += 128) { /* element pairs (row, 2 j), in bf16 and f16 */
        int row = i >> 5, j = i & 31;
        uint32_t at = swizzle_128b(row, j >> 2) + (j & 3) * 4;
        st_shared_u32(base + at, bf16x2_pack(number(row, 2 * j), number(row, 2 * j + 1)));
        st_shared_u32(base + 8192 + at, f16x2_pack(number(row, 2 * j), number(row, 2 * j + 1)));
    }
    fence_proxy_async_shared();
    named_barrier_sync(0, 128);
    uint32_t a[4];
    for (int i = 0; i < 4; i++) {
        int row = warp * 16 + g + 8 * (i & 1), k = 2 * c + 8 * (i >> 1);
        a[i] = bf16x2_pack(number(row, k), number(row, k + 1));
    }
    uint64_t desc = wgmma_desc_128b(base, 16, 1024), half = wgmma_desc_128b(base + 8192, 16, 1024);
    float rs[32], trans[32], ss[32];
    wgmma_fence();
    wgmma_m64k16<64>::rs<0, 0>(rs, a, desc);
    wgmma_m64k16<64>::rs<0, 1>(trans, a, desc);
    wgmma_commit();
    wgmma_f16_m64k16<64>::ss<0>(ss, half, half);
    wgmma_commit();
    wgmma_wait<0>();
    spread(rs, d_rs);
    spread(trans, d_trans);
    spread(ss, d_ss);
    if (warp == 0) { /* a and b of mma by ldmatrix: b's rows are columns */
        uint32_t x[4], y[4];
        float d[4] = {0, 0, 0, 0};
        ldmatrix_x4(x, base + swizzle_128b(lane & 15, lane >> 4));
        ldmatrix_x4(y, base + swizzle_128b(lane & 7, lane >> 3));
        mma_bf16_16816(d, x, y[0], y[1]);
        for (int i = 0; i < 4; i++) d_mma[g + 8 * (i >> 1)][2 * c + (i & 1)] = d[i];
    }
}

static uint32_t d_bytes[2][16][8];

/* Bytes over their whole range, a unsigned and b signed. */
static int byte_a(int row, int k)
{
    return (row * 37 + k * 101) & 255;
}
static int byte_b(int k, int col)
{
    return (int8_t)(k * 59 + col * 83 + 128);
}

static void products_of_bytes(void)
{
    int lane = emu_lane(), g = lane >> 2, c = lane & 3;
    uint32_t a[4] = {}, b[2] = {}, d[4];
    for (int i = 0; i < 16; i++) /* byte i of each register of a and half of b */
        a[i / 4] |= (uint32_t)byte_a(g + i / 4 % 2 * 8, 4 * c + i % 4 + i / 8 * 16) << i % 4 * 8;
    for (int i = 0; i < 8; i++)
        b[i / 4] |= (uint32_t)(uint8_t)byte_b(4 * c + i % 4 + i / 4 * 16, g) << i % 4 * 8;
    for (int twice = 0; twice < 2; twice++) {
        if (twice)
            mma_u8s8_16832(d, a, b[0], b[1]);
        else
            mma_u8s8_16832(d, a, b[0], b[1], 0xFFFFFF00u); /* sums wrap */
        for (int i = 0; i < 4; i++) d_bytes[twice][g + 8 * (i >> 1)][2 * c + (i & 1)] = d[i];
    }
}

static int n_turned;

/* stmatrix transposed and ldmatrix transposed are each other's inverse. */
static void turns(void)
{
    uint32_t base = smem_u32(smem), own[4], back[4];
    for (uint32_t i = 0; i < 4; i++) own[i] = threadIdx.x * 8 + i * 0x1010001u;
    stmatrix_x4_trans(base + threadIdx.x * 16, own);
    __syncwarp();
    ldmatrix_x4_trans(back, base + threadIdx.x * 16);
    bool same = memcmp(own, back, 16) == 0;
    if (threadIdx.x == 0) n_turned = 0;
    unsigned all = __ballot_sync(0xFFFFFFFF, same);
    if (threadIdx.x == 0) n_turned = __popc(all);
}

static uint32_t source[1024], arrived[4][1024];

/* A ring of four CTAs: each loads a piece, hands it to its neighbour and waits for another's. */
static void passes_on(void)
{
    __shared__ uint64_t bars[2];
    uint32_t base = smem_u32(smem), loaded = smem_u32(&bars[0]), got = smem_u32(&bars[1]);
    uint32_t rank = cluster_ctarank(), next = (rank + 1) & 3;
    if (threadIdx.x == 0) {
        mbarrier_init(loaded, 1);
        mbarrier_init(got, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(got, 1024);
    }
    cluster_sync();
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(loaded, 1024);
        bulk_load(base, source + 256 * rank, 1024, loaded);
    }
    mbarrier_wait(loaded, 0);
    if (threadIdx.x == 32) bulk_push(mapa_u32(base + 1024, next), base, 1024, mapa_u32(got, next));
    mbarrier_wait_cluster(got, 0);
    arrived[rank][threadIdx.x] = ld_shared_u32(base + 1024 + 4 * threadIdx.x);
    cluster_sync();
}

/* ---- mistakes: each ends the program ---- */

static void never_arrives(void)
{
    __shared__ uint64_t bar;
    if (threadIdx.x == 0) mbarrier_init(smem_u32(&bar), 2);
    named_barrier_sync(0, 64);
    mbarrier_wait(smem_u32(&bar), 0);
}

static void barrier_of_other_size(void)
{
    named_barrier_sync(3, threadIdx.x < 32 ? 64 : 96);
}

static void stores_beyond(void)
{
    st_shared_u32(smem_u32(smem) + 4096, 1);
}

static void misses_fence(void)
{
    static char there[16];
    if (threadIdx.x != 0) return;
    st_shared_v4_u32(smem_u32(smem), 1, 2, 3, 4);
    bulk_store(there, smem_u32(smem), 16);
    bulk_commit();
    bulk_wait_all();
}

static void fences_for_another(void)
{
    static char there[16];
    if (threadIdx.x == 1) st_shared_v4_u32(smem_u32(smem), 1, 2, 3, 4);
    __syncthreads();
    if (threadIdx.x != 0) return;
    fence_proxy_async_shared();
    bulk_store(there, smem_u32(smem), 16);
}

static void lane_is_missing(void)
{
    if (threadIdx.x == 5) return;
    __syncwarp();
}

static void arrives_too_often(void)
{
    __shared__ uint64_t bar;
    if (threadIdx.x != 0) return;
    mbarrier_init(smem_u32(&bar), 1);
    mbarrier_arrive_expect_tx(smem_u32(&bar), 16);
    mbarrier_arrive(smem_u32(&bar));
}

static void leaves_its_cluster(void)
{
    if (cluster_ctarank() == 1) return;
    if (threadIdx.x == 0) usleep(200000); /* the other one has long ended */
    __syncthreads();
    st_shared_cluster_u32(mapa_u32(smem_u32(smem), 1), 1);
}

static void leaves_its_barrier(void)
{
    cluster_arrive();
    if (threadIdx.x > 0) cluster_wait();
}

static void waits_late(void)
{
    cluster_arrive();
    if (threadIdx.x >= 32) usleep(20000);
    if (threadIdx.x >= 32) __syncwarp();
    cluster_wait();
    cluster_arrive();
    cluster_wait();
}

static void must_end(void (*kernel)(void), unsigned cluster, int status, const char *what)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        emu_patience = 1;
        freopen("/dev/null", "w", stderr);
        brim_emu_run(what, dim3(cluster), dim3(64), 4096, cluster, kernel);
        _exit(0);
    }
    int code;
    waitpid(child, &code, 0);
    check(WIFEXITED(code) && WEXITSTATUS(code) == status, what);
}

int main(void)
{
    brim_emu_run("products", dim3(3), dim3(128), 16384, 1, products);
    bool rs = true, trans = true, ss = true, mma = true;
    for (int row = 0; row < 64; row++)
        for (int col = 0; col < 64; col++) {
            rs = rs && d_rs[row][col] == product("n", row, col);
            trans = trans && d_trans[row][col] == product("t", row, col);
            ss = ss && d_ss[row][col] == product("n", row, col);
            if (row < 16 && col < 8) mma = mma && d_mma[row][col] == product("n", row, col);
        }
    check(rs, "wgmma, a in registers, b k-major");
    check(trans, "wgmma, b n-major");
    check(ss, "wgmma, both in shared memory");
    check(mma, "mma by ldmatrix");
    brim_emu_run("products_of_bytes", dim3(1), dim3(32), 0, 1, products_of_bytes);
    bool bytes = true;
    for (int row = 0; row < 16; row++)
        for (int col = 0; col < 8; col++) {
            int sum = 0;
            for (int k = 0; k < 32; k++) sum += byte_a(row, k) * byte_b(k, col);
            for (int twice = 0; twice < 2; twice++)
                bytes = bytes && (int)d_bytes[twice][row][col] == (twice + 1) * sum - 256;
        }
    check(bytes, "mma of bytes");
    brim_emu_run("turns", dim3(1), dim3(32), 1024, 1, turns);
    check(n_turned == 32, "stmatrix and ldmatrix, transposed");
    for (int i = 0; i < 1024; i++) source[i] = (uint32_t)i * 2654435761u;
    brim_emu_run("passes_on", dim3(8), dim3(256), 2048, 4, passes_on);
    bool right = true;
    for (int rank = 0; rank < 4; rank++)
        right = right && memcmp(arrived[(rank + 1) & 3], source + 256 * rank, 1024) == 0;
    check(right, "bulk copies from memory and between CTAs");

    must_end(never_arrives, 1, 71, "a barrier that never completes");
    must_end(barrier_of_other_size, 1, 70, "a named barrier of two sizes");
    must_end(stores_beyond, 1, 70, "a store beyond shared memory");
    must_end(misses_fence, 1, 70, "a bulk store of unfenced bytes");
    must_end(fences_for_another, 1, 70, "a fence by another thread than the writer");
    must_end(lane_is_missing, 1, 70, "a lane that does not come");
    must_end(arrives_too_often, 1, 70, "an arrival too many");
    must_end(leaves_its_cluster, 2, 70, "a store to a CTA that has ended");
    must_end(waits_late, 2, 70, "a wait for a phase after an arrival at the next");
    must_end(leaves_its_barrier, 2, 70, "an end after an arrival at the cluster's barrier");
    printf("%d checks, %d failed\n", n_check, n_fail);
    return n_fail != 0;
}
