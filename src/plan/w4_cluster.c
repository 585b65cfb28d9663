/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/w4_cluster.h"

struct brim_w4_cluster_plan brim_w4_cluster_plan_make(int64_t n_row, int64_t n_in, int64_t n_out,
                                                      int n_sm)
{
    /* Tile shapes the kernel is built for, and the CTAs of each that fit on a multiprocessor. Two
     * slabs share the activations once those outweigh the weights of one. */
    static const struct {
        int n_token, n_slab, ctas_per_sm;
    } shapes[] = {{8, 1, 3}, {16, 1, 3}, {32, 2, 2}, {64, 2, 2}};
    int i = 0;
    while (i < 3 && shapes[i].n_token < n_row) i++;
    struct brim_w4_cluster_plan plan = {.n_token = shapes[i].n_token, .n_slab = shapes[i].n_slab};
    int64_t outs = 64 * plan.n_slab;
    plan.n_tile_out = (n_out + outs - 1) / outs;
    plan.n_tile_token = (n_row + plan.n_token - 1) / plan.n_token;
    plan.n_unit = (n_in + 127) / 128;
    /* Double the split while all CTAs still run at once and each keeps at least two units. */
    int64_t resident = (int64_t)n_sm * shapes[i].ctas_per_sm;
    int64_t n_tile = plan.n_tile_out * plan.n_tile_token;
    plan.split = 1;
    while (plan.split < 8 && n_tile * plan.split * 2 <= resident && plan.n_unit >= plan.split * 4)
        plan.split *= 2;
    return plan;
}
