/* SPDX-License-Identifier: Apache-2.0
 * Token texts and their index; the byte alphabet. */
#include "text/vocab.h"

#include <string.h>

#include "base/mem.h"

brim_status brim_vocab_init(struct brim_vocab *vocab, size_t n_token, size_t text_bytes,
                            brim_error *err)
{
    if (n_token > BRIM_VOCAB_MAX) n_token = BRIM_VOCAB_MAX;
    vocab->tokens = brim_calloc(n_token, sizeof *vocab->tokens);
    vocab->text = brim_alloc(text_bytes);
    BRIM_REQUIRE(err, vocab->tokens && vocab->text, BRIM_E_NO_MEMORY,
                 "no memory for a vocabulary of %zu tokens", n_token);
    vocab->token_capacity = (int32_t)n_token;
    vocab->text_capacity = text_bytes;
    return BRIM_OK;
}

void brim_vocab_free(struct brim_vocab *vocab)
{
    brim_free(vocab->tokens);
    brim_free(vocab->slots);
    brim_free(vocab->text);
    *vocab = (struct brim_vocab){0};
}

static brim_status grow_tokens(struct brim_vocab *vocab, int32_t n_token, brim_error *err)
{
    if (n_token > vocab->token_capacity) {
        size_t capacity = (size_t)n_token * 2, before = (size_t)vocab->token_capacity;
        struct brim_token *grown =
            brim_realloc(vocab->tokens, before * sizeof *grown, capacity * sizeof *grown);
        BRIM_REQUIRE(err, grown, BRIM_E_NO_MEMORY, "no memory for a vocabulary of %d tokens",
                     (int)n_token);
        memset(grown + before, 0, (capacity - before) * sizeof *grown);
        vocab->tokens = grown;
        vocab->token_capacity = (int32_t)capacity;
    }
    if (n_token > vocab->n_token) vocab->n_token = n_token;
    return BRIM_OK;
}

brim_status brim_vocab_set(struct brim_vocab *vocab, int64_t id, const char *text, size_t len,
                           enum brim_token_kind kind, const char *path, brim_error *err)
{
    BRIM_REQUIRE(err, id >= 0 && id < BRIM_VOCAB_MAX, BRIM_E_FORMAT,
                 "%s: token id %lld is out of range", path, (long long)id);
    BRIM_TRY(grow_tokens(vocab, (int32_t)id + 1, err));
    BRIM_REQUIRE(err, vocab->tokens[id].kind == BRIM_TOKEN_NONE, BRIM_E_FORMAT,
                 "%s: two tokens have the id %lld", path, (long long)id);
    if (len > vocab->text_capacity - vocab->n_text) {
        BRIM_REQUIRE(err, len < UINT32_MAX / 4 && vocab->n_text < UINT32_MAX / 4,
                     BRIM_E_UNSUPPORTED, "%s: a vocabulary with more than 1 GiB of text", path);
        size_t capacity = (vocab->n_text + len) * 2;
        char *grown = brim_realloc(vocab->text, vocab->n_text, capacity);
        BRIM_REQUIRE(err, grown, BRIM_E_NO_MEMORY, "no memory for a vocabulary");
        vocab->text = grown;
        vocab->text_capacity = capacity;
    }
    if (len) memcpy(vocab->text + vocab->n_text, text, len);
    vocab->tokens[id] = (struct brim_token){(uint32_t)vocab->n_text, (uint32_t)len, (uint8_t)kind,
                                            kind == BRIM_TOKEN_WORD};
    vocab->n_text += len;
    return BRIM_OK;
}

static uint64_t hash_of(const char *bytes, size_t len)
{
    uint64_t hash = len * 0x9E3779B97F4A7C15u, word;
    for (; len >= 8; bytes += 8, len -= 8) {
        memcpy(&word, bytes, 8);
        hash = (hash ^ word) * 0xBF58476D1CE4E5B9u;
        hash ^= hash >> 29;
    }
    word = 0;
    memcpy(&word, bytes, len);
    hash = (hash ^ word) * 0x94D049BB133111EBu;
    return hash ^ hash >> 32;
}

