/* SPDX-License-Identifier: Apache-2.0
 * Route split: the CTA of m128 for every (segment, value head) instead of every (sequence, value
 * head). A segment starts from the state that the window of chunks before it writes from zero; what
 * that forgets is bounded from the window's packets. The last of a task's CTAs to have its record
 * complete decides from all bounds and norms which of the segments' results are kept; a second
 * launch, the serial route's kernel, computes the task from the first cut on that fails
 * (split.cuh). A CTA whose window does not forget marks the task and stops; so do those of later
 * segments when they see the mark. Stopping is passing a word on in place of a packet. */
#include "cuda/kda/advance.cuh"
#include "cuda/kda/launch.cuh"
#include "cuda/kda/prepare.cuh"
#include "cuda/kda/split.cuh"

enum { N_STAGE = 3, N_INSTANCE = 2, N_THREAD = 512, BAR_LEAD = 1 + N_INSTANCE };
enum {
    AT_WORK = N_STAGE * KDA_PACKET_BYTES,
    AT_BARRIER = AT_WORK + N_INSTANCE * KDA_FULL_BYTES,
    AT_STOP =
        AT_BARRIER + (2 * N_STAGE + 2) * 8, /* words: a stage each, an instance each, whole CTA */
    /* words: chunks of the window with their bound; does this CTA decide; ~ of the first segment
     * before which a cut fails; is bound (a) to be looked at; ~ of this segment's number */
    AT_COUNT = AT_STOP + 4 * (N_STAGE + N_INSTANCE + 1),
    AT_DECIDES = AT_COUNT + 4,
    AT_FAIL = AT_DECIDES + 4,
    AT_UNSURE = AT_FAIL + 4,
    AT_MARK = AT_UNSURE + 4,
    AT_TASK = (AT_MARK + 4 + 7) / 8 * 8, /* address of the task's words, its chunks, its sequence */
    /* Shares of what the record will hold: of |S|^2 each consumer warp's, of a chunk's bound those
     * of an instance's four warps. NaN until they are there, which no cut survives. */
    AT_WROTE = (AT_TASK + 16 + 15) / 16 * 16,
    AT_BEFORE = AT_WROTE + 8 * 4,
    AT_BOUND = AT_BEFORE + 8 * 4,
    AT_LARGEST = AT_BOUND + KDA_MAX_WINDOW * 16, /* largest gamma of a chunk */
    AT_END = AT_LARGEST + KDA_MAX_WINDOW * 4,
    SMEM_BYTES = AT_END + 1024 /* the stages are aligned by hand */
};
static_assert(SMEM_BYTES <= 232448, "more shared memory than a block can have");

/* The task's mark where the cut before this segment fails: the larger, the earlier. A cut behind a
 * segment that began with the sequence leaves nothing that a serial route would not give again. */
BRIM_DEVICE uint32_t cut_mark(const kda_params &p, uint32_t base)
{
    uint32_t own = ld_shared_u32(base + AT_MARK);
    return kda_cut(p, (int)~own - 1) <= p.cuts.window ? ~0u : own;
}

/* Bound (b) of a chunk whose packet has been handed on, and is kept in its stage until it is taken:
 * max gamma + sum |kr_r| |w_r| over its rows, four threads a row, the four warps' shares to
 * `share`, max gamma to `largest_at` too. Rows are as small as e^-160, and squares below 2^-149 are
 * lost: each sum begins with more than its roundings there can lose, so that a norm is never below
 * the row's. */
BRIM_DEVICE void window_bound(const kda_prep &s, uint32_t packet, uint32_t share,
                              uint32_t largest_at)
{
    named_barrier_sync(s.bar, 128); /* the packet is complete */
    int row = s.tid >> 2, quarter = s.tid & 3, warp = s.tid >> 5, lane = s.tid & 31;
    float kr = KDA_SQUARES_LOST, w = KDA_SQUARES_LOST;
#pragma unroll 1 /* a short segment waits for code more than for numbers */
    for (int i = 0; i < 4; i++) {
        uint32_t at = packet + kda_panel_at(row, quarter * 4 + i);
        uint4 a = ld_shared_v4(at + KDA_PACKET_KR), b = ld_shared_v4(at + KDA_PACKET_W);
        uint32_t x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            kr = fmaf(bf16_lo(x[j]), bf16_lo(x[j]), kr);
            kr = fmaf(bf16_hi(x[j]), bf16_hi(x[j]), kr);
            w = fmaf(bf16_lo(y[j]), bf16_lo(y[j]), w);
            w = fmaf(bf16_hi(y[j]), bf16_hi(y[j]), w);
        }
    }
