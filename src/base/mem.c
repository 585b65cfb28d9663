/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static _Thread_local int64_t fail_after = -1;
static _Thread_local int fail_once;
static _Thread_local uint64_t n_alloc;

void brim_mem_fail_after(int64_t n)
{
    fail_after = n;
    fail_once = 0;
}

void brim_mem_fail_once(int64_t n)
{
    fail_after = n;
    fail_once = 1;
}

uint64_t brim_mem_count(void)
{
    return n_alloc;
}

void *brim_alloc(size_t n_bytes)
{
    n_alloc++;
    if (fail_after == 0) {
        if (fail_once) fail_after = -1;
        return NULL;
    }
    if (fail_after > 0) fail_after--;
    if (n_bytes > SIZE_MAX - BRIM_MEM_ALIGN) return NULL;
    size_t rounded = (n_bytes + BRIM_MEM_ALIGN - 1) / BRIM_MEM_ALIGN * BRIM_MEM_ALIGN;
    return aligned_alloc(BRIM_MEM_ALIGN, rounded ? rounded : BRIM_MEM_ALIGN);
}

void *brim_calloc(size_t n_item, size_t item_bytes)
{
    size_t n_bytes;
    if (__builtin_mul_overflow(n_item, item_bytes, &n_bytes)) return NULL;
    void *ptr = brim_alloc(n_bytes);
    if (ptr) memset(ptr, 0, n_bytes);
    return ptr;
}

void *brim_realloc(void *ptr, size_t old_bytes, size_t n_bytes)
{
    void *grown = brim_alloc(n_bytes);
    if (!grown) return NULL;
    if (ptr) {
        memcpy(grown, ptr, old_bytes < n_bytes ? old_bytes : n_bytes);
        free(ptr);
    }
    return grown;
}

void brim_free(void *ptr)
{
    free(ptr);
}

char *brim_strndup(const char *text, size_t len)
{
    if (len == SIZE_MAX) return NULL;
    char *copy = brim_alloc(len + 1);
    if (!copy) return NULL;
    memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}
