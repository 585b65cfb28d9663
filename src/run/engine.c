/* SPDX-License-Identifier: Apache-2.0
 * An engine's lifetime. The checkpoint is closed again before brim_engine_open returns: weights are
 * repacked, the tokenizer is taken over, nothing of the files stays mapped. */
#define _DEFAULT_SOURCE /* clock_gettime */
#include "run/engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

void brim_engine_options_default(brim_engine_options *options)
{
    *options = (brim_engine_options){.device = BRIM_DEVICE_CPU};
}

struct progress {
    const brim_engine_options *options;
    uint64_t total;
};

static void report_progress(void *ctx, uint64_t done)
{
    const struct progress *p = ctx;
    if (p->options->progress)
        p->options->progress(p->options->progress_ctx, done < p->total ? done : p->total, p->total);
}

static bool has_token(const brim_engine *engine, int32_t id)
{
    if (!engine->tokenizer) return true;
    return id < brim_tokenizer_n_vocab(engine->tokenizer) &&
           brim_tokenizer_piece(engine->tokenizer, id).len > 0;
}

/* Fill `sampled`; the vocabulary's rows without a token are usually one run at its end. */
static brim_status find_sampled(brim_engine *engine, const char *path, brim_error *err)
{
    int32_t n_vocab = (int32_t)engine->model->config.n_vocab;
    for (int pass = 0; pass < 2; pass++) {
        size_t n = 0;
        for (int32_t id = 0; id < n_vocab;) {
            int32_t end = id;
            while (end < n_vocab && has_token(engine, end)) end++;
            if (end > id) {
                if (pass == 1) engine->sampled[n] = (struct brim_id_range){id, end};
                n++;
            }
            id = end + 1;
        }
        BRIM_REQUIRE(err, n > 0, BRIM_E_FORMAT, "%s: no row of the vocabulary has a token", path);
        if (pass == 0) {
            engine->sampled = brim_alloc(n * sizeof *engine->sampled);
            BRIM_REQUIRE(err, engine->sampled, BRIM_E_NO_MEMORY,
                         "%s: out of memory for the vocabulary", path);
        }
        engine->n_sampled = n;
    }
    return BRIM_OK;
}

static brim_status take_text(brim_engine *engine, struct brim_checkpoint *checkpoint,
                             const brim_engine_options *options, const char *path, brim_error *err)
{
    brim_error tokenizer_error = {0};
    brim_status status =
        brim_checkpoint_take_tokenizer(checkpoint, &engine->tokenizer, &tokenizer_error);
    if (status == BRIM_E_MISSING) {
        if (options->warn) options->warn(options->warn_ctx, tokenizer_error.text);
    } else if (status != BRIM_OK) {
        return brim_fail(err, status, "%s", tokenizer_error.text);
    } else if (options->warn && !brim_tokenizer_pattern_is_known(engine->tokenizer)) {
        options->warn(options->warn_ctx,
                      "the tokenizer's pre-tokenizer is none of those brim was "
                      "tested with; if answers look odd, check the file's origin");
    }
    status = brim_checkpoint_chat_family(checkpoint, &engine->chat_family, &engine->chat_error);
    if (status == BRIM_E_NO_MEMORY) return brim_fail(err, status, "%s", engine->chat_error.text);
    engine->chat_error.status = status;
    int32_t n_token = engine->tokenizer ? brim_tokenizer_n_vocab(engine->tokenizer) : 0;
    for (int32_t id = 0; id < n_token; id++) {
        size_t len = brim_tokenizer_piece(engine->tokenizer, id).len;
        if (len > engine->max_piece_bytes) engine->max_piece_bytes = len;
    }
    return find_sampled(engine, path, err);
}

static brim_status open_backend(brim_engine *engine, const brim_engine_options *options,
                                brim_error *err)
{
    const struct brim_backend_cuda_options cuda = {.level = options->level};
    if (options->device == BRIM_DEVICE_CUDA) {
        BRIM_REQUIRE(err, !options->activations_int8, BRIM_E_ARGUMENT,
                     "device cuda: int8 activations are a mode of the CPU; a GPU rounds to bf16");
        return brim_backend_cuda_open(&engine->backend, &cuda, err);
    }
    BRIM_REQUIRE(err, options->device == BRIM_DEVICE_CPU, BRIM_E_ARGUMENT,
                 "device: %d is none of cpu (0), cuda (1)", (int)options->device);
    const struct brim_backend_cpu_options cpu = {
        .n_thread = options->n_thread,
        .tier = options->cpu_tier,
        .activations_int8 = options->activations_int8,
        .level = options->level,
    };
    return brim_backend_cpu_open(&engine->backend, &cpu, err);
}

