/* SPDX-License-Identifier: Apache-2.0
 * Two ways to a segment's state map from the packets of its chunks, M_c = diag(gamma) - kr^T W:
 *   columns   M as 128 more value columns, by map.cu's own code: U = -W M, M <- gamma M + kr^T U
 *   composed  P = kr^T W formed as an operand [128][128] in shared memory, then M <- gamma M - P M
 * Both read M, and U or P, as sums of two bf16 ("pairs"); composed also as single ones,
 * which the join may not do (docs/numerics.md, "Joining"). Composed by two warpgroups that form the
 * next operand between two products ("in turn"), or with a third that forms it meanwhile
 * ("beside"). K2 alone has two or three packets resident in shared memory; with K1 two instances
 * prepare every chunk. One CTA a processor. Every result is held to fp64 before anything is timed.
 *     bench_kda_compose [short]      short: the checks alone
 * CSV: microseconds at two lengths, of a chunk more, and the error against fp64. */
#include <math.h>
#include <string.h>

#include "graph_time.cuh"

#define brim_kda_launch_map bench_launch_map /* the library has it */
#include "cuda/kda/map.cu"

enum { FORM_COLUMNS, FORM_TURN, FORM_BESIDE };
enum { N_FEW = 8, N_MANY = 40 }; /* chunks */

/* An operand [128 rows][128 columns] as two bf16 matrices, firsts and rests, in panels of 64
 * columns with the 128-byte swizzle. */
enum { MAP_PANEL = 16384, MAP_PART = 2 * MAP_PANEL, MAP_OPERAND = 2 * MAP_PART };

/* Shared memory. Columns with K1: as in join.cuh. */
enum { N_STAGE = 2, AT_MAP = N_STAGE * KDA_PACKET_BYTES, AT_WORK = AT_MAP + MAP_OPERAND };
template <int form>
static constexpr int stages = form == FORM_COLUMNS ? (int)KDA_PART_STAGE : (int)N_STAGE;
enum { FRONT_BARRIER = AT_WORK + 2 * KDA_APART_BYTES, ALONE_BARRIER = AT_MAP + 2 * MAP_OPERAND };
static_assert(FRONT_BARRIER + 64 + 1024 <= 232448, "more shared memory than a block can have");
static_assert(ALONE_BARRIER + 64 + 1024 <= 232448, "more shared memory than a block can have");

enum { BAR_MULTIPLIED = 9, BAR_FORMED = 10, BAR_FREE = 12 }; /* the last two: one an operand */

struct map_args {
    kda_params p;
    char *packets; /* [head][KDA_PART_STAGE]: of the first chunks */
    float *map;    /* [head][128 columns][128 channels] */
    int n_chunk;
};

BRIM_DEVICE uint32_t smem_base(const char *raw)
{
    return (smem_u32(raw) + 1023) & ~1023u;
}

BRIM_DEVICE kda_task map_task(const map_args &a)
{
    kda_task t = kda_task_of(a.p, 0, blockIdx.x);
    t.n_chunk = a.n_chunk, t.n_tok = a.n_chunk * KDA_CHUNK;
    return t;
}

/* 64 rows of -kr^T W, n columns from `col` on: d[4 j + 2 h + e] as every accumulator. */
template <int n>
BRIM_DEVICE void form_product(float (&d)[n / 2], uint32_t packet, int half, int col, int tid)
{
    int warp = tid >> 5, lane = tid & 31;
    uint32_t k_at = packet + KDA_PACKET_KR + half * KDA_PANEL +
                    swizzle_128b((lane & 7) + ((lane >> 4) << 3), 2 * warp + ((lane >> 3) & 1));
    uint64_t w = wgmma_desc_128b(packet + KDA_PACKET_W + (col >> 6) * KDA_PANEL, KDA_PANEL, 1024);
    uint32_t a[2][4];
    ldmatrix_x4_trans(a[0], k_at);
    ldmatrix_x4_trans(a[1], k_at + 16 * 128);
    wgmma_fence();
    wgmma_m64k16<n>::template rs<0, 1>(d, a[0], w);
    wgmma_m64k16<n>::template rs<1, 1>(d, a[1], w + (2048 >> 4));
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(d);
}

