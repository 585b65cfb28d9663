/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/w4_cluster.h"

struct brim_w4_cluster_plan brim_w4_cluster_plan_make(int64_t n_row, int64_t n_in, int64_t n_out,
                                                      int n_sm)
{
    /* Tile shapes the kernel is built for. Two slabs share the activations once those outweigh the
     * weights of one. `fill`: tenths of a CTA per multiprocessor up to which splitting further paid
     * in the cold sweep of one H200 (bench/results/h200/w4.csv); wider tiles move more
     * activations per CTA, so they stop early. */
    static const struct {
        int n_token, n_slab, fill;
    } shapes[] = {{8, 1, 50}, {16, 1, 50}, {32, 2, 12}, {64, 2, 12}};
    int i = 0;
    while (i < 3 && shapes[i].n_token < n_row) i++;
    struct brim_w4_cluster_plan plan = {.n_token = shapes[i].n_token, .n_slab = shapes[i].n_slab};
    int64_t outs = 64 * plan.n_slab;
    plan.n_tile_out = (n_out + outs - 1) / outs;
    plan.n_tile_token = (n_row + plan.n_token - 1) / plan.n_token;
    plan.n_unit = (n_in + 127) / 128;
    /* Double the split while the machine is not full and a CTA keeps four units, enough to cover
     * the latency of its first; a grid smaller than the machine splits down to two. */
    int64_t n_tile = plan.n_tile_out * plan.n_tile_token;
    plan.split = 1;
    while (plan.split < 8) {
        int64_t n_cta = n_tile * plan.split, units_after = plan.n_unit / (2 * plan.split);
        if (n_cta * 2 * 10 > (int64_t)n_sm * shapes[i].fill) break;
        if (units_after < (n_cta < n_sm ? 2 : 4)) break;
        plan.split *= 2;
    }
    return plan;
}
