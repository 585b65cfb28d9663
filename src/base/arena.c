/* SPDX-License-Identifier: Apache-2.0 */
#define _DEFAULT_SOURCE
#include "base/arena.h"

#include <sys/mman.h>

#include "base/mem.h"

enum { HUGE_PAGE = 2 << 20, CHUNK_BYTES = 32 << 20 };

struct brim_arena_chunk {
    struct brim_arena_chunk *next;
    uint8_t *memory;      /* as allocated */
    uint8_t *begin;       /* first huge page boundary in it */
    size_t used, n_bytes; /* from begin */
};

/* Memory that is never touched costs no page, so the rest of a chunk is free of charge. */
static struct brim_arena_chunk *chunk_create(size_t n_bytes)
{
    if (n_bytes > SIZE_MAX - 2 * HUGE_PAGE) return NULL;
    n_bytes =
        n_bytes < CHUNK_BYTES ? CHUNK_BYTES : (n_bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    struct brim_arena_chunk *chunk = brim_calloc(1, sizeof *chunk);
    if (!chunk) return NULL;
    chunk->memory = brim_alloc(n_bytes + HUGE_PAGE);
    if (!chunk->memory) {
        brim_free(chunk);
        return NULL;
    }
    chunk->begin = chunk->memory + (HUGE_PAGE - (uintptr_t)chunk->memory % HUGE_PAGE) % HUGE_PAGE;
    chunk->n_bytes = n_bytes;
#ifdef MADV_HUGEPAGE
    madvise(chunk->begin, n_bytes, MADV_HUGEPAGE); /* a hint: only speed is lost without it */
#endif
    return chunk;
}

void *brim_arena_alloc(struct brim_arena *arena, size_t n_bytes)
{
    if (n_bytes > SIZE_MAX - BRIM_MEM_ALIGN) return NULL;
    n_bytes = (n_bytes + BRIM_MEM_ALIGN - 1) / BRIM_MEM_ALIGN * BRIM_MEM_ALIGN;
    struct brim_arena_chunk *chunk = arena->chunks;
    if (!chunk || n_bytes > chunk->n_bytes - chunk->used) {
        chunk = chunk_create(n_bytes);
        if (!chunk) return NULL;
        chunk->next = arena->chunks;
        arena->chunks = chunk;
    }
    uint8_t *block = chunk->begin + chunk->used;
    chunk->used += n_bytes;
    return block;
}

void brim_arena_free(struct brim_arena *arena)
{
    while (arena->chunks) {
        struct brim_arena_chunk *chunk = arena->chunks;
        arena->chunks = chunk->next;
        brim_free(chunk->memory);
        brim_free(chunk);
    }
}
