/* SPDX-License-Identifier: Apache-2.0
 * The cases of `brim bench operators --device cuda`. A sample is one replay of a recorded graph, or
 * one plain call, between two events; weights rotate through copies of themselves when a cold size
 * is given. */
#ifndef BRIM_BENCH_OPERATORS_CUDA_H
#define BRIM_BENCH_OPERATORS_CUDA_H

#include "operators.h"

#include "cuda/device.h"

enum { BENCH_CUDA_MAX_COPY = 256, BENCH_CUDA_MAX_BLOCK = 32 };

struct bench_cuda {
    struct brim_cuda_device info;
    void *stream, *begin, *end; /* timed events */
    bool graph;                 /* replay recordings; otherwise plain calls */
    bool course;                /* split by the course's policy instead of the device's */
    double empty_us;            /* what a nearly empty kernel reads on this clock */
};

brim_status bench_cuda_open(struct bench_cuda *d, bool graph, bool course, brim_error *err);
void bench_cuda_close(struct bench_cuda *d);

/* The owned state of a CUDA case begins with this. */
struct bench_cuda_case {
    struct bench_cuda *dev;
    void *blocks[BENCH_CUDA_MAX_BLOCK]; /* device memory */
    int n_block;
    struct bench_cuda_impl {
        struct bench_cuda_case *owner;
        /* Enqueue on dev->stream with copy `copy` of the weights. */
        brim_status (*launch)(struct bench_cuda_case *owner, int which, int64_t copy,
                              brim_error *err);
        int which;
        int64_t n_copy;
        void **graphs; /* [n_copy] */
    } impl[BENCH_MAX_IMPL];
};

/* Device memory of the case, filled from `from` if not NULL. */
brim_status bench_cuda_block(struct bench_cuda_case *k, void **out, const void *from,
                             size_t n_bytes, brim_error *err);
/* The values of bf16 rows as floats. */
brim_status bench_cuda_fetch_bf16(struct bench_cuda_case *k, const void *from, int64_t n,
                                  float *out, brim_error *err);
brim_status bench_cuda_fetch(struct bench_cuda_case *k, const void *from, void *out, size_t n_bytes,
                             brim_error *err);
/* Copies of n_bytes of weights that make up cold_bytes. */
int64_t bench_cuda_copies(const struct bench_context *ctx, size_t n_bytes);
/* Add an implementation; record its graphs. Call once its results have been checked. */
brim_status bench_cuda_record(struct bench_case *c, int impl, brim_error *err);
void bench_cuda_add(struct bench_case *c, const char *name, int which, int64_t n_copy,
                    brim_status (*launch)(struct bench_cuda_case *, int, int64_t, brim_error *));
/* Launch once with copy `copy` and wait. */
brim_status bench_cuda_once(struct bench_case *c, int impl, int64_t copy, brim_error *err);
void bench_cuda_case_free(struct bench_case *c);

brim_status bench_cuda_embedding(struct bench_case *c, const struct bench_context *ctx,
                                 brim_error *err);
/* n_row == 1: dense, matvec, hopper; more rows: tiled, split-K if asked for, hopper. */
brim_status bench_cuda_projection(struct bench_case *c, const struct bench_context *ctx,
                                  const char *name, int64_t n_row, bool split_k, brim_error *err);
brim_status bench_cuda_kernel(struct bench_case *c, const struct bench_context *ctx,
                              const char *name, brim_error *err);
brim_status bench_cuda_attention(struct bench_case *c, const struct bench_context *ctx,
                                 int64_t n_key, int64_t n_query, int n_head_kv, brim_error *err);

#endif
