/* SPDX-License-Identifier: Apache-2.0 */
#include "load/hf_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "load/json.h"

struct context {
    const json_t *root;
    const char *path;
    brim_error *err;
};

static brim_status get_int(const struct context *c, const char *key, bool required, int64_t *out)
{
    return brim_json_int(c->root, key, required, c->path, "", out, c->err);
}

static brim_status get_bool(const struct context *c, const char *key, bool *out)
{
    return brim_json_bool(c->root, key, c->path, "", out, c->err);
}

static brim_status read_family(const struct context *c, struct brim_model_config *out)
{
    const char *type = json_string_value(brim_json_get(c->root, "model_type"));
    BRIM_REQUIRE(c->err, type, BRIM_E_MISSING, "%s: model_type is missing", c->path);
    if (strcmp(type, "llama") == 0)
        out->family = BRIM_FAMILY_LLAMA;
    else if (strcmp(type, "qwen2") == 0)
        out->family = BRIM_FAMILY_QWEN2;
    else if (strcmp(type, "qwen3") == 0)
        out->family = BRIM_FAMILY_QWEN3;
    else
        return brim_fail(c->err, BRIM_E_UNSUPPORTED,
                         "%s: model_type is %.60s; llama, qwen2 and qwen3 work", c->path, type);
    return BRIM_OK;
}

static brim_status read_sizes(const struct context *c, struct brim_model_config *out)
{
    BRIM_TRY(get_int(c, "num_hidden_layers", true, &out->n_layer));
    BRIM_TRY(get_int(c, "hidden_size", true, &out->n_embd));
    BRIM_TRY(get_int(c, "intermediate_size", true, &out->n_ff));
    BRIM_TRY(get_int(c, "num_attention_heads", true, &out->n_head));
    out->n_head_kv = out->n_head;
    BRIM_TRY(get_int(c, "num_key_value_heads", false, &out->n_head_kv));
    BRIM_TRY(get_int(c, "vocab_size", true, &out->n_vocab));
    BRIM_TRY(get_int(c, "max_position_embeddings", true, &out->n_context));
    /* transformers: Qwen3 has its own default, the others divide */
    if (out->family == BRIM_FAMILY_QWEN3)
        out->head_dim = 128;
    else
        out->head_dim = out->n_head > 0 ? out->n_embd / out->n_head : 0;
    BRIM_TRY(get_int(c, "head_dim", false, &out->head_dim));
    double eps = 1e-6;
    BRIM_TRY(brim_json_number(c->root, "rms_norm_eps", false, c->path, "", &eps, c->err));
    out->norm_eps = (float)eps;
    return BRIM_OK;
}

/* Keys that change the arithmetic in ways brim does not follow. */
static brim_status refuse_variants(const struct context *c, struct brim_model_config *out)
{
    bool attention_bias = false, mlp_bias = false, window = false;
    BRIM_TRY(get_bool(c, "attention_bias", &attention_bias));
    BRIM_TRY(get_bool(c, "mlp_bias", &mlp_bias));
    BRIM_TRY(get_bool(c, "use_sliding_window", &window));
    out->qkv_bias = out->family == BRIM_FAMILY_QWEN2;
    BRIM_REQUIRE(c->err, !attention_bias || out->qkv_bias, BRIM_E_UNSUPPORTED,
                 "%s: attention_bias is true, supported only with model_type qwen2", c->path);
    BRIM_REQUIRE(c->err, !mlp_bias, BRIM_E_UNSUPPORTED,
                 "%s: mlp_bias is true, which is not supported", c->path);
    BRIM_REQUIRE(c->err, !window, BRIM_E_UNSUPPORTED,
                 "%s: use_sliding_window is true, which is not supported", c->path);
    const json_t *types = brim_json_get(c->root, "layer_types");
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        BRIM_REQUIRE(c->err, type && strcmp(type, "full_attention") == 0, BRIM_E_UNSUPPORTED,
                     "%s: layer_types[%zu] is %.40s; full_attention works", c->path, i,
                     type ? type : "no text");
    }
    const char *act = json_string_value(brim_json_get(c->root, "hidden_act"));
    BRIM_REQUIRE(c->err, !act || strcmp(act, "silu") == 0, BRIM_E_UNSUPPORTED,
                 "%s: hidden_act is %.40s; silu works", c->path, act);
    double partial = 1;
    BRIM_TRY(
        brim_json_number(c->root, "partial_rotary_factor", false, c->path, "", &partial, c->err));
    BRIM_REQUIRE(c->err, partial == 1, BRIM_E_UNSUPPORTED,
                 "%s: partial_rotary_factor is %g; 1 works", c->path, partial);
    return BRIM_OK;
}

