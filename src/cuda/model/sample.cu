/* SPDX-License-Identifier: Apache-2.0
 * From logits to a token on the device: src/run/sampler.c in one cluster of 8 blocks; the likeliest
 * token without a penalty is another kernel's (likeliest.cu).
 *
 * Block r has the ids r * chunk..., their logits and weights in shared memory. Candidates are
 * ordered by a 64-bit key as on the CPU: the larger logit first, the lower id of equals. With top-k
 * or top-p the few thousand candidates near the best, found by a histogram, are sorted by block 0;
 * where they do not suffice, top-k, top-p and the draw each find their last key bit by bit, every
 * question a sum over the cluster. With neither the draw runs over ids from the highest down, as on
 * the CPU, and takes a scan. Sums are f64 in a fixed order. */
#include <math_constants.h>

#include "base/greedy.h"
#include "cuda/model/sample.cuh"

/* Outside the namespace: the emulator gives it storage by this name. */
extern __shared__ float smem[];

namespace
{

/* 64 to 1024, for a program under racecheck, which is slow by the thread that comes to a barrier.
 */
#ifndef BRIM_SAMPLE_THREADS
#define BRIM_SAMPLE_THREADS 1024
#endif

enum { N_BLOCK = 8, N_THREAD = BRIM_SAMPLE_THREADS, N_WARP = N_THREAD / 32 };
enum {
    N_BIN = 64, /* eighths of (largest - logit) / temperature: what weighs e^-8 or more */
    MAX_SORTED = 2 * N_THREAD,
    BATCH = 5 /* loads of 4 logits in flight a thread: a vocabulary of 163,840 */
};

struct sample_params {
    brim_cuda_sample_args a;
    int chunk;   /* ids of a block, a multiple of 4 */
    int id_bits; /* ids are below 1 << id_bits */
};

/* Exchange between the blocks; two sets of slots, so that one barrier a round is enough. Blocks
 * only write to each other, and only before a barrier: none is written to after it has ended. */
struct exchange {
    double value[2][N_BLOCK];
    unsigned long long key[2][N_BLOCK];
    double part[N_WARP];
    unsigned long long key_part[N_WARP];
    int bins[N_BLOCK][N_BIN]; /* candidates of every block by bin */
    int n_found, last_bin, n_upto, offset;
    int32_t ranges[2 * MAX_RANGES];
    unsigned long long sorted[MAX_SORTED]; /* of block 0 */
};

/* Sum over the block in thread 0, in the order of the threads' warps. */
BRIM_DEVICE double block_total(exchange &x, double v)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, step);
    if (threadIdx.x % 32 == 0) x.part[threadIdx.x / 32] = v;
    __syncthreads();
    double total = 0;
    if (threadIdx.x < 32) {
        total = threadIdx.x < N_WARP ? x.part[threadIdx.x] : 0;
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
        st_shared_cluster_u64(mapa_u32(smem_u32(&x.value[set][cluster_ctarank()]), threadIdx.x),
                              (unsigned long long)__double_as_longlong(total));
    cluster_sync();
    double sum = 0;
    for (int i = 0; i < N_BLOCK; i++) sum += x.value[set][i];
    return sum;
}

/* Largest over the cluster, in every thread. */
BRIM_DEVICE unsigned long long cluster_max(exchange &x, int &round, unsigned long long v)
{
    v = warp_best(v);
    if (threadIdx.x % 32 == 0) x.key_part[threadIdx.x / 32] = v;
    __syncthreads();
    int set = round++ & 1;
    if (threadIdx.x < 32) {
        v = warp_best(threadIdx.x < N_WARP ? x.key_part[threadIdx.x] : 0);
        if (threadIdx.x < N_BLOCK)
            st_shared_cluster_u64(mapa_u32(smem_u32(&x.key[set][cluster_ctarank()]), threadIdx.x),
                                  v);
    }
    cluster_sync();
    unsigned long long largest = 0;
    for (int i = 0; i < N_BLOCK; i++) largest = x.key[set][i] > largest ? x.key[set][i] : largest;
    return largest;
}

BRIM_DEVICE float key_logit(unsigned long long key)
{
    uint32_t bits = (uint32_t)(key >> KEY_LOW_BITS);
    return __uint_as_float(bits & 0x80000000u ? bits & 0x7FFFFFFFu : ~bits);
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
        st_shared_cluster_u64(mapa_u32(smem_u32(&x.value[set][rank]), threadIdx.x),
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

/* The bin of a candidate, N_BIN or more for those too light for any. */
BRIM_DEVICE int bin_of(float logit, float largest, float inv_temperature)
{
    return (int)fminf((largest - logit) * inv_temperature * 8, (float)N_BIN);
}

/* Inclusive prefix sum over the block. */
BRIM_DEVICE double block_scan(exchange &x, double v)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        double other = __shfl_up_sync(0xFFFFFFFFu, v, step);
        if (lane >= step) v += other;
    }
    __syncthreads();
    if (lane == 31) x.part[warp] = v;
    __syncthreads();
    double before = 0;
    for (int w = 0; w < warp; w++) before += x.part[w];
    return before + v;
}

