/* SPDX-License-Identifier: Apache-2.0
 * bpe: merging against the definition, pathological lengths, tables that must be refused. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "small_vocab.h"
#include "text/bpe.h"

static const char *const merges[] = {"a a",   "aa aa",  "b c",       "a bc",           "h e", "l l",
                                     "he ll", "hell o", "aaaa aaaa", "\xC4\xA0 hello", NULL};
static const char *const specials[] = {"<|end|>", "<|end|>>", NULL};
static const char *const users[] = {"<think>", NULL};

static struct brim_tokenizer *make(const char *pre)
{
    struct small_vocab v;
    small_vocab_make(&v, pre, merges, specials, users);
    struct brim_tokenizer *t;
    brim_error err = {0};
    brim_status status = brim_tokenizer_from_tables(&t, &v.tables, "small", &err);
    small_vocab_free(&v); /* strings were copied */
    if (status != BRIM_OK) fail_msg("%s", err.text);
    return t;
}

/* Ids as text between bars: "he|llo". */
static char *split(const struct brim_tokenizer *t, const char *text, size_t len, bool special)
{
    char *exact = malloc(len ? len : 1);
    memcpy(exact, text, len);
    struct brim_ids ids = {0};
    assert_int_equal(brim_tokenizer_encode(t, exact, len, special, &ids, NULL), BRIM_OK);
    free(exact);
    static char out[4096];
    size_t n = 0;
    for (size_t i = 0; i < ids.n; i++) {
        struct brim_str piece = brim_tokenizer_piece(t, ids.data[i]);
        if (i) out[n++] = '|';
        memcpy(out + n, piece.data, piece.len);
        n += piece.len;
    }
    out[n] = '\0';
    brim_ids_free(&ids);
    return out;
}

static void words_and_merges(void **state)
{
    (void)state;
    struct brim_tokenizer *t = make("gpt-2");
    assert_string_equal(split(t, "hello hello", 11, false), "hello| hello");
    assert_string_equal(split(t, "abc", 3, false), "abc");
    /* Rank 0 goes first although "a bc" would leave fewer symbols. */
    assert_string_equal(split(t, "aabc", 4, false), "aa|bc");
    assert_string_equal(split(t, "aaaaaaa", 7, false), "aaaa|aa|a");
    assert_string_equal(split(t, "", 0, false), "");
    struct brim_ids ids = {0};
    assert_int_equal(brim_tokenizer_encode(t, "a\0b", 3, false, &ids, NULL), BRIM_OK);
    assert_int_equal(ids.n, 3);
    assert_int_equal(ids.data[1], 0);
    brim_ids_free(&ids);
    brim_tokenizer_free(&t);
    assert_null(t);
    brim_tokenizer_free(&t);
}

static void added_tokens(void **state)
{
    (void)state;
    struct brim_tokenizer *t = make("gpt-2");
    assert_string_equal(split(t, "x<|end|>y", 9, true), "x|<|end|>|y");
    assert_string_equal(split(t, "<|end|>>", 8, true), "<|end|>>"); /* the longest wins */
    assert_string_equal(split(t, "a<|end|>", 8, false), "a|<|||e|n|d|||>");
    /* Not a control token: always matched. */
    assert_string_equal(split(t, "aa<think>aa", 11, false), "aa|<think>|aa");
    int32_t end = brim_tokenizer_added_id(t, "<|end|>");
    assert_int_equal(end, 256 + 10);
    assert_true(brim_tokenizer_is_special(t, end));
    assert_false(brim_tokenizer_is_special(t, brim_tokenizer_added_id(t, "<think>")));
    assert_false(brim_tokenizer_is_special(t, -1));
    assert_false(brim_tokenizer_is_special(t, brim_tokenizer_n_vocab(t)));
    assert_int_equal(brim_tokenizer_added_id(t, "hello"), -1);
    assert_int_equal(brim_tokenizer_piece(t, -5).len, 0);
    assert_int_equal(brim_tokenizer_piece(t, brim_tokenizer_n_vocab(t)).len, 0);
    brim_tokenizer_free(&t);
}

