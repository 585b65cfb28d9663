/* SPDX-License-Identifier: Apache-2.0
 * Exact join, last launch: one CTA a (segment, value head), m128's with its task moved to the
 * segment, from the incoming state that the join has left. It writes outputs, checkpoints and, the
 * last segment's, the final state. Where a task's cuts held, only a final state that replaces the
 * initial one is left to be moved to its place. */
#include "cuda/kda/advance.cuh"
#include "cuda/kda/finish.cuh"
#include "cuda/kda/join.cuh"
#include "cuda/kda/launch.cuh"

template <bool bounded>
static __global__ void __launch_bounds__(KDA_PART_THREAD, 1)
    brim_kda_out_sm90(const __grid_constant__ kda_params p)
{
    extern __shared__ char raw[];
    uint32_t base = (smem_u32(raw) + 1023) & ~1023u;
    uint32_t full = base + KDA_PART_BARRIER, empty = full + 8 * KDA_PART_STAGE;
    int tid = threadIdx.x, begin, end;
    int head = (int)(blockIdx.x % (unsigned)p.n_value_head);
    uint32_t slot = blockIdx.x / (unsigned)p.n_value_head;
    kda_task t = kda_slot_task(p, slot, head, &begin, &end);
    if (begin < 0 || (begin > 0 && begin >= t.n_chunk))
        return; /* an empty sequence still has a final state */
    KDA_HOOK(p, KDA_AT_BEHIND, 0);
    griddepcontrol_wait();
    KDA_HOOK(p, KDA_AT_WAITED, 0);
    kda_joined range;
    range.chunk0 = begin;
    range.last = end >= t.n_chunk;
    if (ld_relaxed_gpu(kda_cut_words(p, t.seq, t.head) + KDA_CUT_KEPT)) {
        if (range.last) kda_move_final(p, t.seq, t.head, tid);
        return;
    }
    if (tid >= 256 && begin == 0) kda_zero_tail(p, t.seq, t.head, tid - 256, 256);
    range.from = begin ? kda_segment_written(p, slot - kda_slot_step(p), head) : kda_start(p, t);
    kda_task_narrow(p, t, begin, min(end, t.n_chunk));
    kda_part_barriers(full, empty, tid);
    if (tid < 256) {
        setmaxnreg_inc<160>();
        kda_advance<KDA_PART_STAGE, false, false>(p, t, range, base, full, empty, kda_panels(),
                                                  tid >> 7, tid & 127);
    } else {
        setmaxnreg_dec<96>();
        kda_part_feed<bounded>(p, t, base, full, empty, tid - 256);
    }
}

brim_status brim_kda_launch_out(const kda_params &p, int64_t n_slot, cudaStream_t stream,
                                brim_error *err)
{
    return KDA_LAUNCH(brim_kda_out_sm90,
                      kda_shape(n_slot * p.n_value_head, 1, KDA_PART_THREAD, KDA_PART_SMEM, true));
}
