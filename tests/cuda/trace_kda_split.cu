/* SPDX-License-Identifier: Apache-2.0
 * Where a call of route split spends its time: the product's kernels compiled once more with stamps
 * of the global timer (32 ns a step), under graph replay with the L2 flushed before each (cold) or
 * not (warm). CSV: for each point the earliest, median and latest CTA in us from the first CTA's
 * start, medians over the replays; weak: raw gates of -12, which forget nothing, so that the serial
 * route follows (its CTAs' stamps replace those of as many segments). trace_kda_split [weak] [TOKENS
 * HEADS]... */
#include <string.h>

#include <algorithm>

#include "cuda_ok.h"

enum { N_CTA = 1024, N_POINT = 64, N_CHUNK = 4 };
enum { AT_STAMP = 0, AT_PACKET = 32, AT_CHUNK = 36, AT_LAST = 40, AT_OTHER = 44 };

__device__ unsigned long long stamp_at[N_CTA][N_POINT];

static __device__ __forceinline__ void stamp(int point)
{
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (blockIdx.x < N_CTA) stamp_at[blockIdx.x][point] = now;
}

#define KDA_HOOK(p, point, chunk) stamp_hook(point, chunk)
#define KDA_STAMP(stage)                                                          \
    do {                                                                          \
        if (s.tid == 0 && chunk < N_CHUNK) stamp(AT_STAMP + chunk * 8 + (stage)); \
    } while (0)
#include "cuda/kda/params.cuh"

static __device__ __forceinline__ void stamp_hook(int point, int chunk)
{
    if (point == KDA_AT_CHUNK) {
        if (threadIdx.x == 0 && chunk < N_CHUNK) stamp(AT_CHUNK + chunk);
    } else if (point == KDA_AT_PACKET) {
        if ((threadIdx.x & 127) == 0 && chunk < N_CHUNK) stamp(AT_PACKET + chunk);
    } else if (point == KDA_AT_END) {
        if ((threadIdx.x & 127) == 0) stamp(AT_LAST + (threadIdx.x >> 7));
    } else if (point >= KDA_AT_START) {
        if ((threadIdx.x & 255) == 0) stamp(AT_OTHER + point - KDA_AT_START);
    }
}

#define brim_kda_launch_c4_m128 traced_launch_c4_m128
#define brim_kda_launch_split traced_launch_split
#define brim_kda_cuda_processors traced_processors
#define brim_kda_cuda_supported traced_supported
#define brim_kda_cuda_load traced_load
#define brim_kda_cuda_launch traced_launch
#define brim_kda_cuda_workspace_init traced_workspace_init
#include "cuda/kda/c4_m128.cu"
#include "cuda/kda/kda.cu"
/* two kernels' constants in one file */
#define N_STAGE SPLIT_N_STAGE
#define N_INSTANCE SPLIT_N_INSTANCE
#define N_THREAD SPLIT_N_THREAD
#define AT_WORK SPLIT_AT_WORK
#define AT_BARRIER SPLIT_AT_BARRIER
#define SMEM_BYTES SPLIT_SMEM_BYTES
#include "cuda/kda/split.cu"

/* bf16 numbers, nearly normal about `mean`. */
static void *device_rows(size_t n, float scale, float mean)
{
    uint16_t *host = (uint16_t *)malloc(n * 2);
    static unsigned h = 12345;
    for (size_t i = 0; i < n; i++) {
        float sum = 0;
        for (int j = 0; j < 4; j++) {
            h = h * 1664525u + 1013904223u;
            sum += (float)(h >> 16) / 65536 - 0.5f;
        }
        sum = sum * scale * 1.732f + mean;
        uint32_t bits;
        memcpy(&bits, &sum, 4);
        host[i] = (uint16_t)(bits >> 16);
    }
    void *to = device_alloc(n * 2);
    CUDA_OK(cudaMemcpy(to, host, n * 2, cudaMemcpyHostToDevice));
    free(host);
    return to;
}

enum { N_REPLAY = 15, FLUSH = 256 << 20 };

static unsigned long long host_at[N_CTA][N_POINT];

