/* SPDX-License-Identifier: Apache-2.0
 * Route split: the CTA of m128 for every (segment, value head) instead of every (sequence, value
 * head). A segment starts from the state that the window of chunks before it writes from zero; what
 * that forgets is bounded from the window's packets, and a second launch, the serial route's
 * kernel, decides from all bounds and norms of a task: it keeps the segments' results or computes
 * the task anew (split.cuh). A CTA whose window does not forget marks the task and stops; so do the
 * task's other CTAs when they see the mark. Stopping is passing the packets on without work. */
#include "cuda/kda/advance.cuh"
#include "cuda/kda/launch.cuh"
#include "cuda/kda/prepare.cuh"
#include "cuda/kda/split.cuh"

enum { N_STAGE = 3, N_INSTANCE = 2, N_THREAD = 512 };
enum {
    AT_WORK = N_STAGE * KDA_PACKET_BYTES,
    AT_BARRIER = AT_WORK + N_INSTANCE * KDA_FULL_BYTES,
    AT_STOP = AT_BARRIER + 2 * N_STAGE * 8, /* words: a stage each, an instance each, whole CTA */
    AT_BOUND = AT_STOP + 4 * (N_STAGE + N_INSTANCE + 1),    /* how many, then a float a chunk */
    SMEM_BYTES = AT_BOUND + 4 * (1 + KDA_MAX_WINDOW) + 1024 /* the stages are aligned by hand */
};
static_assert(SMEM_BYTES <= 232448, "more shared memory than a block can have");

/* max gamma + sum |kr_r| |w_r| over the packet's rows, four threads a row: the four warps' shares
 * into record[0..3]. Rows are as small as e^-160, and squares below 2^-149 are lost: each sum
 * begins with more than its roundings there can lose, so that a norm is never below the row's. */
BRIM_DEVICE void window_bound(const kda_prep &s, uint32_t packet, float *record)
{
    named_barrier_sync(s.bar, 128); /* the packet is complete */
    int row = s.tid >> 2, quarter = s.tid & 3;
    float kr = KDA_SQUARES_LOST, w = KDA_SQUARES_LOST;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t at = kda_panel_at(row, quarter * 4 + i);
        uint4 a = ld_shared_v4(packet + KDA_PACKET_KR + at),
              b = ld_shared_v4(packet + KDA_PACKET_W + at);
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
    float sum = sqrtf(kr) * sqrtf(w);
#pragma unroll
    for (int i = 4; i < 32; i <<= 1) sum += __shfl_xor_sync(0xFFFFFFFF, sum, i);
    int warp = s.tid >> 5, lane = s.tid & 31;
    if (warp == 0) {
        float4 g = ld_shared_v4_f32(packet + KDA_PACKET_GAMMA + lane * 16);
        float largest = fmaxf(fmaxf(g.x, g.y), fmaxf(g.z, g.w));
#pragma unroll
        for (int i = 16; i > 0; i >>= 1)
            largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFF, largest, i));
        sum += largest;
    }
    if (lane == 0) record[warp] = sum * 1.001f; /* more than these sums can lose */
}

/* One thread, after the record's shares of chunk c are written: the last chunk of the window to
 * come here decides. true: the window does not forget. */
BRIM_DEVICE bool window_far(const kda_segment &range, uint32_t bounds, int c)
{
    const volatile float *share = range.record + KDA_RECORD_BOUND + 4 * c;
    st_shared_f32(bounds + 4 + 4 * c, share[0] + share[1] + share[2] + share[3]);
    __threadfence_block();
    if (atom_add_shared(bounds, 1) != (uint32_t)range.quiet - 1) return false;
    float product = 1;
    for (int i = 0; i < range.quiet; i++) product *= ld_shared_f32(bounds + 4 + 4 * i);
    return !(product <= KDA_FORGOTTEN);
}

