/* SPDX-License-Identifier: Apache-2.0
 * Synthetic checkpoints (brim/tools.h): the names, shapes and types of published MLX 4-bit models
 * with seeded noise inside. Every tensor has its own generator, so contents do not depend on order.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "brim/tools.h"
#include "load/json.h"
#include "load/st_write.h"
#include "tensor/dtype.h"

enum { GROUP = 128, BUFFER_BYTES = 1 << 20 };

struct preset {
    const char *name;
    int64_t n_embd, n_layer, n_ff, n_head, n_head_kv, head_dim, n_vocab, n_context;
    int eos, eos_too, bos;
};

static const struct preset presets[] = {
    {"qwen3-0.6b", 1024, 28, 3072, 16, 8, 128, 151936, 40960, 151645, 151643, 151643},
    {"qwen3-4b", 2560, 36, 9728, 32, 8, 128, 151936, 65536, 151645, 151643, 151643},
    {"tiny", 256, 2, 512, 4, 2, 128, 512, 2048, 1, 2, 0},
};

const char *brim_synth_preset(size_t i)
{
    return i < sizeof presets / sizeof *presets ? presets[i].name : NULL;
}

struct synth {
    const struct preset *preset;
    uint64_t seed;
    struct brim_tensor_table plan;
    struct brim_out_dir dir;
    struct brim_st_writer writer;
    uint8_t *buffer; /* BUFFER_BYTES */
    uint64_t n_done, n_total;
    brim_progress_fn *progress;
    void *progress_ctx;
    brim_error *err;
};

static brim_status plan_tensor(struct synth *s, const char *name, const char *type, uint64_t item,
                               int64_t n_out, int64_t n_in)
{
    struct brim_file_tensor *t;
    BRIM_TRY(brim_table_add(&s->plan, name, strlen(name), "synth", &t, s->err));
    t->type_name = type;
    t->n_dim = n_out > 0 ? 2 : 1;
    t->shape[0] = n_out > 0 ? n_out : n_in;
    t->shape[1] = n_out > 0 ? n_in : 0;
    t->n_bytes = (uint64_t)(n_out > 0 ? n_out : 1) * (uint64_t)n_in * item;
    s->n_total += t->n_bytes;
    return BRIM_OK;
}

static brim_status plan_matrix(struct synth *s, const char *module, int64_t n_out, int64_t n_in)
{
    char name[128];
    snprintf(name, sizeof name, "%s.weight", module);
    BRIM_TRY(plan_tensor(s, name, "U32", 4, n_out, n_in / 8));
    snprintf(name, sizeof name, "%s.scales", module);
    BRIM_TRY(plan_tensor(s, name, "BF16", 2, n_out, n_in / GROUP));
    snprintf(name, sizeof name, "%s.biases", module);
    return plan_tensor(s, name, "BF16", 2, n_out, n_in / GROUP);
}

static brim_status plan_layer(struct synth *s, int64_t layer)
{
    const struct preset *p = s->preset;
    int64_t n_q = p->n_head * p->head_dim, n_kv = p->n_head_kv * p->head_dim;
    const struct {
        const char *name;
        int64_t n_out, n_in; /* n_out 0: a vector */
    } rows[] = {{"input_layernorm.weight", 0, p->n_embd},
                {"mlp.down_proj", p->n_embd, p->n_ff},
                {"mlp.gate_proj", p->n_ff, p->n_embd},
                {"mlp.up_proj", p->n_ff, p->n_embd},
                {"post_attention_layernorm.weight", 0, p->n_embd},
                {"self_attn.k_norm.weight", 0, p->head_dim},
                {"self_attn.k_proj", n_kv, p->n_embd},
                {"self_attn.o_proj", p->n_embd, n_q},
                {"self_attn.q_norm.weight", 0, p->head_dim},
                {"self_attn.q_proj", n_q, p->n_embd},
                {"self_attn.v_proj", n_kv, p->n_embd}};
    char name[96];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(name, sizeof name, "model.layers.%" PRId64 ".%s", layer, rows[i].name);
        if (rows[i].n_out > 0)
            BRIM_TRY(plan_matrix(s, name, rows[i].n_out, rows[i].n_in));
        else
            BRIM_TRY(plan_tensor(s, name, "BF16", 2, 0, rows[i].n_in));
    }
    return BRIM_OK;
}

