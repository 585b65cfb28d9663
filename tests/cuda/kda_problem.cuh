/* SPDX-License-Identifier: Apache-2.0
 * A KDA problem made on the GPU, with two sets of outputs that are compared there, for programs of
 * one main file. */
#ifndef BRIM_CHECK_KDA_PROBLEM_CUH
#define BRIM_CHECK_KDA_PROBLEM_CUH

#include "cuda_ok.h"
#include "cuda/launch.h"
#include "plan/kda_route.h"

static int n_check, n_fail;

struct noise {
    uint16_t *to;
    size_t n;
    unsigned seed;
    float scale;
};

/* Four uniform numbers make one that is nearly normal; element i depends on i and the seed alone.
 */
static __global__ void brim_test_fill(noise f)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < f.n;
         i += (size_t)gridDim.x * blockDim.x) {
        unsigned h = (unsigned)(i ^ i >> 32) * 2654435761u + f.seed;
        h = (h ^ h >> 15) * 2246822519u;
        h ^= h >> 13;
        float sum = (float)(h & 255) + (float)(h >> 8 & 255) + (float)(h >> 16 & 255) +
                    (float)(h >> 24) - 510;
        f.to[i] = __bfloat16_as_ushort(__float2bfloat16_rn(sum * (f.scale / 147.8f)));
    }
}

struct compare {
    const uint32_t *a, *b;
    size_t n;
    unsigned long long *n_different;
};

static __global__ void brim_test_compare(compare c)
{
    unsigned long long n = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < c.n;
         i += (size_t)gridDim.x * blockDim.x)
        n += c.a[i] != c.b[i];
    if (n) atomicAdd(c.n_different, n);
}

/* Threads for n elements. */
static brim_launch_shape element_shape(size_t n)
{
    brim_launch_shape shape = {};
    shape.grid = dim3((unsigned)(n / 2048 < 527 ? n / 2048 + 1 : 528));
    shape.block = dim3(256);
    return shape;
}

/* Adds the number of words that differ to *n_different. */
static void count_different(const void *a, const void *b, size_t n, unsigned long long *n_different)
{
    compare c = {(const uint32_t *)a, (const uint32_t *)b, n, n_different};
    brim_error err;
    if (BRIM_LAUNCH(brim_test_compare, element_shape(n), 0, c, &err) != BRIM_OK) {
        printf("%s\n", err.text);
        exit(2);
    }
}

static void fill(void *to, size_t n, unsigned seed, float scale)
{
    noise f = {(uint16_t *)to, n, seed, scale};
    brim_error err;
    if (BRIM_LAUNCH(brim_test_fill, element_shape(n), 0, f, &err) != BRIM_OK) {
        printf("%s\n", err.text);
        exit(2);
    }
}

/* Inputs of up to n_tok rows and n_head heads, two sets of outputs: m128's and the route's. */
struct problem {
    int64_t n_tok, n_head, n_seq;
    void *q, *k, *v, *g, *beta, *state, *a_log, *bias;
    char *out[2], *final[2], *check[2];
    void *workspace;
    size_t workspace_bytes;
    unsigned long long *n_different;
};

static void problem_make(problem *x, int64_t n_tok, int64_t n_head, int64_t n_seq)
{
    size_t n = (size_t)(n_tok * n_head * 128), n_state = (size_t)(n_seq * n_head) * 16384;
    memset(x, 0, sizeof *x);
    x->n_tok = n_tok, x->n_head = n_head, x->n_seq = n_seq;
    void **rows[] = {&x->q, &x->k, &x->v, &x->g};
    for (int i = 0; i < 4; i++) {
        *rows[i] = device_alloc(n * 2);
        fill(*rows[i], n, 11u + (unsigned)i, 1);
    }
    x->beta = device_alloc((size_t)(n_tok * n_head) * 2);
    fill(x->beta, (size_t)(n_tok * n_head), 21, 1);
    x->state = device_alloc(n_state * 2); /* bf16 */
    fill(x->state, n_state, 22, 0.3f);
    x->a_log = device_alloc((size_t)n_head * 4);
    x->bias = device_alloc((size_t)n_head * 512);
    CUDA_OK(cudaMemset(x->a_log, 0, (size_t)n_head * 4));
    CUDA_OK(cudaMemset(x->bias, 0, (size_t)n_head * 512));
    for (int i = 0; i < 2; i++) {
        x->out[i] = (char *)device_alloc(n * 2);
        x->final[i] = (char *)device_alloc(n_state * 2);
        x->check[i] = (char *)device_alloc((size_t)(n_tok / 64 + 1) * (size_t)n_head * 32768);
    }
    x->workspace_bytes = brim_kda_route_workspace(
        BRIM_KDA_ROUTE_C8_M128, n_seq * n_head <= BRIM_KDA_MAX_TASK ? n_seq * n_head : 0);
    x->workspace_bytes += 1 << 16;
    x->workspace = device_alloc(x->workspace_bytes);
    CUDA_OK(cudaMemset(x->workspace, 0xFF, x->workspace_bytes)); /* packets are NaN */
    brim_error err;
    if (brim_kda_workspace_init(BRIM_KERNEL_CUDA, x->workspace, x->workspace_bytes, NULL, &err))
        printf("%s\n", err.text);
    x->n_different = (unsigned long long *)device_alloc(8);
}

