/* SPDX-License-Identifier: Apache-2.0
 * A dense Hugging Face directory rewritten in MLX affine 4-bit (brim/tools.h). One matrix at a
 * time: codes are streamed, only its scales and biases (a 32nd of its values at most) are kept. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/pool.h"
#include "brim/tools.h"
#include "load/affine4.h"
#include "load/checkpoint_impl.h"
#include "load/json.h"
#include "load/st_write.h"

void brim_quantize_options_default(brim_quantize_options *options)
{
    *options = (brim_quantize_options){.group = 64};
}

enum action { ACTION_COPY, ACTION_ENCODE, ACTION_DROP };

struct quantizer {
    struct brim_checkpoint *checkpoint;
    const brim_quantize_options *options;
    struct brim_pool *pool;
    struct brim_out_dir dir;
    struct brim_st_writer writer;
    uint64_t n_done, n_total; /* bytes of input, for progress */
    brim_error *err;
};

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

static bool dtype_of(const struct brim_file_tensor *t, enum brim_dtype *out)
{
    if (t->storage == BRIM_STORAGE_F32)
        *out = BRIM_DTYPE_F32;
    else if (t->storage == BRIM_STORAGE_F16)
        *out = BRIM_DTYPE_F16;
    else if (t->storage == BRIM_STORAGE_BF16)
        *out = BRIM_DTYPE_BF16;
    else
        return false;
    return true;
}

/* As mlx-lm: every linear layer and embedding whose input size is a multiple of the group. In the
 * supported families those are all the matrices. */
static enum action action_of(const struct quantizer *q, const struct brim_file_tensor *t)
{
    enum brim_dtype dtype;
    if (ends_with(t->name, ".rotary_emb.inv_freq")) return ACTION_DROP;
    if (strcmp(t->name, "lm_head.weight") == 0 && q->checkpoint->config.tie_embeddings)
        return ACTION_DROP;
    if (t->n_dim != 2 || !ends_with(t->name, ".weight") || !dtype_of(t, &dtype)) return ACTION_COPY;
    return t->shape[1] % q->options->group == 0 ? ACTION_ENCODE : ACTION_COPY;
}

/* Add the row of the output table for `t`'s codes (part 0), scales (1) or biases (2). */
static brim_status plan_part(const struct quantizer *q, struct brim_tensor_table *plan,
                             const struct brim_file_tensor *t, int part)
{
    static const char *const suffixes[] = {"weight", "scales", "biases"};
    char name[BRIM_MAX_NAME + 16];
    int len =
        snprintf(name, sizeof name, "%.*s%s", (int)strlen(t->name) - 6, t->name, suffixes[part]);
    struct brim_file_tensor *out;
    BRIM_TRY(brim_table_add(plan, name, (size_t)len, q->checkpoint->path, &out, q->err));
    out->n_dim = 2;
    out->shape[0] = t->shape[0];
    out->shape[1] = part == 0 ? t->shape[1] / 8 : t->shape[1] / q->options->group;
    out->type_name = part == 0 ? "U32" : t->type_name;
    uint64_t item = part == 0 || t->storage == BRIM_STORAGE_F32 ? 4 : 2;
    out->n_bytes = (uint64_t)out->shape[0] * (uint64_t)out->shape[1] * item;
    return BRIM_OK;
}

