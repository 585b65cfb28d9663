/* SPDX-License-Identifier: Apache-2.0
 * Kimi Delta Attention on the CPU: the specification (fp64 token recurrence), the chunked form, and
 * the chunked form with the GPU's roundings. All take arguments that brim_kda_check has passed,
 * with data in host memory. The tasks of a call are its (sequence, value head) pairs; they share
 * nothing, so they may run in any order and on any thread. */
#ifndef BRIM_CPU_KDA_H
#define BRIM_CPU_KDA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/count.h"
#include "base/status.h"
#include "brim/kernels.h"
#include "plan/kda_split.h"

enum { BRIM_KDA_SUB = 16 }; /* tokens of half a chunk */

#define BRIM_KDA_LOG2E 1.4426950408889634

/* One sequence of one value head, addresses resolved. Strides in elements between tokens. */
struct brim_kda_task {
    const uint16_t *q, *k, *v;
    const void *g, *beta;
    uint16_t *out;
    int64_t q_token, k_token, v_token, g_token, beta_token, out_token;
    int64_t n_tok;
    int64_t row0;            /* first row of the sequence in the packed or flattened batch */
    const void *initial;     /* NULL: zero */
    void *final;             /* NULL: not written */
    char *checkpoints;       /* NULL, or where the state after token 64 goes */
    int64_t checkpoint_step; /* bytes to the next one */
    float a_scale;           /* exp(A_log) */
    const float *bias;       /* [128] or NULL */
};

/* Status of the arguments alone: shapes, types, strides, alignment, ranges; for host data also the
 * offsets and, in checked mode, the decay's domain. Never reads device memory. */
brim_status brim_kda_check(const brim_kda_args *args, brim_error *err);
/* Sequence `seq` in [0, n_seq), head in [0, n_value_head). Host memory only. */
void brim_kda_task_make(const brim_kda_args *args, int64_t seq, int64_t head,
                        struct brim_kda_task *task);
/* Chunks of its tokens, the last one cut. */
static inline int64_t brim_kda_n_chunk(const struct brim_kda_task *task)
{
    return brim_ceil_div(task->n_tok, BRIM_KDA_CHUNK);
}
/* The rows behind the last packed offset become zero. */
void brim_kda_zero_tail(const brim_kda_args *args);

/* Decay exponent (natural log, at most 0) of token t, channel i, in double. */
double brim_kda_log_decay(const brim_kda_args *args, const struct brim_kda_task *task, int64_t t,
                          int i);
/* beta of token t after the sigmoid, in double. */
double brim_kda_beta(const brim_kda_args *args, const struct brim_kda_task *task, int64_t t);
/* state[k][v] as float from or to one head's state in the caller's dtype and layout. */
void brim_kda_state_load(const brim_kda_args *args, const void *from, float *state);
void brim_kda_state_store(const brim_kda_args *args, const float *state, void *to);

/* The specification: fp64 throughout on the bf16 inputs. out64 [n_tok][128] and state64 [K][V]
 * receive the unrounded results where not NULL, span64 [n_tok][128] scale |q| |state column|, the
 * size an output could have had (one nearly orthogonal to the state has no relative accuracy); out,
 * final state and checkpoints are written as usual unless `dry`. */
brim_status brim_kda_ref_task(const brim_kda_args *args, const struct brim_kda_task *task, bool dry,
                              double *out64, double *span64, double *state64, brim_error *err);

enum brim_kda_rounding {
    BRIM_KDA_FP32 = 0, /* fp32 throughout, pairwise decays: any gate */
    BRIM_KDA_GPU = 1   /* every rounding of the sm_90a kernels */
};
/* Of every form of brim_kda_chunk_task and of brim_kda_chunk_task_ops. */
size_t brim_kda_chunk_scratch_bytes(void);
/* scratch: brim_kda_chunk_scratch_bytes(), 64-byte aligned. Allocates nothing. */
void brim_kda_chunk_task(const brim_kda_args *args, const struct brim_kda_task *task,
                         enum brim_kda_rounding rounding, void *scratch);

/* Chunks [begin, end) of a task from *state [K][V], which receives the state after them. */
struct brim_kda_range {
    int64_t begin, end;
    bool quiet;   /* write neither output rows nor checkpoints */
    float *state; /* may be the scratch's own */
    /* [end - begin] or NULL: log of a bound on the spectral norm of each chunk's state map (the
     * better of the two of docs/numerics.md), and the Frobenius norm of the state before it. */
    double *log_bound, *norm;
    bool fine; /* products read the state and U as sums of two bf16: a map's error is common to all
                  value columns, where a state's averages over them */
};
void brim_kda_chunk_range(const brim_kda_args *args, const struct brim_kda_task *task,
                          enum brim_kda_rounding rounding, const struct brim_kda_range *range,
                          void *scratch);

