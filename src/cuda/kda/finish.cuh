/* SPDX-License-Identifier: Apache-2.0
 * What a serial route's kernel does first when segments have run before it: decide whether a task's
 * cuts hold, and if so end. The larger parts are not inlined: their registers would crowd those of
 * the kernel. */
#ifndef BRIM_CUDA_KDA_FINISH_CUH
#define BRIM_CUDA_KDA_FINISH_CUH

#include "cuda/kda/split.cuh"
#include "cuda/ptx/copy.cuh"

/* Do all cuts of the task hold (docs/numerics.md, "Forgetting")? For whole warps; every warp gets
 * the same answer. A segment's window forgets at most bound |S| of the state S before it. */
static __device__ __noinline__ bool kda_cuts_hold(const kda_params &p, const kda_task &t, int lane)
{
    int n_segment = (t.n_chunk + p.cuts.length - 1) / p.cuts.length;
    bool hold = t.n_chunk > 0 && *(volatile uint32_t *)kda_drop_word(p, t) == 0;
    int64_t slot = kda_first_slot(p, t.seq);
    for (int s = 1 + lane; hold && s < n_segment; s += 32) {
        const float *own = kda_record(p, slot + s, t.head),
                    *last = kda_record(p, slot + s - 1, t.head);
        if (s * p.cuts.length <= p.cuts.window) continue; /* begins with the sequence */
        float bound = 1, wrote = 0, before = 0;
#pragma unroll
        for (int i = 0; i < 8; i += 4) {
            float4 x = *(const float4 *)(own + KDA_RECORD_WROTE + i);
            float4 y = *(const float4 *)(last + KDA_RECORD_BEFORE + i);
            wrote += x.x + x.y + x.z + x.w;
            before += y.x + y.y + y.z + y.w;
        }
        /* apart from the bound, which may fall below the smallest number where this does not */
        float left = sqrtf(before);
        for (int w = 0; w < p.cuts.window; w++) {
            float4 share = *(const float4 *)(own + KDA_RECORD_BOUND + 4 * w);
            float chunk = share.x + share.y + share.z + share.w;
            bound *= chunk;
            left *= chunk;
        }
        /* written so that NaN fails */
        hold = bound <= KDA_FORGOTTEN && left <= KDA_FORGOTTEN * sqrtf(wrote);
    }
    return __all_sync(0xFFFFFFFF, hold);
}

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
static __device__ __noinline__ void kda_move_final(const kda_params &p, const kda_task &t, int tid)
{
    int64_t slot = p.state_index ? p.state_index[t.seq] : t.seq;
    if (!p.cuts.state || !p.final || (p.state_index && (slot < 0 || slot >= p.n_slot))) return;
    const float *from = p.cuts.state + ((int64_t)t.seq * p.n_value_head + t.head) * 16384;
    int64_t at = slot * p.state_stride + (int64_t)t.head * 16384;
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
BRIM_DEVICE bool kda_finish(const kda_params &p, const kda_task &t, bool lead, int tid, Sync sync)
{
    griddepcontrol_wait();
    bool hold = kda_cuts_hold(p, t, tid & 31);
    sync(); /* everybody has read the word */
    if (lead && tid == 0) *kda_drop_word(p, t) = 0;
    if (lead && hold) kda_move_final(p, t, tid);
    return hold;
}

#endif
