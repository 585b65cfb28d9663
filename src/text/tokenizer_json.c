/* SPDX-License-Identifier: Apache-2.0
 * A tokenizer from tokenizer.json. The members are found first, then read in the order they need:
 * vocabulary, normalizer, added tokens, merges, pre-tokenizer. What would change the ids and is not
 * implemented is refused by name. */
#include "text/tokenizer_impl.h"

#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "text/json_scan.h"
#include "text/norm.h"
#include "text/utf8.h"

enum { MAX_MEMBER = 64 };

/* The members of one object: keys point into the text (a key with escapes is none we know). */
struct members {
    struct brim_str keys[MAX_MEMBER], values[MAX_MEMBER];
    int n;
};

struct source {
    struct brim_tokenizer *tokenizer;
    const char *path;
    brim_error *err;
    struct members top, model;
};

static bool same(struct brim_str s, const char *text)
{
    return s.len == strlen(text) && !memcmp(s.data, text, s.len);
}

static brim_status list_members(struct source *src, struct brim_str object, struct members *out)
{
    struct brim_json_scan scan = {
        .text = object.data, .len = object.len, .path = src->path, .err = src->err};
    out->n = 0;
    bool first = true;
    if (brim_json_scan_take(&scan, '{')) {
        while (brim_json_scan_more(&scan, '}', &first)) {
            struct brim_str key;
            if (!brim_json_scan_string(&scan, &key) || !brim_json_scan_take(&scan, ':')) break;
            if (key.data < object.data || key.data >= object.data + object.len) {
                brim_json_scan_fail(&scan, "an escape in a member's name");
                break;
            }
            if (out->n == MAX_MEMBER) {
                brim_json_scan_fail(&scan, "too many members");
                break;
            }
            for (int i = 0; i < out->n && scan.status == BRIM_OK; i++)
                if (key.len == out->keys[i].len && !memcmp(key.data, out->keys[i].data, key.len))
                    brim_json_scan_fail(&scan, "a member appears twice");
            out->keys[out->n] = key;
            if (!brim_json_scan_skip(&scan, &out->values[out->n])) break;
            out->n++;
        }
    }
    if (scan.status == BRIM_OK && (brim_json_scan_peek(&scan) || scan.at != scan.len))
        brim_json_scan_fail(&scan, "text after the value");
    brim_json_scan_free(&scan);
    return scan.status;
}

static const struct brim_str *member(const struct members *members, const char *name)
{
    for (int i = 0; i < members->n; i++)
        if (same(members->keys[i], name)) return &members->values[i];
    return NULL;
}

/* The tree of a small member; a missing member and null give NULL in *out and success. */
static brim_status tree(struct source *src, const struct members *members, const char *name,
                        json_t **out)
{
    *out = NULL;
    const struct brim_str *text = member(members, name);
    if (!text) return BRIM_OK;
    json_error_t why;
    json_t *value =
        json_loadb(text->data, text->len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &why);
    if (!value) {
        /* Where Jansson's allocator fails it mostly leaves without a word. */
        if (json_error_code(&why) == json_error_out_of_memory || !why.text[0])
            return brim_fail(src->err, BRIM_E_NO_MEMORY, "no memory for %s", src->path);
        return brim_fail(src->err, BRIM_E_FORMAT, "%s: \"%s\": %s", src->path, name, why.text);
    }
    if (json_is_null(value))
        json_decref(value);
    else
        *out = value;
    return BRIM_OK;
}

static brim_status bad_type(struct source *src, const char *what, const char *wanted)
{
    return brim_fail(src->err, BRIM_E_FORMAT, "%s: %s must be %s", src->path, what, wanted);
}

/* A boolean member, `missing` when it is not there. */
static brim_status get_bool(struct source *src, const json_t *object, const char *name,
                            bool missing, bool *out)
{
    const json_t *value = json_object_get(object, name);
    *out = value ? json_is_true(value) : missing;
    return !value || json_is_boolean(value) ? BRIM_OK : bad_type(src, name, "true or false");
}

/* The "type" of a component, for the switch of its reader and for error texts. */
static brim_status get_type(struct source *src, const json_t *object, const char *what,
                            const char **out)
{
    *out = json_string_value(json_object_get(object, "type"));
    return *out ? BRIM_OK : bad_type(src, what, "an object with a \"type\"");
}

static brim_status unsupported(struct source *src, const char *what, const char *name)
{
    return brim_fail(src->err, BRIM_E_UNSUPPORTED, "%s: %s \"%s\" is not implemented", src->path,
                     what, name);
}

