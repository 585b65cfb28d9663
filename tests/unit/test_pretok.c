/* SPDX-License-Identifier: Apache-2.0
 * pretok: words of the known patterns, the translation of pattern dialects, limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "text/pretok.h"

#define QWEN                                                                                  \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+" \
    "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

struct joined {
    char text[512];
    size_t n;
};

static brim_status join(void *ctx, const char *word, size_t len, brim_error *err)
{
    (void)err;
    struct joined *j = ctx;
    assert_true(len > 0 && j->n + len + 2 < sizeof j->text);
    if (j->n) j->text[j->n++] = '|';
    memcpy(j->text + j->n, word, len);
    j->n += len;
    j->text[j->n] = '\0';
    return BRIM_OK;
}

static struct brim_pretok *make(const char *first, enum brim_split_behaviour behaviour,
                                const char *second)
{
    struct brim_pretok *p;
    brim_error err = {0};
    assert_int_equal(brim_pretok_create(&p, NULL), BRIM_OK);
    if (brim_pretok_add(p, first, strlen(first), behaviour, "file", &err) != BRIM_OK)
        fail_msg("%s", err.text);
    if (second)
        assert_int_equal(
            brim_pretok_add(p, second, strlen(second), BRIM_SPLIT_ISOLATED, "file", NULL), BRIM_OK);
    return p;
}

static void expect(const struct brim_pretok *p, const char *text, const char *words)
{
    struct brim_pretok_match *match;
    struct joined j = {"", 0};
    size_t n = strlen(text);
    char *exact = malloc(n ? n : 1);
    memcpy(exact, text, n);
    assert_int_equal(brim_pretok_match_create(&match, p, NULL), BRIM_OK);
    assert_int_equal(brim_pretok_run(p, match, exact, n, join, &j, NULL), BRIM_OK);
    if (strcmp(j.text, words)) fail_msg("<<%s>> gives <<%s>>, not <<%s>>", text, j.text, words);
    brim_pretok_match_free(&match);
    free(exact);
}

static void known_patterns(void **state)
{
    (void)state;
    struct brim_pretok *qwen = make(QWEN, BRIM_SPLIT_ISOLATED, NULL);
    expect(qwen, "", "");
    expect(qwen, "Hello world's 12", "Hello| world|'s| |1|2");
    expect(qwen, "DON'T", "DON|'T");
    expect(qwen, "a  b   ", "a| | b|   ");
    expect(qwen, "x\r\n\r\n  y", "x|\r\n\r\n| | y");
    expect(qwen, "(x):\n", "(x|):\n");
    /* Qwen's rule has letters without marks: a sign ends the word (case T2). */
    expect(qwen, "\xE0\xA4\xB9\xE0\xA4\xBF\xE0\xA4\xA8", "\xE0\xA4\xB9|\xE0\xA4\xBF\xE0\xA4\xA8");
    expect(qwen, "e\xCC\x81", "e|\xCC\x81");
    brim_pretok_free(&qwen);
    struct brim_pretok *gpt2 = make(brim_pretok_gpt2_pattern, BRIM_SPLIT_ISOLATED, NULL);
    expect(gpt2, "DON'T don't 123", "DON|'|T| don|'t| 123");
    brim_pretok_free(&gpt2);
    struct brim_pretok *smollm = make("\\p{N}", BRIM_SPLIT_ISOLATED, brim_pretok_gpt2_pattern);
    /* Each piece between digits is a text of its own: the blanks before 1 end one. */
    expect(smollm, "a  12 b", "a|  |1|2| b");
    brim_pretok_free(&smollm);
}

static void behaviours(void **state)
{
    (void)state;
    struct brim_pretok *p = make("-", BRIM_SPLIT_ISOLATED, NULL);
    expect(p, "-a--b", "-|a|-|-|b");
    brim_pretok_free(&p);
    p = make("-", BRIM_SPLIT_DROP, NULL);
    expect(p, "-a--b", "a|b");
    brim_pretok_free(&p);
    p = make("[a-z]+", BRIM_SPLIT_KEEP, NULL);
    expect(p, "-ab--c", "ab|c");
    brim_pretok_free(&p);
    p = make("x*", BRIM_SPLIT_ISOLATED, NULL); /* empty matches are none */
    expect(p, "axxb", "a|xx|b");
    brim_pretok_free(&p);
}

