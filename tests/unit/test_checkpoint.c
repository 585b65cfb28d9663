/* SPDX-License-Identifier: Apache-2.0
 * Whole checkpoints on disk, both formats: weights by name, shards and index, what is missing. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "load/checkpoint.h"
#include "unit/model_files.h"

static char warnings[2000];

static void note_warning(void *ctx, const char *text)
{
    (void)ctx;
    size_t n = strlen(warnings);
    snprintf(warnings + n, sizeof warnings - n, "%s\n", text);
}

static struct brim_checkpoint *open_ok(const char *path)
{
    struct brim_checkpoint *checkpoint;
    brim_error err = {0};
    warnings[0] = '\0';
    brim_status status = brim_checkpoint_open(&checkpoint, path, note_warning, NULL, &err);
    if (status != BRIM_OK) fail_msg("%s", err.text);
    return checkpoint;
}

static void expect_failure(const char *path, brim_status wanted, const char *const *texts)
{
    struct brim_checkpoint *checkpoint = (void *)&warnings;
    brim_error err = {0};
    brim_status status = brim_checkpoint_open(&checkpoint, path, note_warning, NULL, &err);
    assert_null(checkpoint);
    if (status != wanted) fail_msg("%d %s", status, err.text);
    for (; *texts; texts++)
        if (!strstr(err.text, *texts)) fail_msg("\"%s\": expected \"%s\"", err.text, *texts);
}
#define EXPECT_FAILURE(path, wanted, ...) \
    expect_failure(path, wanted, (const char *const[]){__VA_ARGS__, NULL})

/* The same numbers whatever the alignment, the shards and the scale type: compare with a reading of
 * the definition. */
static void check_tiny(struct brim_checkpoint *checkpoint, const struct hf_tiny *o)
{
    struct brim_weight_source source = brim_checkpoint_source(checkpoint);
    struct brim_weight w;
    assert_true(source.find(source.ctx, "model.layers.1.mlp.down_proj.weight", &w));
    assert_int_equal(w.n_out, 128);
    assert_int_equal(w.n_in, 256);
    assert_int_equal(w.kind, o->group ? BRIM_WEIGHT_AFFINE4 : BRIM_WEIGHT_DENSE);
    assert_int_equal(w.group, o->group);
    const char *dtype = o->dtype ? o->dtype : "BF16";
    assert_string_equal(brim_dtype_name(w.dtype), dtype[0] == 'B'             ? "bf16"
                                                  : strcmp(dtype, "F16") == 0 ? "f16"
                                                                              : "f32");
    float row[256];
    brim_weight_row_f32(&w, 127, row);
    for (int i = 0; i < 256; i++) {
        float expected;
        if (o->group) {
            uint32_t word;
            memcpy(&word, (const uint8_t *)w.data + ((size_t)127 * 32 + (size_t)i / 8) * 4, 4);
            size_t g = (size_t)127 * (size_t)(256 / o->group) + (size_t)(i / o->group);
            expected = brim_dtype_load(w.dtype, w.scales, g) * (float)(word >> (i % 8 * 4) & 15) +
                       brim_dtype_load(w.dtype, w.biases, g);
        } else {
            expected = brim_dtype_load(w.dtype, w.data, (size_t)127 * 256 + (size_t)i);
        }
        assert_true(row[i] == expected && isfinite(row[i]));
    }
    assert_true(source.find(source.ctx, "model.norm.weight", &w));
    assert_int_equal(w.n_out, 1);
    assert_int_equal(w.n_in, 128);
    assert_false(source.find(source.ctx, "lm_head.weight", &w));
    assert_true(source.find(source.ctx, "model.embed_tokens.weight", &w));
    source.release(source.ctx, &w);
    brim_weight_row_f32(&w, 39, row); /* pages come back from the file */
    assert_true(isfinite(row[0]));
}