#pragma unroll
    for (int i = 1; i < 4; i <<= 1) {
        kr += __shfl_xor_sync(0xFFFFFFFF, kr, i);
        w += __shfl_xor_sync(0xFFFFFFFF, w, i);
    }
    float sum = sqrt_approx(kr) * sqrt_approx(w);
#pragma unroll
    for (int i = 4; i < 32; i <<= 1) sum += __shfl_xor_sync(0xFFFFFFFF, sum, i);
    if (warp == 0) {
        float4 gamma = ld_shared_v4_f32(packet + KDA_PACKET_GAMMA + lane * 16);
        float largest = fmaxf(fmaxf(gamma.x, gamma.y), fmaxf(gamma.z, gamma.w));
#pragma unroll
        for (int i = 16; i > 0; i >>= 1)
            largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFF, largest, i));
        sum += largest;
        if (lane == 0) st_shared_f32(largest_at, largest);
    }
    if (lane == 0) st_shared_f32(share + 4 * warp, sum * 1.001f); /* more than these sums lose */
}

/* A chunk's bound from its four shares. */
BRIM_DEVICE float chunk_bound(uint32_t bounds, int c)
{
    float4 share = ld_shared_v4_f32(bounds + 16 * c);
    return share.x + share.y + share.z + share.w;
}

/* One thread, after the shares of a chunk of the window are written: the last chunk to come here
 * decides. true: the window does not forget. Where that is for bound (a) to say, which is never
 * below the largest gamma, it is left to the CTA's end. */
BRIM_DEVICE bool window_far(int n_quiet, uint32_t base)
{
    if (n_quiet > 1) {
        __threadfence_block();
        if (atom_add_shared(base + AT_COUNT, 1) != (uint32_t)n_quiet - 1) return false;
        __threadfence_block();
    }
    float product = 1, least = 1;
#pragma unroll 1 /* what is not executed is fetched all the same */
    for (int i = 0; i < n_quiet; i++) product *= chunk_bound(base + AT_BOUND, i);
    if (__builtin_expect(product <= KDA_FORGOTTEN * KDA_SURE, 1)) return false;
#pragma unroll 1
    for (int i = 0; i < n_quiet; i++) least *= ld_shared_f32(base + AT_LARGEST + 4 * i);
    bool unsure = least <= KDA_FORGOTTEN && product == product; /* NaN is far */
    if (unsure) st_shared_u32(base + AT_UNSURE, 1);
    return !unsure && !(product <= KDA_FORGOTTEN);
}

/* Bound (a) of a chunk, all of whose tokens exist: the product over tokens of the decay of the
 * channel that decays least, infinite where a delta factor is no contraction. One warp, lane =
 * token; inputs are read anew. */
