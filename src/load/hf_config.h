/* SPDX-License-Identifier: Apache-2.0
 * config.json and generation_config.json of a Hugging Face directory. */
#ifndef BRIM_LOAD_HF_CONFIG_H
#define BRIM_LOAD_HF_CONFIG_H

#include <stddef.h>

#include "base/status.h"
#include "model/config.h"

/* A module quantized otherwise than the rest of the model. */
struct brim_quant_override {
    char *module; /* "model.layers.0.mlp.down_proj" */
    int group, bits;
};

struct brim_hf_config {
    struct brim_model_config model;
    bool tie_given;    /* tie_word_embeddings is in the file; else lm_head.weight decides */
    bool is_quantized; /* MLX affine */
    int group, bits;   /* where no override applies */
    struct brim_quant_override *overrides;
    size_t n_override;
};

/* From the bytes of the two files; generation may be NULL. What brim does not implement is
 * BRIM_E_UNSUPPORTED naming the key. On failure *out is zeroed. */
brim_status brim_hf_config_parse(struct brim_hf_config *out, const char *config,
                                 size_t config_bytes, const char *generation,
                                 size_t generation_bytes, const char *path, brim_error *err);
void brim_hf_config_free(struct brim_hf_config *config);

/* Group and bits of a module. */
void brim_hf_config_quant(const struct brim_hf_config *config, const char *module, size_t len,
                          int *group, int *bits);

#endif
