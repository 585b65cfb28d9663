/* SPDX-License-Identifier: Apache-2.0
 * Qwen2 and Qwen2.5: a bias on the query, key and value projections. */
#include "model/blocks.h"

brim_status brim_qwen2_load_layer(struct brim_weight_loader *loader, struct brim_layer *layer,
                                  const struct brim_model_config *config, const char *prefix,
                                  brim_error *err)
{
    enum brim_bias bias = config->qkv_bias ? BRIM_BIAS_REQUIRED : BRIM_BIAS_NONE;
    return brim_load_common_layer(loader, layer, config, prefix, bias, err);
}

void brim_qwen2_forward(const struct brim_model *model, struct brim_state *state)
{
    brim_block_embed(model, state);
    for (int64_t layer = 0; layer < model->config.n_layer; layer++) {
        brim_block_attention(model, state, layer);
        brim_block_mlp(model, state, layer);
    }
}
