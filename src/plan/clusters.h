/* SPDX-License-Identifier: Apache-2.0
 * How many clusters of CTAs, one CTA a multiprocessor, a GPU holds at once. A cluster lies within
 * one group of multiprocessors; an H200's 132 lie in groups of 16 and 18. */
#ifndef BRIM_PLAN_CLUSTERS_H
#define BRIM_PLAN_CLUSTERS_H

#include <stdint.h>

/* Clusters of 1 .. 8 CTAs on 132 multiprocessors: cudaOccupancyMaxActiveClusters on one H200, 200
 * KB of shared memory a CTA. tools/kda_route_table.py reads this line. */
static const int brim_clusters_of_132[8] = {132, 66, 39, 30, 22, 17, 15, 15};

/* On n_sm multiprocessors, at least 1: the same share of them. */
static inline int64_t brim_clusters_at_once(int n_cta, int64_t n_sm)
{
    int64_t n = brim_clusters_of_132[n_cta - 1] * n_sm / 132;
    return n > 0 ? n : 1;
}

/* Multiprocessors that such clusters fill, at least those of one cluster. */
static inline int64_t brim_clusters_fill(int n_cta, int64_t n_sm)
{
    int64_t n = (int64_t)n_cta * brim_clusters_of_132[n_cta - 1] * n_sm / 132;
    return n > n_cta ? n : n_cta;
}

#endif
