/* SPDX-License-Identifier: Apache-2.0
 * tokenizer.json: what is read, what is refused and how it is named, allocation failure. The file
 * is built from parts, each of which a test may replace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "small_vocab.h"
#include "text/tokenizer.h"

enum { ROOM = 1 << 15 };

struct parts {
    const char *head, *added, *normalizer, *pretok, *decoder, *model, *merges;
};
static const struct parts usual = {
    .head = "\"version\":\"1.0\",\"truncation\":null,",
    .added = "[{\"id\":300,\"content\":\"<|end|>\",\"special\":true,\"normalized\":false},"
             "{\"id\":301,\"content\":\"<think>\",\"special\":false,\"normalized\":false}]",
    .normalizer = "{\"type\":\"NFC\"}",
    .pretok =
        "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
        "\" ?\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+\"},\"behavior\":\"Isolated\","
        "\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
        "\"trim_offsets\":false,\"use_regex\":false}]}",
    .decoder = "{\"type\":\"ByteLevel\"}",
    .model =
        "\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
        "\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":\"\",\"byte_fallback\":false,",
    .merges = "[\"h e\",\"l l\",[\"he\",\"ll\"],\"hell o\",\"\\u0120 hello\"]",
};

/* The vocabulary: 256 bytes, then what the merges make; `extra` goes first. */
static size_t build(char *out, const struct parts *p, const char *extra)
{
    size_t n =
        (size_t)sprintf(out,
                        "{%s\"added_tokens\":%s,\"normalizer\":%s,\"pre_tokenizer\":%s,"
                        "\"post_processor\":null,\"decoder\":%s,\"model\":{%s\"vocab\":{%s",
                        p->head, p->added, p->normalizer, p->pretok, p->decoder, p->model, extra);
    for (int byte = 0; byte < 256; byte++) {
        char letter[4];
        size_t len = small_letter(byte, letter);
        bool escaped = byte == '"' || byte == '\\';
        n +=
            (size_t)sprintf(out + n, "\"%s%.*s\":%d,", escaped ? "\\" : "", (int)len, letter, byte);
    }
    return n + (size_t)sprintf(out + n,
                               "\"he\":256, \"ll\" : 257,\"hell\":258,\"hello\":259,"
                               "\"\xC4\xA0hello\":260},\"merges\":%s}}",
                               p->merges);
}

static brim_status load(struct brim_tokenizer **t, const char *json, size_t n, brim_error *err)
{
    char *exact = malloc(n ? n : 1);
    memcpy(exact, json, n);
    brim_status status = brim_tokenizer_from_json(t, exact, n, "f.json", err);
    free(exact); /* nothing may borrow from it */
    return status;
}

static struct brim_tokenizer *make(const struct parts *p)
{
    char *json = malloc(ROOM);
    struct brim_tokenizer *t;
    brim_error err = {0};
    if (load(&t, json, build(json, p, ""), &err) != BRIM_OK) fail_msg("%s", err.text);
    free(json);
    return t;
}

static void expect(const struct brim_tokenizer *t, const char *text, bool special,
                   const char *expected)
{
    struct brim_ids ids = {0};
    char got[512] = "";
    size_t n = 0;
    assert_int_equal(brim_tokenizer_encode(t, text, strlen(text), special, &ids, NULL), BRIM_OK);
    for (size_t i = 0; i < ids.n; i++)
        n += (size_t)snprintf(got + n, sizeof got - n, i ? " %d" : "%d", (int)ids.data[i]);
    if (strcmp(got, expected)) fail_msg("<<%s>> gives %s, not %s", text, got, expected);
    brim_ids_free(&ids);
}

