/* SPDX-License-Identifier: Apache-2.0
 * The schedule of the cluster W4 kernel (src/cuda/w4/cluster.cu) as a value: how the outputs are
 * cut into tiles and how the reduction of a tile is shared. */
#ifndef BRIM_PLAN_W4_CLUSTER_H
#define BRIM_PLAN_W4_CLUSTER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A tile is 64 n_slab outputs by n_token tokens. A row's results depend on `n_part` and `split` and
 * on nothing else of the plan, of the machine or of the other rows. */
struct brim_w4_cluster_plan {
    int n_token;    /* 16, 32, 48, 64, 80, 96, 112 or 128 */
    int n_slab;     /* 64 outputs each, one warpgroup (or n_part of them) a slab */
    int n_part;     /* warpgroups that share the reduction of a slab in a CTA, unit by unit */
    int split;      /* CTAs of a cluster, each its own stretch of the reduction: 1 to 8 */
    int n_resident; /* CTAs that are to fit on a multiprocessor: divides its shared memory */
    int64_t n_tile_out, n_tile_token, n_unit; /* tiles along outputs and tokens; 128-input units */
};

/* The most warpgroups (n_slab n_part) of a CTA: registers allow no more. */
#ifdef __CUDACC__
__host__ __device__
#endif
    static inline
#ifdef __cplusplus
    constexpr
#endif
    int
    brim_w4_cluster_max_warpgroups(int n_token)
{
    return n_token <= 32 ? 5 : n_token <= 96 ? 4 : 3;
}

/* Units of weights in flight in a warp. */
#ifdef __CUDACC__
__host__ __device__
#endif
    static inline
#ifdef __cplusplus
    constexpr
#endif
    int
    brim_w4_cluster_depth(int n_token)
{
    return n_token <= 32 ? 6 : 4;
}

enum { BRIM_W4_CLUSTER_STAGES = 16 /* panels of activations at most */ };

/* Shared memory of a CTA after 1 KB of barriers: panels, then the warps' weights, then the join. */
struct brim_w4_cluster_layout {
    int n_stage;    /* panels of n_token x 128 inputs; 0: the plan does not fit */
    int warp_bytes; /* of one warp's weights */
    int n_own;      /* blocks of 16 outputs x 8 tokens that a rank of the cluster stores */
    int join_at;    /* 0 where the join lies over the rest and waits for the whole cluster */
    int n_byte;     /* of everything */
};

/* group: 32, 64 or 128; param_bytes: 2 or 4, of one scale. */
struct brim_w4_cluster_layout brim_w4_cluster_lay_out(const struct brim_w4_cluster_plan *plan,
                                                      int group, int param_bytes);

/* From shape and multiprocessors. Dimensions >= 1. */
struct brim_w4_cluster_plan brim_w4_cluster_plan_make(int64_t n_row, int64_t n_in, int64_t n_out,
                                                      int n_sm);

/* The same with tiles, parts and split pinned; n_token and the counts follow. */
struct brim_w4_cluster_plan brim_w4_cluster_plan_pin(int64_t n_row, int64_t n_in, int64_t n_out,
                                                     int n_sm, int n_slab, int n_part, int split);

#ifdef __cplusplus
}
#endif
#endif
