/* SPDX-License-Identifier: Apache-2.0
 * Tokenizer and chat template of a checkpoint: the only part of src/load that calls src/text. */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "load/checkpoint_impl.h"
#include "load/json.h"

/* Counted strings of a metadata array, or NULL when out of memory. */
static struct brim_str *collect(const struct brim_gguf_value *value)
{
    struct brim_str *strings = brim_calloc((size_t)value->n_item, sizeof *strings);
    const uint8_t *at = value->data;
    for (size_t i = 0; strings && i < value->n_item; i++) strings[i] = brim_gguf_next_string(&at);
    return strings;
}

static brim_status find_strings(const struct brim_checkpoint *checkpoint, const char *key,
                                const struct brim_gguf_value **out, brim_error *err)
{
    *out = brim_gguf_find(&checkpoint->gguf, key);
    BRIM_REQUIRE(err, *out, BRIM_E_MISSING, "%s: metadata %s is missing", checkpoint->path, key);
    BRIM_REQUIRE(
        err, (*out)->is_array && (*out)->type == BRIM_GGUF_STRING && (*out)->n_item <= INT32_MAX,
        BRIM_E_FORMAT, "%s: metadata %s is no list of strings", checkpoint->path, key);
    return BRIM_OK;
}

static brim_status gguf_tokenizer(const struct brim_checkpoint *checkpoint,
                                  struct brim_tokenizer **out, brim_error *err)
{
    const struct brim_gguf *gguf = &checkpoint->gguf;
    struct brim_str model, pre;
    const struct brim_gguf_value *tokens, *merges;
    BRIM_REQUIRE(err, brim_gguf_string(gguf, "tokenizer.ggml.model", &model), BRIM_E_MISSING,
                 "%s: metadata tokenizer.ggml.model is missing", checkpoint->path);
    BRIM_REQUIRE(err, model.len == 4 && memcmp(model.data, "gpt2", 4) == 0, BRIM_E_UNSUPPORTED,
                 "%s: tokenizer model %.*s; gpt2 (byte-level BPE) works", checkpoint->path,
                 model.len > 40 ? 40 : (int)model.len, model.data);
    BRIM_REQUIRE(err, brim_gguf_string(gguf, "tokenizer.ggml.pre", &pre), BRIM_E_MISSING,
                 "%s: metadata tokenizer.ggml.pre is missing: the splitting rule is unknown",
                 checkpoint->path);
    BRIM_TRY(find_strings(checkpoint, "tokenizer.ggml.tokens", &tokens, err));
    BRIM_TRY(find_strings(checkpoint, "tokenizer.ggml.merges", &merges, err));
    BRIM_REQUIRE(err, (int64_t)tokens->n_item <= checkpoint->config.n_vocab, BRIM_E_FORMAT,
                 "%s: tokenizer.ggml.tokens has more entries than the embedding has rows",
                 checkpoint->path);
    const struct brim_gguf_value *types = brim_gguf_find(gguf, "tokenizer.ggml.token_type");
    BRIM_REQUIRE(err,
                 !types || (types->is_array && types->type == BRIM_GGUF_I32 &&
                            types->n_item == tokens->n_item),
                 BRIM_E_FORMAT, "%s: tokenizer.ggml.token_type does not fit tokenizer.ggml.tokens",
                 checkpoint->path);

    struct brim_vocab_tables tables = {.n_token = (size_t)tokens->n_item,
                                       .n_merge = (size_t)merges->n_item};
    char *pre_text = brim_strndup(pre.data, pre.len);
    struct brim_str *token_strings = collect(tokens), *merge_strings = collect(merges);
    int32_t *type_values = brim_calloc(tables.n_token, sizeof *type_values);
    brim_status status;
    if (!pre_text || !token_strings || !merge_strings || !type_values) {
        status = brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory", checkpoint->path);
    } else {
        if (types) memcpy(type_values, types->data, tables.n_token * sizeof *type_values);
        tables.pre = pre_text;
        tables.tokens = token_strings;
        tables.merges = merge_strings;
        tables.types = types ? type_values : NULL;
        status = brim_tokenizer_from_tables(out, &tables, checkpoint->path, err);
    }
    brim_free(pre_text);
    brim_free(token_strings);
    brim_free(merge_strings);
    brim_free(type_values);
    return status;
}

static brim_status hf_tokenizer(const struct brim_checkpoint *checkpoint,
                                struct brim_tokenizer **out, brim_error *err)
{
    char *path = brim_path_join(checkpoint->path, "tokenizer.json");
    if (!path) return brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory", checkpoint->path);
    struct brim_map map;
    brim_status status = brim_map_open(&map, path, err);
    if (status == BRIM_OK)
        status = brim_tokenizer_from_json(out, (const char *)map.data, map.n_bytes, path, err);
    brim_map_close(&map);
    brim_free(path);
    return status;
}

brim_status brim_checkpoint_take_tokenizer(struct brim_checkpoint *checkpoint,
                                           struct brim_tokenizer **out, brim_error *err)
{
    *out = NULL;
    if (!checkpoint->is_gguf) return hf_tokenizer(checkpoint, out, err);
    return gguf_tokenizer(checkpoint, out, err);
}

brim_status brim_checkpoint_chat_family(const struct brim_checkpoint *checkpoint,
                                        enum brim_chat_family *out, brim_error *err)
{
    struct brim_str text = {checkpoint->chat_template, 0};
    if (text.data) text.len = strlen(text.data);
    BRIM_REQUIRE(err,
                 text.data || brim_gguf_string(&checkpoint->gguf, "tokenizer.chat_template", &text),
                 BRIM_E_MISSING, "%s: there is no chat template", checkpoint->path);
    return brim_chat_detect(text.data, text.len, out, err);
}
