/* SPDX-License-Identifier: Apache-2.0
 * Every KDA route against m128, bit for bit, on inputs made on the GPU: lengths, ring edges, delays
 * injected into helpers and owners, workspaces left by other routes and shapes, two streams,
 * packed mixes with and without a bound on the gate, 200 repeats of 64 heads, offsets beyond 2^31
 * elements. (m128 itself is held against fp64 by check_kda.) check_kda_routes [equal] [packed]
 * [delay] [streams] [big] [tiny] [queue] [repeat] [short] [only ROUTE]. The delayed kernels are the
 * product's sources compiled here once more with KDA_HOOK defined. Exit status 1 on any difference.
 */
#include <string.h>
#include <time.h>

#include "cuda_ok.h"
#include "cuda/ptx/math.cuh"

/* Who is delayed, and the seed; a fourth of the visits, up to 4 us each. */
enum { DELAY_HELPER = 1, DELAY_OWNER_0 = 2, DELAY_OWNER_1 = 4 };
__device__ unsigned delay_who, delay_seed;
/* Where each warp of the first CTAs was last seen: 1 + point, chunk. */
enum { SEEN_CTAS = 16, SEEN_WARPS = 16 };
__device__ unsigned last_seen[SEEN_CTAS][SEEN_WARPS];

static __device__ __forceinline__ void delay_here(int point, int chunk, bool helper)
{
    unsigned rank = cluster_ctarank();
    if (blockIdx.x < SEEN_CTAS)
        *(volatile unsigned *)&last_seen[blockIdx.x][threadIdx.x >> 5] =
            (1u + (unsigned)point) << 16 | (unsigned)chunk;
    unsigned who = helper ? DELAY_HELPER : rank == 0 ? DELAY_OWNER_0 : DELAY_OWNER_1;
    if (!(delay_who & who)) return;
    unsigned party = threadIdx.x >> (point == 0 ? 7 : 5); /* a warpgroup; a warp */
    unsigned h = delay_seed + point * 977u + chunk * 131071u + rank * 65599u + blockIdx.x * 31u +
                 party * 8191u;
    h = (h ^ h >> 15) * 2246822519u;
    h = (h ^ h >> 13) * 3266489917u;
    h ^= h >> 16;
    if ((h & 3) == 0) sleep_ns(h >> 20);
}
#define KDA_HOOK(p, point, chunk)                                                          \
    delay_here(point, chunk,                                                               \
               point == KDA_AT_FIRST || point == KDA_AT_PACKET || point == KDA_AT_EPOCH || \
                   point == KDA_AT_PUBLISH)
#define brim_kda_launch_m64 delayed_launch_m64
#define brim_kda_launch_pair delayed_launch_pair
#define brim_kda_launch_queue delayed_launch_queue
#define brim_kda_launch_c4_m128 delayed_launch_c4_m128
#define brim_kda_launch_c4_m64 delayed_launch_c4_m64
#define brim_kda_launch_c5_m64 delayed_launch_c5_m64
#define brim_kda_launch_c6_m64 delayed_launch_c6_m64
#define brim_kda_launch_c8_m128 delayed_launch_c8_m128
#define brim_kda_cuda_processors delayed_processors
#define brim_kda_cuda_supported delayed_supported
#define brim_kda_cuda_load delayed_load
#define brim_kda_cuda_launch delayed_launch
#define brim_kda_cuda_workspace_init delayed_workspace_init
#include "cuda/kda/c4_m128.cu"
#include "cuda/kda/c4_m64.cu"
#include "cuda/kda/c5_m64.cu"
#include "cuda/kda/c6_m64.cu"
#include "cuda/kda/c8_m128.cu"
#include "cuda/kda/kda.cu"
#include "cuda/kda/m64.cu"
#include "cuda/kda/pair.cu"
#undef brim_kda_cuda_launch
#undef brim_kda_cuda_processors

/* CTAs of the delayed queue. */
static int64_t n_processor = 1;

