/* SPDX-License-Identifier: Apache-2.0
 * Overflow-checked arithmetic for every number that comes from a file or a caller. */
#ifndef BRIM_BASE_CHECKED_H
#define BRIM_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

/* *out = a * b, or false and *out unspecified. */
static inline bool brim_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool brim_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Is [begin, begin + len) inside [0, size)? */
static inline bool brim_span_ok(uint64_t begin, uint64_t len, uint64_t size)
{
    return begin <= size && len <= size - begin;
}

#endif
