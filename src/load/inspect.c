/* SPDX-License-Identifier: Apache-2.0
 * The public view of a checkpoint (brim/tools.h). */
#include "brim/tools.h"

#include <string.h>

#include "base/mem.h"
#include "load/checkpoint_impl.h"

struct brim_inspection {
    struct brim_checkpoint *checkpoint;
};

brim_status brim_inspect_open(brim_inspection **out, const char *path, brim_log_fn *warn,
                              void *warn_ctx, brim_error *err)
{
    BRIM_REQUIRE(err, out && path, BRIM_E_ARGUMENT, "inspect: out or path is null");
    *out = NULL;
    brim_inspection *inspection = brim_calloc(1, sizeof *inspection);
    if (!inspection) return brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory", path);
    brim_status status = brim_checkpoint_open(&inspection->checkpoint, path, warn, warn_ctx, err);
    if (status == BRIM_OK)
        *out = inspection;
    else
        brim_free(inspection);
    return status;
}

void brim_inspect_close(brim_inspection **inspection)
{
    if (!inspection || !*inspection) return;
    brim_checkpoint_close(&(*inspection)->checkpoint);
    brim_free(*inspection);
    *inspection = NULL;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

void brim_inspect_get(const brim_inspection *inspection, brim_inspect_summary *out)
{
    static const char *const families[] = {"llama", "qwen2", "qwen3"};
    static const char *const scalings[] = {"none", "linear", "llama3", "yarn"};
    const struct brim_checkpoint *checkpoint = inspection->checkpoint;
    const struct brim_model_config *config = &checkpoint->config;
    const struct brim_tensor_table *table = brim_checkpoint_table(checkpoint);
    *out = (brim_inspect_summary){
        .format = checkpoint->format,
        .family = families[config->family],
        .rope_scaling = scalings[config->rope.kind],
        .file_bytes = checkpoint->file_bytes,
        .n_tensor = table->n,
        .n_layer = config->n_layer,
        .n_embd = config->n_embd,
        .n_ff = config->n_ff,
        .n_head = config->n_head,
        .n_head_kv = config->n_head_kv,
        .head_dim = config->head_dim,
        .n_vocab = config->n_vocab,
        .n_context = config->n_context,
        .norm_eps = (double)config->norm_eps,
        .rope_theta = config->rope_theta,
        .rope_factor = config->rope.factor,
        .tie_embeddings = config->tie_embeddings,
        .qkv_bias = config->qkv_bias,
        .add_bos = config->add_bos,
        .quant_group = checkpoint->hf.group,
        .bos = config->bos,
        .n_eos = config->n_eos,
    };
    memcpy(out->eos, config->eos, sizeof out->eos);
    enum brim_chat_family chat;
    if (brim_checkpoint_chat_family(checkpoint, &chat, NULL) == BRIM_OK)
        out->chat = brim_chat_family_name(chat);
    for (size_t i = 0; i < table->n; i++) {
        const struct brim_file_tensor *t = &table->items[i];
        uint64_t n_value = 1;
        for (int d = 0; d < t->n_dim; d++) n_value *= (uint64_t)t->shape[d];
        out->tensor_bytes += t->n_bytes;
        if (t->storage == BRIM_STORAGE_U32) n_value *= 8;
        bool is_scale = out->quant_group > 0 &&
                        (ends_with(t->name, ".scales") || ends_with(t->name, ".biases"));
        if (!is_scale) out->n_parameter += n_value;
    }
}

void brim_inspect_get_tensor(const brim_inspection *inspection, size_t i, brim_inspect_tensor *out)
{
    struct brim_tensor_info info;
    brim_checkpoint_tensor_info(inspection->checkpoint, i, &info);
    *out = (brim_inspect_tensor){
        .name = info.name, .type = info.type_name, .n_dim = info.n_dim, .n_bytes = info.n_bytes};
    memcpy(out->shape, info.shape, sizeof out->shape);
}
