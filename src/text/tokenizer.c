/* SPDX-License-Identifier: Apache-2.0
 * Text to ids: added tokens are cut out, the rest is normalized, split into words and merged. Each
 * call owns its scratch; the tokenizer is only read. */
#include "text/tokenizer_impl.h"

#include <string.h>

#include "base/mem.h"
#include "text/norm.h"
#include "text/utf8.h"

brim_status brim_tokenizer_new(struct brim_tokenizer **out, brim_error *err)
{
    *out = NULL;
    struct brim_tokenizer *tokenizer = brim_calloc(1, sizeof *tokenizer);
    BRIM_REQUIRE(err, tokenizer, BRIM_E_NO_MEMORY, "no memory for a tokenizer");
    brim_added_init(&tokenizer->raw);
    brim_added_init(&tokenizer->normalized);
    brim_status status = brim_pretok_create(&tokenizer->pretok, err);
    if (status != BRIM_OK) brim_tokenizer_free(&tokenizer);
    *out = tokenizer;
    return status;
}

void brim_tokenizer_free(struct brim_tokenizer **tokenizer)
{
    struct brim_tokenizer *t = *tokenizer;
    if (!t) return;
    brim_vocab_free(&t->vocab);
    brim_merge_table_free(&t->merges);
    brim_pretok_free(&t->pretok);
    brim_added_free(&t->raw);
    brim_added_free(&t->normalized);
    brim_free(t);
    *tokenizer = NULL;
}

brim_status brim_tokenizer_find_bytes(struct brim_tokenizer *tokenizer, const char *path,
                                      brim_error *err)
{
    int n_found = 0;
    for (int i = 0; i < 256; i++) {
        char byte = (char)i;
        tokenizer->byte_id[i] = brim_vocab_find(&tokenizer->vocab, &byte, 1);
        n_found += tokenizer->byte_id[i] >= 0;
    }
    BRIM_REQUIRE(err, n_found, BRIM_E_FORMAT,
                 "%s: the vocabulary holds no byte, so it is not byte-level BPE", path);
    return BRIM_OK;
}

brim_status brim_tokenizer_add_merge(struct brim_tokenizer *tokenizer, size_t rank,
                                     struct brim_str left, struct brim_str right, int32_t *made,
                                     const char *path, brim_error *err)
{
    char bytes[4096];
    size_t n_left = 0, n_right = 0;
    int32_t id_left = -1, id_right = -1, id = -1;
    if (left.len + right.len <= sizeof bytes &&
        brim_alphabet_decode(left.data, left.len, bytes, &n_left) &&
        brim_alphabet_decode(right.data, right.len, bytes + n_left, &n_right)) {
        id_left = brim_vocab_find(&tokenizer->vocab, bytes, n_left);
        id_right = brim_vocab_find(&tokenizer->vocab, bytes + n_left, n_right);
        id = brim_vocab_find_near(&tokenizer->vocab, *made + 1, bytes, n_left + n_right);
    }
    BRIM_REQUIRE(err, id_left >= 0 && id_right >= 0 && id >= 0, BRIM_E_FORMAT,
                 "%s: merge %zu (\"%.*s\" and \"%.*s\") %s", path, rank,
                 (int)(left.len < 64 ? left.len : 64), left.data,
                 (int)(right.len < 64 ? right.len : 64), right.data,
                 id_left < 0 || id_right < 0 ? "names a token the vocabulary does not have"
                                             : "makes a token the vocabulary does not have");
    *made = id;
    BRIM_REQUIRE(err,
                 brim_merge_table_add(&tokenizer->merges, id_left, id_right, (uint32_t)rank, id),
                 BRIM_E_FORMAT, "%s: merge %zu (\"%.*s\" and \"%.*s\") appears twice", path, rank,
                 (int)(left.len < 64 ? left.len : 64), left.data,
                 (int)(right.len < 64 ? right.len : 64), right.data);
    return BRIM_OK;
}

int32_t brim_tokenizer_n_vocab(const struct brim_tokenizer *tokenizer)
{
    return tokenizer->vocab.n_token;
}

int32_t brim_tokenizer_added_id(const struct brim_tokenizer *tokenizer, const char *text)
{
    size_t len = strlen(text);
    const struct brim_added *sets[] = {&tokenizer->raw, &tokenizer->normalized};
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k < sets[i]->n_token; k++) {
            struct brim_str has = brim_vocab_text(&tokenizer->vocab, sets[i]->tokens[k].id);
            if (has.len == len && !memcmp(has.data, text, len)) return sets[i]->tokens[k].id;
        }
    }
    return -1;
}

bool brim_tokenizer_is_special(const struct brim_tokenizer *tokenizer, int32_t id)
{
    return id >= 0 && id < tokenizer->vocab.n_token &&
           tokenizer->vocab.tokens[id].kind == BRIM_TOKEN_SPECIAL;
}

