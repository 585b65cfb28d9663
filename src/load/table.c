/* SPDX-License-Identifier: Apache-2.0 */
#include "load/table.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/mem.h"

static bool name_ok(const char *name, size_t len)
{
    if (len == 0 || len > BRIM_MAX_NAME) return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)name[i] < 0x20) return false;
    return true;
}

brim_status brim_table_add(struct brim_tensor_table *table, const char *name, size_t len,
                           const char *path, struct brim_file_tensor **out, brim_error *err)
{
    BRIM_REQUIRE(err, name_ok(name, len), BRIM_E_FORMAT,
                 "%s: the name of tensor %zu is empty, longer than %d bytes or holds control "
                 "characters",
                 path, table->n, BRIM_MAX_NAME);
    if (table->n == table->capacity) {
        size_t capacity = table->capacity ? table->capacity * 2 : 64;
        struct brim_file_tensor *grown =
            brim_realloc(table->items, table->n * sizeof *grown, capacity * sizeof *grown);
        if (!grown) return brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory", path);
        table->items = grown;
        table->capacity = capacity;
    }
    char *copy = brim_strndup(name, len);
    if (!copy) return brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory", path);
    *out = &table->items[table->n++];
    **out = (struct brim_file_tensor){.name = copy};
    return BRIM_OK;
}

static int compare_names(const void *a, const void *b)
{
    const struct brim_file_tensor *left = *(struct brim_file_tensor *const *)a;
    const struct brim_file_tensor *right = *(struct brim_file_tensor *const *)b;
    return strcmp(left->name, right->name);
}

brim_status brim_table_index(struct brim_tensor_table *table, const char *path, brim_error *err)
{
    struct brim_file_tensor **sorted = brim_calloc(table->n, sizeof(void *));
    if (!sorted) return brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory", path);
    for (size_t i = 0; i < table->n; i++) sorted[i] = &table->items[i];
    qsort(sorted, table->n, sizeof(void *), compare_names);
    table->by_name = sorted;
    for (size_t i = 1; i < table->n; i++)
        BRIM_REQUIRE(err, strcmp(sorted[i - 1]->name, sorted[i]->name) != 0, BRIM_E_FORMAT,
                     "%s: tensor %s is listed twice", path, sorted[i]->name);
    return BRIM_OK;
}

const struct brim_file_tensor *brim_table_find(const struct brim_tensor_table *table,
                                               const char *name)
{
    size_t low = 0, high = table->by_name ? table->n : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, table->by_name[middle]->name);
        if (order == 0) return table->by_name[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

void brim_table_free(struct brim_tensor_table *table)
{
    for (size_t i = 0; i < table->n; i++) brim_free(table->items[i].name);
    brim_free(table->items);
    brim_free(table->by_name);
    *table = (struct brim_tensor_table){0};
}

bool brim_shape_product(const int64_t *shape, int n_dim, uint64_t *out)
{
    uint64_t product = 1;
    for (int i = 0; i < n_dim; i++)
        if (shape[i] < 0 || !brim_mul_u64(product, (uint64_t)shape[i], &product)) return false;
    *out = product;
    return product <= INT64_MAX;
}

static int compare_spans(const void *a, const void *b)
{
    const struct brim_span *left = a, *right = b;
    if (left->begin != right->begin) return left->begin < right->begin ? -1 : 1;
    if (left->end != right->end) return left->end < right->end ? -1 : 1;
    return left->item < right->item ? -1 : left->item > right->item;
}

void brim_spans_sort(struct brim_span *spans, size_t n)
{
    qsort(spans, n, sizeof *spans, compare_spans);
}
