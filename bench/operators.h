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
#include "tensor/weight.h"

enum { BENCH_MAX_IMPL = 3, BENCH_MAX_SAMPLES = 4096 };

/* Layer shapes of a published model; its weights are random here. */
struct bench_shape {
    const char *name;
    int64_t n_embd, n_ff, n_vocab;
    int n_head, n_head_kv, head_dim;
    int group; /* inputs that share a scale */
};

struct bench_cuda; /* operators_cuda.h */

struct bench_context {
    struct bench_cuda *cuda; /* NULL: the CPU is measured */
    const struct bench_shape *shape;
    const struct brim_cpu_ops *reference, *ops; /* plain C; the tier asked for */
    struct brim_pool *pool;
    int n_thread;
    int64_t cold_bytes; /* rotate copies of the weights over this much memory; 0: one copy */
};

typedef void bench_run_fn(void *ctx, int64_t sample);
/* Does its own timing: microseconds, negative when the device failed. */
typedef double bench_time_fn(void *ctx, int64_t sample);

struct bench_case {
    char name[48];
    struct {
        const char *name;
        bench_run_fn *run;   /* timed by its caller, or */
        bench_time_fn *time; /* times itself */
        void *ctx;
        char plan[40];            /* CUDA: the schedule chosen */
        int accumulates, reduces; /* CUDA projections: kernels of the plan */
        int n_kernel;             /* CUDA: kernels really launched */
    } impl[BENCH_MAX_IMPL];
    int n_impl;
    double floor_us; /* CUDA: bytes or arithmetic at the device's measured rates; 0: not stated */
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

/* ---- data, the same in every run ---- */

/* About normal, unit variance. */
void bench_fill_normal(float *out, int64_t n, uint64_t seed);
/* An MLX matrix: u32 codes, bf16 scales of both signs and biases. */
brim_status bench_random_weight(struct brim_weight *out, int64_t n_out, int64_t n_in, int group,
                                uint64_t seed, brim_error *err);
void bench_free_weight(struct brim_weight *w);
void bench_projection_dims(const struct bench_shape *s, const char *name, int64_t *n_in,
                           int64_t *n_out);
/* Puts a sentence into c->check unless the rms difference over the rms of `want` is at most bound.
 */
void bench_compare(struct bench_case *c, int impl, const float *got, const float *want, int64_t n,
                   double bound);

#endif