BRIM_DEVICE float window_by_decay(const kda_params &p, const kda_task &t, int chunk)
{
    const float log2e = 1.4426950408889634f;
    int lane = threadIdx.x & 31;
    int64_t row = (int64_t)chunk * KDA_CHUNK + lane;
    const uint4 *g = (const uint4 *)(t.g + row * p.g_stride.token * (p.g_f32 ? 4 : 2));
    const uint4 *k = (const uint4 *)(t.k + row * p.k_stride.token);
    bool given = p.gate == BRIM_KDA_GATE_GIVEN, ok = true;
    enum { N_AT_ONCE = 4 }; /* pieces of the row on their way together */
    float least = INFINITY; /* raw gate with its bias, or minus the decay given */
    float squares = 0;
#pragma unroll 1
    for (int i = 0; i < 16; i += N_AT_ONCE) {
        uint4 word[N_AT_ONCE], more[N_AT_ONCE], keys[N_AT_ONCE];
#pragma unroll
        for (int n = 0; n < N_AT_ONCE; n++) {
            word[n] = g[p.g_f32 ? 2 * (i + n) : i + n];
            more[n] = p.g_f32 ? g[2 * (i + n) + 1] : word[n];
            keys[n] = k[i + n];
        }
#pragma unroll
        for (int j = 0; j < 8 * N_AT_ONCE; j++) {
            uint4 w = word[j >> 3], m = more[j >> 3], y = keys[j >> 3];
            uint32_t x[8] = {w.x, w.y, w.z, w.w, m.x, m.y, m.z, m.w}, z[4] = {y.x, y.y, y.z, y.w};
            uint32_t half = x[(j & 7) >> 1], pair = z[(j & 7) >> 1];
            float raw = __uint_as_float(p.g_f32 ? x[j & 7]
                                        : j & 1 ? half & 0xFFFF0000u
                                                : half << 16);
            float key = j & 1 ? bf16_hi(pair) : bf16_lo(pair);
            if (p.dt_bias && !given) raw += p.dt_bias[t.head * 128 + 8 * i + j];
            if (given) raw = -raw;
            ok &= raw == raw;
            least = raw < least ? raw : least;
            squares = fmaf(key, key, squares);
        }
    }
    float a = p.a_log ? __expf(p.a_log[t.head]) : 1.0f, sum;
    if (given)
        sum = -least * log2e;
    else if (p.lower_bound < 0)
        sum = rcp_approx(fmaf(ex2_approx(-a * log2e * least), p.inverse_bound, p.inverse_bound));
    else
        sum = kda_softplus(log2e * least, -a);
    uint32_t bits = kda_load_beta(p, t, chunk, lane);
    float beta = __uint_as_float(p.beta_f32 ? bits : bits << 16);
    if (p.beta_logit) beta = rcp_approx(1 + ex2_approx(beta * -log2e));
    if (p.l2norm) squares = 1;
    ok &= beta >= 0 && beta * squares * 1.00001f <= 2;
    sum += fabsf(sum) * 1e-4f; /* more than these functions can lose */
#pragma unroll
    for (int i = 16; i > 0; i >>= 1) sum += __shfl_xor_sync(0xFFFFFFFF, sum, i);
    if (!__all_sync(0xFFFFFFFF, ok)) return INFINITY;
    return fmaxf(ex2_approx(sum) * 1.001f, 1e-37f); /* no bound is 0 */
}

/* One warp, all shares there: the smaller of both bounds for each chunk of this CTA's window, where
 * whoever decides finds it. Finds all it needs anew: the call is on the way of those that need
 * none. */
static __device__ __noinline__ void window_again(const kda_params &p, uint32_t base)
{
    int head = (int)(blockIdx.x % (unsigned)p.n_value_head), lane = threadIdx.x & 31;
    int begin = kda_cut(p, (int)~ld_shared_u32(base + AT_MARK)), first = begin - p.cuts.window;
    kda_task t = kda_task_part(p, ld_shared_u32(base + AT_TASK + 12), head, first, begin);
#pragma unroll 1
    for (int c = 0; c < p.cuts.window; c++) {
        float packet = chunk_bound(base + AT_BOUND, c);
        float decay = window_by_decay(p, t, c), bound = decay < packet ? decay : packet;
        __syncwarp(); /* read by all */
        if (lane < 4) st_shared_f32(base + AT_BOUND + 16 * c + 4 * lane, lane == 0 ? bound : 0);
    }
    __syncwarp();
}

/* One warp: the record, from the shares. Lanes 0-7 and 8-15 add those of the two norms, lane 16 + i
 * those of chunk i's bound. */
BRIM_DEVICE void record_write(float *record, uint32_t base, int lane)
{
    float x = ld_shared_f32(base + AT_WROTE + 4 * (lane & 15));
#pragma unroll
    for (int i = 1; i < 8; i <<= 1) x += __shfl_xor_sync(0xFFFFFFFF, x, i);
    if (lane == 0) record[KDA_RECORD_WROTE] = x;
    if (lane == 8) record[KDA_RECORD_BEFORE] = x;
    if (lane >= 16 && lane < 16 + KDA_MAX_WINDOW)
        record[KDA_RECORD_BOUND + lane - 16] = chunk_bound(base + AT_BOUND, lane - 16);
    __syncwarp();
}

