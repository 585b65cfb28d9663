/* SPDX-License-Identifier: Apache-2.0
 * What the opaque types of backend.h are on the CPU; for backend_cpu.c (memory) and
 * backend_cpu_step.c (operators). Activations are f32. */
#ifndef BRIM_BACKEND_BACKEND_CPU_H
#define BRIM_BACKEND_BACKEND_CPU_H

#include "backend/backend.h"
#include "base/pool.h"
#include "cpu/attention.h"
#include "cpu/cpu_ops.h"
#include "cpu/linear.h"

enum { BRIM_MATRIX_PARTS = 3 };

struct brim_matrix {
    struct brim_linear parts[BRIM_MATRIX_PARTS]; /* one if the weights could be fused */
    int n_part;
    int64_t n_in, n_out;
    struct brim_matrix *next; /* all matrices of the backend: scratch is sized over them */
};

struct brim_vector {
    float *data;
    int64_t n;
};

struct brim_rows {
    float *data; /* [n_row_max][width] */
    int64_t n_row_max, width;
};

struct brim_kv {
    struct brim_kv_shape shape;
    int64_t n_alloc;    /* positions, whole attention blocks */
    size_t plane_bytes; /* of k, and of v, of one layer */
    uint8_t *memory;    /* [n_layer][k, v][plane_bytes] */
};

struct cpu_backend {
    struct brim_backend base;
    const struct brim_cpu_ops *ops;
    struct brim_pool *pool;
    enum brim_activation_mode mode;
    enum brim_matmul_level level;
    struct brim_matrix *matrices;
    struct brim_arena weights; /* panels of all matrices */
    uint64_t weight_bytes;
};

struct brim_step {
    struct cpu_backend *backend;
    struct brim_step_shape shape;
    const int32_t *ids; /* borrowed between step_begin and step_end */
    int64_t n_row, first_pos;
    float *cosine, *sine; /* [n_row_max][head_dim / 2] of the rows' positions */
    float *normed;        /* [n_row_max][n_embd]: norm output, or a product before it is added */
    float *gate_up;       /* [n_row_max][2 n_ff] */
    void *linear_scratch, *attention_scratch;
};

static inline struct brim_attention_kv brim_kv_layer(const struct brim_kv *kv, int64_t layer)
{
    uint8_t *k = kv->memory + (size_t)layer * 2 * kv->plane_bytes;
    return (struct brim_attention_kv){
        .dtype = kv->shape.dtype,
        .n_head_kv = (int)kv->shape.n_head_kv,
        .head_dim = (int)kv->shape.head_dim,
        .n_alloc = kv->n_alloc,
        .k = k,
        .v = k + kv->plane_bytes,
    };
}

/* backend_cpu_step.c */
bool brim_cpu_step_begin(struct brim_step *step, const int32_t *ids, int64_t n_row,
                         int64_t first_pos, bool want_logits);
void brim_cpu_embed(struct brim_step *step, const struct brim_matrix *table, struct brim_rows *x);
void brim_cpu_norm_linear(struct brim_step *step, const struct brim_rows *x,
                          const struct brim_vector *norm, float eps, const struct brim_matrix *w,
                          struct brim_rows *y);
void brim_cpu_attention(struct brim_step *step, const struct brim_attention_args *args);
void brim_cpu_keep_last(struct brim_step *step, int64_t n, struct brim_rows *const *buffers,
                        int n_buffer);
void brim_cpu_norm_gate_up(struct brim_step *step, const struct brim_rows *x,
                           const struct brim_vector *norm, float eps, const struct brim_matrix *w,
                           struct brim_rows *y);
void brim_cpu_linear_add(struct brim_step *step, const struct brim_rows *x,
                         const struct brim_matrix *w, struct brim_rows *residual);
void brim_cpu_head(struct brim_step *step, const struct brim_rows *x, int64_t first, int64_t n,
                   const struct brim_vector *norm, float eps, const struct brim_matrix *w,
                   struct brim_rows *logits);

#endif
