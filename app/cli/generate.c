/* SPDX-License-Identifier: Apache-2.0
 * See generate.h. */
#include "generate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- options --------------------------------------------------------------------------------- */

static struct {
    double temperature, top_p, min_p, repeat_penalty;
    int64_t top_k, repeat_window;
    uint64_t seed;
} sampling = {.temperature = 0, .top_p = 1, .min_p = 0, .repeat_penalty = 1, .repeat_window = 64};

static struct {
    int64_t max_tokens, n_context, prefill_chunk;
    struct args_list stops;
    const char *kv;
    const char *system;
    bool ignore_eos, parse_special, think;
} reply_args = {.max_tokens = -1};

struct args_group gen_sampling_group(void)
{
    static const struct args_option options[] = {
        {"temp", 0, ARGS_REAL, &sampling.temperature, "T",
         "temperature; 0 takes the likeliest token (default: 0)", 0, 1e6},
        {"top-k", 0, ARGS_INT, &sampling.top_k, "N",
         "only the N likeliest tokens; 0: off (default: 0)", -1, 2147483647},
        {"top-p", 0, ARGS_REAL, &sampling.top_p, "P",
         "only the likeliest tokens that together reach P (default: 1)", 0, 1},
        {"min-p", 0, ARGS_REAL, &sampling.min_p, "P",
         "only tokens at least P times as likely as the likeliest\n(default: 0)", 0, 1},
        {"repeat-penalty", 0, ARGS_REAL, &sampling.repeat_penalty, "R",
         "weaken tokens seen lately; 1: off (default: 1)", 1e-6, 1e6},
        {"repeat-last-n", 0, ARGS_INT, &sampling.repeat_window, "N",
         "how far back that looks; -1: everything (default: 64)", -1, 2147483647},
        {"seed", 's', ARGS_SEED, &sampling.seed, "N",
         "the same seed gives the same text (default: 0)", 0, 0},
    };
    return (struct args_group){"Sampling", options, sizeof(options) / sizeof(*options)};
}

struct args_group gen_reply_group(void)
{
    static const struct args_option options[] = {
        {"max-tokens", 'n', ARGS_INT, &reply_args.max_tokens, "N",
         "end after N tokens; -1: when the context is full (default: -1)", -1, 2147483647},
        {"stop", 0, ARGS_LIST, &reply_args.stops, "TEXT", "end before this text; may be repeated",
         0, 0},
        {"ignore-eos", 0, ARGS_FLAG, &reply_args.ignore_eos, NULL, "go on after an end token", 0,
         0},
        {"ctx", 'c', ARGS_INT, &reply_args.n_context, "N",
         "tokens the context holds (default: the model's, at most 4096)", 1, 16777216},
        {"prefill-chunk", 0, ARGS_INT, &reply_args.prefill_chunk, "N",
         "prompt tokens evaluated at once (default: 512, on cuda 2048)", 1, 65536},
        {"kv", 0, ARGS_CHOICE, &reply_args.kv, "f16|f32",
         "element type of the key/value cache (default: f16)", 0, 0},
        {"parse-special", 0, ARGS_FLAG, &reply_args.parse_special, NULL,
         "control tokens written in the text act as such;\nnot for text of strangers", 0, 0},
        {"system", 0, ARGS_TEXT, &reply_args.system, "TEXT", "system message", 0, 0},
        {"think", 0, ARGS_FLAG, &reply_args.think, NULL, "let a model with a thinking mode use it",
         0, 0},
        {"no-think", 0, ARGS_OFF, &reply_args.think, NULL, "do not (default)", 0, 0},
    };
    return (struct args_group){"Reply", options, sizeof(options) / sizeof(*options)};
}

const char *gen_system(void)
{
    return reply_args.system;
}

bool gen_parse_special(void)
{
    return reply_args.parse_special;
}

void gen_free(void)
{
    args_list_free(&reply_args.stops);
}

