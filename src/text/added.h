/* SPDX-License-Identifier: Apache-2.0
 * Added tokens: strings cut out of the text before normalization and BPE. The leftmost match wins
 * and among those the longest, as in Hugging Face's tokenizers. Immutable once built. */
#ifndef BRIM_TEXT_ADDED_H
#define BRIM_TEXT_ADDED_H

#include "text/tokenizer.h"

struct brim_added_token {
    int32_t id;
    uint32_t len;
    bool special;        /* matched only where the caller allows control tokens */
    bool single_word;    /* only between characters that are not of words */
    bool lstrip, rstrip; /* swallow the white space before, after */
};

/* A trie whose nodes keep their children as a linked list: lists are short, tokens few. */
struct brim_added_node {
    int32_t child, sibling; /* -1: none */
    int32_t token;          /* index of the token that ends here, or -1 */
    uint8_t byte;
};
struct brim_added {
    struct brim_added_token *tokens;
    size_t n_token, token_capacity;
    struct brim_added_node *nodes;
    size_t n_node, node_capacity;
    int32_t first[256]; /* child of the root by byte, or -1 */
};

void brim_added_init(struct brim_added *added);
void brim_added_free(struct brim_added *added);
/* Add a token with non-empty `text`; BRIM_E_FORMAT when the text is there already. */
brim_status brim_added_insert(struct brim_added *added, const char *text,
                              const struct brim_added_token *token, brim_error *err);

/* One piece of text: a token, or the text between tokens (token == NULL, len > 0). */
typedef brim_status brim_added_fn(void *ctx, const struct brim_added_token *token, const char *text,
                                  size_t len, brim_error *err);
/* Cut text[0, len), well-formed UTF-8, in order. */
brim_status brim_added_split(const struct brim_added *added, bool parse_special, const char *text,
                             size_t len, brim_added_fn *fn, void *ctx, brim_error *err);

#endif
