/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "model/blocks.h"
#include "model/weights.h"
#include "tensor/rope.h"

static brim_load_layer_fn *const load_layer[] = {
    [BRIM_FAMILY_LLAMA] = brim_llama_load_layer,
    [BRIM_FAMILY_QWEN2] = brim_qwen2_load_layer,
    [BRIM_FAMILY_QWEN3] = brim_qwen3_load_layer,
};
static brim_forward_fn *const forward[] = {
    [BRIM_FAMILY_LLAMA] = brim_llama_forward,
    [BRIM_FAMILY_QWEN2] = brim_qwen2_forward,
    [BRIM_FAMILY_QWEN3] = brim_qwen3_forward,
};

/* Every number that changes the meaning of cached keys and values. */
static uint64_t hash_config(const struct brim_model_config *c)
{
    const int64_t whole[] = {(int64_t)c->family,
                             c->n_layer,
                             c->n_embd,
                             c->n_ff,
                             c->n_head,
                             c->n_head_kv,
                             c->head_dim,
                             c->n_vocab,
                             (int64_t)c->rope.kind,
                             c->tie_embeddings,
                             c->rope.truncate};
    const double real[] = {c->norm_eps,
                           c->rope_theta,
                           c->rope.factor,
                           c->rope.original_context,
                           c->rope.low_freq_factor,
                           c->rope.high_freq_factor,
                           c->rope.beta_fast,
                           c->rope.beta_slow,
                           c->rope.attention_factor,
                           c->rope.mscale,
                           c->rope.mscale_all_dim};
    uint64_t hash = brim_hash64(BRIM_HASH64_SEED, whole, sizeof whole);
    return brim_hash64(hash, real, sizeof real);
}

static brim_status load(struct brim_model *model, struct brim_weight_loader *loader,
                        brim_error *err)
{
    const struct brim_model_config *config = &model->config;
    const struct brim_matrix_part embed = {"model.embed_tokens", config->n_vocab};
    const struct brim_matrix_part head = {"lm_head", config->n_vocab};
    enum brim_matrix_role role =
        config->tie_embeddings ? BRIM_MATRIX_TABLE_AND_HEAD : BRIM_MATRIX_TABLE;
    BRIM_TRY(brim_load_matrix(loader, &model->embed, "", &embed, 1, config->n_embd, role,
                              BRIM_BIAS_NONE, err));
    for (int64_t i = 0; i < config->n_layer; i++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "model.layers.%" PRId64 ".", i);
        BRIM_TRY(load_layer[config->family](loader, &model->layers[i], config, prefix, err));
    }
    BRIM_TRY(brim_load_vector(loader, &model->norm, "", "model.norm", config->n_embd, err));
    if (config->tie_embeddings)
        model->head = model->embed;
    else
        BRIM_TRY(brim_load_matrix(loader, &model->head, "", &head, 1, config->n_embd,
                                  BRIM_MATRIX_LINEAR, BRIM_BIAS_NONE, err));
    model->fingerprint = loader->hash;
    return BRIM_OK;
}

brim_status brim_model_load(struct brim_model **out, struct brim_backend *backend,
                            const struct brim_model_config *config,
                            const struct brim_weight_source *source,
                            brim_model_progress_fn *progress, void *progress_ctx, brim_error *err)
{
    *out = NULL;
    BRIM_TRY(brim_model_config_check(config, source->path, err));
    struct brim_model *model = brim_calloc(1, sizeof *model);
    BRIM_REQUIRE(err, model, BRIM_E_NO_MEMORY, "%s: out of memory for the model", source->path);
    model->backend = backend;
    model->config = *config;
    model->layers = brim_calloc((size_t)config->n_layer, sizeof *model->layers);
    model->inv_freq = brim_calloc((size_t)config->head_dim / 2, sizeof *model->inv_freq);
    brim_status status;
    if (!model->layers || !model->inv_freq) {
        status = brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory for the model", source->path);
    } else {
        brim_rope_frequencies(&config->rope, config->rope_theta, (int)config->head_dim,
                              model->inv_freq, &model->rope_amplitude);
        struct brim_weight_loader loader = {
            .backend = backend,
            .source = source,
            .hash = hash_config(config),
            .progress = progress,
            .progress_ctx = progress_ctx,
        };
        status = load(model, &loader, err);
    }
    if (status != BRIM_OK) brim_model_free(&model);
    *out = model;
    return status;
}