static brim_status make_plan(struct quantizer *q, struct brim_tensor_table *plan)
{
    const struct brim_tensor_table *table = &q->checkpoint->table;
    for (size_t i = 0; i < table->n; i++) {
        const struct brim_file_tensor *t = &table->items[i];
        enum action action = action_of(q, t);
        if (action == ACTION_DROP) continue;
        q->n_total += t->n_bytes;
        if (action == ACTION_ENCODE) {
            for (int part = 0; part < 3; part++) BRIM_TRY(plan_part(q, plan, t, part));
            continue;
        }
        struct brim_file_tensor *out;
        BRIM_TRY(brim_table_add(plan, t->name, strlen(t->name), q->checkpoint->path, &out, q->err));
        char *name = out->name;
        *out = *t;
        out->name = name;
        if (t->n_dim == 2 && q->options->warn) {
            char text[700];
            snprintf(text, sizeof text,
                     "%s: tensor %s stays as it is: rows of %" PRId64
                     " values are no multiple of %d",
                     q->checkpoint->path, t->name, t->shape[1], q->options->group);
            q->options->warn(q->options->warn_ctx, text);
        }
    }
    return BRIM_OK;
}

static void advance(struct quantizer *q, const void *data, uint64_t n_bytes, int shard)
{
    brim_map_release(&q->checkpoint->shards[shard].map, data, (size_t)n_bytes);
    q->n_done += n_bytes;
    if (q->options->progress) q->options->progress(q->options->progress_ctx, q->n_done, q->n_total);
}

static brim_status copy_tensor(struct quantizer *q, const struct brim_file_tensor *t)
{
    enum { PART = 1 << 24 };
    for (uint64_t at = 0; at < t->n_bytes; at += PART) {
        uint64_t n = t->n_bytes - at < PART ? t->n_bytes - at : PART;
        BRIM_TRY(brim_st_write(&q->writer, t->data + at, (size_t)n, q->err));
        advance(q, t->data + at, n, t->shard);
    }
    return BRIM_OK;
}

enum { ROWS_PER_ITEM = 8 };

struct encode_job {
    const struct brim_file_tensor *tensor;
    enum brim_dtype dtype;
    int group;
    int64_t first_row, n_row;
    uint32_t *words;          /* of rows from first_row */
    uint8_t *scales, *biases; /* of the whole tensor */
    _Atomic int64_t bad_row;  /* lowest row with a value not finite, or INT64_MAX */
};

static void encode_item(void *arg, int64_t item, int worker)
{
    (void)worker;
    struct encode_job *job = arg;
    int64_t n_in = job->tensor->shape[1], n_group = n_in / job->group;
    size_t element = brim_dtype_bytes(job->dtype);
    int64_t begin = item * ROWS_PER_ITEM, end = begin + ROWS_PER_ITEM;
    for (int64_t i = begin; i < end && i < job->n_row; i++) {
        int64_t row = job->first_row + i;
        size_t at = (size_t)(row * n_group) * element;
        if (brim_affine4_encode(job->dtype, job->tensor->data + (size_t)(row * n_in) * element,
                                n_in, job->group, job->words + i * (n_in / 8), job->scales + at,
                                job->biases + at))
            continue;
        int64_t lowest = atomic_load(&job->bad_row);
        while (row < lowest && !atomic_compare_exchange_weak(&job->bad_row, &lowest, row)) {
        }
    }
}

static brim_status encode_rows(struct quantizer *q, struct encode_job *job, int64_t rows_at_once)
{
    const struct brim_file_tensor *t = job->tensor;
    size_t row_bytes = (size_t)t->shape[1] * brim_dtype_bytes(job->dtype);
    for (int64_t row = 0; row < t->shape[0]; row += rows_at_once) {
        job->first_row = row;
        job->n_row = t->shape[0] - row < rows_at_once ? t->shape[0] - row : rows_at_once;
        brim_pool_run(q->pool, encode_item, job, (job->n_row + ROWS_PER_ITEM - 1) / ROWS_PER_ITEM);
        int64_t bad = atomic_load(&job->bad_row);
        BRIM_REQUIRE(q->err, bad == INT64_MAX, BRIM_E_NOT_FINITE,
                     "%s: tensor %s: row %" PRId64 " holds a value that is not finite",
                     q->checkpoint->path, t->name, bad);
        BRIM_TRY(brim_st_write(&q->writer, job->words, (size_t)(job->n_row * (t->shape[1] / 2)),
                               q->err));
        advance(q, t->data + (size_t)row * row_bytes, (uint64_t)job->n_row * row_bytes, t->shard);
    }
    return BRIM_OK;
}