template <bool pairs, int n>
BRIM_DEVICE void form_store(const float (&d)[n], uint32_t to, int half, int col, int tid)
{
    int row = half * 64 + (tid >> 5) * 16 + (tid & 15), piece = (tid & 31) >> 4;
#pragma unroll
    for (int i = 0; i < n / 8; i++) {
        int j = i + (col >> 4);
        uint32_t at = to + (j >> 2) * MAP_PANEL + swizzle_128b(row, 2 * (j & 3) + piece);
        uint32_t first[4], rest[4];
#pragma unroll
        for (int r = 0; r < 4; r++)
            kda_pack_split(first[r], rest[r], d[8 * i + 2 * r], d[8 * i + 2 * r + 1]);
        stmatrix_x4(at, first);
        if (pairs) stmatrix_x4(at + MAP_PART, rest);
    }
}

/* The operands' side of a chunk: M as it is, split, then times gamma. */
template <bool pairs>
BRIM_DEVICE void map_split(float (&s)[64], uint32_t (&first)[8][4], uint32_t (&rest)[8][4],
                           uint32_t gamma_at)
{
#pragma unroll
    for (int k = 0; k < 8; k++)
#pragma unroll
        for (int r = 0; r < 4; r++)
            kda_pack_split(first[k][r], rest[k][r], s[8 * k + 2 * r], s[8 * k + 2 * r + 1]);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float4 gamma = ld_shared_v4_f32(gamma_at ^ (i << 4));
#pragma unroll
        for (int h = 0; h < 2; h++) {
            s[8 * i + 2 * h] *= gamma.x;
            s[8 * i + 2 * h + 1] *= gamma.y;
            s[8 * i + 4 + 2 * h] *= gamma.z;
            s[8 * i + 4 + 2 * h + 1] *= gamma.w;
        }
    }
}

template <bool pairs>
BRIM_DEVICE void map_multiply(float (&s)[64], const uint32_t (&first)[8][4],
                              const uint32_t (&rest)[8][4], uint32_t operand)
{
    uint64_t desc = wgmma_desc_128b(operand, 16, 1024);
    auto step = [](int k) { return (uint64_t)((k >> 2) * (MAP_PANEL >> 4) + (k & 3) * 2); };
    wgmma_fence();
#pragma unroll
    for (int k = 0; pairs && k < 8; k++) {
        wgmma_m64k16<128>::rs<1, 0>(s, rest[k], desc + step(k));
        wgmma_m64k16<128>::rs<1, 0>(s, first[k], desc + (MAP_PART >> 4) + step(k));
    }
#pragma unroll
    for (int k = 0; k < 8; k++) wgmma_m64k16<128>::rs<1, 0>(s, first[k], desc + step(k));
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(s);
}

