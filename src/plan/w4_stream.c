/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/w4_stream.h"

struct brim_w4_stream_plan brim_w4_stream_plan_make(int64_t n_row, int64_t n_in, int64_t n_out,
                                                    int n_sm)
{
    /* Tile shapes the kernel is built for, and the CTAs of each that fit on a multiprocessor. */
    static const struct {
        int n_token, n_warpgroup, ctas_per_sm;
    } shapes[] = {{8, 1, 3}, {16, 1, 3}, {32, 2, 2}, {64, 2, 2}, {128, 2, 1}};
    int i = 0;
    while (i < 4 && shapes[i].n_token < n_row) i++;
    struct brim_w4_stream_plan plan = {.n_token = shapes[i].n_token,
                                       .n_warpgroup = shapes[i].n_warpgroup};
    int64_t outs = 64 * plan.n_warpgroup;
    plan.n_tile_out = (n_out + outs - 1) / outs;
    plan.n_tile_token = (n_row + plan.n_token - 1) / plan.n_token;
    plan.n_unit = (n_in + 127) / 128;
    int64_t n_total = plan.n_tile_out * plan.n_tile_token * plan.n_unit;
    int64_t resident = (int64_t)n_sm * shapes[i].ctas_per_sm;
    plan.n_cta = n_total < resident ? n_total : resident;
    return plan;
}
