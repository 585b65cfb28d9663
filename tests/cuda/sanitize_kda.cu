/* SPDX-License-Identifier: Apache-2.0
 * One call of one KDA route, small, for compute-sanitizer, which is slow by the access: no other
 * kernel runs, inputs come from the host, and nothing is written that a kernel should write, so
 * that initcheck sees what is read too early or left out. Values are other checks' business; here
 * they must be finite and no row may be missing.
 *     sanitize_kda ROUTE bound|free N_TOK[,N_TOK...] [weak] [wide] [few]
 * bound, free: the gate's kind, which chooses the kernel's instance. Several lengths: packed, with
 * five rows behind the last. weak: gates that forget nothing, which no split may cut. wide:
 * segments of three chunks with a window of two, not of two with one. few: route queue in a single
 * CTA (its sources compiled here once more), which so draws every task. Exit status 1 on a failure.
 */
#include <math.h>
#include <string.h>

#include "cuda_ok.h"

#define brim_kda_launch_queue few_launch_queue
#define brim_kda_cuda_supported few_supported
#define brim_kda_cuda_load few_load
#define brim_kda_cuda_launch few_launch
#define brim_kda_cuda_workspace_init few_workspace_init
#define brim_kda_cuda_processors few_processors_of_kda
#include "cuda/kda/kda.cu"
#undef brim_kda_cuda_processors

static brim_status one_processor(int64_t *n, brim_error *err)
{
    (void)err;
    *n = 1;
    return BRIM_OK;
}
#define brim_kda_cuda_processors one_processor
#include "cuda/kda/queue.cu"
#undef brim_kda_cuda_processors
#undef brim_kda_cuda_workspace_init

enum { MAX_SEQ = 16, TAIL = 5 };

