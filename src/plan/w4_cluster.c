/* SPDX-License-Identifier: Apache-2.0
 * The choice among tiles, parts and splits by a cost that was fitted on one H200; how a CTA's
 * shared memory is laid out. */
#include "plan/w4_cluster.h"

#include "base/count.h"
#include "plan/clusters.h"

/* Nanoseconds that a plan takes beyond what all plans for the product take: fitted to the times of
 * all plans for the projections of Qwen3-4B at 16 and 64 rows (gpu_check_w4 explore) and, with an
 * earlier form of the kernel, at 32 to 96; its choices were within 1 % of the best on average. */
static int64_t cost(const struct brim_w4_cluster_plan *p, int n_sm)
{
    const int64_t n_cta = p->n_tile_out * p->n_tile_token * p->split, n_tok = p->n_token;
    const int64_t panels = brim_ceil_div(p->n_unit, p->split),
                  steps = brim_ceil_div(panels, p->n_part);
    const int64_t wanted = brim_ceil_div(n_cta, brim_clusters_fill(p->split, n_sm));
    const int64_t waves = brim_ceil_div(wanted, p->n_resident);
    /* On one multiprocessor at once: warpgroups, and outputs times tokens of their tiles. */
    const int64_t at_once = p->n_resident, n_wg = at_once * p->n_slab * p->n_part;
    const int64_t tile = at_once * p->n_slab * n_tok;
    /* A step is a unit of each warpgroup: its latencies, its instructions, its products. */
    int64_t step = 140 + 356 * n_tok / 100;
    if (step < 95 * n_wg) step = 95 * n_wg;
    if (step < 241 * n_wg * n_tok / 100) step = 241 * n_wg * n_tok / 100;
    int64_t loop = steps * step, x = at_once * panels * n_tok * 345 / 100;
    if (loop < x) loop = x;
    const int64_t join = p->split > 1 ? 48 + tile * 607 / 100 * (p->split - 1) / p->split : 0;
    const int64_t parts = p->n_part > 1 ? 246 + 205 * p->n_slab * n_tok * p->n_part / 100 : 0;
    const int64_t store = 101 * tile / 100 / p->split;
    /* Fewer CTAs where nothing else decides, but not fewer than were measured; a second wave starts
     * from nothing. */
    const int64_t idle = 2 * n_cta < n_sm ? 54 * (n_sm / 2 - n_cta) : 0;
    return waves * (loop + join + parts + store) + (waves - 1) * 1810 + 342 * n_cta / 100 + idle;
}

struct brim_w4_cluster_layout brim_w4_cluster_lay_out(const struct brim_w4_cluster_plan *plan,
                                                      int group, int param_bytes)
{
    enum { BLOCK_BYTES = 512, UNIT_BYTES = 1024 /* codes of a warp's unit */ };
    struct brim_w4_cluster_layout out = {0};
    const int stage_bytes = plan->n_token * 256, n_warp = plan->n_slab * plan->n_part * 4;
    const int n_block = 4 * plan->n_slab * (plan->n_token / 8);
    /* 228 KB a multiprocessor, 1 KB of each CTA reserved, 1 KB for barriers. */
    const int budget = (228 / plan->n_resident - 2) * 1024;
    /* The sums of a warp pass through the memory of its weights when parts are joined. */
    const int n_panel = (int)brim_ceil_div(plan->n_unit, plan->split);
    int depth = (int)brim_ceil_div(n_panel, plan->n_part);
    if (depth > brim_w4_cluster_depth(plan->n_token)) depth = brim_w4_cluster_depth(plan->n_token);
    out.warp_bytes = depth * (UNIT_BYTES + 128 / group * param_bytes * 32);
    if (plan->n_part > 1 && out.warp_bytes < plan->n_token * 64)
        out.warp_bytes = plan->n_token * 64;
    out.n_own = (int)brim_ceil_div(n_block, plan->split);
    const int weights = n_warp * out.warp_bytes, join = plan->split * out.n_own * BLOCK_BYTES;
    const int wanted = n_panel < BRIM_W4_CLUSTER_STAGES ? n_panel : BRIM_W4_CLUSTER_STAGES;
    const int enough = wanted < 4 ? wanted : 4;
    const int apart = weights + join + enough * stage_bytes <= budget;
    int n_stage = (budget - weights - (apart ? join : 0)) / stage_bytes;
    if (n_stage > wanted) n_stage = wanted;
    /* A ring that is refilled holds two rounds of all parts (see the refill in cluster.cu), and
     * each panel's place is one part's alone: a part that skipped a phase of a place's barrier
     * could not tell the next from the one before. */
    if (n_stage < n_panel) {
        n_stage -= n_stage % plan->n_part;
        if (n_stage < 2 * plan->n_part) n_stage = 0;
    }
    const int used = n_stage * stage_bytes + weights;
    out.n_stage = join > budget ? 0 : n_stage;
    out.join_at = apart ? used : 0;
    out.n_byte = apart ? used + join : used > join ? used : join;
    return out;
}

struct brim_w4_cluster_plan brim_w4_cluster_plan_pin(int64_t n_row, int64_t n_in, int64_t n_out,
                                                     int n_sm, int n_slab, int n_part, int split)
{
    struct brim_w4_cluster_plan plan = {.n_slab = n_slab, .n_part = n_part, .split = split};
    plan.n_tile_token = brim_ceil_div(n_row, 128);
    plan.n_token = (int)brim_ceil_div(brim_ceil_div(n_row, plan.n_tile_token), 16) * 16;
    plan.n_tile_out = brim_ceil_div(n_out, 64 * (int64_t)n_slab);
    plan.n_unit = brim_ceil_div(n_in, 128);
    /* As many CTAs a multiprocessor as registers allow and the grid asks for. */
    const int64_t n_cta = plan.n_tile_out * plan.n_tile_token * split;
    const int64_t wanted = brim_ceil_div(n_cta, brim_clusters_fill(split, n_sm));
    const int most = brim_w4_cluster_max_warpgroups(plan.n_token) / (n_slab * n_part);
    plan.n_resident = wanted < most ? (int)wanted : most;
    if (plan.n_resident > 4) plan.n_resident = 4;
    if (plan.n_resident < 1) plan.n_resident = 1;
    /* A share of the shared memory that the widest parameters fit into. */
    while (plan.n_resident > 1 && brim_w4_cluster_lay_out(&plan, 32, 4).n_stage == 0)
        plan.n_resident--;
    return plan;
}

struct brim_w4_cluster_plan brim_w4_cluster_plan_make(int64_t n_row, int64_t n_in, int64_t n_out,
                                                      int n_sm)
{
    struct brim_w4_cluster_plan best = brim_w4_cluster_plan_pin(n_row, n_in, n_out, n_sm, 1, 1, 1);
    const int most = brim_w4_cluster_max_warpgroups(best.n_token);
    int64_t best_cost = cost(&best, n_sm);
    for (int n_slab = 1; n_slab <= most; n_slab++) {
        for (int n_part = 1; n_slab * n_part <= most; n_part++) {
            for (int split = 1; split <= 8 && split * n_part <= best.n_unit; split++) {
                struct brim_w4_cluster_plan plan =
                    brim_w4_cluster_plan_pin(n_row, n_in, n_out, n_sm, n_slab, n_part, split);
                if (brim_w4_cluster_lay_out(&plan, 32, 4).n_stage == 0) continue;
                int64_t c = cost(&plan, n_sm);
                if (c < best_cost) best = plan, best_cost = c;
            }
        }
    }
    return best;
}