/* rope_scaling, or rope_parameters of transformers 5, which holds rope_theta too. */
static brim_status read_rope(const struct context *c, struct brim_model_config *out)
{
    out->rope_theta = 10000;
    out->rope.factor = 1;
    out->rope.truncate = true;
    BRIM_TRY(brim_json_number(c->root, "rope_theta", false, c->path, "", &out->rope_theta, c->err));
    const char *what = "rope_parameters.";
    const json_t *rope = brim_json_get(c->root, "rope_parameters");
    if (!rope) {
        what = "rope_scaling.";
        rope = brim_json_get(c->root, "rope_scaling");
    }
    if (!rope) return BRIM_OK;
    BRIM_REQUIRE(c->err, json_is_object(rope), BRIM_E_FORMAT, "%s: %.*s is no object", c->path,
                 (int)strlen(what) - 1, what);
    const json_t *type_value = brim_json_get(rope, "rope_type");
    if (!type_value) type_value = brim_json_get(rope, "type");
    BRIM_REQUIRE(c->err, !type_value || json_is_string(type_value), BRIM_E_FORMAT,
                 "%s: %srope_type is no text", c->path, what);
    const char *type = type_value ? json_string_value(type_value) : "default";

    struct {
        const char *key;
        double *out;
        bool required;
    } numbers[10];
    size_t n = 0;
#define WANT(key_, field_, required_) \
    numbers[n].key = (key_), numbers[n].out = (field_), numbers[n++].required = (required_)
    WANT("rope_theta", &out->rope_theta, false);
    if (strcmp(type, "linear") == 0) {
        out->rope.kind = BRIM_ROPE_LINEAR;
        WANT("factor", &out->rope.factor, true);
    } else if (strcmp(type, "llama3") == 0) {
        out->rope.kind = BRIM_ROPE_LLAMA3;
        WANT("factor", &out->rope.factor, true);
        WANT("low_freq_factor", &out->rope.low_freq_factor, true);
        WANT("high_freq_factor", &out->rope.high_freq_factor, true);
        WANT("original_max_position_embeddings", &out->rope.original_context, true);
    } else if (strcmp(type, "yarn") == 0) {
        out->rope.kind = BRIM_ROPE_YARN;
        out->rope.beta_fast = 32;
        out->rope.beta_slow = 1;
        out->rope.original_context = (double)out->n_context;
        WANT("factor", &out->rope.factor, true);
        WANT("original_max_position_embeddings", &out->rope.original_context, false);
        WANT("beta_fast", &out->rope.beta_fast, false);
        WANT("beta_slow", &out->rope.beta_slow, false);
        WANT("attention_factor", &out->rope.attention_factor, false);
        WANT("mscale", &out->rope.mscale, false);
        WANT("mscale_all_dim", &out->rope.mscale_all_dim, false);
    } else {
        BRIM_REQUIRE(c->err, strcmp(type, "default") == 0, BRIM_E_UNSUPPORTED,
                     "%s: %srope_type is %.40s; default, linear, llama3 and yarn work", c->path,
                     what, type);
    }
#undef WANT
    for (size_t i = 0; i < n; i++)
        BRIM_TRY(brim_json_number(rope, numbers[i].key, numbers[i].required, c->path, what,
                                  numbers[i].out, c->err));
    return brim_json_bool(rope, "truncate", c->path, what, &out->rope.truncate, c->err);
}