void brim_model_free(struct brim_model **model_ptr)
{
    struct brim_model *model = *model_ptr;
    if (!model) return;
    struct brim_backend *backend = model->backend;
    const struct brim_backend_ops *ops = backend->ops;
    for (int64_t i = 0; model->layers && i < model->config.n_layer; i++) {
        struct brim_layer *l = &model->layers[i];
        struct brim_vector **vectors[] = {&l->attn_norm, &l->ffn_norm, &l->q_norm, &l->k_norm};
        struct brim_matrix **matrices[] = {&l->qkv, &l->attn_out, &l->gate_up, &l->down};
        for (int j = 0; j < 4; j++) {
            ops->vector_free(backend, vectors[j]);
            ops->matrix_free(backend, matrices[j]);
        }
    }
    if (model->head != model->embed) ops->matrix_free(backend, &model->head);
    ops->matrix_free(backend, &model->embed);
    ops->vector_free(backend, &model->norm);
    brim_free(model->layers);
    brim_free(model->inv_freq);
    brim_free(model);
    *model_ptr = NULL;
}

brim_status brim_state_create(struct brim_state *out, const struct brim_model *model,
                              int64_t n_position, int64_t n_row_max, enum brim_dtype kv_dtype,
                              brim_error *err)
{
    const struct brim_model_config *c = &model->config;
    struct brim_backend *backend = model->backend;
    const struct brim_backend_ops *ops = backend->ops;
    *out = (struct brim_state){
        .n_position = n_position,
        .n_row_max = n_row_max,
        .kv_shape = {.n_layer = c->n_layer,
                     .n_position = n_position,
                     .n_head_kv = c->n_head_kv,
                     .head_dim = c->head_dim,
                     .dtype = kv_dtype},
    };
    const struct brim_step_shape shape = {
        .n_row_max = n_row_max,
        .n_embd = c->n_embd,
        .n_ff = c->n_ff,
        .n_head = c->n_head,
        .kv = out->kv_shape,
        .rotary = {.amplitude = model->rope_amplitude,
                   .n_pair = (int)(c->head_dim / 2),
                   .inv_freq = model->inv_freq},
    };
    const struct {
        struct brim_rows **rows;
        int64_t n_row, width;
    } rows[] = {
        {&out->x, n_row_max, c->n_embd},
        {&out->qkv, n_row_max, (c->n_head + 2 * c->n_head_kv) * c->head_dim},
        {&out->mixed, n_row_max, c->n_head * c->head_dim},
        {&out->hidden, n_row_max, c->n_ff},
        {&out->logits, 1, c->n_vocab},
    };
    brim_status status = ops->kv_create(backend, &out->kv, &out->kv_shape, err);
    if (status == BRIM_OK) status = ops->step_create(backend, &out->step, &shape, err);
    for (size_t i = 0; status == BRIM_OK && i < sizeof rows / sizeof *rows; i++)
        status = ops->rows_create(backend, rows[i].rows, rows[i].n_row, rows[i].width, err);
    if (status != BRIM_OK) brim_state_free(out, model);
    return status;
}

void brim_state_free(struct brim_state *state, const struct brim_model *model)
{
    struct brim_backend *backend = model->backend;
    const struct brim_backend_ops *ops = backend->ops;
    ops->rows_free(backend, &state->x);
    ops->rows_free(backend, &state->qkv);
    ops->rows_free(backend, &state->mixed);
    ops->rows_free(backend, &state->hidden);
    ops->rows_free(backend, &state->logits);
    ops->step_free(backend, &state->step);
    ops->kv_free(backend, &state->kv);
    *state = (struct brim_state){0};
}

brim_status brim_model_forward(const struct brim_model *model, struct brim_state *state,
                               const int32_t *ids, int64_t n_row, int64_t first_pos,
                               enum brim_want want, brim_error *err)
{
    const struct brim_backend_ops *ops = model->backend->ops;
    state->n_row = n_row;
    state->want = want;
    if (!ops->step_begin(state->step, ids, n_row, first_pos, want == BRIM_WANT_LAST)) {
        forward[model->config.family](model, state);
        if (want == BRIM_WANT_LAST) /* the one row kept */
            ops->head(state->step, state->x, 0, 1, model->norm, model->config.norm_eps, model->head,
                      state->logits);
    }
    return ops->step_end(state->step, err);
}

brim_status brim_model_head(const struct brim_model *model, struct brim_state *state, int64_t first,
                            int64_t n, struct brim_rows *logits, brim_error *err)
{
    const struct brim_backend_ops *ops = model->backend->ops;
    ops->head(state->step, state->x, first, n, model->norm, model->config.norm_eps, model->head,
              logits);
    return ops->step_end(state->step, err);
}