/* ---- vocabulary and merges ------------------------------------------------------------------- */

static brim_status read_vocab(struct source *src)
{
    const struct brim_str *text = member(&src->model, "vocab");
    BRIM_REQUIRE(src->err, text, BRIM_E_MISSING, "%s: the model has no \"vocab\"", src->path);
    struct brim_vocab *vocab = &src->tokenizer->vocab;
    BRIM_TRY(brim_vocab_init(vocab, text->len / 16 + 256, text->len / 2 + 256, src->err));
    char *spare = NULL;
    size_t n_spare = 0;
    struct brim_json_scan scan = {
        .text = text->data, .len = text->len, .path = src->path, .err = src->err};
    bool first = true;
    brim_json_scan_take(&scan, '{');
    while (brim_json_scan_more(&scan, '}', &first)) {
        struct brim_str key;
        int64_t id;
        if (!brim_json_scan_string(&scan, &key)) break;
        if (key.len > n_spare) {
            brim_free(spare);
            n_spare = key.len * 2 + 256;
            spare = brim_alloc(n_spare);
            if (!spare) {
                scan.status = brim_fail(src->err, BRIM_E_NO_MEMORY, "no memory for a vocabulary");
                break;
            }
        }
        /* Decoded at once: the number may share the buffer of an unescaped key. */
        size_t n;
        bool word = key.len && brim_alphabet_decode(key.data, key.len, spare, &n);
        if (!word) {
            n = key.len;
            if (n) memcpy(spare, key.data, n); /* an empty first key leaves spare NULL */
        }
        if (!brim_json_scan_take(&scan, ':') || !brim_json_scan_int(&scan, &id)) break;
        scan.status = brim_vocab_set(vocab, id, spare, n, word ? BRIM_TOKEN_WORD : BRIM_TOKEN_RAW,
                                     src->path, src->err);
    }
    brim_free(spare);
    brim_json_scan_free(&scan);
    return scan.status;
}

static brim_status read_merges(struct source *src)
{
    const struct brim_str *text = member(&src->model, "merges");
    BRIM_REQUIRE(src->err, text, BRIM_E_MISSING, "%s: the model has no \"merges\"", src->path);
    struct brim_tokenizer *t = src->tokenizer;
    /* No merge is shorter than its quotes, comma, space and two characters. */
    BRIM_REQUIRE(src->err, text->len / 6 <= UINT32_MAX, BRIM_E_UNSUPPORTED, "%s: too many merges",
                 src->path);
    struct brim_json_scan scan = {
        .text = text->data, .len = text->len, .path = src->path, .err = src->err};
    size_t n_merge = 0;
    bool first = true;
    struct brim_str ignored;
    brim_json_scan_take(&scan, '[');
    while (brim_json_scan_more(&scan, ']', &first) && brim_json_scan_skip(&scan, &ignored))
        n_merge++;
    if (scan.status == BRIM_OK) scan.status = brim_merge_table_init(&t->merges, n_merge, src->err);
    scan.at = 0;
    first = true;
    int32_t made = -1;
    brim_json_scan_take(&scan, '[');
    for (size_t rank = 0; brim_json_scan_more(&scan, ']', &first); rank++) {
        struct brim_str left, right;
        if (brim_json_scan_peek(&scan) == '[') {
            scan.at++;
            if (!brim_json_scan_string(&scan, &left) || !brim_json_scan_take(&scan, ',') ||
                !brim_json_scan_string(&scan, &right) || !brim_json_scan_take(&scan, ']'))
                break;
        } else {
            if (!brim_json_scan_string(&scan, &left)) break;
            const char *space = memchr(left.data, ' ', left.len);
            right.data = space ? space + 1 : NULL;
            right.len = space ? (size_t)(left.data + left.len - right.data) : 0;
            if (!space || memchr(right.data, ' ', right.len)) {
                brim_json_scan_fail(&scan, "a merge that is not two tokens with a space between");
                break;
            }
            left.len = (size_t)(space - left.data);
        }
        scan.status = brim_tokenizer_add_merge(t, rank, left, right, &made, src->path, src->err);
    }
    brim_json_scan_free(&scan);
    return scan.status;
}

