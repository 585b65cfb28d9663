/* SPDX-License-Identifier: Apache-2.0
 * What a forward pass may call. A backend owns a device, its worker threads and the form weights
 * take there; everything it hands out is opaque, so a forward pass never sees where memory lies.
 *
 * Operators are coarse (norm + projection, the whole attention, gate + up + SwiGLU) so that a
 * device can fuse them, and return nothing: a failure is kept in the step and reported by step_end.
 * Inside a step nothing is allocated and nothing waits for the device, so a device may record a
 * step that wants logits and replay it. Shapes were checked when the model was loaded; operators
 * assert. */
#ifndef BRIM_BACKEND_BACKEND_H
#define BRIM_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/weight.h"

struct brim_backend; /* the device; one per engine */
struct brim_matrix;  /* a projection: one or several weights side by side along n_out */
struct brim_vector;  /* norm weights */
struct brim_step;    /* the scratch of one session's steps */
struct brim_rows;    /* activations [n_row_max][width] */
struct brim_kv;      /* keys and values of one session, every layer */

/* Rotary embedding as numbers: angle of pair i at position p is p * inv_freq[i]; cosine and sine
 * are multiplied by `amplitude` (1, or YaRN's attention factor). */
struct brim_rotary {
    double amplitude;
    int n_pair;             /* head_dim / 2 */
    const double *inv_freq; /* [n_pair], borrowed for the life of the step */
};

struct brim_kv_shape {
    int64_t n_layer, n_position, n_head_kv, head_dim;
    enum brim_dtype dtype; /* F16 or F32 */
};

/* What a session's steps will need at most. */
struct brim_step_shape {
    int64_t n_row_max;
    int64_t n_embd, n_ff, n_head;
    struct brim_kv_shape kv;
    struct brim_rotary rotary;
};

/* y = attention(rope(norm(q)), rope(norm(k)), v) for the rows of the step, which follow the
 * positions already held; keys and values of the rows are appended to layer `layer` of kv. */
struct brim_attention_args {
    const struct brim_rows *qkv; /* [n_row][n_head + 2 n_head_kv][head_dim]; may be overwritten */
    const struct brim_vector *q_norm, *k_norm; /* [head_dim] RMSNorm per head, or NULL */
    float norm_eps;
    struct brim_kv *kv;
    int64_t layer;
    int64_t n_head;
    struct brim_rows *out; /* [n_row][n_head][head_dim] */
};

/* Ids begin.. end - 1. */
struct brim_id_range {
    int32_t begin, end;
};

/* What a matrix is for: a device may keep it in another form. */
enum brim_matrix_role {
    BRIM_MATRIX_LINEAR,        /* norm_linear, linear_add, head */
    BRIM_MATRIX_GATE_UP,       /* norm_gate_up; two parts, gate first */
    BRIM_MATRIX_TABLE,         /* embed */
    BRIM_MATRIX_TABLE_AND_HEAD /* embed and head */
};

/* How the next token is chosen; the fields of brim_sampling. */
struct brim_sample_args {
    float temperature, top_p, min_p, repeat_penalty;
    int32_t top_k;
    const int32_t *recent; /* host, tokens of the penalty's window */
    int64_t n_recent;      /* 0: no penalty */
    float uniform;         /* in [0, 1) */
};

struct brim_backend_info {
    const char *name;     /* "cpu", "cuda" */
    const char *device;   /* the GPU's name; "" on the CPU */
    const char *level;    /* rung of the kernel ladder */
    const char *cpu_tier; /* "avx512"; "" where no kernel of ours runs on the CPU */
    int n_thread;
    int64_t step_rows;     /* rows that fill the device: a good length for pieces of a prefill */
    uint64_t weight_bytes; /* as held in memory */
};

struct brim_backend_ops {
    const char *name;
    void (*close)(struct brim_backend **backend);

    /* ---- loading: once per weight ---- */

    /* Copy and repack `n_part` (1..3) weights of equal n_in; biases[i] may be NULL (no bias) or a
     * vector of parts[i].n_out; `biases` itself may be NULL. Nothing is borrowed afterwards. `name`
     * is for error texts. On failure *out is NULL. */
    brim_status (*matrix_create)(struct brim_backend *backend, struct brim_matrix **out,
                                 const struct brim_weight *parts,
                                 const struct brim_weight *const *biases, int n_part,
                                 enum brim_matrix_role role, const char *name, brim_error *err);
    void (*matrix_free)(struct brim_backend *backend, struct brim_matrix **matrix);
    /* Finite values only: BRIM_E_NOT_FINITE otherwise. */
    brim_status (*vector_create)(struct brim_backend *backend, struct brim_vector **out,
                                 const struct brim_weight *w, const char *name, brim_error *err);
    void (*vector_free)(struct brim_backend *backend, struct brim_vector **vector);
    /* Every weight is created; of the vocabulary's rows only those in the n ascending ranges may be
     * sampled. Called once, before any session. NULL: nothing to do. */
    brim_status (*loaded)(struct brim_backend *backend, const struct brim_id_range *ranges,
                          size_t n, brim_error *err);
    /* Valid once the weights are created. */
    void (*info)(const struct brim_backend *backend, struct brim_backend_info *out);