static void formats_of_weights(void **state) /* Q19, Q20 */
{
    (void)state;
    static const char *const dtypes[] = {"BF16", "F16", "F32"};
    static const int groups[] = {0, 32, 64, 128};
    static const char *const families[] = {"llama", "qwen2", "qwen3"};
    char dir[256];
    make_dir(dir);
    for (int i = 0; i < 36; i++) {
        struct hf_tiny o = {.dtype = dtypes[i % 3],
                            .group = groups[i / 3 % 4],
                            .model_type = families[i / 12],
                            .remainder = i % 8};
        hf_tiny_write(dir, &o);
        struct brim_checkpoint *checkpoint = open_ok(dir);
        assert_string_equal(warnings, "");
        const struct brim_model_config *config = brim_checkpoint_config(checkpoint);
        assert_int_equal(config->family, i / 12);
        assert_int_equal(config->eos[0], 3);
        assert_string_equal(brim_checkpoint_format(checkpoint), "safetensors");
        check_tiny(checkpoint, &o);
        size_t n = brim_checkpoint_n_tensor(checkpoint);
        uint64_t n_bytes = 0;
        for (size_t k = 0; k < n; k++) {
            struct brim_tensor_info info;
            brim_checkpoint_tensor_info(checkpoint, k, &info);
            n_bytes += info.n_bytes;
        }
        assert_true(n_bytes < brim_checkpoint_file_bytes(checkpoint));
        assert_true(n_bytes > brim_checkpoint_file_bytes(checkpoint) - 16384);
        brim_checkpoint_close(&checkpoint);
        assert_null(checkpoint);
    }
    remove_dir(dir);
}

static void shards_with_and_without_index(void **state) /* S12 */
{
    (void)state;
    char dir[256];
    make_dir(dir);
    for (int with_index = 0; with_index < 2; with_index++) {
        struct hf_tiny o = {.group = 64, .n_shard = 3, .with_index = with_index, .remainder = 1};
        hf_tiny_write(dir, &o);
        struct brim_checkpoint *checkpoint = open_ok(dir);
        assert_string_equal(warnings, "");
        check_tiny(checkpoint, &o);
        brim_checkpoint_close(&checkpoint);
    }
    remove_dir(dir);
}

static void missing_shards(void **state) /* S10, S14 */
{
    (void)state;
    static const char *const names[] = {"model-00001-of-00003.safetensors",
                                        "model-00002-of-00003.safetensors",
                                        "model-00003-of-00003.safetensors"};
    static const char *const held[] = {"model.embed_tokens.weight", "model.layers.0.",
                                       "model.layers.1."};
    for (int with_index = 0; with_index < 2; with_index++) {
        for (int i = 0; i < 3; i++) {
            char dir[256];
            make_dir(dir);
            struct hf_tiny o = {.n_shard = 3, .with_index = with_index};
            hf_tiny_write(dir, &o);
            remove_in(dir, names[i]);
            if (with_index)
                EXPECT_FAILURE(dir, BRIM_E_MISSING, dir, "1 of 3 files", names[i], held[i],
                               "download");
            else
                EXPECT_FAILURE(dir, BRIM_E_MISSING, dir, "1 of 3 files", names[i], "download");
            remove_dir(dir);
        }
    }
}

