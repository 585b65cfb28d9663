/* SPDX-License-Identifier: Apache-2.0
 * Model files: look into one, quantize one, make a synthetic one. Nothing here needs an engine. */
#ifndef BRIM_TOOLS_H
#define BRIM_TOOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/brim.h"
#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- inspect --------------------------------------------------------------------------------- */

typedef struct brim_inspection brim_inspection;

/* Everything about the files that opening a model checks, without reading the weights themselves.
 * path: a Hugging Face directory or a .gguf file. On failure *out is NULL. warn may be NULL. */
BRIM_API BRIM_MUST_USE brim_status brim_inspect_open(brim_inspection **out, const char *path,
                                                     brim_log_fn *warn, void *warn_ctx,
                                                     brim_error *err);
BRIM_API void brim_inspect_close(brim_inspection **inspection);

typedef struct brim_inspect_summary {
    const char *format;       /* "gguf v3", "safetensors" */
    const char *family;       /* "llama", "qwen2", "qwen3" */
    const char *chat;         /* chat template: "smollm2", "qwen3", "qwen2", "llama3"; NULL: none
                                 or unknown */
    const char *rope_scaling; /* "none", "linear", "llama3", "yarn" */
    uint64_t file_bytes;      /* of all weight files */
    uint64_t tensor_bytes;
    uint64_t n_parameter; /* weights, packed ones counted one by one; no scales or biases */
    size_t n_tensor;
    int64_t n_layer, n_embd, n_ff, n_head, n_head_kv, head_dim, n_vocab, n_context;
    double norm_eps, rope_theta, rope_factor;
    bool tie_embeddings, qkv_bias, add_bos;
    int quant_group; /* MLX affine 4-bit: group of the model; 0 otherwise */
    int32_t bos;     /* -1: none */
    int32_t eos[16];
    int n_eos;
} brim_inspect_summary;
BRIM_API void brim_inspect_get(const brim_inspection *inspection, brim_inspect_summary *out);

typedef struct brim_inspect_tensor {
    const char *name; /* as in the file; borrowed until the inspection is closed */
    const char *type; /* as the format spells it: "Q4_1", "BF16", "U32" */
    int n_dim;
    int64_t shape[8]; /* outermost first */
    uint64_t n_bytes;
} brim_inspect_tensor;
/* Tensor i of the files, i < n_tensor, in the order of the data. */
BRIM_API void brim_inspect_get_tensor(const brim_inspection *inspection, size_t i,
                                      brim_inspect_tensor *out);

/* ---- quantize -------------------------------------------------------------------------------- */

typedef struct brim_quantize_options {
    int group;    /* 32, 64 (default) or 128 */
    int n_thread; /* 0: the processors this process may use. The result does not depend on it */
    brim_progress_fn *progress; /* bytes of input done; may be NULL */
    void *progress_ctx;
    brim_log_fn *warn; /* a tensor left as it is; may be NULL */
    void *warn_ctx;
} brim_quantize_options;
BRIM_API void brim_quantize_options_default(brim_quantize_options *options);

/* Write out_dir: the dense Hugging Face directory in_dir with its linear layers and embeddings in
 * MLX affine 4-bit, code for code as MLX quantizes them; scales and biases in the input's type.
 * Other tensors and the tokenizer's files are copied, config.json gains the quantization. A matrix
 * whose rows are no multiple of the group stays dense. out_dir must not exist: everything is
 * written to out_dir + ".partial", which is removed on failure and renamed at the end. A weight
 * that is not finite is BRIM_E_NOT_FINITE. */
BRIM_API BRIM_MUST_USE brim_status brim_quantize(const char *in_dir, const char *out_dir,
                                                 const brim_quantize_options *options,
                                                 brim_error *err);

/* ---- synth ----------------------------------------------------------------------------------- */

/* Write out_dir: a checkpoint with seeded random weights, marked as synthetic, in the exact form of
 * a published one (MLX affine 4-bit, group 128): "qwen3-0.6b", "qwen3-4b" or "tiny". It has no
 * tokenizer: run it on token ids. For measurements; what it says is noise. Same rules for out_dir
 * as above; progress (may be NULL) counts bytes written. */
BRIM_API BRIM_MUST_USE brim_status brim_synth(const char *preset, const char *out_dir,
                                              uint64_t seed, brim_progress_fn *progress,
                                              void *progress_ctx, brim_error *err);
/* Names of the presets, one per index; NULL beyond the last. */
BRIM_API const char *brim_synth_preset(size_t i);

#ifdef __cplusplus
}
#endif
#endif
