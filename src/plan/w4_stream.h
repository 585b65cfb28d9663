/* SPDX-License-Identifier: Apache-2.0
 * The schedule of the streaming W4 kernel (src/cuda/w4/stream.cu) as a value. */
#ifndef BRIM_PLAN_W4_STREAM_H
#define BRIM_PLAN_W4_STREAM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Results depend on the plan (n_cta decides where f32 sums are joined), not on the machine: pinned,
 * it gives the same bits everywhere. Tiles are 64 n_warpgroup outputs by n_token tokens. */
struct brim_w4_stream_plan {
    int n_token;                              /* 128 */
    int n_warpgroup;                          /* 2 */
    int64_t n_cta;                            /* grid: equal pieces of the line of all units */
    int64_t n_tile_out, n_tile_token, n_unit; /* units of 128 inputs in a tile */
};

/* From shape and multiprocessors. Dimensions >= 1. */
struct brim_w4_stream_plan brim_w4_stream_plan_make(int64_t n_row, int64_t n_in, int64_t n_out,
                                                    int n_sm);

#ifdef __cplusplus
}
#endif
#endif