static uint16_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static float f32_of(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* n values, nearly normal but for their size, on the device. */
static void *noise(size_t n, unsigned seed, float scale, float mean)
{
    uint16_t *host = (uint16_t *)malloc(n * 2);
    if (!host) abort();
    for (size_t i = 0; i < n; i++) {
        unsigned h = (unsigned)i * 2654435761u + seed * 40503u;
        h = (h ^ h >> 15) * 2246822519u;
        h ^= h >> 13;
        int sum = (int)(h & 255) + (int)(h >> 8 & 255) + (int)(h >> 16 & 255) + (int)(h >> 24);
        host[i] = bf16_of(mean + (float)(sum - 510) * (scale / 147.8f));
    }
    void *block = device_alloc(n * 2);
    CUDA_OK(cudaMemcpy(block, host, n * 2, cudaMemcpyHostToDevice));
    free(host);
    return block;
}

static void *zeros(size_t n_bytes)
{
    void *block = device_alloc(n_bytes);
    CUDA_OK(cudaMemset(block, 0, n_bytes));
    return block;
}

/* Every row written and finite, those behind the last offset zero. */
static bool rows_good(const brim_kda_args *a, int64_t n_row, int64_t last)
{
    size_t n = (size_t)n_row * 128;
    uint16_t *host = (uint16_t *)malloc(n * 2);
    if (!host) abort();
    CUDA_OK(cudaMemcpy(host, a->out, n * 2, cudaMemcpyDeviceToHost));
    bool good = true;
    for (int64_t row = 0; row < n_row; row++) {
        double sum = 0;
        for (int i = 0; i < 128; i++) sum += fabs((double)f32_of(host[row * 128 + i]));
        good = good && (row < last ? sum > 0 && isfinite(sum) : sum == 0);
    }
    free(host);
    return good;
}

static bool states_good(const void *from, size_t n)
{
    float *host = (float *)malloc(n * 4 + 4);
    if (!host) abort();
    if (n > 0) CUDA_OK(cudaMemcpy(host, from, n * 4, cudaMemcpyDeviceToHost));
    bool good = true;
    for (size_t i = 0; i < n; i++) good = good && isfinite(host[i]);
    free(host);
    return good;
}

int main(int argc, char **argv)
{
    brim_kda_args a;
    brim_error err = {};
    int32_t offsets[MAX_SEQ + 1] = {0};
    int n_seq = 0;
    bool weak = false, wide = false, few = false;
    if (argc < 4) {
        printf("sanitize_kda ROUTE bound|free N_TOK[,N_TOK...] [weak] [wide] [few]\n");
        return 2;
    }
    for (char *part = strtok(argv[3], ","); part && n_seq < MAX_SEQ; part = strtok(NULL, ","))
        n_seq++, offsets[n_seq] = offsets[n_seq - 1] + atoi(part);
    for (int i = 4; i < argc; i++) {
        weak = weak || !strcmp(argv[i], "weak");
        wide = wide || !strcmp(argv[i], "wide");
        few = few || !strcmp(argv[i], "few");
    }
    int n_device;
    if (cudaGetDeviceCount(&n_device) != cudaSuccess || n_device == 0) {
        printf("SKIP: no CUDA device\n");
        return 77;
    }
    int64_t last = offsets[n_seq], n_row = last + (n_seq > 1 ? TAIL : 0);
    size_t n = (size_t)n_row * 128, n_state = (size_t)n_seq * 16384;
    bool bounded = !strcmp(argv[2], "bound");
    brim_kda_args_init(&a);
    a.device = BRIM_KERNEL_CUDA;
    a.route = argv[1];
    a.n_seq = n_seq, a.n_tok = n_row, a.max_tok = last;
    a.n_head = a.n_value_head = 1;
    if (n_seq > 1) {
        void *device = device_alloc(sizeof offsets);
        CUDA_OK(cudaMemcpy(device, offsets, sizeof offsets, cudaMemcpyHostToDevice));
        a.cu_seqlens = device, a.offset_bytes = 4;
    }
    a.q = noise(n, 1, 1, 0), a.k = noise(n, 2, 1, 0), a.v = noise(n, 3, 1, 0);
    a.g = noise(n, 4, weak ? 0.1f : 1, weak ? -14 : 0);
    a.beta = noise((size_t)n_row, 5, 1, 0);
    brim_kda_stride stride = {n_row * 128, 128, 128};
    a.q_stride = a.k_stride = a.v_stride = a.g_stride = a.out_stride = stride;
    a.beta_stride = {n_row, 1, 1};
    a.g_dtype = a.beta_dtype = BRIM_KERNEL_BF16;
    a.gate = bounded ? BRIM_KDA_GATE_LOWER_BOUND : BRIM_KDA_GATE_SOFTPLUS;
    a.lower_bound = bounded ? -5 : 0;
    a.a_log = (const float *)zeros(4), a.dt_bias = (const float *)zeros(512);
    a.flags = BRIM_KDA_L2NORM | BRIM_KDA_BETA_LOGIT;
    a.state_dtype = BRIM_KERNEL_F32;
    a.state_stride = 16384;
    a.initial_state = zeros(n_state * 4);
    a.out = device_alloc(n * 2), a.final_state = device_alloc(n_state * 4);
    size_t n_check = n_seq == 1 ? (size_t)(n_row / 64) * 16384 : 0; /* packed ones leave places */
    if (n_check) a.checkpoints = device_alloc(n_check * 4);
    if (!strncmp(a.route, "split", 5)) a.split_length = 2 + wide, a.split_window = 1 + wide;
    if (brim_kda_workspace_bytes(&a, &a.workspace_bytes, &err) != BRIM_OK) {
        printf("FAIL %s: %s\n", a.route, err.text);
        return 1;
    }
    if (a.workspace_bytes) {
        a.workspace = device_alloc(a.workspace_bytes);
        if (brim_kda_workspace_init(BRIM_KERNEL_CUDA, a.workspace, a.workspace_bytes, NULL, &err))
            printf("%s\n", err.text);
    }
    brim_status status =
        few ? few_launch(&a, BRIM_KDA_ROUTE_QUEUE, NULL, &err) : brim_kda_prefill(&a, &err);
    if (status != BRIM_OK) {
        printf("FAIL %s: %s\n", a.route, err.text);
        return 1;
    }
    CUDA_OK(cudaDeviceSynchronize());
    bool good = rows_good(&a, n_row, last) && states_good(a.final_state, n_state) &&
                states_good(a.checkpoints, n_check);
    printf("%s %s, %s gates, %lld tokens in %d sequences%s: %s\n", good ? "ok" : "FAIL", a.route,
           bounded ? "bounded" : "free", (long long)last, n_seq, weak ? ", weak" : "",
           good ? "rows and states are there" : "rows or states are missing or not finite");
    return !good;
}
