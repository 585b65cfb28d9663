/* SPDX-License-Identifier: Apache-2.0
 * Exact join, second launch: the states at a task's cuts, in order, S_(p+1) = M_p S_p + B_p in
 * fp32. Eight CTAs a task, 16 value columns each, which need nothing of each other. S_p stays in
 * shared memory as [128 K][16 V]; the next segment's map arrives while this one is multiplied. A
 * thread sums 4 channels x 4 value columns, one channel of S after the other on top of B: the order
 * is fixed, and that of src/cpu/ref/kda_join.c. S_(p+1) replaces B_p. Reading a map's channel takes
 * a warp four cycles of shared memory, whatever it is multiplied with: hence four columns a thread.
 */
#include "cuda/kda/join.cuh"
#include "cuda/kda/launch.cuh"
#include "cuda/ptx/copy.cuh"

enum { N_THREAD = 128, N_COLUMN = 16, N_BLOCK = 128 / N_COLUMN };
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

/* Four value columns from v on of S's channel k: neighbours in k are apart in their banks. */
BRIM_DEVICE float4 *state_at(float *state, int k, int v)
{
    return (float4 *)(state + k * N_COLUMN + (v ^ (k & 12)));
}

BRIM_DEVICE void add_product(float4 &sum, const float4 &m, float s)
{
    sum.x = fmaf(m.x, s, sum.x);
    sum.y = fmaf(m.y, s, sum.y);
    sum.z = fmaf(m.z, s, sum.z);
    sum.w = fmaf(m.w, s, sum.w);
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
    int64_t slot = kda_slot(p, t.seq, 0), step = kda_slot_step(p);
    int n_map = kda_n_segment(p, t.n_chunk) - 2;
    if (n_map <= 0) return; /* the first segment's state is already what the second starts from */

    uint32_t maps = smem_u32(raw);
    auto fetch = [&](int q) {
        if (q <= n_map) {
            const char *from = (const char *)kda_segment_map(p, slot + q * step, t.head) + tid * 16;
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
        ((float *)state_at(state, i & 127, i >> 7 & 12))[i >> 7 & 3] = behind[i];
    /* a warp: 128 channels x 4 value columns */
    int k = (tid & 31) * 4, v = (tid >> 5) * 4;
#pragma unroll 1
    for (int q = 1; q <= n_map; q++) {
        fetch(q + 1);
        float *written = kda_segment_written(p, slot + q * step, t.head) + (first + v) * 128 + k;
        float4 x = *(const float4 *)written, y = *(const float4 *)(written + 128);
        float4 z = *(const float4 *)(written + 256), w = *(const float4 *)(written + 384);
        cp_async_wait<1>();
        __syncthreads(); /* everybody's part of the map and of the state is there */
        const float *map = (const float *)(raw + (q & 1) * MAP_BYTES) + k;
#pragma unroll 8
        for (int j = 0; j < 128; j++) {
            float4 m = *(const float4 *)(map + j * 128), s = *state_at(state, j, v);
            add_product(x, m, s.x);
            add_product(y, m, s.y);
            add_product(z, m, s.z);
            add_product(w, m, s.w);
        }
        *(float4 *)written = x;
        *(float4 *)(written + 128) = y;
        *(float4 *)(written + 256) = z;
        *(float4 *)(written + 384) = w;
        __syncthreads(); /* everybody has read both */
        *state_at(state, k + 0, v) = make_float4(x.x, y.x, z.x, w.x);
        *state_at(state, k + 1, v) = make_float4(x.y, y.y, z.y, w.y);
        *state_at(state, k + 2, v) = make_float4(x.z, y.z, z.z, w.z);
        *state_at(state, k + 3, v) = make_float4(x.w, y.w, z.w, w.w);
    }
    cp_async_wait<0>();
}

brim_status brim_kda_launch_join(const kda_params &p, cudaStream_t stream, brim_error *err)
{
    return BRIM_LAUNCH(brim_kda_join_sm90,
                       kda_shape(p.n_seq * p.n_value_head * N_BLOCK, 1, N_THREAD, SMEM_BYTES, true),
                       stream, p, err);
}
