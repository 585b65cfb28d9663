/* SPDX-License-Identifier: Apache-2.0
 * The golden strings: every id equal to Hugging Face's tokenizers (and llama.cpp) on the same
 * vocabulary. The vocabularies are fetched into the cache by tools/fetch_model.sh and
 * tools/fetch_tokenizers.sh; without one its tests are skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "gguf_vocab.h"
#include "text_files.h"
#include "text/utf8.h"

enum { MAX_LINE = 1 << 16, MIN_STRINGS = 2000 };

/* Compare `tokenizer` with `name`, whose "=" lines stand for those of `base`. */
static void compare(const struct brim_tokenizer *tokenizer, const char *name, const char *base)
{
    char path[4096];
    FILE *strings = fopen(GOLDEN_DIR "strings.txt", "r");
    snprintf(path, sizeof path, GOLDEN_DIR "%s", name);
    FILE *ids_file = fopen(path, "r");
    snprintf(path, sizeof path, GOLDEN_DIR "%s", base ? base : name);
    FILE *base_file = fopen(path, "r");
    assert_true(strings && ids_file && base_file);
    char *text = malloc(MAX_LINE), *line = malloc(MAX_LINE), *other = malloc(MAX_LINE);
    char *shown = malloc(MAX_LINE);
    int n_string = 0, n_bad = 0, n_exception = 0;
    while (golden_line(strings, text, MAX_LINE)) {
        assert_non_null(golden_line(ids_file, line, MAX_LINE));
        assert_non_null(golden_line(base_file, other, MAX_LINE));
        n_string++;
        if (line[0] == 'x') {
            n_exception++;
            continue;
        }
        strcpy(shown, text);
        size_t len = golden_unescape(text + 2);
        char *exact = malloc(len ? len : 1);
        memcpy(exact, text + 2, len);
        struct brim_ids ids = {0};
        brim_error err = {0};
        if (brim_tokenizer_encode(tokenizer, exact, len, text[0] == 'p', &ids, &err) != BRIM_OK)
            fail_msg("%s: %s", shown, err.text);
        const char *at = line[0] == '=' ? other : line;
        bool same = true;
        size_t n = 0;
        for (char *end; same; at = end, n++) {
            long id = strtol(at, &end, 10);
            if (end == at) break;
            same = n < ids.n && ids.data[n] == id;
        }
        if (!same || n != ids.n) {
            print_error("%s line %d: %s\n  expected %s\n  got     ", name, n_string, shown,
                        line[0] == '=' ? other : line);
            for (size_t i = 0; i < ids.n; i++) print_error(" %d", (int)ids.data[i]);
            print_error("\n");
            n_bad++;
        }
        brim_ids_free(&ids);
        free(exact);
    }
    assert_null(golden_line(ids_file, line, MAX_LINE));
    free(text);
    free(line);
    free(other);
    free(shown);
    fclose(strings);
    fclose(ids_file);
    fclose(base_file);
    if (n_bad) fail_msg("%s: %d of %d strings differ", name, n_bad, n_string);
    assert_true(n_string >= MIN_STRINGS);
    assert_true(n_exception <= 40);
}

/* What is encoded comes back, apart from bytes that no token stands for and what normalization
 * changes: so only on text that is ASCII. */