/* Does the cut before the segment of record `own` hold (docs/numerics.md, "Forgetting")? last: the
 * record of the segment before. The window forgets at most bound |S| of the state S before it. */
BRIM_DEVICE bool cut_holds(const kda_params &p, const float *own, const float *last)
{
    float4 norms = ld_relaxed_gpu_v4(own), norms_before = ld_relaxed_gpu_v4(last);
    float4 near = ld_relaxed_gpu_v4(own + KDA_RECORD_BOUND), far = make_float4(1, 1, 1, 1);
    if (p.cuts.window > 4) far = ld_relaxed_gpu_v4(own + KDA_RECORD_BOUND + 4);
    float each[8] = {near.x, near.y, near.z, near.w, far.x, far.y, far.z, far.w};
    /* apart from the bound, which may fall below the smallest number where this does not */
    float bound = 1, left = sqrtf(norms_before.y);
#pragma unroll
    for (int w = 0; w < KDA_MAX_WINDOW; w++) {
        if (w >= p.cuts.window) continue;
        bound *= each[w];
        left *= each[w];
    }
    /* written so that NaN fails */
    return bound <= KDA_FORGOTTEN && left <= KDA_FORGOTTEN * sqrtf(norms.x);
}

/* The end of a preparation instance. When the CTA's record is complete the first instance counts
 * it, and that of the last of a task's CTAs decides, a thread a cut: its time is on the way of the
 * whole call. The task's words are then as the next call wants them but for KEEP, which the launch
 * behind reads. What it needs waits in shared memory, not in registers, while packets are prepared.
 */
static __device__ __noinline__ void settle(const kda_params &p)
{
    extern __shared__ char raw[];
    uint32_t base = (smem_u32(raw) + 1023) & ~1023u;
    uint32_t done = kda_segment_done(base + AT_BARRIER + 8 * N_STAGE, N_STAGE);
    int tid = threadIdx.x & 127, lane = tid & 31;
    if (tid == 0) mbarrier_arrive(done);
    if (threadIdx.x >= 256 + 128) return;
    uint2 at = ld_shared_v2(base + AT_TASK);
    uint32_t *words = (uint32_t *)((uint64_t)at.y << 32 | at.x);
    uint32_t n_segment = (uint32_t)kda_n_segment(p, (int)ld_shared_u32(base + AT_TASK + 8));
    float *record = p.cuts.record + (int64_t)blockIdx.x * KDA_RECORD_FLOATS;
    mbarrier_wait(done, 0);
    if (tid < 32) {
        if (__builtin_expect(ld_shared_u32(base + AT_UNSURE) != 0, 0)) window_again(p, base);
        record_write(record, base, lane);
        if (lane == 0 && atom_add_acq_rel_gpu(words + KDA_CUT_SETTLED, 1) == n_segment - 1)
            st_shared_u32(base + AT_DECIDES, 1);
    }
    named_barrier_sync(1, 128);
    if (ld_shared_u32(base + AT_DECIDES)) {
        /* cuts behind one that is marked have no complete records, and may fail or hold */
        uint32_t mark =
            ld_relaxed_gpu(words + KDA_CUT_DROP); /* not waited for before the records */
        int64_t step = kda_slot_step(p) * p.n_value_head * KDA_RECORD_FLOATS;
        const float *first = record - (int64_t)~ld_shared_u32(base + AT_MARK) * step;
        bool hold = true;
        for (uint32_t s = 1 + tid; hold && s < n_segment; s += 128) {
            if (kda_cut(p, (int)s) <= p.cuts.window) continue; /* begins with the sequence */
            hold = cut_holds(p, first + s * step, first + (s - 1) * step);
            if (!hold) red_max_shared(base + AT_FAIL, ~s);
        }
        named_barrier_sync(1, 128);
        if (tid == 0) {
            words[KDA_CUT_DROP] = 0;
            uint32_t first_fail = max(ld_shared_u32(base + AT_FAIL), mark);
            uint32_t failed = first_fail ? min(~first_fail, n_segment) : n_segment;
            words[KDA_CUT_KEEP] =
                failed == n_segment ? KDA_KEEP_ALL : kda_keep_until(p, (int)failed);
            red_add_release_gpu(words + KDA_CUT_SETTLED, 0 - n_segment);
        }
    }
    KDA_HOOK(p, KDA_AT_SETTLED, 0);
}

