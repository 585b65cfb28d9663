/* SPDX-License-Identifier: Apache-2.0
 * How the library reports failure: one place that fills a caller's brim_error. */
#ifndef BRIM_BASE_STATUS_H
#define BRIM_BASE_STATUS_H

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fill `err` (may be NULL) with `status` and the formatted sentence; returns `status`, so that
 * `return brim_fail(err, BRIM_E_FORMAT, "%s: ...", path);` is the whole error path. Text beyond the
 * buffer is cut at a UTF-8 boundary; control characters become '?'. */
brim_status brim_fail(brim_error *err, brim_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#ifdef __cplusplus
}
#endif

/* Pass a failure up unchanged. */
#define BRIM_TRY(expr)                                            \
    do {                                                          \
        brim_status brim_try_status_ = (expr);                    \
        if (brim_try_status_ != BRIM_OK) return brim_try_status_; \
    } while (0)

/* A condition on input (never an invariant of ours: that is assert). Always compiled. */
#define BRIM_REQUIRE(err, cond, status, ...)                         \
    do {                                                             \
        if (!(cond)) return brim_fail((err), (status), __VA_ARGS__); \
    } while (0)

#endif