/* What the two dialects read differently. */
static void white_space_and_words(void **state)
{
    (void)state;
    struct brim_pretok *p = make("\\s+", BRIM_SPLIT_ISOLATED, NULL);
    expect(p,
           "a\xC2\x85"
           "b\xE3\x80\x80"
           "c\xE1\xA0\x8E"
           "d",
           "a|\xC2\x85|b|\xE3\x80\x80|c\xE1\xA0\x8E"
           "d"); /* U+180E is no white space */
    brim_pretok_free(&p);
    p = make("[^\\S\\n]+", BRIM_SPLIT_ISOLATED, NULL);
    expect(p, "a \t\n\xE1\xA0\x8E ", "a| \t|\n\xE1\xA0\x8E| ");
    brim_pretok_free(&p);
    p = make("\\w+", BRIM_SPLIT_ISOLATED, NULL);
    expect(p, "e\xCC\x81_1\xC2\xB2-x", "e\xCC\x81_1|\xC2\xB2-|x"); /* marks are, superscripts not */
    brim_pretok_free(&p);
    p = make("\\v|\\x41|\\u0042|\\x{1F600}", BRIM_SPLIT_ISOLATED, NULL);
    expect(p,
           "\n\x0B\x0C"
           "AB\xF0\x9F\x98\x80",
           "\n|\x0B|\x0C|A|B|\xF0\x9F\x98\x80");
    brim_pretok_free(&p);
    p = make("(?i:'S)", BRIM_SPLIT_ISOLATED, NULL); /* the long s folds to s */
    expect(p, "a's'\xC5\xBF", "a|'s|'\xC5\xBF");
    brim_pretok_free(&p);
    p = make("\\p{Han}+", BRIM_SPLIT_ISOLATED, NULL); /* the script, not its extensions */
    expect(p, "\xE4\xBD\xA0\xE3\x80\x81", "\xE4\xBD\xA0|\xE3\x80\x81");
    brim_pretok_free(&p);
}

static void unknown_constructs_are_refused(void **state)
{
    (void)state;
    static const char *const patterns[] = {
        "^a",     "a$",      "\\bx",   "\\h",     "\\R",     "\\X",         "\\1",
        "\\k<a>", "(?<a>b)", "(?m:.)", "(?i)a",   "(*UCP)a", "[a[bc]]",     "[[:alpha:]]",
        "[a&&b]", "a{,3}",   "a{2}+",  "a{1,2}?", "\\pL",    "\\p{L",       "\\p{Script=Han}",
        "\\x4",   "\\xE9",   "\\u12",  "[\\W]",   "a\\",     "[a",          "[]a]",
        "\\G",    "\\K",     "\\Q",    "\\p{L&}", "\\x{}",   "\\x{1234567}"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        char *out;
        size_t n;
        brim_error err = {0};
        brim_status status = brim_pretok_translate(&out, &n, patterns[i], strlen(patterns[i]),
                                                   "tokenizer.json", &err);
        if (status != BRIM_E_UNSUPPORTED) fail_msg("%s passes", patterns[i]);
        assert_null(out);
        assert_non_null(strstr(err.text, "tokenizer.json: the pre-tokenizer's pattern uses "));
    }
    struct brim_pretok *p;
    brim_error err = {0};
    assert_int_equal(brim_pretok_create(&p, NULL), BRIM_OK);
    assert_int_equal(brim_pretok_add(p, "(a", 2, BRIM_SPLIT_ISOLATED, "f", &err), BRIM_E_FORMAT);
    assert_non_null(strstr(err.text, "f: the pre-tokenizer's pattern: "));
    assert_int_equal(brim_pretok_add(p, "\\p{Nonsense}", 12, BRIM_SPLIT_ISOLATED, "f", &err),
                     BRIM_E_FORMAT);
    assert_int_equal(brim_pretok_add(p, "\xFF", 1, BRIM_SPLIT_ISOLATED, "f", &err), BRIM_E_FORMAT);
    for (int i = 0; i < 8; i++)
        assert_int_equal(brim_pretok_add(p, "a", 1, BRIM_SPLIT_ISOLATED, "f", &err), BRIM_OK);
    assert_int_equal(brim_pretok_add(p, "a", 1, BRIM_SPLIT_ISOLATED, "f", &err),
                     BRIM_E_UNSUPPORTED);
    brim_pretok_free(&p);
}

/* Exploding backtracking ends in an error that says so; no text is lost silently. */
static void a_limit_is_an_error(void **state)
{
    (void)state;
    struct brim_pretok *p = make("(?:a+)+[bc]", BRIM_SPLIT_ISOLATED, NULL);
    struct brim_pretok_match *match;
    char text[64];
    memset(text, 'a', sizeof text);
    struct joined j = {"", 0};
    brim_error err = {0};
    assert_int_equal(brim_pretok_match_create(&match, p, NULL), BRIM_OK);
    assert_int_equal(brim_pretok_run(p, match, text, sizeof text, join, &j, &err),
                     BRIM_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "gave up on a text of 64 bytes"));
    brim_pretok_match_free(&match);
    brim_pretok_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_patterns),        cmocka_unit_test(behaviours),
        cmocka_unit_test(white_space_and_words), cmocka_unit_test(unknown_constructs_are_refused),
        cmocka_unit_test(a_limit_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
