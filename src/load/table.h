/* SPDX-License-Identifier: Apache-2.0
 * The tensors a model file lists, whatever its format: names, shapes and where the bytes lie in the
 * mapping. The table owns the names; data borrows from the file. */
#ifndef BRIM_LOAD_TABLE_H
#define BRIM_LOAD_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { BRIM_MAX_DIM = 8, BRIM_MAX_NAME = 512 };

/* How the bytes of a tensor are to be read. OTHER: known to the format, of no use to a weight. */
enum brim_storage {
    BRIM_STORAGE_F32,
    BRIM_STORAGE_F16,
    BRIM_STORAGE_BF16,
    BRIM_STORAGE_U32,
    BRIM_STORAGE_Q8_0,
    BRIM_STORAGE_Q4_0,
    BRIM_STORAGE_Q4_1,
    BRIM_STORAGE_OTHER
};

struct brim_file_tensor {
    char *name;
    const char *type_name; /* static storage */
    enum brim_storage storage;
    int n_dim;
    int64_t shape[BRIM_MAX_DIM]; /* outermost first */
    const uint8_t *data;
    uint64_t n_bytes;
    int shard; /* which file of the checkpoint */
};

struct brim_tensor_table {
    struct brim_file_tensor *items; /* in the order of the files */
    size_t n, capacity;
    struct brim_file_tensor **by_name; /* sorted; NULL until brim_table_index */
};

/* Append a tensor named name[0, len); everything else of *out is zero. The name must be 1 to
 * BRIM_MAX_NAME bytes without control characters. */
brim_status brim_table_add(struct brim_tensor_table *table, const char *name, size_t len,
                           const char *path, struct brim_file_tensor **out, brim_error *err);
/* Sort for brim_table_find; a name that occurs twice is BRIM_E_FORMAT. No adding afterwards. */
brim_status brim_table_index(struct brim_tensor_table *table, const char *path, brim_error *err);
/* NULL if there is none. */
const struct brim_file_tensor *brim_table_find(const struct brim_tensor_table *table,
                                               const char *name);
void brim_table_free(struct brim_tensor_table *table);

/* Product of the shape, or false on overflow of 63 bits. */
bool brim_shape_product(const int64_t *shape, int n_dim, uint64_t *out);

/* The bytes [begin, end) of tensor `item`, for the search of overlaps and gaps. */
struct brim_span {
    uint64_t begin, end;
    size_t item;
};
/* By begin, then end. */
void brim_spans_sort(struct brim_span *spans, size_t n);

#endif