static void reads_the_usual_file(void **state)
{
    (void)state;
    struct brim_tokenizer *t = make(&usual);
    assert_false(brim_tokenizer_pattern_is_known(t));
    assert_int_equal(brim_tokenizer_n_vocab(t), 302);
    expect(t, "hello hello", false, "259 260");
    expect(t, "e\xCC\x81", false, "195 169"); /* normalized: one letter, two bytes */
    expect(t, "\xC3\xA9", false, "195 169");
    expect(t, "hell<|end|>o", true, "258 300 111");
    expect(t, "<|end|>", false, "60 124 101 110 100 124 62");
    expect(t, "he<think>", false, "256 301");
    assert_int_equal(brim_tokenizer_piece(t, 280).len, 0); /* a gap between vocabulary and added */
    struct brim_str piece = brim_tokenizer_piece(t, 260);
    assert_int_equal(piece.len, 6);
    assert_memory_equal(piece.data, " hello", 6);
    brim_tokenizer_free(&t);
}

static void pretokenizers(void **state)
{
    (void)state;
    struct parts p = usual;
    p.normalizer = "null";
    p.pretok =
        "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":"
        "true},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}]}";
    struct brim_tokenizer *t = make(&p);
    assert_true(brim_tokenizer_pattern_is_known(t)); /* as in SmolLM2 */
    expect(t, "hello12", false, "259 49 50");
    expect(t, "e\xCC\x81", false, "101 204 129");
    brim_tokenizer_free(&t);
    p.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}]}";
    p.pretok = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}";
    p.model = "\"ignore_merges\":true,";
    p.merges = "[]";
    t = make(&p);
    expect(t, "hello hellohello", false, "259 32 104 101 108 108 111 104 101 108 108 111");
    expect(t, "e\xCC\x81", false, "195 169");
    brim_tokenizer_free(&t);
    p.pretok =
        "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"String\":"
        "\".h\"},\"behavior\":\"Removed\"},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
        "\"use_regex\":false}]}";
    t = make(&p);
    expect(t, "xh.h.", false, "120 104 46");
    brim_tokenizer_free(&t);
}

static void added_token_flags(void **state)
{
    (void)state;
    struct parts p = usual;
    p.added = "[{\"id\":300,\"content\":\"<m>\",\"lstrip\":true,\"special\":true},"
              "{\"id\":301,\"content\":\"<r>\",\"rstrip\":true,\"normalized\":false},"
              "{\"id\":302,\"content\":\"one\",\"single_word\":true,\"normalized\":false},"
              "{\"id\":303,\"content\":\"e\xCC\x81t\",\"normalized\":true},"
              "{\"id\":257,\"content\":\"ll\",\"normalized\":false}]";
    struct brim_tokenizer *t = make(&p);
    expect(t, "a \xC2\xA0\t<m> b", true, "97 300 32 98");
    expect(t, "a <r> \n b", false, "97 32 301 98");
    expect(t, "one, bone one1 one", false, "302 44 32 98 111 110 101 32 111 110 101 49 32 302");
    expect(t, "\xC3\xA9t e\xCC\x81t", false, "303 32 303"); /* both spellings */
    expect(t, "hello", false, "256 257 111");               /* cut out before merging */
    brim_tokenizer_free(&t);
}

static void refused(const struct parts *p, const char *extra, brim_status status, const char *text)
{
    char *json = malloc(ROOM);
    struct brim_tokenizer *t;
    brim_error err = {0};
    brim_status got = load(&t, json, build(json, p, extra), &err);
    if (got != status) fail_msg("%s, %s: wanted %s", brim_status_name(got), err.text, text);
    assert_null(t);
    if (!strstr(err.text, text)) fail_msg("\"%s\" lacks \"%s\"", err.text, text);
    free(json);
}

#define REFUSED(field, value, status, text) \
    do {                                    \
        struct parts p_ = usual;            \
        p_.field = value;                   \
        refused(&p_, "", status, text);     \
    } while (0)