static void problem_free(problem *x)
{
    void *blocks[] = {x->q,        x->k,        x->v,         x->g,
                      x->beta,     x->state,    x->a_log,     x->bias,
                      x->out[0],   x->out[1],   x->final[0],  x->final[1],
                      x->check[0], x->check[1], x->workspace, x->n_different};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) CUDA_OK(cudaFree(blocks[i]));
}

/* A batch of n_seq sequences of n_tok tokens each, on output set `which`. */
static brim_kda_args problem_args(const problem *x, int64_t n_tok, int which)
{
    brim_kda_args a;
    brim_kda_args_init(&a);
    a.device = BRIM_KERNEL_CUDA;
    a.n_seq = x->n_seq, a.n_tok = n_tok;
    a.n_head = a.n_value_head = x->n_head;
    a.q = x->q, a.k = x->k, a.v = x->v, a.g = x->g, a.beta = x->beta;
    brim_kda_stride stride = {n_tok * x->n_head * 128, x->n_head * 128, 128};
    a.q_stride = a.k_stride = a.v_stride = a.g_stride = a.out_stride = stride;
    a.beta_stride = {n_tok * x->n_head, x->n_head, 1};
    a.g_dtype = a.beta_dtype = BRIM_KERNEL_BF16;
    a.gate = BRIM_KDA_GATE_LOWER_BOUND;
    a.lower_bound = -5;
    a.a_log = (const float *)x->a_log, a.dt_bias = (const float *)x->bias;
    a.flags = BRIM_KDA_L2NORM | BRIM_KDA_BETA_LOGIT;
    a.state_dtype = BRIM_KERNEL_BF16;
    a.state_stride = x->n_head * 16384;
    a.initial_state = x->state;
    a.out = x->out[which], a.final_state = x->final[which], a.checkpoints = x->check[which];
    a.workspace = x->workspace, a.workspace_bytes = x->workspace_bytes;
    return a;
}

static int64_t rows_of(const brim_kda_args *a)
{
    return a->cu_seqlens ? a->n_tok : a->n_seq * a->n_tok;
}

/* Checkpoints of all sequences; of packed ones at least as many as there are places. */
static int64_t checkpoints_of(const brim_kda_args *a)
{
    return a->cu_seqlens ? a->n_tok / 64 : a->n_seq * (a->n_tok / 64);
}

static void poison(const brim_kda_args *a)
{
    size_t n = (size_t)(rows_of(a) * a->n_head) * 256;
    cudaStream_t stream = (cudaStream_t)a->stream;
    CUDA_OK(cudaMemsetAsync(a->out, 0xFF, n, stream));
    CUDA_OK(cudaMemsetAsync(a->final_state, 0xFF, (size_t)(a->n_seq * a->n_head) * 32768, stream));
    if (a->checkpoints)
        CUDA_OK(cudaMemsetAsync(a->checkpoints, 0xFF,
                                (size_t)(checkpoints_of(a) * a->n_head) * 32768, stream));
}

static void same(const problem *x, const brim_kda_args *a, const char *what, const char *route)
{
    size_t n_out = (size_t)(rows_of(a) * a->n_head) * 64,
           n_state = (size_t)(a->n_seq * a->n_head) * 8192,
           n_check_point = (size_t)(checkpoints_of(a) * a->n_head) * 8192;
    unsigned long long n = 0;
    CUDA_OK(cudaMemset(x->n_different, 0, 8));
    const char *const *sets[] = {x->out, x->final, x->check};
    size_t counts[] = {n_out, n_state, a->checkpoints ? n_check_point : 0};
    for (int i = 0; i < 3; i++)
        if (counts[i]) count_different(sets[i][0], sets[i][1], counts[i], x->n_different);
    CUDA_OK(cudaMemcpy(&n, x->n_different, 8, cudaMemcpyDeviceToHost));
    n_check++;
    if (n == 0) return;
    n_fail++;
    printf("FAIL %s, %lld x %lld tokens x %lld heads, %s: %llu words differ\n", what,
           (long long)a->n_seq, (long long)a->n_tok, (long long)a->n_head, route, n);
}

#endif
