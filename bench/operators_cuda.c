/* SPDX-License-Identifier: Apache-2.0
 * CUDA side of `brim bench operators`: the clock, recordings, projections. */
#include "operators_cuda.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "brim/kernels.h"
#include "cuda/model/ops.h"
#include "cuda/runtime/runtime.h"
#include "tensor/dtype.h"

/* An H200's measured rates: reads from memory, bf16 products (docs/performance.md). */
static const double bytes_per_us = 4.3e6, flop_per_us = 790e6;

/* ---- the device and its clock ---------------------------------------------------------------- */

static brim_status empty_clock(struct bench_cuda *d, brim_error *err)
{
    void *word, *graph;
    double best = 0;
    BRIM_TRY(brim_cuda_alloc(&word, 64, "the clock's word", err));
    struct brim_cuda_add_args add = {.n_row = 1,
                                     .n = 8,
                                     .x = word,
                                     .x_stride = 8,
                                     .y = word,
                                     .y_dtype = BRIM_DTYPE_F32,
                                     .y_stride = 8};
    BRIM_TRY(brim_cuda_capture_begin(d->stream, err));
    brim_status status = brim_cuda_add(&add, d->stream, err);
    brim_error unused;
    if (brim_cuda_capture_end(d->stream, &graph, status ? &unused : err) != BRIM_OK || status) {
        brim_cuda_free(word);
        return status ? status : BRIM_E_DEVICE;
    }
    for (int i = 0; i < 50 && status == BRIM_OK; i++) {
        double us = 0;
        status = brim_cuda_event_record(d->begin, d->stream, err);
        if (status == BRIM_OK) status = brim_cuda_graph_launch(graph, d->stream, err);
        if (status == BRIM_OK) status = brim_cuda_event_record(d->end, d->stream, err);
        if (status == BRIM_OK) status = brim_cuda_event_elapsed_us(d->begin, d->end, &us, err);
        if (i == 0 || us < best) best = us;
    }
    d->empty_us = best;
    brim_cuda_graph_free(graph);
    brim_cuda_free(word);
    return status;
}

brim_status bench_cuda_open(struct bench_cuda *d, bool graph, bool course, brim_error *err)
{
    *d = (struct bench_cuda){.graph = graph, .course = course};
    BRIM_TRY(brim_cuda_device_get(0, &d->info, err));
    BRIM_TRY(brim_cuda_stream_create(&d->stream, err));
    BRIM_TRY(brim_cuda_event_create_timed(&d->begin, err));
    BRIM_TRY(brim_cuda_event_create_timed(&d->end, err));
    return empty_clock(d, err);
}

void bench_cuda_close(struct bench_cuda *d)
{
    brim_cuda_event_free(d->begin);
    brim_cuda_event_free(d->end);
    brim_cuda_stream_free(d->stream);
    *d = (struct bench_cuda){0};
}

/* ---- what every case does -------------------------------------------------------------------- */

brim_status bench_cuda_block(struct bench_cuda_case *k, void **out, const void *from,
                             size_t n_bytes, brim_error *err)
{
    BRIM_REQUIRE(err, k->n_block < BENCH_CUDA_MAX_BLOCK, BRIM_E_RANGE,
                 "bench: a case has at most %d blocks of device memory", BENCH_CUDA_MAX_BLOCK);
    BRIM_TRY(brim_cuda_alloc(out, n_bytes, "a benchmark's operands", err));
    k->blocks[k->n_block++] = *out;
    if (!from) return brim_cuda_fill(*out, 0xFF, n_bytes, k->dev->stream, "poison", err);
    BRIM_TRY(brim_cuda_copy(*out, from, n_bytes, k->dev->stream, "a benchmark's operands", err));
    return brim_cuda_stream_wait(k->dev->stream, "a benchmark's operands", err);
}

brim_status bench_cuda_fetch(struct bench_cuda_case *k, const void *from, void *out, size_t n_bytes,
                             brim_error *err)
{
    BRIM_TRY(brim_cuda_copy(out, from, n_bytes, k->dev->stream, "results", err));
    return brim_cuda_stream_wait(k->dev->stream, "results", err);
}

brim_status bench_cuda_fetch_bf16(struct bench_cuda_case *k, const void *from, int64_t n,
                                  float *out, brim_error *err)
{
    uint16_t *raw = brim_alloc((size_t)n * sizeof(*raw));
    BRIM_REQUIRE(err, raw, BRIM_E_NO_MEMORY, "bench: no memory for results");
    brim_status status = bench_cuda_fetch(k, from, raw, (size_t)n * sizeof(*raw), err);
    for (int64_t i = 0; i < n && status == BRIM_OK; i++) out[i] = brim_f32_from_bf16(raw[i]);
    brim_free(raw);
    return status;
}

