/* SPDX-License-Identifier: Apache-2.0
 * What GGUF metadata says about the model: hyper-parameters, rotary scaling, end tokens. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "load/gguf.h"

struct context {
    const struct brim_gguf *gguf;
    const char *path;
    char arch[16];
    brim_error *err;
};

static const char *arch_key(const struct context *c, const char *suffix, char key[96])
{
    snprintf(key, 96, "%s.%s", c->arch, suffix);
    return key;
}

/* An integer of the architecture; without it *out stays as it is, unless it is required. */
static brim_status get_int(const struct context *c, const char *suffix, bool required, int64_t *out)
{
    char key[96];
    if (!brim_gguf_find(c->gguf, arch_key(c, suffix, key))) {
        BRIM_REQUIRE(c->err, !required, BRIM_E_MISSING, "%s: metadata %s is missing", c->path, key);
        return BRIM_OK;
    }
    BRIM_REQUIRE(c->err, brim_gguf_int(c->gguf, key, out), BRIM_E_UNSUPPORTED,
                 "%s: metadata %s is not a single integer", c->path, key);
    return BRIM_OK;
}

static brim_status get_number(const struct context *c, const char *suffix, bool required,
                              double *out)
{
    char key[96];
    if (!brim_gguf_find(c->gguf, arch_key(c, suffix, key))) {
        BRIM_REQUIRE(c->err, !required, BRIM_E_MISSING, "%s: metadata %s is missing", c->path, key);
        return BRIM_OK;
    }
    BRIM_REQUIRE(c->err, brim_gguf_number(c->gguf, key, out), BRIM_E_FORMAT,
                 "%s: metadata %s is not a single number", c->path, key);
    return BRIM_OK;
}

static brim_status read_family(struct context *c, struct brim_model_config *out)
{
    struct brim_str arch;
    BRIM_REQUIRE(c->err, brim_gguf_string(c->gguf, "general.architecture", &arch), BRIM_E_MISSING,
                 "%s: metadata general.architecture is missing", c->path);
    static const struct {
        const char *name;
        enum brim_model_family family;
    } known[] = {
        {"llama", BRIM_FAMILY_LLAMA}, {"qwen2", BRIM_FAMILY_QWEN2}, {"qwen3", BRIM_FAMILY_QWEN3}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i].name) != arch.len || memcmp(known[i].name, arch.data, arch.len) != 0)
            continue;
        snprintf(c->arch, sizeof c->arch, "%s", known[i].name);
        out->family = known[i].family;
        return BRIM_OK;
    }
    return brim_fail(c->err, BRIM_E_UNSUPPORTED,
                     "%s: architecture %.*s; llama, qwen2 and qwen3 work", c->path,
                     arch.len > 60 ? 60 : (int)arch.len, arch.data);
}

static brim_status read_sizes(const struct context *c, struct brim_model_config *out)
{
    BRIM_TRY(get_int(c, "block_count", true, &out->n_layer));
    BRIM_TRY(get_int(c, "embedding_length", true, &out->n_embd));
    BRIM_TRY(get_int(c, "feed_forward_length", true, &out->n_ff));
    BRIM_TRY(get_int(c, "attention.head_count", true, &out->n_head));
    out->n_head_kv = out->n_head;
    BRIM_TRY(get_int(c, "attention.head_count_kv", false, &out->n_head_kv));
    BRIM_TRY(get_int(c, "context_length", true, &out->n_context));
    double eps = 0;
    BRIM_TRY(get_number(c, "attention.layer_norm_rms_epsilon", true, &eps));
    out->norm_eps = (float)eps;

    out->head_dim = out->n_head > 0 ? out->n_embd / out->n_head : 0;
    BRIM_TRY(get_int(c, "attention.key_length", false, &out->head_dim));
    int64_t value_dim = out->head_dim, rope_dim = out->head_dim, n_expert = 0, window = 0;
    BRIM_TRY(get_int(c, "attention.value_length", false, &value_dim));
    BRIM_TRY(get_int(c, "rope.dimension_count", false, &rope_dim));
    BRIM_TRY(get_int(c, "expert_count", false, &n_expert));
    BRIM_TRY(get_int(c, "attention.sliding_window", false, &window));
    BRIM_REQUIRE(c->err, value_dim == out->head_dim, BRIM_E_UNSUPPORTED,
                 "%s: metadata %s.attention.value_length differs from key_length", c->path,
                 c->arch);
    BRIM_REQUIRE(c->err, rope_dim == out->head_dim, BRIM_E_UNSUPPORTED,
                 "%s: metadata %s.rope.dimension_count is not the head size: partial rotation is "
                 "not supported",
                 c->path, c->arch);
    BRIM_REQUIRE(c->err, n_expert == 0, BRIM_E_UNSUPPORTED,
                 "%s: metadata %s.expert_count: mixtures of experts are not supported", c->path,
                 c->arch);
    BRIM_REQUIRE(c->err, window == 0, BRIM_E_UNSUPPORTED,
                 "%s: metadata %s.attention.sliding_window is not supported", c->path, c->arch);

    const struct brim_file_tensor *embd = brim_table_find(&c->gguf->tensors, "token_embd.weight");
    BRIM_REQUIRE(c->err, embd && embd->n_dim == 2, BRIM_E_MISSING,
                 "%s: tensor token_embd.weight is missing or no matrix", c->path);
    out->n_vocab = embd->shape[0];
    out->tie_embeddings = !brim_table_find(&c->gguf->tensors, "output.weight");
    out->qkv_bias = out->family == BRIM_FAMILY_QWEN2;
    BRIM_REQUIRE(c->err, out->qkv_bias || !brim_table_find(&c->gguf->tensors, "blk.0.attn_q.bias"),
                 BRIM_E_UNSUPPORTED,
                 "%s: tensor blk.0.attn_q.bias: attention biases of %s are not supported", c->path,
                 c->arch);
    return BRIM_OK;
}

