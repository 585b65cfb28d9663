/* SPDX-License-Identifier: Apache-2.0
 * The CPU backend's operators. A step of one row does its small per-row work on the calling thread,
 * between the products that wake the pool: waking it costs more than a norm of a few thousand
 * values. Longer steps spread rows over the pool; a row's result is the same either way. */
#include "backend/backend_cpu.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "tensor/rope.h"

/* Values of row-wise work below which the calling thread does it all. */
enum { INLINE_VALUES = 16384, ROWS_PER_ITEM = 8 };

/* A row-wise job: fn for each row, on the pool if there are enough values. */
struct row_job {
    void (*fn)(const struct row_job *job, int64_t row);
    struct brim_step *step;
    const struct brim_matrix *table;
    const float *x;
    float *y;
    const struct brim_vector *norm;
    const struct brim_attention_args *attention;
    float eps;
    int64_t x_stride, y_stride, width, n_row;
};

static void row_item(void *arg, int64_t item, int worker)
{
    (void)worker;
    const struct row_job *job = arg;
    int64_t row = item * ROWS_PER_ITEM, end = row + ROWS_PER_ITEM;
    if (end > job->n_row) end = job->n_row;
    for (; row < end; row++) job->fn(job, row);
}

static void run_rows(const struct row_job *job)
{
    struct row_job copy = *job;
    if (job->n_row * job->width <= INLINE_VALUES)
        for (int64_t row = 0; row < job->n_row; row++) job->fn(job, row);
    else
        brim_pool_run(job->step->backend->pool, row_item, &copy,
                      (job->n_row + ROWS_PER_ITEM - 1) / ROWS_PER_ITEM);
}

/* y[n_row][y_stride] = x W^T + bias, the parts of W side by side. */
static void product(struct brim_step *step, const struct brim_matrix *w, const float *x,
                    int64_t x_stride, int64_t n_row, float *y, int64_t y_stride)
{
    const struct cpu_backend *cpu = step->backend;
    for (int i = 0; i < w->n_part; i++) {
        brim_linear_run(cpu->ops, cpu->pool, &w->parts[i], cpu->mode, x, x_stride, n_row, y,
                        y_stride, step->linear_scratch);
        y += w->parts[i].n_out;
    }
}

bool brim_cpu_step_begin(struct brim_step *step, const int32_t *ids, int64_t n_row,
                         int64_t first_pos, bool want_logits)
{
    (void)want_logits;
    assert(n_row >= 1 && n_row <= step->shape.n_row_max);
    step->ids = ids;
    step->n_row = n_row;
    step->first_pos = first_pos;
    const struct brim_rotary *rotary = &step->shape.rotary;
    brim_rope_table(rotary->inv_freq, rotary->n_pair, rotary->amplitude, first_pos, n_row,
                    step->cosine, step->sine);
    return false;
}

static void embed_row(const struct row_job *job, int64_t row)
{
    brim_linear_row_f32(&job->table->parts[0], job->step->ids[row], job->y + row * job->y_stride);
}

void brim_cpu_embed(struct brim_step *step, const struct brim_matrix *table, struct brim_rows *x)
{
    assert(table->n_part == 1);
    run_rows(&(struct row_job){
        .fn = embed_row,
        .step = step,
        .table = table,
        .y = x->data,
        .y_stride = x->width,
        .width = x->width,
        .n_row = step->n_row,
    });
}

static void norm_row(const struct row_job *job, int64_t row)
{
    job->step->backend->ops->rmsnorm(job->x + row * job->x_stride, job->norm->data, job->eps,
                                     job->width, job->y + row * job->y_stride);
}

/* step->normed[0..n_row) = rmsnorm of rows first.. of x. */
static void normalise(struct brim_step *step, const struct brim_rows *x, int64_t first,
                      int64_t n_row, const struct brim_vector *norm, float eps)
{
    assert(norm->n == x->width && x->width == step->shape.n_embd);
    run_rows(&(struct row_job){
        .fn = norm_row,
        .step = step,
        .x = x->data + first * x->width,
        .x_stride = x->width,
        .y = step->normed,
        .y_stride = x->width,
        .norm = norm,
        .eps = eps,
        .width = x->width,
        .n_row = n_row,
    });
}

void brim_cpu_norm_linear(struct brim_step *step, const struct brim_rows *x,
                          const struct brim_vector *norm, float eps, const struct brim_matrix *w,
                          struct brim_rows *y)
{
    normalise(step, x, 0, step->n_row, norm, eps);
    product(step, w, step->normed, x->width, step->n_row, y->data, y->width);
}