    /* ---- session memory: once per session ---- */

    brim_status (*step_create)(struct brim_backend *backend, struct brim_step **out,
                               const struct brim_step_shape *shape, brim_error *err);
    void (*step_free)(struct brim_backend *backend, struct brim_step **step);
    brim_status (*rows_create)(struct brim_backend *backend, struct brim_rows **out,
                               int64_t n_row_max, int64_t width, brim_error *err);
    void (*rows_free)(struct brim_backend *backend, struct brim_rows **rows);
    brim_status (*kv_create)(struct brim_backend *backend, struct brim_kv **out,
                             const struct brim_kv_shape *shape, brim_error *err);
    void (*kv_free)(struct brim_backend *backend, struct brim_kv **kv);
    /* Copy the first n_position positions of one layer to or from host memory laid out
     * [k, v][n_head_kv][n_position][head_dim], the exact bits. */
    brim_status (*kv_export)(const struct brim_kv *kv, int64_t layer, int64_t n_position, void *out,
                             brim_error *err);
    brim_status (*kv_import)(struct brim_kv *kv, int64_t layer, int64_t n_position,
                             const void *data, brim_error *err);

    /* ---- a step: n_row tokens at positions first_pos, first_pos + 1, ... ---- */

    /* want_logits: the caller will ask for the head of the last row. True: the backend has replayed
     * a recorded step, the caller goes straight to step_end. */
    bool (*step_begin)(struct brim_step *step, const int32_t *ids, int64_t n_row, int64_t first_pos,
                       bool want_logits);
    /* x[n_row][n_embd] = rows ids of the table. */
    void (*embed)(struct brim_step *step, const struct brim_matrix *table, struct brim_rows *x);
    /* y = W rmsnorm(x) + bias. */
    void (*norm_linear)(struct brim_step *step, const struct brim_rows *x,
                        const struct brim_vector *norm, float eps, const struct brim_matrix *w,
                        struct brim_rows *y);
    void (*attention)(struct brim_step *step, const struct brim_attention_args *args);
    /* Of the step's rows only the last n (0 or 1) are needed from here on: they move to the front
     * of each of the n_buffer (1..3) buffers, and the step goes on with n rows. No attention may
     * follow. */
    void (*keep_last)(struct brim_step *step, int64_t n, struct brim_rows *const *buffers,
                      int n_buffer);
    /* y = silu(gate) * up with [gate, up] = W rmsnorm(x); W has 2 n_ff outputs. */
    void (*norm_gate_up)(struct brim_step *step, const struct brim_rows *x,
                         const struct brim_vector *norm, float eps, const struct brim_matrix *w,
                         struct brim_rows *y);
    /* residual += W x + bias. */
    void (*linear_add)(struct brim_step *step, const struct brim_rows *x,
                       const struct brim_matrix *w, struct brim_rows *residual);
    /* logits[0..n) = W rmsnorm(x[first..first + n)); may be called again between step_end and the
     * next step_begin, then it takes effect at once. */
    void (*head)(struct brim_step *step, const struct brim_rows *x, int64_t first, int64_t n,
                 const struct brim_vector *norm, float eps, const struct brim_matrix *w,
                 struct brim_rows *logits);
    /* Start the work if it has not started; the first failure of the step. Does not wait. */
    brim_status (*step_end)(struct brim_step *step, brim_error *err);
    /* Wait for the step's work; the first failure of any of it. */
    brim_status (*step_wait)(struct brim_step *step, brim_error *err);
    /* The token after row 0 of `logits`, as brim_sampler_next chooses it; -1: the logits are not
     * finite. Waits. NULL: the caller samples on the host. */
    brim_status (*sample)(struct brim_step *step, const struct brim_rows *logits,
                          const struct brim_sample_args *args, int32_t *id, brim_error *err);
    /* Wait, and make row 0.. of `rows` readable: a pointer valid until the rows change. NULL on
     * failure. */
    const float *(*rows_read)(struct brim_step *step, const struct brim_rows *rows,
                              brim_error *err);
    /* Overwrite the first n values of row 0 with floats at any alignment: restoring logits. */
    brim_status (*rows_write)(struct brim_step *step, struct brim_rows *rows, const void *data,
                              int64_t n, brim_error *err);
};

/* Every backend's struct begins with this. */
struct brim_backend {
    const struct brim_backend_ops *ops;
};

struct brim_backend_cpu_options {
    int n_thread;     /* 0: the processors this process may use */
    const char *tier; /* NULL: the best */
    bool activations_int8;
    const char *level; /* NULL: the default; see brim.h */
};
brim_status brim_backend_cpu_open(struct brim_backend **out,
                                  const struct brim_backend_cpu_options *options, brim_error *err);

struct brim_backend_cuda_options {
    int ordinal;
    const char *level; /* NULL: the default, "hopper"; see brim.h */
};
/* BRIM_E_DEVICE, BRIM_E_DRIVER or BRIM_E_ARCH where there is no device this build runs on. */
brim_status brim_backend_cuda_open(struct brim_backend **out,
                                   const struct brim_backend_cuda_options *options,
                                   brim_error *err);
#endif
