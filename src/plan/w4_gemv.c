/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/w4_gemv.h"

struct brim_w4_gemv_plan brim_w4_gemv_plan_make(int64_t n_in, int64_t n_out, int n_sm)
{
    enum { MAX_WARP = 16, MIN_TILE = 4 };
    struct brim_w4_gemv_plan plan = {.n_unit = (n_in + 127) / 128};
    int64_t n_tile_all = (n_out + 15) / 16;
    /* Four tiles share the activations of their CTA; more only where the CTAs would outnumber those
     * that a machine holds at once (two a multiprocessor) less room for the next kernel's. */
    plan.n_tile = MIN_TILE;
    while (plan.n_tile < MAX_WARP && n_tile_all > (int64_t)plan.n_tile * n_sm * 3 / 2)
        plan.n_tile *= 2;
    int64_t n_group = (n_tile_all + plan.n_tile - 1) / plan.n_tile;
    plan.split = 1;
    while (plan.split < 8 && n_group * plan.split * 4 < (int64_t)n_sm * 3 &&
           plan.split * 2 <= plan.n_unit)
        plan.split *= 2;
    /* A warp without a unit would only wait at the barriers. */
    int64_t units = (plan.n_unit + plan.split - 1) / plan.split;
    plan.n_part = MAX_WARP / plan.n_tile;
    while (plan.n_part > units) plan.n_part /= 2;
    plan.n_cta = n_group * plan.split;
    return plan;
}
