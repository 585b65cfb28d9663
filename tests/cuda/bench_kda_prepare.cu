/* SPDX-License-Identifier: Apache-2.0
 * Cycles of K1 alone: 1 to 4 preparation instances on each of eight SMs, 2048 tokens a head, in
 * both arrangements, with a bound and without. CSV on stdout: cycles a chunk and SM, then what warp
 * 0 of one instance spends in each stage of prepare.cuh, a barrier's wait included. */
#include <string.h>

#include "cuda_ok.h"

enum { N_STAGE = 6 };

/* Sums of the clock at the end of each stage, modulo 2^32: differences of neighbours are times. */
#define KDA_STAMP(stage)                                                       \
    do {                                                                       \
        if (threadIdx.x == 0) atomicAdd(&clock_sum[stage], (unsigned)clock()); \
    } while (0)

static __device__ __shared__ unsigned clock_sum[N_STAGE];

#include "cuda/kda/prepare.cuh"
#include "cuda/launch.h"

struct prepare_args {
    kda_params p;
    unsigned
        *out; /* [N_STAGE + 1]: cycles of each stage of the first instance, then of everything */
};

template <class L, int n_instance, int n_register>
static __global__ void __launch_bounds__(n_instance * 128) __maxnreg__(n_register)
    prepare_only(const __grid_constant__ struct prepare_args a)
{
    extern __shared__ char raw[];
    const kda_params &p = a.p;
    uint32_t base = (smem_u32(raw) + 1023) & ~1023u;
    kda_task t = kda_task_make(p, blockIdx.x);
    int instance = threadIdx.x >> 7, tid = threadIdx.x & 127;
    uint32_t work = base + instance * (L::lean ? KDA_LEAN_BYTES : KDA_FULL_BYTES);
    uint32_t packet = work;
    if (!L::lean) {
        work += n_instance * KDA_PACKET_BYTES;
        packet = base + instance * KDA_PACKET_BYTES;
    }
    kda_prep s;
    kda_prep_init<L>(p, t, s, work, 1 + instance, tid, instance);
    if (threadIdx.x < N_STAGE) clock_sum[threadIdx.x] = 0;
    __syncthreads();
    unsigned begin = clock(), end = begin;
    for (int c = instance; c < t.n_chunk; c += n_instance) {
        kda_prepare<L>(p, t, s, c, c + n_instance, packet, [] {});
        end = clock();
        if (L::lean) { /* where the packet would leave */
            named_barrier_sync(s.bar, 128);
            kda_prefetch<L>(p, t, c + n_instance, s, 0);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0 && blockIdx.x == 0) {
        for (int i = 1; i < N_STAGE; i++) a.out[i] = clock_sum[i] - clock_sum[i - 1];
        a.out[0] = clock_sum[0] - clock_sum[N_STAGE - 1] + end - begin;
        a.out[N_STAGE] = (unsigned)clock() - begin;
    }
}

template <class L, int n_instance, int n_register>
static void measure(const kda_params &p, unsigned *out, const char *name)
{
    size_t per = L::lean ? KDA_LEAN_BYTES : KDA_FULL_BYTES + KDA_PACKET_BYTES;
    size_t smem = n_instance * per + 1024;
    unsigned host[N_STAGE + 1];
    struct prepare_args a = {p, out};
    CUDA_OK(cudaFuncSetAttribute(prepare_only<L, n_instance, n_register>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem));
    brim_launch_shape shape = {dim3(8), dim3(n_instance * 128), (unsigned)smem, 0, false};
    for (int i = 0; i < 2; i++) { /* the second run has its data in the L2 */
        brim_error err;
        if (BRIM_LAUNCH((prepare_only<L, n_instance, n_register>), shape, 0, a, &err) != BRIM_OK) {
            printf("%s\n", err.text);
            exit(2);
        }
        CUDA_OK(cudaDeviceSynchronize());
    }
    CUDA_OK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
    unsigned n_chunk = (unsigned)(p.n_tok / KDA_CHUNK);
    printf("%s,%d,%d,%u", name, n_instance, n_register, host[N_STAGE] / n_chunk);
    for (int i = 0; i < N_STAGE; i++) printf(",%u", host[i] / (n_chunk / n_instance));
    printf("\n");
}

static const __nv_bfloat16 *random_rows(size_t n)
{
    static unsigned state = 1;
    unsigned short *host = (unsigned short *)malloc(n * 2);
    void *device;
    if (!host) exit(2);
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525 + 1013904223;
        float x = (float)((int)(state >> 8) % 2001 - 1000) / 500.0f;
        unsigned bits;
        memcpy(&bits, &x, 4);
        host[i] = (unsigned short)(bits >> 16);
    }
    CUDA_OK(cudaMalloc(&device, n * 2));
    CUDA_OK(cudaMemcpy(device, host, n * 2, cudaMemcpyHostToDevice));
    free(host);
    return (const __nv_bfloat16 *)device;
}

int main(void)
{
    enum { N_TOK = 2048, N_HEAD = 8, ROW = N_HEAD * 128 };
    int n_device;
    if (cudaGetDeviceCount(&n_device) != cudaSuccess || n_device == 0) {
        printf("SKIP: no CUDA device\n");
        return 77;
    }
    kda_params p = {};
    unsigned *out;
    CUDA_OK(cudaMalloc(&out, (N_STAGE + 1) * sizeof *out));
    p.q = random_rows(N_TOK * ROW);
    p.k = random_rows(N_TOK * ROW);
    p.v = random_rows(N_TOK * ROW);
    p.g = random_rows(N_TOK * ROW);
    p.beta = random_rows(N_TOK * N_HEAD);
    p.q_stride = p.k_stride = p.v_stride = p.g_stride = p.out_stride = {N_TOK * ROW, ROW, 128};
    p.beta_stride = {N_TOK * N_HEAD, N_HEAD, 1};
    p.n_seq = 1, p.n_tok = N_TOK, p.n_value_head = N_HEAD, p.head_group = 1;
    p.gate = BRIM_KDA_GATE_LOWER_BOUND, p.lower_bound = -5, p.inverse_bound = -0.138629436f;
    p.mid = 58, p.beta_logit = 1, p.l2norm = 1, p.scale = 0.088388348f;
    printf(
        "arrangement,instances,registers,cycles_per_chunk,rows,gate,decay,pairs,inverse,solve\n");
    measure<kda_full_of<true>, 1, 96>(p, out, "fused");
    measure<kda_full_of<true>, 2, 96>(p, out, "fused");
    measure<kda_lean_of<true>, 1, 128>(p, out, "helper");
    measure<kda_lean_of<true>, 3, 128>(p, out, "helper");
    measure<kda_lean_of<true>, 4, 128>(p, out, "helper");
    p.gate = BRIM_KDA_GATE_SOFTPLUS, p.lower_bound = 0, p.mid = 0;
    measure<kda_full_of<false>, 2, 96>(p, out, "fused, no bound");
    measure<kda_lean_of<false>, 4, 128>(p, out, "helper, no bound");
    return 0;
}
