/* SPDX-License-Identifier: Apache-2.0 */
#include "load/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/mem.h"

/* A cursor over the bytes. Every read is checked; `what` names the item for the error text. */
struct reader {
    const uint8_t *data;
    uint64_t at, size;
    const char *path;
    brim_error *err;
};

static brim_status need(const struct reader *r, uint64_t n, const char *what)
{
    BRIM_REQUIRE(r->err, brim_span_ok(r->at, n, r->size), BRIM_E_FORMAT,
                 "%s: the file ends inside %s: %" PRIu64 " bytes are needed at offset %" PRIu64
                 ", the file has %" PRIu64,
                 r->path, what, n, r->at, r->size);
    return BRIM_OK;
}

static uint64_t load_le(const uint8_t *at, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static brim_status read_u32(struct reader *r, const char *what, uint32_t *out)
{
    BRIM_TRY(need(r, 4, what));
    *out = (uint32_t)load_le(r->data + r->at, 4);
    r->at += 4;
    return BRIM_OK;
}

static brim_status read_u64(struct reader *r, const char *what, uint64_t *out)
{
    BRIM_TRY(need(r, 8, what));
    *out = load_le(r->data + r->at, 8);
    r->at += 8;
    return BRIM_OK;
}

static brim_status read_string(struct reader *r, const char *what, struct brim_str *out)
{
    uint64_t len;
    BRIM_TRY(read_u64(r, what, &len));
    BRIM_TRY(need(r, len, what));
    *out = (struct brim_str){(const char *)r->data + r->at, (size_t)len};
    r->at += len;
    return BRIM_OK;
}

/* Bytes of one metadata item; 0 for strings and for what does not exist. */
static size_t item_bytes(uint32_t type)
{
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof bytes ? bytes[type] : 0;
}

static brim_status read_value(struct reader *r, struct brim_gguf_value *value)
{
    BRIM_TRY(read_string(r, "a metadata key", &value->key));
    BRIM_REQUIRE(r->err, value->key.len >= 1 && value->key.len <= 65535, BRIM_E_FORMAT,
                 "%s: a metadata key has %zu bytes, must have 1 to 65535", r->path, value->key.len);
    int key_len = value->key.len > 100 ? 100 : (int)value->key.len;
    const char *key = value->key.data;
    uint32_t type;
    BRIM_TRY(read_u32(r, "a metadata type", &type));
    value->is_array = type == BRIM_GGUF_ARRAY;
    value->n_item = 1;
    if (value->is_array) {
        BRIM_TRY(read_u32(r, "a metadata array", &type));
        BRIM_TRY(read_u64(r, "a metadata array", &value->n_item));
        BRIM_REQUIRE(r->err, type != BRIM_GGUF_ARRAY, BRIM_E_UNSUPPORTED,
                     "%s: metadata %.*s is an array of arrays", r->path, key_len, key);
    }
    BRIM_REQUIRE(r->err, item_bytes(type) != 0 || type == BRIM_GGUF_STRING, BRIM_E_FORMAT,
                 "%s: metadata %.*s has the unknown type %" PRIu32, r->path, key_len, key, type);
    value->type = (enum brim_gguf_type)type;
    value->data = r->data + r->at;
    if (type == BRIM_GGUF_STRING) {
        BRIM_REQUIRE(r->err, value->n_item <= (r->size - r->at) / 8, BRIM_E_FORMAT,
                     "%s: metadata %.*s claims %" PRIu64 " strings, more than the file can hold",
                     r->path, key_len, key, value->n_item);
        struct brim_str ignored;
        for (uint64_t i = 0; i < value->n_item; i++)
            BRIM_TRY(read_string(r, "a metadata string", &ignored));
        return BRIM_OK;
    }
    uint64_t n_bytes;
    BRIM_REQUIRE(r->err, brim_mul_u64(value->n_item, item_bytes(type), &n_bytes), BRIM_E_FORMAT,
                 "%s: metadata %.*s claims %" PRIu64 " items", r->path, key_len, key,
                 value->n_item);
    BRIM_TRY(need(r, n_bytes, "a metadata value"));
    if (type == BRIM_GGUF_BOOL)
        for (uint64_t i = 0; i < n_bytes; i++)
            BRIM_REQUIRE(r->err, value->data[i] <= 1, BRIM_E_FORMAT,
                         "%s: metadata %.*s: a truth value is neither 0 nor 1", r->path, key_len,
                         key);
    r->at += n_bytes;
    return BRIM_OK;
}

static int compare_str(struct brim_str a, struct brim_str b)
{
    size_t shorter = a.len < b.len ? a.len : b.len;
    int order = memcmp(a.data, b.data, shorter);
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

static int compare_values(const void *a, const void *b)
{
    return compare_str(((const struct brim_gguf_value *)a)->key,
                       ((const struct brim_gguf_value *)b)->key);
}

static brim_status read_metadata(struct reader *r, uint64_t n_value, struct brim_gguf *gguf)
{
    /* The smallest entry: key length, one byte of key, type, one byte of value. */
    BRIM_REQUIRE(r->err, n_value <= (r->size - r->at) / 14, BRIM_E_FORMAT,
                 "%s: claims %" PRIu64 " metadata entries, more than the file can hold", r->path,
                 n_value);
    gguf->values = brim_calloc((size_t)n_value, sizeof *gguf->values);
    if (!gguf->values) return brim_fail(r->err, BRIM_E_NO_MEMORY, "%s: out of memory", r->path);
    gguf->n_value = (size_t)n_value;
    for (size_t i = 0; i < gguf->n_value; i++) BRIM_TRY(read_value(r, &gguf->values[i]));
    qsort(gguf->values, gguf->n_value, sizeof *gguf->values, compare_values);
    for (size_t i = 1; i < gguf->n_value; i++)
        BRIM_REQUIRE(r->err, compare_values(&gguf->values[i - 1], &gguf->values[i]) != 0,
                     BRIM_E_FORMAT, "%s: metadata %.*s occurs twice", r->path,
                     gguf->values[i].key.len > 100 ? 100 : (int)gguf->values[i].key.len,
                     gguf->values[i].key.data);
    return BRIM_OK;
}

/* Names of the type numbers of ggml, for error texts and `inspect`; block 0: brim cannot read it.
 */
static const struct {
    const char *name;
    uint8_t block, block_bytes; /* values and bytes of a block */
    enum brim_storage storage;
} tensor_types[] = {
    [0] = {"F32", 1, 4, BRIM_STORAGE_F32},
    [1] = {"F16", 1, 2, BRIM_STORAGE_F16},
    [2] = {"Q4_0", 32, 18, BRIM_STORAGE_Q4_0},
    [3] = {"Q4_1", 32, 20, BRIM_STORAGE_Q4_1},
    [6] = {.name = "Q5_0"},
    [7] = {.name = "Q5_1"},
    [8] = {"Q8_0", 32, 34, BRIM_STORAGE_Q8_0},
    [9] = {.name = "Q8_1"},
    [10] = {.name = "Q2_K"},
    [11] = {.name = "Q3_K"},
    [12] = {.name = "Q4_K"},
    [13] = {.name = "Q5_K"},
    [14] = {.name = "Q6_K"},
    [15] = {.name = "Q8_K"},
    [16] = {.name = "IQ2_XXS"},
    [17] = {.name = "IQ2_XS"},
    [18] = {.name = "IQ3_XXS"},
    [19] = {.name = "IQ1_S"},
    [20] = {.name = "IQ4_NL"},
    [21] = {.name = "IQ3_S"},
    [22] = {.name = "IQ2_S"},
    [23] = {.name = "IQ4_XS"},
    [24] = {.name = "I8"},
    [25] = {.name = "I16"},
    [26] = {.name = "I32"},
    [27] = {.name = "I64"},
    [28] = {.name = "F64"},
    [29] = {.name = "IQ1_M"},
    [30] = {"BF16", 1, 2, BRIM_STORAGE_BF16},
    [34] = {.name = "TQ1_0"},
    [35] = {.name = "TQ2_0"},
    [39] = {.name = "MXFP4"},
};
enum { N_TENSOR_TYPE = sizeof tensor_types / sizeof *tensor_types };

/* The unreadable types of a file, each with the first tensor that has it. */
struct unreadable {
    char text[280];
    size_t len, n_tensor;
    uint32_t seen[8];
    int n_seen;
};

static void note_unreadable(struct unreadable *u, const char *tensor, uint32_t type)
{
    u->n_tensor++;
    for (int i = 0; i < u->n_seen; i++)
        if (u->seen[i] == type) return;
    if (u->n_seen == 8) return;
    u->seen[u->n_seen++] = type;
    char number[16];
    snprintf(number, sizeof number, "type %" PRIu32, type);
    const char *name =
        type < N_TENSOR_TYPE && tensor_types[type].name ? tensor_types[type].name : number;
    int n = snprintf(u->text + u->len, sizeof u->text - u->len, "%s%.60s is %s", u->len ? ", " : "",
                     tensor, name);
    if (n > 0 && (size_t)n < sizeof u->text - u->len)
        u->len += (size_t)n;
    else
        u->text[u->len] = '\0';
}

/* One row of the tensor table; data holds the offset until the place of the data is known. */
static brim_status read_tensor(struct reader *r, struct brim_gguf *gguf, uint64_t *offset,
                               struct unreadable *unreadable)
{
    struct brim_str name;
    BRIM_TRY(read_string(r, "a tensor name", &name));
    struct brim_file_tensor *t;
    BRIM_TRY(brim_table_add(&gguf->tensors, name.data, name.len, r->path, &t, r->err));
    uint32_t n_dim, type;
    BRIM_TRY(read_u32(r, "the tensor table", &n_dim));
    BRIM_REQUIRE(r->err, n_dim >= 1 && n_dim <= 4, BRIM_E_FORMAT,
                 "%s: tensor %s has %" PRIu32 " dimensions, must have 1 to 4", r->path, t->name,
                 n_dim);
    t->n_dim = (int)n_dim;
    for (uint32_t i = 0; i < n_dim; i++) { /* the file counts from the innermost */
        uint64_t extent;
        BRIM_TRY(read_u64(r, "the tensor table", &extent));
        BRIM_REQUIRE(r->err, extent >= 1 && extent <= INT64_MAX, BRIM_E_FORMAT,
                     "%s: tensor %s: dimension %" PRIu32 " is %" PRIu64, r->path, t->name, i,
                     extent);
        t->shape[n_dim - 1 - i] = (int64_t)extent;
    }
    BRIM_TRY(read_u32(r, "the tensor table", &type));
    BRIM_TRY(read_u64(r, "the tensor table", offset));
    uint64_t n_value;
    BRIM_REQUIRE(r->err, brim_shape_product(t->shape, t->n_dim, &n_value), BRIM_E_FORMAT,
                 "%s: tensor %s: the product of its dimensions overflows", r->path, t->name);
    if (type >= N_TENSOR_TYPE || tensor_types[type].block == 0) {
        note_unreadable(unreadable, t->name, type);
        return BRIM_OK;
    }
    t->type_name = tensor_types[type].name;
    t->storage = tensor_types[type].storage;
    uint64_t block = tensor_types[type].block, inner = (uint64_t)t->shape[n_dim - 1];
    BRIM_REQUIRE(r->err, inner % block == 0, BRIM_E_FORMAT,
                 "%s: tensor %s is %s but its rows of %" PRIu64
                 " values are no multiple of %" PRIu64,
                 r->path, t->name, t->type_name, inner, block);
    BRIM_REQUIRE(r->err, brim_mul_u64(n_value / block, tensor_types[type].block_bytes, &t->n_bytes),
                 BRIM_E_FORMAT, "%s: tensor %s: its size overflows", r->path, t->name);
    return BRIM_OK;
}

static brim_status place_tensors(struct reader *r, struct brim_gguf *gguf, struct brim_span *spans)
{
    struct brim_tensor_table *table = &gguf->tensors;
    uint64_t mask = gguf->alignment - 1;
    uint64_t data_at = (r->at + mask) & ~mask; /* r->at <= file size: no overflow */
    uint64_t data_size = data_at <= r->size ? r->size - data_at : 0;
    for (size_t i = 0; i < table->n; i++) {
        struct brim_file_tensor *t = &table->items[i];
        uint64_t offset = spans[i].begin;
        BRIM_REQUIRE(r->err, (offset & mask) == 0, BRIM_E_FORMAT,
                     "%s: tensor %s: offset %" PRIu64 " is no multiple of the alignment %" PRIu64,
                     r->path, t->name, offset, gguf->alignment);
        if (!brim_span_ok(offset, t->n_bytes, data_size)) {
            uint64_t end;
            if (!brim_add_u64(offset, t->n_bytes, &end))
                return brim_fail(r->err, BRIM_E_FORMAT,
                                 "%s: tensor %s: offset %" PRIu64 " overflows", r->path, t->name,
                                 offset);
            return brim_fail(r->err, BRIM_E_FORMAT,
                             "%s: truncated: tensor %s ends %" PRIu64
                             " bytes past the end of the file; download it again",
                             r->path, t->name, end - data_size);
        }
        t->data = r->data + data_at + offset;
        spans[i] = (struct brim_span){offset, offset + t->n_bytes, i};
    }
    brim_spans_sort(spans, table->n);
    for (size_t i = 1; i < table->n; i++)
        BRIM_REQUIRE(r->err, spans[i - 1].end <= spans[i].begin, BRIM_E_FORMAT,
                     "%s: tensors %s and %s overlap", r->path, table->items[spans[i - 1].item].name,
                     table->items[spans[i].item].name);
    return BRIM_OK;
}

static brim_status read_tensors(struct reader *r, uint64_t n_tensor, struct brim_gguf *gguf)
{
    /* The smallest row: name length, one byte, count, one dimension, type, offset. */
    BRIM_REQUIRE(r->err, n_tensor <= (r->size - r->at) / 33, BRIM_E_FORMAT,
                 "%s: claims %" PRIu64 " tensors, more than the file can hold", r->path, n_tensor);
    struct brim_span *spans = brim_calloc((size_t)n_tensor, sizeof *spans);
    if (!spans) return brim_fail(r->err, BRIM_E_NO_MEMORY, "%s: out of memory", r->path);
    struct unreadable unreadable = {0};
    brim_status status = BRIM_OK;
    for (uint64_t i = 0; status == BRIM_OK && i < n_tensor; i++)
        status = read_tensor(r, gguf, &spans[i].begin, &unreadable);
    if (status == BRIM_OK) status = brim_table_index(&gguf->tensors, r->path, r->err);
    if (status == BRIM_OK && unreadable.n_tensor > 0)
        status = brim_fail(r->err, BRIM_E_UNSUPPORTED,
                           "%s: %zu tensors have a type brim does not read (%s); types that work: "
                           "F32, F16, BF16, Q8_0, Q4_0, Q4_1",
                           r->path, unreadable.n_tensor, unreadable.text);
    if (status == BRIM_OK) status = place_tensors(r, gguf, spans);
    brim_free(spans);
    return status;
}

static brim_status parse(struct reader *r, struct brim_gguf *gguf)
{
    uint32_t version;
    uint64_t n_tensor, n_value;
    BRIM_TRY(need(r, 4, "the header"));
    BRIM_REQUIRE(r->err, memcmp(r->data, "GGUF", 4) == 0, BRIM_E_FORMAT,
                 "%s: not a GGUF file: it does not begin with GGUF", r->path);
    r->at = 4;
    BRIM_TRY(read_u32(r, "the header", &version));
    BRIM_REQUIRE(r->err, (version & 0xFFFF) != 0 || version == 0, BRIM_E_UNSUPPORTED,
                 "%s: a big-endian GGUF file", r->path);
    BRIM_REQUIRE(r->err, version == 2 || version == 3, BRIM_E_UNSUPPORTED,
                 "%s: GGUF version %" PRIu32 "; versions 2 and 3 work", r->path, version);
    gguf->version = (int)version;
    BRIM_TRY(read_u64(r, "the header", &n_tensor));
    BRIM_TRY(read_u64(r, "the header", &n_value));
    BRIM_TRY(read_metadata(r, n_value, gguf));
    int64_t alignment = 32;
    if (brim_gguf_find(gguf, "general.alignment"))
        BRIM_REQUIRE(r->err,
                     brim_gguf_int(gguf, "general.alignment", &alignment) && alignment >= 8 &&
                         alignment <= 1 << 20 && (alignment & (alignment - 1)) == 0,
                     BRIM_E_FORMAT,
                     "%s: general.alignment is no power of two between 8 and 1048576", r->path);
    gguf->alignment = (uint64_t)alignment;
    return read_tensors(r, n_tensor, gguf);
}

brim_status brim_gguf_parse(struct brim_gguf *out, const uint8_t *data, size_t n_bytes,
                            const char *path, brim_error *err)
{
    *out = (struct brim_gguf){0};
    struct reader r = {data, 0, n_bytes, path, err};
    brim_status status = parse(&r, out);
    if (status != BRIM_OK) brim_gguf_free(out);
    return status;
}

void brim_gguf_free(struct brim_gguf *gguf)
{
    brim_free(gguf->values);
    brim_table_free(&gguf->tensors);
    *gguf = (struct brim_gguf){0};
}

const struct brim_gguf_value *brim_gguf_find(const struct brim_gguf *gguf, const char *key)
{
    struct brim_gguf_value wanted = {.key = {key, strlen(key)}};
    if (gguf->n_value == 0) return NULL;
    return bsearch(&wanted, gguf->values, gguf->n_value, sizeof wanted, compare_values);
}

static const struct brim_gguf_value *find_scalar(const struct brim_gguf *gguf, const char *key)
{
    const struct brim_gguf_value *value = brim_gguf_find(gguf, key);
    return value && !value->is_array ? value : NULL;
}

bool brim_gguf_int(const struct brim_gguf *gguf, const char *key, int64_t *out)
{
    const struct brim_gguf_value *value = find_scalar(gguf, key);
    if (!value) return false;
    size_t n = item_bytes(value->type);
    switch (value->type) {
    case BRIM_GGUF_U8:
    case BRIM_GGUF_U16:
    case BRIM_GGUF_U32:
    case BRIM_GGUF_U64: {
        uint64_t bits = load_le(value->data, n);
        if (bits > INT64_MAX) return false;
        *out = (int64_t)bits;
        return true;
    }
    case BRIM_GGUF_I8:
    case BRIM_GGUF_I16:
    case BRIM_GGUF_I32:
    case BRIM_GGUF_I64: {
        unsigned shift = 64 - 8 * (unsigned)n;
        *out = (int64_t)(load_le(value->data, n) << shift) >> shift;
        return true;
    }
    default:
        return false;
    }
}

bool brim_gguf_number(const struct brim_gguf *gguf, const char *key, double *out)
{
    const struct brim_gguf_value *value = find_scalar(gguf, key);
    if (!value) return false;
    if (value->type == BRIM_GGUF_F32) {
        *out = (double)brim_f32_from_bits((uint32_t)load_le(value->data, 4));
        return true;
    }
    if (value->type == BRIM_GGUF_F64) {
        uint64_t bits = load_le(value->data, 8);
        memcpy(out, &bits, sizeof bits);
        return true;
    }
    int64_t integer;
    if (!brim_gguf_int(gguf, key, &integer)) return false;
    *out = (double)integer;
    return true;
}

bool brim_gguf_bool(const struct brim_gguf *gguf, const char *key, bool *out)
{
    const struct brim_gguf_value *value = find_scalar(gguf, key);
    if (!value || value->type != BRIM_GGUF_BOOL) return false;
    *out = value->data[0] != 0;
    return true;
}

bool brim_gguf_string(const struct brim_gguf *gguf, const char *key, struct brim_str *out)
{
    const struct brim_gguf_value *value = find_scalar(gguf, key);
    if (!value || value->type != BRIM_GGUF_STRING) return false;
    const uint8_t *at = value->data;
    *out = brim_gguf_next_string(&at);
    return true;
}

struct brim_str brim_gguf_next_string(const uint8_t **at)
{
    struct brim_str text = {.len = (size_t)load_le(*at, 8)};
    text.data = (const char *)*at + 8;
    *at += 8 + text.len;
    return text;
}
