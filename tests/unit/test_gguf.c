/* SPDX-License-Identifier: Apache-2.0
 * GGUF: what a good file gives, and that every kind of damage is refused with the right sentence.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "load/gguf.h"
#include "unit/model_files.h"

static brim_status parse_once(struct gguf_writer *w, brim_error *err)
{
    size_t n;
    uint8_t *file = gguf_finish(w, &n);
    struct brim_gguf gguf;
    brim_status status = brim_gguf_parse(&gguf, file, n, "m.gguf", err);
    if (status == BRIM_OK) brim_gguf_free(&gguf);
    assert_null(gguf.values);
    free(file);
    return status;
}

static void expect_refused(struct gguf_writer *w, brim_status status, const char *text)
{
    brim_error err = {0};
    assert_int_equal(parse_once(w, &err), status);
    if (!strstr(err.text, text)) fail_msg("\"%s\" does not contain \"%s\"", err.text, text);
    assert_non_null(strstr(err.text, "m.gguf"));
}

static void configs_of_three_architectures(void **state)
{
    (void)state;
    static const char *const archs[] = {"llama", "qwen2", "qwen3"};
    static const uint32_t types[] = {0, 1, 30, 2, 3, 8};
    for (size_t a = 0; a < 3; a++) {
        for (size_t t = 0; t < 6; t++) {
            struct gguf_writer w = {.version = 2 + t % 2};
            gguf_tiny(&w, archs[a], types[t]);
            size_t n;
            uint8_t *file = gguf_finish(&w, &n);
            struct brim_gguf gguf;
            struct brim_model_config config;
            brim_error err = {0};
            assert_int_equal(brim_gguf_parse(&gguf, file, n, "m", &err), BRIM_OK);
            assert_int_equal(brim_gguf_config(&gguf, "m", &config, &err), BRIM_OK);
            assert_int_equal(config.family, a);
            assert_int_equal(config.n_layer, 2);
            assert_int_equal(config.n_vocab, 96);
            assert_int_equal(config.head_dim, a == 2 ? 32 : 16);
            assert_int_equal(config.qkv_bias, a == 1);
            assert_true(config.tie_embeddings);
            assert_int_equal(config.bos, -1);
            struct brim_weight q;
            assert_int_equal(brim_gguf_weight(&gguf, &config, "m",
                                              "model.layers.1.self_attn.q_proj.weight", &q, &err),
                             BRIM_OK);
            assert_int_equal(q.n_out, 4 * config.head_dim);
            assert_int_equal(q.n_in, 64);
            assert_int_equal(q.n_rope_head, a == 0 ? 4 : 0);
            assert_int_equal(q.data_bytes, q.n_out * brim_weight_row_bytes(&q));
            float row[64];
            brim_weight_row_f32(&q, q.n_out - 1, row);
            for (int i = 0; i < 64; i++) assert_true(isfinite(row[i]));
            assert_int_equal(brim_gguf_weight(&gguf, &config, "m", "lm_head.weight", &q, &err),
                             BRIM_E_MISSING);
            brim_gguf_free(&gguf);
            free(file);
        }
    }
}

static void names(void **state)
{
    (void)state;
    char out[96];
    assert_true(brim_gguf_name("model.layers.31.mlp.down_proj.weight", out, sizeof out));
    assert_string_equal(out, "blk.31.ffn_down.weight");
    assert_true(brim_gguf_name("model.layers.0.self_attn.q_proj.bias", out, sizeof out));
    assert_string_equal(out, "blk.0.attn_q.bias");
    assert_false(brim_gguf_name("model.layers..mlp.down_proj.weight", out, sizeof out));
    assert_false(brim_gguf_name("model.layers.7", out, sizeof out));
    assert_false(brim_gguf_name("model.layers.7.", out, sizeof out));
    assert_false(brim_gguf_name("model.layers.7.mlp.weight", out, sizeof out));
    assert_false(brim_gguf_name("model.layers.7.mlp.down_proj.scales", out, sizeof out));
    assert_false(brim_gguf_name("model.layers.7.mlp.down_proj.weight", out, 8));
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    struct gguf_writer w = {0};
    gguf_tiny(&w, "qwen3", 3);
    size_t n;
    uint8_t *file = gguf_finish(&w, &n);
    for (size_t cut = 0; cut < n; cut = cut < 4000 ? cut + 1 : cut + 997) {
        uint8_t *exact = malloc(cut ? cut : 1);
        memcpy(exact, file, cut);
        struct brim_gguf gguf;
        brim_error err = {0};
        brim_status status = brim_gguf_parse(&gguf, exact, cut, "m", &err);
        assert_int_equal(status, BRIM_E_FORMAT);
        free(exact);
    }
    struct brim_gguf gguf;
    brim_error err = {0};
    assert_int_equal(brim_gguf_parse(&gguf, file, n - 1, "m", &err), BRIM_E_FORMAT);
    assert_non_null(strstr(err.text, "output_norm.weight ends 1 bytes past the end"));
    free(file);
}

static void headers(void **state)
{
    (void)state;
    struct brim_gguf gguf;
    brim_error err = {0};
    assert_int_equal(brim_gguf_parse(&gguf, (const uint8_t *)"GGML0000", 8, "m", &err),
                     BRIM_E_FORMAT);
    assert_int_equal(brim_gguf_parse(&gguf, NULL, 0, "m", &err), BRIM_E_FORMAT);
    struct gguf_writer w = {.version = 1};
    expect_refused(&w, BRIM_E_UNSUPPORTED, "version 1; versions 2 and 3");
    w = (struct gguf_writer){.version = 0x03000000};
    expect_refused(&w, BRIM_E_UNSUPPORTED, "big-endian");
    w = (struct gguf_writer){.n_meta = UINT64_MAX};
    expect_refused(&w, BRIM_E_FORMAT, "metadata entries, more than the file can hold");
    w = (struct gguf_writer){.n_tensor = 1ull << 60};
    expect_refused(&w, BRIM_E_FORMAT, "tensors, more than the file can hold");
    for (uint32_t bad = 0; bad < 5; bad++) {
        static const uint32_t alignments[] = {0, 4, 24, 33, 1 << 21};
        w = (struct gguf_writer){0};
        meta_u32(&w, "general.alignment", alignments[bad]);
        expect_refused(&w, BRIM_E_FORMAT, "general.alignment");
    }
    w = (struct gguf_writer){.alignment = 64};
    meta_u32(&w, "general.alignment", 64);
    gguf_tensor(&w, "a", 0, 1, 0, "abcd", 4);
    gguf_tensor(&w, "b", 0, 1, 0, "abcd", 4);
    assert_int_equal(parse_once(&w, NULL), BRIM_OK);
}

static void metadata(void **state)
{
    (void)state;
    struct gguf_writer w = {0};
    meta_u32(&w, "twice", 1);
    meta_text(&w, "twice", "x");
    expect_refused(&w, BRIM_E_FORMAT, "metadata twice occurs twice");

    w = (struct gguf_writer){.n_meta = 1};
    put_text(&w.meta, "nested");
    put_u32(&w.meta, 9);
    put_u32(&w.meta, 9);
    put_u64(&w.meta, 1);
    expect_refused(&w, BRIM_E_UNSUPPORTED, "nested is an array of arrays");

    w = (struct gguf_writer){.n_meta = 1};
    put_text(&w.meta, "odd");
    put_u32(&w.meta, 13);
    put_u64(&w.meta, 0);
    expect_refused(&w, BRIM_E_FORMAT, "odd has the unknown type 13");

    static const uint64_t counts[] = {UINT64_MAX, 1ull << 61, 1ull << 40, 2};
    for (size_t i = 0; i < 4; i++) {
        for (uint32_t type = 0; type < 13; type++) {
            if (type == 9) continue;
            w = (struct gguf_writer){.n_meta = 1};
            put_text(&w.meta, "big");
            put_u32(&w.meta, 9);
            put_u32(&w.meta, type);
            put_u64(&w.meta, counts[i]);
            /* one byte follows: too short even for two u8 */
            put(&w.meta, "", 1);
            w.alignment = 1;
            assert_int_equal(parse_once(&w, NULL), BRIM_E_FORMAT);
        }
    }
    w = (struct gguf_writer){0};
    meta_bool(&w, "flag", 2);
    expect_refused(&w, BRIM_E_FORMAT, "flag: a truth value");

    w = (struct gguf_writer){.n_meta = 1};
    put_text(&w.meta, "");
    put_u32(&w.meta, 4);
    put_u32(&w.meta, 4);
    expect_refused(&w, BRIM_E_FORMAT, "a metadata key has 0 bytes");
}

