/* SPDX-License-Identifier: Apache-2.0
 * The cost model is in clocks of one multiprocessor; its constants were fitted to a sweep of plans
 * on one H200 (gpu_check_stream sweep). */
#include "plan/w4_stream.h"

#include "base/count.h"
#include "plan/clusters.h"

static double max_double(double a, double b)
{
    return a > b ? a : b;
}

struct brim_w4_stream_plan brim_w4_stream_plan_pin(int64_t n_row, int64_t n_in, int64_t n_out,
                                                   int n_sm, int n_token, int n_slab, int split)
{
    struct brim_w4_stream_plan plan = {.n_token = n_token, .n_slab = n_slab, .split = split};
    plan.n_tile_out = brim_ceil_div(n_out, 64 * n_slab);
    plan.n_tile_token = brim_ceil_div(n_row, n_token);
    plan.n_step = brim_ceil_div(n_in, 64);
    int64_t n_tile = plan.n_tile_out * plan.n_tile_token;
    plan.n_cta = split > 1 ? n_tile * split : brim_min_i64(n_tile, n_sm);
    return plan;
}

double brim_w4_stream_plan_cost(const struct brim_w4_stream_plan *plan, int n_sm)
{
    /* Of a round: its end, and joining a cluster's sums, which a rank has its own of; each with a
     * share per token and slab. Of a step: one warpgroup's waits and unpacking, and what another
     * adds; clocks of tensor cores for each that the products need; bytes from L2 a clock. */
    static const double start = 5650, end = 3530, end_each = 2, join = 930, join_each = 16;
    static const double chain = 326, issue = 101, tensor = 1.067, l2_rate = 28.5;
    int64_t n_tile = plan->n_tile_out * plan->n_tile_token;
    int64_t rounds = brim_ceil_div(n_tile, brim_clusters_at_once(plan->split, n_sm));
    double cells = (double)plan->n_slab * plan->n_token;
    double step = chain + issue * plan->n_slab;
    step = max_double(step, tensor * 2 * cells);
    step = max_double(step, (128.0 * plan->n_token + 2304.0 * plan->n_slab) / l2_rate);
    double finish = end + end_each * cells;
    if (plan->split > 1) finish += join + join_each * cells * (plan->split - 1) / plan->split;
    double n_step = (double)brim_ceil_div(plan->n_step, plan->split);
    return start + (double)rounds * (n_step * step + finish);
}

struct brim_w4_stream_plan brim_w4_stream_plan_make(int64_t n_row, int64_t n_in, int64_t n_out,
                                                    int n_sm)
{
    static const int tokens[] = {128, 96, 64}; /* of equals 192 x 128 is faster than 256 x 96 */
    struct brim_w4_stream_plan best = {0};
    double best_cost = 0;
    for (int i = 0; i < 3; i++)
        for (int n_slab = 1; n_slab <= 4; n_slab++)
            for (int split = 1; split == 1 || (split <= 8 && split * 2 <= brim_ceil_div(n_in, 64));
                 split++) {
                struct brim_w4_stream_plan plan =
                    brim_w4_stream_plan_pin(n_row, n_in, n_out, n_sm, tokens[i], n_slab, split);
                double cost = brim_w4_stream_plan_cost(&plan, n_sm);
                if (best.n_token && cost >= best_cost) continue;
                best = plan, best_cost = cost;
            }
    return best;
}