/* x.sorted[0..n) from the best down; what lies behind becomes 0. */
BRIM_DEVICE void sort_keys(exchange &x, int n)
{
    int size = 32;
    while (size < n) size *= 2;
    for (int i = n + threadIdx.x; i < MAX_SORTED; i += N_THREAD) x.sorted[i] = 0;
    for (int run = 2; run <= size; run *= 2)
        for (int step = run / 2; step > 0; step /= 2) {
            __syncthreads();
            int i = 2 * (int)threadIdx.x - ((int)threadIdx.x & (step - 1));
            if (i + step >= size) continue;
            unsigned long long a = x.sorted[i], b = x.sorted[i + step];
            if ((a < b) == ((i & run) == 0)) x.sorted[i] = b, x.sorted[i + step] = a;
        }
    __syncthreads();
}

/* How many candidates a predicate holds for, of this thread's two and all others'. */
BRIM_DEVICE int count_both(bool first, bool second)
{
    int n = __syncthreads_count(first);
    return n + __syncthreads_count(second);
}

/* Block 0: x.sorted holds the n best candidates, all that top-k or top-p can keep. all: the sum of
 * every weight. */
BRIM_DEVICE int draw_sorted(exchange &x, const brim_cuda_sample_args &a, int n, float largest,
                            double all)
{
    sort_keys(x, n);
    bool top_k = a.top_k > 0 && a.top_k < a.n_vocab;
    int n_keep = top_k && a.top_k < n ? a.top_k : n, i = 2 * (int)threadIdx.x;
    unsigned long long key[2] = {x.sorted[i], x.sorted[i + 1]};
    float w[2];
    for (int j = 0; j < 2; j++)
        w[j] = i + j < n_keep ? expf((key_logit(key[j]) - largest) * (1.0f / a.temperature)) : 0;
    double upto1 = block_scan(x, (double)w[0] + (double)w[1]), upto0 = upto1 - (double)w[1];
    if (a.top_p < 1) {
        if (i + 1 == (MAX_SORTED - 1)) x.value[0][0] = upto1;
        __syncthreads();
        double enough = (double)a.top_p * (top_k ? x.value[0][0] : all);
        int n_nucleus =
            1 + count_both(i < n_keep && upto0 < enough, i + 1 < n_keep && upto1 < enough);
        n_keep = n_nucleus < n_keep ? n_nucleus : n_keep;
    }
    int n_heavy = count_both(w[0] > 0 && (w[0] >= a.min_p || i == 0), w[1] > 0 && w[1] >= a.min_p);
    n_keep = n_heavy < n_keep ? n_heavy : n_keep;
    if (i == n_keep - 1) x.value[0][1] = upto0;
    if (i + 1 == n_keep - 1) x.value[0][1] = upto1;
    __syncthreads();
    double target = (double)*a.uniform * x.value[0][1];
    int chosen = count_both(i < n_keep && upto0 <= target, i + 1 < n_keep && upto1 <= target);
    return key_id(x.sorted[chosen < n_keep ? chosen : n_keep - 1]);
}

/* Gather the candidates near the best in block 0. True, in every block, if they are all that top-k
 * or top-p can keep; then blocks other than 0 are done. */
