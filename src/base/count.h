/* SPDX-License-Identifier: Apache-2.0
 * Counting: pieces of a whole. */
#ifndef BRIM_BASE_COUNT_H
#define BRIM_BASE_COUNT_H

#include <stdint.h>

/* Pieces of b that cover a; a >= 0, b >= 1. */
static inline int64_t brim_ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

static inline int64_t brim_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#endif