/* What a factor of rope_freqs.weight must be for the given llama3 scaling: 1 for short wavelengths,
 * `factor` for long ones, interpolated between (Llama 3.1's published rule). */
static double llama3_factor(const struct brim_model_config *out, int64_t i)
{
    double freq = pow(out->rope_theta, -2.0 * (double)i / (double)out->head_dim);
    double turns = out->rope.original_context * freq / (2 * 3.14159265358979323846);
    if (turns > out->rope.high_freq_factor) return 1;
    if (turns < out->rope.low_freq_factor) return out->rope.factor;
    double smooth = (turns - out->rope.low_freq_factor) /
                    (out->rope.high_freq_factor - out->rope.low_freq_factor);
    return 1 / ((1 - smooth) / out->rope.factor + smooth);
}

/* Llama 3.1 files carry their scaling only as the factors it gives. All published models use
 * original context 8192, low 1 and high 4, and the last factor is the plain one; that is verified
 * on every factor. */
static brim_status read_rope_freqs(const struct context *c, struct brim_model_config *out)
{
    const struct brim_file_tensor *t = brim_table_find(&c->gguf->tensors, "rope_freqs.weight");
    if (!t) return BRIM_OK;
    BRIM_REQUIRE(c->err,
                 t->storage == BRIM_STORAGE_F32 && t->n_dim == 1 &&
                     t->shape[0] == out->head_dim / 2 && out->head_dim >= 2 &&
                     out->rope.kind == BRIM_ROPE_NONE && out->rope_theta > 0,
                 BRIM_E_UNSUPPORTED,
                 "%s: tensor rope_freqs.weight is not F32 [head size / 2] or comes with another "
                 "rope scaling",
                 c->path);
    out->rope.factor = (double)brim_dtype_load(BRIM_DTYPE_F32, t->data, (size_t)t->shape[0] - 1);
    out->rope.kind = BRIM_ROPE_LLAMA3;
    out->rope.original_context = 8192;
    out->rope.low_freq_factor = 1;
    out->rope.high_freq_factor = 4;
    bool all_one = true;
    for (int64_t i = 0; i < t->shape[0]; i++) {
        double found = (double)brim_dtype_load(BRIM_DTYPE_F32, t->data, (size_t)i);
        all_one = all_one && found == 1;
        BRIM_REQUIRE(
            c->err, fabs(found - llama3_factor(out, i)) <= 1e-3 * fabs(found), BRIM_E_UNSUPPORTED,
            "%s: tensor rope_freqs.weight does not follow the llama3 scaling rule", c->path);
    }
    if (all_one) out->rope.kind = BRIM_ROPE_NONE;
    return BRIM_OK;
}