/* The definition: again and again the lowest rank, leftmost first. */
static size_t merge_by_definition(const struct brim_merge_slot *rules, size_t n_rule, int32_t *word,
                                  size_t n)
{
    for (;;) {
        const struct brim_merge_slot *best = NULL;
        size_t where = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            uint64_t pair = (uint64_t)(uint32_t)word[i] << 32 | (uint32_t)word[i + 1];
            for (size_t k = 0; k < n_rule; k++) {
                if (rules[k].pair != pair || (best && rules[k].rank >= best->rank)) continue;
                best = &rules[k];
                where = i;
            }
        }
        if (!best) return n;
        word[where] = best->id;
        memmove(word + where + 1, word + where + 2, (n - where - 2) * sizeof *word);
        n--;
    }
}

static void random_merges_equal_the_definition(void **state)
{
    (void)state;
    struct brim_rng rng;
    brim_rng_seed(&rng, 11);
    for (int round = 0; round < 300; round++) {
        struct brim_merge_table table;
        struct brim_merge_slot rules[40];
        size_t n_rule = 0;
        assert_int_equal(brim_merge_table_init(&table, 40, NULL), BRIM_OK);
        for (uint32_t i = 0; i < 40; i++) {
            int32_t left = (int32_t)(brim_rng_u32(&rng) % (3 + n_rule));
            int32_t right = (int32_t)(brim_rng_u32(&rng) % (3 + n_rule));
            int32_t id = (int32_t)(3 + n_rule);
            if (!brim_merge_table_add(&table, left, right, i, id)) continue;
            rules[n_rule++] =
                (struct brim_merge_slot){(uint64_t)(uint32_t)left << 32 | (uint32_t)right, i, id};
        }
        struct brim_bpe_scratch scratch = {0};
        size_t n = brim_rng_u32(&rng) % 120, n_out; /* both sides of the switch to a heap */
        int32_t expected[120];
        assert_int_equal(brim_bpe_reserve(&scratch, n, NULL), BRIM_OK);
        for (size_t i = 0; i < n; i++)
            scratch.word[i] = expected[i] = (int32_t)(brim_rng_u32(&rng) % 3);
        assert_int_equal(brim_bpe_merge(&table, &scratch, n, &n_out, NULL), BRIM_OK);
        assert_int_equal(n_out, merge_by_definition(rules, n_rule, expected, n));
        for (size_t i = 0; i < n_out; i++) assert_int_equal(scratch.word[i], expected[i]);
        brim_bpe_scratch_free(&scratch);
        brim_merge_table_free(&table);
    }
}

/* A million equal characters, in each of the shapes the patterns treat apart. Quadratic work would
 * take minutes; the bound leaves room for sanitizers and a busy machine. */
static void a_million_equal_characters(void **state)
{
    (void)state;
    static const char *const pres[] = {"gpt-2", "smollm", "qwen2", "llama-bpe"};
    static const char *const units[] = {"a", " ", "\n", "1", "-", "\xCC\x81", "<", "' "};
    for (size_t p = 0; p < 4; p++) {
        struct brim_tokenizer *t = make(pres[p]);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            size_t len = strlen(units[u]), n = 1000000;
            char *text = malloc(n * len);
            for (size_t i = 0; i < n; i++) memcpy(text + i * len, units[u], len);
            struct brim_ids ids = {0};
            int64_t begin = brim_clock_ns();
            brim_error err = {0};
            if (brim_tokenizer_encode(t, text, n * len, false, &ids, &err) != BRIM_OK)
                fail_msg("%s", err.text);
            double seconds = (double)(brim_clock_ns() - begin) / 1e9;
            if (seconds > 20) fail_msg("%s on \"%s\": %.1f s", pres[p], units[u], seconds);
            size_t n_bytes = 0;
            for (size_t i = 0; i < ids.n; i++) n_bytes += brim_tokenizer_piece(t, ids.data[i]).len;
            assert_int_equal(n_bytes, n * len); /* nothing is lost */
            brim_ids_free(&ids);
            free(text);
        }
        brim_tokenizer_free(&t);
    }
}

static void refused(struct small_vocab *v, brim_status status, const char *text)
{
    struct brim_tokenizer *t = (struct brim_tokenizer *)v;
    brim_error err = {0};
    assert_int_equal(brim_tokenizer_from_tables(&t, &v->tables, "file", &err), status);
    assert_null(t);
    if (!strstr(err.text, text)) fail_msg("\"%s\" lacks \"%s\"", err.text, text);
    small_vocab_free(v);
}