template <bool bounded>
static __global__ void __launch_bounds__(N_THREAD, 1)
    brim_kda_split_sm90(const __grid_constant__ kda_params p)
{
    extern __shared__ char raw[];
    uint32_t base = (smem_u32(raw) + 1023) & ~1023u;
    uint32_t full = base + AT_BARRIER, empty = full + 8 * N_STAGE, stop = base + AT_STOP;
    int tid = threadIdx.x, head = (int)(blockIdx.x % (unsigned)p.n_value_head);
    int64_t slot = blockIdx.x / (unsigned)p.n_value_head, seq = kda_slot_seq(p, slot);
    kda_task t = kda_task_of(p, seq, head);
    int begin = (int)(slot - kda_first_slot(p, seq)) * p.cuts.length;
    if (tid >= 256 && begin == 0) kda_zero_tail(p, t, tid - 256, 256);
    if (begin >= t.n_chunk) return;
    int end = min(begin + p.cuts.length, t.n_chunk);
    bool last = end == t.n_chunk;
    kda_segment range;
    range.chunk0 = begin > 0 ? max(begin - p.cuts.window, 0) : 0;
    range.quiet = begin - range.chunk0;
    range.last = last;
    range.mark = last ? -1 : end - p.cuts.window - range.chunk0;
    range.zero = range.chunk0 > 0;
    range.record = kda_record(p, slot, head);
    range.final =
        last && p.cuts.state ? p.cuts.state + (seq * p.n_value_head + head) * 16384 : nullptr;
    range.stop = stop;
    kda_task_narrow(p, t, range.chunk0, end); /* window and segment */

    if (tid == 0) {
        for (int i = 0; i < N_STAGE; i++) {
            mbarrier_init(full + 8 * i, 128);
            mbarrier_init(empty + 8 * i, 8);
        }
        for (uint32_t at = stop; at < base + AT_BOUND + 4; at += 4) st_shared_u32(at, 0);
        fence_mbarrier_init();
    }
    __syncthreads();
    griddepcontrol_launch_dependents();

    if (tid < 256) {
        setmaxnreg_inc<160>();
        kda_advance<N_STAGE, false, false>(p, t, range, base, full, empty, kda_panels(), tid >> 7,
                                           tid & 127);
    } else {
        setmaxnreg_dec<96>();
        int instance = (tid - 256) >> 7, within = tid & 127;
        if (instance < t.n_chunk) {
            typedef kda_full_of<bounded> layout;
            kda_prep s;
            kda_prep_init<layout>(p, t, s, base + AT_WORK + instance * KDA_FULL_BYTES, 1 + instance,
                                  within, instance);
            uint32_t own_stop = stop + 4 * (N_STAGE + instance),
                     any_stop = stop + 4 * (N_STAGE + N_INSTANCE);
            uint32_t *drop = kda_drop_word(p, t);
            uint32_t dropped = 0; /* by another segment; read a chunk ahead of its use */
            for (int c = instance; c < t.n_chunk; c += N_INSTANCE) {
                int stage = c % N_STAGE, use = c / N_STAGE;
                uint32_t packet = base + stage * KDA_PACKET_BYTES;
                auto wait_stage = [&] {
                    if (use > 0) mbarrier_wait(empty + 8 * stage, (use - 1) & 1);
                };
                if (within == 0) {
                    if (dropped) st_shared_u32(any_stop, 1);
                    st_shared_u32(own_stop, dropped | ld_shared_u32(any_stop));
                    dropped = ld_relaxed_gpu(drop);
                }
                named_barrier_sync(s.bar, 128);
                if (ld_shared_u32(own_stop)) {
                    wait_stage();
                    if (within == 0) st_shared_u32(stop + 4 * stage, 1);
                    named_barrier_sync(s.bar, 128);
                    mbarrier_arrive(full + 8 * stage);
                    break;
                }
                kda_prepare<layout>(p, t, s, c, c + N_INSTANCE, packet, wait_stage);
                if (c < range.quiet && range.zero) {
                    window_bound(s, packet, range.record + KDA_RECORD_BOUND + 4 * c);
                    named_barrier_sync(s.bar, 128);
                    if (within == 0 && window_far(range, base + AT_BOUND, c)) {
                        *(volatile uint32_t *)drop = 1;
                        st_shared_u32(any_stop, 1);
                    }
                }
                /* the packet was written by ordinary stores and is read by wgmma */
                fence_proxy_async_shared();
                mbarrier_arrive(full + 8 * stage);
            }
            cp_async_wait<0>();
        }
    }
}

brim_status brim_kda_launch_split(const kda_params &p, int64_t n_slot, cudaStream_t stream,
                                  brim_error *err)
{
    return KDA_LAUNCH(brim_kda_split_sm90,
                      kda_shape(n_slot * p.n_value_head, 1, N_THREAD, SMEM_BYTES, false));
}