BRIM_DEVICE bool gather_best(exchange &x, int &round, const brim_cuda_sample_args &a,
                             const candidates &c, float largest, double sum, double *all)
{
    float inv_temperature = 1.0f / a.temperature;
    int top_k = a.top_k > 0 && a.top_k < a.n_vocab ? a.top_k : 0;
    int rank = (int)cluster_ctarank(), t = threadIdx.x;
    for (int i = t; i < N_BIN; i += N_THREAD) x.bins[rank][i] = 0;
    if (t == 0) x.n_found = x.offset = 0;
    __syncthreads();
    for (int i = t; i < c.n; i += N_THREAD) {
        int bin = bin_of(c.logits[i], largest, inv_temperature);
        if (bin < N_BIN) atomicAdd(&x.bins[rank][bin], 1);
    }
    __syncthreads();
    for (int i = t; i < N_BIN * N_BLOCK; i += N_THREAD) {
        int to = i / N_BIN, bin = i % N_BIN;
        if (to != rank)
            st_shared_cluster_u32(mapa_u32(smem_u32(&x.bins[rank][bin]), to), x.bins[rank][bin]);
    }
    *all = cluster_total(x, round, sum); /* its barrier publishes the bins too */
    if (t < 32) { /* a lane has two bins; of the running counts those that fit are a prefix */
        int count[2] = {0, 0};
        for (int r = 0; r < N_BLOCK; r++)
            count[0] += x.bins[r][2 * t], count[1] += x.bins[r][2 * t + 1];
        int upto = count[0] + count[1];
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            int other = __shfl_up_sync(0xFFFFFFFFu, upto, step);
            if (t >= step) upto += other;
        }
        int upto0 = upto - count[1], before0 = upto0 - count[0];
        int k = top_k ? top_k : MAX_SORTED + 1; /* bins that begin below the k-th are wanted */
        bool fit0 = upto0 <= MAX_SORTED && before0 < k, fit1 = upto <= MAX_SORTED && upto0 < k;
        int last_bin =
            __popc(__ballot_sync(0xFFFFFFFFu, fit0)) + __popc(__ballot_sync(0xFFFFFFFFu, fit1));
        int n_upto = __reduce_max_sync(0xFFFFFFFFu, fit1 ? upto : fit0 ? upto0 : 0);
        if (t == 0) x.last_bin = last_bin, x.n_upto = n_upto;
    }
    __syncthreads();
    bool enough = top_k > 0 && top_k <= x.n_upto;
    if (top_k == 0) {
        double near = 0;
        for (int i = t; i < c.n; i += N_THREAD)
            if (bin_of(c.logits[i], largest, inv_temperature) < x.last_bin)
                near += (double)c.weights[i];
        enough = cluster_total(x, round, near) >= (double)a.top_p * *all;
    }
    if (!enough || x.n_upto == 0) return false;
    for (int i = t; i < rank * x.last_bin; i += N_THREAD)
        atomicAdd(&x.offset, x.bins[i / x.last_bin][i % x.last_bin]);
    __syncthreads();
    for (int i = t; i < c.n; i += N_THREAD)
        if (bin_of(c.logits[i], largest, inv_temperature) < x.last_bin)
            st_shared_cluster_u64(
                mapa_u32(smem_u32(&x.sorted[x.offset + atomicAdd(&x.n_found, 1)]), 0),
                key_of(c.logits[i], c.first + i));
    cluster_sync();
    return true;
}

/* Logits first..., 4 at a time and BATCH in flight: use(i, logit) for those that may be chosen,
 * i counted from `first`. */
template <typename F>
BRIM_DEVICE void each_logit(const brim_cuda_sample_args &a, const exchange &x, int first, int n,
                            const F &use)
{
    bool small = a.n_range <= MAX_RANGES;
    const float *logits = a.logits + first;
    for (int base = 4 * threadIdx.x; base < n; base += 4 * N_THREAD * BATCH) {
        float4 v[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            int i = base + b * 4 * N_THREAD;
            if (i + 3 < n) {
                v[b] = *(const float4 *)(logits + i);
            } else if (i < n) { /* the end of the vocabulary */
                v[b].x = logits[i];
                v[b].y = i + 1 < n ? logits[i + 1] : 0;
                v[b].z = i + 2 < n ? logits[i + 2] : 0;
                v[b].w = 0;
            }
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            int i = base + b * 4 * N_THREAD;
            const float value[4] = {v[b].x, v[b].y, v[b].z, v[b].w};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if (i + j >= n) continue;
                bool inside = small ? may_choose(x.ranges, a.n_range, first + i + j)
                                    : may_choose(a.ranges, a.n_range, first + i + j);
                use(i + j, inside, value[j]);
            }
        }
    }
}

/* Of what a thread has seen so far, ids rising: the largest, its id (-1: nothing above -infinity),
 * and whether a number was not finite. */
struct best_seen {
    float logit;
    int id;
    bool odd;
};

BRIM_DEVICE void see(best_seen &b, float logit, int id)
{
    b.odd |= !(logit < CUDART_INF_F);
    if (logit > b.logit) b.logit = logit, b.id = id;
}

