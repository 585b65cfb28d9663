/* SPDX-License-Identifier: Apache-2.0
 * Builders of small model files for tests: bytes that grow, GGUF writers, temporary directories.
 * Everything is plain malloc and never checked: a test that runs out of memory may crash. */
#ifndef BRIM_TESTS_UNIT_MODEL_FILES_H
#define BRIM_TESTS_UNIT_MODEL_FILES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tensor/dtype.h"

struct bytes {
    uint8_t *data;
    size_t n, capacity;
};

static inline void put(struct bytes *b, const void *data, size_t n)
{
    if (b->n + n > b->capacity) {
        b->capacity = (b->n + n) * 2 + 64;
        b->data = realloc(b->data, b->capacity);
    }
    if (n) memcpy(b->data + b->n, data, n);
    b->n += n;
}

static inline void put_u32(struct bytes *b, uint32_t value)
{
    put(b, &value, 4);
}
static inline void put_u64(struct bytes *b, uint64_t value)
{
    put(b, &value, 8);
}
static inline void put_text(struct bytes *b, const char *text)
{
    put_u64(b, strlen(text));
    put(b, text, strlen(text));
}

static inline void bytes_free(struct bytes *b)
{
    free(b->data);
    *b = (struct bytes){0};
}

/* ---- GGUF: metadata and tensors are collected, gguf_finish joins them
 * ---------------------------- */

struct gguf_writer {
    struct bytes meta, rows, data;
    uint64_t n_meta, n_tensor;
    uint32_t version, alignment;
};

static inline void meta_u32(struct gguf_writer *w, const char *key, uint32_t value)
{
    put_text(&w->meta, key);
    put_u32(&w->meta, 4);
    put_u32(&w->meta, value);
    w->n_meta++;
}

static inline void meta_f32(struct gguf_writer *w, const char *key, float value)
{
    put_text(&w->meta, key);
    put_u32(&w->meta, 6);
    put(&w->meta, &value, 4);
    w->n_meta++;
}

static inline void meta_bool(struct gguf_writer *w, const char *key, uint8_t value)
{
    put_text(&w->meta, key);
    put_u32(&w->meta, 7);
    put(&w->meta, &value, 1);
    w->n_meta++;
}

static inline void meta_text(struct gguf_writer *w, const char *key, const char *value)
{
    put_text(&w->meta, key);
    put_u32(&w->meta, 8);
    put_text(&w->meta, value);
    w->n_meta++;
}

static inline void meta_texts(struct gguf_writer *w, const char *key, const char *const *values,
                              size_t n)
{
    put_text(&w->meta, key);
    put_u32(&w->meta, 9);
    put_u32(&w->meta, 8);
    put_u64(&w->meta, n);
    for (size_t i = 0; i < n; i++) put_text(&w->meta, values[i]);
    w->n_meta++;
}

static inline void meta_i32s(struct gguf_writer *w, const char *key, const int32_t *values,
                             size_t n)
{
    put_text(&w->meta, key);
    put_u32(&w->meta, 9);
    put_u32(&w->meta, 5);
    put_u64(&w->meta, n);
    put(&w->meta, values, n * 4);
    w->n_meta++;
}

static inline size_t gguf_align(const struct gguf_writer *w, size_t n)
{
    size_t a = w->alignment ? w->alignment : 32;
    return (n + a - 1) / a * a;
}

/* A tensor of n_out rows (0: a vector) of n_in values, with the bytes given. */
static inline void gguf_tensor(struct gguf_writer *w, const char *name, uint64_t n_out,
                               uint64_t n_in, uint32_t type, const void *data, size_t n_bytes)
{
    static const uint8_t zeros[1 << 12];
    put(&w->data, zeros, gguf_align(w, w->data.n) - w->data.n);
    put_text(&w->rows, name);
    put_u32(&w->rows, n_out ? 2 : 1);
    put_u64(&w->rows, n_in);
    if (n_out) put_u64(&w->rows, n_out);
    put_u32(&w->rows, type);
    put_u64(&w->rows, w->data.n);
    put(&w->data, data, n_bytes);
    w->n_tensor++;
}

