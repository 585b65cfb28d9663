/* SPDX-License-Identifier: Apache-2.0
 * Verdicts of the checks of the whole engine, and its levels. */
#ifndef BRIM_TESTS_ENGINE_JUDGE_H
#define BRIM_TESTS_ENGINE_JUDGE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "brim/brim.h"

static const char *const levels[] = {"dense", "matvec",  "fused", "attention",
                                     "tiled", "split-k", "hopper"};
enum { N_LEVEL = sizeof levels / sizeof *levels };

static int n_passed, n_failed, n_skipped;

static bool verdict(bool ok, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool verdict(bool ok, const char *format, ...)
{
    if (ok) {
        n_passed++;
        return true;
    }
    n_failed++;
    va_list ap;
    va_start(ap, format);
    printf("FAILED ");
    vprintf(format, ap);
    printf("\n");
    va_end(ap);
    return false;
}

static void must(brim_status status, const brim_error *err, const char *what)
{
    if (status == BRIM_OK) return;
    printf("%s: %s\n%d passed, %d failed, %d skipped\n", what, err->text, n_passed, n_failed + 1,
           n_skipped);
    exit(1);
}
#define MUST(call)                 \
    do {                           \
        brim_error err = {0};      \
        must((call), &err, #call); \
    } while (0)

#endif
