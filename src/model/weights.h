/* SPDX-License-Identifier: Apache-2.0
 * Finding the weights of a model in a checkpoint: every name, shape and kind is checked here, once,
 * and each tensor's pages are released as soon as the backend has its copy. */
#ifndef BRIM_MODEL_WEIGHTS_H
#define BRIM_MODEL_WEIGHTS_H

#include "model/model.h"

struct brim_weight_loader {
    struct brim_backend *backend;
    const struct brim_weight_source *source;
    uint64_t hash; /* grows into the model's fingerprint */
    uint64_t done_bytes;
    brim_model_progress_fn *progress;
    void *progress_ctx;
};

/* A vector of n values named "<prefix><name>". */
brim_status brim_load_vector(struct brim_weight_loader *loader, struct brim_vector **out,
                             const char *prefix, const char *name, int64_t n, brim_error *err);

struct brim_matrix_part {
    const char *name; /* "self_attn.q_proj": ".weight" is added, ".bias" for its bias */
    int64_t n_out;
};
enum brim_bias { BRIM_BIAS_NONE, BRIM_BIAS_REQUIRED };

/* Up to three projections of the same input, side by side. With BIAS_NONE a bias in the file is
 * BRIM_E_UNSUPPORTED: leaving it out would give wrong text silently. */
brim_status brim_load_matrix(struct brim_weight_loader *loader, struct brim_matrix **out,
                             const char *prefix, const struct brim_matrix_part *parts, int n_part,
                             int64_t n_in, enum brim_matrix_role role, enum brim_bias bias,
                             brim_error *err);

/* What every family has: norms, output projection, gate + up, down. */
brim_status brim_load_common_layer(struct brim_weight_loader *loader, struct brim_layer *layer,
                                   const struct brim_model_config *config, const char *prefix,
                                   enum brim_bias qkv_bias, brim_error *err);

/* Mix n bytes into a 64-bit hash (FNV-1a over 8-byte words, the rest byte by byte). */
uint64_t brim_hash64(uint64_t hash, const void *data, size_t n_bytes);
#define BRIM_HASH64_SEED 0xCBF29CE484222325u

#endif