static void stale_index_and_stray_files(void **state) /* S11 */
{
    (void)state;
    char dir[256];
    make_dir(dir);
    struct hf_tiny o = {.group = 32, .n_shard = 2, .with_index = 1};
    hf_tiny_write(dir, &o);
    struct hf_tiny stray = {.group = 0};
    hf_tiny_write(dir, &stray); /* model.safetensors with the same names, dense */
    hf_tiny_write(dir, &o);
    struct brim_checkpoint *checkpoint = open_ok(dir);
    assert_non_null(strstr(warnings, "model.safetensors is not in the index and is ignored"));
    check_tiny(checkpoint, &o);
    brim_checkpoint_close(&checkpoint);

    remove_in(dir, "model-00001-of-00002.safetensors");
    remove_in(dir, "model-00002-of-00002.safetensors");
    EXPECT_FAILURE(dir, BRIM_E_MISSING, "2 of 2 files", "the index may be stale: delete it");

    /* an index that names a tensor its file does not hold */
    write_text(dir, "model.safetensors.index.json",
               "{\"weight_map\":{\"ghost\":\"model.safetensors\"}}");
    EXPECT_FAILURE(dir, BRIM_E_MISSING, "model.safetensors lacks tensor ghost");
    static const char *const bad[] = {
        "{\"weight_map\":{\"a\":\"../model.safetensors\"}}", "{\"weight_map\":{\"a\":1}}",
        "{\"weight_map\":{\"a\":\"model.bin\"}}", "{\"weight_map\":{}}", "{}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_text(dir, "model.safetensors.index.json", bad[i]);
        EXPECT_FAILURE(dir, BRIM_E_FORMAT, "model.safetensors.index.json");
    }
    /* two sets of shards side by side */
    remove_in(dir, "model.safetensors.index.json");
    o.with_index = 0;
    hf_tiny_write(dir, &o);
    o.n_shard = 3;
    hf_tiny_write(dir, &o);
    EXPECT_FAILURE(dir, BRIM_E_FORMAT, "different sets of files");
    remove_dir(dir);
}

static void index_decides_between_files(void **state)
{
    (void)state;
    char dir[256];
    make_dir(dir);
    struct hf_tiny o = {.group = 64, .n_shard = 2, .with_index = 1};
    hf_tiny_write(dir, &o);
    /* the second shard is replaced by one that also holds tensors of the first */
    struct hf_tiny whole = {.group = 64};
    char other[256];
    make_dir(other);
    hf_tiny_write(other, &whole);
    char from[600], to[600];
    snprintf(from, sizeof from, "%s/model.safetensors", other);
    snprintf(to, sizeof to, "%s/model-00002-of-00002.safetensors", dir);
    assert_int_equal(rename(from, to), 0);
    struct brim_checkpoint *checkpoint = open_ok(dir);
    assert_non_null(strstr(warnings, "not assigned to their file"));
    check_tiny(checkpoint, &o);
    brim_checkpoint_close(&checkpoint);
    remove_in(dir, "model.safetensors.index.json");
    EXPECT_FAILURE(dir, BRIM_E_FORMAT, "is listed twice");
    remove_dir(other);
    remove_dir(dir);
}

static void truncated_shard(void **state) /* S3 */
{
    (void)state;
    char dir[256], path[600];
    make_dir(dir);
    struct hf_tiny o = {.n_shard = 2};
    hf_tiny_write(dir, &o);
    snprintf(path, sizeof path, "%s/model-00002-of-00002.safetensors", dir);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 1024), 0);
    EXPECT_FAILURE(dir, BRIM_E_FORMAT, path, "1024 bytes are missing", "download");
    assert_int_equal(truncate(path, 0), 0);
    EXPECT_FAILURE(dir, BRIM_E_FORMAT, path, "truncated: 0 bytes");
    remove_dir(dir);
}