int64_t bench_cuda_copies(const struct bench_context *ctx, size_t n_bytes)
{
    int64_t n = n_bytes ? (int64_t)(((size_t)ctx->cold_bytes + n_bytes - 1) / n_bytes) : 1;
    return n < 1 ? 1 : n > BENCH_CUDA_MAX_COPY ? BENCH_CUDA_MAX_COPY : n;
}

static double time_impl(void *ctx, int64_t sample)
{
    struct bench_cuda_impl *impl = ctx;
    struct bench_cuda *d = impl->owner->dev;
    int64_t copy = sample % impl->n_copy;
    brim_error err;
    double us = 0;
    bool ok = brim_cuda_event_record(d->begin, d->stream, &err) == BRIM_OK;
    if (d->graph)
        ok = ok && brim_cuda_graph_launch(impl->graphs[copy], d->stream, &err) == BRIM_OK;
    else
        ok = ok && impl->launch(impl->owner, impl->which, copy, &err) == BRIM_OK;
    ok = ok && brim_cuda_event_record(d->end, d->stream, &err) == BRIM_OK;
    ok = ok && brim_cuda_event_elapsed_us(d->begin, d->end, &us, &err) == BRIM_OK;
    return ok ? us : -1;
}

void bench_cuda_add(struct bench_case *c, const char *name, int which, int64_t n_copy,
                    brim_status (*launch)(struct bench_cuda_case *, int, int64_t, brim_error *))
{
    struct bench_cuda_case *k = c->owned;
    k->impl[c->n_impl] =
        (struct bench_cuda_impl){.owner = k, .launch = launch, .which = which, .n_copy = n_copy};
    c->impl[c->n_impl].name = name;
    c->impl[c->n_impl].time = time_impl;
    c->impl[c->n_impl].ctx = &k->impl[c->n_impl];
    c->n_impl++;
}

brim_status bench_cuda_once(struct bench_case *c, int impl, int64_t copy, brim_error *err)
{
    struct bench_cuda_impl *i = c->impl[impl].ctx;
    BRIM_TRY(i->launch(i->owner, i->which, copy, err));
    return brim_cuda_stream_wait(i->owner->dev->stream, c->name, err);
}

brim_status bench_cuda_record(struct bench_case *c, int impl, brim_error *err)
{
    struct bench_cuda_impl *i = c->impl[impl].ctx;
    void *stream = i->owner->dev->stream;
    i->graphs = brim_calloc((size_t)i->n_copy, sizeof(*i->graphs));
    BRIM_REQUIRE(err, i->graphs, BRIM_E_NO_MEMORY, "bench: no memory for recordings");
    for (int64_t copy = 0; copy < i->n_copy; copy++) {
        brim_error unused;
        BRIM_TRY(brim_cuda_capture_begin(stream, err));
        brim_status status = i->launch(i->owner, i->which, copy, err);
        if (status == BRIM_OK)
            status = brim_cuda_capture_kernels(stream, &c->impl[impl].n_kernel, err);
        brim_status ended = brim_cuda_capture_end(stream, &i->graphs[copy], status ? &unused : err);
        if (status || ended) return status ? status : ended;
        /* A recording's first replay brings it to the device, which is no part of its time; with
         * weights in rotation there can be more recordings than warm-ups and samples. */
        BRIM_TRY(brim_cuda_graph_launch(i->graphs[copy], stream, err));
    }
    return brim_cuda_stream_wait(stream, c->name, err);
}

void bench_cuda_case_free(struct bench_case *c)
{
    struct bench_cuda_case *k = c->owned;
    if (!k) return;
    for (int i = 0; i < BENCH_MAX_IMPL; i++) {
        for (int64_t copy = 0; k->impl[i].graphs && copy < k->impl[i].n_copy; copy++)
            brim_cuda_graph_free(k->impl[i].graphs[copy]);
        brim_free(k->impl[i].graphs);
    }
    for (int i = 0; i < k->n_block; i++) brim_cuda_free(k->blocks[i]);
    brim_free(k);
    c->owned = NULL;
}

/* ---- projections ----------------------------------------------------------------------------- */

enum form { DENSE, MATVEC, TILED, SPLIT_K, HOPPER };

