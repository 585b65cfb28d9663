/* SPDX-License-Identifier: Apache-2.0
 * The loop: sample, hand out finished text, evaluate. All memory is taken before the first token.
 */
#define _DEFAULT_SOURCE /* clock_gettime */
#include "run/engine.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "run/stop.h"

void brim_generate_options_default(brim_generate_options *options)
{
    *options = (brim_generate_options){.max_tokens = -1};
}

struct output {
    const brim_generate_options *options;
    struct brim_stop *stop;
    struct brim_utf8_stream utf8;
    char *utf8_buffer; /* [BRIM_UTF8_STREAM_ROOM(max_piece_bytes)] */
};

/* false: the callback asked to stop. */
static bool emit(const struct output *o, const char *text, size_t len)
{
    if (len == 0 || !o->options->on_text) return true;
    return o->options->on_text(o->options->on_text_ctx, text, len);
}

/* Text of one token through both hold-backs; true: generation ends, with *finish set. */
static bool put_token(struct output *o, const brim_engine *engine, int32_t id, brim_finish *finish)
{
    size_t len;
    const char *bytes = brim_token_bytes(engine, id, &len);
    if (!bytes || brim_token_is_special(engine, id)) return false;
    len = brim_utf8_stream_feed(&o->utf8, bytes, len, o->utf8_buffer);
    const char *text;
    size_t n_text;
    bool stopped = brim_stop_feed(o->stop, o->utf8_buffer, len, &text, &n_text);
    if (stopped) {
        *finish = BRIM_FINISH_STOP;
        (void)emit(o, text, n_text);
        return true;
    }
    if (emit(o, text, n_text)) return false;
    *finish = BRIM_FINISH_CALLER;
    return true;
}

/* The end for any reason but a stop string: what was held is text after all, unless the flushed
 * bytes complete a stop. */
static void put_end(struct output *o, brim_finish *finish)
{
    const char *text;
    size_t n_text, len = brim_utf8_stream_flush(&o->utf8, o->utf8_buffer);
    if (brim_stop_feed(o->stop, o->utf8_buffer, len, &text, &n_text)) {
        *finish = BRIM_FINISH_STOP;
        (void)emit(o, text, n_text);
        return;
    }
    if (!emit(o, text, n_text)) return;
    brim_stop_flush(o->stop, &text, &n_text);
    (void)emit(o, text, n_text);
}

static brim_status run(brim_session *session, brim_sampler *sampler, struct output *o,
                       brim_generate_result *result, brim_error *err)
{
    const brim_generate_options *options = o->options;
    int64_t start = brim_clock_ns(), first = 0, last = 0;
    bool ended = false;
    result->finish = BRIM_FINISH_LENGTH;
    while (!ended && (options->max_tokens < 0 || result->n_generated < options->max_tokens) &&
           session->n_token < session->state.n_position) {
        int32_t id;
        BRIM_TRY(brim_sampler_next(sampler, session, &id, err));
        last = brim_clock_ns();
        if (first == 0) first = last;
        result->first_token_ns = first - start;
        result->decode_ns = last - first;
        if (!options->ignore_eos && brim_token_is_eos(session->engine, id)) {
            result->finish = BRIM_FINISH_EOS;
            break;
        }
        result->n_generated++;
        ended = put_token(o, session->engine, id, &result->finish);
        BRIM_TRY(brim_session_eval(session, &id, 1, err));
    }
    if (result->finish == BRIM_FINISH_EOS || result->finish == BRIM_FINISH_LENGTH)
        put_end(o, &result->finish);
    return BRIM_OK;
}

brim_status brim_generate(brim_session *session, brim_sampler *sampler,
                          const brim_generate_options *options, brim_generate_result *result,
                          brim_error *err)
{
    BRIM_REQUIRE(err, session && sampler, BRIM_E_ARGUMENT, "session or sampler is null");
    brim_generate_options defaults;
    brim_generate_options_default(&defaults);
    if (!options) options = &defaults;
    brim_generate_result unwanted;
    if (!result) result = &unwanted;
    *result = (brim_generate_result){.finish = BRIM_FINISH_LENGTH};
    size_t piece = BRIM_UTF8_STREAM_ROOM(session->engine->max_piece_bytes);
    struct output o = {.options = options};
    BRIM_TRY(brim_stop_create(&o.stop, options->stops, options->n_stop, piece, err));
    o.utf8_buffer = brim_alloc(piece);
    brim_status status = o.utf8_buffer
                             ? run(session, sampler, &o, result, err)
                             : brim_fail(err, BRIM_E_NO_MEMORY, "generate: out of memory for text");
    brim_free(o.utf8_buffer);
    brim_stop_free(&o.stop);
    return status;
}