/* A number or a list of numbers. */
static brim_status read_eos(const struct context *c, const json_t *value,
                            struct brim_model_config *out)
{
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    BRIM_REQUIRE(c->err, n <= BRIM_MAX_EOS, BRIM_E_UNSUPPORTED,
                 "%s: eos_token_id has %zu ids, at most %d work", c->path, n, BRIM_MAX_EOS);
    out->n_eos = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_is_array(value) ? json_array_get(value, i) : value;
        BRIM_REQUIRE(c->err,
                     json_is_integer(id) && json_integer_value(id) >= 0 &&
                         json_integer_value(id) < out->n_vocab,
                     BRIM_E_FORMAT,
                     "%s: eos_token_id holds something that is no id of the vocabulary", c->path);
        out->eos[out->n_eos++] = (int32_t)json_integer_value(id);
    }
    return BRIM_OK;
}

/* generation_config.json overrides config.json, key by key. */
static brim_status read_ids(const struct context *c, const json_t *generation,
                            struct brim_model_config *out)
{
    const json_t *eos = brim_json_get(generation, "eos_token_id");
    if (!eos) eos = brim_json_get(c->root, "eos_token_id");
    if (eos) BRIM_TRY(read_eos(c, eos, out));
    const json_t *bos = brim_json_get(generation, "bos_token_id");
    if (!bos) bos = brim_json_get(c->root, "bos_token_id");
    BRIM_REQUIRE(c->err,
                 !bos || (json_is_integer(bos) && json_integer_value(bos) >= 0 &&
                          json_integer_value(bos) < out->n_vocab),
                 BRIM_E_FORMAT, "%s: bos_token_id is no id of the vocabulary", c->path);
    out->bos = bos ? (int32_t)json_integer_value(bos) : -1;
    return BRIM_OK;
}

static brim_status check_mode(const struct context *c, const json_t *object, const char *what)
{
    const json_t *mode = brim_json_get(object, "mode");
    BRIM_REQUIRE(c->err,
                 !mode || (json_is_string(mode) && strcmp(json_string_value(mode), "affine") == 0),
                 BRIM_E_UNSUPPORTED, "%s: %smode is %.40s; affine works", c->path, what,
                 json_is_string(mode) ? json_string_value(mode) : "no text");
    return BRIM_OK;
}

static brim_status read_override(const struct context *c, const char *module, const json_t *object,
                                 struct brim_hf_config *out)
{
    int64_t group = out->group, bits = out->bits;
    BRIM_TRY(check_mode(c, object, "quantization of a module: "));
    BRIM_TRY(brim_json_int(object, "group_size", false, c->path,
                           "quantization of a module: ", &group, c->err));
    BRIM_TRY(
        brim_json_int(object, "bits", false, c->path, "quantization of a module: ", &bits, c->err));
    BRIM_REQUIRE(c->err, bits == 4 && (group == 32 || group == 64 || group == 128),
                 BRIM_E_UNSUPPORTED,
                 "%s: quantization of %.120s has group_size %" PRId64 " and bits %" PRId64
                 "; 4 bits in groups of 32, 64 or 128 work",
                 c->path, module, group, bits);
    struct brim_quant_override *o = &out->overrides[out->n_override];
    o->module = brim_strndup(module, strlen(module));
    if (!o->module) return brim_fail(c->err, BRIM_E_NO_MEMORY, "%s: out of memory", c->path);
    o->group = (int)group;
    o->bits = (int)bits;
    out->n_override++;
    return BRIM_OK;
}

