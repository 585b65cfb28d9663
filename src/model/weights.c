/* SPDX-License-Identifier: Apache-2.0 */
#include "model/weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 192, SAMPLE_PIECES = 16, SAMPLE_BYTES = 64 };

uint64_t brim_hash64(uint64_t hash, const void *data, size_t n_bytes)
{
    const uint8_t *at = data;
    const uint64_t prime = 0x100000001B3u;
    for (; n_bytes >= 8; n_bytes -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = (hash ^ word) * prime;
        hash ^= hash >> 32; /* FNV's low bits never see high input bits of a whole word */
    }
    for (; n_bytes > 0; n_bytes--, at++) hash = (hash ^ *at) * prime;
    return hash ^ hash >> 29;
}

/* Name, form and 16 pieces of the data, evenly spaced: reading everything would cost as much as
 * loading it. */
static void hash_weight(struct brim_weight_loader *loader, const char *name,
                        const struct brim_weight *w)
{
    int64_t form[] = {(int64_t)w->kind, (int64_t)w->dtype, w->n_out, w->n_in, w->group};
    uint64_t hash = brim_hash64(loader->hash, name, strlen(name));
    hash = brim_hash64(hash, form, sizeof form);
    const uint8_t *data = w->data;
    if (w->data_bytes <= SAMPLE_PIECES * SAMPLE_BYTES) {
        hash = brim_hash64(hash, data, w->data_bytes);
    } else {
        size_t step = (w->data_bytes - SAMPLE_BYTES) / (SAMPLE_PIECES - 1);
        for (size_t i = 0; i < SAMPLE_PIECES; i++)
            hash = brim_hash64(hash, data + i * step, SAMPLE_BYTES);
    }
    loader->hash = hash;
}

static bool full_name(char *out, const char *prefix, const char *name, const char *suffix)
{
    int n = snprintf(out, NAME_BYTES, "%s%s%s", prefix, name, suffix);
    return n > 0 && n < NAME_BYTES;
}

static brim_status find(struct brim_weight_loader *loader, const char *name, int64_t n_out,
                        int64_t n_in, struct brim_weight *out, brim_error *err)
{
    const struct brim_weight_source *source = loader->source;
    BRIM_REQUIRE(err, source->find(source->ctx, name, out), BRIM_E_MISSING,
                 "%s: tensor %s is missing", source->path, name);
    BRIM_REQUIRE(err, out->n_out == n_out && out->n_in == n_in, BRIM_E_SHAPE,
                 "%s: tensor %s is [%" PRId64 ", %" PRId64 "], the configuration asks for [%" PRId64
                 ", %" PRId64 "]",
                 source->path, name, out->n_out, out->n_in, n_out, n_in);
    return BRIM_OK;
}

static void finish(struct brim_weight_loader *loader, const struct brim_weight *w)
{
    const struct brim_weight_source *source = loader->source;
    loader->done_bytes += w->data_bytes;
    if (source->release) source->release(source->ctx, w);
    if (loader->progress) loader->progress(loader->progress_ctx, loader->done_bytes);
}

brim_status brim_load_vector(struct brim_weight_loader *loader, struct brim_vector **out,
                             const char *prefix, const char *name, int64_t n, brim_error *err)
{
    char full[NAME_BYTES];
    struct brim_weight w;
    BRIM_REQUIRE(err, full_name(full, prefix, name, ".weight"), BRIM_E_ARGUMENT,
                 "tensor name %s%s is too long", prefix, name);
    BRIM_TRY(find(loader, full, 1, n, &w, err));
    hash_weight(loader, full, &w);
    BRIM_TRY(loader->backend->ops->vector_create(loader->backend, out, &w, full, err));
    finish(loader, &w);
    return BRIM_OK;
}

