/* SPDX-License-Identifier: Apache-2.0
 * Measured times of KDA's routes, written by tools/kda_route_table.py from the committed results. A
 * route that was not measured has no rows. */
#ifndef BRIM_PLAN_KDA_ROUTE_TABLE_H
#define BRIM_PLAN_KDA_ROUTE_TABLE_H

#include <stdint.h>

#include "plan/kda_route.h"

/* A serial route: n_task sequences times heads of `chunks` chunks each, in n_wave waves of what
 * runs at once. Rows ascend by route, waves, chunks, tasks. */
struct brim_kda_time {
    int16_t route, n_wave;
    int32_t chunks, n_task;
    float us;
};

/* Route split: a batch of equal sequences, the plan's lengths, and the chunks that the busiest
 * processor works through, windows included, by which rows ascend. */
struct brim_kda_split_time {
    int32_t n_seq, n_tok, n_head, length, first, window, chunks;
    float us;
};

/* The exact chain: its maps' and its outputs' launch take chunk_us a chunk of a segment and
 * fixed_us for each wave of CTAs, every join behind the other join_us, the call call_us more.
 * Measured of sequences of so many chunks. */
struct brim_kda_join_cost {
    double chunk_us, fixed_us, join_us, call_us;
    int32_t least_chunks, most_chunks;
};

extern const struct brim_kda_join_cost brim_kda_join_cost;
extern const struct brim_kda_time brim_kda_times[];
extern const int brim_kda_n_time;
extern const struct brim_kda_split_time brim_kda_split_times[];
extern const int brim_kda_n_split_time;
/* Of the GPU that was measured; others have no times. */
extern const int brim_kda_table_processors;
/* The shortest sequences for which the split route was measured. */
extern const int brim_kda_split_least_tokens;

#endif
