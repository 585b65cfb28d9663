/* SPDX-License-Identifier: Apache-2.0
 * Opening engines: options, errors, what the information says, text helpers, and two sessions of
 * one engine evaluated from two threads. ctest labels: threads */
#define _DEFAULT_SOURCE
#include "engine_util.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static void options_and_paths(void **state)
{
    (void)state;
    brim_engine *engine = (brim_engine *)(uintptr_t)1;
    brim_engine_options o;
    brim_engine_options_default(&o);
    MUST_FAIL(brim_engine_open(&engine, GOLDEN_DIR "none", &o, &err), BRIM_E_MISSING, "none");
    assert_null(engine);
    MUST_FAIL(brim_engine_open(&engine, "", &o, &err), BRIM_E_ARGUMENT, "path");
    MUST_FAIL(brim_engine_open(&engine, NULL, &o, &err), BRIM_E_ARGUMENT, "path");
    MUST_FAIL(brim_engine_open(NULL, "x", &o, &err), BRIM_E_ARGUMENT, "null");
    o.device = (brim_device)7;
    MUST_FAIL(brim_engine_open(&engine, GOLDEN_DIR "llama_tied", &o, &err), BRIM_E_ARGUMENT, "7");
    brim_engine_options_default(&o);
    o.cpu_tier = "sse9";
    MUST_FAIL(brim_engine_open(&engine, GOLDEN_DIR "llama_tied", &o, &err), BRIM_E_ARGUMENT,
              "sse9");
#if defined(__x86_64__)
    o.cpu_tier = "neon";
    MUST_FAIL(brim_engine_open(&engine, GOLDEN_DIR "llama_tied", &o, &err), BRIM_E_UNSUPPORTED,
              "neon");
#endif
    brim_engine_options_default(&o);
    o.level = "best";
    MUST_FAIL(brim_engine_open(&engine, GOLDEN_DIR "llama_tied", &o, &err), BRIM_E_ARGUMENT,
              "best");
    static const char *const of_cuda[] = {"fused", "attention", "hopper"};
    for (size_t i = 0; i < sizeof of_cuda / sizeof *of_cuda; i++) {
        char text[48];
        snprintf(text, sizeof text, "\"%s\" needs device cuda", of_cuda[i]);
        o.level = of_cuda[i];
        MUST_FAIL(brim_engine_open(&engine, GOLDEN_DIR "llama_tied", &o, &err), BRIM_E_ARGUMENT,
                  text);
    }
    brim_engine_options_default(&o);
    o.n_thread = -1;
    MUST_FAIL(brim_engine_open(&engine, GOLDEN_DIR "llama_tied", &o, &err), BRIM_E_ARGUMENT, "-1");
    assert_int_equal(brim_engine_open(&engine, GOLDEN_DIR "none", NULL, NULL), BRIM_E_MISSING);
    brim_engine_close(&engine);
    brim_engine_close(NULL);
}

/* A wrong level is an argument's fault on every machine. Without a device the error is the
 * device's, its driver's or its architecture's, and the CPU is none the worse. */
static void device_cuda(void **state)
{
    (void)state;
    brim_engine *engine = (brim_engine *)(uintptr_t)1;
    brim_engine_options o;
    brim_engine_options_default(&o);
    o.device = BRIM_DEVICE_CUDA;
    o.level = "best";
    MUST_FAIL(brim_engine_open(&engine, GOLDEN_DIR "llama_tied", &o, &err), BRIM_E_ARGUMENT,
              "best");
    assert_null(engine);
    o.level = NULL;
    o.activations_int8 = true;
    MUST_FAIL(brim_engine_open(&engine, GOLDEN_DIR "llama_tied", &o, &err), BRIM_E_ARGUMENT,
              "int8");
    o.activations_int8 = false;
    static const char *const levels[] = {NULL,        "dense", "matvec",  "fused",
                                         "attention", "tiled", "split-k", "hopper"};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        o.level = levels[i];
        brim_error err = {0};
        brim_status status = brim_engine_open(&engine, GOLDEN_DIR "llama_tied", &o, &err);
        if (status == BRIM_OK) { /* tests/cuda/check_engine.c has more */
            brim_model_info info;
            brim_engine_info(engine, &info);
            assert_string_equal(info.device, "cuda");
            assert_string_equal(info.level, levels[i] ? levels[i] : "hopper");
            brim_engine_close(&engine);
            continue;
        }
        assert_true(status == BRIM_E_DEVICE || status == BRIM_E_DRIVER || status == BRIM_E_ARCH);
        assert_true(err.status == status && strlen(err.text) > 10);
        assert_null(engine);
    }
    engine = tiny_engine("llama_tied", 1);
    brim_session *session = tiny_session(engine, 16, 0);
    int32_t id = 5;
    MUST(brim_session_eval(session, &id, 1, &err));
    brim_session_close(&session);
    brim_engine_close(&engine);
}

