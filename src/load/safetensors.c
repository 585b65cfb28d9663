/* SPDX-License-Identifier: Apache-2.0 */
#include "load/safetensors.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/mem.h"
#include "load/json.h"

static const struct dtype {
    const char *name;
    uint8_t bits;
    enum brim_storage storage;
} dtypes[] = {
    {"F32", 32, BRIM_STORAGE_F32},      {"F16", 16, BRIM_STORAGE_F16},
    {"BF16", 16, BRIM_STORAGE_BF16},    {"U32", 32, BRIM_STORAGE_U32},
    {"BOOL", 8, BRIM_STORAGE_OTHER},    {"U8", 8, BRIM_STORAGE_OTHER},
    {"I8", 8, BRIM_STORAGE_OTHER},      {"F8_E5M2", 8, BRIM_STORAGE_OTHER},
    {"F8_E4M3", 8, BRIM_STORAGE_OTHER}, {"F8_E8M0", 8, BRIM_STORAGE_OTHER},
    {"F4", 4, BRIM_STORAGE_OTHER},      {"F6_E2M3", 6, BRIM_STORAGE_OTHER},
    {"F6_E3M2", 6, BRIM_STORAGE_OTHER}, {"I16", 16, BRIM_STORAGE_OTHER},
    {"U16", 16, BRIM_STORAGE_OTHER},    {"I32", 32, BRIM_STORAGE_OTHER},
    {"F64", 64, BRIM_STORAGE_OTHER},    {"I64", 64, BRIM_STORAGE_OTHER},
    {"U64", 64, BRIM_STORAGE_OTHER},    {"C64", 64, BRIM_STORAGE_OTHER},
};

static const struct dtype *find_dtype(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(name, dtypes[i].name) == 0) return &dtypes[i];
    return NULL;
}

struct context {
    const char *path;
    brim_error *err;
    int shard;
    struct brim_tensor_table *table;
};

static brim_status check_metadata(const struct context *c, const json_t *metadata)
{
    BRIM_REQUIRE(c->err, json_is_object(metadata), BRIM_E_FORMAT, "%s: __metadata__ is no object",
                 c->path);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)metadata, key, value)
        BRIM_REQUIRE(c->err, json_is_string(value), BRIM_E_FORMAT,
                     "%s: __metadata__ %.60s is no text", c->path, key);
    return BRIM_OK;
}

static brim_status read_shape(const struct context *c, const json_t *shape,
                              struct brim_file_tensor *t)
{
    BRIM_REQUIRE(c->err, json_is_array(shape) && json_array_size(shape) <= BRIM_MAX_DIM,
                 BRIM_E_FORMAT, "%s: tensor %s: its shape is no list of at most %d numbers",
                 c->path, t->name, BRIM_MAX_DIM);
    t->n_dim = (int)json_array_size(shape);
    for (int i = 0; i < t->n_dim; i++) {
        const json_t *extent = json_array_get(shape, (size_t)i);
        BRIM_REQUIRE(c->err, json_is_integer(extent) && json_integer_value(extent) >= 0,
                     BRIM_E_FORMAT, "%s: tensor %s: dimension %d is no number from 0", c->path,
                     t->name, i);
        t->shape[i] = json_integer_value(extent);
    }
    return BRIM_OK;
}

static brim_status read_tensor(const struct context *c, const char *name, const json_t *info,
                               struct brim_span *span)
{
    struct brim_file_tensor *t;
    BRIM_TRY(brim_table_add(c->table, name, strlen(name), c->path, &t, c->err));
    t->shard = c->shard;
    BRIM_REQUIRE(c->err, json_is_object(info), BRIM_E_FORMAT, "%s: tensor %s: not an object",
                 c->path, name);
    const json_t *dtype_text = json_object_get(info, "dtype");
    BRIM_REQUIRE(c->err, json_is_string(dtype_text), BRIM_E_FORMAT,
                 "%s: tensor %s: it has no dtype", c->path, name);
    const struct dtype *dtype = find_dtype(json_string_value(dtype_text));
    BRIM_REQUIRE(c->err, dtype, BRIM_E_FORMAT, "%s: tensor %s: unknown dtype %.40s", c->path, name,
                 json_string_value(dtype_text));
    t->type_name = dtype->name;
    t->storage = dtype->storage;
    BRIM_TRY(read_shape(c, json_object_get(info, "shape"), t));

