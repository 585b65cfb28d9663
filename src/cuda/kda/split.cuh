/* SPDX-License-Identifier: Apache-2.0
 * Segments of sequences as the split route numbers them, and what a segment leaves.
 *
 * A slot is a segment's number over the whole call. With X = 32 length tokens, sequence n begins at
 * slot n ceil(n_tok / X) in a fixed batch, and at floor(cu_seqlens[n] / X) + n in a packed one: at
 * least as many slots lie before the next sequence's as this one has segments, so that every CTA
 * finds its segment from the offsets alone. */
#ifndef BRIM_CUDA_KDA_SPLIT_CUH
#define BRIM_CUDA_KDA_SPLIT_CUH

#include "cuda/kda/params.cuh"
#include "cuda/ptx/copy.cuh"

BRIM_DEVICE int64_t kda_first_slot(const kda_params &p, int64_t seq)
{
    /* fewer than 2^31 rows, which the launcher has checked: no 64-bit division */
    uint32_t x = (uint32_t)p.cuts.length * KDA_CHUNK;
    return p.offset_bytes ? (uint32_t)kda_offset(p, seq) / x + seq
                          : seq * (((uint32_t)p.n_tok + x - 1) / x);
}

/* The sequence whose slots hold `slot`. */
BRIM_DEVICE int64_t kda_slot_seq(const kda_params &p, int64_t slot)
{
    int64_t low = 0, high = p.n_seq; /* first_slot(low) <= slot < first_slot(high) */
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (kda_first_slot(p, middle) <= slot)
            low = middle;
        else
            high = middle;
    }
    return low;
}

BRIM_DEVICE float *kda_record(const kda_params &p, int64_t slot, int head)
{
    return p.cuts.record + (slot * p.n_value_head + head) * KDA_RECORD_FLOATS;
}

/* Nonzero once a cut of the task has failed, whatever an earlier launch left: then it is computed
 * serially, which is right in any case. */
BRIM_DEVICE uint32_t *kda_drop_word(const kda_params &p, const kda_task &t)
{
    int64_t task = (int64_t)t.seq * p.n_value_head + t.head;
    return p.control + task * (KDA_CONTROL_BYTES / 4) + KDA_DROP_LINE * (KDA_LINE / 4);
}

/* Of a joined call: nonzero where the task's cuts hold and nothing is left to do; the map launch
 * writes it for the two behind it. */
BRIM_DEVICE uint32_t *kda_verdict_word(const kda_params &p, const kda_task &t)
{
    return kda_drop_word(p, t) + 1;
}

/* The task becomes its chunks [begin, end). */
BRIM_DEVICE void kda_task_narrow(const kda_params &p, kda_task &t, int begin, int end)
{
    int64_t skip = (int64_t)begin * KDA_CHUNK;
    t.q += skip * p.q_stride.token;
    t.k += skip * p.k_stride.token;
    t.v += skip * p.v_stride.token;
    t.out += skip * p.out_stride.token;
    t.g += skip * p.g_stride.token * (p.g_f32 ? 4 : 2);
    t.beta += skip * p.beta_stride.token * (p.beta_f32 ? 4 : 2);
    t.n_tok = min(t.n_tok, end * KDA_CHUNK) - (int)skip;
    t.n_chunk = end - begin;
}

#endif
