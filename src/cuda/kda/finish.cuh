/* SPDX-License-Identifier: Apache-2.0
 * What a serial route's kernel does first when segments have run before it: where the cuts of a
 * task hold, move a final state that replaces the initial one to its place, and end. It has a word
 * to read and little code before it, all on the way of a call whose cuts hold. */
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

/* Segments have run before this launch: is there nothing left to do? All threads of all CTAs of the
 * task call it (`sync` is their barrier, `lead` one CTA of 512 threads); it waits for the launch
 * before. */
template <class Sync>
BRIM_DEVICE bool kda_finish(const kda_params &p, int64_t seq, int head, bool lead, int tid,
                            Sync sync)
{
    KDA_HOOK(p, KDA_AT_BEHIND, 0);
    uint32_t *words = kda_cut_words(p, seq, head);
    griddepcontrol_wait();
    KDA_HOOK(p, KDA_AT_WAITED, 0);
    bool kept = kda_cuts_kept(words);
    KDA_HOOK(p, KDA_AT_VERDICT, 0);
    if (kept) {
        if (lead && p.cuts.state && p.final) kda_move_final(p, seq, head, tid);
    } else {
        sync(); /* everybody has read the words */
        if (lead && tid == 0) kda_cuts_clear(words);
    }
    return kept;
}

#endif