/* Out of the way of those that have none. */
static __device__ __noinline__ void zero_tail(const kda_params &p, int seq, int head)
{
    kda_zero_tail(p, seq, head, threadIdx.x - 256, 256);
}

template <bool bounded>
static __global__ void __launch_bounds__(N_THREAD, 1)
    brim_kda_split_sm90(const __grid_constant__ kda_params p)
{
    KDA_HOOK(p, KDA_AT_START, 0);
    extern __shared__ char raw[];
    uint32_t base = (smem_u32(raw) + 1023) & ~1023u;
    uint32_t full = base + AT_BARRIER, empty = full + 8 * N_STAGE;
    uint32_t stop = kda_segment_stop(empty, N_STAGE);
    uint32_t done = kda_segment_done(empty, N_STAGE), gone = kda_segment_gone(empty, N_STAGE);
    int tid = threadIdx.x;
    uint32_t slot = blockIdx.x / (unsigned)p.n_value_head;
    int head = (int)(blockIdx.x - slot * (unsigned)p.n_value_head);
    kda_place place = kda_place_of(p, slot);
    int64_t seq = place.seq;
    int begin = kda_cut(p, place.index), n_chunk = place.n_chunk;
    uint32_t *words = kda_cut_words(p, seq, head);
    if (begin == 0) {
        if (tid == 0) words[KDA_CUT_KEEP] = 0; /* until whoever decides knows better */
        if (tid >= 256 && p.offset_bytes) zero_tail(p, (int)seq, head);
    }
    if (begin < 0 || begin >= n_chunk)
        return; /* offsets that fall may give a slot before the first */
    int end = min(kda_cut(p, place.index + 1), n_chunk);
    bool last = end == n_chunk;
    kda_segment range;
    range.chunk0 = begin > 0 ? max(begin - p.cuts.window, 0) : 0;
    range.quiet = begin - range.chunk0;
    range.last = last;
    range.mark = last ? -1 : end - p.cuts.window - range.chunk0;
    range.zero = range.chunk0 > 0;
    range.wrote = base + AT_WROTE;
    range.before = base + AT_BEFORE;
    range.final =
        last && p.cuts.state ? p.cuts.state + (seq * p.n_value_head + head) * 16384 : nullptr;
    kda_task t = kda_task_part(p, seq, head, range.chunk0, end); /* window and segment */

    /* the first rows are on their way before anything else is set up */
    typedef kda_full_of<bounded> layout;
    kda_prep s;
    int instance = (tid - 256) >> 7, within = tid & 127;
    bool preparing = tid >= 256 && instance < t.n_chunk;
    kda_first first;
    KDA_HOOK(p, KDA_AT_FOUND, 0);
    if (preparing)
        first = kda_prep_ask<layout>(p, t, s, base + AT_WORK + instance * KDA_FULL_BYTES,
                                     1 + instance, within, instance);
    KDA_HOOK(p, KDA_AT_ASKED, 0);
    if (tid == 0) {
        for (int i = 0; i < N_STAGE; i++) {
            mbarrier_init(full + 8 * i, 128);
            mbarrier_init(empty + 8 * i, 9); /* and one of the packet's instance */
        }
        mbarrier_init(done, 8 + N_INSTANCE);
        mbarrier_init(gone, 8);
        for (uint32_t at = stop; at < base + AT_MARK; at += 4) st_shared_u32(at, 0);
        st_shared_u32(base + AT_MARK, ~(uint32_t)place.index);
        st_shared_v2_u32(base + AT_TASK, (uint32_t)(uint64_t)words,
                         (uint32_t)((uint64_t)words >> 32));
        st_shared_u32(base + AT_TASK + 8, (uint32_t)n_chunk);
        st_shared_u32(base + AT_TASK + 12, (uint32_t)seq);
        fence_mbarrier_init();
    }
    if (tid < (AT_END - AT_WROTE) / 4)
        st_shared_f32(base + AT_WROTE + 4 * tid, __uint_as_float(0x7FC00000u));
    __syncthreads();
    griddepcontrol_launch_dependents();
    KDA_HOOK(p, KDA_AT_READY, 0);

    if (tid < 256) {
        setmaxnreg_inc<160>();
        kda_advance<N_STAGE, false, false>(p, t, range, base, full, empty, kda_panels(), tid >> 7,
                                           tid & 127);
        KDA_HOOK(p, KDA_AT_END, t.n_chunk);
    } else {
        setmaxnreg_dec<96>();
        if (preparing) {
            kda_prep_begin<layout>(p, t, s, first, instance);
            uint32_t own_stop = stop + 4 * (N_STAGE + instance),
                     any_stop = stop + 4 * (N_STAGE + N_INSTANCE);
            uint32_t *drop = words + KDA_CUT_DROP;
            /* Begun when the first has its gate, the second leaves it the processor for the packet
             * that is wanted first, and finds its code there. */
            if (instance == 1) named_barrier_sync(BAR_LEAD, 256);
            for (int c = instance, next; c < t.n_chunk; c = next) {
                next = c + N_INSTANCE;
                /* the first has the window's bound to take: the second does chunk 2 */
                if (c < N_INSTANCE && range.quiet == 1) next += 1 - 2 * instance;
                int stage = c % N_STAGE, use = c / N_STAGE;
                uint32_t packet = base + stage * KDA_PACKET_BYTES;
                auto wait_stage = [&] {
                    if (use == 0) {
                        if (c == 0 && t.n_chunk > 1) named_barrier_arrive(BAR_LEAD, 256);
                        return;
                    }
                    while (!mbarrier_try_wait(empty + 8 * stage, (use - 1) & 1) &&
                           !mbarrier_test(gone, 0))
                        BRIM_WAITING();
                };
                if (ld_shared_u32(own_stop)) { /* written before the last barrier */
                    wait_stage();
                    if (within == 0) st_shared_u32(stop + 4 * stage, 1);
                    named_barrier_sync(s.bar, 128);
                    mbarrier_arrive(full + 8 * stage);
                    break;
                }
                kda_prepare<layout>(p, t, s, c, next, packet, wait_stage, [&] {
                    if (within > 0) return;
                    /* all on their way before any is waited for */
                    uint32_t mark = ld_relaxed_gpu(drop), any = atom_add_shared(any_stop, 0),
                             own = ld_shared_u32(base + AT_MARK);
                    if ((mark >= own) | (any != 0)) st_shared_u32(own_stop, 1);
                });
                fence_proxy_async_shared(); /* ordinary stores, read by wgmma */
                mbarrier_arrive(full + 8 * stage);
                if (c < range.quiet && range.zero) {
                    window_bound(s, packet, base + AT_BOUND + 16 * c, base + AT_LARGEST + 4 * c);
                    named_barrier_sync(s.bar, 128);
                    if (within == 0 && window_far(range.quiet, base)) {
                        atomicMax(drop, cut_mark(p, base));
                        atom_add_shared(any_stop, 1);
                        st_shared_u32(own_stop, 1);
                    }
                    named_barrier_sync(s.bar, 128);
                }
                if (within == 0) mbarrier_arrive(empty + 8 * stage); /* its own reads */
                KDA_HOOK(p, KDA_AT_PACKET, c);
            }
            cp_async_wait<0>();
        }
        settle(p);
    }
}

brim_status brim_kda_launch_split(const kda_params &p, int64_t n_slot, cudaStream_t stream,
                                  brim_error *err)
{
    return KDA_LAUNCH(brim_kda_split_sm90,
                      kda_shape(n_slot * p.n_value_head, 1, N_THREAD, SMEM_BYTES, false));
}
