/* SPDX-License-Identifier: Apache-2.0
 * A dense decoder on a backend: immutable weights (brim_model), the memory of one session
 * (brim_state), and the forward pass. */
#ifndef BRIM_MODEL_MODEL_H
#define BRIM_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/status.h"
#include "model/config.h"
#include "tensor/weight.h"

struct brim_layer {
    struct brim_vector *attn_norm, *ffn_norm; /* [n_embd] */
    struct brim_vector *q_norm, *k_norm;      /* [head_dim]; NULL but for Qwen3 */
    struct brim_matrix *qkv;                  /* n_embd -> (n_head + 2 n_head_kv) head_dim */
    struct brim_matrix *attn_out;             /* n_head head_dim -> n_embd */
    struct brim_matrix *gate_up;              /* n_embd -> 2 n_ff, gate first */
    struct brim_matrix *down;                 /* n_ff -> n_embd */
};

struct brim_model {
    struct brim_backend *backend; /* borrowed */
    struct brim_model_config config;
    uint64_t fingerprint;      /* of the configuration and a sample of every tensor's bytes */
    struct brim_matrix *embed; /* [n_vocab][n_embd] */
    struct brim_matrix *head;  /* == embed when tied */
    struct brim_vector *norm;  /* [n_embd] */
    struct brim_layer *layers; /* [n_layer] */
    double *inv_freq;          /* [head_dim / 2] */
    double rope_amplitude;
};

/* Called after each tensor with the bytes of weights read so far. */
typedef void brim_model_progress_fn(void *ctx, uint64_t done);

/* Check every shape, repack every weight, release its pages. On failure *out is NULL. */
brim_status brim_model_load(struct brim_model **out, struct brim_backend *backend,
                            const struct brim_model_config *config,
                            const struct brim_weight_source *source,
                            brim_model_progress_fn *progress, void *progress_ctx, brim_error *err);
void brim_model_free(struct brim_model **model);

/* What the caller of a forward pass needs afterwards. Keys and values are always appended. */
enum brim_want {
    BRIM_WANT_NOTHING, /* the last layer stops at its keys and values */
    BRIM_WANT_LAST, /* logits of the last row: only that row goes through the end of the last layer
                     */
    BRIM_WANT_ROWS  /* every row, for brim_model_head */
};

/* The memory of one session. */
struct brim_state {
    int64_t n_position; /* capacity */
    int64_t n_row_max;  /* rows of one step */
    int64_t n_row;      /* of the step in progress */
    enum brim_want want;
    struct brim_kv_shape kv_shape;
    struct brim_kv *kv;
    struct brim_step *step;
    struct brim_rows *x; /* residual stream */
    struct brim_rows *qkv;
    struct brim_rows *mixed;  /* attention output */
    struct brim_rows *hidden; /* after SwiGLU */
    struct brim_rows *logits; /* [1][n_vocab] */
};

brim_status brim_state_create(struct brim_state *out, const struct brim_model *model,
                              int64_t n_position, int64_t n_row_max, enum brim_dtype kv_dtype,
                              brim_error *err);
void brim_state_free(struct brim_state *state, const struct brim_model *model);

/* Evaluate ids[0, n_row) at positions first_pos... 1 <= n_row <= n_row_max, first_pos + n_row <=
 * n_position, ids inside the vocabulary: checked by the caller. Allocates nothing. */
brim_status brim_model_forward(const struct brim_model *model, struct brim_state *state,
                               const int32_t *ids, int64_t n_row, int64_t first_pos,
                               enum brim_want want, brim_error *err);
/* Logits of rows [first, first + n) of the last forward, which wanted rows; n <= rows of `logits`.
 */
brim_status brim_model_head(const struct brim_model *model, struct brim_state *state, int64_t first,
                            int64_t n, struct brim_rows *logits, brim_error *err);

#endif
