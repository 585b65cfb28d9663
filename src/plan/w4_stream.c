/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/w4_stream.h"

struct brim_w4_stream_plan brim_w4_stream_plan_make(int64_t n_row, int64_t n_in, int64_t n_out,
                                                    int n_sm)
{
    /* One tile shape: fewer rows than 65 belong to the cluster kernel (plan/w4_cluster.h). */
    struct brim_w4_stream_plan plan = {.n_token = 128, .n_warpgroup = 2};
    int64_t outs = 64 * plan.n_warpgroup;
    plan.n_tile_out = (n_out + outs - 1) / outs;
    plan.n_tile_token = (n_row + plan.n_token - 1) / plan.n_token;
    plan.n_unit = (n_in + 127) / 128;
    int64_t n_total = plan.n_tile_out * plan.n_tile_token * plan.n_unit;
    plan.n_cta = n_total < n_sm ? n_total : n_sm;
    return plan;
}