static brim_status few_processors(int64_t *n, brim_error *err)
{
    (void)err;
    *n = n_processor;
    return BRIM_OK;
}
#define brim_kda_cuda_processors few_processors
#include "cuda/kda/queue.cu"
#undef brim_kda_cuda_processors

#include "kda_problem.cuh"

static const char *only; /* the one route to be run, or all */

/* Run a route into set 1; delayed: its kernel with delays. */
static bool launch(brim_kda_args a, enum brim_kda_route route, bool delayed, const char *what)
{
    brim_error err;
    a.route = brim_kda_routes[route].name;
    poison(&a);
    brim_status status =
        delayed ? delayed_launch(&a, route, NULL, &err) : brim_kda_prefill(&a, &err);
    if (status == BRIM_OK) return true;
    n_check++, n_fail++;
    printf("FAIL %s %s: %s\n", what, a.route, err.text);
    return false;
}

static void yardstick(const problem *x, int64_t n_tok)
{
    brim_kda_args a = problem_args(x, n_tok, 0);
    if (!launch(a, BRIM_KDA_ROUTE_M128, false, "yardstick")) exit(2);
}

/* `a` on output set 0 by m128, on set 1 by the others. */
static void all_routes_on(const problem *x, brim_kda_args a, const char *what)
{
    if (!launch(a, BRIM_KDA_ROUTE_M128, false, what)) exit(2);
    a.out = x->out[1], a.final_state = x->final[1], a.checkpoints = x->check[1];
    for (int r = BRIM_KDA_ROUTE_M64; r < BRIM_KDA_ROUTE_N; r++) {
        if (only && strcmp(only, brim_kda_routes[r].name)) continue;
        if (launch(a, (enum brim_kda_route)r, false, what))
            same(x, &a, what, brim_kda_routes[r].name);
    }
}

static void all_routes(const problem *x, int64_t n_tok, const char *what)
{
    all_routes_on(x, problem_args(x, n_tok, 0), what);
}

/* Chunks at the edges of every ring, the last one cut. */
static const int depths[] = {10, 15, 20, 35};

static void check_equal(bool brief)
{
    problem x;
    problem_make(&x, 353 * 32, 2, 1);
    for (int t = 1; t <= 129; t += brief ? 31 : 1) all_routes(&x, t, "length");
    for (size_t i = 0; i < (brief ? 1 : 4); i++) {
        int d = depths[i], chunks[] = {d - 1, d, d + 1, brief ? 2 * d + 3 : 10 * d + 3};
        for (int j = 0; j < 4; j++) all_routes(&x, chunks[j] * 32 - (j & 1 ? 0 : 7), "ring edge");
    }
    problem_free(&x);
}

/* Many heads at once, again and again; m128 too. */
static void check_repeat(bool brief)
{
    problem x;
    int64_t n_tok = brief ? 70 : 400;
    problem_make(&x, n_tok, brief ? 3 : 64, 1);
    yardstick(&x, n_tok);
    for (int r = BRIM_KDA_ROUTE_M128; r < BRIM_KDA_ROUTE_N; r++) {
        if (only && strcmp(only, brim_kda_routes[r].name)) continue;
        brim_kda_args a = problem_args(&x, n_tok, 1);
        for (int i = 0; i < (brief ? 2 : 200); i++)
            if (launch(a, (enum brim_kda_route)r, false, "repeat"))
                same(&x, &a, "repeat", brim_kda_routes[r].name);
    }
    problem_free(&x);
}

