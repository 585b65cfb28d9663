/* SPDX-License-Identifier: Apache-2.0
 * Test helper: a vocabulary of the 256 bytes, a few merges and added tokens, as GGUF tables. */
#ifndef BRIM_TESTS_SMALL_VOCAB_H
#define BRIM_TESTS_SMALL_VOCAB_H

#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"
#include "text/utf8.h"

struct small_vocab {
    struct brim_vocab_tables tables;
    struct brim_str *tokens, *merges;
    int32_t *types;
    char *text; /* all strings */
    size_t n_text;
};

static inline struct brim_str small_text(struct small_vocab *v, const char *text, size_t len)
{
    struct brim_str s = {v->text + v->n_text, len};
    memcpy(v->text + v->n_text, text, len);
    v->n_text += len;
    return s;
}

/* One byte in GPT-2's alphabet. */
static inline size_t small_letter(int byte, char *out)
{
    bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    int c = byte;
    if (!printable)
        c = byte <= 0x20 ? 0x100 + byte : byte == 0xAD ? 0x143 : 0x100 + byte - 0x7F + 0x21;
    return (size_t)brim_utf8_encode((uint32_t)c, (uint8_t *)out);
}

/* merges: "left right", NULL-terminated; each makes a token. specials: control tokens. */
static inline void small_vocab_make(struct small_vocab *v, const char *pre,
                                    const char *const *merges, const char *const *specials,
                                    const char *const *users)
{
    memset(v, 0, sizeof *v);
    v->tokens = calloc(2048, sizeof *v->tokens);
    v->merges = calloc(1024, sizeof *v->merges);
    v->types = calloc(2048, sizeof *v->types);
    v->text = malloc(1 << 17);
    size_t n = 0;
    for (int byte = 0; byte < 256; byte++) {
        char letter[4];
        size_t len = small_letter(byte, letter);
        v->types[n] = 1;
        v->tokens[n++] = small_text(v, letter, len);
    }
    for (; merges && *merges; merges++) {
        const char *space = strchr(*merges, ' ');
        v->merges[v->tables.n_merge++] = small_text(v, *merges, strlen(*merges));
        size_t n_left = (size_t)(space - *merges);
        struct brim_str s = small_text(v, *merges, n_left);
        s.len += small_text(v, space + 1, strlen(space + 1)).len;
        v->types[n] = 1;
        v->tokens[n++] = s;
    }
    for (; specials && *specials; specials++) {
        v->types[n] = 3;
        v->tokens[n++] = small_text(v, *specials, strlen(*specials));
    }
    for (; users && *users; users++) {
        v->types[n] = 4;
        v->tokens[n++] = small_text(v, *users, strlen(*users));
    }
    v->tables.pre = pre;
    v->tables.n_token = n;
    v->tables.tokens = v->tokens;
    v->tables.types = v->types;
    v->tables.merges = v->merges;
}

static inline void small_vocab_free(struct small_vocab *v)
{
    free(v->tokens);
    free(v->merges);
    free(v->types);
    free(v->text);
}

#endif
