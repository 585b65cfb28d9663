/* SPDX-License-Identifier: Apache-2.0
 * What a preparation instance (128 threads) works on: access to its shared memory, the arrangements
 * of layout.h as types, and the asynchronous loads that fill its tiles. */
#ifndef BRIM_CUDA_KDA_TILE_CUH
#define BRIM_CUDA_KDA_TILE_CUH

#include "cuda/kda/params.cuh"
#include "cuda/ptx/copy.cuh"

/* The arrangements of an instance's memory, layout.h, for gates with a bound, where G has anchors
 * that depend on the bound alone, and for those without (free.cuh): a launcher takes the form that
 * p.lower_bound < 0 tells, since neither computes the other's gates. twin: k and v have two tiles;
 * lean: the packet lies over q and g. rows, columns: where those of the pair products lie; early:
 * that is in the packet, where W and Z will be, so that the next chunk's q and g are fetched
 * meanwhile; else in q's and g's tiles. */
template <bool has_bound> struct kda_full_of {
    static constexpr bool lean = false, twin = true, bounded = has_bound, early = has_bound;
    static constexpr int q = KDA_FULL_Q, k = KDA_FULL_K, g = KDA_FULL_G, v = KDA_FULL_V;
    static constexpr int rows = early ? KDA_PACKET_Z : q, columns = early ? KDA_PACKET_W : g;
    static constexpr int small = KDA_FULL_SMALL;
};

template <bool has_bound> struct kda_lean_of {
    static constexpr bool lean = true, twin = false, bounded = has_bound, early = false;
    static constexpr int q = KDA_LEAN_Q, k = KDA_LEAN_K, g = KDA_LEAN_G, v = KDA_LEAN_V;
    static constexpr int rows = q, columns = g;
    static constexpr int small = KDA_LEAN_SMALL;
};

template <bool has_bound> struct kda_apart_of {
    static constexpr bool lean = false, twin = false, bounded = has_bound, early = has_bound;
    static constexpr int q = KDA_APART_Q, k = KDA_APART_K, g = KDA_APART_G, v = KDA_APART_V;
    static constexpr int rows = early ? KDA_PACKET_Z : q, columns = early ? KDA_PACKET_W : g;
    static constexpr int small = KDA_APART_SMALL;
};

/* State of an instance between chunks. */
struct kda_prep {
    uint32_t work; /* shared memory of the instance */
    uint32_t bar;  /* its named barrier */
    int tid;       /* 0..127 */
    int flip;      /* which k and v tile and which beta the current chunk uses */
    /* exponent of the sigmoid of channel 4 lane + i is gate_mul * raw + gate_add[i]; softplus:
     * log2 e * raw + gate_add[i], and the result times gate_mul */
    float gate_mul, gate_add[4];
};

/* What `rows` and `columns` count from. */
template <class L> BRIM_DEVICE uint32_t kda_pair_tiles(const kda_prep &s, uint32_t packet)
{
    return L::early ? packet : s.work;
}

/* A thread's pieces of a tile's rows, n_row rows apart, those past the end as zeros (their
 * addresses are formed, not read). */
template <int n_row>
BRIM_DEVICE void kda_load_part(uint32_t to, const __nv_bfloat16 *from, int64_t stride, int row,
                               int n_valid)
{
#pragma unroll 1
    for (int i = 0; i < 32 / n_row; i++) {
        cp_async_16((to ^ (i * n_row & 7) << 4) + i * n_row * 256, from, row + n_row * i < n_valid);
        from += n_row * stride;
    }
}

/* The same by 128 threads, out of the way of those who load whole tiles at a kernel's start. */
static __device__ __noinline__ void kda_load_part_first(uint32_t to, const __nv_bfloat16 *from,
                                                        int64_t stride, int row, int n_valid)
{
    kda_load_part<8>(to, from, stride, row, n_valid);
}

/* One [32][128] bf16 tile by n_thread threads, rows past the end as zeros. first: at a kernel's
 * start, 128 threads. */
template <int n_thread, bool first>
BRIM_DEVICE void kda_load_tile(uint32_t tile, const __nv_bfloat16 *src, int64_t stride, int n_valid,
                               int tid)
{
    constexpr int n_row = n_thread / 16;
    int row = tid >> 4, piece = tid & 15;
    uint32_t to = tile + kda_tile_at(row, piece); /* n_row rows on, bits of the swizzle flip */
    opaque(stride); /* its multiples are not worth registers across chunks */
    const __nv_bfloat16 *from = src + row * stride + piece * 8;
    if (__builtin_expect(n_valid >= KDA_CHUNK, 1)) {
#pragma unroll
        for (int i = 0; i < 32 / n_row; i++) {
            cp_async_16((to ^ (i * n_row & 7) << 4) + i * n_row * 256, from);
            from += n_row * stride;
        }
        return;
    }
    if constexpr (first)
        kda_load_part_first(to, from, stride, row, n_valid);
    else
        kda_load_part<n_row>(to, from, stride, row, n_valid);
}

/* One warp, lane = token: the bits of beta as it is stored, zero past the end. Nothing is done with
 * them here, so that whoever has other loads to issue does not wait. */
BRIM_DEVICE uint32_t kda_load_beta(const kda_params &p, const kda_task &t, int chunk, int lane)
{
    int64_t row = (int64_t)chunk * KDA_CHUNK + lane;
    if (row >= t.n_tok) return 0;
    return p.beta_f32 ? ((const uint32_t *)t.beta)[row * p.beta_stride.token]
                      : ((const uint16_t *)t.beta)[row * p.beta_stride.token];
}