    const json_t *offsets = json_object_get(info, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    BRIM_REQUIRE(c->err,
                 json_array_size(offsets) == 2 && json_is_integer(begin) && json_is_integer(end) &&
                     json_integer_value(begin) >= 0 &&
                     json_integer_value(begin) <= json_integer_value(end),
                 BRIM_E_FORMAT, "%s: tensor %s: its data_offsets are no pair of ascending numbers",
                 c->path, name);
    span->begin = (uint64_t)json_integer_value(begin);
    span->end = (uint64_t)json_integer_value(end);
    t->n_bytes = span->end - span->begin;
    uint64_t n_value, n_bits;
    BRIM_REQUIRE(c->err,
                 brim_shape_product(t->shape, t->n_dim, &n_value) &&
                     brim_mul_u64(n_value, dtype->bits, &n_bits),
                 BRIM_E_FORMAT, "%s: tensor %s: the product of its dimensions overflows", c->path,
                 name);
    BRIM_REQUIRE(c->err, n_bits % 8 == 0 && n_bits / 8 == t->n_bytes, BRIM_E_FORMAT,
                 "%s: tensor %s: its shape and %s need %" PRIu64
                 " bytes, its data_offsets span %" PRIu64,
                 c->path, name, dtype->name, n_bits / 8, t->n_bytes);
    return BRIM_OK;
}

/* Spans must follow each other from 0 to the end of the file. */
static brim_status check_spans(const struct context *c, const struct brim_span *spans, size_t n,
                               size_t first, uint64_t data_size)
{
    const struct brim_file_tensor *items = n ? c->table->items + first : NULL;
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        BRIM_REQUIRE(c->err, spans[i].begin >= at, BRIM_E_FORMAT, "%s: tensors %s and %s overlap",
                     c->path, items[spans[i - (i > 0)].item].name, items[spans[i].item].name);
        BRIM_REQUIRE(c->err, spans[i].begin == at, BRIM_E_FORMAT,
                     "%s: %" PRIu64 " bytes before tensor %s belong to no tensor", c->path,
                     spans[i].begin - at, items[spans[i].item].name);
        at = spans[i].end;
    }
    BRIM_REQUIRE(c->err, at <= data_size, BRIM_E_FORMAT,
                 "%s: truncated: %" PRIu64
                 " bytes are missing at the end; download this file again",
                 c->path, at - data_size);
    BRIM_REQUIRE(c->err, at == data_size, BRIM_E_FORMAT,
                 "%s: %" PRIu64 " bytes after the last tensor belong to no tensor", c->path,
                 data_size - at);
    return BRIM_OK;
}

/* Reorder the new tail of the table by data, so that `inspect` shows the file's own order. */
static brim_status sort_tail(const struct context *c, const struct brim_span *spans, size_t n,
                             size_t first, const uint8_t *data)
{
    if (!n) return BRIM_OK;
    struct brim_file_tensor *sorted = brim_calloc(n, sizeof *sorted);
    if (!sorted) return brim_fail(c->err, BRIM_E_NO_MEMORY, "%s: out of memory", c->path);
    struct brim_file_tensor *items = c->table->items + first;
    for (size_t i = 0; i < n; i++) {
        sorted[i] = items[spans[i].item];
        sorted[i].data = data + spans[i].begin;
    }
    memcpy(items, sorted, n * sizeof *sorted);
    brim_free(sorted);
    return BRIM_OK;
}

static brim_status read_header(const struct context *c, const json_t *header, const uint8_t *data,
                               uint64_t data_size)
{
    size_t first = c->table->n, n = 0;
    struct brim_span *spans = brim_calloc(json_object_size(header), sizeof *spans);
    if (!spans) return brim_fail(c->err, BRIM_E_NO_MEMORY, "%s: out of memory", c->path);
    const char *name;
    json_t *info;
    brim_status status = BRIM_OK;
    json_object_foreach((json_t *)(uintptr_t)header, name, info)
    {
        if (strcmp(name, "__metadata__") == 0) {
            status = check_metadata(c, info);
        } else {
            spans[n].item = n;
            status = read_tensor(c, name, info, &spans[n]);
            n++;
        }
        if (status != BRIM_OK) break;
    }
    if (status == BRIM_OK) {
        brim_spans_sort(spans, n);
        status = check_spans(c, spans, n, first, data_size);
    }
    if (status == BRIM_OK) status = sort_tail(c, spans, n, first, data);
    brim_free(spans);
    return status;
}

brim_status brim_safetensors_parse(struct brim_tensor_table *table, const uint8_t *data,
                                   size_t n_bytes, int shard, const char *path, brim_error *err)
{
    BRIM_REQUIRE(err, n_bytes >= 8, BRIM_E_FORMAT,
                 "%s: truncated: %zu bytes, a safetensors file has at least 8", path, n_bytes);
    uint64_t header_size = 0;
    for (int i = 0; i < 8; i++) header_size |= (uint64_t)data[i] << (8 * i);
    BRIM_REQUIRE(err, header_size <= BRIM_SAFETENSORS_MAX_HEADER, BRIM_E_FORMAT,
                 "%s: not a safetensors file: its header would have %" PRIu64 " bytes", path,
                 header_size);
    BRIM_REQUIRE(err, header_size <= n_bytes - 8, BRIM_E_FORMAT,
                 "%s: truncated: the header has %" PRIu64 " bytes, %" PRIu64
                 " of them are missing; download this file again",
                 path, header_size, header_size - (n_bytes - 8));
    json_t *header;
    BRIM_TRY(brim_json_parse(&header, data + 8, (size_t)header_size, path, err));
    struct context c = {.path = path, .err = err, .shard = shard, .table = table};
    brim_status status = read_header(&c, header, data + 8 + header_size, n_bytes - 8 - header_size);
    json_decref(header);
    return status;
}
