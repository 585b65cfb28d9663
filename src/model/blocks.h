/* SPDX-License-Identifier: Apache-2.0
 * The parts of a decoder layer that the families share, and the families' entry points. */
#ifndef BRIM_MODEL_BLOCKS_H
#define BRIM_MODEL_BLOCKS_H

#include "model/model.h"
#include "model/weights.h"

/* x = rows of the embedding for the step's ids. */
void brim_block_embed(const struct brim_model *model, struct brim_state *state);
/* x += W_o attention(norm(x)). Queries and keys are normalised per head if the layer has the norms.
 */
void brim_block_attention(const struct brim_model *model, struct brim_state *state, int64_t layer);
/* x += W_down (silu(W_gate norm(x)) * W_up norm(x)). */
void brim_block_mlp(const struct brim_model *model, struct brim_state *state, int64_t layer);

typedef brim_status brim_load_layer_fn(struct brim_weight_loader *loader, struct brim_layer *layer,
                                       const struct brim_model_config *config, const char *prefix,
                                       brim_error *err);
typedef void brim_forward_fn(const struct brim_model *model, struct brim_state *state);

brim_load_layer_fn brim_llama_load_layer, brim_qwen2_load_layer, brim_qwen3_load_layer;
/* From the step's ids to the residual stream before the final norm. */
brim_forward_fn brim_llama_forward, brim_qwen2_forward, brim_qwen3_forward;

#endif