static void missing_tensors_are_listed(void **state)
{
    (void)state;
    char dir[256];
    make_dir(dir);
    struct hf_tiny o = {.skip = "model.layers.1.self_attn.q_norm.weight"};
    hf_tiny_write(dir, &o);
    EXPECT_FAILURE(dir, BRIM_E_MISSING, "1 of 24 tensors are missing", o.skip);
    /* a Qwen2 configuration over Llama weights: six biases */
    struct hf_tiny llama = {.model_type = "llama"};
    hf_tiny_write(dir, &llama);
    char config[600], path[600];
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *file = fopen(path, "rb");
    size_t n = fread(config, 1, sizeof config - 1, file);
    fclose(file);
    config[n] = '\0';
    memcpy(strstr(config, "llama"), "qwen2", 5);
    write_text(dir, "config.json", config);
    EXPECT_FAILURE(dir, BRIM_E_MISSING, "6 of 26 tensors are missing",
                   "model.layers.0.self_attn.q_proj.bias", "...");
    struct hf_tiny no_biases = {.group = 32, .skip = "model.layers.0.mlp.up_proj.biases"};
    hf_tiny_write(dir, &no_biases);
    EXPECT_FAILURE(dir, BRIM_E_MISSING, "model.layers.0.mlp.up_proj.biases");
    struct hf_tiny no_scales = {.group = 32, .skip = "model.layers.0.mlp.up_proj.scales"};
    hf_tiny_write(dir, &no_scales);
    EXPECT_FAILURE(dir, BRIM_E_UNSUPPORTED, "model.layers.0.mlp.up_proj.weight has type U32");
    /* not said whether tied: the missing head says it */
    struct hf_tiny whole = {0};
    hf_tiny_write(dir, &whole);
    file = fopen(path, "rb");
    n = fread(config, 1, sizeof config - 1, file);
    fclose(file);
    config[n] = '\0';
    memcpy(strstr(config, ":true") + 1, "null", 4);
    write_text(dir, "config.json", config);
    struct brim_checkpoint *checkpoint = open_ok(dir);
    assert_true(brim_checkpoint_config(checkpoint)->tie_embeddings);
    brim_checkpoint_close(&checkpoint);
    remove_dir(dir);
}

/* One tensor of a quantized checkpoint replaced: the file is written by hand. */
static void bad_quantized_tensors(void **state) /* Q21 */
{
    (void)state;
    static const struct {
        const char *weight_shape, *scales_dtype, *scales_shape, *biases_dtype, *biases_shape;
        brim_status status;
        const char *text;
    } rows[] = {
        /* 200 inputs in groups of 128 */
        {"[40,25]", "BF16", "[40,2]", "BF16", "[40,2]", BRIM_E_SHAPE, "25 words in a row"},
        {"[40,16]", "BF16", "[40,2]", "BF16", "[40,1]", BRIM_E_SHAPE, "scales must have the shape"},
        {"[40,16]", "BF16", "[40,1]", "BF16", "[40,2]", BRIM_E_SHAPE, "biases must have the shape"},
        {"[40,16]", "BF16", "[39,1]", "BF16", "[40,1]", BRIM_E_SHAPE, "[40, 1]"},
        {"[40,16]", "BF16", "[40]", "BF16", "[40,1]", BRIM_E_SHAPE, "scales"},
        {"[40,16]", "F16", "[40,1]", "BF16", "[40,1]", BRIM_E_FORMAT, "must have one type"},
        {"[40,16]", "F64", "[40,1]", "F64", "[40,1]", BRIM_E_FORMAT, "must have one type"},
        {"[640]", "BF16", "[40,1]", "BF16", "[40,1]", BRIM_E_FORMAT, "U32 with 1"},
        {"[0,16]", "BF16", "[0,1]", "BF16", "[0,1]", BRIM_E_SHAPE, "model.embed_tokens.weight"},
        {"[40,0]", "BF16", "[40,0]", "BF16", "[40,0]", BRIM_E_SHAPE, "model.embed_tokens.weight"},
    };
    static const uint8_t data[8192];
    char dir[256];
    make_dir(dir);
    struct hf_tiny o = {.group = 128};
    hf_tiny_write(dir, &o);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct st_writer w = {0};
        for (int part = 0; part < 3; part++) {
            const char *shape = part == 0   ? rows[i].weight_shape
                                : part == 1 ? rows[i].scales_shape
                                            : rows[i].biases_shape;
            const char *dtype = part == 0   ? "U32"
                                : part == 1 ? rows[i].scales_dtype
                                            : rows[i].biases_dtype;
            long a = 0, b = 1;
            sscanf(shape, "[%ld,%ld", &a, &b);
            size_t item = strcmp(dtype, "F64") == 0 ? 8 : strcmp(dtype, "U32") == 0 ? 4 : 2;
            static const char *const names[] = {"model.embed_tokens.weight",
                                                "model.embed_tokens.scales",
                                                "model.embed_tokens.biases"};
            st_tensor(&w, names[part], dtype, shape, data, (size_t)(a * b) * item);
        }
        size_t n;
        uint8_t *file = st_finish(&w, 0, &n);
        write_in(dir, "model.safetensors", file, n);
        free(file);
        EXPECT_FAILURE(dir, rows[i].status, rows[i].text, dir);
    }
    /* scales without a quantization entry */
    hf_tiny_write(dir, &o);
    struct hf_tiny plain = {.group = 0};
    char other[256], from[600], to[600];
    make_dir(other);
    hf_tiny_write(other, &plain);
    snprintf(from, sizeof from, "%s/config.json", other);
    snprintf(to, sizeof to, "%s/config.json", dir);
    assert_int_equal(rename(from, to), 0);
    EXPECT_FAILURE(dir, BRIM_E_FORMAT, "scales is there but config.json has no quantization");
    remove_dir(other);
    remove_dir(dir);
}