struct projection {
    struct bench_cuda_case base;
    int64_t n_row, n_in, n_out;
    int group;
    char *dense, *codes, *scales, *biases, *packed; /* n_copy of each, one after the other */
    size_t dense_bytes, codes_bytes, param_bytes, packed_bytes;
    void *x, *y, *workspace;
    size_t workspace_bytes;
};

static brim_w4_args w4_args(const struct projection *p, enum form form, int64_t copy)
{
    brim_w4_args a;
    brim_w4_args_init(&a);
    a.device = BRIM_KERNEL_CUDA;
    a.stream = p->base.dev->stream;
    a.workspace = p->workspace;
    a.workspace_bytes = p->workspace_bytes;
    a.n_row = p->n_row;
    a.n_in = p->n_in;
    a.n_out = p->n_out;
    a.group = p->group;
    a.x = p->x;
    a.y = p->y;
    a.x_stride = p->n_in;
    a.y_stride = p->n_out;
    a.codes = p->codes + (size_t)copy * p->codes_bytes;
    a.scales = p->scales + (size_t)copy * p->param_bytes;
    a.biases = p->biases + (size_t)copy * p->param_bytes;
    a.level = form == HOPPER ? BRIM_W4_HOPPER : form == MATVEC ? BRIM_W4_MATVEC : BRIM_W4_TILED;
    a.split = form == TILED ? BRIM_W4_SPLIT_OFF : BRIM_W4_SPLIT_AUTO;
    if (p->base.dev->course) a.policy = BRIM_W4_POLICY_COURSE;
    if (form == HOPPER) a.packed = p->packed + (size_t)copy * p->packed_bytes;
    return a;
}

static brim_status launch_projection(struct bench_cuda_case *owner, int which, int64_t copy,
                                     brim_error *err)
{
    struct projection *p = (struct projection *)owner;
    if (which != DENSE) {
        brim_w4_args a = w4_args(p, (enum form)which, copy);
        return brim_w4_matmul(&a, err);
    }
    struct brim_cuda_dense_args a = {.n_row = p->n_row,
                                     .w = {.kind = BRIM_WEIGHT_DENSE,
                                           .dtype = BRIM_DTYPE_BF16,
                                           .n_out = p->n_out,
                                           .n_in = p->n_in,
                                           .data = p->dense + (size_t)copy * p->dense_bytes},
                                     .x = p->x,
                                     .x_stride = p->n_in,
                                     .y = p->y,
                                     .y_stride = p->n_out,
                                     .epilogue = BRIM_W4_STORE_BF16};
    return brim_cuda_dense(&a, owner->dev->stream, err);
}

/* The device's copy of `n_bytes` at `from`, n_copy times. */
static brim_status upload_copies(struct projection *p, char **out, const void *from, size_t n_bytes,
                                 int64_t n_copy, brim_error *err)
{
    void *block;
    BRIM_TRY(bench_cuda_block(&p->base, &block, NULL, n_bytes * (size_t)n_copy, err));
    *out = block;
    for (int64_t i = 0; i < n_copy && from; i++)
        BRIM_TRY(brim_cuda_copy(*out + (size_t)i * n_bytes, i ? *out : from, n_bytes,
                                p->base.dev->stream, "weights", err));
    return brim_cuda_stream_wait(p->base.dev->stream, "weights", err);
}

static brim_status upload_dense(struct projection *p, const struct brim_weight *w, int64_t n_copy,
                                brim_error *err)
{
    uint16_t *dense = brim_alloc((size_t)(w->n_out * w->n_in) * sizeof(*dense));
    float *row = brim_alloc((size_t)w->n_in * sizeof(*row));
    brim_status status = BRIM_OK;
    if (!dense || !row) {
        status = brim_fail(err, BRIM_E_NO_MEMORY, "bench: no memory for dense weights");
    } else {
        for (int64_t o = 0; o < w->n_out; o++) {
            brim_weight_row_f32(w, o, row);
            for (int64_t i = 0; i < w->n_in; i++)
                dense[o * w->n_in + i] = brim_bf16_from_f32(row[i]);
        }
        p->dense_bytes = (size_t)(w->n_out * w->n_in) * sizeof(*dense);
        status = upload_copies(p, &p->dense, dense, p->dense_bytes, n_copy, err);
    }
    brim_free(row);
    brim_free(dense);
    return status;
}