static void trace(int n_tok, int n_head, bool weak, bool cold, void *flush, cudaStream_t stream)
{
    size_t n = (size_t)n_tok * n_head * 128;
    brim_kda_args a;
    brim_kda_args_init(&a);
    a.device = BRIM_KERNEL_CUDA;
    a.n_seq = 1, a.n_tok = n_tok, a.n_head = a.n_value_head = n_head;
    a.q = device_rows(n, 1, 0), a.k = device_rows(n, 1, 0), a.v = device_rows(n, 1, 0);
    a.g = device_rows(n, !weak, weak ? -12 : 0), a.beta = device_rows(n / 128, 1, 0);
    a.out = device_alloc(n * 2);
    a.q_stride = a.k_stride = a.v_stride = a.g_stride = a.out_stride = {0, n_head * 128, 128};
    a.beta_stride = {0, n_head, 1};
    a.g_dtype = a.beta_dtype = BRIM_KERNEL_BF16;
    a.gate = BRIM_KDA_GATE_LOWER_BOUND, a.lower_bound = -5;
    a.flags = BRIM_KDA_L2NORM | BRIM_KDA_BETA_LOGIT;
    float *zero = (float *)device_alloc((size_t)n_head * 512 + (size_t)n_head * 65536);
    CUDA_OK(cudaMemset(zero, 0, (size_t)n_head * (512 + 65536)));
    a.a_log = a.dt_bias = zero;
    a.initial_state = zero + n_head * 128;
    a.state_dtype = BRIM_KERNEL_F32, a.state_stride = n_head * 16384;
    a.final_state = device_alloc((size_t)n_head * 65536);
    a.route = "split";
    a.scale = 0.088f;
    brim_kda_plan plan;
    brim_error err = {};
    if (brim_kda_plan_make(&a, &plan, &err) != BRIM_OK) printf("%s\n", err.text), exit(2);
    a.workspace_bytes = plan.workspace_bytes;
    a.workspace = device_alloc(plan.workspace_bytes);
    CUDA_OK(cudaMemset(a.workspace, 0, plan.workspace_bytes));
    struct brim_kda_split_call call = {};
    call.n_seq = 1, call.n_row = call.max_tok = n_tok, call.n_value_head = n_head;
    call.n_processor = 132;
    struct brim_kda_split_plan split =
        brim_kda_split_plan_make(&call);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begin, end;
    CUDA_OK(cudaEventCreate(&begin));
    CUDA_OK(cudaEventCreate(&end));
    a.stream = stream;
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    if (traced_launch(&a, BRIM_KDA_ROUTE_C4_M128, &split, &err) != BRIM_OK)
        printf("%s\n", err.text), exit(2);
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    static float at[3][N_POINT][N_REPLAY], event[N_REPLAY];
    int n_seen[N_POINT] = {};
    for (int r = 0; r < N_REPLAY; r++) {
        void *stamps;
        CUDA_OK(cudaGetSymbolAddress(&stamps, stamp_at));
        CUDA_OK(cudaMemsetAsync(stamps, 0, sizeof host_at, stream));
        if (cold) CUDA_OK(cudaMemsetAsync(flush, r, FLUSH, stream));
        CUDA_OK(cudaEventRecord(begin, stream));
        CUDA_OK(cudaGraphLaunch(exec, stream));
        CUDA_OK(cudaEventRecord(end, stream));
        CUDA_OK(cudaEventSynchronize(end));
        CUDA_OK(cudaEventElapsedTime(&event[r], begin, end));
        CUDA_OK(cudaMemcpy(host_at, stamps, sizeof host_at, cudaMemcpyDeviceToHost));
        unsigned long long first = ~0ull;
        for (int i = 0; i < N_CTA; i++)
            if (host_at[i][AT_OTHER]) first = std::min(first, host_at[i][AT_OTHER]);
        for (int k = 0; k < N_POINT; k++) {
            static float us[N_CTA];
            int m = 0;
            for (int i = 0; i < N_CTA; i++)
                if (host_at[i][k]) us[m++] = (float)(long long)(host_at[i][k] - first) / 1000;
            std::sort(us, us + m);
            n_seen[k] = m;
            for (int i = 0; i < 3; i++)
                at[i][k][r] = m ? us[i == 0 ? 0 : i == 1 ? m / 2 : m - 1] : 0;
        }
    }
    std::sort(event, event + N_REPLAY);
    printf("%d,%d,%s,event,%d,,,%.1f\n", n_tok, n_head, cold ? "cold" : "warm", (int)plan.grid,
           (double)event[N_REPLAY / 2] * 1000);
    for (int k = 0; k < N_POINT; k++) {
        if (!n_seen[k]) continue;
        for (int i = 0; i < 3; i++) std::sort(at[i][k], at[i][k] + N_REPLAY);
        static const char *const others[] = {"start",  "ready",   "behind",
                                             "waited", "verdict", "settled", "found", "asked"};
        char name[40];
        if (k < AT_PACKET)
            snprintf(name, sizeof name, "chunk %d stage %d", k / 8, k % 8);
        else if (k < AT_CHUNK)
            snprintf(name, sizeof name, "packet %d", k - AT_PACKET);
        else if (k < AT_LAST)
            snprintf(name, sizeof name, "products %d", k - AT_CHUNK);
        else if (k < AT_OTHER)
            snprintf(name, sizeof name, "end of warpgroup %d", k - AT_LAST);
        else
            snprintf(name, sizeof name, "%s", others[k - AT_OTHER]);
        printf("%d,%d,%s,%s,%d,%.2f,%.2f,%.2f\n", n_tok, n_head, cold ? "cold" : "warm", name,
               n_seen[k], (double)at[0][k][N_REPLAY / 2], (double)at[1][k][N_REPLAY / 2],
               (double)at[2][k][N_REPLAY / 2]);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    void *flush = device_alloc(FLUSH);
    cudaStream_t stream;
    CUDA_OK(cudaStreamCreate(&stream));
    printf("n_tok,n_head,cache,point,n_cta,first_us,median_us,last_us\n");
    bool weak = argc > 1 && !strcmp(argv[1], "weak");
    for (int i = 1 + weak; i + 1 < argc; i += 2)
        for (int cold = 1; cold >= 0; cold--)
            trace(atoi(argv[i]), atoi(argv[i + 1]), weak, cold, flush, stream);
    return 0;
}