struct brim_str brim_tokenizer_piece(const struct brim_tokenizer *tokenizer, int32_t id)
{
    return brim_vocab_text(&tokenizer->vocab, id);
}

static brim_status reserve_ids(struct brim_ids *ids, size_t more, brim_error *err)
{
    if (more <= ids->capacity - ids->n) return BRIM_OK;
    size_t capacity = (ids->n + more) * 2 + 16;
    int32_t *grown =
        brim_realloc(ids->data, ids->n * sizeof *ids->data, capacity * sizeof *ids->data);
    BRIM_REQUIRE(err, grown, BRIM_E_NO_MEMORY, "no memory for %zu tokens", ids->n + more);
    ids->data = grown;
    ids->capacity = capacity;
    return BRIM_OK;
}

brim_status brim_ids_push(struct brim_ids *ids, int32_t id, brim_error *err)
{
    BRIM_TRY(reserve_ids(ids, 1, err));
    ids->data[ids->n++] = id;
    return BRIM_OK;
}

void brim_ids_free(struct brim_ids *ids)
{
    brim_free(ids->data);
    *ids = (struct brim_ids){0};
}

struct encoder {
    const struct brim_tokenizer *tokenizer;
    struct brim_ids *ids;
    struct brim_bpe_scratch scratch;
    struct brim_pretok_match *match;
    bool parse_special;
};

static brim_status encode_word(void *ctx, const char *word, size_t len, brim_error *err)
{
    struct encoder *e = ctx;
    const struct brim_tokenizer *t = e->tokenizer;
    if (t->ignore_merges) {
        int32_t id = brim_vocab_find(&t->vocab, word, len);
        if (id >= 0) return brim_ids_push(e->ids, id, err);
    }
    BRIM_TRY(brim_bpe_reserve(&e->scratch, len, err));
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        int32_t id = t->byte_id[(uint8_t)word[i]];
        if (id >= 0) e->scratch.word[n++] = id;
    }
    BRIM_TRY(brim_bpe_merge(&t->merges, &e->scratch, n, &n, err));
    if (!n) return BRIM_OK; /* no byte of the word has a token */
    BRIM_TRY(reserve_ids(e->ids, n, err));
    memcpy(e->ids->data + e->ids->n, e->scratch.word, n * sizeof *e->scratch.word);
    e->ids->n += n;
    return BRIM_OK;
}

/* A stretch of normalized text, or an added token of the normalized kind. */
static brim_status encode_normalized(void *ctx, const struct brim_added_token *token,
                                     const char *text, size_t len, brim_error *err)
{
    struct encoder *e = ctx;
    if (token) return brim_ids_push(e->ids, token->id, err);
    return brim_pretok_run(e->tokenizer->pretok, e->match, text, len, encode_word, e, err);
}

static brim_status encode_raw(void *ctx, const struct brim_added_token *token, const char *text,
                              size_t len, brim_error *err)
{
    struct encoder *e = ctx;
    const struct brim_tokenizer *t = e->tokenizer;
    if (token) return brim_ids_push(e->ids, token->id, err);
    char *made = NULL;
    if (t->nfc && !brim_norm_is_nfc_quick(text, len)) {
        BRIM_TRY(brim_norm_nfc(&made, &len, text, len, err));
        text = made;
    }
    brim_status status =
        brim_added_split(&t->normalized, e->parse_special, text, len, encode_normalized, e, err);
    brim_free(made);
    return status;
}

brim_status brim_tokenizer_encode(const struct brim_tokenizer *tokenizer, const char *text,
                                  size_t len, bool parse_special, struct brim_ids *ids,
                                  brim_error *err)
{
    if (len == 0) return BRIM_OK;
    size_t n_before = ids->n;
    struct encoder e = {.tokenizer = tokenizer, .ids = ids, .parse_special = parse_special};
    char *replaced = NULL;
    if (brim_utf8_valid_prefix((const uint8_t *)text, len) != len) {
        replaced = len <= SIZE_MAX / 3 ? brim_alloc(len * 3) : NULL;
        BRIM_REQUIRE(err, replaced, BRIM_E_NO_MEMORY, "no memory for a text of %zu bytes", len);
        len = brim_utf8_replace((const uint8_t *)text, len, (uint8_t *)replaced);
        text = replaced;
    }
    brim_status status = brim_pretok_match_create(&e.match, tokenizer->pretok, err);
    if (status == BRIM_OK)
        status = brim_added_split(&tokenizer->raw, parse_special, text, len, encode_raw, &e, err);
    brim_pretok_match_free(&e.match);
    brim_bpe_scratch_free(&e.scratch);
    brim_free(replaced);
    if (status != BRIM_OK) ids->n = n_before;
    return status;
}
