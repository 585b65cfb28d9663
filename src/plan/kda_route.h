/* SPDX-License-Identifier: Apache-2.0
 * Which schedule a KDA prefill takes on a GPU. A pure function of host-known numbers: sequences,
 * rows, heads, processors. Packed input decides by its aggregates alone; lengths never come back
 * from the device. The automatic choice leaves m128 only inside regions measured on that kind of
 * processor. */
#ifndef BRIM_PLAN_KDA_ROUTE_H
#define BRIM_PLAN_KDA_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "brim/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum brim_kda_route {
    BRIM_KDA_ROUTE_M128 = 0,
    BRIM_KDA_ROUTE_M64,
    BRIM_KDA_ROUTE_C4_M128,
    BRIM_KDA_ROUTE_C4_M64,
    BRIM_KDA_ROUTE_C5_M64,
    BRIM_KDA_ROUTE_C6_M64,
    BRIM_KDA_ROUTE_C8_M128,
    BRIM_KDA_ROUTE_N
};

/* Tasks a workspace has control words for; owner-helper routes take no more. */
enum { BRIM_KDA_MAX_TASK = 256 };

struct brim_kda_route_info {
    const char *name;
    int cluster, owners, helpers, instances, depth; /* depth 0: no ring */
};

extern const struct brim_kda_route_info brim_kda_routes[BRIM_KDA_ROUTE_N];

/* Bytes of workspace of a route for so many tasks; 0 where nothing is needed. */
size_t brim_kda_route_workspace(enum brim_kda_route route, int64_t n_task);
/* Where a split call's own workspace begins: behind a serial route's, and behind the control words
 * in any case. */
size_t brim_kda_route_workspace_front(size_t route_bytes);
/* `forced` is a route's name or NULL. n_tok_total counts the rows of all sequences. bounded: the
 * gate has a lower bound; not every region was measured without one. */
brim_status brim_kda_route_choose(int64_t n_seq, int64_t n_tok_total, int64_t n_value_head,
                                  bool packed, bool bounded, int64_t n_processor,
                                  const char *forced, enum brim_kda_route *route,
                                  brim_kda_plan *plan, brim_error *err);

#ifdef __cplusplus
}
#endif
#endif
