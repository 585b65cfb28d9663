/* SPDX-License-Identifier: Apache-2.0
 * What the KDA kernels receive, and one task's addresses on the device. */
#ifndef BRIM_CUDA_KDA_PARAMS_CUH
#define BRIM_CUDA_KDA_PARAMS_CUH

#include <cuda_bf16.h>

#include "brim/kernels.h"
#include "cuda/kda/layout.h"
#include "cuda/ptx/math.cuh"

/* Places where a test program delays or watches a kernel: it defines KDA_HOOK before it includes
 * the kernel's source. The product has nothing there. */
enum kda_point {
    KDA_AT_CHUNK = 0, /* a consumer warp before the products of a chunk */
    KDA_AT_FIRST,     /* a preparing thread before its first chunk */
    KDA_AT_PACKET,    /* ... with its part of a packet written */
    KDA_AT_EPOCH,     /* ... with the mailbox's epoch in hand, once (rings) */
    KDA_AT_PUBLISH,   /* the publishing lane, the store under way */
    KDA_AT_LOAD,      /* a loading lane before it looks for the packet */
    KDA_AT_ACK,       /* an acknowledging lane, the load complete */
    KDA_AT_END,       /* a consumer warp, final state stored */
    KDA_AT_START,     /* a thread of a segment's CTA: its first instruction */
    KDA_AT_READY,     /* ... with the task found and the barriers set up */
    KDA_AT_BEHIND,    /* a thread of a launch behind the segments: its first instruction */
    KDA_AT_WAITED,    /* ... with the segments complete */
    KDA_AT_VERDICT,   /* ... with the verdict known */
    KDA_AT_SETTLED,   /* a thread of a segment's first instance, its record counted */
    KDA_AT_FOUND,     /* a thread of a segment's CTA, the task found */
    KDA_AT_ASKED      /* ... the first rows on their way */
};
#ifndef KDA_HOOK
#define KDA_HOOK(p, point, chunk) ((void)(p), (void)(chunk))
#endif

/* A sequence cut into segments (split.cu): what the launch that runs them leaves for the launch
 * that finishes. */
struct kda_cuts {
    float *record; /* [slot][n_value_head][KDA_RECORD_FLOATS]; null: not split */
    float *state;  /* [sequence][n_value_head][128 V][128 K]: final states, when they replace the
                      initial ones */
    /* chunks of a segment, those that a sequence's first has more, of a window */
    int length, lead, window;
    /* For the join, each [128][128] f32: initial states [sequence][n_value_head] and what a segment
     * makes of the identity and of zero, [slot][n_value_head]; `written` becomes the state behind
     * the segment. Rows are value columns, the map's columns too. */
    float *start, *map, *written;
    int exact; /* no windows have run: every task is joined */
};

struct kda_params {
    const __nv_bfloat16 *q, *k, *v;
    const void *g, *beta;
    __nv_bfloat16 *out;
    brim_kda_stride q_stride, k_stride, v_stride, g_stride, out_stride, beta_stride;
    int64_t n_seq, n_tok;
    int n_value_head, head_group; /* value heads a query head serves */
    const void *cu_seqlens;
    int offset_bytes; /* 0: fixed batch */
    int gate, g_f32, beta_f32, beta_logit, l2norm;
    float lower_bound, scale;
    uint32_t zero;       /* 0, which the compiler does not know */
    float inverse_bound; /* 1 / (lower_bound log2 e) */
    int mid;             /* exponent split off the column factors: 58 at a bound of -5 */
    const float *a_log, *dt_bias;
    const void *initial;
    void *final;
    char *checkpoints;
    int64_t state_stride;
    int state_f32, k_first;
    const int32_t *state_index;
    int64_t n_slot;
    const uint8_t *fresh;
    uint32_t
        *control; /* workspace: words, one line of 128 bytes a task and kind; null without a ring */
    char *ring;
    kda_cuts cuts;
};

struct kda_task {
    const __nv_bfloat16 *q, *k, *v;
    const char *g, *beta;
    __nv_bfloat16 *out;
    int64_t row0;
    int n_tok, n_chunk;
    int seq, head;
};

