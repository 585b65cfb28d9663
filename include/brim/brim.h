/* SPDX-License-Identifier: Apache-2.0
 * brim: load a model, keep a conversation's timeline, produce tokens.
 *
 *   brim_engine   a loaded model: weights, tokenizer, processors. Immutable after opening; any
 * number of sessions may share it. Calls that take a const engine are safe from any thread.
 *                 Evaluations of different sessions of one engine may come from different threads;
 *                 the engine runs them one after the other.
 *   brim_session  one mutable timeline of tokens with its key/value cache. One thread at a time.
 *
 * Every struct of options is filled by its _default function first; unknown futures stay zero.
 * Strings are UTF-8. Pointers returned as const are borrowed and live as long as their owner. */
#ifndef BRIM_BRIM_H
#define BRIM_BRIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"
#include "brim/version.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_engine brim_engine;
typedef struct brim_session brim_session;

/* ---- engine ---------------------------------------------------------------------------------- */

typedef enum brim_device { BRIM_DEVICE_CPU = 0, BRIM_DEVICE_CUDA = 1 } brim_device;

/* Called while a model loads: `done` of `total` bytes. */
typedef void brim_progress_fn(void *ctx, uint64_t done, uint64_t total);
/* One sentence about something suspicious that does not stop the load. */
typedef void brim_log_fn(void *ctx, const char *text);

typedef struct brim_engine_options {
    brim_device device;
    int n_thread;          /* 0: the processors this process may use */
    const char *cpu_tier;  /* NULL: best; else "c", "avx2", "avx512", "neon" */
    bool activations_int8; /* quantize activations per group of 32 (faster, less exact) */
    /* Rung of the kernel ladder, for benchmarks; each keeps what the one before brought. CPU:
     * "dense", "matvec", "tiled", "split-k" (the default, NULL). CUDA: "dense", "matvec", "fused",
     * "attention", "tiled", "split-k", "hopper" (the default). */
    const char *level;
    brim_progress_fn *progress;
    void *progress_ctx;
    brim_log_fn *warn;
    void *warn_ctx;
} brim_engine_options;

BRIM_API void brim_engine_options_default(brim_engine_options *options);

/* path: a Hugging Face directory or a .gguf file. On failure *out is NULL and nothing is held. */
BRIM_API BRIM_MUST_USE brim_status brim_engine_open(brim_engine **out, const char *path,
                                                    const brim_engine_options *options,
                                                    brim_error *err);
/* Frees the engine and sets *engine to NULL; all its sessions must be closed before. */
BRIM_API void brim_engine_close(brim_engine **engine);

typedef struct brim_model_info {
    const char *family;   /* "llama", "qwen2", "qwen3" */
    const char *format;   /* "gguf v3", "safetensors" */
    const char *cpu_tier; /* "" on a GPU */
    const char *device;   /* "cpu", "cuda" */
    const char *gpu;      /* the GPU's name; "" on the CPU */
    const char *level;    /* rung of the kernel ladder */
    int64_t n_layer, n_embd, n_ff, n_head, n_head_kv, head_dim, n_vocab, n_context;
    uint64_t file_bytes, weight_bytes; /* on disk; as repacked in memory */
    uint64_t kv_bytes_per_token;
    int64_t load_ns; /* wall time of brim_engine_open */
    int n_thread;
} brim_model_info;
BRIM_API void brim_engine_info(const brim_engine *engine, brim_model_info *out);

/* ---- text ------------------------------------------------------------------------------------ */

/* Ids of text[0, len) into ids[0, capacity); *n_ids receives the number needed, also when it
 * exceeds capacity (then BRIM_E_ARGUMENT and ids holds the first `capacity`). parse_special:
 * control tokens written in the text become control tokens; never set it for what a user typed. */
BRIM_API BRIM_MUST_USE brim_status brim_tokenize(const brim_engine *engine, const char *text,
                                                 size_t len, bool parse_special, int32_t *ids,
                                                 size_t capacity, size_t *n_ids, brim_error *err);
/* The bytes of one token (may be an incomplete UTF-8 sequence); *len receives their number. NULL
 * and 0 for an id that has no text. */
BRIM_API const char *brim_token_bytes(const brim_engine *engine, int32_t id, size_t *len);
/* The id a plain prompt starts with, or -1 when the model asks for none. Chat templates bring their
 * own. */
