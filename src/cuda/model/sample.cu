/* SPDX-License-Identifier: Apache-2.0
 * From logits to a token on the device: src/run/sampler.c in one cluster of 8 blocks.
 *
 * Block r has the ids r * chunk..., their logits and weights in shared memory. Candidates are
 * ordered by a 64-bit key as on the CPU: the larger logit first, the lower id of equals. Nothing is
 * sorted: top-k, top-p and the draw each ask for the largest key whose candidates from the best
 * down to it count or weigh enough, and find it bit by bit; every question is a sum over the
 * cluster. Sums are f64 in a fixed order. With neither top-k nor top-p the draw runs over ids from
 * the highest down, as on the CPU, and takes a scan instead. */
#include <math_constants.h>

#include "cuda/model/common.cuh"
#include "cuda/model/ops.h"

namespace
{

enum { N_BLOCK = 8, N_THREAD = 1024, N_WARP = N_THREAD / 32, KEY_LOW_BITS = 32 };
#define GREEDY_TEMPERATURE 1e-5f

struct sample_params {
    brim_cuda_sample_args a;
    int chunk;   /* ids of a block, a multiple of 4 */
    int id_bits; /* ids are below 1 << id_bits */
};

/* Exchange between the blocks; two sets of slots, so that one barrier a round is enough. */
struct exchange {
    double value[2][N_BLOCK];
    unsigned long long key[2][N_BLOCK];
    double part[N_WARP];
    unsigned long long key_part[N_WARP];
};

BRIM_DEVICE void st_cluster_u64(uint32_t addr, unsigned long long v)
{
    asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(addr), "l"(v) : "memory");
}

/* Float bits as an unsigned number of the same order; -0 equals 0. */
BRIM_DEVICE uint32_t ordered_bits(float value)
{
    uint32_t bits = __float_as_uint(value + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

BRIM_DEVICE unsigned long long key_of(float logit, int id)
{
    return (unsigned long long)ordered_bits(logit) << KEY_LOW_BITS | (uint32_t)~id;
}

BRIM_DEVICE int key_id(unsigned long long key)
{
    return (int)~(uint32_t)key;
}

/* Sum over the block in thread 0, in the order of the threads' warps. */
BRIM_DEVICE double block_total(exchange &x, double v)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, step);
    if (threadIdx.x % 32 == 0) x.part[threadIdx.x / 32] = v;
    __syncthreads();
    double total = 0;
    if (threadIdx.x < 32) {
        total = x.part[threadIdx.x];
#pragma unroll
        for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xFFFFFFFFu, total, step);
    }
    return total;
}

/* Sum over the cluster, in every thread. */
BRIM_DEVICE double cluster_total(exchange &x, int &round, double v)
{
    double total = block_total(x, v);
    int set = round++ & 1;
    if (threadIdx.x < N_BLOCK)
        st_cluster_u64(mapa_u32(smem_u32(&x.value[set][cluster_ctarank()]), threadIdx.x),
                       (unsigned long long)__double_as_longlong(total));
    cluster_sync();
    double sum = 0;
    for (int i = 0; i < N_BLOCK; i++) sum += x.value[set][i];
    return sum;
}

/* Largest over the cluster, in every thread. */
BRIM_DEVICE unsigned long long cluster_max(exchange &x, int &round, unsigned long long v)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        unsigned long long other = __shfl_xor_sync(0xFFFFFFFFu, v, step);
        v = other > v ? other : v;
    }
    if (threadIdx.x % 32 == 0) x.key_part[threadIdx.x / 32] = v;
    __syncthreads();
    int set = round++ & 1;
    if (threadIdx.x < 32) {
        v = x.key_part[threadIdx.x];
#pragma unroll
        for (int step = 16; step > 0; step /= 2) {
            unsigned long long other = __shfl_xor_sync(0xFFFFFFFFu, v, step);
            v = other > v ? other : v;
        }
        if (threadIdx.x < N_BLOCK)
            st_cluster_u64(mapa_u32(smem_u32(&x.key[set][cluster_ctarank()]), threadIdx.x), v);
    }
    cluster_sync();
    unsigned long long largest = 0;
    for (int i = 0; i < N_BLOCK; i++) largest = x.key[set][i] > largest ? x.key[set][i] : largest;
    return largest;
}

BRIM_DEVICE bool may_choose(const brim_cuda_sample_args &a, int id)
{
    for (int r = 0; r < a.n_range; r++)
        if (id >= a.ranges[2 * r] && id < a.ranges[2 * r + 1]) return true;
    return false;
}

BRIM_DEVICE void finish(const brim_cuda_sample_args &a, int id)
{
    *a.id = id;
    if (a.advance) *a.advance += 1;
}

/* Candidates of this block: logits[i], weights[i] of id first + i, i < n. Only those with a key of
 * at least `least` and a weight that is not 0 are left. */
struct candidates {
    const float *logits, *weights;
    int first, n;
};

/* The largest key whose candidates, from the best down to it, measure at least `enough` (with
 * `beyond`: more than it); 0 when all together do not. A candidate measures 1 (count) or its
 * weight. */
