/* SPDX-License-Identifier: Apache-2.0
 * A Hugging Face directory: configuration, chat template, weights under their own names. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
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
    BRIM_TRY(read_tokenizer_config(checkpoint, err));
    return brim_checkpoint_check_tensors(checkpoint, err);
}

static bool float_dtype(const struct brim_file_tensor *t, enum brim_dtype *out)
{
    switch (t->storage) {
    case BRIM_STORAGE_F32:
        *out = BRIM_DTYPE_F32;
        return true;
    case BRIM_STORAGE_F16:
        *out = BRIM_DTYPE_F16;
        return true;
    case BRIM_STORAGE_BF16:
        *out = BRIM_DTYPE_BF16;
        return true;
    default:
        return false;
    }
}

/* weight u32 [n_out][n_in/8], scales and biases [n_out][n_in/group] of one float type. */
static brim_status affine_weight(const struct brim_checkpoint *checkpoint,
                                 const struct brim_file_tensor *weight,
                                 const struct brim_file_tensor *scales, const char *module,
                                 size_t module_len, struct brim_weight *out, brim_error *err)
{
    const char *path = checkpoint->path;
    BRIM_REQUIRE(err, checkpoint->hf.is_quantized, BRIM_E_FORMAT,
                 "%s: tensor %s is there but config.json has no quantization", path, scales->name);
    char name[BRIM_MAX_NAME + 16];
    snprintf(name, sizeof name, "%.*s.biases", (int)module_len, module);
    const struct brim_file_tensor *biases = brim_table_find(&checkpoint->table, name);
    BRIM_REQUIRE(err, biases, BRIM_E_MISSING, "%s: tensor %s is missing", path, name);
    BRIM_REQUIRE(err, weight->storage == BRIM_STORAGE_U32 && weight->n_dim == 2, BRIM_E_FORMAT,
                 "%s: tensor %s is %s with %d dimensions, a packed matrix is U32 with 2", path,
                 weight->name, weight->type_name, weight->n_dim);
    enum brim_dtype dtype, biases_dtype;
    BRIM_REQUIRE(
        err,
        float_dtype(scales, &dtype) && float_dtype(biases, &biases_dtype) && dtype == biases_dtype,
        BRIM_E_FORMAT, "%s: tensors %s (%s) and biases (%s) must have one type, BF16, F16 or F32",
        path, scales->name, scales->type_name, biases->type_name);
    int group, bits;
    brim_hf_config_quant(&checkpoint->hf, module, module_len, &group, &bits);
    uint64_t n_in;
    BRIM_REQUIRE(err,
                 brim_mul_u64((uint64_t)weight->shape[1], 8, &n_in) && n_in <= INT64_MAX &&
                     n_in > 0 && weight->shape[0] > 0 && n_in % (uint64_t)group == 0,
                 BRIM_E_SHAPE,
                 "%s: tensor %s has %" PRId64 " words in a row: no multiple of its group of %d "
                 "values",
                 path, weight->name, weight->shape[1], group);
    int64_t n_group = (int64_t)n_in / group;
    const struct brim_file_tensor *both[] = {scales, biases};
    for (int i = 0; i < 2; i++)
        BRIM_REQUIRE(err,
                     both[i]->n_dim == 2 && both[i]->shape[0] == weight->shape[0] &&
                         both[i]->shape[1] == n_group,
                     BRIM_E_SHAPE,
                     "%s: tensor %s must have the shape [%" PRId64 ", %" PRId64
                     "] for %d bits in groups of %d",
                     path, both[i]->name, weight->shape[0], n_group, bits, group);
    *out = (struct brim_weight){.kind = BRIM_WEIGHT_AFFINE4,
                                .dtype = dtype,
                                .n_out = weight->shape[0],
                                .n_in = (int64_t)n_in,
                                .group = group,
                                .data = weight->data,
                                .data_bytes = (size_t)weight->n_bytes,
                                .scales = scales->data,
                                .biases = biases->data};
    return BRIM_OK;
}

brim_status brim_hf_weight(const struct brim_checkpoint *checkpoint, const char *name,
                           struct brim_weight *out, brim_error *err)
{
    const char *path = checkpoint->path;
    const struct brim_file_tensor *t = brim_table_find(&checkpoint->table, name);
    size_t len = strlen(name);
    BRIM_REQUIRE(err, t && len <= BRIM_MAX_NAME, BRIM_E_MISSING, "%s: tensor %s is missing", path,
                 name);
    if (len > 7 && strcmp(name + len - 7, ".weight") == 0) {
        char scales_name[BRIM_MAX_NAME + 16];
        snprintf(scales_name, sizeof scales_name, "%.*s.scales", (int)len - 7, name);
        const struct brim_file_tensor *scales = brim_table_find(&checkpoint->table, scales_name);
        if (scales) return affine_weight(checkpoint, t, scales, name, len - 7, out, err);
    }
    enum brim_dtype dtype;
    BRIM_REQUIRE(err, float_dtype(t, &dtype), BRIM_E_UNSUPPORTED,
                 "%s: tensor %s has type %s%s; BF16, F16 and F32 work, and U32 with scales", path,
                 name, t->type_name, t->storage == BRIM_STORAGE_U32 ? " without scales" : "");
    BRIM_REQUIRE(err, t->n_dim >= 1 && t->n_dim <= 2 && t->n_bytes > 0, BRIM_E_SHAPE,
                 "%s: tensor %s has %d dimensions or no elements, 1 or 2 work", path, name,
                 t->n_dim);
    *out = (struct brim_weight){.kind = BRIM_WEIGHT_DENSE,
                                .dtype = dtype,
                                .n_out = t->n_dim == 2 ? t->shape[0] : 1,
                                .n_in = t->shape[t->n_dim - 1],
                                .data = t->data,
                                .data_bytes = (size_t)t->n_bytes};
    return BRIM_OK;
}