static void refuses_what_is_not_implemented(void **state)
{
    (void)state;
    const brim_status no = BRIM_E_UNSUPPORTED;
    REFUSED(normalizer, "{\"type\":\"NFKC\"}", no, "f.json: the normalizer \"NFKC\"");
    REFUSED(normalizer, "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Lowercase\"}]}", no,
            "the normalizer \"Lowercase\"");
    REFUSED(pretok, "null", no, "only byte-level BPE");
    REFUSED(pretok, "{\"type\":\"Metaspace\"}", no, "the pre-tokenizer \"Metaspace\"");
    REFUSED(pretok, "{\"type\":\"ByteLevel\"}", no, "add_prefix_space");
    REFUSED(pretok,
            "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"MergedWithNext\"}",
            no, "the behavior of Split \"MergedWithNext\"");
    REFUSED(pretok, "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"^a\"},\"behavior\":\"Isolated\"}",
            no, "an anchor (^ or $)");
    REFUSED(pretok,
            "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\","
            "\"add_prefix_space\":false},{\"type\":\"Digits\"}]}",
            no, "after ByteLevel, the pre-tokenizer \"Digits\"");
    REFUSED(decoder, "{\"type\":\"Metaspace\"}", no, "the decoder \"Metaspace\"");
    REFUSED(model, "\"type\":\"Unigram\",", no, "the model \"Unigram\"");
    REFUSED(model, "\"dropout\":0.1,", no, "\"dropout\"");
    REFUSED(model, "\"byte_fallback\":true,", no, "\"byte_fallback\"");
    REFUSED(model, "\"end_of_word_suffix\":\"</w>\",", no, "\"end_of_word_suffix\"");
}

static void refuses_what_is_wrong(void **state)
{
    (void)state;
    const brim_status bad = BRIM_E_FORMAT;
    REFUSED(merges, "[\"h e\",\"h zz\"]", bad, "merge 1 (\"h\" and \"zz\") names a token");
    REFUSED(merges, "[\"h h\"]", bad, "makes a token the vocabulary does not have");
    REFUSED(merges, "[\"h e\",[\"h\",\"e\"]]", bad, "appears twice");
    REFUSED(merges, "[\"he\"]", bad, "two tokens with a space between");
    REFUSED(merges, "[\"h e l\"]", bad, "two tokens with a space between");
    REFUSED(merges, "[[\"h\",\"e\",\"l\"]]", bad, "']' expected");
    REFUSED(merges, "[5]", bad, "'\"' expected");
    REFUSED(merges, "{}", bad, "'[' expected");
    REFUSED(added, "{}", bad, "\"added_tokens\" must be a list");
    REFUSED(added, "[{\"id\":300}]", bad, "an added token must be an object");
    REFUSED(added, "[{\"id\":\"300\",\"content\":\"x\"}]", bad, "an added token must be");
    REFUSED(added, "[{\"id\":300,\"content\":\"\"}]", bad, "has 0 bytes");
    REFUSED(added, "[{\"id\":-1,\"content\":\"x\"}]", bad, "token id -1 is out of range");
    REFUSED(added, "[{\"id\":99999999999,\"content\":\"x\"}]", bad, "is out of range");
    REFUSED(added, "[{\"id\":65,\"content\":\"<x>\"}]", bad, "has the id 65 of another token");
    REFUSED(added, "[{\"id\":300,\"content\":\"<x>\",\"special\":1}]", bad, "special must be true");
    REFUSED(added, "[{\"id\":300,\"content\":\"<x>\"},{\"id\":301,\"content\":\"<x>\"}]", bad,
            "appears twice");
    REFUSED(added, "[{\"id\":300,\"content\":\"<x>\"},{\"id\":300,\"content\":\"<y>\"}]", bad,
            "has the id 300 of another token");
    REFUSED(added, "[{\"id\":300,\"id\":301,\"content\":\"<x>\"}]", bad, "duplicate");
    REFUSED(added, "[{\"id\":256,\"content\":\"he\",\"special\":true}]", bad, "makes a token");
    REFUSED(head, "\"decoder\":null,", bad, "a member appears twice");
    REFUSED(model, "\"type\":5,", bad, "the model's \"type\" must be a string");
    REFUSED(model, "\"ignore_merges\":1,", bad, "\"ignore_merges\" must be true or false");
    REFUSED(normalizer, "\"NFC\"", bad, "a normalizer must be an object with a \"type\"");
    REFUSED(pretok, "{\"type\":\"Split\",\"behavior\":\"Isolated\"}", bad, "\"pattern\" of Split");
    refused(&usual, "\"zz\":-4,", bad, "token id -4 is out of range");
    refused(&usual, "\"zz\":4194304,", bad, "token id 4194304 is out of range");
    refused(&usual, "\"zz\":9999999999999999999,", bad, "a number too large");
    refused(&usual, "\"zz\":1.5,", bad, "an integer expected");
    refused(&usual, "\"zz\":01,", bad, "an integer expected");
    refused(&usual, "\"zz\":\"1\",", bad, "an integer expected");
    refused(&usual, "\"zz\":7,", bad, "two tokens have the id 7");
    refused(&usual, "\"A\":400,", bad, "have the same text");
    refused(&usual, "\"\\u0041\":400,", bad, "have the same text");
    refused(&usual, "\"\\ud800\":400,", bad, "a lone surrogate");
    refused(&usual, "\"\\q\":400,", bad, "a bad escape");
    refused(&usual, "\"\xFF\":400,", bad, "not UTF-8");
    refused(&usual, "\"\n\":400,", bad, "a control character");
}