struct progress {
    uint64_t last, total;
    int n_call;
    bool ok;
};

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct progress *p = ctx;
    if (done < p->last || done > total || (p->n_call > 0 && total != p->total)) p->ok = false;
    p->last = done;
    p->total = total;
    p->n_call++;
}

static void information(void **state)
{
    (void)state;
    struct progress progress = {.ok = true};
    brim_engine *engine;
    brim_engine_options o;
    brim_engine_options_default(&o);
    o.progress = on_progress;
    o.progress_ctx = &progress;
    o.cpu_tier = "c";
    o.n_thread = 3;
    MUST(brim_engine_open(&engine, GOLDEN_DIR "qwen3_head_dim", &o, &err));
    assert_true(progress.ok && progress.n_call > 10 && progress.last == progress.total);
    brim_model_info info;
    brim_engine_info(engine, &info);
    assert_string_equal(info.family, "qwen3");
    assert_string_equal(info.format, "safetensors");
    assert_string_equal(info.cpu_tier, "c");
    assert_int_equal(info.n_layer, 2);
    assert_int_equal(info.n_embd, 64);
    assert_int_equal(info.n_ff, 144);
    assert_int_equal(info.n_head, 4);
    assert_int_equal(info.n_head_kv, 2);
    assert_int_equal(info.head_dim, 32);
    assert_int_equal(info.n_vocab, 512);
    assert_int_equal(info.n_context, 128);
    assert_int_equal(info.n_thread, 3);
    assert_int_equal(info.kv_bytes_per_token, 2 * 2 * 2 * 2 * 32);
    assert_true(info.load_ns > 0 && info.file_bytes == progress.total);
    assert_true(info.weight_bytes > info.file_bytes / 2);
    brim_engine_close(&engine);
}

static void text_helpers(void **state)
{
    (void)state;
    brim_engine *engine = tiny_engine("llama_tied", 1);
    int32_t ids[64];
    size_t n, len;
    MUST(brim_tokenize(engine, "The fox<|im_end|>", 17, true, ids, 64, &n, &err));
    assert_int_equal(ids[n - 1], 478);
    assert_true(brim_token_is_special(engine, 478));
    assert_false(brim_token_is_special(engine, ids[0]));
    char text[64];
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const char *bytes = brim_token_bytes(engine, ids[i], &len);
        assert_non_null(bytes);
        memcpy(text + at, bytes, len);
        at += len;
    }
    assert_int_equal(at, 17);
    assert_memory_equal(text, "The fox<|im_end|>", 17);
    size_t n_plain;
    MUST(brim_tokenize(engine, "The fox<|im_end|>", 17, false, ids, 64, &n_plain, &err));
    assert_true(n_plain > n);
    for (size_t i = 0; i < n_plain; i++) assert_true(ids[i] < 476);

    int32_t two[3] = {-7, -7, -7};
    MUST_FAIL(brim_tokenize(engine, "The fox<|im_end|>", 17, false, two, 2, &n, &err),
              BRIM_E_ARGUMENT, "the buffer holds 2");
    assert_int_equal(n, n_plain);
    assert_memory_equal(two, ids, sizeof *two * 2);
    assert_int_equal(two[2], -7);
    MUST(brim_tokenize(engine, NULL, 0, false, NULL, 0, &n, &err));
    assert_int_equal(n, 0);
    MUST_FAIL(brim_tokenize(engine, NULL, 3, false, ids, 64, &n, &err), BRIM_E_ARGUMENT, "null");

    static const int32_t outside[] = {-1, 479, 511, 512, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 6; i++) {
        assert_null(brim_token_bytes(engine, outside[i], &len));
        assert_int_equal(len, 0);
        assert_false(brim_token_is_special(engine, outside[i]));
        assert_false(brim_token_is_eos(engine, outside[i]));
    }
    const brim_chat_turn turn = {"user", "Hi"};
    MUST_FAIL(brim_chat_tokenize(engine, &turn, 1, NULL, ids, 64, &n, &err), BRIM_E_MISSING,
              "template");
    brim_engine_close(&engine);
}

