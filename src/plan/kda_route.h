/* SPDX-License-Identifier: Apache-2.0
 * Which schedule a KDA prefill takes on a GPU: a pure function of host-known numbers (sequences,
 * rows, heads, processors), that compares the expected times of all routes. Packed input decides by
 * its aggregates alone; lengths never come back from the device. m128 is taken wherever nothing
 * better was measured. */
#ifndef BRIM_PLAN_KDA_ROUTE_H
#define BRIM_PLAN_KDA_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "brim/kernels.h"
#include "plan/kda_split.h"

#ifdef __cplusplus
extern "C" {
#endif

enum brim_kda_route {
    BRIM_KDA_ROUTE_M128 = 0,
    BRIM_KDA_ROUTE_M64,
    BRIM_KDA_ROUTE_PAIR,
    BRIM_KDA_ROUTE_QUEUE,
    BRIM_KDA_ROUTE_C4_M128,
    BRIM_KDA_ROUTE_C4_M64,
    BRIM_KDA_ROUTE_C5_M64,
    BRIM_KDA_ROUTE_C6_M64,
    BRIM_KDA_ROUTE_C8_M128,
    BRIM_KDA_ROUTE_N, /* those above are serial: a sequence's chunks one after the other, one
                         kernel, the same bits. Those below run segments; what must not be cut a
                         serial route computes (split), or it is joined from their maps. */
    BRIM_KDA_ROUTE_SPLIT = BRIM_KDA_ROUTE_N,
    BRIM_KDA_ROUTE_JOIN,
    BRIM_KDA_ROUTE_ALL
};

/* Tasks (sequences times value heads) a workspace has control words for. */
enum { BRIM_KDA_MAX_TASK = 256 };

/* All that is known of a route; its times are in kda_route_table.c, if it was measured. */
struct brim_kda_route_info {
    const char *name;
    /* CTAs of a task's cluster (of a segment's, below BRIM_KDA_ROUTE_N), those with state, those
     * that prepare for them; instances of preparation; packets of the ring, 0: none. */
    int cluster, owners, helpers, instances, depth;
    bool behind;         /* serial: has a kernel that finishes what segments have left of a task */
    const char *by_name; /* NULL: may be chosen; else why it is taken by name alone */
};

/* Routes are listed, and looked at, in this order; tools/kda_route_table.py reads the rows too. */
extern const struct brim_kda_route_info brim_kda_routes[BRIM_KDA_ROUTE_ALL];

/* Does it take at most BRIM_KDA_MAX_TASK tasks? Those with control words do: rings and the split.
 */
bool brim_kda_route_limited(int route);
/* Bytes of workspace of a serial route for so many tasks; 0 where nothing is needed. */
size_t brim_kda_route_workspace(enum brim_kda_route route, int64_t n_task);
/* Where a split call's own workspace begins: behind a serial route's, and behind the control words
 * in any case. */
size_t brim_kda_route_workspace_front(size_t route_bytes);

/* What a call does on the device: the segments first, if any, then the serial route. */
struct brim_kda_schedule {
    enum brim_kda_route route;        /* serial */
    struct brim_kda_split_plan split; /* length 0: no segments */
};

/* The members that brim_kda_plan_gpu names are read; all but the route's name and the lengths of
 * the split must have been checked. */
brim_status brim_kda_schedule_make(const brim_kda_args *args, int64_t n_processor,
                                   struct brim_kda_schedule *schedule, brim_kda_plan *plan,
                                   brim_error *err);

#ifdef __cplusplus
}
#endif
#endif
