/* SPDX-License-Identifier: Apache-2.0
 * How a KDA prefill is cut into segments that run at once (docs/kernels/kda_split.md). A pure
 * function of host-known numbers. Results depend on length and window and on nothing else of the
 * plan or the machine. */
#ifndef BRIM_PLAN_KDA_SPLIT_H
#define BRIM_PLAN_KDA_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BRIM_KDA_SPLIT_MAX_WINDOW = 8 };

struct brim_kda_split_plan {
    int length, window; /* chunks of 32 tokens; 1 <= window <= length */
    int64_t n_slot;     /* segments, some of a packed call's empty: the grid is n_slot x heads */
    size_t workspace_bytes; /* of records and final states, behind the serial route's */
};

/* n_row: rows of all sequences; max_tok: of the longest. length 0: chosen for n_processor SMs, one
 * CTA each; window 0: chosen. */
struct brim_kda_split_plan brim_kda_split_plan_make(int64_t n_seq, int64_t n_row, int64_t max_tok,
                                                    int64_t n_value_head, bool packed,
                                                    int64_t n_processor, int length, int window);
/* Time of the plan's launch in units of one chunk in one CTA, the model that chooses the length. */
double brim_kda_split_cost(int64_t n_segment, int64_t n_processor, int length, int window);

#ifdef __cplusplus
}
#endif
#endif