/* ---- damaged models ---- */

static char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*n + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *n, f), *n);
    data[*n] = '\0';
    fclose(f);
    return data;
}

static void write_file(const char *directory, const char *name, const char *data, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

/* Replace the first `from` in a text by `to`. */
static void edit(char *data, size_t *n, const char *from, const char *to)
{
    char *at = strstr(data, from);
    assert_non_null(at);
    size_t n_from = strlen(from), n_to = strlen(to);
    assert_true(n_to <= n_from);
    memcpy(at, to, n_to);
    memmove(at + n_to, at + n_from, *n - (size_t)(at - data) - n_from + 1);
    *n -= n_from - n_to;
}

/* Offset of a tensor's data inside a safetensors file. */
static size_t tensor_offset(const char *data, const char *name)
{
    uint64_t header;
    memcpy(&header, data, 8);
    char key[80];
    snprintf(key, sizeof key, "\"%s\"", name);
    const char *at = strstr(data + 8, key);
    assert_non_null(at);
    at = strstr(at, "\"data_offsets\":[");
    assert_non_null(at);
    return 8 + header + strtoul(at + 16, NULL, 10);
}

static void damaged_models(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to; /* in config.json; NULL: none */
        const char *tensor;    /* its first value becomes NaN; NULL: none */
        brim_status status;
        const char *text;
    } rows[] = {
        {"\"intermediate_size\": 112", "\"intermediate_size\": 96", NULL, BRIM_E_SHAPE,
         "model.layers.0.mlp.gate_proj.weight is [112, 64]"},
        {"\"num_key_value_heads\": 4", "\"num_key_value_heads\": 2", NULL, BRIM_E_SHAPE,
         "model.layers.0.self_attn.k_proj.weight"},
        {"\"vocab_size\": 512", "\"vocab_size\": 500", NULL, BRIM_E_SHAPE,
         "model.embed_tokens.weight"},
        {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", NULL, BRIM_E_MISSING,
         "model.layers.2."},
        {"\"model_type\": \"llama\"", "\"model_type\": \"qwen3\"", NULL, BRIM_E_MISSING, "q_norm"},
        {NULL, NULL, "model.norm.weight", BRIM_E_NOT_FINITE, "model.norm.weight"},
        {NULL, NULL, "model.layers.1.input_layernorm.weight", BRIM_E_NOT_FINITE,
         "model.layers.1.input_layernorm.weight"},
    };
    char directory[] = "/tmp/brim-engine-XXXXXX", path[128];
    assert_non_null(mkdtemp(directory));
    size_t n;
    char *tokenizer = read_file(GOLDEN_DIR "llama_llama3/tokenizer.json", &n);
    write_file(directory, "tokenizer.json", tokenizer, n);
    free(tokenizer);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *config = read_file(GOLDEN_DIR "llama_llama3/config.json", &n);
        if (rows[i].from) edit(config, &n, rows[i].from, rows[i].to);
        write_file(directory, "config.json", config, n);
        char *weights = read_file(GOLDEN_DIR "llama_llama3/model.safetensors", &n);
        if (rows[i].tensor)
            memcpy(weights + tensor_offset(weights, rows[i].tensor), "\0\0\xC0\x7F", 4);
        write_file(directory, "model.safetensors", weights, n);
        free(config);
        free(weights);
        brim_engine *engine;
        MUST_FAIL(brim_engine_open(&engine, directory, NULL, &err), rows[i].status, rows[i].text);
        assert_null(engine);
    }
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, files[i]);
        unlink(path);
    }
    rmdir(directory);
}