/* Rows 0, the middle and the last against plain double arithmetic on the same bf16 inputs. */
static brim_status check_projection(struct bench_case *c, const struct brim_weight *weight,
                                    const float *x, brim_error *err)
{
    struct projection *p = c->owned;
    const int64_t rows[] = {0, p->n_row / 2, p->n_row - 1};
    float *want = brim_alloc(3 * (size_t)p->n_out * sizeof(*want));
    float *got = brim_alloc(3 * (size_t)p->n_out * sizeof(*got));
    float *w = brim_alloc((size_t)p->n_in * sizeof(*w));
    brim_status status = BRIM_OK;
    if (!want || !got || !w)
        status = brim_fail(err, BRIM_E_NO_MEMORY, "bench: no memory for the check of %s", c->name);
    for (int64_t o = 0; o < p->n_out && status == BRIM_OK; o++) {
        brim_weight_row_f32(weight, o, w);
        double sum[3] = {0}; /* side by side: three chains of additions */
        for (int64_t i = 0; i < p->n_in; i++)
            for (int r = 0; r < 3; r++) sum[r] += (double)x[rows[r] * p->n_in + i] * w[i];
        for (int r = 0; r < 3; r++) want[r * p->n_out + o] = (float)sum[r];
    }
    size_t y_bytes = (size_t)(p->n_row * p->n_out) * 2;
    for (int i = 0; i < c->n_impl && status == BRIM_OK; i++) {
        int64_t n_copy = p->base.impl[i].n_copy;
        for (int64_t copy = 0; copy < n_copy && status == BRIM_OK;
             copy += n_copy > 1 ? n_copy - 1 : 1) {
            status = brim_cuda_fill(p->y, 0xFF, y_bytes, p->base.dev->stream, "poison", err);
            if (status == BRIM_OK) status = bench_cuda_once(c, i, copy, err);
            for (int r = 0; r < 3 && status == BRIM_OK; r++)
                status = bench_cuda_fetch_bf16(&p->base, (uint16_t *)p->y + rows[r] * p->n_out,
                                               p->n_out, got + r * p->n_out, err);
            /* outputs, weights and one plane rounded to bf16 (docs/kernels/w4.md), with a margin */
            if (status == BRIM_OK) bench_compare(c, i, got, want, 3 * p->n_out, 4e-3);
        }
    }
    brim_free(want);
    brim_free(got);
    brim_free(w);
    return status;
}

static brim_status add_form(struct bench_case *c, const char *name, enum form form, int64_t n_copy,
                            brim_error *err)
{
    struct projection *p = c->owned;
    int i = c->n_impl;
    bench_cuda_add(c, name, (int)form, n_copy, launch_projection);
    if (form == DENSE) {
        snprintf(c->impl[i].plan, sizeof(c->impl[i].plan), "dense");
        return BRIM_OK;
    }
    brim_w4_args a = w4_args(p, form, 0);
    brim_w4_plan plan;
    BRIM_TRY(brim_w4_plan_make(&a, &plan, err));
    snprintf(c->impl[i].plan, sizeof(c->impl[i].plan), "%s x%" PRId64 " grid %" PRId64, plan.kernel,
             plan.cluster > 1 ? (int64_t)plan.cluster : plan.split.split, plan.grid);
    c->impl[i].accumulates = plan.accumulates;
    c->impl[i].reduces = plan.reduces;
    if (plan.workspace_bytes > p->workspace_bytes) {
        p->workspace_bytes = (plan.workspace_bytes + 255) / 256 * 256;
        BRIM_TRY(bench_cuda_block(&p->base, &p->workspace, NULL, p->workspace_bytes, err));
        BRIM_TRY(brim_w4_workspace_init(BRIM_KERNEL_CUDA, p->workspace, p->workspace_bytes,
                                        p->base.dev->stream, err));
    }
    return BRIM_OK;
}

