/* SPDX-License-Identifier: Apache-2.0
 * What an open checkpoint consists of; seen only inside src/load. */
#ifndef BRIM_LOAD_CHECKPOINT_IMPL_H
#define BRIM_LOAD_CHECKPOINT_IMPL_H

#include "base/map.h"
#include "load/checkpoint.h"
#include "load/gguf.h"

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
    struct brim_gguf gguf;
};

const struct brim_tensor_table *brim_checkpoint_table(const struct brim_checkpoint *checkpoint);

/* The weight named `name`, checked as far as the file goes: kind, element types, and that scales
 * and biases fit. BRIM_E_MISSING if there is none. */
brim_status brim_checkpoint_weight(const struct brim_checkpoint *checkpoint, const char *name,
                                   struct brim_weight *out, brim_error *err);

/* Is every tensor there that the configuration calls for, and readable? The missing ones are
 * listed: the first few, and how many. */
brim_status brim_checkpoint_check_tensors(const struct brim_checkpoint *checkpoint,
                                          brim_error *err);

#endif
