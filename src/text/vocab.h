/* SPDX-License-Identifier: Apache-2.0
 * The tokens of a vocabulary: their bytes by id, and ids by bytes. Normal tokens are stored decoded
 * from GPT-2's byte-to-character alphabet. Immutable once built. */
#ifndef BRIM_TEXT_VOCAB_H
#define BRIM_TEXT_VOCAB_H

#include "text/tokenizer.h"

enum { BRIM_VOCAB_MAX = 1 << 22 }; /* ids: far above any model, small enough to allocate */

enum brim_token_kind {
    BRIM_TOKEN_NONE = 0,    /* padding row: no text */
    BRIM_TOKEN_WORD = 1,    /* bytes BPE may produce; set as indexed */
    BRIM_TOKEN_RAW = 2,     /* text outside the byte alphabet: only decoded */
    BRIM_TOKEN_ADDED = 3,   /* matched before BPE */
    BRIM_TOKEN_SPECIAL = 4, /* added, and a control token */
};

struct brim_token {
    uint32_t at, len; /* in vocab->text */
    uint8_t kind;
    bool indexed; /* its bytes may come out of BPE: found by brim_vocab_find */
};

/* Filled with brim_vocab_set, then indexed once. */
struct brim_vocab {
    struct brim_token *tokens; /* [n_token] */
    int32_t n_token;           /* the highest id set, and one */
    int32_t token_capacity;
    char *text;
    size_t n_text, text_capacity;
    int32_t *slots; /* open addressing over indexed tokens, at most half full; -1: empty */
    uint64_t mask;
};

/* Make room; a guess is enough. */
brim_status brim_vocab_init(struct brim_vocab *vocab, size_t n_token, size_t text_bytes,
                            brim_error *err);
void brim_vocab_free(struct brim_vocab *vocab);

/* Give id its text, copied; ids between become NONE. `path` is for error texts. BRIM_E_FORMAT when
 * id is out of range or has a text. */
brim_status brim_vocab_set(struct brim_vocab *vocab, int64_t id, const char *text, size_t len,
                           enum brim_token_kind kind, const char *path, brim_error *err);
/* Build the index of all tokens marked `indexed`; BRIM_E_FORMAT when two have the same bytes. */
brim_status brim_vocab_index(struct brim_vocab *vocab, const char *path, brim_error *err);
/* Id of the indexed token with exactly these bytes, or -1. */
int32_t brim_vocab_find(const struct brim_vocab *vocab, const char *bytes, size_t len);
/* The same, looking at `guess` first: merges make tokens mostly in the order of their ids. */
int32_t brim_vocab_find_near(const struct brim_vocab *vocab, int32_t guess, const char *bytes,
                             size_t len);
struct brim_str brim_vocab_text(const struct brim_vocab *vocab, int32_t id);

/* Decode text in GPT-2's alphabet to bytes; out has room for len. False when a character is not in
 * the alphabet or the text is not UTF-8. */
bool brim_alphabet_decode(const char *text, size_t len, char *out, size_t *out_len);

#endif
