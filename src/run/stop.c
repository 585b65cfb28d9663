/* SPDX-License-Identifier: Apache-2.0 */
#include "run/stop.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "text/utf8.h"

struct automaton {
    const char *text; /* inside brim_stop.texts */
    size_t len;
    uint32_t *fallback; /* [len]: longest proper border of text[0..i] */
    size_t state;       /* bytes matched, < len */
};

struct brim_stop {
    struct automaton *automata;
    size_t n_automaton;
    char *texts;
    uint32_t *fallbacks;
    char *buffer; /* held bytes of earlier feeds, then the current one */
    size_t held_at, n_held, capacity;
};

static void build_fallback(struct automaton *a)
{
    a->fallback[0] = 0;
    uint32_t border = 0;
    for (size_t i = 1; i < a->len; i++) {
        while (border > 0 && a->text[i] != a->text[border]) border = a->fallback[border - 1];
        if (a->text[i] == a->text[border]) border++;
        a->fallback[i] = border;
    }
}

brim_status brim_stop_create(struct brim_stop **out, const char *const *stops, size_t n_stop,
                             size_t max_piece, brim_error *err)
{
    *out = NULL;
    BRIM_REQUIRE(err, stops || n_stop == 0, BRIM_E_ARGUMENT, "stops: the list is null");
    size_t total = 0, longest = 0;
    for (size_t i = 0; i < n_stop; i++) {
        BRIM_REQUIRE(err, stops[i] && stops[i][0], BRIM_E_ARGUMENT, "stop string %zu is empty", i);
        size_t len = strlen(stops[i]);
        BRIM_REQUIRE(err, len <= UINT16_MAX, BRIM_E_RANGE,
                     "stop string %zu has %zu bytes, at most 65535 work", i, len);
        BRIM_REQUIRE(err, brim_utf8_valid_prefix((const uint8_t *)stops[i], len) == len,
                     BRIM_E_ARGUMENT, "stop string %zu is not valid UTF-8", i);
        total += len;
        if (len > longest) longest = len;
    }
    struct brim_stop *stop = brim_calloc(1, sizeof *stop);
    BRIM_REQUIRE(err, stop, BRIM_E_NO_MEMORY, "stop strings: out of memory");
    stop->n_automaton = n_stop;
    stop->capacity = longest + max_piece;
    stop->automata = brim_calloc(n_stop, sizeof *stop->automata);
    stop->texts = brim_alloc(total);
    stop->fallbacks = brim_calloc(total, sizeof *stop->fallbacks);
    stop->buffer = brim_alloc(stop->capacity);
    if (!stop->automata || !stop->texts || !stop->fallbacks || !stop->buffer) {
        brim_stop_free(&stop);
        return brim_fail(err, BRIM_E_NO_MEMORY, "stop strings: out of memory");
    }
    for (size_t i = 0, at = 0; i < n_stop; i++) {
        struct automaton *a = &stop->automata[i];
        a->len = strlen(stops[i]);
        memcpy(stop->texts + at, stops[i], a->len);
        a->text = stop->texts + at;
        a->fallback = stop->fallbacks + at;
        build_fallback(a);
        at += a->len;
    }
    *out = stop;
    return BRIM_OK;
}

void brim_stop_free(struct brim_stop **stop_ptr)
{
    struct brim_stop *stop = *stop_ptr;
    if (!stop) return;
    brim_free(stop->automata);
    brim_free(stop->texts);
    brim_free(stop->fallbacks);
    brim_free(stop->buffer);
    brim_free(stop);
    *stop_ptr = NULL;
}

/* True when `a` has matched whole; its state must be reset then. */
static bool advance(struct automaton *a, char c)
{
    while (a->state > 0 && a->text[a->state] != c) a->state = a->fallback[a->state - 1];
    if (a->text[a->state] == c) a->state++;
    return a->state == a->len;
}

bool brim_stop_feed(struct brim_stop *stop, const char *text, size_t len, const char **out,
                    size_t *out_len)
{
    /* The bytes handed out last time go now: they were borrowed until this call. */
    assert(stop->n_held + len <= stop->capacity);
    memmove(stop->buffer, stop->buffer + stop->held_at, stop->n_held);
    stop->held_at = 0;
    char *at = stop->buffer + stop->n_held;
    memcpy(at, text, len);
    *out = stop->buffer;
    for (size_t i = 0; i < len; i++) {
        size_t matched = 0;
        for (size_t j = 0; j < stop->n_automaton; j++) {
            struct automaton *a = &stop->automata[j];
            if (advance(a, at[i]) && a->len > matched) matched = a->len;
        }
        if (matched > 0) {
            *out_len = stop->n_held + i + 1 - matched;
            stop->n_held = 0;
            for (size_t j = 0; j < stop->n_automaton; j++) stop->automata[j].state = 0;
            return true;
        }
    }
    size_t total = stop->n_held + len, hold = 0;
    for (size_t j = 0; j < stop->n_automaton; j++)
        if (stop->automata[j].state > hold) hold = stop->automata[j].state;
    *out_len = total - hold;
    stop->held_at = total - hold;
    stop->n_held = hold;
    return false;
}

void brim_stop_flush(struct brim_stop *stop, const char **out, size_t *out_len)
{
    *out = stop->buffer + stop->held_at;
    *out_len = stop->n_held;
    stop->n_held = 0;
}