/* 64 value columns of M. full and empty as in advance.cuh; empty takes 8 arrivals, beside 12. */
template <int form, bool pairs>
BRIM_DEVICE void compose(int n_chunk, float *to, uint32_t base, uint32_t full, uint32_t empty,
                         int wg, int tid)
{
    int warp = tid >> 5, lane = tid & 31;
    int row = wg * 64 + warp * 16 + (lane >> 2), col = 2 * (lane & 3);
    float s[64];
#pragma unroll
    for (int i = 0; i < 64; i++)
        s[i] = row + 8 * (i >> 1 & 1) == 8 * (i >> 2) + col + (i & 1) ? 1.0f : 0.0f;
    uint32_t gamma_at = KDA_PACKET_GAMMA + kda_gamma_at(lane & 3);
#pragma unroll 1
    for (int c = 0; c < n_chunk; c++) {
        int stage = c % N_STAGE;
        uint32_t packet = base + stage * KDA_PACKET_BYTES, operand = base + AT_MAP;
        uint32_t first[8][4], rest[8][4];
        opaque(tid, base); /* addresses are formed anew: there is no register for them */
        mbarrier_wait(full + 8 * stage, c / N_STAGE & 1);
        if (form == FORM_TURN) {
            float d[32]; /* no registers for all columns at once */
            form_product<64>(d, packet, wg, 0, tid);
            named_barrier_sync(BAR_MULTIPLIED, 256); /* the operand of before has been read */
            form_store<pairs>(d, operand, wg, 0, tid);
            form_product<64>(d, packet, wg, 64, tid);
            form_store<pairs>(d, operand, wg, 64, tid);
            map_split<pairs>(s, first, rest, packet + gamma_at);
            fence_proxy_async_shared();
            named_barrier_sync(BAR_FORMED, 256);
        } else {
            operand += stage * MAP_OPERAND;
            map_split<pairs>(s, first, rest, packet + gamma_at);
            named_barrier_sync(BAR_FORMED + stage, 384);
        }
        if (lane == 0) mbarrier_arrive(empty + 8 * stage);
        map_multiply<pairs>(s, first, rest, operand);
        if (form == FORM_BESIDE && c + N_STAGE < n_chunk)
            named_barrier_arrive(BAR_FREE + stage, 384);
    }
    kda_plain_store(to, row, col, s);
}

/* Says that the resident packet of chunk c is there again, when the one before has been read. */
template <int n_stage> BRIM_DEVICE void packet_again(uint32_t full, uint32_t empty, int c)
{
    int stage = c % n_stage, use = c / n_stage;
    if (use > 0) mbarrier_wait(empty + 8 * stage, (use - 1) & 1);
    mbarrier_arrive(full + 8 * stage);
}

/* One warpgroup forms the operands of all chunks, two ahead. */
template <bool pairs>
BRIM_DEVICE void form_beside(int n_chunk, uint32_t base, uint32_t full, uint32_t empty, int tid)
{
#pragma unroll 1
    for (int c = 0; c < n_chunk; c++) {
        int stage = c % N_STAGE;
        if (tid == 0) packet_again<N_STAGE>(full, empty, c);
        uint32_t packet = base + stage * KDA_PACKET_BYTES;
        uint32_t operand = base + AT_MAP + stage * MAP_OPERAND;
        mbarrier_wait(full + 8 * stage, c / N_STAGE & 1);
#pragma unroll 1
        for (int half = 0; half < 2; half++) {
            float d[64];
            form_product<128>(d, packet, half, 0, tid);
            if (half == 0 && c >= N_STAGE) named_barrier_sync(BAR_FREE + stage, 384);
            form_store<pairs>(d, operand, half, 0, tid);
        }
        fence_proxy_async_shared();
        named_barrier_arrive(BAR_FORMED + stage, 384);
        if ((tid & 31) == 0) mbarrier_arrive(empty + 8 * stage);
    }
}

/* K1, an instance a stage: in the place that operands leave it, k and v are fetched behind the
 * solve. */
BRIM_DEVICE void compose_feed(const kda_params &p, const kda_task &t, uint32_t base, uint32_t full,
                              uint32_t empty, int tid)
{
    typedef kda_apart_of<true> layout;
    int instance = tid >> 7;
    kda_prep s;
    kda_prep_init<layout>(p, t, s, base + AT_WORK + instance * KDA_APART_BYTES, 1 + instance,
                          tid & 127, instance);
    for (int c = instance; c < t.n_chunk; c += N_STAGE) {
        kda_prepare<layout>(p, t, s, c, c + N_STAGE, base + instance * KDA_PACKET_BYTES, [&] {
            if (c >= N_STAGE) mbarrier_wait(empty + 8 * instance, (c / N_STAGE - 1) & 1);
        });
        fence_proxy_async_shared();
        mbarrier_arrive(full + 8 * instance);
        named_barrier_sync(s.bar, 128); /* k and v were read until now */
        kda_fetch_kv<layout, 128>(p, t, c + N_STAGE, s, 0, s.tid);
        cp_async_commit();
    }
    cp_async_wait<0>();
}

