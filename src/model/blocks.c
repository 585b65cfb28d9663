/* SPDX-License-Identifier: Apache-2.0 */
#include "model/blocks.h"

void brim_block_embed(const struct brim_model *model, struct brim_state *state)
{
    model->backend->ops->embed(state->step, model->embed, state->x);
}

void brim_block_attention(const struct brim_model *model, struct brim_state *state, int64_t layer)
{
    const struct brim_backend_ops *ops = model->backend->ops;
    const struct brim_layer *l = &model->layers[layer];
    float eps = model->config.norm_eps;
    ops->norm_linear(state->step, state->x, l->attn_norm, eps, l->qkv, state->qkv);
    const struct brim_attention_args args = {
        .qkv = state->qkv,
        .q_norm = l->q_norm,
        .k_norm = l->k_norm,
        .norm_eps = eps,
        .kv = state->kv,
        .layer = layer,
        .n_head = model->config.n_head,
        .out = state->mixed,
    };
    ops->attention(state->step, &args);
    /* Behind the last attention no row sees another: the rest is for the rows that are wanted. */
    if (layer == model->config.n_layer - 1 && state->want != BRIM_WANT_ROWS) {
        struct brim_rows *const buffers[] = {state->x, state->mixed};
        int64_t n = state->want == BRIM_WANT_LAST ? 1 : 0;
        ops->keep_last(state->step, n, buffers, 2);
    }
    ops->linear_add(state->step, state->mixed, l->attn_out, state->x);
}

void brim_block_mlp(const struct brim_model *model, struct brim_state *state, int64_t layer)
{
    const struct brim_backend_ops *ops = model->backend->ops;
    const struct brim_layer *l = &model->layers[layer];
    ops->norm_gate_up(state->step, state->x, l->ffn_norm, model->config.norm_eps, l->gate_up,
                      state->hidden);
    ops->linear_add(state->step, state->hidden, l->down, state->x);
}
