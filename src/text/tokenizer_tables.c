/* SPDX-License-Identifier: Apache-2.0
 * A tokenizer from the tables of a GGUF file. GGUF names its pre-tokenizer instead of carrying it;
 * the table below says what each name stands for in the model's own tokenizer.json. */
#include "text/tokenizer_impl.h"

#include <string.h>

#include "base/mem.h"

struct preset {
    const char *name;
    const char *steps[2];
    bool nfc, ignore_merges;
};

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
static const struct preset presets[] = {
    {"gpt-2", {brim_pretok_gpt2_pattern}, false, false},
    {"smollm", {"\\p{N}", brim_pretok_gpt2_pattern}, false, false},
    {"qwen2",
     {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
                   "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
     true,
     false},
    {"llama-bpe",
     {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
                   "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
     false,
     true},
};

/* tokenizer.ggml.token_type */
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_USER = 4, TYPE_UNUSED = 5 };

static brim_status apply_preset(struct brim_tokenizer *t, const char *name, const char *path,
                                brim_error *err)
{
    for (size_t i = 0; name && i < sizeof presets / sizeof *presets; i++) {
        const struct preset *preset = &presets[i];
        if (strcmp(preset->name, name) != 0) continue;
        t->nfc = preset->nfc;
        t->ignore_merges = preset->ignore_merges;
        for (int k = 0; k < 2 && preset->steps[k]; k++)
            BRIM_TRY(brim_pretok_add(t->pretok, preset->steps[k], strlen(preset->steps[k]),
                                     BRIM_SPLIT_ISOLATED, path, err));
        return BRIM_OK;
    }
    return brim_fail(err, BRIM_E_UNSUPPORTED,
                     "%s: tokenizer.ggml.pre is \"%s\"; the pre-tokenizers brim knows are gpt-2, "
                     "smollm, qwen2 and llama-bpe",
                     path, name ? name : "(missing)");
}

bool brim_tokenizer_pattern_is_known(const struct brim_tokenizer *tokenizer)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        uint64_t fingerprint = 0;
        for (int k = 0; k < 2 && presets[i].steps[k]; k++)
            fingerprint = brim_pretok_fold(fingerprint, presets[i].steps[k],
                                           strlen(presets[i].steps[k]), BRIM_SPLIT_ISOLATED);
        if (fingerprint == brim_pretok_fingerprint(tokenizer->pretok)) return true;
    }
    return false;
}

static brim_status add_token(struct brim_tokenizer *t, int32_t id, struct brim_str text,
                             int32_t type, char *spare, const char *path, brim_error *err)
{
    size_t n;
    if (type == TYPE_UNUSED) return BRIM_OK;
    if (type == TYPE_NORMAL) {
        if (!text.len || !brim_alphabet_decode(text.data, text.len, spare, &n))
            return brim_vocab_set(&t->vocab, id, text.data, text.len, BRIM_TOKEN_RAW, path, err);
        return brim_vocab_set(&t->vocab, id, spare, n, BRIM_TOKEN_WORD, path, err);
    }
    BRIM_REQUIRE(err, type == TYPE_UNKNOWN || type == TYPE_CONTROL || type == TYPE_USER,
                 BRIM_E_UNSUPPORTED, "%s: token %d has type %d, which byte-level BPE does not have",
                 path, (int)id, (int)type);
    bool special = type != TYPE_USER;
    BRIM_REQUIRE(err, text.len, BRIM_E_FORMAT, "%s: the added token %d has no text", path, (int)id);
    BRIM_TRY(brim_vocab_set(&t->vocab, id, text.data, text.len,
                            special ? BRIM_TOKEN_SPECIAL : BRIM_TOKEN_ADDED, path, err));
    /* A merge may make a token that a user also named, as long as both mean the same bytes. */
    if (!special && brim_alphabet_decode(text.data, text.len, spare, &n) && n == text.len &&
        !memcmp(spare, text.data, n))
        t->vocab.tokens[id].indexed = true;
    struct brim_added_token token = {.id = id, .len = (uint32_t)text.len, .special = special};
    return brim_added_insert(&t->raw, text.data, &token, err);
}

static brim_status fill(struct brim_tokenizer *t, const struct brim_vocab_tables *tables,
                        char *spare, size_t n_text, const char *path, brim_error *err)
{
    BRIM_TRY(apply_preset(t, tables->pre, path, err));
    BRIM_TRY(brim_vocab_init(&t->vocab, tables->n_token, n_text, err));
    for (size_t i = 0; i < tables->n_token; i++)
        BRIM_TRY(add_token(t, (int32_t)i, tables->tokens[i],
                           tables->types ? tables->types[i] : TYPE_NORMAL, spare, path, err));
    t->vocab.n_token = (int32_t)tables->n_token; /* unused ones may end the list */
    BRIM_TRY(brim_vocab_index(&t->vocab, path, err));
    BRIM_TRY(brim_tokenizer_find_bytes(t, path, err));
    BRIM_TRY(brim_merge_table_init(&t->merges, tables->n_merge, err));
    int32_t made = -1;
    for (size_t i = 0; i < tables->n_merge; i++) {
        struct brim_str merge = tables->merges[i];
        const char *space = merge.len ? memchr(merge.data + 1, ' ', merge.len - 1) : NULL;
        BRIM_REQUIRE(err, space, BRIM_E_FORMAT, "%s: merge %zu has no space between two tokens",
                     path, i);
        struct brim_str left = {merge.data, (size_t)(space - merge.data)};
        struct brim_str right = {space + 1, merge.len - left.len - 1};
        BRIM_TRY(brim_tokenizer_add_merge(t, i, left, right, &made, path, err));
    }
    return BRIM_OK;
}

brim_status brim_tokenizer_from_tables(struct brim_tokenizer **out,
                                       const struct brim_vocab_tables *tables, const char *path,
                                       brim_error *err)
{
    *out = NULL;
    BRIM_REQUIRE(err, tables->n_token && tables->n_token <= BRIM_VOCAB_MAX, BRIM_E_FORMAT,
                 "%s: a vocabulary of %zu tokens", path, tables->n_token);
    BRIM_REQUIRE(err, tables->n_merge <= BRIM_VOCAB_MAX, BRIM_E_FORMAT, "%s: %zu merges", path,
                 tables->n_merge);
    size_t n_text = 0, n_longest = 0;
    for (size_t i = 0; i < tables->n_token; i++) {
        size_t len = tables->tokens[i].len;
        BRIM_REQUIRE(err, len < 1 << 20, BRIM_E_FORMAT, "%s: token %zu is %zu bytes long", path, i,
                     len);
        n_text += len;
        if (len > n_longest) n_longest = len;
    }
    char *spare = brim_alloc(n_longest);
    BRIM_REQUIRE(err, spare, BRIM_E_NO_MEMORY, "no memory for a vocabulary");
    struct brim_tokenizer *t;
    brim_status status = brim_tokenizer_new(&t, err);
    if (status == BRIM_OK) status = fill(t, tables, spare, n_text, path, err);
    brim_free(spare);
    if (status != BRIM_OK) {
        brim_tokenizer_free(&t);
        return status;
    }
    *out = t;
    return BRIM_OK;
}
