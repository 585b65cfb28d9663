/* SPDX-License-Identifier: Apache-2.0
 * How a KDA prefill is cut into segments that run at once (docs/kernels/kda_split.md). A pure
 * function of host-known numbers. Results depend on length and window and on nothing else of the
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
enum { BRIM_KDA_SPLIT_MAX_LENGTH = 1 << 24 }; /* rows are counted in 32 bits */

struct brim_kda_split_plan {
    int length, window; /* chunks; 1 <= window <= length; 0: exact, no windows */
    int64_t n_slot;     /* segments, some of a packed call's empty: the grid is n_slot x heads */
    bool join;          /* tasks that may not be cut are joined from their segments' maps */
    /* Bytes from the start of the split's own workspace, which begins with the records: a state a
     * task; with `join` a segment's map and the state it writes, each a state in size. */
    size_t state_at, map_at, written_at;
    size_t workspace_bytes; /* all of it, behind the serial route's */
};

/* n_row: rows of all sequences; max_tok: of the longest. length 0: chosen for n_processor SMs, one
 * CTA each; window 0: chosen. */
struct brim_kda_split_plan brim_kda_split_plan_make(int64_t n_seq, int64_t n_row, int64_t max_tok,
                                                    int64_t n_value_head, bool packed,
                                                    int64_t n_processor, int length, int window);
/* The same segments and windows; a task whose cuts fail is joined instead of computed serially. */
void brim_kda_split_plan_join(struct brim_kda_split_plan *plan, int64_t n_seq,
                              int64_t n_value_head);
/* No windows: every segment's incoming state is joined. length 0: chosen, one segment a sequence
 * where the joins would cost more than they save. */
struct brim_kda_split_plan brim_kda_split_plan_exact(int64_t n_seq, int64_t n_row, int64_t max_tok,
                                                     int64_t n_value_head, bool packed,
                                                     int64_t n_processor, int length);
/* Time of the exact chain in us on an H200: the maps, the joins one after the other, the outputs,
 * by constants fitted to measured times (kda_route_table.h). n_segment: of all sequences together;
 * n_most: of the longest. */
double brim_kda_split_cost_exact(int64_t n_seq, int64_t n_segment, int64_t n_most,
                                 int64_t n_value_head, int64_t n_processor, int length);
/* Lengths that a caller pins, 0 for none. */
brim_status brim_kda_split_check(int length, int window, brim_error *err);
/* Time of the plan's launch in units of one chunk in one CTA, the model that chooses the length. */
double brim_kda_split_cost(int64_t n_segment, int64_t n_processor, int length, int window);

#ifdef __cplusplus
}
#endif
#endif