/* A scale that is not finite is found when a checkpoint is opened, at every level, and named. */
static void scales_that_are_not_finite(void **state)
{
    (void)state;
    static const char *const levels[] = {"dense", "matvec", "tiled", "split-k"};
    static const char tensor[] = "model.layers.1.mlp.down_proj";
    static const char *const files[] = {"config.json", "tokenizer.json", "model.safetensors"};
    char directory[] = "/tmp/brim-engine-XXXXXX", path[128];
    assert_non_null(mkdtemp(directory));
    size_t n;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, GOLDEN_DIR "qwen3_mlx_g32/%s", files[i]);
        char *data = read_file(path, &n);
        write_file(directory, files[i], data, n);
        free(data);
    }
    for (int i = 0; i < 4; i++) {
        char name[64];
        char *weights = read_file(GOLDEN_DIR "qwen3_mlx_g32/model.safetensors", &n);
        snprintf(name, sizeof name, "%s.%s", tensor, i & 1 ? "biases" : "scales");
        size_t at = tensor_offset(weights, name);
        memcpy(weights + at + 2 * 5, i & 2 ? "\x80\x7F" : "\xC0\x7F", 2); /* bf16 inf, NaN */
        write_file(directory, files[2], weights, n);
        free(weights);
        for (int l = 0; l < 4; l++) {
            brim_engine *engine;
            brim_engine_options o;
            brim_engine_options_default(&o);
            o.level = levels[l];
            MUST_FAIL(brim_engine_open(&engine, directory, &o, &err), BRIM_E_NOT_FINITE,
                      "model.layers.1.mlp.down_proj");
            MUST_FAIL(brim_engine_open(&engine, directory, &o, &err), BRIM_E_NOT_FINITE, "group");
            assert_null(engine);
        }
    }
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, files[i]);
        unlink(path);
    }
    rmdir(directory);
}

/* ---- threads ---- */

enum { N_VOCAB = 512, N_IDS = 40 };

struct caller {
    brim_engine *engine;
    uint32_t seed;
    float logits[N_VOCAB];
    brim_status status;
};

static void *evaluate(void *opaque)
{
    struct caller *c = opaque;
    int32_t ids[N_IDS];
    some_ids(c->seed, ids, N_IDS);
    brim_session *session;
    c->status = brim_session_open(&session, c->engine, NULL, NULL);
    if (c->status != BRIM_OK) return NULL;
    c->status = brim_session_eval(session, ids, 20, NULL);
    for (int i = 20; i < N_IDS && c->status == BRIM_OK; i++)
        c->status = brim_session_eval(session, ids + i, 1, NULL);
    if (c->status == BRIM_OK) memcpy(c->logits, brim_session_logits(session), sizeof c->logits);
    brim_session_close(&session);
    return NULL;
}

static void sessions_of_one_engine_in_two_threads(void **state)
{
    (void)state;
    brim_engine *engine = tiny_engine("qwen3_mlx_g32", 2);
    static struct caller alone[2], together[2];
    for (int i = 0; i < 2; i++) {
        alone[i] = together[i] = (struct caller){.engine = engine, .seed = (uint32_t)i + 1};
        evaluate(&alone[i]);
        assert_int_equal(alone[i].status, BRIM_OK);
    }
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, evaluate, &together[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(together[i].status, BRIM_OK);
        assert_memory_equal(together[i].logits, alone[i].logits, sizeof alone[i].logits);
    }
    brim_engine_close(&engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_and_paths),
        cmocka_unit_test(device_cuda),
        cmocka_unit_test(information),
        cmocka_unit_test(text_helpers),
        cmocka_unit_test(damaged_models),
        cmocka_unit_test(scales_that_are_not_finite),
        cmocka_unit_test(sessions_of_one_engine_in_two_threads),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
