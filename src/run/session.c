/* SPDX-License-Identifier: Apache-2.0
 * One timeline: tokens, their keys and values, and the logits after the last of them. A call either
 * refuses before anything changes (arguments, context) or leaves the prefix it has evaluated. */
#include "run/engine.h"

#include <inttypes.h>
#include <string.h>

#include "base/mem.h"

enum {
    DEFAULT_CONTEXT = 4096,
    /* Rows whose logits eval_all holds at once: 16 of 151,936 are 9.7 MB. */
    HEAD_ROWS = 16
};

void brim_session_options_default(brim_session_options *options)
{
    *options = (brim_session_options){0};
}

brim_status brim_session_open(brim_session **out, brim_engine *engine,
                              const brim_session_options *options, brim_error *err)
{
    BRIM_REQUIRE(err, out, BRIM_E_ARGUMENT, "session: out is null");
    *out = NULL;
    BRIM_REQUIRE(err, engine, BRIM_E_ARGUMENT, "session: engine is null");
    brim_session_options defaults;
    brim_session_options_default(&defaults);
    if (!options) options = &defaults;
    int64_t n_model = engine->model->config.n_context;
    int64_t n_context = options->n_context;
    if (n_context == 0) n_context = n_model < DEFAULT_CONTEXT ? n_model : DEFAULT_CONTEXT;
    BRIM_REQUIRE(err, n_context > 0 && n_context <= n_model, BRIM_E_RANGE,
                 "context: %" PRId64 " is outside 1..%" PRId64 ", the model's context", n_context,
                 n_model);
    BRIM_REQUIRE(err, options->prefill_chunk >= 0, BRIM_E_RANGE,
                 "prefill chunk: %" PRId64 " is negative", options->prefill_chunk);
    struct brim_backend_info backend;
    engine->backend->ops->info(engine->backend, &backend);
    int64_t chunk = options->prefill_chunk ? options->prefill_chunk : backend.step_rows;
    if (chunk > n_context) chunk = n_context;

    brim_session *session = brim_calloc(1, sizeof *session);
    BRIM_REQUIRE(err, session, BRIM_E_NO_MEMORY, "session: out of memory");
    session->engine = engine;
    session->keep_going = options->keep_going;
    session->keep_going_ctx = options->keep_going_ctx;
    session->tokens = brim_alloc((size_t)n_context * sizeof *session->tokens);
    brim_status status =
        session->tokens ? BRIM_OK
                        : brim_fail(err, BRIM_E_NO_MEMORY, "session: out of memory for its tokens");
    if (status == BRIM_OK) {
        pthread_mutex_lock(&engine->lock);
        status = brim_state_create(&session->state, engine->model, n_context, chunk,
                                   options->kv_f32 ? BRIM_DTYPE_F32 : BRIM_DTYPE_F16, err);
        pthread_mutex_unlock(&engine->lock);
    }
    if (status != BRIM_OK) brim_session_close(&session);
    *out = session;
    return status;
}

void brim_session_close(brim_session **session_ptr)
{
    if (!session_ptr || !*session_ptr) return;
    brim_session *session = *session_ptr;
    brim_engine *engine = session->engine;
    pthread_mutex_lock(&engine->lock);
    engine->backend->ops->rows_free(engine->backend, &session->all_logits);
    brim_state_free(&session->state, engine->model);
    pthread_mutex_unlock(&engine->lock);
    brim_free(session->tokens);
    brim_free(session);
    *session_ptr = NULL;
}

int64_t brim_session_length(const brim_session *session)
{
    return session->n_token;
}

int64_t brim_session_capacity(const brim_session *session)
{
    return session->state.n_position;
}

const int32_t *brim_session_tokens(const brim_session *session)
{
    return session->tokens;
}

brim_status brim_session_fetch_logits(const brim_session *session, const float **out,
                                      brim_error *err)
{
    *out = session->logits;
    if (!session->has_logits || session->logits) return BRIM_OK;
    const struct brim_state *state = &session->state;
    *out = session->engine->backend->ops->rows_read(state->step, state->logits, err);
    if (!*out) return BRIM_E_DEVICE;
    /* What the session knows does not change: it only need not be asked for again. */
    ((brim_session *)(uintptr_t)session)->logits = *out;
    return BRIM_OK;
}

