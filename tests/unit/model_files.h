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

/* ---- files ------------------------------------------------------------------------------------
 */

static inline void write_file(const char *path, const void *data, size_t n_bytes)
{
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, n_bytes, file) != n_bytes || fclose(file) != 0) abort();
}

#endif
