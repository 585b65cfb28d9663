/* SPDX-License-Identifier: Apache-2.0
 * Routes split and split-join with everybody late, at random: preparation, consumers, whole CTAs of
 * segments (so that any of a task's may be the last to settle), the launches behind them. The bits
 * are those of the product's kernels without delays, over tasks whose cuts hold, that fail in their
 * middle, at an odd and at an even chunk, and that fail everywhere. Also every serial route behind
 * segments, and m128 late by itself.
 *     check_kda_late [short]
 * The delayed kernels are the product's sources compiled here once more with KDA_HOOK defined. Exit
 * status 1 on any difference. */
#include <string.h>
#include <time.h>

#include "cuda_ok.h"
#include "cuda/ptx/math.cuh"

/* Who is late, and the seed: a fourth of the visits, warps by up to 4 us, CTAs by up to 33. */
enum { LATE_PREPARATION = 1, LATE_CONSUMER = 2, LATE_CTA = 4, LATE_BEHIND = 8 };
__device__ unsigned late_who, late_seed;

static __device__ __forceinline__ void late_here(unsigned who, int point, int chunk, bool whole_cta)
{
    if (!(late_who & who)) return;
    unsigned party = whole_cta ? 99 : threadIdx.x >> 5;
    unsigned h = late_seed + point * 977u + chunk * 131071u + blockIdx.x * 65599u + party * 8191u;
    h = (h ^ h >> 15) * 2246822519u;
    h = (h ^ h >> 13) * 3266489917u;
    h ^= h >> 16;
    if ((h & 3) == 0) sleep_ns(h >> (whole_cta ? 17 : 20));
}
#define KDA_HOOK(p, point, chunk)                                                           \
    late_here(point == KDA_AT_FIRST || point == KDA_AT_PACKET || point == KDA_AT_EPOCH ||   \
                      point == KDA_AT_PUBLISH                                               \
                  ? LATE_PREPARATION                                                        \
              : point == KDA_AT_START || point == KDA_AT_READY || point == KDA_AT_SETTLED   \
                  ? LATE_CTA                                                                \
              : point == KDA_AT_BEHIND || point == KDA_AT_WAITED || point == KDA_AT_VERDICT \
                  ? LATE_BEHIND                                                             \
                  : LATE_CONSUMER,                                                          \
              point, chunk, point == KDA_AT_START || point == KDA_AT_BEHIND)
#define brim_kda_launch_m128 late_launch_m128
#define brim_kda_launch_pair late_launch_pair
#define brim_kda_launch_c6_m64 late_launch_c6_m64
#define brim_kda_launch_split late_launch_split
#define brim_kda_launch_map late_launch_map
#define brim_kda_launch_join late_launch_join
#define brim_kda_launch_out late_launch_out
#define brim_kda_cuda_processors late_processors
#define brim_kda_cuda_supported late_supported
#define brim_kda_cuda_load late_load
#define brim_kda_cuda_launch late_launch
#define brim_kda_cuda_workspace_init late_workspace_init
#include "cuda/kda/c6_m64.cu"
#include "cuda/kda/kda.cu"
#include "cuda/kda/map.cu"
#include "cuda/kda/out.cu"
#include "cuda/kda/pair.cu"
#include "cuda/kda/split.cu"
/* three kernels' constants in one file */
#define N_STAGE M128_N_STAGE
#define N_INSTANCE M128_N_INSTANCE
#define N_THREAD M128_N_THREAD
#define AT_WORK M128_AT_WORK
#define AT_BARRIER M128_AT_BARRIER
#define SMEM_BYTES M128_SMEM_BYTES
#include "cuda/kda/m128.cu"
#undef N_THREAD
#undef SMEM_BYTES
#define N_THREAD JOIN_N_THREAD
#define SMEM_BYTES JOIN_SMEM_BYTES
#include "cuda/kda/join.cu"
#undef brim_kda_cuda_launch

#include "kda_problem.cuh"

extern "C" brim_status brim_kda_cuda_launch(const brim_kda_args *args, enum brim_kda_route route,
                                            const struct brim_kda_split_plan *split,
                                            brim_error *err);

enum { HEADS = 3, N_SEQ = 6, MAX_TOK = 1500, WORKSPACE = 96 << 20 };
static const int64_t lengths[N_SEQ] = {64, 0, 33, 700, 1, 300}; /* of a packed call */
/* segments, windows, first segments (0: as all others) */
static const int cuts[][3] = {{2, 1, 0}, {3, 1, 7}, {3, 2, 0}, {5, 1, 6}};

static problem x;
static int32_t *offsets;

/* Gates of head 0 are normal, head 1's but for two stretches without decay, head 2's never decay.
 */
