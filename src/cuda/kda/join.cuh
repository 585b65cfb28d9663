/* SPDX-License-Identifier: Apache-2.0
 * What the launches of the exact join share (docs/kernels/kda_split.md): map.cu makes every
 * segment's map and what it writes, join.cu the states at the cuts from them, out.cu the outputs.
 * map.cu and out.cu have m128's CTA, with its shared memory, for one segment. */
#ifndef BRIM_CUDA_KDA_JOIN_CUH
#define BRIM_CUDA_KDA_JOIN_CUH

#include "cuda/kda/prepare.cuh"
#include "cuda/kda/split.cuh"

enum { KDA_PART_STAGE = 3, KDA_PART_INSTANCE = 2, KDA_PART_THREAD = 512 };
enum {
    KDA_PART_WORK = KDA_PART_STAGE * KDA_PACKET_BYTES,
    KDA_PART_BARRIER = KDA_PART_WORK + KDA_PART_INSTANCE * KDA_FULL_BYTES,
    KDA_PART_SMEM = KDA_PART_BARRIER + 2 * KDA_PART_STAGE * 8 + 1024 /* aligned by hand */
};
static_assert(KDA_PART_SMEM <= 232448, "more shared memory than a block can have");

BRIM_DEVICE float *kda_segment_map(const kda_params &p, int64_t slot, int head)
{
    return p.cuts.map + (slot * p.n_value_head + head) * 16384;
}

BRIM_DEVICE float *kda_segment_written(const kda_params &p, int64_t slot, int head)
{
    return p.cuts.written + (slot * p.n_value_head + head) * 16384;
}

BRIM_DEVICE float *kda_start(const kda_params &p, const kda_task &t)
{
    return p.cuts.start + ((int64_t)t.seq * p.n_value_head + t.head) * 16384;
}

/* The segment of slot `slot`: its whole task and its chunks [begin, end), which may lie behind the
 * task's end or, where offsets fall, before its beginning. Whole warps call it. */
BRIM_DEVICE kda_task kda_slot_task(const kda_params &p, uint32_t slot, int head, int *begin,
                                   int *end)
{
    kda_place at = kda_place_of(p, slot);
    *begin = kda_cut(p, at.index);
    *end = kda_cut(p, at.index + 1);
    return kda_task_of(p, at.seq, head);
}

BRIM_DEVICE void kda_part_barriers(uint32_t full, uint32_t empty, int tid)
{
    if (tid == 0) {
        for (int i = 0; i < KDA_PART_STAGE; i++) {
            mbarrier_init(full + 8 * i, 128);
            mbarrier_init(empty + 8 * i, 8);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
}

/* Warps 8-15: the packets of the task's chunks, two instances in turn. tid: 0..255. */
template <bool bounded>
BRIM_DEVICE void kda_part_feed(const kda_params &p, const kda_task &t, uint32_t base, uint32_t full,
                               uint32_t empty, int tid)
{
    typedef kda_full_of<bounded> layout;
    int instance = tid >> 7;
    if (instance >= t.n_chunk) return;
    kda_prep s;
    kda_prep_init<layout>(p, t, s, base + KDA_PART_WORK + instance * KDA_FULL_BYTES, 1 + instance,
                          tid & 127, instance);
    for (int c = instance; c < t.n_chunk; c += KDA_PART_INSTANCE) {
        int stage = c % KDA_PART_STAGE, use = c / KDA_PART_STAGE;
        kda_prepare<layout>(p, t, s, c, c + KDA_PART_INSTANCE, base + stage * KDA_PACKET_BYTES,
                            [&] {
                                if (use > 0) mbarrier_wait(empty + 8 * stage, (use - 1) & 1);
                            });
        KDA_HOOK(p, KDA_AT_PACKET, c);
        /* the packet was written by ordinary stores and is read by wgmma */
        fence_proxy_async_shared();
        mbarrier_arrive(full + 8 * stage);
    }
}

#endif
