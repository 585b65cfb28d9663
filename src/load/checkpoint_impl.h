/* SPDX-License-Identifier: Apache-2.0
 * What an open checkpoint consists of; seen only inside src/load. */
#ifndef BRIM_LOAD_CHECKPOINT_IMPL_H
#define BRIM_LOAD_CHECKPOINT_IMPL_H

#include "base/map.h"
#include "load/checkpoint.h"
#include "load/gguf.h"
#include "load/hf_config.h"

/* One file of the checkpoint, mapped as long as the checkpoint is open. */
struct brim_shard {
    char *path;
    struct brim_map map;
};

struct brim_checkpoint {
    char *path;
    bool is_gguf;
    char format[16];
    struct brim_model_config config;
    struct brim_shard *shards; /* one for GGUF */
    size_t n_shard;
    uint64_t file_bytes;
    struct brim_gguf gguf;          /* GGUF only */
    struct brim_tensor_table table; /* Hugging Face directories only */
    struct brim_hf_config hf;       /* likewise */
    char *chat_template;            /* likewise; NULL: none */
    brim_warn_fn *warn;             /* only during opening */
    void *warn_ctx;
};

/* Call the caller's warning function, if any. */
void brim_checkpoint_warn(const struct brim_checkpoint *checkpoint, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

const struct brim_tensor_table *brim_checkpoint_table(const struct brim_checkpoint *checkpoint);

/* The weight named `name`, checked as far as the file goes: kind, element types, and that scales
 * and biases fit. BRIM_E_MISSING if there is none. */
brim_status brim_checkpoint_weight(const struct brim_checkpoint *checkpoint, const char *name,
                                   struct brim_weight *out, brim_error *err);
brim_status brim_hf_weight(const struct brim_checkpoint *checkpoint, const char *name,
                           struct brim_weight *out, brim_error *err);

/* Is every tensor there that the configuration calls for, and readable? The missing ones are
 * listed: the first few, and how many. */
brim_status brim_checkpoint_check_tensors(const struct brim_checkpoint *checkpoint,
                                          brim_error *err);

/* Fill table and shards from the .safetensors files of checkpoint->path. */
brim_status brim_hf_open_shards(struct brim_checkpoint *checkpoint, brim_error *err);
/* Fill everything from the directory checkpoint->path. */
brim_status brim_hf_open(struct brim_checkpoint *checkpoint, brim_error *err);

#endif