/* The slot that holds these bytes, or the empty one where they would go. */
static int32_t *slot_of(const struct brim_vocab *vocab, const char *bytes, size_t len)
{
    for (uint64_t at = hash_of(bytes, len) & vocab->mask;; at = (at + 1) & vocab->mask) {
        int32_t id = vocab->slots[at];
        if (id < 0) return &vocab->slots[at];
        const struct brim_token *token = &vocab->tokens[id];
        if (token->len == len && !memcmp(vocab->text + token->at, bytes, len))
            return &vocab->slots[at];
    }
}

brim_status brim_vocab_index(struct brim_vocab *vocab, const char *path, brim_error *err)
{
    uint64_t n_slot = 16;
    while (n_slot < (uint64_t)vocab->n_token * 2) n_slot *= 2;
    vocab->slots = brim_alloc(n_slot * sizeof *vocab->slots);
    BRIM_REQUIRE(err, vocab->slots, BRIM_E_NO_MEMORY, "no memory for a vocabulary of %d tokens",
                 (int)vocab->n_token);
    memset(vocab->slots, 0xFF, n_slot * sizeof *vocab->slots);
    vocab->mask = n_slot - 1;
    for (int32_t id = 0; id < vocab->n_token; id++) {
        const struct brim_token *token = &vocab->tokens[id];
        if (!token->indexed) continue;
        int32_t *slot = slot_of(vocab, vocab->text + token->at, token->len);
        BRIM_REQUIRE(err, *slot < 0, BRIM_E_FORMAT, "%s: tokens %d and %d have the same text", path,
                     (int)*slot, (int)id);
        *slot = id;
    }
    return BRIM_OK;
}

int32_t brim_vocab_find(const struct brim_vocab *vocab, const char *bytes, size_t len)
{
    return *slot_of(vocab, bytes, len);
}

int32_t brim_vocab_find_near(const struct brim_vocab *vocab, int32_t guess, const char *bytes,
                             size_t len)
{
    if (guess >= 0 && guess < vocab->n_token) {
        const struct brim_token *token = &vocab->tokens[guess];
        if (token->indexed && token->len == len && !memcmp(vocab->text + token->at, bytes, len))
            return guess;
    }
    return brim_vocab_find(vocab, bytes, len);
}

struct brim_str brim_vocab_text(const struct brim_vocab *vocab, int32_t id)
{
    if (id < 0 || id >= vocab->n_token || vocab->tokens[id].kind == BRIM_TOKEN_NONE)
        return (struct brim_str){"", 0};
    return (struct brim_str){vocab->text + vocab->tokens[id].at, vocab->tokens[id].len};
}

/* GPT-2 writes each byte as a printable character: bytes 21-7E, A1-AC and AE-FF stand for
 * themselves, the other 68 follow in order from U+0100. */
static int byte_of(unsigned c)
{
    if ((c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xFF && c != 0xAD)) return (int)c;
    if (c < 0x100 || c > 0x143) return -1;
    c -= 0x100;
    if (c <= 0x20) return (int)c;
    if (c == 0x43) return 0xAD;
    return (int)(c - 0x21 + 0x7F); /* 7F to A0 */
}

bool brim_alphabet_decode(const char *text, size_t len, char *out, size_t *out_len)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned c = s[i];
        if (c >= 0x80) { /* all of the alphabet beyond ASCII is two bytes long */
            if (c < 0xC2 || c > 0xC5 || i + 1 == len || (s[i + 1] & 0xC0) != 0x80) return false;
            c = (c & 0x1F) << 6 | (s[++i] & 0x3F);
        }
        int byte = byte_of(c);
        if (byte < 0) return false;
        out[n++] = (char)byte;
    }
    *out_len = n;
    return true;
}