const float *brim_session_logits(const brim_session *session)
{
    const float *logits;
    return brim_session_fetch_logits(session, &logits, NULL) == BRIM_OK ? logits : NULL;
}

static void drop_logits(brim_session *session)
{
    session->has_logits = false;
    session->logits = NULL;
}

static brim_status check_tokens(const brim_session *session, const int32_t *tokens, int64_t n,
                                brim_error *err)
{
    BRIM_REQUIRE(err, n >= 0 && (tokens || n == 0), BRIM_E_ARGUMENT,
                 "tokens: %" PRId64 " of them, or a null pointer", n);
    for (int64_t i = 0; i < n; i++)
        BRIM_REQUIRE(err, brim_engine_id_ok(session->engine, tokens[i]), BRIM_E_RANGE,
                     "token %" PRId64 ": id %" PRId32 " is outside the vocabulary of %" PRId64, i,
                     tokens[i], session->engine->model->config.n_vocab);
    return BRIM_OK;
}

static brim_status check_room(const brim_session *session, int64_t n_total, brim_error *err)
{
    BRIM_REQUIRE(err, n_total <= session->state.n_position, BRIM_E_CONTEXT,
                 "%" PRId64 " tokens do not fit the context of %" PRId64, n_total,
                 session->state.n_position);
    return BRIM_OK;
}

/* Between the chunks of an evaluation of n tokens, of which `done` are done. */
static brim_status check_cancelled(const brim_session *session, int64_t done, int64_t n,
                                   brim_error *err)
{
    if (!session->keep_going || session->keep_going(session->keep_going_ctx)) return BRIM_OK;
    return brim_fail(err, BRIM_E_CANCELLED,
                     "evaluation stopped by the caller after %" PRId64 " of %" PRId64 " tokens",
                     done, n);
}

/* Evaluate the next rows of the timeline; the session's lock is held. */
static brim_status forward(brim_session *session, const int32_t *tokens, int64_t n,
                           enum brim_want want, brim_error *err)
{
    drop_logits(session);
    BRIM_TRY(brim_model_forward(session->engine->model, &session->state, tokens, n,
                                session->n_token, want, err));
    for (int64_t i = 0; i < n; i++) session->tokens[session->n_token + i] = tokens[i];
    session->n_token += n;
    return BRIM_OK;
}

static brim_status eval_chunks(brim_session *session, const int32_t *tokens, int64_t n,
                               brim_error *err)
{
    const struct brim_state *state = &session->state;
    for (int64_t done = 0; done < n;) {
        int64_t n_row = n - done < state->n_row_max ? n - done : state->n_row_max;
        if (done > 0) BRIM_TRY(check_cancelled(session, done, n, err));
        BRIM_TRY(forward(session, tokens + done, n_row,
                         done + n_row == n ? BRIM_WANT_LAST : BRIM_WANT_NOTHING, err));
        done += n_row;
    }
    BRIM_TRY(session->engine->backend->ops->step_wait(state->step, err));
    session->has_logits = true;
    return BRIM_OK;
}

/* A chunk that was begun is in the timeline, so its keys and values must be there when the call
 * returns, also when it was stopped or failed after that. */
static void settle(brim_session *session, brim_status status)
{
    if (status != BRIM_OK)
        (void)session->engine->backend->ops->step_wait(session->state.step, NULL);
}

/* Arguments are checked; n > 0. */
static brim_status eval_locked(brim_session *session, const int32_t *tokens, int64_t n,
                               brim_error *err)
{
    pthread_mutex_lock(&session->engine->lock);
    brim_status status = eval_chunks(session, tokens, n, err);
    settle(session, status);
    pthread_mutex_unlock(&session->engine->lock);
    return status;
}