static void decode_gives_the_text_back(const struct brim_tokenizer *tokenizer)
{
    FILE *strings = fopen(GOLDEN_DIR "strings.txt", "r");
    assert_non_null(strings);
    char *text = malloc(MAX_LINE);
    int n_string = 0;
    while (golden_line(strings, text, MAX_LINE)) {
        size_t len = golden_unescape(text + 2), n = 0;
        bool ascii = true;
        for (size_t i = 0; i < len; i++)
            if ((unsigned char)text[2 + i] >= 0x7F || (unsigned char)text[2 + i] < 9) ascii = false;
        if (!ascii) continue;
        struct brim_ids ids = {0};
        assert_int_equal(
            brim_tokenizer_encode(tokenizer, text + 2, len, text[0] == 'p', &ids, NULL), BRIM_OK);
        for (size_t i = 0; i < ids.n; i++) {
            struct brim_str piece = brim_tokenizer_piece(tokenizer, ids.data[i]);
            assert_true(piece.len <= len - n);
            assert_memory_equal(text + 2 + n, piece.data, piece.len);
            n += piece.len;
        }
        assert_int_equal(n, len);
        brim_ids_free(&ids);
        n_string++;
    }
    free(text);
    fclose(strings);
    assert_true(n_string > 500);
}

static struct brim_tokenizer *open_gguf(const char *path)
{
    struct gguf_vocab v;
    struct brim_tokenizer *t;
    brim_error err = {0};
    if (!gguf_vocab_open(&v, path)) {
        print_message("SKIP: no %s\n", path);
        skip();
    }
    if (brim_tokenizer_from_tables(&t, &v.tables, path, &err) != BRIM_OK) fail_msg("%s", err.text);
    gguf_vocab_close(&v);
    return t;
}

static struct brim_tokenizer *open_qwen(bool qwen3)
{
    size_t n = 0;
    char *json = qwen_json(qwen3, &n);
    struct brim_tokenizer *t;
    brim_error err = {0};
    if (!json) {
        print_message("SKIP: no %s (tools/fetch_tokenizers.sh brings it)\n", qwen_file());
        skip();
    }
    if (brim_tokenizer_from_json(&t, json, n, qwen_file(), &err) != BRIM_OK)
        fail_msg("%s", err.text);
    free(json);
    return t;
}

static void smollm2(void **state)
{
    (void)state;
    struct brim_tokenizer *t = open_gguf(smollm2_file());
    compare(t, "smollm2.ids", NULL);
    decode_gives_the_text_back(t);
    brim_tokenizer_free(&t);
}

static void smollm2_llama_cpp(void **state)
{
    (void)state;
    struct brim_tokenizer *t = open_gguf(smollm2_file());
    compare(t, "smollm2-llamacpp.ids", "smollm2.ids");
    brim_tokenizer_free(&t);
}

static void qwen2(void **state)
{
    (void)state;
    struct brim_tokenizer *t = open_qwen(false);
    compare(t, "qwen2.ids", NULL);
    decode_gives_the_text_back(t);
    assert_int_equal(brim_tokenizer_n_vocab(t), 151646);
    assert_true(brim_tokenizer_pattern_is_known(t));
    brim_tokenizer_free(&t);
}

static void qwen3(void **state)
{
    (void)state;
    struct brim_tokenizer *t = open_qwen(true);
    compare(t, "qwen3.ids", "qwen2.ids");
    assert_int_equal(brim_tokenizer_n_vocab(t), 151669);
    brim_tokenizer_free(&t);
}

/* Vocabularies that only a source tree of llama.cpp carries: checked where a developer has one. */
static void other_vocabularies(void **state)
{
    (void)state;
    static const char *const names[] = {"llama-bpe", "gpt-2", "qwen2"};
    const char *dir = getenv("BRIM_TEST_LLAMA_CPP");
    if (!dir) {
        print_message("SKIP: BRIM_TEST_LLAMA_CPP does not name a source tree of llama.cpp\n");
        skip();
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[4096], ids[64];
        snprintf(path, sizeof path, "%s/models/ggml-vocab-%s.gguf", dir, names[i]);
        snprintf(ids, sizeof ids, "%s.ids", names[i]);
        struct brim_tokenizer *t = open_gguf(path);
        compare(t, ids, NULL);
        brim_tokenizer_free(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smollm2), cmocka_unit_test(smollm2_llama_cpp),  cmocka_unit_test(qwen2),
        cmocka_unit_test(qwen3),   cmocka_unit_test(other_vocabularies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