__global__ void __launch_bounds__(N_THREAD, 1) sample(sample_params p)
{
    __shared__ exchange x;
    const brim_cuda_sample_args &a = p.a;
    bool greedy = a.temperature < BRIM_GREEDY_TEMPERATURE;
    bool penalty = a.recent && a.n_recent > 0 && a.repeat_penalty != 1.0f;
    int rank = (int)cluster_ctarank(), round = 0, first = rank * p.chunk;
    int n = (int)a.n_vocab - first < p.chunk ? (int)a.n_vocab - first : p.chunk;
    if (n < 0) n = 0;
    float *logits = smem, *weights = smem + p.chunk;
    uint32_t *seen = (uint32_t *)weights; /* one bit an id, before weights are needed */
    griddepcontrol_launch_dependents();
    if (threadIdx.x < 2 * MAX_RANGES && (int)threadIdx.x < 2 * a.n_range)
        x.ranges[threadIdx.x] = a.ranges[threadIdx.x];
    if (penalty)
        for (int i = threadIdx.x; i < (n + 31) / 32; i += N_THREAD) seen[i] = 0;
    __syncthreads();
    cluster_sync(); /* every block has started: its shared memory may be written */
    griddepcontrol_wait();

    best_seen b = {-CUDART_INF_F, -1, false};
    each_logit(a, x, first, n, [&](int i, bool inside, float logit) {
        logits[i] = inside ? logit : -CUDART_INF_F;
        if (inside && !penalty) see(b, logit, first + i);
    });
    if (penalty) {
        __syncthreads();
        for (int64_t j = threadIdx.x; j < a.n_recent; j += N_THREAD) {
            int i = a.recent[j] - first;
            if (i < 0 || i >= n) continue;
            uint32_t bit = 1u << (i % 32);
            if (atomicOr(&seen[i / 32], bit) & bit) continue;
            float logit = logits[i];
            logits[i] = logit > 0 ? logit / a.repeat_penalty : logit * a.repeat_penalty;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += N_THREAD) see(b, logits[i], first + i);
    }
    /* A NaN or infinity anywhere outranks every key. */
    unsigned long long best = cluster_max(x, round,
                                          __syncthreads_or(b.odd) ? ~0ull
                                          : b.id < 0              ? 0
                                                                  : key_of(b.logit, b.id));
    if (best == 0 || best == ~0ull || greedy) {
        if (rank == 0 && threadIdx.x == 0)
            finish(a, best == 0 || best == ~0ull ? -1 : key_id(best));
        return;
    }

    float largest = key_logit(best), inv_temperature = 1.0f / a.temperature;
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += N_THREAD) {
        weights[i] = expf((logits[i] - largest) * inv_temperature);
        sum += (double)weights[i];
    }
    __syncthreads();
    candidates c = {logits, weights, first, n};
    bool by_key = (a.top_k > 0 && a.top_k < a.n_vocab) || a.top_p < 1;
    double all;
    if (by_key && gather_best(x, round, a, c, largest, sum, &all)) {
        if (rank > 0) return;
        int id = draw_sorted(x, a, x.n_upto, largest, all);
        if (threadIdx.x == 0) finish(a, id);
        return;
    }
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
}

int64_t chunk_of(int64_t n_vocab)
{
    return ((n_vocab + N_BLOCK - 1) / N_BLOCK + 3) / 4 * 4;
}

enum { MAX_SMEM_BYTES = 204 * 1024 };

} // namespace

extern "C" brim_status brim_cuda_sample(const struct brim_cuda_sample_args *args, void *stream,
                                        brim_error *err)
{
    BRIM_REQUIRE(err, args->n_vocab >= 1 && args->n_vocab <= INT32_MAX, BRIM_E_RANGE,
                 "sample: n_vocab %lld is not 1..%d", (long long)args->n_vocab, INT32_MAX);
    bool keep = args->temperature >= BRIM_GREEDY_TEMPERATURE ||
                (args->recent && args->n_recent > 0 && args->repeat_penalty != 1.0f);
    if (!keep) return brim_cuda_likeliest(args, stream, err);
    sample_params p = {};
    p.a = *args;
    p.chunk = (int)chunk_of(args->n_vocab);
    while (p.id_bits < 31 && (1ll << p.id_bits) < args->n_vocab) p.id_bits++;
    brim_launch_shape shape = {};
    shape.grid = dim3(N_BLOCK);
    shape.block = dim3(N_THREAD);
    shape.cluster = N_BLOCK;
    shape.pdl = args->pdl;
    int64_t smem_bytes = (int64_t)p.chunk * 2 * (int64_t)sizeof(float);
    BRIM_REQUIRE(err, smem_bytes <= MAX_SMEM_BYTES, BRIM_E_UNSUPPORTED,
                 "sample: %lld candidates, at most %d fit the device's shared memory",
                 (long long)args->n_vocab, MAX_SMEM_BYTES / 8 * N_BLOCK);
    shape.smem_bytes = (unsigned)smem_bytes;
    return BRIM_LAUNCH(sample, shape, (cudaStream_t)stream, p, err);
}
