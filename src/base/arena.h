/* SPDX-License-Identifier: Apache-2.0
 * Memory for weights: blocks cut from large chunks that ask the kernel for huge pages, freed all at
 * once. A model is hundreds of matrices smaller than a huge page; read from 4 KiB pages, decoding
 * waits for address translation (two cores of a virtual machine: 8 GB/s instead of 14). */
#ifndef BRIM_BASE_ARENA_H
#define BRIM_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct brim_arena_chunk;

/* All zeros is an empty arena. One thread at a time. */
struct brim_arena {
    struct brim_arena_chunk *chunks; /* newest first */
};

/* n_bytes, 64-byte aligned, uninitialised; or NULL. Lives until brim_arena_free. */
void *brim_arena_alloc(struct brim_arena *arena, size_t n_bytes)
    __attribute__((warn_unused_result));
void brim_arena_free(struct brim_arena *arena);

#endif