/* Random contents that are finite under every type: half floats near 1 at even offsets. */
static inline void gguf_random(struct gguf_writer *w, const char *name, uint64_t n_out,
                               uint64_t n_in, uint32_t type, struct brim_rng *rng)
{
    static const struct {
        uint32_t type, block, bytes;
    } types[] = {{0, 1, 4}, {1, 1, 2}, {30, 1, 2}, {2, 32, 18}, {3, 32, 20}, {8, 32, 34}};
    size_t n_bytes = 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].type == type)
            n_bytes = (n_out ? n_out : 1) * n_in / types[i].block * types[i].bytes;
    uint8_t *data = malloc(n_bytes);
    for (size_t i = 0; i + 1 < n_bytes; i += 2) {
        uint16_t half = (uint16_t)(0x2C00 + brim_rng_u32(rng) % 0x0C00);
        memcpy(data + i, &half, 2);
    }
    gguf_tensor(w, name, n_out, n_in, type, data, n_bytes);
    free(data);
}

/* Exact-size copy of the finished file; the caller frees it. */
static inline uint8_t *gguf_finish(struct gguf_writer *w, size_t *n_bytes)
{
    static const uint8_t zeros[1 << 12];
    struct bytes all = {0};
    put(&all, "GGUF", 4);
    put_u32(&all, w->version ? w->version : 3);
    put_u64(&all, w->n_tensor);
    put_u64(&all, w->n_meta);
    put(&all, w->meta.data, w->meta.n);
    put(&all, w->rows.data, w->rows.n);
    put(&all, zeros, gguf_align(w, all.n) - all.n);
    put(&all, w->data.data, w->data.n);
    uint8_t *exact = malloc(all.n);
    memcpy(exact, all.data, all.n);
    *n_bytes = all.n;
    bytes_free(&all);
    bytes_free(&w->meta);
    bytes_free(&w->rows);
    bytes_free(&w->data);
    return exact;
}

/* A whole tiny model of `arch` ("llama", "qwen2", "qwen3"): 2 layers, 64 wide, 4 heads over 2, head
 * size 16 (qwen3: 32), vocabulary 96, tied. matrix_type: the ggml type of the matrices. */
static inline void gguf_tiny(struct gguf_writer *w, const char *arch, uint32_t matrix_type)
{
    struct brim_rng rng;
    brim_rng_seed(&rng, 7);
    int is_qwen3 = strcmp(arch, "qwen3") == 0, is_qwen2 = strcmp(arch, "qwen2") == 0;
    uint64_t d = is_qwen3 ? 32 : 16;
    char key[64];
    const struct {
        const char *key;
        uint32_t value;
    } sizes[] = {{"block_count", 2},          {"context_length", 512},
                 {"embedding_length", 64},    {"feed_forward_length", 96},
                 {"attention.head_count", 4}, {"attention.head_count_kv", 2}};
    meta_text(w, "general.architecture", arch);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, sizes[i].key);
        meta_u32(w, key, sizes[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    meta_f32(w, key, 1e-5f);
    snprintf(key, sizeof key, "%s.rope.freq_base", arch);
    meta_f32(w, key, 10000.0f);
    if (is_qwen3) {
        meta_u32(w, "qwen3.attention.key_length", 32);
        meta_u32(w, "qwen3.attention.value_length", 32);
    }
    gguf_random(w, "token_embd.weight", 96, 64, matrix_type, &rng);
    for (int layer = 0; layer < 2; layer++) {
        const struct {
            const char *name;
            uint64_t n_out, n_in;
            int when;
        } tensors[] = {
            {"attn_norm.weight", 0, 64, 1},         {"ffn_norm.weight", 0, 64, 1},
            {"attn_q.weight", 4 * d, 64, 1},        {"attn_k.weight", 2 * d, 64, 1},
            {"attn_v.weight", 2 * d, 64, 1},        {"attn_output.weight", 64, 4 * d, 1},
            {"ffn_gate.weight", 96, 64, 1},         {"ffn_up.weight", 96, 64, 1},
            {"ffn_down.weight", 64, 96, 1},         {"attn_q.bias", 0, 4 * d, is_qwen2},
            {"attn_k.bias", 0, 2 * d, is_qwen2},    {"attn_v.bias", 0, 2 * d, is_qwen2},
            {"attn_q_norm.weight", 0, d, is_qwen3}, {"attn_k_norm.weight", 0, d, is_qwen3}};
        for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
            if (!tensors[i].when) continue;
            snprintf(key, sizeof key, "blk.%d.%s", layer, tensors[i].name);
            gguf_random(w, key, tensors[i].n_out, tensors[i].n_in,
                        tensors[i].n_out ? matrix_type : 0, &rng);
        }
    }
    gguf_random(w, "output_norm.weight", 0, 64, 0, &rng);
}