BRIM_API int32_t brim_token_bos(const brim_engine *engine);
/* Does this id end generation? */
BRIM_API bool brim_token_is_eos(const brim_engine *engine, int32_t id);
BRIM_API bool brim_token_is_special(const brim_engine *engine, int32_t id);

typedef struct brim_chat_turn {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
} brim_chat_turn;

typedef struct brim_chat_settings {
    bool add_generation_prompt; /* default true */
    bool enable_thinking;       /* default false; models with a thinking switch only */
    bool parse_specials;        /* default false: content never becomes control tokens */
    bool stable_history;        /* default false: as the template. True keeps Qwen3's empty think
                                   block before earlier answers, so that a turn's ids start with
                                   those of the turn before and sync reuses them */
} brim_chat_settings;
BRIM_API void brim_chat_settings_default(brim_chat_settings *settings);

/* Ids of a whole conversation by the model's template; sizes as in brim_tokenize. BRIM_E_MISSING
 * when the model has no template. */
BRIM_API BRIM_MUST_USE brim_status brim_chat_tokenize(const brim_engine *engine,
                                                      const brim_chat_turn *turns, size_t n_turn,
                                                      const brim_chat_settings *settings,
                                                      int32_t *ids, size_t capacity, size_t *n_ids,
                                                      brim_error *err);

/* ---- session --------------------------------------------------------------------------------- */

/* Return false to stop. */
typedef bool brim_continue_fn(void *ctx);

typedef struct brim_session_options {
    int64_t n_context;     /* 0: the model's, at most 4096 unless asked for more */
    int64_t prefill_chunk; /* rows evaluated at once; 0: 512, on a GPU 2048. Any size gives the same
                              text within the bound of docs/numerics.md */
    bool kv_f32;           /* keep keys and values in f32 instead of f16 */
    /* Asked between the chunks of an evaluation, on the calling thread; false ends it with
     * BRIM_E_CANCELLED: the timeline then holds the chunks done so far. NULL: never asked. */
    brim_continue_fn *keep_going;
    void *keep_going_ctx;
} brim_session_options;
BRIM_API void brim_session_options_default(brim_session_options *options);

BRIM_API BRIM_MUST_USE brim_status brim_session_open(brim_session **out, brim_engine *engine,
                                                     const brim_session_options *options,
                                                     brim_error *err);
BRIM_API void brim_session_close(brim_session **session);

/* Tokens evaluated so far, and how many fit. */
BRIM_API int64_t brim_session_length(const brim_session *session);
BRIM_API int64_t brim_session_capacity(const brim_session *session);

/* The tokens themselves, [length]: borrowed, valid until the session changes. */
BRIM_API const int32_t *brim_session_tokens(const brim_session *session);

/* Make the timeline equal to tokens[0, n): the longest common prefix is kept, the rest is dropped
 * and evaluated anew. *n_reused (may be NULL) receives the tokens kept. At least the last token is
 * always evaluated, so logits are those after tokens[n-1]. BRIM_E_CONTEXT when n exceeds the
 * capacity: the session is then unchanged. On any other failure the timeline holds the prefix that
 * succeeded. */
BRIM_API BRIM_MUST_USE brim_status brim_session_sync(brim_session *session, const int32_t *tokens,
                                                     int64_t n, int64_t *n_reused, brim_error *err);
/* Append n tokens. */
BRIM_API BRIM_MUST_USE brim_status brim_session_eval(brim_session *session, const int32_t *tokens,
                                                     int64_t n, brim_error *err);
/* Append n tokens and write the logits of every one to out[n][n_vocab] (perplexity, evaluation). */
BRIM_API BRIM_MUST_USE brim_status brim_session_eval_all(brim_session *session,
                                                         const int32_t *tokens, int64_t n,
                                                         float *out, brim_error *err);
/* Logits after the last token, [n_vocab]; NULL before any. Borrowed until the next evaluation. */
BRIM_API const float *brim_session_logits(const brim_session *session);
/* Forget everything after the first n tokens (n <= length). If that is anything, logits are gone
 * until the next evaluation. */
BRIM_API BRIM_MUST_USE brim_status brim_session_rewind(brim_session *session, int64_t n,
                                                       brim_error *err);

