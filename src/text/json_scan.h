/* SPDX-License-Identifier: Apache-2.0
 * A strict pull reader for the two big tables of a tokenizer.json (RFC 8259). A tree of the 150,000
 * tokens and merges of a Qwen file takes Jansson a quarter of a second; walking them in place takes
 * a tenth of that. Small values are found here as spans and read by Jansson. */
#ifndef BRIM_TEXT_JSON_SCAN_H
#define BRIM_TEXT_JSON_SCAN_H

#include "text/tokenizer.h"

/* Over text[0, len), which must be well-formed UTF-8. The first error sets `status`, fills `err`
 * and makes every later call return false. */
struct brim_json_scan {
    const char *text;
    size_t len, at;
    const char *path; /* for error texts */
    brim_status status;
    brim_error *err;
    char *unescaped[2]; /* last two strings that held escapes */
    size_t capacity[2];
    int next;
};

void brim_json_scan_free(struct brim_json_scan *scan);
/* Record an error at the present place; returns false. */
bool brim_json_scan_fail(struct brim_json_scan *scan, const char *what);
/* Take the punctuation character `c`, after white space. */
bool brim_json_scan_take(struct brim_json_scan *scan, char c);
/* The next character that is not white space, or '\\0' at the end; takes nothing. */
char brim_json_scan_peek(struct brim_json_scan *scan);
/* Step through members or elements: call after the opening bracket with *first = true. True when
 * there is another one (its comma is taken); false at `close` (taken) or on an error. */
bool brim_json_scan_more(struct brim_json_scan *scan, char close, bool *first);
/* A string, borrowed: from the text, or valid until the second next string. */
bool brim_json_scan_string(struct brim_json_scan *scan, struct brim_str *out);
bool brim_json_scan_int(struct brim_json_scan *scan, int64_t *out);
/* The span of any value; brackets and strings are matched, the rest is left to whoever reads it. */
bool brim_json_scan_skip(struct brim_json_scan *scan, struct brim_str *out);

#endif
