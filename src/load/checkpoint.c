/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "load/checkpoint_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"

static brim_status open_gguf(struct brim_checkpoint *checkpoint, brim_error *err)
{
    checkpoint->shards = brim_calloc(1, sizeof *checkpoint->shards);
    if (!checkpoint->shards)
        return brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory", checkpoint->path);
    checkpoint->n_shard = 1;
    struct brim_map *map = &checkpoint->shards[0].map;
    BRIM_TRY(brim_map_open(map, checkpoint->path, err));
    checkpoint->is_gguf = true;
    size_t len = strlen(checkpoint->path);
    BRIM_REQUIRE(
        err, len < 12 || strcmp(checkpoint->path + len - 12, ".safetensors") != 0, BRIM_E_ARGUMENT,
        "%s: give the directory that holds this file and config.json instead", checkpoint->path);
    BRIM_TRY(brim_gguf_parse(&checkpoint->gguf, map->data, map->n_bytes, checkpoint->path, err));
    snprintf(checkpoint->format, sizeof checkpoint->format, "gguf v%d", checkpoint->gguf.version);
    return brim_gguf_config(&checkpoint->gguf, checkpoint->path, &checkpoint->config, err);
}

brim_status brim_checkpoint_open(struct brim_checkpoint **out, const char *path, brim_warn_fn *warn,
                                 void *warn_ctx, brim_error *err)
{
    *out = NULL;
    struct stat st;
    if (stat(path, &st) != 0)
        return brim_fail(err, errno == ENOENT ? BRIM_E_MISSING : BRIM_E_IO, "%s: cannot open: %s",
                         path, strerror(errno));
    struct brim_checkpoint *checkpoint = brim_calloc(1, sizeof *checkpoint);
    if (!checkpoint) return brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory", path);
    brim_status status = BRIM_OK;
    checkpoint->path = brim_strndup(path, strlen(path));
    if (!checkpoint->path) status = brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory", path);
    checkpoint->warn = warn;
    checkpoint->warn_ctx = warn_ctx;
    if (status == BRIM_OK)
        status = S_ISDIR(st.st_mode) ? brim_hf_open(checkpoint, err) : open_gguf(checkpoint, err);
    if (status == BRIM_OK) status = brim_checkpoint_check_tensors(checkpoint, err);
    for (size_t i = 0; i < checkpoint->n_shard; i++)
        checkpoint->file_bytes += checkpoint->shards[i].map.n_bytes;
    if (status == BRIM_OK)
        *out = checkpoint;
    else
        brim_checkpoint_close(&checkpoint);
    return status;
}

void brim_checkpoint_close(struct brim_checkpoint **checkpoint)
{
    struct brim_checkpoint *c = *checkpoint;
    if (!c) return;
    *checkpoint = NULL;
    brim_gguf_free(&c->gguf);
    brim_table_free(&c->table);
    brim_hf_config_free(&c->hf);
    brim_free(c->chat_template);
    for (size_t i = 0; i < c->n_shard; i++) {
        brim_map_close(&c->shards[i].map);
        brim_free(c->shards[i].path);
    }
    brim_free(c->shards);
    brim_free(c->path);
    brim_free(c);
}

const struct brim_model_config *brim_checkpoint_config(const struct brim_checkpoint *checkpoint)
{
    return &checkpoint->config;
}

static bool source_find(void *ctx, const char *name, struct brim_weight *out)
{
    return brim_checkpoint_weight(ctx, name, out, NULL) == BRIM_OK;
}

static void release_span(const struct brim_checkpoint *checkpoint, const void *data, size_t n_bytes)
{
    for (size_t i = 0; data && i < checkpoint->n_shard; i++) {
        const struct brim_map *map = &checkpoint->shards[i].map;
        uintptr_t at = (uintptr_t)data, begin = (uintptr_t)map->data;
        if (at >= begin && at - begin < map->n_bytes) {
            brim_map_release(map, data, n_bytes);
            return;
        }
    }
}

static void source_release(void *ctx, const struct brim_weight *weight)
{
    release_span(ctx, weight->data, weight->data_bytes);
    if (weight->kind != BRIM_WEIGHT_AFFINE4) return;
    size_t n_bytes = (size_t)weight->n_out * (size_t)(weight->n_in / weight->group) *
                     brim_dtype_bytes(weight->dtype);
    release_span(ctx, weight->scales, n_bytes);
    release_span(ctx, weight->biases, n_bytes);
}

struct brim_weight_source brim_checkpoint_source(struct brim_checkpoint *checkpoint)
{
    return (struct brim_weight_source){checkpoint, source_find, source_release, checkpoint->path};
}

size_t brim_checkpoint_n_tensor(const struct brim_checkpoint *checkpoint)
{
    return brim_checkpoint_table(checkpoint)->n;
}

void brim_checkpoint_tensor_info(const struct brim_checkpoint *checkpoint, size_t i,
                                 struct brim_tensor_info *out)
{
    const struct brim_file_tensor *t = &brim_checkpoint_table(checkpoint)->items[i];
    *out = (struct brim_tensor_info){
        .name = t->name, .type_name = t->type_name, .n_dim = t->n_dim, .n_bytes = t->n_bytes};
    memcpy(out->shape, t->shape, sizeof out->shape);
}

const char *brim_checkpoint_format(const struct brim_checkpoint *checkpoint)
{
    return checkpoint->format;
}

uint64_t brim_checkpoint_file_bytes(const struct brim_checkpoint *checkpoint)
{
    return checkpoint->file_bytes;
}