BRIM_DEVICE unsigned long long select_key(exchange &x, int &round, const sample_params &p,
                                          const candidates &c, unsigned long long least, bool count,
                                          double enough, bool beyond)
{
    unsigned long long key = 0;
    for (int bit = 63; bit >= 0; bit--) {
        if (bit == KEY_LOW_BITS - 1) { /* one candidate with this logit: the id says nothing */
            double sum = 0;
            for (int i = threadIdx.x; i < c.n; i += N_THREAD)
                sum += key_of(c.logits[i], c.first + i) >> KEY_LOW_BITS == key >> KEY_LOW_BITS;
            if (cluster_total(x, round, sum) <= 1) break;
        }
        if (bit < KEY_LOW_BITS && bit >= p.id_bits) { /* ids below 1 << id_bits: all ones here */
            key |= 1ull << bit;
            continue;
        }
        unsigned long long from = key | 1ull << bit;
        double sum = 0;
        for (int i = threadIdx.x; i < c.n; i += N_THREAD) {
            unsigned long long k = key_of(c.logits[i], c.first + i);
            if (k >= from && k >= least) sum += count ? 1.0 : (double)c.weights[i];
        }
        double total = cluster_total(x, round, sum);
        if (beyond ? total > enough : total >= enough) key = from;
    }
    return key;
}

/* Of ids from the highest down, the first whose running weight exceeds target. Thread t of a block
 * has a run of ids; runs and blocks are summed from the top. */
BRIM_DEVICE unsigned long long draw_by_id(exchange &x, int &round, const candidates &c,
                                          double target)
{
    int run = (c.n + N_THREAD - 1) / N_THREAD;
    int end = c.n - (int)threadIdx.x * run, begin = end - run > 0 ? end - run : 0;
    double own = 0;
    for (int i = end - 1; i >= begin; i--) own += (double)c.weights[i];
    /* what lies above this thread's run inside the block */
    double upto = own;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        double other = __shfl_up_sync(0xFFFFFFFFu, upto, step);
        if (lane >= step) upto += other;
    }
    if (lane == 31) x.part[warp] = upto;
    __syncthreads();
    double above = upto - own, block = 0;
    for (int w = 0; w < N_WARP; w++) {
        if (w == warp) above += block;
        block += x.part[w];
    }
    int set = round++ & 1, rank = (int)cluster_ctarank();
    if (threadIdx.x < N_BLOCK)
        st_cluster_u64(mapa_u32(smem_u32(&x.value[set][rank]), threadIdx.x),
                       (unsigned long long)__double_as_longlong(block));
    cluster_sync();
    for (int r = N_BLOCK - 1; r > rank; r--) above += x.value[set][r];
    /* Every id whose running weight exceeds the target is a witness; the highest is the one. The
     * lowest id with any weight is the one if rounding leaves none. */
    unsigned long long found = 0;
    for (int i = end - 1; i >= begin; i--) {
        above += (double)c.weights[i];
        if (c.weights[i] <= 0) continue;
        int id = c.first + i;
        unsigned long long rated =
            above > target ? 1ull << 32 | (unsigned)id : (unsigned)(0x7FFFFFFF - id);
        found = rated > found ? rated : found;
    }
    found = cluster_max(x, round, found);
    return found >> 32 ? (uint32_t)found : 0x7FFFFFFFu - (uint32_t)found;
}

