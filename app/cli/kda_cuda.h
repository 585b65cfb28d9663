/* SPDX-License-Identifier: Apache-2.0
 * KDA prefill on the GPU: the routes timed beside each other, after their results have been
 * checked. Behind `brim bench kda --device cuda` and the program gpu_bench_kda, which needs the
 * driver alone. */
#ifndef BRIM_BENCH_KDA_CUDA_H
#define BRIM_BENCH_KDA_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "brim/status.h"

/* Sequences of equal length, or packed ones. */
struct bench_kda_shape {
    int64_t n_seq, n_tok, n_head;
    const int64_t *lengths; /* [n_seq] when packed; n_tok is then their sum */
    int softplus;           /* the gate without a bound */
};

/* Tokens of all sequences times heads of the sweep's largest shapes. */
enum { BENCH_KDA_SWEEP_ROWS = 1 << 21 };

/* "seed": T 2048 and 4096 by H 1, 4, 8. "lengths": T 512..65536, H 1..96. "packed": mixes.
 * "softplus": some under the gate without a bound. "all": the four. "tiny": a few for an emulator.
 * "sweep": T 64..131072, H 1..96, N 1..64, for the router's table (tools/kda_route_table.py). Of
 * these every n_part-th from `part` (1 .. n_part) on, so that parts take about as long; free() it.
 * NULL for a name that is none of them, or without memory. */
struct bench_kda_shape *bench_kda_set(const char *name, int part, int n_part, size_t *n);
/* "2/8" */
bool bench_kda_part(const char *text, int *part, int *n_part);

/* One line of the CSV. */
struct bench_kda_row {
    const struct bench_kda_shape *shape;
    const char *route;
    double us_median, us_min, us_max, us_m128; /* m128's: 0 if it was not timed */
    double out_error, state_error;
    int split_length, split_first, split_window; /* 0 but for split */
    int64_t split_chunks;
};
void bench_kda_print_header(FILE *to);
void bench_kda_print_row(FILE *to, const struct bench_kda_row *row);

struct bench_kda_options {
    const char *routes;  /* these beside m128, comma-separated; NULL: every one */
    int n_sample;        /* of each of two rounds */
    int64_t check_heads; /* so many (sequence, head) are held against fp64; 0: all up to 2^20 tokens
                            times heads, two of each sequence beyond */
};

/* Time every route that takes a shape and print CSV: a line a route as soon as a shape is done,
 * then a line a shape: B, T, H, the automatic choice with allow_split, m128, the fastest
 * owner-helper route, the ratio. Before anything is timed m128 must be right against fp64, output
 * and final state of every serial route those of m128 bit for bit, and the split's error at most
 * 1.2 times m128's; a split call with a cut that does not hold is not timed. *n_wrong counts routes
 * that failed. */
brim_status bench_kda_cuda(const struct bench_kda_shape *shapes, size_t n_shape,
                           const struct bench_kda_options *options, int *n_wrong, brim_error *err);

#endif