/* Norm and rotation of the query and key heads of one row. */
static void rotate_row(const struct row_job *job, int64_t row)
{
    const struct brim_attention_args *args = job->attention;
    const struct brim_step *step = job->step;
    const struct brim_cpu_ops *ops = step->backend->ops;
    int64_t n_pair = step->shape.rotary.n_pair, head_dim = args->kv->shape.head_dim;
    int64_t n_head = args->n_head, n_rotated = n_head + args->kv->shape.n_head_kv;
    float *heads = args->qkv->data + row * args->qkv->width;
    for (int64_t h = 0; h < n_rotated; h++) {
        const struct brim_vector *norm = h < n_head ? args->q_norm : args->k_norm;
        float *head = heads + h * head_dim;
        if (norm) ops->rmsnorm(head, norm->data, args->norm_eps, head_dim, head);
    }
    ops->rope(heads, step->cosine + row * n_pair, step->sine + row * n_pair, (int)n_rotated,
              (int)head_dim);
}

void brim_cpu_attention(struct brim_step *step, const struct brim_attention_args *args)
{
    const struct cpu_backend *cpu = step->backend;
    const struct brim_attention_kv kv = brim_kv_layer(args->kv, args->layer);
    int64_t stride = args->qkv->width;
    const float *q = args->qkv->data;
    const float *k = q + args->n_head * kv.head_dim;
    const float *v = k + kv.n_head_kv * kv.head_dim;
    run_rows(&(struct row_job){
        .fn = rotate_row,
        .step = step,
        .attention = args,
        .width = stride,
        .n_row = step->n_row,
    });
    brim_attention_kv_store(cpu->ops, cpu->pool, &kv, step->first_pos, step->n_row, k, stride, v,
                            stride);
    float scale = (float)(1 / sqrt((double)kv.head_dim));
    brim_attention_run(cpu->ops, cpu->pool, &kv, q, stride, (int)args->n_head, step->first_pos,
                       step->n_row, scale, args->out->data, args->out->width,
                       step->attention_scratch);
}

void brim_cpu_keep_last(struct brim_step *step, int64_t n, struct brim_rows *const *buffers,
                        int n_buffer)
{
    int64_t first = step->n_row - n;
    assert(n >= 0 && n <= 1 && first >= 0);
    for (int i = 0; i < n_buffer && first > 0; i++) {
        size_t row_bytes = (size_t)buffers[i]->width * sizeof(float);
        memmove(buffers[i]->data, buffers[i]->data + first * buffers[i]->width,
                (size_t)n * row_bytes);
    }
    step->n_row = n;
}

static void swiglu_row(const struct row_job *job, int64_t row)
{
    const float *gate = job->x + row * job->x_stride;
    job->step->backend->ops->swiglu(gate, gate + job->width, job->width,
                                    job->y + row * job->y_stride);
}

void brim_cpu_norm_gate_up(struct brim_step *step, const struct brim_rows *x,
                           const struct brim_vector *norm, float eps, const struct brim_matrix *w,
                           struct brim_rows *y)
{
    int64_t n_ff = y->width;
    assert(w->n_out == 2 * n_ff && n_ff == step->shape.n_ff);
    normalise(step, x, 0, step->n_row, norm, eps);
    product(step, w, step->normed, x->width, step->n_row, step->gate_up, 2 * n_ff);
    run_rows(&(struct row_job){
        .fn = swiglu_row,
        .step = step,
        .x = step->gate_up,
        .x_stride = 2 * n_ff,
        .y = y->data,
        .y_stride = n_ff,
        .width = n_ff,
        .n_row = step->n_row,
    });
}

static void add_row(const struct row_job *job, int64_t row)
{
    job->step->backend->ops->add(job->y + row * job->y_stride, job->x + row * job->x_stride,
                                 job->width);
}

void brim_cpu_linear_add(struct brim_step *step, const struct brim_rows *x,
                         const struct brim_matrix *w, struct brim_rows *residual)
{
    int64_t n = residual->width;
    assert(w->n_out == n && n == step->shape.n_embd);
    product(step, w, x->data, x->width, step->n_row, step->normed, n);
    run_rows(&(struct row_job){
        .fn = add_row,
        .step = step,
        .x = step->normed,
        .x_stride = n,
        .y = residual->data,
        .y_stride = n,
        .width = n,
        .n_row = step->n_row,
    });
}

void brim_cpu_head(struct brim_step *step, const struct brim_rows *x, int64_t first, int64_t n,
                   const struct brim_vector *norm, float eps, const struct brim_matrix *w,
                   struct brim_rows *logits)
{
    assert(first >= 0 && first + n <= step->n_row && n <= logits->n_row_max);
    normalise(step, x, first, n, norm, eps);
    product(step, w, step->normed, x->width, n, logits->data, logits->width);
}