BRIM_DEVICE void barriers_init(uint32_t full, uint32_t empty, int n_stage, int n_full, int n_empty)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < n_stage; i++) {
            mbarrier_init(full + 8 * i, n_full);
            mbarrier_init(empty + 8 * i, n_empty);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
}

template <int form, bool pairs>
static __global__ void __launch_bounds__(KDA_PART_THREAD, 1)
    map_with_k1(const __grid_constant__ map_args a)
{
    extern __shared__ char raw[];
    constexpr bool columns = form == FORM_COLUMNS;
    constexpr int n_stage = stages<form>;
    uint32_t base = smem_base(raw);
    uint32_t full = base + (columns ? (int)KDA_PART_BARRIER : (int)FRONT_BARRIER),
             empty = full + 8 * n_stage;
    float *to = a.map + blockIdx.x * (size_t)16384;
    kda_task t = map_task(a);
    int tid = threadIdx.x;
    barriers_init(full, empty, n_stage, 128, 8);
    if (tid < 256) {
        setmaxnreg_inc<160>();
        if (columns)
            kda_carry<true>(a.p, t, false, to, base, full, empty, tid >> 7, tid & 127);
        else
            compose<FORM_TURN, pairs>(t.n_chunk, to, base, full, empty, tid >> 7, tid & 127);
    } else {
        setmaxnreg_dec<96>();
        if (columns)
            kda_part_feed<true>(a.p, t, base, full, empty, tid - 256);
        else
            compose_feed(a.p, t, base, full, empty, tid - 256);
    }
}

/* Two warpgroups and, beside, a third; else a warp whose first lane says that packets are there. */
template <int form> static constexpr int alone_threads = form == FORM_BESIDE ? 384 : 288;

template <int form, bool pairs>
static __global__ void __launch_bounds__(alone_threads<form>, 1)
    map_alone(const __grid_constant__ map_args a)
{
    extern __shared__ char raw[];
    constexpr bool columns = form == FORM_COLUMNS;
    constexpr int n_stage = stages<form>, n_thread = alone_threads<form>;
    uint32_t base = smem_base(raw);
    uint32_t full = base + ALONE_BARRIER, empty = full + 8 * n_stage;
    float *to = a.map + blockIdx.x * (size_t)16384;
    int tid = threadIdx.x;
    barriers_init(full, empty, n_stage, 1, form == FORM_BESIDE ? 12 : 8);
    const uint4 *from =
        (const uint4 *)(a.packets + blockIdx.x * (size_t)(KDA_PART_STAGE * KDA_PACKET_BYTES));
    for (int i = tid; i < n_stage * KDA_PACKET_BYTES / 16; i += n_thread)
        st_shared_v4_u32(base + 16 * i, from[i].x, from[i].y, from[i].z, from[i].w);
    fence_proxy_async_shared();
    __syncthreads();
    if (tid < 256) {
        kda_task t = {};
        t.n_chunk = a.n_chunk;
        if (columns)
            kda_carry<true>(a.p, t, false, to, base, full, empty, tid >> 7, tid & 127);
        else
            compose<form, pairs>(a.n_chunk, to, base, full, empty, tid >> 7, tid & 127);
    } else if (form == FORM_BESIDE) {
        form_beside<pairs>(a.n_chunk, base, full, empty, tid - 256);
    } else if (tid == 256) {
        for (int c = 0; c < a.n_chunk; c++) packet_again<n_stage>(full, empty, c);
    }
}

/* The packets that are resident. */
static __global__ void __launch_bounds__(128, 1) map_packets(const __grid_constant__ map_args a)
{
    extern __shared__ char raw[];
    typedef kda_full_of<true> layout;
    uint32_t base = smem_base(raw);
    kda_task t = map_task(a);
    uint4 *to = (uint4 *)(a.packets + blockIdx.x * (size_t)(KDA_PART_STAGE * KDA_PACKET_BYTES));
    kda_prep s;
    kda_prep_init<layout>(a.p, t, s, base + KDA_PACKET_BYTES, 1, threadIdx.x, 0);
    for (int c = 0; c < KDA_PART_STAGE; c++) {
        kda_prepare<layout>(a.p, t, s, c, c + 1, base, [] {});
        __syncthreads();
        for (int i = threadIdx.x; i < KDA_PACKET_USED / 16; i += 128)
            to[c * (KDA_PACKET_BYTES / 16) + i] = ld_shared_v4(base + 16 * i);
        __syncthreads();
    }
    cp_async_wait<0>();
}