/* Every prefix of a good file is refused, and so is a file with more behind it. */
static void every_prefix_is_refused(void **state)
{
    (void)state;
    char *json = malloc(ROOM);
    size_t n = build(json, &usual, "");
    for (size_t len = 0; len < n; len += len < 700 || len + 100 > n ? 1 : 37) {
        struct brim_tokenizer *t;
        brim_error err = {0};
        assert_true(load(&t, json, len, &err) != BRIM_OK);
        assert_null(t);
        assert_true(err.text[0]);
    }
    struct brim_tokenizer *t;
    brim_error err = {0};
    json[n] = '}';
    assert_int_equal(load(&t, json, n + 1, &err), BRIM_E_FORMAT);
    json[n] = '\0';
    assert_int_equal(load(&t, json, n + 1, &err), BRIM_E_FORMAT);
    json[n] = '\n';
    assert_int_equal(load(&t, json, n + 1, &err), BRIM_OK);
    brim_tokenizer_free(&t);
    memset(json, '[', 20000);
    assert_int_equal(load(&t, json, 20000, &err), BRIM_E_FORMAT);
    memcpy(json, "{\"a\":", 5);
    assert_int_equal(load(&t, json, 20000, &err), BRIM_E_FORMAT);
    assert_non_null(strstr(err.text, "nested too deep"));
    free(json);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    char *json = malloc(ROOM);
    size_t n = build(json, &usual, "");
    /* Jansson keeps its own allocator: it calls a failure inside its lexer a syntax error. */
    brim_status status = BRIM_E_NO_MEMORY;
    int64_t k = 0;
    for (; status != BRIM_OK; k++) {
        struct brim_tokenizer *t;
        brim_error err = {0};
        brim_mem_fail_after(k);
        status = brim_tokenizer_from_json(&t, json, n, "f.json", &err);
        brim_mem_fail_after(-1);
        if (status == BRIM_OK)
            brim_tokenizer_free(&t);
        else if (status != BRIM_E_NO_MEMORY)
            fail_msg("allocation %d: %s", (int)k, err.text);
        else
            assert_null(t);
    }
    assert_true(k > 15);
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_the_usual_file),
        cmocka_unit_test(pretokenizers),
        cmocka_unit_test(added_token_flags),
        cmocka_unit_test(refuses_what_is_not_implemented),
        cmocka_unit_test(refuses_what_is_wrong),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