brim_status brim_load_matrix(struct brim_weight_loader *loader, struct brim_matrix **out,
                             const char *prefix, const struct brim_matrix_part *parts, int n_part,
                             int64_t n_in, enum brim_matrix_role role, enum brim_bias bias,
                             brim_error *err)
{
    struct brim_weight weights[3] = {{0}}, bias_weights[3];
    const struct brim_weight *biases[3] = {0};
    char first[NAME_BYTES] = "", name[NAME_BYTES];
    const struct brim_weight_source *source = loader->source;
    for (int i = 0; i < n_part; i++) {
        BRIM_REQUIRE(err, full_name(name, prefix, parts[i].name, ".weight"), BRIM_E_ARGUMENT,
                     "tensor name %s%s is too long", prefix, parts[i].name);
        if (i == 0) memcpy(first, name, sizeof name);
        BRIM_TRY(find(loader, name, parts[i].n_out, n_in, &weights[i], err));
        hash_weight(loader, name, &weights[i]);
        BRIM_REQUIRE(err, full_name(name, prefix, parts[i].name, ".bias"), BRIM_E_ARGUMENT,
                     "tensor name %s%s is too long", prefix, parts[i].name);
        if (bias == BRIM_BIAS_REQUIRED) {
            BRIM_TRY(find(loader, name, 1, parts[i].n_out, &bias_weights[i], err));
            hash_weight(loader, name, &bias_weights[i]);
            biases[i] = &bias_weights[i];
        } else {
            BRIM_REQUIRE(err, !source->find(source->ctx, name, &bias_weights[i]),
                         BRIM_E_UNSUPPORTED, "%s: tensor %s: this family has no such bias here",
                         source->path, name);
        }
    }
    BRIM_TRY(loader->backend->ops->matrix_create(loader->backend, out, weights, biases, n_part,
                                                 role, first, err));
    for (int i = 0; i < n_part; i++) {
        finish(loader, &weights[i]);
        if (biases[i]) finish(loader, biases[i]);
    }
    return BRIM_OK;
}

brim_status brim_load_common_layer(struct brim_weight_loader *loader, struct brim_layer *layer,
                                   const struct brim_model_config *config, const char *prefix,
                                   enum brim_bias qkv_bias, brim_error *err)
{
    int64_t n_embd = config->n_embd, n_ff = config->n_ff;
    int64_t q_width = config->n_head * config->head_dim;
    int64_t kv_width = config->n_head_kv * config->head_dim;
    const struct brim_matrix_part qkv[] = {{"self_attn.q_proj", q_width},
                                           {"self_attn.k_proj", kv_width},
                                           {"self_attn.v_proj", kv_width}};
    const struct brim_matrix_part attn_out[] = {{"self_attn.o_proj", n_embd}};
    const struct brim_matrix_part gate_up[] = {{"mlp.gate_proj", n_ff}, {"mlp.up_proj", n_ff}};
    const struct brim_matrix_part down[] = {{"mlp.down_proj", n_embd}};
    BRIM_TRY(brim_load_vector(loader, &layer->attn_norm, prefix, "input_layernorm", n_embd, err));
    BRIM_TRY(brim_load_matrix(loader, &layer->qkv, prefix, qkv, 3, n_embd, BRIM_MATRIX_LINEAR,
                              qkv_bias, err));
    BRIM_TRY(brim_load_matrix(loader, &layer->attn_out, prefix, attn_out, 1, q_width,
                              BRIM_MATRIX_LINEAR, BRIM_BIAS_NONE, err));
    BRIM_TRY(brim_load_vector(loader, &layer->ffn_norm, prefix, "post_attention_layernorm", n_embd,
                              err));
    BRIM_TRY(brim_load_matrix(loader, &layer->gate_up, prefix, gate_up, 2, n_embd,
                              BRIM_MATRIX_GATE_UP, BRIM_BIAS_NONE, err));
    return brim_load_matrix(loader, &layer->down, prefix, down, 1, n_ff, BRIM_MATRIX_LINEAR,
                            BRIM_BIAS_NONE, err);
}
