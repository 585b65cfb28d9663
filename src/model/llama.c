/* SPDX-License-Identifier: Apache-2.0
 * Llama (also SmolLM2): no biases, no norm on queries and keys. */
#include "model/blocks.h"

brim_status brim_llama_load_layer(struct brim_weight_loader *loader, struct brim_layer *layer,
                                  const struct brim_model_config *config, const char *prefix,
                                  brim_error *err)
{
    return brim_load_common_layer(loader, layer, config, prefix, BRIM_BIAS_NONE, err);
}

void brim_llama_forward(const struct brim_model *model, struct brim_state *state)
{
    brim_block_embed(model, state);
    for (int64_t layer = 0; layer < model->config.n_layer; layer++) {
        brim_block_attention(model, state, layer);
        brim_block_mlp(model, state, layer);
    }
}