static brim_status open_engine(brim_engine *engine, const char *path,
                               const brim_engine_options *options, brim_error *err)
{
    BRIM_TRY(open_backend(engine, options, err));
    struct brim_checkpoint *checkpoint;
    BRIM_TRY(brim_checkpoint_open(&checkpoint, path, options->warn, options->warn_ctx, err));
    snprintf(engine->format, sizeof engine->format, "%s", brim_checkpoint_format(checkpoint));
    engine->file_bytes = brim_checkpoint_file_bytes(checkpoint);
    struct progress progress = {options, engine->file_bytes};
    struct brim_weight_source source = brim_checkpoint_source(checkpoint);
    report_progress(&progress, 0);
    brim_status status =
        brim_model_load(&engine->model, engine->backend, brim_checkpoint_config(checkpoint),
                        &source, report_progress, &progress, err);
    if (status == BRIM_OK) status = take_text(engine, checkpoint, options, path, err);
    const struct brim_backend_ops *ops = engine->backend->ops;
    if (status == BRIM_OK && ops->loaded)
        status = ops->loaded(engine->backend, engine->sampled, engine->n_sampled, err);
    if (status == BRIM_OK) report_progress(&progress, progress.total);
    brim_checkpoint_close(&checkpoint);
    return status;
}

brim_status brim_engine_open(brim_engine **out, const char *path,
                             const brim_engine_options *options, brim_error *err)
{
    BRIM_REQUIRE(err, out, BRIM_E_ARGUMENT, "engine: out is null");
    *out = NULL;
    BRIM_REQUIRE(err, path && path[0], BRIM_E_ARGUMENT, "engine: the path is empty");
    int64_t start = brim_clock_ns();
    brim_engine_options defaults;
    brim_engine_options_default(&defaults);
    if (!options) options = &defaults;
    brim_engine *engine = brim_calloc(1, sizeof *engine);
    BRIM_REQUIRE(err, engine, BRIM_E_NO_MEMORY, "%s: out of memory for the engine", path);
    pthread_mutex_init(&engine->lock, NULL);
    brim_status status = open_engine(engine, path, options, err);
    if (status != BRIM_OK) brim_engine_close(&engine);
    if (engine) engine->load_ns = brim_clock_ns() - start;
    *out = engine;
    return status;
}

void brim_engine_close(brim_engine **engine_ptr)
{
    if (!engine_ptr || !*engine_ptr) return;
    brim_engine *engine = *engine_ptr;
    brim_model_free(&engine->model);
    brim_tokenizer_free(&engine->tokenizer);
    if (engine->backend) engine->backend->ops->close(&engine->backend);
    brim_free(engine->sampled);
    pthread_mutex_destroy(&engine->lock);
    brim_free(engine);
    *engine_ptr = NULL;
}

void brim_engine_info(const brim_engine *engine, brim_model_info *out)
{
    static const char *const families[] = {
        [BRIM_FAMILY_LLAMA] = "llama",
        [BRIM_FAMILY_QWEN2] = "qwen2",
        [BRIM_FAMILY_QWEN3] = "qwen3",
    };
    const struct brim_model_config *c = &engine->model->config;
    struct brim_backend_info backend;
    engine->backend->ops->info(engine->backend, &backend);
    *out = (brim_model_info){
        .family = families[c->family],
        .format = engine->format,
        .cpu_tier = backend.cpu_tier,
        .device = backend.name,
        .gpu = backend.device,
        .level = backend.level,
        .n_layer = c->n_layer,
        .n_embd = c->n_embd,
        .n_ff = c->n_ff,
        .n_head = c->n_head,
        .n_head_kv = c->n_head_kv,
        .head_dim = c->head_dim,
        .n_vocab = c->n_vocab,
        .n_context = c->n_context,
        .file_bytes = engine->file_bytes,
        .weight_bytes = backend.weight_bytes,
        .kv_bytes_per_token = (uint64_t)(c->n_layer * c->n_head_kv * c->head_dim) * 2 * 2,
        .load_ns = engine->load_ns,
        .n_thread = backend.n_thread,
    };
}