/* Packed sequences, empty ones between them and rows behind the last, under both kinds of gate. */
static void check_packed(bool brief)
{
    enum { MAX_SEQ = 12, TAIL = 45 };
    static const int mixes[][MAX_SEQ + 1] = {
        {8, 1, 0, 33, 64, 129, 0, 97, 32},
        {12, 31, 160, 0, 0, 95, 128, 2, 65, 96, 257, 127, 0},
        {5, 547, 0, 1300, 271, 963},
    };
    int32_t *offsets = (int32_t *)device_alloc((MAX_SEQ + 1) * 4);
    problem x;
    problem_make(&x, 3081 + TAIL, 3, MAX_SEQ);
    for (int m = 0; m < (brief ? 1 : 3); m++) {
        int32_t host[MAX_SEQ + 1] = {0};
        int n = mixes[m][0];
        for (int i = 0; i < n; i++) host[i + 1] = host[i] + mixes[m][i + 1];
        CUDA_OK(cudaMemcpy(offsets, host, sizeof host, cudaMemcpyHostToDevice));
        for (int free = 0; free < 2; free++) {
            brim_kda_args a = problem_args(&x, host[n] + TAIL, 0);
            a.n_seq = n, a.cu_seqlens = offsets, a.offset_bytes = 4,
            a.max_tok = host[n] < 1300 ? host[n] : 1300;
            if (free) a.gate = BRIM_KDA_GATE_SOFTPLUS, a.lower_bound = 0;
            all_routes_on(&x, a, free ? "packed, softplus" : "packed");
        }
    }
    problem_free(&x);
    CUDA_OK(cudaFree(offsets));
}

/* Each warp of the first CTAs, where it was last seen, while the kernel stands. */
static void print_warps(cudaStream_t other)
{
    static const char *const points[] = {"chunk",   "first", "packet", "epoch",
                                         "publish", "load",  "ack",    "end"};
    static unsigned seen[SEEN_CTAS][SEEN_WARPS];
    void *at;
    CUDA_OK(cudaGetSymbolAddress(&at, last_seen));
    CUDA_OK(cudaMemcpyAsync(seen, at, sizeof seen, cudaMemcpyDeviceToHost, other));
    CUDA_OK(cudaStreamSynchronize(other));
    for (int cta = 0; cta < SEEN_CTAS; cta++) {
        printf("CTA %d:", cta);
        for (int warp = 0; warp < SEEN_WARPS; warp++)
            if (seen[cta][warp])
                printf(" %d %s %u;", warp, points[(seen[cta][warp] >> 16) - 1],
                       seen[cta][warp] & 0xFFFF);
        printf("\n");
    }
}

/* The control words of the first two tasks while the kernel stands: the epoch, which this launch
 * has raised, then each slot's generation relative to it, and bits. */
static void print_words(const brim_kda_args *a)
{
    static uint32_t words[2 * KDA_CONTROL_BYTES / 4];
    cudaStream_t other;
    CUDA_OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CUDA_OK(cudaMemcpyAsync(words, a->workspace, sizeof words, cudaMemcpyDeviceToHost, other));
    CUDA_OK(cudaStreamSynchronize(other));
    for (int task = 0; task < 2; task++) {
        const uint32_t *line = words + task * (KDA_CONTROL_BYTES / 4);
        printf("task %d: epoch %u:", task, line[0]);
        for (int slot = 0; slot < KDA_MAX_DEPTH; slot++) {
            uint32_t word = line[(1 + slot) * (KDA_LINE / 4)];
            printf(" %d.%u", (int)(word >> 3) - (int)line[0], word & 7);
        }
        printf("\n");
    }
    print_warps(other);
}

/* The kernel just launched ends within twenty seconds, or the program does: long beside a few
 * milliseconds of delays, because a GPU may be shared. */
static void must_end(const brim_kda_args *a, const char *what, const char *route, unsigned who)
{
    for (int i = 0; i < 20000 && cudaStreamQuery(0) == cudaErrorNotReady; i++) {
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
    }
    if (cudaStreamQuery(0) != cudaErrorNotReady) return;
    printf("FAIL %s: %s stands still at %lld tokens, late: %u\n", what, route, (long long)a->n_tok,
           who);
    print_words(a);
    fflush(stdout);
    _Exit(1);
}

/* Route queue: more sequences than m128 sorts, empty ones among them, a few that are far longer;
 * the product's kernel, then the delayed one in as many CTAs as stated. */