/* bf16 numbers, nearly normal: [rows][heads][width]. */
static std::vector<uint16_t> noise(size_t n, unsigned seed)
{
    std::vector<uint16_t> x(n);
    for (uint16_t &to : x) {
        float sum = -2;
        for (int i = 0; i < 4; i++) {
            seed = seed * 1664525u + 1013904223u;
            sum += (float)(seed >> 8) / 16777216;
        }
        sum *= 1.732f;
        uint32_t bits;
        memcpy(&bits, &sum, 4);
        to = (uint16_t)(bits >> 16);
    }
    return x;
}

static int n_head, n_fail;
static std::vector<uint16_t> keys, gates, betas;
static std::vector<float> rate, bias;

/* By the library's fp64 recurrence: an initial state that is the identity, no values. Chunk c is
 * that of number c % period. */
static std::vector<float> reference(int head, int n_chunk, int period)
{
    size_t n_tok = (size_t)n_chunk * KDA_CHUNK;
    std::vector<uint16_t> k(n_tok * 128), g(n_tok * 128), beta(n_tok), none(n_tok * 128),
        out(n_tok * 128);
    for (size_t t = 0; t < n_tok; t++) {
        size_t from = (t % ((size_t)period * KDA_CHUNK)) * n_head + head;
        memcpy(&k[t * 128], &keys[from * 128], 256);
        memcpy(&g[t * 128], &gates[from * 128], 256);
        beta[t] = betas[from];
    }
    std::vector<float> one(16384), map(16384);
    for (int i = 0; i < 128; i++) one[i * 129] = 1;
    brim_kda_args a;
    brim_kda_args_init(&a);
    a.device = BRIM_KERNEL_CPU, a.route = "cpu-ref";
    a.n_seq = 1, a.n_tok = (int64_t)n_tok, a.n_head = a.n_value_head = 1;
    a.q = a.v = none.data(), a.k = k.data(), a.g = g.data(), a.beta = beta.data(),
    a.out = out.data();
    a.q_stride = a.k_stride = a.v_stride = a.g_stride = a.out_stride = {0, 128, 128};
    a.beta_stride = {0, 1, 1};
    a.g_dtype = a.beta_dtype = BRIM_KERNEL_BF16;
    a.gate = BRIM_KDA_GATE_LOWER_BOUND, a.lower_bound = -5;
    a.flags = BRIM_KDA_L2NORM | BRIM_KDA_BETA_LOGIT;
    a.a_log = &rate[head], a.dt_bias = &bias[(size_t)head * 128];
    a.state_dtype = BRIM_KERNEL_F32, a.state_stride = 16384;
    a.initial_state = one.data(), a.final_state = map.data();
    brim_error err = {};
    if (brim_kda_prefill(&a, &err) != BRIM_OK) printf("%s\n", err.text), exit(2);
    return map;
}

/* Root mean square of the difference over that of b, which is one head of a. */
static double apart(const std::vector<float> &a, const std::vector<float> &b, int head)
{
    double difference = 0, size = 0;
    const float *x = a.data() + (size_t)head * 16384;
    for (int i = 0; i < 16384; i++)
        difference += (x[i] - b[i]) * ((double)x[i] - b[i]), size += (double)b[i] * b[i];
    return size > 0 ? sqrt(difference / size) : INFINITY;
}

typedef brim_status launcher(const brim_launch_shape &shape, cudaStream_t stream, const map_args &a,
                             brim_error *err);

template <int form, bool pairs>
static brim_status with_k1(const brim_launch_shape &shape, cudaStream_t stream, const map_args &a,
                           brim_error *err)
{
    return BRIM_LAUNCH((map_with_k1<form, pairs>), shape, stream, a, err);
}