bool gen_check(void)
{
    for (size_t i = 0; i < reply_args.stops.n; i++) {
        if (reply_args.stops.items[i][0]) continue;
        cli_error("--stop: the text is empty");
        return false;
    }
    return true;
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool not_interrupted(void *ctx)
{
    (void)ctx;
    return !cli_interrupted();
}

brim_session *gen_open_session(brim_engine *engine)
{
    brim_session_options options;
    brim_session_options_default(&options);
    if (reply_args.n_context) options.n_context = reply_args.n_context;
    if (reply_args.prefill_chunk) options.prefill_chunk = reply_args.prefill_chunk;
    options.kv_f32 = reply_args.kv && !strcmp(reply_args.kv, "f32");
    options.keep_going = not_interrupted;
    brim_session *session = NULL;
    brim_error err = {0};
    if (brim_session_open(&session, engine, &options, &err) != BRIM_OK) cli_fail(&err);
    return session;
}

brim_sampler *gen_open_sampler(const brim_engine *engine)
{
    brim_sampling options;
    brim_sampling_default(&options);
    options.temperature = (float)sampling.temperature;
    options.top_k = (int32_t)sampling.top_k;
    options.top_p = (float)sampling.top_p;
    options.min_p = (float)sampling.min_p;
    options.repeat_penalty = (float)sampling.repeat_penalty;
    options.repeat_window = (int32_t)sampling.repeat_window;
    options.seed = sampling.seed;
    brim_sampler *sampler = NULL;
    brim_error err = {0};
    if (brim_sampler_open(&sampler, engine, &options, &err) != BRIM_OK) cli_fail(&err);
    return sampler;
}

int32_t *gen_chat_ids(const brim_engine *engine, const brim_chat_turn *turns, size_t n_turn,
                      size_t *n)
{
    brim_chat_settings settings;
    brim_chat_settings_default(&settings);
    settings.enable_thinking = reply_args.think;
    settings.parse_specials = reply_args.parse_special;
    size_t capacity = 1024;
    for (;;) {
        int32_t *ids = malloc(capacity * sizeof(*ids));
        if (!ids) {
            cli_out_of_memory();
            return NULL;
        }
        brim_error err = {0};
        brim_status status =
            brim_chat_tokenize(engine, turns, n_turn, &settings, ids, capacity, n, &err);
        if (status == BRIM_OK) return ids;
        free(ids);
        if (status != BRIM_E_ARGUMENT || *n <= capacity) {
            cli_fail(&err);
            size_t n_none;
            if (status == BRIM_E_MISSING && /* the template, not the tokenizer */
                brim_tokenize(engine, "", 0, false, NULL, 0, &n_none, NULL) == BRIM_OK)
                cli_error("'brim run --raw' works without a chat template");
            return NULL;
        }
        capacity = *n;
    }
}

/* ---- one reply ------------------------------------------------------------------------------- */

bool gen_text_add(struct gen_text *text, const char *data, size_t len)
{
    if (len >= text->capacity - text->len) {
        size_t capacity = 2 * text->capacity + len + 256;
        char *larger = realloc(text->data, capacity);
        if (!larger) return false;
        text->data = larger;
        text->capacity = capacity;
    }
    memcpy(text->data + text->len, data, len);
    text->len += len;
    text->data[text->len] = 0;
    return true;
}

struct sink {
    bool stream;
    struct gen_text *reply;
    int write_errno; /* 0: everything was written */
    bool no_memory;
};

static bool on_text(void *ctx, const char *text, size_t len)
{
    struct sink *sink = ctx;
    if (sink->stream) {
        errno = 0;
        if (fwrite(text, 1, len, stdout) != len || fflush(stdout)) {
            sink->write_errno = errno ? errno : EIO;
            return false;
        }
    }
    if (sink->reply && !gen_text_add(sink->reply, text, len)) {
        sink->no_memory = true;
        return false;
    }
    return !cli_interrupted();
}

int gen_reply(brim_session *session, brim_sampler *sampler, const int32_t *ids, size_t n,
              bool stream, struct gen_text *reply, struct gen_figures *figures)
{
    *figures = (struct gen_figures){.finish = BRIM_FINISH_CALLER};
    brim_error err = {0};
    int64_t start = cli_now_ns();
    brim_status status = brim_session_sync(session, ids, (int64_t)n, &figures->n_reused, &err);
    if (status == BRIM_E_CONTEXT) {
        cli_error("%s (see --ctx)", err.text);
        return CLI_FAILED;
    }
    if (status == BRIM_E_CANCELLED) return CLI_OK; /* Ctrl-C: no reply, as below */
    if (status != BRIM_OK) return cli_fail(&err);
    figures->prompt_ns = cli_now_ns() - start;
    figures->n_prompt = (int64_t)n - figures->n_reused;
    if (cli_interrupted()) return CLI_OK;

    struct sink sink = {.stream = stream, .reply = reply};
    brim_generate_options options;
    brim_generate_options_default(&options);
    options.max_tokens = reply_args.max_tokens;
    options.stops = reply_args.stops.items;
    options.n_stop = reply_args.stops.n;
    options.ignore_eos = reply_args.ignore_eos;
    options.on_text = on_text;
    options.on_text_ctx = &sink;
    brim_generate_result result = {0};
    if (brim_generate(session, sampler, &options, &result, &err) != BRIM_OK) return cli_fail(&err);
    figures->first_token_ns = figures->prompt_ns + result.first_token_ns;
    figures->n_generated = result.n_generated;
    figures->decode_ns = result.decode_ns;
    figures->finish = result.finish;
    if (result.finish == BRIM_FINISH_LENGTH && !result.n_generated && reply_args.max_tokens != 0)
        cli_warning("the prompt fills the context: there is no room for a reply (see --ctx)");
    if (sink.no_memory) return cli_out_of_memory();
    if (sink.write_errno) {
        if (sink.write_errno != EPIPE)
            cli_error("cannot write standard output: %s", strerror(sink.write_errno));
        return CLI_FAILED;
    }
    return CLI_OK;
}

/* ---- figures --------------------------------------------------------------------------------- */

const char *gen_finish_name(brim_finish finish)
{
    switch (finish) {
    case BRIM_FINISH_EOS:
        return "end token";
    case BRIM_FINISH_LENGTH:
        return "length";
    case BRIM_FINISH_STOP:
        return "stop text";
    case BRIM_FINISH_CALLER:
        return "interrupted";
    }
    return "unknown";
}

double gen_rate(int64_t n, int64_t ns)
{
    return ns > 0 ? (double)n * 1e9 / (double)ns : 0;
}

double gen_decode_rate(const struct gen_figures *figures)
{
    return figures->n_generated > 1 ? gen_rate(figures->n_generated - 1, figures->decode_ns) : 0;
}