static brim_status encode_tensor(struct quantizer *q, const struct brim_file_tensor *t)
{
    struct encode_job job = {.tensor = t, .group = q->options->group};
    atomic_init(&job.bad_row, INT64_MAX);
    (void)dtype_of(t, &job.dtype);
    int64_t rows_at_once = (1 << 23) / t->shape[1]; /* 4 MB of codes */
    if (rows_at_once < 1) rows_at_once = 1;
    if (rows_at_once > t->shape[0]) rows_at_once = t->shape[0];
    size_t n_scale = (size_t)(t->shape[0] * (t->shape[1] / job.group));
    size_t scale_bytes = n_scale * brim_dtype_bytes(job.dtype);
    job.words = brim_alloc((size_t)(rows_at_once * (t->shape[1] / 2)));
    job.scales = brim_alloc(scale_bytes);
    job.biases = brim_alloc(scale_bytes);
    brim_status status = BRIM_OK;
    if (!job.words || !job.scales || !job.biases)
        status = brim_fail(q->err, BRIM_E_NO_MEMORY, "tensor %s: out of memory", t->name);
    if (status == BRIM_OK) status = encode_rows(q, &job, rows_at_once);
    if (status == BRIM_OK) status = brim_st_write(&q->writer, job.scales, scale_bytes, q->err);
    if (status == BRIM_OK) status = brim_st_write(&q->writer, job.biases, scale_bytes, q->err);
    brim_free(job.words);
    brim_free(job.scales);
    brim_free(job.biases);
    return status;
}

static brim_status write_weights(struct quantizer *q)
{
    static const char *const metadata[] = {"format", "mlx"};
    struct brim_tensor_table plan = {0};
    const struct brim_tensor_table *table = &q->checkpoint->table;
    char *path = brim_path_join(q->dir.partial, "model.safetensors");
    brim_status status = BRIM_OK;
    if (!path) status = brim_fail(q->err, BRIM_E_NO_MEMORY, "%s: out of memory", q->dir.partial);
    if (status == BRIM_OK) status = make_plan(q, &plan);
    if (status == BRIM_OK) status = brim_st_create(&q->writer, path, &plan, metadata, 1, q->err);
    for (size_t i = 0; status == BRIM_OK && i < table->n; i++) {
        enum action action = action_of(q, &table->items[i]);
        if (action == ACTION_ENCODE)
            status = encode_tensor(q, &table->items[i]);
        else if (action == ACTION_COPY)
            status = copy_tensor(q, &table->items[i]);
    }
    if (status == BRIM_OK) status = brim_st_finish(&q->writer, q->err);
    brim_st_abandon(&q->writer);
    brim_table_free(&plan);
    brim_free(path);
    return status;
}

/* config.json with one member more, otherwise byte for byte: numbers keep their spelling. */
static brim_status write_config(struct quantizer *q, const struct brim_map *map, const char *path)
{
    json_t *root;
    BRIM_TRY(brim_json_parse(&root, map->data, map->n_bytes, path, q->err));
    bool has_key = json_object_get(root, "quantization") != NULL;
    json_decref(root);
    BRIM_REQUIRE(q->err, !has_key, BRIM_E_FORMAT, "%s: it has a quantization already", path);
    const uint8_t *brace = memchr(map->data, '{', map->n_bytes);
    size_t head = (size_t)(brace - map->data) + 1;
    char member[80];
    int n = snprintf(member, sizeof member,
                     "\n  \"quantization\": {\"group_size\": %d, \"bits\": 4},", q->options->group);
    char *text = brim_alloc(map->n_bytes + (size_t)n);
    if (!text) return brim_fail(q->err, BRIM_E_NO_MEMORY, "%s: out of memory", path);
    memcpy(text, map->data, head);
    memcpy(text + head, member, (size_t)n);
    memcpy(text + head + (size_t)n, map->data + head, map->n_bytes - head);
    brim_status status =
        brim_out_text(&q->dir, "config.json", text, map->n_bytes + (size_t)n, q->err);
    brim_free(text);
    return status;
}