/* ---- splitting a sequence (docs/kernels/kda_split.md) ---- */

enum { BRIM_KDA_WINDOW_MAX = 8 };

/* A plan: segments of `length` chunks, the first of `first` (0: length), the last one shorter; each
 * but the first is preceded by a window of `window` chunks (1 .. BRIM_KDA_WINDOW_MAX), or of what
 * there is. */
struct brim_kda_split {
    int64_t length;
    int window;
    int64_t first;
};
/* What became of the cuts. */
struct brim_kda_split_report {
    int64_t n_skipped; /* started from a window's state: what the window forgets is below 2^-24,
                          or the window begins where the sequence does */
    int64_t n_far;     /* the window's map was not small enough */
    int64_t n_small;   /* it was, but the window wrote too little beside the state before it */
};
/* As brim_kda_chunk_task, segment by segment; from the first cut that is not skipped to the end in
 * one. report may be NULL. BRIM_E_NO_MEMORY. */
brim_status brim_kda_split_task(const brim_kda_args *args, const struct brim_kda_task *task,
                                enum brim_kda_rounding rounding, const struct brim_kda_split *split,
                                struct brim_kda_split_report *report, brim_error *err);
/* As brim_kda_chunk_task, over segments of `length` chunks joined by their maps: nothing is
 * skipped. One segment has the serial form's bits. BRIM_E_NO_MEMORY. */
brim_status brim_kda_join_task(const brim_kda_args *args, const struct brim_kda_task *task,
                               enum brim_kda_rounding rounding, int64_t length, brim_error *err);

/* ---- the fp32 form by the kernels of a table (cpu_ops.h) ---- */

enum {
    BRIM_KDA_STRIP = 16,             /* value columns that the kernels take together */
    BRIM_KDA_WORK_BYTES = 352 * 1024 /* of one preparation, 64-byte aligned */
};

/* What preparation gives the recurrence for a chunk: U = Z + w S, O = qd S + Mqk U,
 * S <- gamma S + kr^T U. w is -W of the comments elsewhere. 64-byte aligned. */
struct brim_kda_packet {
    float w[BRIM_KDA_CHUNK][128], qd[BRIM_KDA_CHUNK][128], kr[BRIM_KDA_CHUNK][128];
    float z[BRIM_KDA_CHUNK][128]; /* the columns asked for alone */
    float mqk[BRIM_KDA_CHUNK][BRIM_KDA_CHUNK], gamma[128];
};

/* A state [K][V] as strips of columns, so that what one owner works on is its own memory. */
struct brim_kda_state {
    float strip[128 / BRIM_KDA_STRIP][128][BRIM_KDA_STRIP];
};

/* Columns [begin, end), multiples of BRIM_KDA_STRIP. from NULL: zero; to NULL: nothing. */
void brim_kda_strips_load(const brim_kda_args *args, const void *from, int begin, int end,
                          struct brim_kda_state *state);
void brim_kda_strips_store(const brim_kda_args *args, const struct brim_kda_state *state, int begin,
                           int end, void *to);
/* After chunk `chunk`: the checkpoint, if one is due, of columns [begin, end). */
void brim_kda_strips_checkpoint(const brim_kda_args *args, const struct brim_kda_task *task,
                                int64_t chunk, const struct brim_kda_state *state, int begin,
                                int end);

struct brim_cpu_ops;
/* scratch as for brim_kda_chunk_task. */
void brim_kda_chunk_task_ops(const struct brim_cpu_ops *ops, const brim_kda_args *args,
                             const struct brim_kda_task *task, void *scratch);

/* Whole calls. */
brim_status brim_kda_ref(const brim_kda_args *args, brim_error *err);
brim_status brim_kda_cpu(const brim_kda_args *args, enum brim_kda_rounding rounding,
                         brim_error *err);
/* The fp32 form spread as `plan` says, by args->n_thread threads, be they more or fewer than it was
 * made for. The same bits as any other. */
struct brim_kda_cpu_plan;
brim_status brim_kda_cpu_planned(const brim_kda_args *args, const struct brim_kda_cpu_plan *plan,
                                 brim_error *err);

#endif
