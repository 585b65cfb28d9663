/* SPDX-License-Identifier: Apache-2.0
 * Hyper-parameters of a dense decoder, filled by src/load from config.json or GGUF metadata and
 * checked once by brim_model_config_check. */
#ifndef BRIM_MODEL_CONFIG_H
#define BRIM_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/rope.h"

enum brim_model_family { BRIM_FAMILY_LLAMA, BRIM_FAMILY_QWEN2, BRIM_FAMILY_QWEN3 };
enum { BRIM_MAX_EOS = 16 };

struct brim_model_config {
    enum brim_model_family family;
    int64_t n_layer, n_embd, n_ff;
    int64_t n_head, n_head_kv, head_dim; /* head_dim is explicit: not n_embd / n_head for Qwen3 */
    int64_t n_vocab;                     /* rows of the embedding, padding included */
    int64_t n_context;                   /* max_position_embeddings */
    float norm_eps;
    double rope_theta;
    bool tie_embeddings;
    bool qkv_bias; /* Qwen2 */
    struct brim_rope_config rope;
    int32_t eos[BRIM_MAX_EOS]; /* any of them ends generation */
    int n_eos;
    int32_t bos;  /* -1: none */
    bool add_bos; /* prepend bos to a prompt */
};

/* Every number in range and consistent: one sentence naming the key at fault otherwise. */
brim_status brim_model_config_check(const struct brim_model_config *config, const char *path,
                                    brim_error *err);

#endif
