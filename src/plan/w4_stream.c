/* SPDX-License-Identifier: Apache-2.0
 * The cost model is in clocks of one multiprocessor; its constants were fitted to a sweep of plans
 * on one H200 (gpu_check_stream sweep). */
#include "plan/w4_stream.h"

/* Clusters of 1 .. 8 CTAs that run at once on 132 multiprocessors, one CTA on each: a cluster lies
 * within one group of 16 or 18 multiprocessors. */
static const int clusters_132[8] = {132, 66, 39, 30, 22, 17, 15, 15};

static int64_t clusters_at_once(int split, int n_sm)
{
    int64_t n = (int64_t)clusters_132[split - 1] * n_sm / 132;
    return n > 0 ? n : 1;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

struct brim_w4_stream_plan brim_w4_stream_plan_pin(int64_t n_row, int64_t n_in, int64_t n_out,
                                                   int n_sm, int n_token, int n_slab, int split)
{
    struct brim_w4_stream_plan plan = {.n_token = n_token, .n_slab = n_slab, .split = split};
    plan.n_tile_out = ceil_div(n_out, 64 * n_slab);
    plan.n_tile_token = ceil_div(n_row, n_token);
    plan.n_step = ceil_div(n_in, 64);
    int64_t n_tile = plan.n_tile_out * plan.n_tile_token;
    plan.n_cta = split > 1 ? n_tile * split : min_i64(n_tile, n_sm);
    return plan;
}

double brim_w4_stream_plan_cost(const struct brim_w4_stream_plan *plan, int n_sm)
{
    /* A step of one warpgroup: waits and unpacking end to end; instructions issued. */
    enum { START = 5000, FINISH = 1200, JOIN = 2500, CHAIN = 320, ISSUE = 150 };
    int64_t n_tile = plan->n_tile_out * plan->n_tile_token;
    int64_t rounds = ceil_div(n_tile, clusters_at_once(plan->split, n_sm));
    double tensor = 2.0 * plan->n_slab * plan->n_token;
    double bytes = 128.0 * plan->n_token + (2048 + 256) * plan->n_slab;
    double step = CHAIN;
    if (step < ISSUE * plan->n_slab) step = ISSUE * plan->n_slab;
    if (step < tensor) step = tensor;
    if (step < bytes / 33) step = bytes / 33;
    double steps = (double)ceil_div(plan->n_step, plan->split);
    double finish = FINISH + plan->n_slab * plan->n_token * 4.0;
    if (plan->split > 1) finish += JOIN + plan->n_slab * plan->n_token * 256.0 / 32.0;
    return START + (double)rounds * (steps * step + finish);
}

struct brim_w4_stream_plan brim_w4_stream_plan_make(int64_t n_row, int64_t n_in, int64_t n_out,
                                                    int n_sm)
{
    static const int tokens[] = {64, 96, 128};
    struct brim_w4_stream_plan best = {0};
    double best_cost = 0;
    for (int i = 0; i < 3; i++)
        for (int n_slab = 1; n_slab <= 4; n_slab++)
            for (int split = 1; split == 1 || (split <= 8 && split * 2 <= ceil_div(n_in, 64));
                 split++) {
                struct brim_w4_stream_plan plan =
                    brim_w4_stream_plan_pin(n_row, n_in, n_out, n_sm, tokens[i], n_slab, split);
                double cost = brim_w4_stream_plan_cost(&plan, n_sm);
                if (best.n_token && cost >= best_cost) continue;
                best = plan, best_cost = cost;
            }
    return best;
}
