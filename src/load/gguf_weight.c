/* SPDX-License-Identifier: Apache-2.0
 * Weights of a GGUF file under their Hugging Face names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load/gguf.h"

struct rename {
    const char *hugging_face, *gguf;
};

bool brim_gguf_name(const char *name, char *out, size_t out_bytes)
{
    static const struct rename global[] = {
        {"model.embed_tokens.weight", "token_embd.weight"},
        {"model.norm.weight", "output_norm.weight"},
        {"lm_head.weight", "output.weight"},
    };
    static const struct rename per_layer[] = {
        {"input_layernorm", "attn_norm"},    {"post_attention_layernorm", "ffn_norm"},
        {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},      {"self_attn.o_proj", "attn_output"},
        {"self_attn.q_norm", "attn_q_norm"}, {"self_attn.k_norm", "attn_k_norm"},
        {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},
    };
    for (size_t i = 0; i < sizeof global / sizeof *global; i++)
        if (strcmp(name, global[i].hugging_face) == 0)
            return snprintf(out, out_bytes, "%s", global[i].gguf) < (int)out_bytes;
    static const char prefix[] = "model.layers.";
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return false;
    const char *number = name + sizeof prefix - 1, *rest = number;
    while (*rest >= '0' && *rest <= '9') rest++;
    const char *last = strrchr(rest, '.');
    if (rest == number || rest - number > 6 || *rest != '.' || last == rest) return false;
    if (strcmp(last, ".weight") != 0 && strcmp(last, ".bias") != 0) return false;
    rest++;
    for (size_t i = 0; i < sizeof per_layer / sizeof *per_layer; i++) {
        size_t len = strlen(per_layer[i].hugging_face);
        if (len != (size_t)(last - rest) || memcmp(rest, per_layer[i].hugging_face, len) != 0)
            continue;
        int n = snprintf(out, out_bytes, "blk.%.*s.%s%s", (int)(rest - 1 - number), number,
                         per_layer[i].gguf, last);
        return n < (int)out_bytes;
    }
    return false;
}

static bool contains_qk(const char *gguf_name)
{
    const char *part = strstr(gguf_name, ".attn_");
    return part && (part[6] == 'q' || part[6] == 'k') && part[7] == '.';
}

brim_status brim_gguf_weight(const struct brim_gguf *gguf, const struct brim_model_config *config,
                             const char *path, const char *name, struct brim_weight *out,
                             brim_error *err)
{
    char own[96];
    const struct brim_file_tensor *t = NULL;
    if (brim_gguf_name(name, own, sizeof own)) t = brim_table_find(&gguf->tensors, own);
    if (!t) return brim_fail(err, BRIM_E_MISSING, "%s: tensor %s is missing", path, name);
    BRIM_REQUIRE(err, t->n_dim <= 2, BRIM_E_FORMAT, "%s: tensor %s has %d dimensions", path,
                 t->name, t->n_dim);
    *out = (struct brim_weight){
        .n_out = t->n_dim == 2 ? t->shape[0] : 1,
        .n_in = t->shape[t->n_dim - 1],
        .data = t->data,
        .data_bytes = (size_t)t->n_bytes,
        .dtype = BRIM_DTYPE_F16,
        .group = 32,
    };
    switch (t->storage) {
    case BRIM_STORAGE_Q4_0:
        out->kind = BRIM_WEIGHT_Q4_0;
        break;
    case BRIM_STORAGE_Q4_1:
        out->kind = BRIM_WEIGHT_Q4_1;
        break;
    case BRIM_STORAGE_Q8_0:
        out->kind = BRIM_WEIGHT_Q8_0;
        break;
    default:
        out->kind = BRIM_WEIGHT_DENSE;
        out->group = 0;
        out->dtype = t->storage == BRIM_STORAGE_F32   ? BRIM_DTYPE_F32
                     : t->storage == BRIM_STORAGE_F16 ? BRIM_DTYPE_F16
                                                      : BRIM_DTYPE_BF16;
    }
    if (config->family == BRIM_FAMILY_LLAMA && t->n_dim == 2 && contains_qk(t->name)) {
        bool is_q = strstr(t->name, ".attn_q.") != NULL;
        out->n_rope_head = (int)(is_q ? config->n_head : config->n_head_kv);
        BRIM_REQUIRE(err, out->n_out % out->n_rope_head == 0, BRIM_E_SHAPE,
                     "%s: tensor %s has %lld rows, no multiple of its %d heads", path, t->name,
                     (long long)out->n_out, out->n_rope_head);
    }
    return BRIM_OK;
}
