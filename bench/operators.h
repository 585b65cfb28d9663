/* SPDX-License-Identifier: Apache-2.0
 * One benchmark case: an operator on one shape, with up to three implementations of it. */
#ifndef BRIM_BENCH_OPERATORS_H
#define BRIM_BENCH_OPERATORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "base/status.h"
#include "cpu/cpu_ops.h"

enum { BENCH_MAX_IMPL = 3, BENCH_MAX_SAMPLES = 4096 };

/* Layer shapes of a published model; its weights are random here. */
struct bench_shape {
    const char *name;
    int64_t n_embd, n_ff, n_vocab;
    int n_head, n_head_kv, head_dim;
    int group; /* inputs that share a scale */
};

struct bench_context {
    const struct bench_shape *shape;
    const struct brim_cpu_ops *reference, *ops; /* plain C; the tier asked for */
    struct brim_pool *pool;
    int n_thread;
    int64_t cold_bytes; /* rotate copies of the weights over this much memory; 0: one copy */
};

typedef void bench_run_fn(void *ctx, int64_t sample);

struct bench_case {
    char name[48];
    struct {
        const char *name;
        bench_run_fn *run;
        void *ctx;
    } impl[BENCH_MAX_IMPL];
    int n_impl;
    /* Filled by the caller of bench_case_*: frees all that ctx refers to. */
    void (*free)(struct bench_case *c);
    void *owned;
    char check[160]; /* why a result is wrong; empty when all are right */
};

/* Each prepares inputs and computes every implementation once, compared with plain C: c->check says
 * what differs. Seeds are fixed, so every run has the same data. */
brim_status bench_case_embedding(struct bench_case *c, const struct bench_context *ctx,
                                 brim_error *err);
/* name: q k v o gate up down head. n_row == 1: plain C, the tier, the tier with int8 activations;
 * more rows: tiled, split-K if asked for, int8. */
brim_status bench_case_projection(struct bench_case *c, const struct bench_context *ctx,
                                  const char *name, int64_t n_row, bool split_k, brim_error *err);
/* name: rmsnorm rope swiglu. */
brim_status bench_case_kernel(struct bench_case *c, const struct bench_context *ctx,
                              const char *name, brim_error *err);
/* n_query rows that see n_key keys in all, causally. */
brim_status bench_case_attention(struct bench_case *c, const struct bench_context *ctx,
                                 int64_t n_key, int64_t n_query, int n_head_kv, brim_error *err);

#endif