static bool is_weight_file(const char *name)
{
    static const char *const ends[] = {".safetensors", ".index.json", ".bin",     ".gguf",
                                       ".pt",          ".pth",        ".h5",      ".msgpack",
                                       ".onnx",        ".npz",        ".partial", ".ot"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(name, ends[i])) return true;
    return name[0] == '.';
}

static brim_status write_file_of(struct quantizer *q, const char *name)
{
    char *path = brim_path_join(q->checkpoint->path, name);
    if (!path) return brim_fail(q->err, BRIM_E_NO_MEMORY, "%s: out of memory", name);
    struct stat st;
    struct brim_map map = {0};
    brim_status status = BRIM_OK;
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
        status = brim_map_open(&map, path, q->err);
        if (status == BRIM_OK && strcmp(name, "config.json") == 0)
            status = write_config(q, &map, path);
        else if (status == BRIM_OK)
            status = brim_out_text(&q->dir, name, (const char *)map.data, map.n_bytes, q->err);
        brim_map_close(&map);
    }
    brim_free(path);
    return status;
}

/* Everything that is no weight file: tokenizer, generation settings, licence, model card. */
static brim_status copy_files(struct quantizer *q)
{
    DIR *dir = opendir(q->checkpoint->path);
    BRIM_REQUIRE(q->err, dir, BRIM_E_IO, "%s: cannot list: %s", q->checkpoint->path,
                 strerror(errno));
    brim_status status = BRIM_OK;
    const struct dirent *entry;
    while (status == BRIM_OK && (entry = readdir(dir)) != NULL)
        if (!is_weight_file(entry->d_name)) status = write_file_of(q, entry->d_name);
    closedir(dir);
    return status;
}

static brim_status run(struct quantizer *q, const char *in_dir, const char *out_dir)
{
    const brim_quantize_options *o = q->options;
    BRIM_REQUIRE(q->err, o->group == 32 || o->group == 64 || o->group == 128, BRIM_E_RANGE,
                 "group %d: 32, 64 and 128 work", o->group);
    BRIM_TRY(brim_checkpoint_open(&q->checkpoint, in_dir, o->warn, o->warn_ctx, q->err));
    BRIM_REQUIRE(q->err, !q->checkpoint->is_gguf, BRIM_E_ARGUMENT,
                 "%s: a GGUF file; only a Hugging Face directory can be quantized", in_dir);
    BRIM_REQUIRE(q->err, !q->checkpoint->hf.is_quantized, BRIM_E_ARGUMENT,
                 "%s: it is quantized already", in_dir);
    BRIM_TRY(brim_pool_create(&q->pool, o->n_thread, q->err));
    BRIM_TRY(brim_out_begin(&q->dir, out_dir, q->err));
    BRIM_TRY(write_weights(q));
    BRIM_TRY(copy_files(q));
    return brim_out_commit(&q->dir, q->err);
}

brim_status brim_quantize(const char *in_dir, const char *out_dir,
                          const brim_quantize_options *options, brim_error *err)
{
    BRIM_REQUIRE(err, in_dir && out_dir, BRIM_E_ARGUMENT, "quantize: a directory is null");
    brim_quantize_options defaults;
    brim_quantize_options_default(&defaults);
    struct quantizer q = {.options = options ? options : &defaults, .err = err};
    q.writer.fd = -1;
    brim_status status = run(&q, in_dir, out_dir);
    brim_out_abandon(&q.dir);
    if (q.pool) brim_pool_free(&q.pool);
    brim_checkpoint_close(&q.checkpoint);
    return status;
}
