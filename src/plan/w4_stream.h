/* SPDX-License-Identifier: Apache-2.0
 * The schedule of the W4 kernel for many rows (src/cuda/w4/stream.cu) as a value. */
#ifndef BRIM_PLAN_W4_STREAM_H
#define BRIM_PLAN_W4_STREAM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Tiles are 64 n_slab outputs by n_token tokens. Results depend on `split` alone, which decides
 * where f32 sums are joined: a plan pinned, or any other with the same split, gives the same bits
 * on every machine, and a row's bits do not depend on the rows beside it. */
struct brim_w4_stream_plan {
    int n_token;   /* 64, 96 or 128 */
    int n_slab;    /* 1 to 4: a warpgroup each */
    int split;     /* 1 to 8: CTAs of a cluster that share the reduction of a tile */
    int64_t n_cta; /* grid: all of n_tile_out n_tile_token split, or (split 1) as many as run at
                      once, each taking every n_cta-th tile */
    int64_t n_tile_out, n_tile_token;
    int64_t n_step; /* of 64 inputs in a tile */
};

/* From shape and multiprocessors. Dimensions >= 1. */
struct brim_w4_stream_plan brim_w4_stream_plan_make(int64_t n_row, int64_t n_in, int64_t n_out,
                                                    int n_sm);

/* The same with the tile and the split pinned: what is left follows from them. */
struct brim_w4_stream_plan brim_w4_stream_plan_pin(int64_t n_row, int64_t n_in, int64_t n_out,
                                                   int n_sm, int n_token, int n_slab, int split);

/* Estimated clocks of a plan on a machine of n_sm multiprocessors: what _make minimizes. */
double brim_w4_stream_plan_cost(const struct brim_w4_stream_plan *plan, int n_sm);

#ifdef __cplusplus
}
#endif
#endif