static brim_status make_plan(struct synth *s)
{
    BRIM_TRY(plan_matrix(s, "model.embed_tokens", s->preset->n_vocab, s->preset->n_embd));
    for (int64_t layer = 0; layer < s->preset->n_layer; layer++) BRIM_TRY(plan_layer(s, layer));
    return plan_tensor(s, "model.norm.weight", "BF16", 2, 0, s->preset->n_embd);
}

enum content { CONTENT_CODES, CONTENT_SCALES, CONTENT_BIASES, CONTENT_NORM };

static enum content content_of(const char *name)
{
    const char *last = strrchr(name, '.');
    if (strcmp(last, ".scales") == 0) return CONTENT_SCALES;
    if (strcmp(last, ".biases") == 0) return CONTENT_BIASES;
    return strstr(name, "norm") ? CONTENT_NORM : CONTENT_CODES;
}

/* n_bytes of one tensor's stream. n_in: inputs of the matrix. A scale is +-(0.5..1.5) u with
 * u = 1 / (4.6 sqrt(n_in)): 4.6 is the deviation of a uniform code, so a row of weights has length
 * about 1 and activations keep their size through the layers. The bias is -8 scales, which puts
 * zero on a code as MLX's encoder does; 8 is a power of two, so it is exact in bf16. Scales and
 * biases of a tensor share their seed. */
static void fill(struct brim_rng *rng, enum content content, int64_t n_in, uint8_t *out,
                 size_t n_bytes)
{
    if (content == CONTENT_CODES) {
        for (size_t i = 0; i < n_bytes; i += 4) {
            uint32_t word = brim_rng_u32(rng);
            memcpy(out + i, &word, 4);
        }
        return;
    }
    float root = 1;
    for (int i = 0; i < 40; i++) root = 0.5f * (root + (float)n_in / root); /* sqrt by Newton */
    float unit = 1 / (4.6f * root);
    for (size_t i = 0; i < n_bytes; i += 2) {
        uint32_t word = brim_rng_u32(rng);
        float part = (float)(word >> 8) * 0x1p-24f;
        float value = 0.75f + 0.5f * part; /* a norm weight */
        if (content != CONTENT_NORM) {
            value = brim_f32_from_bf16(brim_bf16_from_f32((0.5f + part) * unit));
            if (word & 1) value = -value;
            if (content == CONTENT_BIASES) value *= -8;
        }
        uint16_t half = brim_bf16_from_f32(value);
        memcpy(out + i, &half, 2);
    }
}

static brim_status write_tensor(struct synth *s, size_t i)
{
    const struct brim_file_tensor *t = &s->plan.items[i];
    enum content content = content_of(t->name);
    struct brim_rng rng;
    size_t stream = content == CONTENT_BIASES ? i - 1 : i;
    brim_rng_seed(&rng, s->seed * 0x9E3779B97F4A7C15u + stream);
    int64_t n_in = t->shape[1] * GROUP; /* meant for scales and biases */
    for (uint64_t at = 0; at < t->n_bytes; at += BUFFER_BYTES) {
        size_t n = t->n_bytes - at < BUFFER_BYTES ? (size_t)(t->n_bytes - at) : BUFFER_BYTES;
        fill(&rng, content, n_in, s->buffer, n);
        BRIM_TRY(brim_st_write(&s->writer, s->buffer, n, s->err));
        s->n_done += n;
        if (s->progress) s->progress(s->progress_ctx, s->n_done, s->n_total);
    }
    return BRIM_OK;
}

static brim_status write_weights(struct synth *s)
{
    char seed[32];
    snprintf(seed, sizeof seed, "%" PRIu64, s->seed);
    const char *metadata[] = {
        "format",    "mlx", "brim_synthetic",   s->preset->name,
        "brim_seed", seed,  "brim_description", "random weights, for measurements only"};
    char *path = brim_path_join(s->dir.partial, "model.safetensors");
    brim_status status = BRIM_OK;
    if (!path) status = brim_fail(s->err, BRIM_E_NO_MEMORY, "%s: out of memory", s->dir.partial);
    if (status == BRIM_OK) status = brim_st_create(&s->writer, path, &s->plan, metadata, 4, s->err);
    for (size_t i = 0; status == BRIM_OK && i < s->plan.n; i++) status = write_tensor(s, i);
    if (status == BRIM_OK) status = brim_st_finish(&s->writer, s->err);
    brim_st_abandon(&s->writer);
    brim_free(path);
    return status;
}