BRIM_DEVICE int64_t kda_offset(const kda_params &p, int64_t i)
{
    int64_t at = p.offset_bytes == 4 ? ((const int32_t *)p.cu_seqlens)[i]
                                     : ((const int64_t *)p.cu_seqlens)[i];
    return at < 0         ? 0
           : at > p.n_tok ? p.n_tok
                          : at; /* bad offsets must not read outside the rows */
}

/* The place'th longest of up to 32 packed sequences (of equal ones the first): their tasks start in
 * that order, because the last to start ends the launch. Whole warps call it. */
BRIM_DEVICE int kda_nth_longest(const kda_params &p, int place)
{
    int lane = threadIdx.x & 31, n = (int)p.n_seq, length = -1, before = 0;
    if (!p.offset_bytes || p.n_seq > 32) return place;
    if (lane < n) length = (int)(kda_offset(p, lane + 1) - kda_offset(p, lane));
    for (int i = 0; i < n; i++) {
        int other = __shfl_sync(0xFFFFFFFFu, length, i);
        before += other > length || (other == length && i < lane);
    }
    return __ffs((int)__ballot_sync(0xFFFFFFFFu, lane < n && before == place)) - 1;
}

/* Chunks of a sequence. */
BRIM_DEVICE int kda_chunks_of(const kda_params &p, int64_t seq)
{
    int64_t n_tok = p.n_tok;
    if (p.offset_bytes) n_tok = kda_offset(p, seq + 1) - kda_offset(p, seq);
    return n_tok > 0 ? (int)(((uint32_t)n_tok + KDA_CHUNK - 1) / KDA_CHUNK) : 0;
}

/* Its rows from the skip'th on, its counts and row0 those of the whole sequence. */
BRIM_DEVICE kda_task kda_task_of(const kda_params &p, int64_t seq, int64_t head, uint32_t skip = 0)
{
    kda_task t;
    t.seq = (int)seq;
    t.head = (int)head;
    int64_t n_tok = p.n_tok, batch = t.seq;
    t.row0 = 0;
    if (p.offset_bytes) {
        int64_t begin = kda_offset(p, t.seq), end = kda_offset(p, t.seq + 1);
        t.row0 = begin;
        n_tok = end > begin ? end - begin : 0;
        batch = 0;
    }
    /* numbers below 2^31, which a product with a stride need not take for more */
    uint32_t v_head = (uint32_t)head;
    uint32_t q_head = p.head_group == 1 ? v_head : v_head / (uint32_t)p.head_group;
    uint32_t b = (uint32_t)batch, row = (uint32_t)t.row0 + skip;
    t.n_tok = (int)n_tok;
    t.n_chunk = (int)(((uint32_t)t.n_tok + KDA_CHUNK - 1) / KDA_CHUNK);
    auto at = [&](const brim_kda_stride &s, uint32_t h) {
        return b * s.batch + row * s.token + h * s.head;
    };
    t.q = p.q + at(p.q_stride, q_head);
    t.k = p.k + at(p.k_stride, q_head);
    t.v = p.v + at(p.v_stride, v_head);
    t.out = p.out + at(p.out_stride, v_head);
    t.g = (const char *)p.g + at(p.g_stride, v_head) * (p.g_f32 ? 4 : 2);
    t.beta = (const char *)p.beta + at(p.beta_stride, v_head) * (p.beta_f32 ? 4 : 2);
    return t;
}

/* The task that starts at place `task`. Whole warps call it. */
BRIM_DEVICE kda_task kda_task_make(const kda_params &p, int task)
{
    int place = task / p.n_value_head;
    return kda_task_of(p, kda_nth_longest(p, place), task - place * p.n_value_head);
}

/* Rows behind the last packed offset: zeros, by the threads of the last sequence's tasks. */
BRIM_DEVICE void kda_zero_tail(const kda_params &p, int seq, int head, int tid, int n_thread)
{
    if (!p.offset_bytes || seq != p.n_seq - 1) return;
    int64_t begin = kda_offset(p, p.n_seq);
    __nv_bfloat16 *out = p.out + (int64_t)head * p.out_stride.head;
    for (int64_t i = begin * 16 + tid; i < p.n_tok * 16; i += n_thread)
        *(uint4 *)(out + (i >> 4) * p.out_stride.token + (i & 15) * 8) = make_uint4(0, 0, 0, 0);
}

#endif
