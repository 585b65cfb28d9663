/* SPDX-License-Identifier: Apache-2.0
 * Segments of sequences as the split route numbers them, and what a segment leaves.
 *
 * A slot is a segment's number over the whole call. In a fixed batch of N sequences segment i of
 * sequence n is slot i N + n: the first segments, which may be longer, start before all others. In
 * a packed one, with X = 32 length tokens, sequence n begins at slot floor(cu_seqlens[n] / X) + n:
 * at least as many slots lie before the next sequence's as this one has segments, so that every CTA
 * finds its segment from the offsets alone. */
#ifndef BRIM_CUDA_KDA_SPLIT_CUH
#define BRIM_CUDA_KDA_SPLIT_CUH

#include "cuda/kda/params.cuh"
#include "cuda/ptx/copy.cuh"

/* Of a packed batch. */
BRIM_DEVICE int64_t kda_packed_slot(const kda_params &p, int64_t seq)
{
    /* fewer than 2^31 rows, which the launcher has checked: no 64-bit division */
    return (uint32_t)kda_offset(p, seq) / ((uint32_t)p.cuts.length * KDA_CHUNK) + seq;
}

/* The slot of a sequence's segment. */
BRIM_DEVICE int64_t kda_slot(const kda_params &p, int64_t seq, int index)
{
    return p.offset_bytes ? kda_packed_slot(p, seq) + index : index * p.n_seq + seq;
}

/* Slots from a segment to the next of its sequence. */
BRIM_DEVICE int64_t kda_slot_step(const kda_params &p)
{
    return p.offset_bytes ? 1 : p.n_seq;
}

/* First chunk of a sequence's segment, which may lie behind the end. */
BRIM_DEVICE int kda_cut(const kda_params &p, int index)
{
    return index * p.cuts.length + (index > 0 ? p.cuts.lead : 0);
}

/* Segments of a sequence that is not empty. */
BRIM_DEVICE int kda_n_segment(const kda_params &p, int n_chunk)
{
    int rest = max(n_chunk - p.cuts.lead, 1);
    return (int)((uint32_t)(rest + p.cuts.length - 1) / (uint32_t)p.cuts.length);
}

/* Where a segment lies: its sequence, its number there, that sequence's chunks. */
struct kda_place {
    int seq, index, n_chunk;
};

/* Out of the way of a fixed batch, whose first rows are asked for behind this: until then a
 * processor waits for code more than for anything. Offsets that fall may give a number below 0. */
static __device__ __noinline__ kda_place kda_place_packed(const kda_params &p, uint32_t slot)
{
    int64_t low = 0, high = p.n_seq; /* slot of low <= slot < slot of high */
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (kda_packed_slot(p, middle) <= slot)
            low = middle;
        else
            high = middle;
    }
    kda_place at = {(int)low, (int)(slot - kda_packed_slot(p, low)), kda_chunks_of(p, low)};
    return at;
}

/* Of a number that all lanes have: ptxas sees that they have. */
BRIM_DEVICE int kda_uniform(int x)
{
    return (int)__reduce_max_sync(0xFFFFFFFFu, (unsigned)x);
}

/* Whole warps call it. */
BRIM_DEVICE kda_place kda_place_of(const kda_params &p, uint32_t slot)
{
    if (__builtin_expect(p.offset_bytes != 0, 0)) {
        kda_place at = kda_place_packed(p, slot);
        at.seq = kda_uniform(at.seq);
        at.index = kda_uniform(at.index);
        at.n_chunk = kda_uniform(at.n_chunk);
        return at;
    }
    uint32_t n = (uint32_t)p.n_seq, index = n == 1 ? slot : slot / n;
    kda_place at = {(int)(slot - index * n), (int)index,
                    (int)(((uint32_t)p.n_tok + KDA_CHUNK - 1) / KDA_CHUNK)};
    return at;
}

BRIM_DEVICE float *kda_record(const kda_params &p, int64_t slot, int head)
{
    return p.cuts.record + (slot * p.n_value_head + head) * KDA_RECORD_FLOATS;
}

/* Words of a task between the launches of a call, in its control words' last line. Whatever an
 * earlier launch has left in them, a task whose cuts have not been looked at is not kept. */
enum kda_cut_word {
    KDA_CUT_DROP,    /* nonzero: a segment has found a window that does not forget; ~ of its number,
                        ~0 where nothing of the task is worth keeping */
    KDA_CUT_KEEP,    /* 0: the task is computed anew; KDA_KEEP_ALL: its cuts hold, and what its
                        segments wrote is right; else kda_keep_until */
    KDA_CUT_SETTLED, /* segments whose records are complete; whoever finds all others here decides
                        and takes all off; anything but 0 afterwards means that it was not 0 before
                      */
    KDA_CUT_KEPT     /* of a joined call: the verdict, which the first launch that reads the others
                        leaves for those behind it */
};

BRIM_DEVICE uint32_t *kda_cut_words(const kda_params &p, int64_t seq, int head)
{
    return p.control + (seq * p.n_value_head + head) * (KDA_CONTROL_BYTES / 4) +
           KDA_DROP_LINE * (KDA_LINE / 4);
}

/* What is kept where the cut before segment `failed` is the first that does not hold: what the
 * segments before it wrote. The task goes on from the window of the last of them, which gives the
 * same states again: the word is that window's first chunk + 1, or 0 if that is the sequence's. */
static constexpr uint32_t KDA_KEEP_ALL = 1;

BRIM_DEVICE uint32_t kda_keep_until(const kda_params &p, int failed)
{
    int chunk = kda_cut(p, failed - 1) - p.cuts.window;
    return chunk > 0 ? (uint32_t)chunk + 1 : 0;
}

/* KEEP, for the launch behind the segments', waited for. */
BRIM_DEVICE uint32_t kda_cuts_kept(const uint32_t *words)
{
    uint32_t settled = ld_relaxed_gpu(words + KDA_CUT_SETTLED),
             keep = ld_relaxed_gpu(words + KDA_CUT_KEEP);
    return settled == 0 ? keep : 0;
}

/* One thread, when everybody has read them. */
BRIM_DEVICE void kda_cuts_clear(uint32_t *words)
{
    words[KDA_CUT_DROP] = words[KDA_CUT_SETTLED] = 0;
}

/* The task becomes its chunks [begin, end). */
BRIM_DEVICE void kda_task_narrow(const kda_params &p, kda_task &t, int begin, int end)
{
    uint32_t skip = (uint32_t)begin * KDA_CHUNK; /* fewer than 2^31 rows */
    t.q += skip * p.q_stride.token;
    t.k += skip * p.k_stride.token;
    t.v += skip * p.v_stride.token;
    t.out += skip * p.out_stride.token;
    t.g += skip * p.g_stride.token * (p.g_f32 ? 4 : 2);
    t.beta += skip * p.beta_stride.token * (p.beta_f32 ? 4 : 2);
    t.n_tok = min(t.n_tok, end * KDA_CHUNK) - (int)skip;
    t.n_chunk = end - begin;
}

/* The same from its sequence and head at once. */
BRIM_DEVICE kda_task kda_task_part(const kda_params &p, int64_t seq, int head, int begin, int end)
{
    kda_task t = kda_task_of(p, seq, head, (uint32_t)begin * KDA_CHUNK);
    t.n_tok = min(t.n_tok, end * KDA_CHUNK) - begin * KDA_CHUNK;
    t.n_chunk = end - begin;
    return t;
}

#endif
