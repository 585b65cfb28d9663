/* SPDX-License-Identifier: Apache-2.0
 * Byte-level BPE: text to ids and back. A tokenizer is immutable after creation and may be used by
 * several threads at once. */
#ifndef BRIM_TEXT_TOKENIZER_H
#define BRIM_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct brim_tokenizer;

/* From the bytes of a tokenizer.json (normalizer, pre-tokenizer, model and added tokens as given
 * there; what is not implemented is BRIM_E_UNSUPPORTED naming it). `path` is for error texts. */
brim_status brim_tokenizer_from_json(struct brim_tokenizer **out, const char *json, size_t n_bytes,
                                     const char *path, brim_error *err);

/* A counted string that borrows. */
struct brim_str {
    const char *data;
    size_t len;
};

/* The tables a GGUF file carries (tokenizer.ggml.*). Strings are copied. */
struct brim_vocab_tables {
    const char *pre; /* tokenizer.ggml.pre: "smollm", "qwen2", "llama-bpe", "gpt-2" */
    size_t n_token;
    const struct brim_str *tokens; /* in the byte-to-character alphabet of GPT-2 */
    const int32_t *types;          /* 1 normal, 3 control, 4 user defined, ...; NULL: all normal */
    size_t n_merge;
    const struct brim_str *merges; /* "left right" */
};
brim_status brim_tokenizer_from_tables(struct brim_tokenizer **out,
                                       const struct brim_vocab_tables *tables, const char *path,
                                       brim_error *err);
void brim_tokenizer_free(struct brim_tokenizer **tokenizer);

int32_t brim_tokenizer_n_vocab(const struct brim_tokenizer *tokenizer);
/* Id of an added (control or user-defined) token by its exact text, or -1. */
int32_t brim_tokenizer_added_id(const struct brim_tokenizer *tokenizer, const char *text);
bool brim_tokenizer_is_special(const struct brim_tokenizer *tokenizer, int32_t id);

/* Is the pre-tokenizer one of a model family brim was tested with? A file that brings another may
 * be right or may be an altered copy: worth a warning. */
bool brim_tokenizer_pattern_is_known(const struct brim_tokenizer *tokenizer);

/* A growing list of ids; start from {0}, release with brim_ids_free. */
struct brim_ids {
    int32_t *data;
    size_t n, capacity;
};
brim_status brim_ids_push(struct brim_ids *ids, int32_t id, brim_error *err);
void brim_ids_free(struct brim_ids *ids);

/* Append the ids of text[0, len). Invalid UTF-8 is read as U+FFFD, as many as the standard's
 * maximal subparts. With `parse_special` added special tokens inside the text become their ids;
 * without it they are ordinary characters (what a user typed never turns into a control token);
 * added tokens that are not special are always matched. On failure ids->n is what it was. */
brim_status brim_tokenizer_encode(const struct brim_tokenizer *tokenizer, const char *text,
                                  size_t len, bool parse_special, struct brim_ids *ids,
                                  brim_error *err);

/* The bytes of one token: a borrowed pointer, valid as long as the tokenizer. Special tokens give
 * their text. An id without a token (vocabulary padding) gives length 0. */
struct brim_str brim_tokenizer_piece(const struct brim_tokenizer *tokenizer, int32_t id);

/* Streaming decode: bytes of ids, with an incomplete UTF-8 tail held back until it completes or the
 * stream is flushed (then U+FFFD). */
struct brim_utf8_stream {
    uint8_t held[4];
    int n_held;
};
/* Feed bytes; writes at most BRIM_UTF8_STREAM_ROOM(len) bytes of valid UTF-8 to out, returns how
 * many: a byte that cannot be UTF-8 becomes the three of U+FFFD. */
#define BRIM_UTF8_STREAM_ROOM(len) (3 * ((size_t)(len) + 1))
size_t brim_utf8_stream_feed(struct brim_utf8_stream *stream, const char *bytes, size_t len,
                             char *out);
/* End of text: at most 3 bytes. */
size_t brim_utf8_stream_flush(struct brim_utf8_stream *stream, char *out);

#endif
