/* SPDX-License-Identifier: Apache-2.0
 * Qwen3 dense: RMSNorm over each head of the queries and keys before the rotation; head_dim is
 * its own number, not n_embd / n_head. */
#include "model/blocks.h"

brim_status brim_qwen3_load_layer(struct brim_weight_loader *loader, struct brim_layer *layer,
                                  const struct brim_model_config *config, const char *prefix,
                                  brim_error *err)
{
    BRIM_TRY(brim_load_common_layer(loader, layer, config, prefix, BRIM_BIAS_NONE, err));
    BRIM_TRY(brim_load_vector(loader, &layer->q_norm, prefix, "self_attn.q_norm", config->head_dim,
                              err));
    return brim_load_vector(loader, &layer->k_norm, prefix, "self_attn.k_norm", config->head_dim,
                            err);
}

void brim_qwen3_forward(const struct brim_model *model, struct brim_state *state)
{
    brim_block_embed(model, state);
    for (int64_t layer = 0; layer < model->config.n_layer; layer++) {
        brim_block_attention(model, state, layer);
        brim_block_mlp(model, state, layer);
    }
}