static void make_gates(void)
{
    static const int64_t stretches[][3] = {{1, 330, 480}, {1, 900, 1010}, {2, 0, MAX_TOK}};
    static uint16_t none[MAX_TOK * 128];
    for (int i = 0; i < MAX_TOK * 128; i++) none[i] = 0xC220; /* -40, before the sigmoid */
    for (int i = 0; i < 3; i++) {
        const int64_t *s = stretches[i];
        char *to = (char *)x.g + (s[1] * HEADS + s[0]) * 256;
        CUDA_OK(cudaMemcpy2D(to, HEADS * 256, none, 256, 256, (size_t)(s[2] - s[1]),
                             cudaMemcpyHostToDevice));
    }
}

/* Head 1's initial states are so large that they show in whatever begins with one behind its
 * sequence's start, and are forgotten in time: that of the first sequence, alone under softplus
 * too, 2^40 times as large, those of the packed ones behind it 2^80 times. */
static void make_states(void)
{
    static uint16_t state[16384];
    for (int i = 0; i < N_SEQ; i++) {
        char *at = (char *)x.state + (size_t)(i * HEADS + 1) * sizeof state;
        CUDA_OK(cudaMemcpy(state, at, sizeof state, cudaMemcpyDeviceToHost));
        for (int k = 0; k < 16384; k++)
            if (state[k] << 1 & 0xFFFF) state[k] += (i == 0 ? 40 : 80) << 7; /* bf16 */
        CUDA_OK(cudaMemcpy(at, state, sizeof state, cudaMemcpyHostToDevice));
    }
}

static void make(void)
{
    int32_t host[N_SEQ + 1] = {0};
    brim_error err;
    problem_make(&x, MAX_TOK, HEADS, N_SEQ);
    CUDA_OK(cudaFree(x.workspace));
    x.workspace_bytes = WORKSPACE;
    x.workspace = device_alloc(WORKSPACE);
    if (brim_kda_workspace_init(BRIM_KERNEL_CUDA, x.workspace, WORKSPACE, NULL, &err)) exit(2);
    make_gates();
    make_states();
    for (int i = 0; i < N_SEQ; i++) host[i + 1] = host[i] + (int32_t)lengths[i];
    offsets = (int32_t *)device_alloc(sizeof host);
    CUDA_OK(cudaMemcpy(offsets, host, sizeof host, cudaMemcpyHostToDevice));
}

/* One shape of a call. */
struct call {
    bool packed, in_place, softplus;
    int64_t n_tok;
    int length, window, first;
};

static brim_kda_args args_of(const call *c, int which, const char *route)
{
    x.n_seq = c->packed ? N_SEQ : 1;
    brim_kda_args a = problem_args(&x, c->n_tok, which);
    if (c->packed) a.cu_seqlens = offsets, a.offset_bytes = 4, a.max_tok = 700, a.n_tok = 1150;
    if (c->softplus) a.gate = BRIM_KDA_GATE_SOFTPLUS, a.lower_bound = 0;
    a.route = route;
    if (strncmp(route, "split", 5) == 0)
        a.split_length = c->length, a.split_window = c->window, a.split_first = c->first;
    if (c->in_place) a.initial_state = a.final_state;
    return a;
}

/* The product's choice of a serial route where `behind` is none. */
enum { AS_PLANNED = -1 };

/* Over outputs and, but for the control words, a workspace of NaN. late: the delayed kernels. */
static bool go(const brim_kda_args *a, bool late, int behind, const char *what)
{
    struct brim_kda_schedule schedule;
    brim_kda_plan plan;
    brim_error err;
    size_t control = (size_t)BRIM_KDA_MAX_TASK * KDA_CONTROL_BYTES;
    CUDA_OK(cudaMemsetAsync((char *)a->workspace + control, 0xFF, WORKSPACE - control, 0));
    poison(a);
    if (a->initial_state == a->final_state)
        CUDA_OK(cudaMemcpyAsync(a->final_state, x.state,
                                (size_t)(a->n_seq * a->n_value_head) * 32768,
                                cudaMemcpyDeviceToDevice, 0));
    brim_status status = brim_kda_schedule_make(a, 132, &schedule, &plan, &err);
    if (status == BRIM_OK) {
        enum brim_kda_route route =
            behind == AS_PLANNED ? schedule.route : (enum brim_kda_route)behind;
        const struct brim_kda_split_plan *split = schedule.split.length ? &schedule.split : NULL;
        status =
            late ? late_launch(a, route, split, &err) : brim_kda_cuda_launch(a, route, split, &err);
    }
    n_check++;
    if (status != BRIM_OK) {
        n_fail++;
        printf("FAIL %s, %s: %s\n", what, a->route, err.text);
        return false;
    }
    /* long beside a few milliseconds of delays, because a GPU may be shared */
    for (int i = 0; i < 20000 && cudaStreamQuery(0) == cudaErrorNotReady; i++) {
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
    }
    if (cudaStreamQuery(0) == cudaErrorNotReady) {
        printf("FAIL %s: %s stands still\n", what, a->route);
        fflush(stdout);
        _Exit(1);
    }
    CUDA_OK(cudaDeviceSynchronize());
    return true;
}

