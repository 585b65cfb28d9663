/* SPDX-License-Identifier: Apache-2.0
 * Kernel checker: every tier this processor has against plain C, on random inputs behind guard
 * pages, with poisoned outputs, and a bench of the same calls. Needs neither cmocka nor the engine,
 * so it also runs cross-compiled under qemu. To add an op: write check_<op>.c with one group
 * function, list it in check.c. */
#ifndef BRIM_TESTS_CHECK_CHECK_H
#define BRIM_TESTS_CHECK_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "cpu/cpu_ops.h"

struct check {
    const struct brim_cpu_ops *ref; /* plain C */
    const struct brim_cpu_ops *ops; /* the tier under test; may be plain C itself */
    struct brim_rng rng;            /* seeded by the name of the case */
    bool bench;
};

/* One case: runs fn(c, param) with a name for reports. A fault (SIGSEGV, SIGBUS, SIGILL, SIGFPE) in
 * it is a failure of this case alone. Buffers from check_* live until it returns. */
typedef void check_fn(struct check *c, const void *param);
void check_case(struct check *c, check_fn *fn, const void *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The case at hand fails; only the first failure of a case is printed. */
void check_fail(struct check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* n_bytes that end at an unreadable page (rounded up to `align`, a power of two up to 64; the gap
 * is watched) and begin after one. Filled with 0xFF: NaN in f32, f16 and bf16. */
void *check_alloc(struct check *c, size_t n_bytes, size_t align);
/* n floats, uniform in [low, high), 4-byte aligned at the end of their page. */
float *check_floats(struct check *c, int64_t n, float low, float high);
/* n poisoned floats, and a copy of n floats. */
float *check_poison(struct check *c, int64_t n);
float *check_copy(struct check *c, const float *x, int64_t n);

/* |got - expected| <= absolute + relative * |expected| for every value; NaN matches NaN alone. */
void check_near(struct check *c, const char *what, const float *expected, const float *got,
                int64_t n, double absolute, double relative);
void check_equal(struct check *c, const char *what, const void *expected, const void *got,
                 size_t n_bytes);

/* With --bench: time call(ops, arg) for the reference and the tier, alternated, least of nine
 * (others share the machine); `work` is the number of `unit` (for example "B" or "flop") one call
 * does. */
typedef void check_call(const struct brim_cpu_ops *ops, void *arg);
void check_bench(struct check *c, const char *name, double work, const char *unit, check_call *call,
                 void *arg);

/* The groups, one per check_<op>.c; listed in check.c. */
void check_elem(struct check *c);
void check_attn(struct check *c);
void check_linear(struct check *c);
void check_kda(struct check *c);

#endif