static void module_exceptions(void **state)
{
    (void)state;
    char dir[256];
    make_dir(dir);
    /* group 64 for the model, 32 said for one module whose tensors have 64: refused by shape */
    struct hf_tiny o = {.group = 64};
    hf_tiny_write(dir, &o);
    write_text(dir, "config.json",
               "{\"model_type\":\"qwen3\",\"hidden_size\":128,\"num_hidden_layers\":2,"
               "\"intermediate_size\":256,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
               "\"head_dim\":32,\"vocab_size\":40,\"max_position_embeddings\":512,"
               "\"tie_word_embeddings\":true,\"quantization_config\":{\"group_size\":32,\"bits\":4,"
               "\"model.norm\":false,\"model.embed_tokens\":{\"group_size\":64,\"bits\":4}}}");
    EXPECT_FAILURE(dir, BRIM_E_SHAPE, "model.layers.0.self_attn.q_proj.scales", "groups of 32");
    remove_dir(dir);
}

static void paths(void **state)
{
    (void)state;
    char dir[256], path[600];
    make_dir(dir);
    EXPECT_FAILURE("/nonexistent/model", BRIM_E_MISSING, "/nonexistent/model: cannot open");
    EXPECT_FAILURE(dir, BRIM_E_MISSING, "no config.json");
    write_text(dir, "model.gguf", "GG");
    snprintf(path, sizeof path, "%s/model.gguf", dir);
    EXPECT_FAILURE(path, BRIM_E_FORMAT, "the file ends inside the header");
    write_text(dir, "model.gguf", "");
    EXPECT_FAILURE(path, BRIM_E_FORMAT, "the file ends inside the header");
    struct hf_tiny o = {0};
    hf_tiny_write(dir, &o);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    EXPECT_FAILURE(path, BRIM_E_ARGUMENT, "give the directory");
    remove_in(dir, "model.safetensors");
    EXPECT_FAILURE(dir, BRIM_E_MISSING, "no .safetensors file");
    /* any other name is taken when there is no model*.safetensors */
    hf_tiny_write(dir, &o);
    char other[600];
    snprintf(other, sizeof other, "%s/weights.safetensors", dir);
    assert_int_equal(rename(path, other), 0);
    struct brim_checkpoint *checkpoint = open_ok(dir);
    brim_checkpoint_close(&checkpoint);
    remove_dir(dir);
}

