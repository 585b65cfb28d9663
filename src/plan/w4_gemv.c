/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/w4_gemv.h"

#include <stddef.h>
#include <string.h>

#include "base/count.h"

/* Measured on one H200 (bench/results/h200/w4_gemv.csv): at one and two rows the integer kernel
 * takes up to 2 us less than the other in a chain of dependent launches, alone about as long; at
 * four rows, and so at three, where it multiplies for four, 1 to 5 us longer. */
enum { INT8_ROWS = 2 };

/* Units of a CTA whose x the integer kernel surely holds, 640 bytes each (groups of 32), beside the
 * smallest ring: 12 warps, two units of 3072 bytes (parameters f32). */
enum { INT8_UNITS = 192 };

/* Cycles times 2 n_sm, fitted to cold launches and to chains of dependent launches of seven shapes
 * at 1 and 8 rows (same file; constants of its own for the integer kernel choose no better): a unit
 * of a pair costs a multiprocessor 30, a unit of its own 400 to a warp, a CTA 400 before and after
 * its product, each doubling of a cluster 200. A second CTA of a multiprocessor hides half its time
 * behind the first. */
static int64_t cost_of(const struct brim_w4_gemv_plan *plan, int n_sm)
{
    int64_t units = brim_ceil_div(plan->n_unit, plan->split);
    int64_t busy = plan->n_pair * units * 30;
    int64_t alone = brim_ceil_div(units, plan->n_part) * 400;
    /* CTAs that fit start together, more of them one after the other. */
    bool fit = plan->n_cta <= 2 * (int64_t)n_sm;
    int64_t rounds_n_sm = fit ? brim_ceil_div(plan->n_cta, n_sm) * n_sm : plan->n_cta;
    int64_t join = 0;
    for (int split = 1; split < plan->split; split *= 2) join += 200;
    int64_t cost = (rounds_n_sm + n_sm) * ((busy > alone ? busy : alone) + 400) + 2 * n_sm * join;
    /* Only where none fits: outputs alone outnumber the machine. */
    return fit ? cost : cost + ((int64_t)1 << 48);
}

struct brim_w4_gemv_plan brim_w4_gemv_plan_make(int64_t n_row, int64_t n_in, int64_t n_out,
                                                int n_sm)
{
    int64_t n_pair_all = brim_ceil_div(n_out, 32);
    struct brim_w4_gemv_plan best = {.n_unit = brim_ceil_div(n_in, 128)};
    int64_t best_cost = 0;
    for (int split = 1; split <= 8 && split <= best.n_unit; split *= 2) {
        int64_t units = best.n_unit / split; /* the fewest of a CTA */
        for (int n_pair = 1; n_pair <= BRIM_W4_GEMV_WARPS && n_pair <= n_pair_all; n_pair++) {
            struct brim_w4_gemv_plan plan = best;
            plan.split = split;
            if (n_row <= INT8_ROWS && brim_ceil_div(best.n_unit, split) <= INT8_UNITS)
                plan.kernel = BRIM_W4_GEMV_INT8;
            plan.n_pair = n_pair;
            plan.n_part = BRIM_W4_GEMV_WARPS / n_pair;
            if (plan.n_part > units) plan.n_part = (int)units;
            /* No more parts than make the longest shorter. */
            int64_t most = brim_ceil_div(units, plan.n_part);
            plan.n_part = (int)brim_ceil_div(units, most);
            plan.n_cta = brim_ceil_div(n_pair_all, n_pair) * split;
            int64_t cost = cost_of(&plan, n_sm);
            if (best_cost == 0 || cost < best_cost) best = plan, best_cost = cost;
        }
    }
    return best;
}

/* Found by a search over schedules, depths and releases in the chain of Qwen3-4B's layer, one row,
 * attention over 129 positions between the first two products
 * (bench/results/h200/w4_gemv_chain.txt): 25.5 us a layer where brim_w4_gemv_plan_make's take 27.1.
 * What counts is what fits beside the predecessor: o leaves gate and up more room, they leave down
 * more. */
static const struct {
    int n_sm;
    int64_t n_in, n_out;
    int n_pair, n_part, split, depth;
    enum brim_w4_gemv_release release;
} chain[] = {
    {132, 4096, 2560, 2, 6, 2, 2, BRIM_W4_GEMV_REQUESTED}, /* o */
    {132, 2560, 19456, 4, 3, 1, 4, BRIM_W4_GEMV_AT_ONCE},  /* gate and up */
    {132, 9728, 2560, 3, 4, 4, 4, BRIM_W4_GEMV_STAGED},    /* down */
};

struct brim_w4_gemv_plan brim_w4_gemv_plan_chain(int64_t n_row, int64_t n_in, int64_t n_out,
                                                 int n_sm)
{
    struct brim_w4_gemv_plan plan = brim_w4_gemv_plan_make(n_row, n_in, n_out, n_sm);
    if (plan.kernel != BRIM_W4_GEMV_INT8) return plan;
    for (size_t i = 0; i < sizeof chain / sizeof *chain; i++) {
        if (chain[i].n_sm != n_sm || chain[i].n_in != n_in || chain[i].n_out != n_out) continue;
        plan.n_pair = chain[i].n_pair;
        plan.n_part = chain[i].n_part;
        plan.split = chain[i].split;
        plan.depth = chain[i].depth;
        plan.release = chain[i].release;
        plan.n_cta = brim_ceil_div(n_out, (int64_t)32 * plan.n_pair) * plan.split;
    }
    return plan;
}

static const char *const kernel_names[] = {
    [BRIM_W4_GEMV_BF16] = "bf16", [BRIM_W4_GEMV_INT8] = "int8"};

const char *brim_w4_gemv_kernel_name(enum brim_w4_gemv_kernel kernel)
{
    return kernel_names[kernel];
}

bool brim_w4_gemv_plan_name(struct brim_w4_gemv_plan *plan, const char *name)
{
    for (int i = 0; i < (int)(sizeof kernel_names / sizeof *kernel_names); i++)
        if (!strcmp(name, kernel_names[i])) {
            plan->kernel = (enum brim_w4_gemv_kernel)i;
            return true;
        }
    return false;
}
