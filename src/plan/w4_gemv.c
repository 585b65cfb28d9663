/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/w4_gemv.h"

/* Cycles, roughly: a unit of a pair costs a multiprocessor 40 (issue slots, or its share of the
 * memory's rate), a unit of its own 280 of latency to a warp, a CTA 200 before and after its
 * product, a cluster 400 to join. */
static int64_t cost_of(const struct brim_w4_gemv_plan *plan, int n_sm)
{
    int64_t rounds = (plan->n_cta + n_sm - 1) / n_sm;
    int64_t units = (plan->n_unit + plan->split - 1) / plan->split;
    int64_t busy = plan->n_pair * units * 40;
    int64_t alone = (units + plan->n_part - 1) / plan->n_part * 280;
    return rounds * ((busy > alone ? busy : alone) + 200) + (plan->split > 1 ? 400 : 0);
}

struct brim_w4_gemv_plan brim_w4_gemv_plan_make(int64_t n_in, int64_t n_out, int n_sm)
{
    int64_t n_pair_all = (n_out + 31) / 32;
    struct brim_w4_gemv_plan best = {.n_unit = (n_in + 127) / 128};
    int64_t best_cost = 0;
    for (int split = 1; split <= 8 && split <= best.n_unit; split *= 2) {
        int64_t units = best.n_unit / split; /* the fewest of a CTA */
        for (int n_pair = 1; n_pair <= BRIM_W4_GEMV_WARPS && n_pair <= n_pair_all; n_pair++) {
            struct brim_w4_gemv_plan plan = best;
            plan.split = split;
            plan.n_pair = n_pair;
            plan.n_part = BRIM_W4_GEMV_WARPS / n_pair;
            if (plan.n_part > units) plan.n_part = (int)units;
            /* No more parts than make the longest shorter. */
            int64_t most = (units + plan.n_part - 1) / plan.n_part;
            plan.n_part = (int)((units + most - 1) / most);
            plan.n_cta = (n_pair_all + n_pair - 1) / n_pair * split;
            int64_t cost = cost_of(&plan, n_sm);
            if (best_cost == 0 || cost < best_cost) best = plan, best_cost = cost;
        }
    }
    return best;
}