__global__ void __launch_bounds__(N_THREAD, 1) sample(sample_params p)
{
    extern __shared__ float smem[];
    __shared__ exchange x;
    const brim_cuda_sample_args &a = p.a;
    bool greedy = a.temperature < GREEDY_TEMPERATURE;
    bool penalty = a.recent && a.n_recent > 0 && a.repeat_penalty != 1.0f;
    bool keep = !greedy || penalty; /* logits stay in shared memory */
    int rank = (int)cluster_ctarank(), round = 0, first = rank * p.chunk;
    int n = (int)a.n_vocab - first < p.chunk ? (int)a.n_vocab - first : p.chunk;
    if (n < 0) n = 0;
    float *logits = smem, *weights = smem + p.chunk;
    uint32_t *seen = (uint32_t *)weights; /* one bit an id, before weights are needed */
    griddepcontrol_launch_dependents();
    cluster_sync(); /* every block has started: its shared memory may be written */
    griddepcontrol_wait();

    if (penalty)
        for (int i = threadIdx.x; i < (n + 31) / 32; i += N_THREAD) seen[i] = 0;
    if (keep) {
        for (int i = threadIdx.x; i < n; i += N_THREAD)
            logits[i] = may_choose(a, first + i) ? a.logits[first + i] : -CUDART_INF_F;
        __syncthreads();
    }
    if (penalty) {
        for (int64_t j = threadIdx.x; j < a.n_recent; j += N_THREAD) {
            int i = a.recent[j] - first;
            if (i < 0 || i >= n) continue;
            uint32_t bit = 1u << (i % 32);
            if (atomicOr(&seen[i / 32], bit) & bit) continue;
            float logit = logits[i];
            logits[i] = logit > 0 ? logit / a.repeat_penalty : logit * a.repeat_penalty;
        }
        __syncthreads();
    }

    unsigned long long best = 0;
    bool odd = false;
    for (int i = threadIdx.x; i < n; i += N_THREAD) {
        float logit;
        if (keep) {
            logit = logits[i];
        } else {
            if (!may_choose(a, first + i)) continue;
            logit = a.logits[first + i];
        }
        odd |= !(logit < CUDART_INF_F);
        if (logit > -CUDART_INF_F) {
            unsigned long long key = key_of(logit, first + i);
            best = key > best ? key : best;
        }
    }
    /* A NaN or infinity anywhere outranks every key. */
    best = cluster_max(x, round, __syncthreads_or(odd) ? ~0ull : best);
    if (best == 0 || best == ~0ull || greedy) {
        if (rank == 0 && threadIdx.x == 0)
            finish(a, best == 0 || best == ~0ull ? -1 : key_id(best));
        cluster_sync(); /* nobody writes into a block that has ended */
        return;
    }

    uint32_t top_bits = (uint32_t)(best >> KEY_LOW_BITS);
    float largest = __uint_as_float(top_bits & 0x80000000u ? top_bits & 0x7FFFFFFFu : ~top_bits);
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += N_THREAD) {
        weights[i] = expf((logits[i] - largest) / a.temperature);
        sum += (double)weights[i];
    }
    __syncthreads();
    candidates c = {logits, weights, first, n};
    bool by_key = (a.top_k > 0 && a.top_k < a.n_vocab) || a.top_p < 1;
    unsigned long long least = 0;
    if (a.top_k > 0 && a.top_k < a.n_vocab)
        least = select_key(x, round, p, c, 0, true, (double)a.top_k, false);
    if (a.top_p < 1) {
        sum = 0;
        for (int i = threadIdx.x; i < n; i += N_THREAD)
            if (key_of(logits[i], first + i) >= least) sum += (double)weights[i];
        double enough = (double)a.top_p * cluster_total(x, round, sum);
        unsigned long long nucleus =
            a.top_p > 0 ? select_key(x, round, p, c, least, false, enough, false) : best;
        if (nucleus > least) least = nucleus;
    }
    sum = 0;
    for (int i = threadIdx.x; i < n; i += N_THREAD) {
        unsigned long long key = key_of(logits[i], first + i);
        if (key < least || (weights[i] < a.min_p && key != best)) weights[i] = 0;
        sum += (double)weights[i];
    }
    double target = (double)*a.uniform * cluster_total(x, round, sum);
    int id;
    if (by_key) {
        unsigned long long key = select_key(x, round, p, c, least, false, target, true);
        /* the candidate itself is the lowest of those from the best down to `key` */
        unsigned long long low = 0;
        for (int i = threadIdx.x; i < n; i += N_THREAD) {
            unsigned long long k = key_of(logits[i], first + i);
            if (weights[i] > 0 && k >= key && ~k > low) low = ~k;
        }
        id = key_id(~cluster_max(x, round, low));
    } else {
        id = (int)draw_by_id(x, round, c, target);
    }
    if (rank == 0 && threadIdx.x == 0) finish(a, id);
    cluster_sync();
}

int64_t chunk_of(int64_t n_vocab)
{
    return ((n_vocab + N_BLOCK - 1) / N_BLOCK + 3) / 4 * 4;
}

enum { MAX_SMEM_BYTES = 224 * 1024 };

} // namespace

extern "C" size_t brim_cuda_sample_bytes(int64_t n_vocab)
{
    (void)n_vocab;
    return 0;
}

extern "C" brim_status brim_cuda_sample(const struct brim_cuda_sample_args *args, void *stream,
                                        brim_error *err)
{
    BRIM_REQUIRE(err, args->n_vocab >= 1 && args->n_vocab <= INT32_MAX, BRIM_E_RANGE,
                 "sample: n_vocab %lld is not 1..%d", (long long)args->n_vocab, INT32_MAX);
    bool keep = args->temperature >= GREEDY_TEMPERATURE ||
                (args->recent && args->n_recent > 0 && args->repeat_penalty != 1.0f);
    sample_params p = {};
    p.a = *args;
    p.chunk = (int)chunk_of(args->n_vocab);
    while (p.id_bits < 31 && (1ll << p.id_bits) < args->n_vocab) p.id_bits++;
    brim_launch_shape shape = {};
    shape.grid = dim3(N_BLOCK);
    shape.block = dim3(N_THREAD);
    shape.cluster = N_BLOCK;
    shape.pdl = args->pdl;
    int64_t smem_bytes = keep ? (int64_t)p.chunk * 2 * (int64_t)sizeof(float) : 0;
    BRIM_REQUIRE(err, smem_bytes <= MAX_SMEM_BYTES, BRIM_E_UNSUPPORTED,
                 "sample: %lld candidates, at most %d fit the device's shared memory",
                 (long long)args->n_vocab, MAX_SMEM_BYTES / 8 * N_BLOCK);
    shape.smem_bytes = (unsigned)smem_bytes;
    return BRIM_LAUNCH(sample, shape, (cudaStream_t)stream, p, err);
}
