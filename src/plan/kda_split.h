/* SPDX-License-Identifier: Apache-2.0
 * How a KDA prefill is cut into segments that run at once (docs/kernels/kda_split.md). A pure
 * function of host-known numbers. Results depend on the three lengths and on nothing else of the
 * plan or the machine. */
#ifndef BRIM_PLAN_KDA_SPLIT_H
#define BRIM_PLAN_KDA_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BRIM_KDA_CHUNK = 32 }; /* tokens */
enum { BRIM_KDA_SPLIT_MAX_WINDOW = 8 };
enum { BRIM_KDA_SPLIT_MAX_LENGTH = 1 << 26 }; /* rows are counted in 31 bits */

/* What is cut. */
struct brim_kda_split_call {
    int64_t n_seq, n_row, max_tok; /* rows of all sequences; tokens of the longest */
    int64_t n_value_head;
    bool packed;
    int64_t n_processor;       /* SMs, one CTA each */
    int length, first, window; /* pinned by the caller; 0: chosen, `first` with `length` alone */
};

struct brim_kda_split_plan {
    /* Chunks of a segment, of a sequence's first one, of a window: 1 <= window <= length <= first;
     * window 0: exact, there are none. The first segment has no window, and where there are more
     * segments than processors it may be longer: others then work through several short ones. */
    int length, first, window;
    int64_t n_slot; /* segments, some of a packed call's empty: the grid is n_slot x heads */
    int64_t chunks; /* that the busiest processor works through, windows included */
    bool join;      /* tasks that may not be cut are joined from their segments' maps */
    /* Bytes from the start of the split's own workspace, which begins with the records: a state a
     * task; with `join` a segment's map and the state it writes, each a state in size. */
    size_t state_at, map_at, written_at;
    size_t workspace_bytes; /* all of it, behind the serial route's */
};

/* First chunk of a sequence's segment: kda_cut (src/cuda/kda/split.cuh) on the host. */
static inline int64_t brim_kda_split_cut(const struct brim_kda_split_plan *plan, int64_t index)
{
    return index > 0 ? plan->first + (index - 1) * plan->length : 0;
}

struct brim_kda_split_plan brim_kda_split_plan_make(const struct brim_kda_split_call *call);
/* The same segments and windows; a task whose cuts fail is joined instead of computed serially. */
void brim_kda_split_plan_join(struct brim_kda_split_plan *plan, int64_t n_seq,
                              int64_t n_value_head);
/* No windows: every segment's incoming state is joined. Where the joins would cost more than they
 * save, one segment a sequence is chosen. */
struct brim_kda_split_plan brim_kda_split_plan_exact(const struct brim_kda_split_call *call);
/* Time of the exact chain in us on an H200: the maps, the joins one after the other, the outputs,
 * by constants fitted to measured times (kda_route_table.h). n_segment: of all sequences together;
 * n_most: of the longest. */
double brim_kda_split_cost_exact(int64_t n_seq, int64_t n_segment, int64_t n_most,
                                 int64_t n_value_head, int64_t n_processor, int length);
/* Lengths that a caller pins, 0 for none. */
brim_status brim_kda_split_check(int length, int first, int window, brim_error *err);
/* When the last of n_processor is done that take n_first CTAs of `first` each, then n_rest of
 * `rest`, as they come free. */
int64_t brim_kda_split_load(int64_t n_processor, int64_t n_first, int64_t first, int64_t n_rest,
                            int64_t rest);

#ifdef __cplusplus
}
#endif
#endif