/* What the last call kept of each task: KDA_CUT_KEEP. */
static void verdicts(int n_task, uint32_t *keep)
{
    const char *words = (const char *)x.workspace + KDA_DROP_LINE * KDA_LINE + 4 * KDA_CUT_KEEP;
    CUDA_OK(
        cudaMemcpy2D(keep, 4, words, KDA_CONTROL_BYTES, 4, (size_t)n_task, cudaMemcpyDeviceToHost));
}

static void expect(bool ok, const char *what, const call *c)
{
    n_check++;
    if (ok) return;
    n_fail++;
    printf("FAIL %s: %s, %lld tokens, segments of %d, windows of %d\n", what,
           c->packed ? "packed" : "one sequence", (long long)c->n_tok, c->length, c->window);
}

static call call_of(unsigned round)
{
    call c;
    c.packed = round % 2 == 1;
    c.in_place = round % 4 >= 2;
    c.softplus = round % 8 >= 4 && !c.packed;
    c.n_tok = c.packed ? 1150 : 1100 + (int64_t)(round * 677 % 400);
    const int *lengths_of = cuts[round / 2 % 4];
    c.length = lengths_of[0], c.window = lengths_of[1], c.first = lengths_of[2];
    return c;
}

/* The product's kernels: one head's cuts hold, one's fail in the middle, one's all; what goes on
 * behind them has the same bits on every route. Then everybody late. */
static void check_call(unsigned round, unsigned n_seed)
{
    static const unsigned who[] = {
        LATE_PREPARATION, LATE_CONSUMER,          LATE_PREPARATION | LATE_CONSUMER,
        LATE_CTA,         LATE_CTA | LATE_BEHIND, 15};
    static const int late_behind[] = {BRIM_KDA_ROUTE_C6_M64, BRIM_KDA_ROUTE_PAIR,
                                      BRIM_KDA_ROUTE_M128};
    call c = call_of(round);
    uint32_t keep[N_SEQ * HEADS], now[N_SEQ * HEADS];
    brim_kda_args first = args_of(&c, 0, "split"), a = args_of(&c, 1, "split");
    int n_task = (int)(a.n_seq * HEADS), long_task = c.packed ? 3 * HEADS : 0;
    if (!go(&first, false, AS_PLANNED, "split")) return;
    verdicts(n_task, keep);
    expect(keep[long_task] == KDA_KEEP_ALL, "head 0 was not cut", &c);
    expect(keep[long_task + 1] > KDA_KEEP_ALL, "head 1 was not cut in its middle", &c);
    expect(keep[long_task + 2] == 0, "head 2 was cut", &c);
    for (int r = 0; r < BRIM_KDA_ROUTE_N; r++)
        if (brim_kda_routes[r].behind && go(&a, false, r, "behind segments"))
            same(&x, &a, "behind segments", brim_kda_routes[r].name);
    for (unsigned i = 0; i < 6 * n_seed; i++) {
        unsigned seed = round * 64 + i;
        CUDA_OK(cudaMemcpyToSymbol(late_who, &who[i % 6], sizeof(unsigned)));
        CUDA_OK(cudaMemcpyToSymbol(late_seed, &seed, sizeof seed));
        if (!go(&a, true, late_behind[i % 3], "late")) continue;
        same(&x, &a, "late", "split");
        verdicts(n_task, now);
        expect(!memcmp(keep, now, (size_t)n_task * 4), "other verdicts when late", &c);
    }
    static const char *const others[] = {"split-join", "m128"};
    for (int k = 0; k < 3; k++) { /* joined with windows, without, and a serial route */
        first = args_of(&c, 0, others[k / 2]), a = args_of(&c, 1, others[k / 2]);
        first.split_exact = a.split_exact = k == 1;
        if (!go(&first, false, AS_PLANNED, others[k / 2])) continue;
        for (unsigned i = 0; i < 6 * n_seed; i++) {
            unsigned seed = round * 64 + i;
            CUDA_OK(cudaMemcpyToSymbol(late_who, &who[i % 6], sizeof(unsigned)));
            CUDA_OK(cudaMemcpyToSymbol(late_seed, &seed, sizeof seed));
            if (go(&a, true, AS_PLANNED, "late")) same(&x, &a, "late", others[k / 2]);
        }
    }
}

int main(int argc, char **argv)
{
    bool brief = argc > 1 && !strcmp(argv[1], "short");
    int n_device;
    if (cudaGetDeviceCount(&n_device) != cudaSuccess || n_device == 0) {
        printf("SKIP: no CUDA device\n");
        return 77;
    }
    make();
    for (unsigned round = 0; round < (brief ? 1u : 12u); round++)
        check_call(brief ? 3 : round, brief ? 1 : 3); /* 216 repeats of each */
    problem_free(&x);
    CUDA_OK(cudaFree(offsets));
    printf("late: %d checks, %d failed\n", n_check, n_fail);
    return n_fail != 0;
}
