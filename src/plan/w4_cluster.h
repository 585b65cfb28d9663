/* SPDX-License-Identifier: Apache-2.0
 * The schedule of the cluster W4 kernel (src/cuda/w4/cluster.cu) as a value: how many CTAs share
 * the reduction of a tile. */
#ifndef BRIM_PLAN_W4_CLUSTER_H
#define BRIM_PLAN_W4_CLUSTER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A tile is 64 n_slab outputs by n_token tokens. Results depend on `split` and on nothing else of
 * the plan or the machine. */
struct brim_w4_cluster_plan {
    int n_token; /* 8, 16, 32 or 64 */
    int n_slab;  /* warpgroups of a CTA, each its own 64 outputs of the tile: 1 or 2 */
    int split;   /* CTAs of a cluster, each its own part of the reduction: 1, 2, 4 or 8 */
    int64_t n_tile_out, n_tile_token, n_unit; /* tiles along outputs and tokens; 128-input units */
};

/* From shape and multiprocessors. Dimensions >= 1. */
struct brim_w4_cluster_plan brim_w4_cluster_plan_make(int64_t n_row, int64_t n_in, int64_t n_out,
                                                      int n_sm);

#ifdef __cplusplus
}
#endif
#endif