static void bad_tables_are_refused(void **state)
{
    (void)state;
    struct small_vocab v;
    small_vocab_make(&v, "poro-chat", merges, NULL, NULL);
    refused(&v, BRIM_E_UNSUPPORTED, "file: tokenizer.ggml.pre is \"poro-chat\"");
    small_vocab_make(&v, "gpt-2", merges, NULL, NULL);
    v.tables.pre = NULL;
    refused(&v, BRIM_E_UNSUPPORTED, "(missing)");
    small_vocab_make(&v, "gpt-2", merges, NULL, NULL);
    v.merges[3] = (struct brim_str){"a zz", 4};
    refused(&v, BRIM_E_FORMAT, "merge 3 (\"a\" and \"zz\") names a token");
    small_vocab_make(&v, "gpt-2", merges, NULL, NULL);
    v.merges[3] = (struct brim_str){"b b", 3};
    refused(&v, BRIM_E_FORMAT, "makes a token the vocabulary does not have");
    small_vocab_make(&v, "gpt-2", merges, NULL, NULL);
    v.merges[3] = v.merges[2];
    refused(&v, BRIM_E_FORMAT, "appears twice");
    small_vocab_make(&v, "gpt-2", merges, NULL, NULL);
    v.merges[3] = (struct brim_str){"abc", 3};
    refused(&v, BRIM_E_FORMAT, "merge 3 has no space");
    small_vocab_make(&v, "gpt-2", merges, NULL, NULL);
    v.merges[0] = (struct brim_str){"", 0};
    refused(&v, BRIM_E_FORMAT, "merge 0 has no space");
    small_vocab_make(&v, "gpt-2", merges, NULL, NULL);
    v.tokens[257] = v.tokens[256];
    refused(&v, BRIM_E_FORMAT, "tokens 256 and 257 have the same text");
    small_vocab_make(&v, "gpt-2", merges, specials, NULL);
    v.types[266] = 6;
    refused(&v, BRIM_E_UNSUPPORTED, "token 266 has type 6");
    small_vocab_make(&v, "gpt-2", merges, specials, NULL);
    v.tokens[266] = v.tokens[267];
    refused(&v, BRIM_E_FORMAT, "appears twice");
    small_vocab_make(&v, "gpt-2", NULL, NULL, NULL);
    v.tables.n_token = 0;
    refused(&v, BRIM_E_FORMAT, "a vocabulary of 0 tokens");
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct small_vocab v;
    small_vocab_make(&v, "qwen2", merges, specials, users);
    for (int64_t n = 0;; n++) {
        struct brim_tokenizer *t;
        brim_error err = {0};
        brim_mem_fail_after(n);
        brim_status status = brim_tokenizer_from_tables(&t, &v.tables, "small", &err);
        brim_mem_fail_after(-1);
        if (status == BRIM_OK) {
            assert_true(n > 10);
            brim_tokenizer_free(&t);
            break;
        }
        assert_int_equal(status, BRIM_E_NO_MEMORY);
        assert_null(t);
    }
    small_vocab_free(&v);
    struct brim_tokenizer *t = make("qwen2");
    char text[400];
    memset(text, 'a', sizeof text);
    memcpy(text + 100, "\xFF e\xCC\x81 <think>x", 15);
    struct brim_ids whole = {0};
    assert_int_equal(brim_tokenizer_encode(t, text, sizeof text, true, &whole, NULL), BRIM_OK);
    for (int64_t n = 0;; n++) {
        struct brim_ids ids = {0};
        assert_int_equal(brim_ids_push(&ids, 7, NULL), BRIM_OK);
        brim_mem_fail_after(n);
        brim_status status = brim_tokenizer_encode(t, text, sizeof text, true, &ids, NULL);
        brim_mem_fail_after(-1);
        if (status != BRIM_OK) {
            assert_int_equal(status, BRIM_E_NO_MEMORY);
            assert_int_equal(ids.n, 1);
        } else {
            assert_true(n > 5);
            assert_int_equal(ids.n, whole.n + 1);
            assert_memory_equal(ids.data + 1, whole.data, whole.n * sizeof *whole.data);
        }
        brim_ids_free(&ids);
        if (status == BRIM_OK) break;
    }
    brim_ids_free(&whole);
    brim_tokenizer_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_and_merges),
        cmocka_unit_test(added_tokens),
        cmocka_unit_test(random_merges_equal_the_definition),
        cmocka_unit_test(a_million_equal_characters),
        cmocka_unit_test(bad_tables_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