/* The switches of the BPE model that change ids. */
static brim_status read_model(struct source *src)
{
    static const char *const off[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix",
                                      "byte_fallback"};
    struct brim_tokenizer *t = src->tokenizer;
    json_t *value;
    BRIM_TRY(tree(src, &src->model, "type", &value));
    const char *type = json_string_value(value);
    brim_status status = BRIM_OK;
    if (value && !type)
        status = bad_type(src, "the model's \"type\"", "a string");
    else if (type && strcmp(type, "BPE") != 0)
        status = unsupported(src, "the model", type);
    json_decref(value);
    for (size_t i = 0; i < sizeof off / sizeof *off && status == BRIM_OK; i++) {
        BRIM_TRY(tree(src, &src->model, off[i], &value));
        const char *text = json_string_value(value);
        if (value && !json_is_false(value) && !(text && !*text) &&
            !(json_is_number(value) && json_number_value(value) == 0))
            status = unsupported(src, "the model's", off[i]);
        json_decref(value);
    }
    BRIM_TRY(status);
    BRIM_TRY(tree(src, &src->model, "ignore_merges", &value));
    t->ignore_merges = json_is_true(value);
    if (value && !json_is_boolean(value))
        status = bad_type(src, "\"ignore_merges\"", "true or false");
    json_decref(value);
    return status;
}

/* An unknown token takes the place of bytes without a token. It changes nothing as long as every
 * byte that UTF-8 can hold has one. */
static brim_status check_unknown(struct source *src)
{
    json_t *value;
    BRIM_TRY(tree(src, &src->model, "unk_token", &value));
    bool present = value != NULL;
    json_decref(value);
    for (int byte = 0; present && byte < 0xF5; byte++) {
        BRIM_REQUIRE(src->err, byte == 0xC0 || byte == 0xC1 || src->tokenizer->byte_id[byte] >= 0,
                     BRIM_E_UNSUPPORTED,
                     "%s: \"unk_token\" is not implemented, and byte 0x%02X has no token",
                     src->path, (unsigned)byte);
    }
    return BRIM_OK;
}

/* ---- added tokens ---------------------------------------------------------------------------- */

/* Enter the token among the vocabulary's: it is there with the same text already, or it is new. */
static brim_status enter_added(struct source *src, int64_t id, const char *text, size_t len,
                               bool special)
{
    struct brim_vocab *vocab = &src->tokenizer->vocab;
    uint8_t kind = special ? BRIM_TOKEN_SPECIAL : BRIM_TOKEN_ADDED;
    if (id < 0 || id >= vocab->n_token || vocab->tokens[id].kind == BRIM_TOKEN_NONE)
        return brim_vocab_set(vocab, id, text, len, kind, src->path, src->err);
    struct brim_token *token = &vocab->tokens[id];
    struct brim_str has = brim_vocab_text(vocab, (int32_t)id);
    if (has.len != len || memcmp(has.data, text, len) != 0) {
        /* The vocabulary spells it in the byte alphabet; the added token is the text itself. */
        char *decoded = brim_alloc(len);
        BRIM_REQUIRE(src->err, decoded, BRIM_E_NO_MEMORY, "no memory for added tokens");
        size_t n;
        bool alphabet = brim_alphabet_decode(text, len, decoded, &n) && n == has.len &&
                        !memcmp(decoded, has.data, n);
        brim_free(decoded);
        BRIM_REQUIRE(src->err, alphabet && token->kind == BRIM_TOKEN_WORD, BRIM_E_FORMAT,
                     "%s: the added token \"%s\" has the id %lld of another token", src->path, text,
                     (long long)id);
        token->kind = BRIM_TOKEN_NONE;
        return brim_vocab_set(vocab, id, text, len, kind, src->path, src->err);
    }
    BRIM_REQUIRE(src->err, token->kind == BRIM_TOKEN_WORD || token->kind == BRIM_TOKEN_RAW,
                 BRIM_E_FORMAT, "%s: two added tokens have the id %lld", src->path, (long long)id);
    token->kind = kind;
    if (special) token->indexed = false; /* BPE must never arrive at a control token */
    return BRIM_OK;
}