/* The same as a number, after the sigmoid, to its place. */
template <class L>
BRIM_DEVICE void kda_store_beta(const kda_params &p, const kda_task &t, int chunk,
                                const kda_prep &s, int flip, int lane, uint32_t bits)
{
    float beta = __uint_as_float(p.beta_f32 ? bits : bits << 16);
    if (p.beta_logit) beta = rcp_approx(1 + ex2_approx(beta * -1.4426950408889634f));
    if (chunk * KDA_CHUNK + lane >= t.n_tok) beta = 0;
    st_shared_f32(s.work + L::small + KDA_SMALL_BETA + flip * 128 + lane * 4, beta);
}

/* k and v of a chunk into tile `flip`, by n_thread threads, asynchronously. The caller commits. */
template <class L, int n_thread, bool first = false>
BRIM_DEVICE void kda_fetch_kv(const kda_params &p, const kda_task &t, int chunk, const kda_prep &s,
                              int flip, int tid)
{
    if (chunk >= t.n_chunk) return;
    int64_t row = (int64_t)chunk * KDA_CHUNK;
    int n_valid = t.n_tok - chunk * KDA_CHUNK;
    kda_load_tile<n_thread, first>(s.work + L::k + flip * KDA_TILE, t.k + row * p.k_stride.token,
                                   p.k_stride.token, n_valid, tid);
    if (L::lean && !L::bounded) return; /* v's tile is in use until kda_fetch_v */
    kda_load_tile<n_thread, first>(s.work + L::v + flip * KDA_TILE, t.v + row * p.v_stride.token,
                                   p.v_stride.token, n_valid, tid);
}

/* v alone. */
template <class L, int n_thread>
BRIM_DEVICE void kda_fetch_v(const kda_params &p, const kda_task &t, int chunk, const kda_prep &s,
                             int tid)
{
    int64_t row = (int64_t)chunk * KDA_CHUNK;
    kda_load_tile<n_thread, false>(s.work + L::v, t.v + row * p.v_stride.token, p.v_stride.token,
                                   t.n_tok - chunk * KDA_CHUNK, tid);
}

/* q and (unless it is read as fp32) g. */
template <class L, int n_thread, bool first = false>
BRIM_DEVICE void kda_fetch_qg(const kda_params &p, const kda_task &t, int chunk, const kda_prep &s,
                              int tid)
{
    if (chunk >= t.n_chunk) return;
    int64_t row = (int64_t)chunk * KDA_CHUNK;
    int n_valid = t.n_tok - chunk * KDA_CHUNK;
    kda_load_tile<n_thread, first>(s.work + L::q, t.q + row * p.q_stride.token, p.q_stride.token,
                                   n_valid, tid);
    if (!p.g_f32)
        kda_load_tile<n_thread, first>(s.work + L::g,
                                       (const __nv_bfloat16 *)t.g + row * p.g_stride.token,
                                       p.g_stride.token, n_valid, tid);
}

template <class L, bool first = false>
BRIM_DEVICE void kda_prefetch(const kda_params &p, const kda_task &t, int chunk, const kda_prep &s,
                              int flip)
{
    kda_fetch_kv<L, 128, first>(p, t, chunk, s, flip, s.tid);
    kda_fetch_qg<L, 128, first>(p, t, chunk, s, s.tid);
    cp_async_commit();
}

/* What an instance reads into registers at its start, on its way from memory: the head's gate
 * parameters and the first chunk's beta. */
struct kda_first {
    float a_log, dt_bias[4];
    uint32_t beta;
};

/* All that an instance reads at its start is asked for before any of it is used: each is a first
 * look at a page of memory, and they would be waited for one after the other. Where four instances
 * share a processor each begins with another warp of its own, so that their inverses, one warp's
 * work each, fall to different schedulers; where two do that makes nothing faster. */
template <class L>
BRIM_DEVICE kda_first kda_prep_ask(const kda_params &p, const kda_task &t, kda_prep &s,
                                   uint32_t work, uint32_t bar, int tid, int first_chunk)
{
    s.work = work;
    s.bar = bar;
    if (L::lean) tid = (tid + 32 * (int)bar) & 127;
    s.tid = tid;
    s.flip = 0;
    kda_first first;
    first.a_log = p.a_log ? p.a_log[t.head] : 0.0f;
#pragma unroll
    for (int e = 0; e < 4; e++)
        first.dt_bias[e] = p.dt_bias ? p.dt_bias[t.head * 128 + 4 * (tid & 31) + e] : 0.0f;
    kda_prefetch<L, true>(p, t, first_chunk, s, 0);
    first.beta = tid < 32 ? kda_load_beta(p, t, first_chunk, tid) : 0;
    return first;
}

template <class L>
BRIM_DEVICE void kda_prep_begin(const kda_params &p, const kda_task &t, kda_prep &s,
                                const kda_first &first, int first_chunk)
{
    const float log2e = 1.4426950408889634f;
    float a = __expf(first.a_log);
    s.gate_mul = L::bounded ? -a * log2e : -a;
#pragma unroll
    for (int e = 0; e < 4; e++)
        s.gate_add[e] = first.dt_bias[e] * (L::bounded ? s.gate_mul : log2e);
    if (s.tid < 32) kda_store_beta<L>(p, t, first_chunk, s, 0, s.tid, first.beta);
}

template <class L>
BRIM_DEVICE void kda_prep_init(const kda_params &p, const kda_task &t, kda_prep &s, uint32_t work,
                               uint32_t bar, int tid, int first_chunk)
{
    kda_first first = kda_prep_ask<L>(p, t, s, work, bar, tid, first_chunk);
    kda_prep_begin<L>(p, t, s, first, first_chunk);
}

#endif
