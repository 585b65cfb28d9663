/* SPDX-License-Identifier: Apache-2.0
 * What the fuzz targets share. A target is one function over bytes; libFuzzer calls it in the fuzz
 * build, replay.c calls it with the committed seeds in every other build. */
#ifndef BRIM_TESTS_FUZZ_H
#define BRIM_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A property that must hold for every input; unlike assert it stays in release builds. */
#define FUZZ_REQUIRE(condition)             \
    do {                                    \
        if (!(condition)) __builtin_trap(); \
    } while (0)

#endif