template <int form, bool pairs>
static brim_status alone(const brim_launch_shape &shape, cudaStream_t stream, const map_args &a,
                         brim_error *err)
{
    return BRIM_LAUNCH((map_alone<form, pairs>), shape, stream, a, err);
}

static brim_status packets(const brim_launch_shape &shape, cudaStream_t stream, const map_args &a,
                           brim_error *err)
{
    return BRIM_LAUNCH(map_packets, shape, stream, a, err);
}

static void launch(launcher *run, int n_thread, int smem, const map_args &a, cudaStream_t stream)
{
    brim_launch_shape shape = {};
    shape.grid = dim3((unsigned)n_head), shape.block = dim3((unsigned)n_thread);
    shape.smem_bytes = (unsigned)smem;
    brim_error err = {};
    if (run(shape, stream, a, &err) != BRIM_OK) printf("%s\n", err.text), exit(2);
}

enum { FRONT_SMEM = FRONT_BARRIER + 64 + 1024, ALONE_SMEM = ALONE_BARRIER + 64 + 1024 };

static const struct measured {
    const char *way, *operands, *stage;
    launcher *run;
    int n_thread, smem;
    int period; /* resident packets; 0: one a chunk */
} ways[] = {
    {"columns", "pairs", "k1+k2", with_k1<FORM_COLUMNS, true>, KDA_PART_THREAD, KDA_PART_SMEM, 0},
    {"composed in turn", "pairs", "k1+k2", with_k1<FORM_TURN, true>, KDA_PART_THREAD, FRONT_SMEM,
     0},
    {"composed in turn", "single", "k1+k2", with_k1<FORM_TURN, false>, KDA_PART_THREAD, FRONT_SMEM,
     0},
    {"columns", "pairs", "k2", alone<FORM_COLUMNS, true>, alone_threads<FORM_COLUMNS>, ALONE_SMEM,
     KDA_PART_STAGE},
    {"composed in turn", "pairs", "k2", alone<FORM_TURN, true>, alone_threads<FORM_TURN>,
     ALONE_SMEM, N_STAGE},
    {"composed in turn", "single", "k2", alone<FORM_TURN, false>, alone_threads<FORM_TURN>,
     ALONE_SMEM, N_STAGE},
    {"composed beside", "pairs", "k2", alone<FORM_BESIDE, true>, alone_threads<FORM_BESIDE>,
     ALONE_SMEM, N_STAGE},
    {"composed beside", "single", "k2", alone<FORM_BESIDE, false>, alone_threads<FORM_BESIDE>,
     ALONE_SMEM, N_STAGE},
};
enum { N_MEASURED = sizeof ways / sizeof *ways };

/* Each at `n_chunk` chunks against fp64, the worst of three heads. Composed of pairs its error may
 * be a fifth above the columns' under any packets, and from the same ones they lie within what the
 * maps' own check allows (check_kda_join.c). */
static void check(map_args a, int n_chunk, cudaStream_t stream, double (&error)[N_MEASURED])
{
    int heads[] = {0, n_head / 2, n_head - 1};
    size_t n = (size_t)n_head * 16384;
    std::vector<float> columns;
    a.n_chunk = n_chunk;
    for (int i = 0; i < N_MEASURED; i++) {
        const measured &m = ways[i];
        CHECK(cudaMemset(a.map, 0xFF, n * 4));
        launch(m.run, m.n_thread, m.smem, a, stream);
        CHECK(cudaStreamSynchronize(stream));
        std::vector<float> got(n);
        CHECK(cudaMemcpy(got.data(), a.map, n * 4, cudaMemcpyDeviceToHost));
        if (i == 0) columns = got;
        double between = 0;
        error[i] = 0;
        for (int head : heads) {
            error[i] =
                fmax(error[i],
                     apart(got, reference(head, n_chunk, m.period ? m.period : n_chunk), head));
            std::vector<float> own(columns.begin() + (size_t)head * 16384,
                                   columns.begin() + (size_t)(head + 1) * 16384);
            if (m.period == 0) between = fmax(between, apart(got, own, head));
        }
        bool pairs = !strcmp(m.operands, "pairs");
        bool good = error[i] <= (i == 0  ? 1e-2
                                 : pairs ? 1.2 * error[0]
                                         : 0.1) &&
                    (!pairs || between <= 3e-4);
        if (!good) n_fail++;
        fprintf(stderr, "%s%s, %s, %s: %.2e off fp64, %.2e off the columns\n", good ? "" : "FAIL ",
                m.way, m.operands, m.stage, error[i], between);
    }
}

