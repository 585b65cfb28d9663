/* SPDX-License-Identifier: Apache-2.0
 * The table of measured regions and the choice from it. */
#include <stdio.h>
#include <string.h>

#include "plan/kda_route.h"

const struct brim_kda_route_info brim_kda_routes[BRIM_KDA_ROUTE_N] = {
    [BRIM_KDA_ROUTE_M128] = {"m128", 1, 1, 0, 2, 0},
    [BRIM_KDA_ROUTE_M64] = {"m64", 2, 2, 0, 4, 0},
    [BRIM_KDA_ROUTE_C4_M128] = {"c4-m128", 4, 1, 3, 12, 15},
    [BRIM_KDA_ROUTE_C4_M64] = {"c4-m64", 4, 2, 2, 8, 10},
    [BRIM_KDA_ROUTE_C5_M64] = {"c5-m64", 5, 2, 3, 12, 15},
    [BRIM_KDA_ROUTE_C6_M64] = {"c6-m64", 6, 2, 4, 16, 20},
    [BRIM_KDA_ROUTE_C8_M128] = {"c8-m128", 8, 1, 7, 28, 35},
};

/* Mean tokens of a sequence and tasks (sequences times value heads) for which `route` was measured
 * to be faster than m128 on a GPU of n_processor SMs. No row applies to other GPUs. */
struct region {
    int64_t n_processor, min_mean_tok, max_task;
    bool packed, bounded_only;
    enum brim_kda_route route;
};

static const struct region regions[] = {
    /* The routes of ring.cuh are faster still (bench/results/h200/kda_routes.csv: c6-m64 2.5 x at
     * 2048 tokens, 2.9 x at 4096) but taken by name alone until the check with delays has passed:
     * docs/kernels/kda_prefill.md. */
    /* H200, bench/results/h200/kda.csv: 1.6 x at 512 tokens, 2.6 to 3.6 x from 2048 on while the
     * clusters of four (30 at a time) make one wave; 1.1 to 1.6 x in two or three waves */
    {132, 512, 16, false, false, BRIM_KDA_ROUTE_C4_M128},
    {132, 1024, 32, false, false, BRIM_KDA_ROUTE_C4_M128},
    {132, 8192, 64, false, false, BRIM_KDA_ROUTE_C4_M128},
    {132, 1024, 24, true, false, BRIM_KDA_ROUTE_C4_M128},
};

/* The workspace of an owner-helper route: 40 lines of 128 bytes for each of the most tasks, then
 * the packets (src/cuda/kda/layout.h has the same numbers, a unit test compares them). */
enum { CONTROL_BYTES = BRIM_KDA_MAX_TASK * 40 * 128, PACKET_BYTES = 37376 };

size_t brim_kda_route_workspace(enum brim_kda_route route, int64_t n_task)
{
    int depth = brim_kda_routes[route].depth;
    if (depth == 0 || n_task == 0) return 0;
    return CONTROL_BYTES + (size_t)n_task * (size_t)depth * PACKET_BYTES;
}

size_t brim_kda_route_workspace_front(size_t route_bytes)
{
    size_t front = route_bytes > CONTROL_BYTES ? route_bytes : CONTROL_BYTES;
    return (front + 127) / 128 * 128;
}

static bool find_route(const char *name, enum brim_kda_route *route)
{
    for (int i = 0; i < BRIM_KDA_ROUTE_N; i++)
        if (brim_kda_routes[i].name && !strcmp(name, brim_kda_routes[i].name)) {
            *route = (enum brim_kda_route)i;
            return true;
        }
    return false;
}

brim_status brim_kda_route_choose(int64_t n_seq, int64_t n_tok_total, int64_t n_value_head,
                                  bool packed, bool bounded, int64_t n_processor,
                                  const char *forced, enum brim_kda_route *route,
                                  brim_kda_plan *plan, brim_error *err)
{
    BRIM_REQUIRE(err, n_seq >= 0 && n_tok_total >= 0 && n_value_head >= 1, BRIM_E_SHAPE,
                 "kda: a plan needs n_seq and tokens of at least 0 and heads of at least 1");
    int64_t n_task = n_seq * n_value_head;
    int64_t mean = n_seq ? n_tok_total / n_seq : 0;
    const char *reason = "no measured region of this processor covers the shape";

    *route = BRIM_KDA_ROUTE_M128;
    if (forced) {
        BRIM_REQUIRE(err, strcmp(forced, "split") != 0, BRIM_E_UNSUPPORTED,
                     "kda: route split is planned from a call's arguments (brim_kda_plan_make)");
        BRIM_REQUIRE(err, find_route(forced, route), BRIM_E_UNSUPPORTED,
                     "kda: no route is called '%.40s' in this build", forced);
        reason = "named by the caller";
    } else {
        for (size_t i = 0; i < sizeof regions / sizeof *regions; i++) {
            const struct region *region = &regions[i];
            if (region->n_processor == n_processor && n_task <= region->max_task &&
                mean >= region->min_mean_tok && region->packed == packed &&
                (bounded || !region->bounded_only)) {
                *route = region->route;
                reason = "measured faster than m128 for so few tasks";
                break;
            }
        }
    }
    const struct brim_kda_route_info *info = &brim_kda_routes[*route];
    BRIM_REQUIRE(err, !info->depth || n_task <= BRIM_KDA_MAX_TASK, BRIM_E_SHAPE,
                 "kda: route %s takes at most %d tasks, not %lld", info->name, BRIM_KDA_MAX_TASK,
                 (long long)n_task);
    memset(plan, 0, sizeof *plan);
    snprintf(plan->route, sizeof plan->route, "%s", info->name);
    snprintf(plan->reason, sizeof plan->reason, "%s", reason);
    plan->cluster = info->cluster;
    plan->owners = info->owners;
    plan->helpers = info->helpers;
    plan->instances = info->instances;
    plan->depth = info->depth;
    plan->grid = n_task * info->cluster;
    plan->workspace_bytes = brim_kda_route_workspace(*route, n_task);
    return BRIM_OK;
}

brim_status brim_kda_plan_shape(int64_t n_seq, int64_t n_tok_total, int64_t n_value_head,
                                int packed, int64_t n_processor, const char *route,
                                brim_kda_plan *plan, brim_error *err)
{
    enum brim_kda_route chosen;
    return brim_kda_route_choose(n_seq, n_tok_total, n_value_head, packed != 0, true, n_processor,
                                 route, &chosen, plan, err);
}

size_t brim_kda_plan_print(const brim_kda_plan *plan, char *text, size_t capacity)
{
    char split[96] = "";
    if (plan->split_length)
        snprintf(split, sizeof split, "\"split_length\":%d,\"split_window\":%d,\"serial\":\"%s\",",
                 plan->split_length, plan->split_window, plan->serial);
    int n =
        snprintf(text, capacity,
                 "{\"route\":\"%s\",\"reason\":\"%s\",\"grid\":%lld,\"cluster\":%d,\"owners\":%d,"
                 "\"helpers\":%d,\"instances\":%d,\"depth\":%d,%s\"workspace_bytes\":%zu}",
                 plan->route, plan->reason, (long long)plan->grid, plan->cluster, plan->owners,
                 plan->helpers, plan->instances, plan->depth, split, plan->workspace_bytes);
    return n < 0 ? 0 : (size_t)n;
}