brim_status brim_session_eval(brim_session *session, const int32_t *tokens, int64_t n,
                              brim_error *err)
{
    BRIM_REQUIRE(err, session, BRIM_E_ARGUMENT, "session is null");
    BRIM_TRY(check_tokens(session, tokens, n, err));
    BRIM_TRY(check_room(session, session->n_token + n, err));
    return n == 0 ? BRIM_OK : eval_locked(session, tokens, n, err);
}

brim_status brim_session_sync(brim_session *session, const int32_t *tokens, int64_t n,
                              int64_t *n_reused, brim_error *err)
{
    BRIM_REQUIRE(err, session, BRIM_E_ARGUMENT, "session is null");
    BRIM_TRY(check_tokens(session, tokens, n, err));
    BRIM_TRY(check_room(session, n, err));
    int64_t n_same = 0;
    while (n_same < session->n_token && n_same < n - 1 && session->tokens[n_same] == tokens[n_same])
        n_same++;
    if (n_reused) *n_reused = n_same;
    session->n_token = n_same;
    drop_logits(session);
    return n == 0 ? BRIM_OK : eval_locked(session, tokens + n_same, n - n_same, err);
}

static brim_status eval_all_locked(brim_session *session, const int32_t *tokens, int64_t n,
                                   float *out, brim_error *err)
{
    const struct brim_model *model = session->engine->model;
    struct brim_backend *backend = session->engine->backend;
    struct brim_state *state = &session->state;
    int64_t n_vocab = model->config.n_vocab;
    if (!session->all_logits)
        BRIM_TRY(backend->ops->rows_create(backend, &session->all_logits, HEAD_ROWS, n_vocab, err));
    for (int64_t done = 0; done < n;) {
        int64_t n_row = n - done < state->n_row_max ? n - done : state->n_row_max;
        if (done > 0) BRIM_TRY(check_cancelled(session, done, n, err));
        BRIM_TRY(forward(session, tokens + done, n_row, BRIM_WANT_ROWS, err));
        for (int64_t first = 0; first < n_row; first += HEAD_ROWS) {
            int64_t n_head = n_row - first < HEAD_ROWS ? n_row - first : HEAD_ROWS;
            BRIM_TRY(brim_model_head(model, state, first, n_head, session->all_logits, err));
            const float *logits = backend->ops->rows_read(state->step, session->all_logits, err);
            if (!logits) return BRIM_E_DEVICE;
            float *to = out + (done + first) * n_vocab;
            memcpy(to, logits, (size_t)(n_head * n_vocab) * sizeof *to);
        }
        done += n_row;
        if (done == n) BRIM_TRY(brim_model_head(model, state, n_row - 1, 1, state->logits, err));
    }
    BRIM_TRY(backend->ops->step_wait(state->step, err));
    session->has_logits = true;
    return BRIM_OK;
}

brim_status brim_session_eval_all(brim_session *session, const int32_t *tokens, int64_t n,
                                  float *out, brim_error *err)
{
    BRIM_REQUIRE(err, session && (out || n == 0), BRIM_E_ARGUMENT, "session or out is null");
    BRIM_TRY(check_tokens(session, tokens, n, err));
    BRIM_TRY(check_room(session, session->n_token + n, err));
    if (n == 0) return BRIM_OK;
    pthread_mutex_lock(&session->engine->lock);
    brim_status status = eval_all_locked(session, tokens, n, out, err);
    settle(session, status);
    pthread_mutex_unlock(&session->engine->lock);
    return status;
}

brim_status brim_session_rewind(brim_session *session, int64_t n, brim_error *err)
{
    BRIM_REQUIRE(err, session, BRIM_E_ARGUMENT, "session is null");
    BRIM_REQUIRE(err, n >= 0 && n <= session->n_token, BRIM_E_RANGE,
                 "rewind: %" PRId64 " is outside 0..%" PRId64 ", the tokens evaluated", n,
                 session->n_token);
    if (n == session->n_token) return BRIM_OK;
    session->n_token = n;
    drop_logits(session);
    return BRIM_OK;
}
