/* SPDX-License-Identifier: Apache-2.0
 * A model on disk, whatever its format: a Hugging Face directory (safetensors, MLX affine 4-bit or
 * dense) or a GGUF file. Everything is checked when it is opened; the files stay mapped, read-only,
 * until it is closed. */
#ifndef BRIM_LOAD_CHECKPOINT_H
#define BRIM_LOAD_CHECKPOINT_H

#include "base/status.h"
#include "model/config.h"
#include "tensor/weight.h"
#include "text/chat.h"
#include "text/tokenizer.h"

struct brim_checkpoint;

/* Called with one sentence for what is suspicious but not fatal (an extra shard, an unknown pre-
 * tokenizer pattern). May be NULL. */
typedef void brim_warn_fn(void *ctx, const char *text);

/* path: a directory with config.json, or a .gguf file. On failure *out is NULL. */
brim_status brim_checkpoint_open(struct brim_checkpoint **out, const char *path, brim_warn_fn *warn,
                                 void *warn_ctx, brim_error *err);
void brim_checkpoint_close(struct brim_checkpoint **checkpoint);

const struct brim_model_config *brim_checkpoint_config(const struct brim_checkpoint *checkpoint);
struct brim_weight_source brim_checkpoint_source(struct brim_checkpoint *checkpoint);
/* A new tokenizer, the caller's to free; it borrows nothing from the checkpoint. BRIM_E_MISSING for
 * a directory without tokenizer.json (a synthetic checkpoint still runs on ids). */
brim_status brim_checkpoint_take_tokenizer(struct brim_checkpoint *checkpoint,
                                           struct brim_tokenizer **out, brim_error *err);
/* BRIM_E_MISSING when the files carry no chat template. */
brim_status brim_checkpoint_chat_family(const struct brim_checkpoint *checkpoint,
                                        enum brim_chat_family *out, brim_error *err);

/* For `brim inspect`: every tensor of the files, in file order. */
struct brim_tensor_info {
    const char *name;      /* as in the file */
    const char *type_name; /* as the format spells it: "Q4_1", "BF16", "U32" */
    int n_dim;
    int64_t shape[8]; /* outermost first */
    uint64_t n_bytes;
};
size_t brim_checkpoint_n_tensor(const struct brim_checkpoint *checkpoint);
void brim_checkpoint_tensor_info(const struct brim_checkpoint *checkpoint, size_t i,
                                 struct brim_tensor_info *out);
/* "gguf v3", "safetensors"; total bytes of all files. */
const char *brim_checkpoint_format(const struct brim_checkpoint *checkpoint);
uint64_t brim_checkpoint_file_bytes(const struct brim_checkpoint *checkpoint);

#endif