/* Snapshots: tokens, cache and logits, exact to the bit. Into memory: *n_bytes receives the size
 * needed; data may be NULL to ask for it. From memory or file: refused with BRIM_E_FORMAT if made
 * by another model, cache type or version, and with BRIM_E_CONTEXT if longer than the session's
 * context; the session is then unchanged. Files are written beside their name and renamed, so an
 * interrupted save leaves the old one; a name that is no regular file's is BRIM_E_IO. */
BRIM_API BRIM_MUST_USE brim_status brim_session_snapshot(const brim_session *session, void *data,
                                                         size_t capacity, size_t *n_bytes,
                                                         brim_error *err);
BRIM_API BRIM_MUST_USE brim_status brim_session_restore(brim_session *session, const void *data,
                                                        size_t n_bytes, brim_error *err);
BRIM_API BRIM_MUST_USE brim_status brim_session_save(const brim_session *session, const char *path,
                                                     brim_error *err);
BRIM_API BRIM_MUST_USE brim_status brim_session_load(brim_session *session, const char *path,
                                                     brim_error *err);

/* ---- sampling -------------------------------------------------------------------------------- */

/* Applied in this order: repetition penalty, temperature, top-k, top-p, min-p, draw. */
typedef struct brim_sampling {
    float temperature;     /* >= 0; below 1e-5 the largest logit is taken. NaN or negative: error */
    int32_t top_k;         /* 0 or less: off; more than the vocabulary: clamped */
    float top_p;           /* in (0, 1]; 0 keeps the best token, above 1: error */
    float min_p;           /* in [0, 1] */
    float repeat_penalty;  /* > 0; 1: off. Divides positive, multiplies negative logits of tokens in
                              the last repeat_window tokens */
    int32_t repeat_window; /* 0: off; -1: the whole timeline */
    uint64_t seed;
} brim_sampling;
BRIM_API void brim_sampling_default(brim_sampling *sampling); /* temperature 0: argmax */

typedef struct brim_sampler brim_sampler;
/* BRIM_E_RANGE names the parameter out of range. */
BRIM_API BRIM_MUST_USE brim_status brim_sampler_open(brim_sampler **out, const brim_engine *engine,
                                                     const brim_sampling *sampling,
                                                     brim_error *err);
BRIM_API void brim_sampler_close(brim_sampler **sampler);
/* The next token after the session's logits. Never one of the vocabulary's padding rows. Ties go to
 * the lowest id. BRIM_E_NOT_FINITE when the logits hold NaN. */
BRIM_API BRIM_MUST_USE brim_status brim_sampler_next(brim_sampler *sampler,
                                                     const brim_session *session, int32_t *id,
                                                     brim_error *err);

/* ---- generation ------------------------------------------------------------------------------ */

/* One piece of finished text: valid UTF-8, characters never split, nothing of a stop string. Return
 * false to stop. */
typedef bool brim_text_fn(void *ctx, const char *text, size_t len);

typedef enum brim_finish {
    BRIM_FINISH_EOS = 0,    /* an end token */
    BRIM_FINISH_LENGTH = 1, /* max_tokens, or the context is full */
    BRIM_FINISH_STOP = 2,   /* a stop string */
    BRIM_FINISH_CALLER = 3  /* the callback returned false */
} brim_finish;

typedef struct brim_generate_options {
    int64_t max_tokens;       /* < 0: until the context is full; 0: nothing */
    const char *const *stops; /* n_stop non-empty strings of valid UTF-8 */
    size_t n_stop;
    bool ignore_eos;
    brim_text_fn *on_text; /* may be NULL */
    void *on_text_ctx;
} brim_generate_options;
BRIM_API void brim_generate_options_default(brim_generate_options *options);

typedef struct brim_generate_result {
    brim_finish finish;
    int64_t n_generated;    /* tokens, without the end token */
    int64_t first_token_ns; /* from the call to the first token sampled */
    int64_t decode_ns;      /* from the first token to the last */
} brim_generate_result;

/* Sample and append until something ends it. The session must hold a prompt. Afterwards the
 * timeline holds every generated token, the end token excepted, and its logits: generation may go
 * on. Control tokens give no text. With a full context nothing is generated: BRIM_FINISH_LENGTH. No
 * memory is taken once the first token is sampled. */
BRIM_API BRIM_MUST_USE brim_status brim_generate(brim_session *session, brim_sampler *sampler,
                                                 const brim_generate_options *options,
                                                 brim_generate_result *result, brim_error *err);

#ifdef __cplusplus
}
#endif
#endif