/* ---- safetensors ------------------------------------------------------------------------------
 */

struct st_writer {
    struct bytes json, data;
    int n_tensor;
};

static inline void put_string(struct bytes *b, const char *text)
{
    put(b, text, strlen(text));
}

/* A tensor with explicit offsets, right or wrong. */
static inline void st_row(struct st_writer *w, const char *name, const char *dtype,
                          const char *shape, unsigned long long begin, unsigned long long end)
{
    char row[400];
    snprintf(row, sizeof row,
             "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%llu,%llu]}",
             w->n_tensor++ ? "," : "{", name, dtype, shape, begin, end);
    put_string(&w->json, row);
}

static inline void st_tensor(struct st_writer *w, const char *name, const char *dtype,
                             const char *shape, const void *data, size_t n_bytes)
{
    st_row(w, name, dtype, shape, w->data.n, w->data.n + n_bytes);
    put(&w->data, data, n_bytes);
}

/* Exact-size copy of the file. remainder: header length modulo 8 (the format's writers use 0). */
static inline uint8_t *st_finish(struct st_writer *w, int remainder, size_t *n_bytes)
{
    put_string(&w->json, w->n_tensor ? "}" : "{}");
    while (w->json.n % 8 != (size_t)remainder) put(&w->json, " ", 1);
    struct bytes all = {0};
    put_u64(&all, w->json.n);
    put(&all, w->json.data, w->json.n);
    put(&all, w->data.data, w->data.n);
    uint8_t *exact = malloc(all.n);
    memcpy(exact, all.data, all.n);
    *n_bytes = all.n;
    bytes_free(&all);
    bytes_free(&w->json);
    bytes_free(&w->data);
    w->n_tensor = 0;
    return exact;
}

/* ---- files (the test defines _POSIX_C_SOURCE 200809L before its first include) ----------------
 */

static inline void write_file(const char *path, const void *data, size_t n_bytes)
{
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, n_bytes, file) != n_bytes || fclose(file) != 0) abort();
}

#if defined(_POSIX_C_SOURCE) && _POSIX_C_SOURCE >= 200809L
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

/* A fresh directory; its name goes to path. */
static inline void make_dir(char path[256])
{
    const char *tmp = getenv("TMPDIR");
    snprintf(path, 256, "%s/brim-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(path)) abort();
}

/* Remove a directory of plain files. */
static inline void remove_dir(const char *path)
{
    DIR *dir = opendir(path);
    if (!dir) return;
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        char name[600];
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.') remove(name);
    }
    closedir(dir);
    rmdir(path);
}

static inline void write_in(const char *dir, const char *name, const void *data, size_t n_bytes)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    write_file(path, data, n_bytes);
}

static inline void write_text(const char *dir, const char *name, const char *text)
{
    write_in(dir, name, text, strlen(text));
}