static void check_queue(bool brief)
{
    enum { N_SEQ = 45, HEADS = 3 };
    static const int n_cta[] = {1, 2, 5, 31};
    int32_t *offsets = (int32_t *)device_alloc((N_SEQ + 1) * 4), host[N_SEQ + 1] = {0};
    for (int i = 0; i < N_SEQ; i++) {
        int length = i % 9 == 4 ? 0 : i % 11 == 3 ? 500 + 13 * i : (i * 37 + 5) % 83;
        host[i + 1] = host[i] + length;
    }
    problem x;
    problem_make(&x, host[N_SEQ] + 20, HEADS, N_SEQ);
    CUDA_OK(cudaMemcpy(offsets, host, sizeof host, cudaMemcpyHostToDevice));
    brim_kda_args a = problem_args(&x, host[N_SEQ] + 20, 0);
    a.cu_seqlens = offsets, a.offset_bytes = 4, a.max_tok = host[N_SEQ];
    if (!launch(a, BRIM_KDA_ROUTE_M128, false, "queue")) exit(2);
    a.out = x.out[1], a.final_state = x.final[1], a.checkpoints = x.check[1];
    for (int round = 0; round < (brief ? 1 : 10); round++) {
        unsigned none = 0, seed = (unsigned)round;
        CUDA_OK(cudaMemcpyToSymbol(delay_who, &none, sizeof none));
        if (launch(a, BRIM_KDA_ROUTE_QUEUE, false, "queue")) same(&x, &a, "queue", "queue");
        for (int i = 0; i < 4; i++)
            for (unsigned who = 0; who <= (DELAY_HELPER | DELAY_OWNER_0); who++) {
                if (brief && who != (unsigned)i) continue;
                n_processor = n_cta[i];
                CUDA_OK(cudaMemcpyToSymbol(delay_who, &who, sizeof who));
                CUDA_OK(cudaMemcpyToSymbol(delay_seed, &seed, sizeof seed));
                if (!launch(a, BRIM_KDA_ROUTE_QUEUE, true, "queue, few CTAs")) continue;
                must_end(&a, "queue, few CTAs", "queue", who);
                same(&x, &a, "queue, few CTAs", "queue");
            }
    }
    n_processor = 1;
    problem_free(&x);
    CUDA_OK(cudaFree(offsets));
}

static void check_tiny(void)
{
    problem x;
    problem_make(&x, 100, 1, 1);
    all_routes(&x, 40, "tiny");
    all_routes(&x, 100, "tiny");
    problem_free(&x);
}

/* Every route with every party late, at random; one workspace, never prepared again, goes from
 * route to route and shape to shape. 200 repeats a route. */
static void check_delay(bool brief)
{
    static const unsigned who[] = {DELAY_HELPER, DELAY_OWNER_0, DELAY_OWNER_1,
                                   DELAY_OWNER_0 | DELAY_OWNER_1, 7};
    problem x;
    problem_make(&x, 2600, 2, 1);
    unsigned n_round = brief ? 2 : 40;
    for (unsigned round = 0; round < n_round; round++) {
        int64_t n_tok = 200 + (int64_t)(round * 677 % 2400);
        yardstick(&x, n_tok);
        for (int mode = 0; mode < 5; mode++) {
            unsigned seed = round * 5 + (unsigned)mode;
            CUDA_OK(cudaMemcpyToSymbol(delay_who, &who[mode], sizeof(unsigned)));
            CUDA_OK(cudaMemcpyToSymbol(delay_seed, &seed, sizeof seed));
            for (int i = 0; i < BRIM_KDA_ROUTE_N - 1; i++) {
                /* c8-m128 last: its other warps have 24 registers, which the delays may exceed */
                int r = i < BRIM_KDA_ROUTE_N - 2 ? 1 + (i + (int)seed) % (BRIM_KDA_ROUTE_N - 2)
                                                 : BRIM_KDA_ROUTE_C8_M128;
                brim_kda_args a = problem_args(&x, n_tok, 1);
                if (only && strcmp(only, brim_kda_routes[r].name)) continue;
                static const unsigned none[SEEN_CTAS][SEEN_WARPS] = {};
                CUDA_OK(cudaMemcpyToSymbol(last_seen, none, sizeof none));
                if (!launch(a, (enum brim_kda_route)r, true, "delay")) continue;
                must_end(&a, "delay", brim_kda_routes[r].name, who[mode]);
                same(&x, &a, "delay", brim_kda_routes[r].name);
            }
        }
    }
    problem_free(&x);
}