static brim_status read_quantization(const struct context *c, struct brim_hf_config *out)
{
    const char *what = "quantization.";
    const json_t *object = brim_json_get(c->root, "quantization");
    if (!object) {
        what = "quantization_config.";
        object = brim_json_get(c->root, "quantization_config");
    }
    if (!object) return BRIM_OK;
    BRIM_REQUIRE(c->err, json_is_object(object), BRIM_E_FORMAT, "%s: %.*s is no object", c->path,
                 (int)strlen(what) - 1, what);
    const char *method = json_string_value(brim_json_get(object, "quant_method"));
    BRIM_REQUIRE(c->err, !method, BRIM_E_UNSUPPORTED,
                 "%s: %squant_method is %.60s; MLX affine 4-bit and unquantized weights work",
                 c->path, what, method);
    int64_t group = 0, bits = 0;
    BRIM_TRY(check_mode(c, object, what));
    BRIM_TRY(brim_json_int(object, "group_size", true, c->path, what, &group, c->err));
    BRIM_TRY(brim_json_int(object, "bits", true, c->path, what, &bits, c->err));
    BRIM_REQUIRE(c->err, bits == 4, BRIM_E_UNSUPPORTED, "%s: %sbits is %" PRId64 "; 4 works",
                 c->path, what, bits);
    BRIM_REQUIRE(c->err, group == 32 || group == 64 || group == 128, BRIM_E_UNSUPPORTED,
                 "%s: %sgroup_size is %" PRId64 "; 32, 64 and 128 work", c->path, what, group);
    out->is_quantized = true;
    out->group = (int)group;
    out->bits = (int)bits;
    out->overrides = brim_calloc(json_object_size(object), sizeof *out->overrides);
    if (!out->overrides) return brim_fail(c->err, BRIM_E_NO_MEMORY, "%s: out of memory", c->path);
    const char *module;
    json_t *value;
    /* `false` for a module says it is not quantized: the absence of its scales says so too */
    json_object_foreach((json_t *)(uintptr_t)object, module, value) if (json_is_object(value))
        BRIM_TRY(read_override(c, module, value, out));
    return BRIM_OK;
}

static brim_status read_all(const struct context *c, const json_t *generation,
                            struct brim_hf_config *out)
{
    struct brim_model_config *model = &out->model;
    BRIM_TRY(read_family(c, model));
    BRIM_TRY(read_quantization(c, out));
    BRIM_TRY(read_sizes(c, model));
    BRIM_TRY(refuse_variants(c, model));
    BRIM_TRY(read_rope(c, model));
    BRIM_TRY(read_ids(c, generation, model));
    out->tie_given = brim_json_get(c->root, "tie_word_embeddings") != NULL;
    BRIM_TRY(get_bool(c, "tie_word_embeddings", &model->tie_embeddings));
    return brim_model_config_check(model, c->path, c->err);
}

brim_status brim_hf_config_parse(struct brim_hf_config *out, const char *config,
                                 size_t config_bytes, const char *generation,
                                 size_t generation_bytes, const char *path, brim_error *err)
{
    *out = (struct brim_hf_config){0};
    json_t *root = NULL, *generation_root = NULL;
    brim_status status = brim_json_parse(&root, config, config_bytes, path, err);
    if (status == BRIM_OK && generation) {
        char name[480]; /* beside config.json */
        const char *slash = strrchr(path, '/');
        snprintf(name, sizeof name, "%.*sgeneration_config.json",
                 slash ? (int)(slash - path) + 1 : 0, path);
        status = brim_json_parse(&generation_root, generation, generation_bytes, name, err);
    }
    if (status == BRIM_OK) {
        struct context c = {root, path, err};
        status = read_all(&c, generation_root, out);
    }
    json_decref(root);
    json_decref(generation_root);
    if (status != BRIM_OK) brim_hf_config_free(out);
    return status;
}

void brim_hf_config_free(struct brim_hf_config *config)
{
    for (size_t i = 0; i < config->n_override; i++) brim_free(config->overrides[i].module);
    brim_free(config->overrides);
    *config = (struct brim_hf_config){0};
}

void brim_hf_config_quant(const struct brim_hf_config *config, const char *module, size_t len,
                          int *group, int *bits)
{
    *group = config->group;
    *bits = config->bits;
    for (size_t i = 0; i < config->n_override; i++) {
        const struct brim_quant_override *o = &config->overrides[i];
        if (strlen(o->module) != len || memcmp(o->module, module, len) != 0) continue;
        *group = o->group;
        *bits = o->bits;
    }
}