static inline void remove_in(const char *dir, const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    remove(path);
}

/* A tiny Hugging Face directory: 2 layers, 128 wide, feed-forward 256, 4 heads over 2 of size 32,
 * vocabulary 40, tied. */
struct hf_tiny {
    const char *model_type; /* NULL: "qwen3" */
    int group;              /* 0: dense, else MLX affine 4-bit */
    const char *dtype;      /* NULL: "BF16"; of dense weights, or of scales, biases and norms */
    int n_shard;            /* 0 or 1: model.safetensors */
    int with_index;
    int remainder;           /* of st_finish */
    const char *skip;        /* a tensor to leave out */
    const char *config_tail; /* more members of config.json, with leading comma */
};

/* n finite numbers of the type, the i-th from the generator; scale values of both signs. */
static inline void st_floats(struct st_writer *w, const char *name, const char *dtype,
                             const char *shape, size_t n, struct brim_rng *rng)
{
    size_t item = strcmp(dtype, "F32") == 0 ? 4 : 2;
    uint8_t *data = malloc(n * item);
    for (size_t i = 0; i < n; i++) {
        float value = brim_rng_uniform(rng) - 0.5f;
        uint16_t half = dtype[0] == 'B' ? brim_bf16_from_f32(value) : brim_f16_from_f32(value);
        if (item == 4)
            memcpy(data + 4 * i, &value, 4);
        else
            memcpy(data + 2 * i, &half, 2);
    }
    st_tensor(w, name, dtype, shape, data, n * item);
    free(data);
}

static inline void hf_tiny_matrix(struct st_writer *w, const struct hf_tiny *o, const char *module,
                                  int n_out, int n_in, struct brim_rng *rng)
{
    char name[160], shape[48];
    const char *dtype = o->dtype ? o->dtype : "BF16";
    snprintf(name, sizeof name, "%s.weight", module);
    if (o->skip && strcmp(o->skip, name) == 0) return;
    if (o->group == 0) {
        snprintf(shape, sizeof shape, "[%d,%d]", n_out, n_in);
        st_floats(w, name, dtype, shape, (size_t)n_out * (size_t)n_in, rng);
        return;
    }
    size_t n_word = (size_t)n_out * (size_t)n_in / 8;
    uint32_t *words = malloc(n_word * 4);
    for (size_t i = 0; i < n_word; i++) words[i] = brim_rng_u32(rng);
    snprintf(shape, sizeof shape, "[%d,%d]", n_out, n_in / 8);
    st_tensor(w, name, "U32", shape, words, n_word * 4);
    free(words);
    snprintf(shape, sizeof shape, "[%d,%d]", n_out, n_in / o->group);
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s.%s", module, i ? "biases" : "scales");
        if (o->skip && strcmp(o->skip, name) == 0) continue;
        st_floats(w, name, dtype, shape, (size_t)n_out * (size_t)(n_in / o->group), rng);
    }
}

static inline void hf_tiny_vector(struct st_writer *w, const struct hf_tiny *o, const char *name,
                                  int n, struct brim_rng *rng)
{
    char shape[48];
    snprintf(shape, sizeof shape, "[%d]", n);
    if (o->skip && strcmp(o->skip, name) == 0) return;
    st_floats(w, name, o->dtype ? o->dtype : "BF16", shape, (size_t)n, rng);
}

/* The names in a shard's header, for the index. */
static inline void index_rows(struct bytes *index, const struct bytes *json, const char *file)
{
    const char *at = (const char *)json->data, *end = at + json->n;
    while (at < end) { /* a name is what stands before :{"dtype" */
        const char *colon = at;
        while (colon + 9 <= end && memcmp(colon, ":{\"dtype\"", 9) != 0) colon++;
        if (colon + 9 > end) return;
        const char *open = colon - 2;
        while (*open != '"') open--;
        put_string(index, index->n > 20 ? "," : "");
        put(index, open, (size_t)(colon - open));
        put_string(index, ":\"");
        put_string(index, file);
        put_string(index, "\"");
        at = colon + 9;
    }
}