static void texts(void **state)
{
    (void)state;
    char dir[256];
    make_dir(dir);
    struct hf_tiny o = {.model_type = "llama", .config_tail = ",\"bos_token_id\":1"};
    hf_tiny_write(dir, &o);
    struct brim_checkpoint *checkpoint = open_ok(dir);
    struct brim_tokenizer *tokenizer;
    enum brim_chat_family family;
    brim_error err = {0};
    assert_int_equal(brim_checkpoint_take_tokenizer(checkpoint, &tokenizer, &err), BRIM_E_MISSING);
    assert_null(tokenizer);
    assert_int_equal(brim_checkpoint_chat_family(checkpoint, &family, &err), BRIM_E_MISSING);
    assert_false(brim_checkpoint_config(checkpoint)->add_bos);
    assert_int_equal(brim_checkpoint_config(checkpoint)->bos, 1);
    brim_checkpoint_close(&checkpoint);

    static const struct {
        const char *tokenizer, *config;
        bool add_bos;
    } rows[] = {
        {"{\"post_processor\" : {\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"
         "\"id\":\"<s>\"}},{\"Sequence\":{}}]},\"model\":{}}",
         "{}", true},
        {"{\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},{"
         "\"single\":[{\"SpecialToken\":{}}]}]}}",
         "{}", true},
        {"{\"model\":{\"vocab\":{\"post_processor\":7}},\"post_processor\":{\"type\":\"ByteLevel\"}"
         "}",
         "{}", false},
        {"{\"model\":{\"vocab\":{\"post_processor\":7}}}", "{}", false},
        {"{\"post_processor\":{", "{}", false},
        {"{\"post_processor\"", "{}", false},
        {"", "{}", false},
        {"{}", "{\"add_bos_token\":true}", true},
        {"{\"post_processor\":{\"single\":[{\"SpecialToken\":{}}]}}", "{\"add_bos_token\":false}",
         false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_text(dir, "tokenizer.json", rows[i].tokenizer);
        write_text(dir, "tokenizer_config.json", rows[i].config);
        checkpoint = open_ok(dir);
        assert_int_equal(brim_checkpoint_config(checkpoint)->add_bos, rows[i].add_bos);
        brim_checkpoint_close(&checkpoint);
    }
    char config[600];
    snprintf(config, sizeof config,
             "{\"chat_template\":[{\"name\":\"tool\",\"template\":\"x\"},{\"name\":\"default\","
             "\"template\":\"You are a helpful AI assistant named SmolLM, trained by Hugging Face "
             "<|im_start|> <|im_end|>\"}]}");
    write_text(dir, "tokenizer_config.json", config);
    checkpoint = open_ok(dir);
    brim_status status = brim_checkpoint_chat_family(checkpoint, &family, &err);
    assert_int_equal(status, BRIM_OK);
    assert_int_equal(family, BRIM_CHAT_SMOLLM2);
    brim_checkpoint_close(&checkpoint);
    write_text(dir, "chat_template.jinja", "no template brim knows"); /* wins over the other */
    checkpoint = open_ok(dir);
    assert_int_equal(brim_checkpoint_chat_family(checkpoint, &family, &err), BRIM_E_UNSUPPORTED);
    brim_checkpoint_close(&checkpoint);
    write_text(dir, "tokenizer_config.json", "{\"a\":1,\"a\":2}");
    EXPECT_FAILURE(dir, BRIM_E_FORMAT, "tokenizer_config.json");
    remove_dir(dir);
}

static void gguf_on_disk(void **state)
{
    (void)state;
    char dir[256], path[600];
    make_dir(dir);
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    struct gguf_writer w = {0};
    gguf_tiny(&w, "qwen3", 2);
    size_t n;
    uint8_t *file = gguf_finish(&w, &n);
    write_file(path, file, n);
    struct brim_checkpoint *checkpoint = open_ok(path);
    assert_string_equal(brim_checkpoint_format(checkpoint), "gguf v3");
    assert_int_equal(brim_checkpoint_file_bytes(checkpoint), n);
    struct brim_tensor_info info;
    brim_checkpoint_tensor_info(checkpoint, 0, &info);
    assert_string_equal(info.name, "token_embd.weight");
    assert_string_equal(info.type_name, "Q4_0");
    assert_int_equal(info.shape[0], 96);
    assert_int_equal(info.shape[1], 64);
    struct brim_weight weight;
    struct brim_weight_source source = brim_checkpoint_source(checkpoint);
    assert_true(source.find(source.ctx, "model.layers.1.mlp.down_proj.weight", &weight));
    assert_int_equal(weight.kind, BRIM_WEIGHT_Q4_0);
    source.release(source.ctx, &weight);
    brim_checkpoint_close(&checkpoint);
    /* one layer more than the file holds */
    struct gguf_writer more = {0};
    gguf_tiny(&more, "llama", 2);
    char *count = (char *)more.meta.data;
    while (memcmp(count, "block_count", 11) != 0) count++;
    count[11 + 4] = 3;
    free(file);
    file = gguf_finish(&more, &n);
    write_file(path, file, n);
    EXPECT_FAILURE(path, BRIM_E_MISSING, "9 of 29 tensors are missing",
                   "model.layers.2.input_layernorm.weight");
    free(file);
    remove_dir(dir);
}

/* A file that holds more layers than its configuration names is of another model, or damaged. */
static void layers_beyond_the_configuration(void **state)
{
    (void)state;
    static const char key[] = "llama.block_count";
    char dir[256], path[600];
    make_dir(dir);
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    struct gguf_writer w = {0};
    gguf_tiny(&w, "llama", 3);
    size_t n, at = 0;
    uint8_t *file = gguf_finish(&w, &n);
    while (memcmp(file + at, key, sizeof key - 1) != 0) assert_true(++at < n - sizeof key);
    uint8_t *count = file + at + sizeof key - 1 + 4; /* after the type */
    assert_int_equal(*count, 2);
    for (uint8_t n_layer = 2; n_layer > 0; n_layer--) {
        *count = n_layer;
        write_file(path, file, n);
        struct brim_checkpoint *checkpoint = open_ok(path);
        if (n_layer == 2)
            assert_string_equal(warnings, "");
        else
            assert_non_null(strstr(warnings, "blk.1."));
        brim_checkpoint_close(&checkpoint);
    }
    free(file);
    remove_dir(dir);
}

static void allocation_failures(void **state)
{
    (void)state;
    char dir[256], path[600];
    make_dir(dir);
    struct hf_tiny o = {.group = 64,
                        .n_shard = 2,
                        .with_index = 1,
                        .model_type = "llama",
                        .config_tail = ",\"bos_token_id\":1"};
    hf_tiny_write(dir, &o);
    write_text(dir, "generation_config.json", "{\"eos_token_id\":[1,2]}");
    write_text(dir, "tokenizer_config.json", "{\"chat_template\":\"x\"}");
    write_text(dir, "tokenizer.json", "{}");
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    struct gguf_writer w = {0};
    gguf_tiny(&w, "qwen2", 3);
    size_t n;
    uint8_t *file = gguf_finish(&w, &n);
    write_file(path, file, n);
    free(file);
    for (int format = 0; format < 2; format++) {
        for (int64_t after = 0;; after++) {
            struct brim_checkpoint *checkpoint;
            brim_mem_fail_after(after);
            brim_status status =
                brim_checkpoint_open(&checkpoint, format ? path : dir, NULL, NULL, NULL);
            brim_mem_fail_after(-1);
            if (status == BRIM_OK) {
                assert_true(after > 20);
                assert_int_equal(brim_checkpoint_config(checkpoint)->n_eos, format ? 0 : 2);
                brim_checkpoint_close(&checkpoint);
                break;
            }
            assert_int_equal(status, BRIM_E_NO_MEMORY);
            assert_null(checkpoint);
        }
    }
    remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_of_weights),
        cmocka_unit_test(shards_with_and_without_index),
        cmocka_unit_test(missing_shards),
        cmocka_unit_test(stale_index_and_stray_files),
        cmocka_unit_test(index_decides_between_files),
        cmocka_unit_test(truncated_shard),
        cmocka_unit_test(missing_tensors_are_listed),
        cmocka_unit_test(bad_quantized_tensors),
        cmocka_unit_test(module_exceptions),
        cmocka_unit_test(paths),
        cmocka_unit_test(texts),
        cmocka_unit_test(gguf_on_disk),
        cmocka_unit_test(layers_beyond_the_configuration),
        cmocka_unit_test(allocation_failures),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}
