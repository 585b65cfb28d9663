/* SPDX-License-Identifier: Apache-2.0
 * Exact join, second launch: the states at a task's cuts, in order, S_(p+1) = M_p S_p + B_p in
 * fp32. Eight CTAs a task, 16 value columns each, which need nothing of each other. S_p stays in
 * shared memory as [128 K][16 V]; the next segment's map arrives while this one is multiplied. A
 * thread sums 4 channels x 2 value columns, one channel of S after the other on top of B: the order
 * is fixed, and that of src/cpu/ref/kda_join.c. S_(p+1) replaces B_p. */
#include "cuda/kda/join.cuh"
#include "cuda/kda/launch.cuh"
#include "cuda/ptx/copy.cuh"

enum { N_THREAD = 256, N_COLUMN = 16, N_BLOCK = 128 / N_COLUMN };
enum { MAP_BYTES = 65536, AT_STATE = 2 * MAP_BYTES, SMEM_BYTES = AT_STATE + 128 * N_COLUMN * 4 };

/* Element (v, k) of the task's initial state, as kda_state_load reads it. */
BRIM_DEVICE float initial_at(const kda_params &p, const kda_task &t, int v, int k)
{
    int64_t slot = p.state_index ? p.state_index[t.seq] : t.seq;
    if (!p.initial || (p.state_index && (slot < 0 || slot >= p.n_slot)) ||
        (p.fresh && p.fresh[t.seq]))
        return 0;
    int64_t i =
        slot * p.state_stride + (int64_t)t.head * 16384 + (p.k_first ? k * 128 + v : v * 128 + k);
    return p.state_f32 ? ((const float *)p.initial)[i]
                       : __bfloat162float(((const __nv_bfloat16 *)p.initial)[i]);
}

static __global__ void __launch_bounds__(N_THREAD, 1)
    brim_kda_join_sm90(const __grid_constant__ kda_params p)
{
    extern __shared__ char raw[];
    float *state = (float *)(raw + AT_STATE);
    int tid = threadIdx.x, first = (int)(blockIdx.x % N_BLOCK) * N_COLUMN;
    unsigned task = blockIdx.x / N_BLOCK;
    kda_task t = kda_task_of(p, task / (unsigned)p.n_value_head, task % (unsigned)p.n_value_head);
    KDA_HOOK(p, KDA_AT_BEHIND, 0);
    griddepcontrol_wait();
    KDA_HOOK(p, KDA_AT_WAITED, 0);
    griddepcontrol_launch_dependents();
    uint32_t *words = kda_cut_words(p, t.seq, t.head);
    if (first == 0 && tid == 0) kda_cuts_clear(words);
    if (ld_relaxed_gpu(words + KDA_CUT_KEPT)) return;
    float *start = kda_start(p, t);
    for (int i = tid; i < N_COLUMN * 128; i += N_THREAD) {
        int v = first + (i >> 7), k = i & 127;
        start[v * 128 + k] = initial_at(p, t, v, k);
    }
    int64_t slot = kda_first_slot(p, t.seq);
    int n_map = (t.n_chunk + p.cuts.length - 1) / p.cuts.length - 2;
    if (n_map <= 0) return; /* the first segment's state is already what the second starts from */

    uint32_t maps = smem_u32(raw);
    auto fetch = [&](int q) {
        if (q <= n_map) {
            const char *from = (const char *)kda_segment_map(p, slot + q, t.head) + tid * 16;
            uint32_t to = maps + (q & 1) * MAP_BYTES + tid * 16;
#pragma unroll 4
            for (int i = 0; i < MAP_BYTES / 16 / N_THREAD; i++)
                cp_async_16(to + i * 16 * N_THREAD, from + i * 16 * N_THREAD);
        }
        cp_async_commit();
    };
    fetch(1);
    const float *behind = kda_segment_written(p, slot, t.head) + first * 128;
    for (int i = tid; i < N_COLUMN * 128; i += N_THREAD)
        state[(i & 127) * N_COLUMN + (i >> 7)] = behind[i];
    /* a warp: 32 channels x 8 value columns */
    int warp = tid >> 5, lane = tid & 31;
    int k = (warp & 3) * 32 + (lane & 7) * 4, v = (warp >> 2) * 8 + (lane >> 3) * 2;
#pragma unroll 1
    for (int q = 1; q <= n_map; q++) {
        fetch(q + 1);
        float *written = kda_segment_written(p, slot + q, t.head) + (first + v) * 128 + k;
        float4 x = *(const float4 *)written, y = *(const float4 *)(written + 128);
        cp_async_wait<1>();
        __syncthreads(); /* everybody's part of the map and of the state is there */
        const float *map = (const float *)(raw + (q & 1) * MAP_BYTES) + k;
#pragma unroll 8
        for (int j = 0; j < 128; j++) {
            float4 m = *(const float4 *)(map + j * 128);
            float2 s = *(const float2 *)(state + j * N_COLUMN + v);
            x.x = fmaf(m.x, s.x, x.x), y.x = fmaf(m.x, s.y, y.x);
            x.y = fmaf(m.y, s.x, x.y), y.y = fmaf(m.y, s.y, y.y);
            x.z = fmaf(m.z, s.x, x.z), y.z = fmaf(m.z, s.y, y.z);
            x.w = fmaf(m.w, s.x, x.w), y.w = fmaf(m.w, s.y, y.w);
        }
        *(float4 *)written = x;
        *(float4 *)(written + 128) = y;
        __syncthreads(); /* everybody has read both */
        *(float2 *)(state + (k + 0) * N_COLUMN + v) = make_float2(x.x, y.x);
        *(float2 *)(state + (k + 1) * N_COLUMN + v) = make_float2(x.y, y.y);
        *(float2 *)(state + (k + 2) * N_COLUMN + v) = make_float2(x.z, y.z);
        *(float2 *)(state + (k + 3) * N_COLUMN + v) = make_float2(x.w, y.w);
    }
    cp_async_wait<0>();
}

brim_status brim_kda_launch_join(const kda_params &p, cudaStream_t stream, brim_error *err)
{
    return BRIM_LAUNCH(brim_kda_join_sm90,
                       kda_shape(p.n_seq * p.n_value_head * N_BLOCK, 1, N_THREAD, SMEM_BYTES, true),
                       stream, p, err);
}