/* Two streams with a workspace each, different routes at once. */
static void check_streams(void)
{
    problem x, y;
    cudaStream_t stream[2];
    problem_make(&x, 1500, 4, 1);
    problem_make(&y, 1500, 4, 1);
    for (int i = 0; i < 2; i++)
        CUDA_OK(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
    yardstick(&x, 1500);
    yardstick(&y, 1211);
    CUDA_OK(cudaDeviceSynchronize());
    for (int round = 0; round < 2 * (BRIM_KDA_ROUTE_N - 2); round++) {
        int r = BRIM_KDA_ROUTE_PAIR + round % (BRIM_KDA_ROUTE_N - 2),
            s = BRIM_KDA_ROUTE_PAIR + round / 2 % (BRIM_KDA_ROUTE_N - 2);
        brim_kda_args a = problem_args(&x, 1500, 1), b = problem_args(&y, 1211, 1);
        a.stream = stream[0], b.stream = stream[1];
        for (int i = 0; i < 4; i++)
            if (!launch(a, (enum brim_kda_route)r, false, "streams") ||
                !launch(b, (enum brim_kda_route)s, false, "streams"))
                return;
        CUDA_OK(cudaDeviceSynchronize());
        same(&x, &a, "streams", brim_kda_routes[r].name);
        same(&y, &b, "streams", brim_kda_routes[s].name);
    }
    for (int i = 0; i < 2; i++) CUDA_OK(cudaStreamDestroy(stream[i]));
    problem_free(&x);
    problem_free(&y);
}

/* More than 2^31 elements: rows of one long sequence, then strides that leave 2^31 elements between
 * the sequences, against the same rows packed densely. (check_kda_far does so for each operand.) */
static void check_big(void)
{
    enum { HEADS = 96, LONG = 178000 }; /* 2.19e9 elements a tensor, 4.4 GB */
    problem x;
    brim_error err;
    problem_make(&x, LONG, HEADS, 1);
    CUDA_OK(cudaFree(x.workspace)); /* two sequences' tasks come below */
    x.workspace_bytes = brim_kda_route_workspace(BRIM_KDA_ROUTE_C8_M128, 2 * HEADS);
    x.workspace = device_alloc(x.workspace_bytes);
    if (brim_kda_workspace_init(BRIM_KERNEL_CUDA, x.workspace, x.workspace_bytes, NULL, &err))
        printf("%s\n", err.text);
    brim_kda_args a = problem_args(&x, LONG, 0);
    a.checkpoints = NULL;
    launch(a, BRIM_KDA_ROUTE_M128, false, "big");
    static const enum brim_kda_route routes[] = {BRIM_KDA_ROUTE_M64, BRIM_KDA_ROUTE_PAIR,
                                                 BRIM_KDA_ROUTE_C4_M128, BRIM_KDA_ROUTE_C6_M64};
    for (int i = 0; i < 4; i++) {
        a = problem_args(&x, LONG, 1);
        a.checkpoints = NULL;
        if (launch(a, routes[i], false, "big"))
            same(&x, &a, "big", brim_kda_routes[routes[i]].name);
    }
    /* The last 96 rows again, as a sequence of their own with the same initial state, once where
     * they lie and once copied to the front of other buffers. */
    problem y;
    problem_make(&y, 96, HEADS, 1);
    size_t row = (size_t)HEADS * 256, at = (size_t)(LONG - 96) * row;
    void *from[] = {x.q, x.k, x.v, x.g}, *to[] = {y.q, y.k, y.v, y.g};
    for (int i = 0; i < 4; i++)
        CUDA_OK(cudaMemcpy(to[i], (char *)from[i] + at, 96 * row, cudaMemcpyDeviceToDevice));
    CUDA_OK(
        cudaMemcpy(y.beta, (char *)x.beta + at / 128, 96 * row / 128, cudaMemcpyDeviceToDevice));
    CUDA_OK(cudaMemcpy(y.state, x.state, (size_t)HEADS * 32768, cudaMemcpyDeviceToDevice));
    yardstick(&y, 96);
    /* a batch of two whose second sequence is those rows: 2^31 elements and more apart */
    int64_t apart = (int64_t)(LONG - 96) * HEADS * 128;
    for (int r = 0; r < BRIM_KDA_ROUTE_N; r++) {
        a = problem_args(&x, 96, 1);
        a.n_seq = 2, a.checkpoints = NULL;
        a.q_stride.batch = a.k_stride.batch = a.v_stride.batch = a.g_stride.batch =
            a.out_stride.batch = apart;
        a.beta_stride.batch = apart / 128;
        a.initial_state = x.state;
        a.state_stride = HEADS * 16384;
        int32_t slots[2] = {0, 0};
        int32_t *index = (int32_t *)device_alloc(8);
        CUDA_OK(cudaMemcpy(index, slots, 8, cudaMemcpyHostToDevice));
        a.state_index = index, a.n_slot = 1, a.final_state = NULL;
        a.route = brim_kda_routes[r].name;
        CUDA_OK(cudaMemset(y.out[1], 0xFF, 96 * row));
        CUDA_OK(cudaMemset((char *)a.out + at, 0xFF, 96 * row));
        if (brim_kda_prefill(&a, &err) != BRIM_OK) {
            n_check++, n_fail++;
            printf("FAIL big %s: %s\n", a.route, err.text);
            continue;
        }
        CUDA_OK(cudaMemcpy(y.out[1], (char *)a.out + at, 96 * row, cudaMemcpyDeviceToDevice));
        CUDA_OK(cudaMemset(y.n_different, 0, 8));
        count_different(y.out[0], y.out[1], 96 * row / 4, y.n_different);
        unsigned long long n;
        CUDA_OK(cudaMemcpy(&n, y.n_different, 8, cudaMemcpyDeviceToHost));
        n_check++;
        if (n) n_fail++, printf("FAIL big, apart, %s: %llu words differ\n", a.route, n);
        CUDA_OK(cudaFree(index));
    }
    problem_free(&x);
    problem_free(&y);
}

int main(int argc, char **argv)
{
    bool brief = false, some = false;
    unsigned parts = 0;
    static const char *const names[] = {"equal", "delay",  "streams", "big",
                                        "tiny",  "packed", "queue",   "repeat"};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "short")) brief = true;
        if (!strcmp(argv[i], "only") && i + 1 < argc) only = argv[++i];
        for (int k = 0; k < 8; k++)
            if (!strcmp(argv[i], names[k])) parts |= 1u << k, some = true;
    }
    if (!some) parts = 7 | 32 | 64 | 128;
    int n_device;
    if (cudaGetDeviceCount(&n_device) != cudaSuccess || n_device == 0) {
        printf("SKIP: no CUDA device\n");
        return 77;
    }
    if (parts & 1) check_equal(brief);
    if (parts & 2) check_delay(brief);
    if (parts & 4) check_streams();
    if (parts & 8) check_big();
    if (parts & 16) check_tiny();
    if (parts & 32) check_packed(brief);
    if (parts & 64) check_queue(brief);
    if (parts & 128) check_repeat(brief);
    printf("routes: %d checks, %d failed\n", n_check, n_fail);
    return n_fail != 0;
}
