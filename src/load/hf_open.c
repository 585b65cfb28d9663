/* SPDX-License-Identifier: Apache-2.0
 * A Hugging Face directory: configuration and chat template. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "load/checkpoint_impl.h"
#include "load/json.h"

/* Map dir/name; BRIM_OK with an empty map and *found false when it does not exist. */
static brim_status map_in(const char *dir, const char *name, struct brim_map *map, bool *found,
                          brim_error *err)
{
    *map = (struct brim_map){0};
    *found = false;
    char *path = brim_path_join(dir, name);
    if (!path) return brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory", dir);
    brim_error local;
    brim_status status = brim_map_open(map, path, &local);
    *found = status == BRIM_OK;
    if (status == BRIM_E_MISSING) status = BRIM_OK;
    if (status != BRIM_OK && err) *err = local;
    brim_free(path);
    return status;
}

static brim_status read_config(struct brim_checkpoint *checkpoint, brim_error *err)
{
    const char *dir = checkpoint->path;
    struct brim_map config, generation = {0};
    bool has_config, has_generation = false;
    BRIM_TRY(map_in(dir, "config.json", &config, &has_config, err));
    BRIM_REQUIRE(err, has_config, BRIM_E_MISSING,
                 "%s: no config.json: neither a Hugging Face directory nor a .gguf file", dir);
    brim_status status = map_in(dir, "generation_config.json", &generation, &has_generation, err);
    char *path = brim_path_join(dir, "config.json");
    if (status == BRIM_OK && !path)
        status = brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory", dir);
    if (status == BRIM_OK)
        status = brim_hf_config_parse(&checkpoint->hf, (const char *)config.data, config.n_bytes,
                                      (const char *)generation.data, generation.n_bytes, path, err);
    brim_free(path);
    brim_map_close(&config);
    brim_map_close(&generation);
    if (status == BRIM_OK) checkpoint->config = checkpoint->hf.model;
    return status;
}

/* Does the post-processor of a tokenizer.json put a special token before a single text? Only that
 * object is parsed: the file's vocabulary is many megabytes. A vocabulary entry of the same name is
 * followed by a number, not by an object. */
static bool post_processor_begins_with_special(const char *json, size_t n_bytes)
{
    static const char key[] = "\"post_processor\"";
    for (const char *at = json, *end = json + n_bytes; at && end - at > (ptrdiff_t)sizeof key;) {
        at = memchr(at, '"', (size_t)(end - at));
        if (!at || end - at <= (ptrdiff_t)sizeof key) return false;
        if (memcmp(at, key, sizeof key - 1) != 0) {
            at++;
            continue;
        }
        at += sizeof key - 1;
        while (at < end && strchr(" \t\r\n:", *at) && *at) at++;
        if (at == end || *at != '{') continue;
        json_t *object = json_loadb(at, (size_t)(end - at), JSON_DISABLE_EOF_CHECK, NULL);
        const json_t *list = json_object_get(object, "processors");
        size_t n = json_is_array(list) ? json_array_size(list) : 1;
        bool found = false;
        for (size_t i = 0; i < n; i++) {
            const json_t *item = json_is_array(list) ? json_array_get(list, i) : object;
            const json_t *first = json_array_get(json_object_get(item, "single"), 0);
            found = found || json_object_get(first, "SpecialToken");
        }
        json_decref(object);
        return found;
    }
    return false;
}

static brim_status read_add_bos(struct brim_checkpoint *checkpoint, const json_t *tokenizer_config,
                                brim_error *err)
{
    struct brim_model_config *config = &checkpoint->config;
    const json_t *given = brim_json_get(tokenizer_config, "add_bos_token");
    if (config->bos < 0) return BRIM_OK;
    if (given) {
        config->add_bos = json_is_true(given);
        return BRIM_OK;
    }
    if (config->family != BRIM_FAMILY_LLAMA) return BRIM_OK;
    struct brim_map map;
    bool found;
    BRIM_TRY(map_in(checkpoint->path, "tokenizer.json", &map, &found, err));
    if (found)
        config->add_bos = post_processor_begins_with_special((const char *)map.data, map.n_bytes);
    brim_map_close(&map);
    return BRIM_OK;
}

/* The text of tokenizer_config.json's chat_template: a string, or a list of named ones. */
static const char *template_text(const json_t *value)
{
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name && strcmp(name, "default") == 0)
            return json_string_value(json_object_get(item, "template"));
    }
    return json_string_value(value);
}

static brim_status read_tokenizer_config(struct brim_checkpoint *checkpoint, brim_error *err)
{
    struct brim_map file;
    bool found;
    BRIM_TRY(map_in(checkpoint->path, "chat_template.jinja", &file, &found, err));
    if (found) checkpoint->chat_template = brim_strndup((const char *)file.data, file.n_bytes);
    brim_map_close(&file);
    if (found && !checkpoint->chat_template)
        return brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory", checkpoint->path);

    json_t *config;
    BRIM_TRY(brim_json_open(&config, checkpoint->path, "tokenizer_config.json", false, err));
    brim_status status = read_add_bos(checkpoint, config, err);
    const char *text = template_text(brim_json_get(config, "chat_template"));
    if (status == BRIM_OK && text && !checkpoint->chat_template) {
        checkpoint->chat_template = brim_strndup(text, strlen(text));
        if (!checkpoint->chat_template)
            status = brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory", checkpoint->path);
    }
    json_decref(config);
    return status;
}

brim_status brim_hf_open(struct brim_checkpoint *checkpoint, brim_error *err)
{
    BRIM_TRY(read_config(checkpoint, err));
    snprintf(checkpoint->format, sizeof checkpoint->format, "safetensors");
    BRIM_TRY(brim_hf_open_shards(checkpoint, err));
    if (!checkpoint->hf.tie_given)
        checkpoint->config.tie_embeddings = !brim_table_find(&checkpoint->table, "lm_head.weight");
    return read_tokenizer_config(checkpoint, err);
}
