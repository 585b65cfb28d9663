/* SPDX-License-Identifier: Apache-2.0
 * Test helper: the tokenizer tables of a trusted GGUF file, without the loader. Strings point into
 * the mapping. */
#ifndef BRIM_TESTS_GGUF_VOCAB_H
#define BRIM_TESTS_GGUF_VOCAB_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "text/tokenizer.h"

struct gguf_vocab {
    struct brim_map map;
    struct brim_vocab_tables tables;
    char pre[64];
    struct brim_str *tokens, *merges;
    int32_t *types;
    struct brim_str chat_template;
};

static inline uint64_t gguf_number(const uint8_t **at, int n_bytes)
{
    uint64_t value = 0;
    memcpy(&value, *at, (size_t)n_bytes);
    *at += n_bytes;
    return value;
}

static inline struct brim_str gguf_string(const uint8_t **at)
{
    size_t len = (size_t)gguf_number(at, 8);
    struct brim_str s = {(const char *)*at, len};
    *at += len;
    return s;
}

static inline struct brim_str *gguf_strings(const uint8_t **at, size_t n)
{
    struct brim_str *list = malloc(n * sizeof *list);
    for (size_t i = 0; i < n; i++) list[i] = gguf_string(at);
    return list;
}

static inline bool gguf_key_is(struct brim_str key, const char *name)
{
    return key.len == strlen(name) && !memcmp(key.data, name, key.len);
}

/* False when there is no such file. */
static inline bool gguf_vocab_open(struct gguf_vocab *v, const char *path)
{
    static const int width[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    memset(v, 0, sizeof *v);
    if (brim_map_open(&v->map, path, NULL) != BRIM_OK) return false;
    const uint8_t *at = v->map.data + 16;
    uint64_t n_key = gguf_number(&at, 8);
    for (uint64_t i = 0; i < n_key; i++) {
        struct brim_str key = gguf_string(&at);
        uint64_t type = gguf_number(&at, 4);
        if (type == 8) {
            struct brim_str s = gguf_string(&at);
            if (gguf_key_is(key, "tokenizer.ggml.pre"))
                snprintf(v->pre, sizeof v->pre, "%.*s", (int)s.len, s.data);
            if (gguf_key_is(key, "tokenizer.chat_template")) v->chat_template = s;
        } else if (type == 9) {
            type = gguf_number(&at, 4);
            size_t n = (size_t)gguf_number(&at, 8);
            if (type == 8) {
                struct brim_str *list = gguf_strings(&at, n);
                if (gguf_key_is(key, "tokenizer.ggml.tokens")) {
                    v->tokens = list;
                    v->tables.n_token = n;
                } else if (gguf_key_is(key, "tokenizer.ggml.merges")) {
                    v->merges = list;
                    v->tables.n_merge = n;
                } else {
                    free(list);
                }
            } else {
                if (gguf_key_is(key, "tokenizer.ggml.token_type")) {
                    v->types = malloc(n * sizeof *v->types);
                    memcpy(v->types, at, n * sizeof *v->types);
                }
                at += n * (size_t)width[type];
            }
        } else {
            at += width[type];
        }
    }
    v->tables.pre = v->pre;
    v->tables.tokens = v->tokens;
    v->tables.types = v->types;
    v->tables.merges = v->merges;
    return true;
}

static inline void gguf_vocab_close(struct gguf_vocab *v)
{
    free(v->tokens);
    free(v->merges);
    free(v->types);
    brim_map_close(&v->map);
}

#endif