static brim_status make_projection(struct bench_case *c, const struct bench_context *ctx,
                                   const struct brim_weight *w, float *x, bool split_k,
                                   brim_error *err)
{
    struct projection *p = c->owned;
    int64_t n_x = p->n_row * p->n_in;
    uint16_t *narrow = brim_alloc((size_t)n_x * sizeof(*narrow));
    BRIM_REQUIRE(err, narrow, BRIM_E_NO_MEMORY, "bench: no memory for %s", c->name);
    for (int64_t i = 0; i < n_x; i++) {
        narrow[i] = brim_bf16_from_f32(x[i]);
        x[i] = brim_f32_from_bf16(narrow[i]);
    }
    brim_status status = bench_cuda_block(&p->base, &p->x, narrow, (size_t)n_x * 2, err);
    brim_free(narrow);
    if (status) return status;
    BRIM_TRY(bench_cuda_block(&p->base, &p->y, NULL, (size_t)(p->n_row * p->n_out) * 2, err));
    p->codes_bytes = (size_t)(w->n_out * w->n_in / 2);
    p->param_bytes = (size_t)(w->n_out * w->n_in / w->group) * 2;
    int64_t n_copy = bench_cuda_copies(ctx, p->codes_bytes + 2 * p->param_bytes);
    BRIM_TRY(upload_copies(p, &p->codes, w->data, p->codes_bytes, n_copy, err));
    BRIM_TRY(upload_copies(p, &p->scales, w->scales, p->param_bytes, n_copy, err));
    BRIM_TRY(upload_copies(p, &p->biases, w->biases, p->param_bytes, n_copy, err));
    brim_w4_args a = w4_args(p, TILED, 0);
    BRIM_TRY(brim_w4_pack_bytes(&a, &p->packed_bytes, err));
    p->packed_bytes = (p->packed_bytes + 255) / 256 * 256;
    BRIM_TRY(upload_copies(p, &p->packed, NULL, p->packed_bytes, n_copy, err));
    for (int64_t i = 0; i < n_copy; i++) {
        a = w4_args(p, TILED, i);
        BRIM_TRY(brim_w4_pack(&a, p->packed + (size_t)i * p->packed_bytes, err));
    }
    BRIM_TRY(brim_cuda_stream_wait(p->base.dev->stream, "packing", err));
    if (p->n_row == 1) {
        int64_t n_dense = bench_cuda_copies(ctx, (size_t)(w->n_out * w->n_in) * 2);
        BRIM_TRY(upload_dense(p, w, n_dense, err));
        BRIM_TRY(add_form(c, "dense", DENSE, n_dense, err));
        BRIM_TRY(add_form(c, "matvec", MATVEC, n_copy, err));
    } else {
        BRIM_TRY(add_form(c, "tiled", TILED, n_copy, err));
        if (split_k) BRIM_TRY(add_form(c, "split-k", SPLIT_K, n_copy, err));
    }
    return add_form(c, "hopper", HOPPER, n_copy, err);
}

brim_status bench_cuda_projection(struct bench_case *c, const struct bench_context *ctx,
                                  const char *name, int64_t n_row, bool split_k, brim_error *err)
{
    *c = (struct bench_case){.free = bench_cuda_case_free};
    snprintf(c->name, sizeof(c->name), "%s M=%" PRId64, name, n_row);
    struct projection *p = c->owned = brim_calloc(1, sizeof(*p));
    BRIM_REQUIRE(err, p, BRIM_E_NO_MEMORY, "bench: no memory");
    p->base.dev = ctx->cuda;
    p->n_row = n_row;
    p->group = ctx->shape->group;
    bench_projection_dims(ctx->shape, name, &p->n_in, &p->n_out);
    double bytes = (double)(p->n_out * p->n_in) * (0.5 + 4.0 / p->group) +
                   2.0 * (double)(n_row * (p->n_in + p->n_out));
    double flop = 2.0 * (double)n_row * (double)p->n_in * (double)p->n_out;
    c->floor_us =
        bytes / bytes_per_us > flop / flop_per_us ? bytes / bytes_per_us : flop / flop_per_us;
    struct brim_weight w;
    BRIM_TRY(bench_random_weight(&w, p->n_out, p->n_in, p->group, 11, err));
    float *x = brim_alloc((size_t)(n_row * p->n_in) * sizeof(*x));
    brim_status status =
        x ? BRIM_OK : brim_fail(err, BRIM_E_NO_MEMORY, "bench: no memory for %s", c->name);
    if (status == BRIM_OK) {
        bench_fill_normal(x, n_row * p->n_in, 12);
        status = make_projection(c, ctx, &w, x, split_k, err);
    }
    if (status == BRIM_OK) status = check_projection(c, &w, x, err);
    for (int i = 0; i < c->n_impl && status == BRIM_OK && !c->check[0]; i++) {
        status = bench_cuda_record(c, i, err);
        int planned = c->impl[i].accumulates + c->impl[i].reduces;
        if (status == BRIM_OK && planned && planned != c->impl[i].n_kernel)
            snprintf(c->check, sizeof(c->check), "%s, implementation %s: %d kernels, %d planned",
                     c->name, c->impl[i].name, c->impl[i].n_kernel, planned);
    }
    brim_free(x);
    bench_free_weight(&w);
    return status;
}