static brim_status read_added_token(struct source *src, const json_t *item)
{
    struct brim_tokenizer *t = src->tokenizer;
    const json_t *id = json_object_get(item, "id"), *content = json_object_get(item, "content");
    if (!json_is_integer(id) || !json_is_string(content))
        return bad_type(src, "an added token", "an object with \"id\" and \"content\"");
    const char *text = json_string_value(content);
    size_t len = json_string_length(content);
    BRIM_REQUIRE(src->err, len && len < 1 << 20, BRIM_E_FORMAT,
                 "%s: the content of added token %lld has %zu bytes", src->path,
                 (long long)json_integer_value(id), len);
    struct brim_added_token token = {.len = (uint32_t)len};
    bool normalized;
    BRIM_TRY(get_bool(src, item, "special", false, &token.special));
    BRIM_TRY(get_bool(src, item, "single_word", false, &token.single_word));
    BRIM_TRY(get_bool(src, item, "lstrip", false, &token.lstrip));
    BRIM_TRY(get_bool(src, item, "rstrip", false, &token.rstrip));
    BRIM_TRY(get_bool(src, item, "normalized", !token.special, &normalized));
    BRIM_TRY(enter_added(src, json_integer_value(id), text, len, token.special));
    token.id = (int32_t)json_integer_value(id);
    if (!normalized || !t->nfc || brim_norm_is_nfc_quick(text, len))
        return brim_added_insert(normalized ? &t->normalized : &t->raw, text, &token, src->err);
    char *made;
    size_t n;
    BRIM_TRY(brim_norm_nfc(&made, &n, text, len, src->err));
    token.len = (uint32_t)n;
    brim_status status = brim_added_insert(&t->normalized, made, &token, src->err);
    brim_free(made);
    return status;
}

static brim_status read_added(struct source *src)
{
    json_t *list;
    BRIM_TRY(tree(src, &src->top, "added_tokens", &list));
    if (!list) return BRIM_OK;
    brim_status status =
        json_is_array(list) ? BRIM_OK : bad_type(src, "\"added_tokens\"", "a list");
    for (size_t i = 0; status == BRIM_OK && i < json_array_size(list); i++)
        status = read_added_token(src, json_array_get(list, i));
    json_decref(list);
    return status;
}

/* ---- normalizer, pre-tokenizer, decoder ------------------------------------------------------ */

static brim_status apply_normalizer(struct source *src, const json_t *object)
{
    const char *type;
    BRIM_TRY(get_type(src, object, "a normalizer", &type));
    if (!strcmp(type, "NFC")) {
        src->tokenizer->nfc = true;
        return BRIM_OK;
    }
    if (strcmp(type, "Sequence") != 0) return unsupported(src, "the normalizer", type);
    const json_t *list = json_object_get(object, "normalizers");
    if (!json_is_array(list)) return bad_type(src, "\"normalizers\"", "a list");
    for (size_t i = 0; i < json_array_size(list); i++)
        BRIM_TRY(apply_normalizer(src, json_array_get(list, i)));
    return BRIM_OK;
}

/* A literal as a pattern: all but letters, digits and what is not ASCII gets a backslash. */
static brim_status add_literal(struct source *src, const char *text, size_t len,
                               enum brim_split_behaviour behaviour)
{
    char *pattern = brim_alloc(len * 2);
    BRIM_REQUIRE(src->err, pattern, BRIM_E_NO_MEMORY, "no memory for a pattern");
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     (unsigned char)c >= 0x80;
        if (!plain) pattern[n++] = '\\';
        pattern[n++] = c;
    }
    brim_status status =
        brim_pretok_add(src->tokenizer->pretok, pattern, n, behaviour, src->path, src->err);
    brim_free(pattern);
    return status;
}

static brim_status apply_split(struct source *src, const json_t *object)
{
    const char *name = json_string_value(json_object_get(object, "behavior"));
    if (!name) return bad_type(src, "\"behavior\" of Split", "a string");
    bool invert;
    BRIM_TRY(get_bool(src, object, "invert", false, &invert));
    enum brim_split_behaviour behaviour;
    if (!strcmp(name, "Isolated"))
        behaviour = BRIM_SPLIT_ISOLATED;
    else if (!strcmp(name, "Removed"))
        behaviour = invert ? BRIM_SPLIT_KEEP : BRIM_SPLIT_DROP;
    else
        return unsupported(src, "the behavior of Split", name);
    const json_t *pattern = json_object_get(object, "pattern");
    const json_t *regex = json_object_get(pattern, "Regex");
    const json_t *literal = json_object_get(pattern, "String");
    if (json_is_string(regex) && json_string_length(regex))
        return brim_pretok_add(src->tokenizer->pretok, json_string_value(regex),
                               json_string_length(regex), behaviour, src->path, src->err);
    if (json_is_string(literal) && json_string_length(literal))
        return add_literal(src, json_string_value(literal), json_string_length(literal), behaviour);
    return bad_type(src, "\"pattern\" of Split", "an object with \"Regex\" or \"String\"");
}

/* *byte_level: a ByteLevel step has been seen; it turns text into the byte alphabet, so what
 * follows it would see other characters. */