int main(int argc, char **argv)
{
    bool brief = argc > 1 && !strcmp(argv[1], "short");
    int n_device, n_sm = 0;
    if (cudaGetDeviceCount(&n_device) != cudaSuccess || n_device == 0) {
        printf("SKIP: no CUDA device\n");
        return 77;
    }
    CHECK(cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, 0));
    n_head = brief ? 2 : n_sm;
    int n_check = brief ? 4 : N_FEW, n_chunk = brief ? n_check : N_MANY;
    size_t n_row = (size_t)n_chunk * KDA_CHUNK * n_head;
    keys = noise(n_row * 128, 1), gates = noise(n_row * 128, 2), betas = noise(n_row, 3);
    rate.assign((size_t)n_head, 0.0f), bias.assign((size_t)n_head * 128, -6.0f);
    device_array<uint16_t> k(keys), g(gates), beta(betas), other(noise(n_row * 128, 4));
    device_array<float> a_log(rate), dt_bias(bias), map((size_t)n_head * 16384);
    device_array<char> resident((size_t)n_head * KDA_PART_STAGE * KDA_PACKET_BYTES);
    map_args a = {};
    kda_params &p = a.p;
    p.q = p.v = (const __nv_bfloat16 *)other.ptr;
    p.k = (const __nv_bfloat16 *)k.ptr, p.g = g.ptr, p.beta = beta.ptr;
    p.a_log = a_log.ptr, p.dt_bias = dt_bias.ptr;
    int64_t row = (int64_t)n_head * 128;
    p.q_stride = p.k_stride = p.v_stride = p.g_stride = p.out_stride = {0, row, 128};
    p.beta_stride = {0, n_head, 1};
    p.n_seq = 1, p.n_tok = n_chunk * KDA_CHUNK, p.n_value_head = n_head, p.head_group = 1;
    p.gate = BRIM_KDA_GATE_LOWER_BOUND, p.lower_bound = -5, p.inverse_bound = -0.138629436f;
    p.mid = 58, p.beta_logit = 1, p.l2norm = 1, p.scale = 0.088388348f;
    a.packets = resident.ptr, a.map = map.ptr, a.n_chunk = n_chunk;
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    launch(packets, 128, KDA_PACKET_BYTES + KDA_FULL_BYTES + 1024, a, stream);
    double error[N_MEASURED];
    check(a, n_check, stream, error);
    if (n_fail || brief) {
        printf("%d of %d ways failed\n", n_fail, (int)N_MEASURED);
        return n_fail != 0;
    }
    printf("way,operands,stage,us_%d_chunks,us_%d_chunks,us_per_chunk,error\n", (int)N_FEW,
           (int)N_MANY);
    double tiny = time_tiny(stream, nullptr, 0);
    printf("empty kernel,,,%.1f,%.1f,,\n", tiny, tiny);
    for (int i = 0; i < N_MEASURED; i++) {
        double us[2];
        for (int j = 0; j < 2; j++) {
            a.n_chunk = j ? N_MANY : N_FEW;
            us[j] = time_graph(stream, nullptr, 0, 20, [&] {
                launch(ways[i].run, ways[i].n_thread, ways[i].smem, a, stream);
            });
        }
        printf("%s,%s,%s,%.1f,%.1f,%.3f,%.2e\n", ways[i].way, ways[i].operands, ways[i].stage,
               us[0], us[1], (us[1] - us[0]) / (N_MANY - N_FEW), error[i]);
        fflush(stdout);
    }
    return 0;
}
