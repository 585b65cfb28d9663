/* SPDX-License-Identifier: Apache-2.0
 * The structs behind brim.h, shared by the files of src/run. */
#ifndef BRIM_RUN_ENGINE_H
#define BRIM_RUN_ENGINE_H

#include <pthread.h>

#include "brim/brim.h"

#include "base/status.h"
#include "load/checkpoint.h"
#include "model/model.h"
#include "text/chat.h"
#include "text/tokenizer.h"

struct brim_engine {
    struct brim_backend *backend;
    struct brim_model *model;
    struct brim_tokenizer *tokenizer; /* NULL: the checkpoint has none, the engine runs on ids */
    enum brim_chat_family chat_family;
    brim_error chat_error; /* status BRIM_OK when chat_family is valid */
    /* Rows of the vocabulary that have a token, ascending; the others are never sampled. */
    struct brim_id_range *sampled;
    size_t n_sampled;
    size_t max_piece_bytes; /* longest token */
    char format[24];
    uint64_t file_bytes;
    int64_t load_ns;
    pthread_mutex_t lock; /* one evaluation at a time: the worker threads are shared */
};

struct brim_session {
    brim_engine *engine;
    struct brim_state state;
    int32_t *tokens; /* [state.n_position] */
    int64_t n_token;
    bool has_logits;              /* after the last token */
    const float *logits;          /* them on the host, once asked for; or NULL */
    struct brim_rows *all_logits; /* for eval_all, made on its first call */
    brim_continue_fn *keep_going; /* may be NULL */
    void *keep_going_ctx;
};

/* The logits after the last token on the host; *out is NULL when there are none. */
brim_status brim_session_fetch_logits(const brim_session *session, const float **out,
                                      brim_error *err);

/* Is `id` a row of the vocabulary? */
static inline bool brim_engine_id_ok(const brim_engine *engine, int32_t id)
{
    return id >= 0 && id < engine->model->config.n_vocab;
}

#endif