static brim_status apply_pretok(struct source *src, const json_t *object, bool *byte_level)
{
    const char *type;
    bool flag;
    BRIM_TRY(get_type(src, object, "a pre-tokenizer", &type));
    if (!strcmp(type, "Sequence")) {
        const json_t *list = json_object_get(object, "pretokenizers");
        if (!json_is_array(list)) return bad_type(src, "\"pretokenizers\"", "a list");
        for (size_t i = 0; i < json_array_size(list); i++)
            BRIM_TRY(apply_pretok(src, json_array_get(list, i), byte_level));
        return BRIM_OK;
    }
    if (*byte_level) return unsupported(src, "after ByteLevel, the pre-tokenizer", type);
    if (!strcmp(type, "Split")) return apply_split(src, object);
    if (!strcmp(type, "Digits")) {
        BRIM_TRY(get_bool(src, object, "individual_digits", false, &flag));
        const char *pattern = flag ? "\\p{N}" : "\\p{N}+";
        return brim_pretok_add(src->tokenizer->pretok, pattern, strlen(pattern),
                               BRIM_SPLIT_ISOLATED, src->path, src->err);
    }
    if (strcmp(type, "ByteLevel") != 0) return unsupported(src, "the pre-tokenizer", type);
    *byte_level = true;
    BRIM_TRY(get_bool(src, object, "add_prefix_space", true, &flag));
    if (flag) return unsupported(src, "ByteLevel's", "add_prefix_space");
    BRIM_TRY(get_bool(src, object, "use_regex", true, &flag));
    if (!flag) return BRIM_OK;
    return brim_pretok_add(src->tokenizer->pretok, brim_pretok_gpt2_pattern,
                           strlen(brim_pretok_gpt2_pattern), BRIM_SPLIT_ISOLATED, src->path,
                           src->err);
}

static brim_status read_components(struct source *src)
{
    json_t *value;
    bool byte_level = false;
    BRIM_TRY(tree(src, &src->top, "pre_tokenizer", &value));
    brim_status status = value ? apply_pretok(src, value, &byte_level) : BRIM_OK;
    json_decref(value);
    BRIM_TRY(status);
    BRIM_REQUIRE(src->err, byte_level, BRIM_E_UNSUPPORTED,
                 "%s: the pre-tokenizer has no ByteLevel, and only byte-level BPE is implemented",
                 src->path);
    BRIM_TRY(tree(src, &src->top, "decoder", &value));
    if (value) {
        const char *type;
        status = get_type(src, value, "the decoder", &type);
        if (status == BRIM_OK && strcmp(type, "ByteLevel") != 0)
            status = unsupported(src, "the decoder", type);
        json_decref(value);
    }
    return status;
}

static brim_status read_normalizer(struct source *src)
{
    json_t *value;
    BRIM_TRY(tree(src, &src->top, "normalizer", &value));
    brim_status status = value ? apply_normalizer(src, value) : BRIM_OK;
    json_decref(value);
    return status;
}

static brim_status read_all(struct source *src, struct brim_str text)
{
    BRIM_REQUIRE(src->err, brim_utf8_valid_prefix((const uint8_t *)text.data, text.len) == text.len,
                 BRIM_E_FORMAT, "%s: not UTF-8", src->path);
    BRIM_TRY(list_members(src, text, &src->top));
    const struct brim_str *model = member(&src->top, "model");
    BRIM_REQUIRE(src->err, model, BRIM_E_MISSING, "%s: no \"model\"", src->path);
    BRIM_TRY(list_members(src, *model, &src->model));
    struct brim_tokenizer *t = src->tokenizer;
    BRIM_TRY(read_model(src));
    BRIM_TRY(read_normalizer(src));
    BRIM_TRY(read_vocab(src));
    BRIM_TRY(read_added(src));
    BRIM_TRY(brim_vocab_index(&t->vocab, src->path, src->err));
    BRIM_TRY(brim_tokenizer_find_bytes(t, src->path, src->err));
    BRIM_TRY(check_unknown(src));
    BRIM_TRY(read_merges(src));
    return read_components(src);
}

brim_status brim_tokenizer_from_json(struct brim_tokenizer **out, const char *json, size_t n_bytes,
                                     const char *path, brim_error *err)
{
    *out = NULL;
    struct source *src = brim_alloc(sizeof *src);
    BRIM_REQUIRE(err, src, BRIM_E_NO_MEMORY, "no memory for %s", path);
    src->path = path;
    src->err = err;
    brim_status status = brim_tokenizer_new(&src->tokenizer, err);
    if (status == BRIM_OK) status = read_all(src, (struct brim_str){json, n_bytes});
    if (status != BRIM_OK) brim_tokenizer_free(&src->tokenizer);
    *out = src->tokenizer;
    brim_free(src);
    return status;
}
