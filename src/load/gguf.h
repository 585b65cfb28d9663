/* SPDX-License-Identifier: Apache-2.0
 * GGUF versions 2 and 3, as documented in docs/gguf.md of the ggml repository: a header, typed
 * metadata, a tensor table and aligned data, little-endian. Parsing works on bytes in memory (a
 * mapping, or a fuzzer's buffer), checks every number and copies only tensor names; everything else
 * borrows from the bytes. */
#ifndef BRIM_LOAD_GGUF_H
#define BRIM_LOAD_GGUF_H

#include "load/table.h"
#include "model/config.h"
#include "tensor/weight.h"
#include "text/tokenizer.h"

enum brim_gguf_type {
    BRIM_GGUF_U8 = 0,
    BRIM_GGUF_I8 = 1,
    BRIM_GGUF_U16 = 2,
    BRIM_GGUF_I16 = 3,
    BRIM_GGUF_U32 = 4,
    BRIM_GGUF_I32 = 5,
    BRIM_GGUF_F32 = 6,
    BRIM_GGUF_BOOL = 7,
    BRIM_GGUF_STRING = 8,
    BRIM_GGUF_ARRAY = 9,
    BRIM_GGUF_U64 = 10,
    BRIM_GGUF_I64 = 11,
    BRIM_GGUF_F64 = 12
};

/* One metadata entry; the bytes of all its items are known to lie inside the file. */
struct brim_gguf_value {
    struct brim_str key;
    enum brim_gguf_type type; /* of the items, never ARRAY */
    bool is_array;
    uint64_t n_item;     /* 1 unless is_array */
    const uint8_t *data; /* items, unaligned; strings as u64 length + bytes */
};

struct brim_gguf {
    int version;
    uint64_t alignment;
    struct brim_gguf_value *values; /* sorted by key */
    size_t n_value;
    struct brim_tensor_table tensors;
};

/* Everything is checked: counts against what the file can hold, lengths, types, duplicates, shapes,
 * offsets against alignment and file size, overlaps. On failure *out is zeroed. */
brim_status brim_gguf_parse(struct brim_gguf *out, const uint8_t *data, size_t n_bytes,
                            const char *path, brim_error *err);
void brim_gguf_free(struct brim_gguf *gguf);

/* NULL if there is none. */
const struct brim_gguf_value *brim_gguf_find(const struct brim_gguf *gguf, const char *key);
/* Read a scalar; false if absent or of another kind. Integers of any width, floats of both. */
bool brim_gguf_int(const struct brim_gguf *gguf, const char *key, int64_t *out);
bool brim_gguf_number(const struct brim_gguf *gguf, const char *key, double *out);
bool brim_gguf_bool(const struct brim_gguf *gguf, const char *key, bool *out);
bool brim_gguf_string(const struct brim_gguf *gguf, const char *key, struct brim_str *out);
/* Step through the strings of an array: *at starts at value->data. */
struct brim_str brim_gguf_next_string(const uint8_t **at);

/* Hyper-parameters from the metadata and the tensor table, checked. */
brim_status brim_gguf_config(const struct brim_gguf *gguf, const char *path,
                             struct brim_model_config *out, brim_error *err);
/* The weight with Hugging Face name `name`; BRIM_E_MISSING if the file has none. */
brim_status brim_gguf_weight(const struct brim_gguf *gguf, const struct brim_model_config *config,
                             const char *path, const char *name, struct brim_weight *out,
                             brim_error *err);
/* "model.layers.3.mlp.up_proj.weight" -> "blk.3.ffn_up.weight"; false if there is no such name or
 * it does not fit. */
bool brim_gguf_name(const char *name, char *out, size_t out_bytes);

#endif