static inline void hf_tiny_write(const char *dir, const struct hf_tiny *o)
{
    const char *type = o->model_type ? o->model_type : "qwen3";
    int is_qwen3 = strcmp(type, "qwen3") == 0, is_qwen2 = strcmp(type, "qwen2") == 0;
    char config[1024];
    snprintf(config, sizeof config,
             "{\"model_type\":\"%s\",\"hidden_size\":128,\"num_hidden_layers\":2,"
             "\"intermediate_size\":256,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
             "\"head_dim\":32,\"vocab_size\":40,\"max_position_embeddings\":512,"
             "\"rms_norm_eps\":1e-06,\"rope_theta\":10000.0,\"tie_word_embeddings\":true,"
             "\"eos_token_id\":3%s}",
             type, o->config_tail ? o->config_tail : "");
    if (o->group) {
        char quant[64];
        snprintf(quant, sizeof quant, ",\"quantization\":{\"group_size\":%d,\"bits\":4}}",
                 o->group);
        memcpy(config + strlen(config) - 1, quant, strlen(quant) + 1);
    }
    write_text(dir, "config.json", config);

    struct brim_rng rng;
    brim_rng_seed(&rng, 11);
    int n_shard = o->n_shard > 1 ? o->n_shard : 1;
    struct st_writer *w = calloc((size_t)n_shard, sizeof *w);
    hf_tiny_matrix(&w[0], o, "model.embed_tokens", 40, 128, &rng);
    for (int layer = 0; layer < 2; layer++) {
        struct st_writer *at = &w[(layer + 1) % n_shard];
        char name[96];
        static const struct {
            const char *name;
            int n_out, n_in;
        } matrices[] = {{"self_attn.q_proj", 128, 128}, {"self_attn.k_proj", 64, 128},
                        {"self_attn.v_proj", 64, 128},  {"self_attn.o_proj", 128, 128},
                        {"mlp.gate_proj", 256, 128},    {"mlp.up_proj", 256, 128},
                        {"mlp.down_proj", 128, 256}};
        for (int i = 0; i < 7; i++) {
            snprintf(name, sizeof name, "model.layers.%d.%s", layer, matrices[i].name);
            hf_tiny_matrix(at, o, name, matrices[i].n_out, matrices[i].n_in, &rng);
        }
        const struct {
            const char *name;
            int n, when;
        } vectors[] = {
            {"input_layernorm.weight", 128, 1},        {"post_attention_layernorm.weight", 128, 1},
            {"self_attn.q_norm.weight", 32, is_qwen3}, {"self_attn.k_norm.weight", 32, is_qwen3},
            {"self_attn.q_proj.bias", 128, is_qwen2},  {"self_attn.k_proj.bias", 64, is_qwen2},
            {"self_attn.v_proj.bias", 64, is_qwen2}};
        for (int i = 0; i < 7; i++) {
            snprintf(name, sizeof name, "model.layers.%d.%s", layer, vectors[i].name);
            if (vectors[i].when) hf_tiny_vector(at, o, name, vectors[i].n, &rng);
        }
    }
    hf_tiny_vector(&w[n_shard - 1], o, "model.norm.weight", 128, &rng);

    struct bytes index = {0};
    put_string(&index, "{\"weight_map\":{");
    for (int i = 0; i < n_shard; i++) {
        char name[64] = "model.safetensors";
        if (n_shard > 1)
            snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", i + 1, n_shard);
        index_rows(&index, &w[i].json, name);
        size_t n;
        uint8_t *file = st_finish(&w[i], o->remainder, &n);
        write_in(dir, name, file, n);
        free(file);
    }
    put_string(&index, "}}");
    if (o->with_index) write_in(dir, "model.safetensors.index.json", index.data, index.n);
    bytes_free(&index);
    free(w);
}
#endif

#endif
