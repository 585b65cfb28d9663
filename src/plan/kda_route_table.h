/* SPDX-License-Identifier: Apache-2.0
 * Measured times of KDA's routes. The table is written by tools/kda_route_table.py from the
 * committed results; a route that was not measured has no rows. Their order means nothing. */
#ifndef BRIM_PLAN_KDA_ROUTE_TABLE_H
#define BRIM_PLAN_KDA_ROUTE_TABLE_H

#include <stdint.h>

#include "plan/kda_route.h"

/* Serial routes: `n_task` sequences times heads of `chunks` chunks each. Split: `chunks` that one
 * processor works through, windows included, over all waves; n_task is 1. */
struct brim_kda_time {
    int32_t route, chunks, n_task;
    float us;
};

extern const struct brim_kda_time brim_kda_times[];
extern const int brim_kda_n_time;
/* Of the GPU that was measured; others have no times. */
extern const int brim_kda_table_processors;
/* The shortest sequences for which the split route was measured. */
extern const int brim_kda_split_least_tokens;

#endif