static void scalars_of_every_type(void **state)
{
    (void)state;
    struct gguf_writer w = {0};
    static const struct {
        uint32_t type;
        int n;
        uint8_t bits[8];
        double value;
    } rows[] = {{0, 1, {0xFE}, 254},
                {1, 1, {0xFE}, -2},
                {2, 2, {0xFE, 0xFF}, 65534},
                {3, 2, {0xFE, 0xFF}, -2},
                {4, 4, {0, 0, 0, 0x80}, 2147483648.0},
                {5, 4, {0, 0, 0, 0x80}, -2147483648.0},
                {6, 4, {0, 0, 0x80, 0x3F}, 1},
                {10, 8, {1, 0, 0, 0, 1}, 4294967297.0},
                {11, 8, {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, -1},
                {12, 8, {0, 0, 0, 0, 0, 0, 0xF0, 0x3F}, 1}};
    enum { N = sizeof rows / sizeof *rows };
    char key[16];
    for (size_t i = 0; i < N; i++) {
        snprintf(key, sizeof key, "k%zu", i);
        put_text(&w.meta, key);
        put_u32(&w.meta, rows[i].type);
        put(&w.meta, rows[i].bits, (size_t)rows[i].n);
        w.n_meta++;
    }
    meta_bool(&w, "yes", 1);
    meta_text(&w, "text", "abc");
    size_t n;
    uint8_t *file = gguf_finish(&w, &n);
    struct brim_gguf gguf;
    assert_int_equal(brim_gguf_parse(&gguf, file, n, "m", NULL), BRIM_OK);
    for (size_t i = 0; i < N; i++) {
        snprintf(key, sizeof key, "k%zu", i);
        double number = 0;
        int64_t integer = 0;
        assert_true(brim_gguf_number(&gguf, key, &number));
        assert_true(number == rows[i].value);
        bool is_float = rows[i].type == 6 || rows[i].type == 12;
        assert_int_equal(brim_gguf_int(&gguf, key, &integer), !is_float);
        if (!is_float) assert_int_equal(integer, (int64_t)rows[i].value);
    }
    bool yes = false;
    struct brim_str text;
    assert_true(brim_gguf_bool(&gguf, "yes", &yes) && yes);
    assert_false(brim_gguf_bool(&gguf, "k0", &yes));
    assert_true(brim_gguf_string(&gguf, "text", &text));
    assert_int_equal(text.len, 3);
    assert_false(brim_gguf_string(&gguf, "yes", &text));
    assert_null(brim_gguf_find(&gguf, "absent"));
    brim_gguf_free(&gguf);
    free(file);
}

static void tensor_rows(void **state)
{
    (void)state;
    static const uint8_t data[4096];
    struct gguf_writer w = {0};
    gguf_tensor(&w, "t", 0, 4, 0, data, 16);
    gguf_tensor(&w, "t", 0, 4, 0, data, 16);
    expect_refused(&w, BRIM_E_FORMAT, "tensor t is listed twice");

    w = (struct gguf_writer){0};
    gguf_tensor(&w, "odd", 2, 33, 3, data, 40);
    expect_refused(&w, BRIM_E_FORMAT, "odd is Q4_1 but its rows of 33 values");

    w = (struct gguf_writer){0};
    gguf_tensor(&w, "huge", 1ull << 40, 1ull << 40, 0, data, 16);
    expect_refused(&w, BRIM_E_FORMAT, "huge: the product of its dimensions overflows");
    w = (struct gguf_writer){0};
    gguf_tensor(&w, "huge", 1ull << 31, 1ull << 31, 0, data, 16);
    expect_refused(&w, BRIM_E_FORMAT, "huge");
    w = (struct gguf_writer){0};
    gguf_tensor(&w, "empty", 0, 0, 0, data, 16);
    expect_refused(&w, BRIM_E_FORMAT, "empty: dimension 0 is 0");

    /* unknown types: all named at once, with the ones that work */
    w = (struct gguf_writer){0};
    gguf_tensor(&w, "a", 2, 256, 12, data, 288);
    gguf_tensor(&w, "b", 2, 256, 12, data, 288);
    gguf_tensor(&w, "c", 2, 256, 14, data, 420);
    gguf_tensor(&w, "d", 2, 256, 1000, data, 420);
    expect_refused(&w, BRIM_E_UNSUPPORTED,
                   "4 tensors have a type brim does not read (a is Q4_K, c is Q6_K, d is type "
                   "1000); types that work: F32, F16, BF16, Q8_0, Q4_0, Q4_1");

    /* dimensions 0 and 5 */
    for (uint32_t n_dim = 0; n_dim <= 5; n_dim += 5) {
        w = (struct gguf_writer){.n_tensor = 1};
        put_text(&w.rows, "dims");
        put_u32(&w.rows, n_dim);
        for (uint32_t i = 0; i < 8; i++) put_u64(&w.rows, 1);
        expect_refused(&w, BRIM_E_FORMAT, "dims has");
    }
    /* offsets: unaligned, past the end, overflowing, overlapping */
    static const struct {
        uint64_t offset;
        const char *text;
    } bad[] = {{8, "is no multiple of the alignment"},
               {1 << 20, "past the end"},
               {~31ull, "tensor two"},
               {0, "tensors one and two overlap"},
               {32, "tensors one and two overlap"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        w = (struct gguf_writer){0};
        gguf_tensor(&w, "one", 0, 16, 0, data, 64);
        gguf_tensor(&w, "two", 0, 16, 0, data, 64);
        memcpy(w.rows.data + w.rows.n - 8, &bad[i].offset, 8);
        expect_refused(&w, BRIM_E_FORMAT, bad[i].text);
    }
    w = (struct gguf_writer){0};
    gguf_tensor(&w, "bad\nname", 0, 4, 0, data, 16);
    expect_refused(&w, BRIM_E_FORMAT, "control characters");
}

/* One change to a good file's metadata: what the configuration reader says. */
static void expect_config(struct gguf_writer *w, brim_status wanted, const char *text,
                          struct brim_model_config *config)
{
    size_t n;
    uint8_t *file = gguf_finish(w, &n);
    struct brim_gguf gguf;
    brim_error err = {0};
    assert_int_equal(brim_gguf_parse(&gguf, file, n, "m", &err), BRIM_OK);
    brim_status status = brim_gguf_config(&gguf, "m", config, &err);
    if (status != wanted || (text && !strstr(err.text, text)))
        fail_msg("%d, \"%s\": expected \"%s\"", status, err.text, text);
    brim_gguf_free(&gguf);
    free(file);
}

static void config_keys(void **state)
{
    (void)state;
    struct brim_model_config config;
    struct gguf_writer w = {0};
    expect_config(&w, BRIM_E_MISSING, "general.architecture", &config);
    meta_text(&w, "general.architecture", "gemma3");
    expect_config(&w, BRIM_E_UNSUPPORTED, "gemma3; llama, qwen2 and qwen3 work", &config);
    w = (struct gguf_writer){0};
    meta_text(&w, "general.architecture", "llama");
    expect_config(&w, BRIM_E_MISSING, "llama.block_count is missing", &config);

    static const struct {
        const char *key;
        uint32_t value;
        const char *text;
    } refused[] = {{"llama.expert_count", 8, "expert_count"},
                   {"llama.attention.sliding_window", 4096, "sliding_window"},
                   {"llama.rope.dimension_count", 8, "rope.dimension_count"},
                   {"llama.attention.value_length", 8, "value_length"},
                   {"split.count", 3, "one of 3 parts"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        w = (struct gguf_writer){0};
        gguf_tiny(&w, "llama", 8);
        meta_u32(&w, refused[i].key, refused[i].value);
        expect_config(&w, BRIM_E_UNSUPPORTED, refused[i].text, &config);
    }
    w = (struct gguf_writer){0};
    gguf_tiny(&w, "llama", 8);
    meta_text(&w, "llama.rope.scaling.type", "longrope");
    expect_config(&w, BRIM_E_UNSUPPORTED, "longrope", &config);

    w = (struct gguf_writer){0};
    gguf_tiny(&w, "qwen3", 8);
    meta_text(&w, "qwen3.rope.scaling.type", "yarn");
    meta_f32(&w, "qwen3.rope.scaling.factor", 4.0f);
    meta_u32(&w, "qwen3.rope.scaling.original_context_length", 128);
    expect_config(&w, BRIM_OK, NULL, &config);
    assert_int_equal(config.rope.kind, BRIM_ROPE_YARN);
    assert_true(config.rope.factor == 4 && config.rope.original_context == 128);
    assert_true(config.rope.beta_fast == 32 && config.rope.beta_slow == 1);
    assert_true(config.rope.attention_factor == 0);

    w = (struct gguf_writer){0};
    gguf_tiny(&w, "qwen3", 8);
    meta_text(&w, "qwen3.rope.scaling.type", "linear");
    meta_f32(&w, "qwen3.rope.scaling.factor", -4.0f);
    expect_config(&w, BRIM_E_UNSUPPORTED, "rope scaling factor is -4", &config);
}

static void llama3_scaling_from_factors(void **state)
{
    (void)state;
    /* head size 16, theta 500000: factors of Llama 3.1's rule for 8, 8192, 1, 4. Pair 3 has a
     * wavelength of 862 (short, kept), pair 4 of 4443 (between), pair 5 of 22911 (long). */
    float factors[8];
    for (int i = 0; i < 8; i++) {
        double wave = 2 * 3.14159265358979323846 * pow(500000.0, i / 8.0);
        double smooth = (8192 / wave - 1) / 3;
        factors[i] = wave < 2048   ? 1.0f
                     : wave > 8192 ? 8.0f
                                   : (float)(1 / ((1 - smooth) / 8 + smooth));
    }
    assert_true(factors[3] == 1 && factors[4] > 1 && factors[4] < 8 && factors[5] == 8);
    for (int broken = 0; broken < 2; broken++) {
        struct gguf_writer w = {0};
        gguf_tiny(&w, "llama", 8);
        uint8_t *theta = w.meta.data + w.meta.n - 4; /* rope.freq_base is the last key */
        float base = 500000.0f;
        memcpy(theta, &base, 4);
        if (broken) factors[4] *= 1.1f;
        gguf_tensor(&w, "rope_freqs.weight", 0, 8, 0, factors, sizeof factors);
        struct brim_model_config config;
        expect_config(&w, broken ? BRIM_E_UNSUPPORTED : BRIM_OK, broken ? "rope_freqs" : NULL,
                      &config);
        if (broken) continue;
        assert_int_equal(config.rope.kind, BRIM_ROPE_LLAMA3);
        assert_true(config.rope.factor == 8 && config.rope.original_context == 8192);
        assert_true(config.rope.low_freq_factor == 1 && config.rope.high_freq_factor == 4);
    }
}

static void end_tokens(void **state)
{
    (void)state;
    static const char *const tokens[] = {"a", "<|endoftext|>", "<|im_end|>", "<|im_end|>", "b"};
    static const int32_t types[] = {1, 3, 1, 3, 1};
    struct gguf_writer w = {0};
    gguf_tiny(&w, "llama", 8);
    meta_texts(&w, "tokenizer.ggml.tokens", tokens, 5);
    meta_i32s(&w, "tokenizer.ggml.token_type", types, 5);
    meta_u32(&w, "tokenizer.ggml.eos_token_id", 4);
    meta_u32(&w, "tokenizer.ggml.eot_token_id", 1000); /* beyond the vocabulary: ignored */
    meta_u32(&w, "tokenizer.ggml.bos_token_id", 0);
    meta_text(&w, "tokenizer.ggml.pre", "llama-bpe");
    struct brim_model_config config;
    expect_config(&w, BRIM_OK, NULL, &config);
    assert_int_equal(config.n_eos, 3);
    assert_int_equal(config.eos[0], 4);
    assert_int_equal(config.eos[1], 1);
    assert_int_equal(config.eos[2], 3);
    assert_int_equal(config.bos, 0);
    assert_true(config.add_bos);
}

/* The permutation of weight.h: file rows of a Llama q projection. */
static void rotary_rows(void **state)
{
    (void)state;
    struct brim_weight w = {.n_out = 16, .n_in = 32, .n_rope_head = 2};
    static const int64_t head[] = {0, 2, 4, 6, 1, 3, 5, 7};
    for (int64_t row = 0; row < 16; row++)
        assert_int_equal(brim_weight_file_row(&w, row), row / 8 * 8 + head[row % 8]);
}

static void allocation_failures(void **state)
{
    (void)state;
    struct gguf_writer w = {0};
    gguf_tiny(&w, "qwen2", 3);
    size_t n;
    uint8_t *file = gguf_finish(&w, &n);
    struct brim_gguf gguf;
    int n_failed = 0;
    for (int64_t after = 0;; after++) {
        brim_mem_fail_after(after);
        brim_status status = brim_gguf_parse(&gguf, file, n, "m", NULL);
        brim_mem_fail_after(-1);
        if (status == BRIM_OK) break;
        assert_int_equal(status, BRIM_E_NO_MEMORY);
        n_failed++;
    }
    assert_true(n_failed > 20);
    brim_gguf_free(&gguf);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configs_of_three_architectures),
        cmocka_unit_test(names),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(headers),
        cmocka_unit_test(metadata),
        cmocka_unit_test(scalars_of_every_type),
        cmocka_unit_test(tensor_rows),
        cmocka_unit_test(config_keys),
        cmocka_unit_test(llama3_scaling_from_factors),
        cmocka_unit_test(end_tokens),
        cmocka_unit_test(rotary_rows),
        cmocka_unit_test(allocation_failures),
    };
    return cmocka_run_group_tests_name("gguf", tests, NULL, NULL);
}
