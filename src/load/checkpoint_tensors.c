/* SPDX-License-Identifier: Apache-2.0
 * The tensors of a checkpoint of either format: found by name, and whether all that the
 * configuration calls for are there. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "load/checkpoint_impl.h"

void brim_checkpoint_warn(const struct brim_checkpoint *checkpoint, const char *fmt, ...)
{
    if (!checkpoint->warn) return;
    char text[508];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    checkpoint->warn(checkpoint->warn_ctx, text);
}

const struct brim_tensor_table *brim_checkpoint_table(const struct brim_checkpoint *checkpoint)
{
    return checkpoint->is_gguf ? &checkpoint->gguf.tensors : &checkpoint->table;
}

brim_status brim_checkpoint_weight(const struct brim_checkpoint *checkpoint, const char *name,
                                   struct brim_weight *out, brim_error *err)
{
    if (!checkpoint->is_gguf) return brim_hf_weight(checkpoint, name, out, err);
    return brim_gguf_weight(&checkpoint->gguf, &checkpoint->config, checkpoint->path, name, out,
                            err);
}

/* Names that are missing, as text for one sentence. */
struct missing {
    char names[300];
    size_t len;
    int64_t n, n_expected;
};

static brim_status expect(const struct brim_checkpoint *checkpoint, const char *name,
                          struct missing *missing, brim_error *err)
{
    struct brim_weight weight;
    brim_error local;
    missing->n_expected++;
    brim_status status = brim_checkpoint_weight(checkpoint, name, &weight, &local);
    if (status == BRIM_OK) return BRIM_OK;
    /* the tensor itself may be there and only its biases missing */
    bool is_there = !checkpoint->is_gguf && brim_table_find(&checkpoint->table, name);
    if (status != BRIM_E_MISSING || is_there) {
        if (err) *err = local;
        return status;
    }
    missing->n++;
    if (missing->n <= 4) {
        int n = snprintf(missing->names + missing->len, sizeof missing->names - missing->len,
                         "%s%s", missing->n > 1 ? ", " : "", name);
        if (n > 0 && (size_t)n < sizeof missing->names - missing->len) missing->len += (size_t)n;
    }
    return BRIM_OK;
}

/* Layers that the configuration does not name would be left out without a word. */
static void warn_of_layers(const struct brim_checkpoint *checkpoint)
{
    const struct brim_tensor_table *table = brim_checkpoint_table(checkpoint);
    const char *prefix = checkpoint->is_gguf ? "blk." : "model.layers.";
    size_t n = strlen(prefix);
    for (size_t i = 0; i < table->n; i++) {
        const char *name = table->items[i].name;
        if (strncmp(name, prefix, n) != 0) continue;
        int64_t layer = 0;
        for (const char *c = name + n; *c >= '0' && *c <= '9' && layer < INT32_MAX; c++)
            layer = 10 * layer + (*c - '0');
        if (layer < checkpoint->config.n_layer) continue;
        brim_checkpoint_warn(checkpoint,
                             "%s: tensor %s is not used: the configuration has %" PRId64 " layers",
                             checkpoint->path, name, checkpoint->config.n_layer);
        return;
    }
}

brim_status brim_checkpoint_check_tensors(const struct brim_checkpoint *checkpoint, brim_error *err)
{
    static const char *const always[] = {
        "input_layernorm.weight",  "post_attention_layernorm.weight",
        "self_attn.q_proj.weight", "self_attn.k_proj.weight",
        "self_attn.v_proj.weight", "self_attn.o_proj.weight",
        "mlp.gate_proj.weight",    "mlp.up_proj.weight",
        "mlp.down_proj.weight"};
    static const char *const qkv_bias[] = {"self_attn.q_proj.bias", "self_attn.k_proj.bias",
                                           "self_attn.v_proj.bias"};
    static const char *const qk_norm[] = {"self_attn.q_norm.weight", "self_attn.k_norm.weight"};
    const struct brim_model_config *config = &checkpoint->config;
    const struct {
        const char *const *names;
        size_t n;
        bool wanted;
    } groups[] = {{always, 9, true},
                  {qkv_bias, 3, config->qkv_bias},
                  {qk_norm, 2, config->family == BRIM_FAMILY_QWEN3}};

    struct missing missing = {0};
    char name[96];
    BRIM_TRY(expect(checkpoint, "model.embed_tokens.weight", &missing, err));
    for (int64_t layer = 0; layer < config->n_layer; layer++)
        for (size_t g = 0; g < 3; g++)
            for (size_t i = 0; groups[g].wanted && i < groups[g].n; i++) {
                snprintf(name, sizeof name, "model.layers.%" PRId64 ".%s", layer,
                         groups[g].names[i]);
                BRIM_TRY(expect(checkpoint, name, &missing, err));
            }
    BRIM_TRY(expect(checkpoint, "model.norm.weight", &missing, err));
    if (!config->tie_embeddings) BRIM_TRY(expect(checkpoint, "lm_head.weight", &missing, err));
    BRIM_REQUIRE(err, missing.n == 0, BRIM_E_MISSING,
                 "%s: %" PRId64 " of %" PRId64
                 " tensors are missing: %s%s; the download may be incomplete",
                 checkpoint->path, missing.n, missing.n_expected, missing.names,
                 missing.n > 4 ? ", ..." : "");
    warn_of_layers(checkpoint);
    return BRIM_OK;
}
