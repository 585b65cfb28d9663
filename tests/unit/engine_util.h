/* SPDX-License-Identifier: Apache-2.0
 * Opening tiny engines and sessions in tests; a failure ends the test with the library's text. */
#ifndef BRIM_TESTS_ENGINE_UTIL_H
#define BRIM_TESTS_ENGINE_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "brim/brim.h"
#include "golden.h"

#define MUST(call)                                                  \
    do {                                                            \
        brim_error err = {0};                                       \
        if ((call) != BRIM_OK) fail_msg("%s: %s", #call, err.text); \
    } while (0)

/* The call fails with `code` and a sentence that holds `part`. */
#define MUST_FAIL(call, code, part)                                                              \
    do {                                                                                         \
        brim_error err = {0};                                                                    \
        brim_status must_status_ = (call);                                                       \
        if (must_status_ != (code) || err.status != (code) || !strstr(err.text, (part)))         \
            fail_msg("%s: %s \"%s\", expected %s \"%s\"", #call, brim_status_name(must_status_), \
                     err.text, brim_status_name(code), (part));                                  \
    } while (0)

static inline brim_engine *tiny_engine(const char *name, int n_thread)
{
    brim_engine *engine;
    brim_engine_options options;
    brim_engine_options_default(&options);
    options.n_thread = n_thread;
    char path[300];
    snprintf(path, sizeof path, GOLDEN_DIR "%s", name);
    MUST(brim_engine_open(&engine, path, &options, &err));
    return engine;
}

static inline brim_session *tiny_session(brim_engine *engine, int64_t n_context, int64_t chunk)
{
    brim_session *session;
    brim_session_options options;
    brim_session_options_default(&options);
    options.n_context = n_context;
    options.prefill_chunk = chunk;
    MUST(brim_session_open(&session, engine, &options, &err));
    return session;
}

/* n ids inside the tiny vocabulary, the same for the same seed. */
static inline void some_ids(uint32_t seed, int32_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)(seed >> 16) % 476;
    }
}

#endif
