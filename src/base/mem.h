/* SPDX-License-Identifier: Apache-2.0
 * The library's only allocator. Every allocation of load and run passes here, so that a test can
 * make the n-th one fail (brim_mem_fail_after) and a decode step can be proved free of them
 * (brim_mem_count). Blocks are 64-byte aligned, the width of a cache line and of a zmm register. */
#ifndef BRIM_BASE_MEM_H
#define BRIM_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

enum { BRIM_MEM_ALIGN = 64 };

/* Bytes that a piece of n takes in a block of several, so that the next one is aligned too. */
static inline size_t brim_mem_round(size_t n)
{
    return (n + BRIM_MEM_ALIGN - 1) / BRIM_MEM_ALIGN * BRIM_MEM_ALIGN;
}

/* Uninitialised block of n_bytes (0 gives a valid unique pointer), or NULL. */
void *brim_alloc(size_t n_bytes) __attribute__((malloc, warn_unused_result));
/* Zeroed block of n_item * item_bytes, or NULL (also when the product overflows). */
void *brim_calloc(size_t n_item, size_t item_bytes) __attribute__((malloc, warn_unused_result));
/* Grow or shrink; contents up to the smaller size are kept; on failure NULL and `ptr` stays valid.
 * old_bytes is the size `ptr` was allocated with. */
void *brim_realloc(void *ptr, size_t old_bytes, size_t n_bytes) __attribute__((warn_unused_result));
void brim_free(void *ptr); /* NULL is fine */
/* NUL-terminated copy of len bytes, or NULL. */
char *brim_strndup(const char *text, size_t len) __attribute__((malloc, warn_unused_result));

/* Tests: the n-th allocation from now on this thread, and all later ones, fail; -1 turns it off. */
void brim_mem_fail_after(int64_t n);
/* Tests: the n-th allocation from now on this thread fails, later ones do not. */
void brim_mem_fail_once(int64_t n);
/* Allocations made by this thread since it started. */
uint64_t brim_mem_count(void);

#endif
