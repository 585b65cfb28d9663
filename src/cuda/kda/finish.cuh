/* SPDX-License-Identifier: Apache-2.0
 * What a serial route's kernel does first when segments have run before it: where the cuts of a
 * task hold, move a final state that replaces the initial one to its place, and end; where one
 * fails, take up the task from the segment before that. It has a word to read and little code
 * before it, all on the way of a call whose cuts hold. */
#ifndef BRIM_CUDA_KDA_FINISH_CUH
#define BRIM_CUDA_KDA_FINISH_CUH

#include "cuda/kda/split.cuh"
#include "cuda/ptx/copy.cuh"

BRIM_DEVICE void kda_final_store(const kda_params &p, int64_t at, float4 x)
{
    if (p.state_f32) {
        *(float4 *)((float *)p.final + at) = x;
    } else {
        uint2 packed = make_uint2(bf16x2_pack(x.x, x.y), bf16x2_pack(x.z, x.w));
        *(uint2 *)((__nv_bfloat16 *)p.final + at) = packed;
    }
}

/* The task's final state from where its last segment put it; 512 threads, the last word first. */
static __device__ __noinline__ void kda_move_final(const kda_params &p, int64_t seq, int head,
                                                   int tid)
{
    int64_t slot = p.state_index ? p.state_index[seq] : seq;
    if (!p.cuts.state || !p.final || (p.state_index && (slot < 0 || slot >= p.n_slot))) return;
    const float *from = p.cuts.state + (seq * p.n_value_head + head) * 16384;
    int64_t at = slot * p.state_stride + (int64_t)head * 16384;
    float4 x[8];
    if (p.k_first) { /* [k][v] from [v][k] */
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int k = i * 16 + (tid >> 5), v = (tid & 31) * 4;
            x[i] = make_float4(from[v * 128 + k], from[v * 128 + 128 + k], from[v * 128 + 256 + k],
                               from[v * 128 + 384 + k]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = *(const float4 *)(from + (i * 512 + tid) * 4);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) kda_final_store(p, at + (i * 512 + tid) * 4, x[i]);
}

/* Segments have run before this launch: the chunk from which the task is left to be done, or -1 if
 * it is done. All threads of all CTAs of the task call it (`sync` is their barrier, `lead` one CTA
 * of 512 threads); it waits for the launch before. */
template <class Sync>
BRIM_DEVICE int kda_finish(const kda_params &p, int64_t seq, int head, bool lead, int tid,
                           Sync sync)
{
    KDA_HOOK(p, KDA_AT_BEHIND, 0);
    uint32_t *words = kda_cut_words(p, seq, head);
    griddepcontrol_wait();
    KDA_HOOK(p, KDA_AT_WAITED, 0);
    uint32_t kept = kda_cuts_kept(words);
    KDA_HOOK(p, KDA_AT_VERDICT, 0);
    if (kept == KDA_KEEP_ALL) {
        if (lead && p.cuts.state && p.final) kda_move_final(p, seq, head, tid);
        return -1;
    }
    sync(); /* everybody has read the words */
    if (lead && tid == 0) kda_cuts_clear(words);
    return max((int)kept - 1, 0);
}

/* What a serial route's kernel computes of a task: all, or behind segments what they have left. */
template <bool behind> struct kda_span_of {
    typedef kda_whole type;
};
template <> struct kda_span_of<true> {
    typedef kda_rest type;
};

/* The task that starts at place `task`. Whole warps call it. Not behind segments, so that the
 * branch is never taken: without it ptxas moves what t needs into the roles behind it (three times
 * the spills in m128), and without the return in it schedules their loops worse. */
template <class Sync>
BRIM_DEVICE bool kda_task_start(const kda_params &p, kda_task &t, kda_whole &, int task, bool lead,
                                int tid, Sync sync)
{
    t = kda_task_make(p, task);
    return !(p.cuts.record && kda_finish(p, t.seq, t.head, lead, tid, sync) < 0);
}

/* What segments have left of it. false: nothing. */
template <class Sync>
BRIM_DEVICE bool kda_task_start(const kda_params &p, kda_task &t, kda_rest &range, int task,
                                bool lead, int tid, Sync sync)
{
    int place = task / p.n_value_head, seq = kda_nth_longest(p, place);
    int head = task - place * p.n_value_head;
    int begin = kda_finish(p, seq, head, lead, tid, sync);
    if (begin < 0) return false;
    begin = kda_uniform(begin);
    t = kda_task_of(p, seq, head, (uint32_t)begin * KDA_CHUNK);
    t.n_tok -= begin * KDA_CHUNK;
    t.n_chunk -= begin;
    range.chunk0 = begin;
    range.quiet = begin > 0 ? p.cuts.window : 0;
    return true;
}

#endif