static brim_status write_texts(struct synth *s)
{
    const struct preset *p = s->preset;
    char text[2048];
    int n = snprintf(text, sizeof text,
                     "{\n"
                     "  \"brim_synthetic\": {\"preset\": \"%s\", \"seed\": %" PRIu64
                     ", \"note\": \"random weights, for measurements only\"},\n"
                     "  \"architectures\": [\"Qwen3ForCausalLM\"],\n"
                     "  \"attention_bias\": false,\n"
                     "  \"bos_token_id\": %d,\n"
                     "  \"eos_token_id\": %d,\n"
                     "  \"head_dim\": %" PRId64 ",\n"
                     "  \"hidden_act\": \"silu\",\n"
                     "  \"hidden_size\": %" PRId64 ",\n"
                     "  \"intermediate_size\": %" PRId64 ",\n"
                     "  \"max_position_embeddings\": %" PRId64 ",\n"
                     "  \"model_type\": \"qwen3\",\n"
                     "  \"num_attention_heads\": %" PRId64 ",\n"
                     "  \"num_hidden_layers\": %" PRId64 ",\n"
                     "  \"num_key_value_heads\": %" PRId64 ",\n"
                     "  \"quantization\": {\"group_size\": %d, \"bits\": 4},\n"
                     "  \"rms_norm_eps\": 1e-06,\n"
                     "  \"rope_scaling\": null,\n"
                     "  \"rope_theta\": 1000000,\n"
                     "  \"tie_word_embeddings\": true,\n"
                     "  \"torch_dtype\": \"bfloat16\",\n"
                     "  \"use_sliding_window\": false,\n"
                     "  \"vocab_size\": %" PRId64 "\n"
                     "}\n",
                     p->name, s->seed, p->bos, p->eos, p->head_dim, p->n_embd, p->n_ff,
                     p->n_context, p->n_head, p->n_layer, p->n_head_kv, GROUP, p->n_vocab);
    BRIM_TRY(brim_out_text(&s->dir, "config.json", text, (size_t)n, s->err));
    n = snprintf(text, sizeof text, "{\n  \"bos_token_id\": %d,\n  \"eos_token_id\": [%d, %d]\n}\n",
                 p->bos, p->eos, p->eos_too);
    BRIM_TRY(brim_out_text(&s->dir, "generation_config.json", text, (size_t)n, s->err));
    n = snprintf(
        text, sizeof text,
        "# Synthetic checkpoint %s\n\n"
        "Random weights (seed %" PRIu64 ") in the form of a published MLX 4-bit model: same "
        "tensor names, shapes and types, group %d. Made by `brim synth` to measure speed and "
        "memory. It was never trained, it has no tokenizer, and what it generates is "
        "noise.\n",
        p->name, s->seed, GROUP);
    return brim_out_text(&s->dir, "README.md", text, (size_t)n, s->err);
}

static brim_status run(struct synth *s, const char *out_dir)
{
    BRIM_TRY(make_plan(s));
    s->buffer = brim_alloc(BUFFER_BYTES);
    if (!s->buffer) return brim_fail(s->err, BRIM_E_NO_MEMORY, "synth: out of memory");
    BRIM_TRY(brim_out_begin(&s->dir, out_dir, s->err));
    BRIM_TRY(write_weights(s));
    BRIM_TRY(write_texts(s));
    return brim_out_commit(&s->dir, s->err);
}

brim_status brim_synth(const char *preset, const char *out_dir, uint64_t seed,
                       brim_progress_fn *progress, void *progress_ctx, brim_error *err)
{
    BRIM_REQUIRE(err, preset && out_dir, BRIM_E_ARGUMENT, "synth: preset or directory is null");
    struct synth s = {.seed = seed, .progress = progress, .progress_ctx = progress_ctx, .err = err};
    s.writer.fd = -1;
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (strcmp(preset, presets[i].name) == 0) s.preset = &presets[i];
    BRIM_REQUIRE(err, s.preset, BRIM_E_ARGUMENT,
                 "preset %.40s is unknown: qwen3-0.6b, qwen3-4b and tiny work", preset);
    brim_status status = run(&s, out_dir);
    brim_out_abandon(&s.dir);
    brim_table_free(&s.plan);
    brim_free(s.buffer);
    return status;
}
