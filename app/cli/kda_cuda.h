/* SPDX-License-Identifier: Apache-2.0
 * KDA prefill on the GPU: the routes timed beside each other, after their results have been
 * checked. Behind `brim bench kda --device cuda` and the program gpu_bench_kda, which needs the
 * driver alone. */
#ifndef BRIM_BENCH_KDA_CUDA_H
#define BRIM_BENCH_KDA_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

/* Sequences of equal length, or packed ones. */
struct bench_kda_shape {
    int64_t n_seq, n_tok, n_head;
    const int64_t *lengths; /* [n_seq] when packed; n_tok is then their sum */
    int softplus;           /* the gate without a bound */
};

/* "seed": T 2048 and 4096 by H 1, 4, 8. "sweep": T 512..65536, H 1..96. "packed": mixes.
 * "softplus": some under the gate without a bound. "all": the four. NULL for a name that is none of
 * them. */
const struct bench_kda_shape *bench_kda_set(const char *name, size_t *n);

/* Time every route that takes a shape (or those of the comma-separated list `routes`) and print
 * CSV: first a line a route, then a line a shape: B, T, H, the automatic choice, m128, the fastest
 * owner-helper route, the ratio. Output and final state of every route must first be those of m128,
 * bit for bit, and m128's be right against fp64: all heads up to 2^20 tokens times heads (or
 * check_heads of them, if not 0), two heads beyond. *n_wrong counts routes that failed. */
brim_status bench_kda_cuda(const struct bench_kda_shape *shapes, size_t n_shape, const char *routes,
                           int n_sample, int64_t check_heads, int *n_wrong, brim_error *err);

#endif