static brim_status read_rope(const struct context *c, struct brim_model_config *out)
{
    char key[96];
    out->rope_theta = 10000;
    out->rope.truncate = true;
    BRIM_TRY(get_number(c, "rope.freq_base", false, &out->rope_theta));
    struct brim_str type = {"none", 4};
    double factor = 1;
    BRIM_TRY(get_number(c, "rope.scale_linear", false, &factor)); /* before 2023-11 */
    if (factor != 1) type = (struct brim_str){"linear", 6};
    if (brim_gguf_find(c->gguf, arch_key(c, "rope.scaling.type", key)))
        BRIM_REQUIRE(c->err, brim_gguf_string(c->gguf, key, &type), BRIM_E_FORMAT,
                     "%s: metadata %s is no text", c->path, key);
    BRIM_TRY(get_number(c, "rope.scaling.factor", false, &factor));
    out->rope.factor = factor;
    if (type.len == 4 && memcmp(type.data, "none", 4) == 0) {
        out->rope.kind = BRIM_ROPE_NONE;
        return read_rope_freqs(c, out);
    }
    if (type.len == 6 && memcmp(type.data, "linear", 6) == 0) {
        out->rope.kind = BRIM_ROPE_LINEAR;
        return read_rope_freqs(c, out);
    }
    BRIM_REQUIRE(c->err, type.len == 4 && memcmp(type.data, "yarn", 4) == 0, BRIM_E_UNSUPPORTED,
                 "%s: rope scaling type %.*s; none, linear and yarn work", c->path,
                 type.len > 40 ? 40 : (int)type.len, type.data);
    out->rope.kind = BRIM_ROPE_YARN;
    out->rope.beta_fast = 32;
    out->rope.beta_slow = 1;
    double attn_factor = 1;
    out->rope.original_context = (double)out->n_context;
    BRIM_TRY(
        get_number(c, "rope.scaling.original_context_length", false, &out->rope.original_context));
    BRIM_TRY(get_number(c, "rope.scaling.yarn_beta_fast", false, &out->rope.beta_fast));
    BRIM_TRY(get_number(c, "rope.scaling.yarn_beta_slow", false, &out->rope.beta_slow));
    BRIM_TRY(get_number(c, "rope.scaling.attn_factor", false, &attn_factor));
    /* attn_factor multiplies YaRN's own 0.1 ln(factor) + 1, which attention_factor would replace.
     */
    if (attn_factor != 1 && factor >= 1)
        out->rope.attention_factor = attn_factor * (0.1 * log(factor) + 1);
    return read_rope_freqs(c, out);
}

static void add_eos(struct brim_model_config *out, int64_t id)
{
    if (id < 0 || id >= out->n_vocab || out->n_eos == BRIM_MAX_EOS) return;
    for (int i = 0; i < out->n_eos; i++)
        if (out->eos[i] == id) return;
    out->eos[out->n_eos++] = (int32_t)id;
}

/* Control tokens that end a turn in every supported chat family, by their text. A file names only
 * one of them in its metadata, and not always the one its chat template writes. */
static void add_eos_by_text(const struct context *c, struct brim_model_config *out)
{
    static const char *const ends[] = {"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>",
                                       "<|end_of_text|>"};
    const struct brim_gguf_value *tokens = brim_gguf_find(c->gguf, "tokenizer.ggml.tokens");
    const struct brim_gguf_value *types = brim_gguf_find(c->gguf, "tokenizer.ggml.token_type");
    if (!tokens || !tokens->is_array || tokens->type != BRIM_GGUF_STRING) return;
    if (!types || !types->is_array || types->type != BRIM_GGUF_I32 ||
        types->n_item != tokens->n_item)
        return;
    const uint8_t *at = tokens->data;
    for (uint64_t i = 0; i < tokens->n_item; i++) {
        struct brim_str text = brim_gguf_next_string(&at);
        if (text.len < 3 || text.data[0] != '<' || text.data[1] != '|') continue;
        if (types->data[4 * i] != 3) continue; /* 3: control token; types are below 256 */
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++)
            if (strlen(ends[k]) == text.len && memcmp(ends[k], text.data, text.len) == 0)
                add_eos(out, (int64_t)i);
    }
}

static void read_ends(const struct context *c, struct brim_model_config *out)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int64_t id;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (brim_gguf_int(c->gguf, keys[i], &id)) add_eos(out, id);
    add_eos_by_text(c, out);
    out->bos = -1;
    if (brim_gguf_int(c->gguf, "tokenizer.ggml.bos_token_id", &id) && id >= 0 && id < out->n_vocab)
        out->bos = (int32_t)id;
    /* Without the key, Llama-3 vocabularies begin with bos and the other byte-level ones do not. */
    struct brim_str pre = {"", 0};
    (void)brim_gguf_string(c->gguf, "tokenizer.ggml.pre", &pre);
    out->add_bos = pre.len == 9 && memcmp(pre.data, "llama-bpe", 9) == 0;
    (void)brim_gguf_bool(c->gguf, "tokenizer.ggml.add_bos_token", &out->add_bos);
    if (out->bos < 0) out->add_bos = false;
}

brim_status brim_gguf_config(const struct brim_gguf *gguf, const char *path,
                             struct brim_model_config *out, brim_error *err)
{
    struct context c = {.gguf = gguf, .path = path, .err = err};
    *out = (struct brim_model_config){0};
    int64_t n_part = 1;
    (void)brim_gguf_int(gguf, "split.count", &n_part);
    BRIM_REQUIRE(err, n_part <= 1, BRIM_E_UNSUPPORTED,
                 "%s: one of %" PRId64 " parts of a split model; join them into one file first",
                 path, n_part);
    BRIM_TRY(read_family(&c, out));
    BRIM_TRY(read_sizes(&c, out));
    BRIM_TRY(read_rope(&c, out));
    read_ends(&c, out);
    return brim_model_config_check(out, path, err);
}
