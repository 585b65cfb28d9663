/* SPDX-License-Identifier: Apache-2.0
 * Reading bytes as UTF-8 (RFC 3629): every ill-formed sequence counts as one U+FFFD per maximal
 * subpart (Unicode, section 3.9, table 3-8), which is also what Python's errors="replace" gives. */
#ifndef BRIM_TEXT_UTF8_H
#define BRIM_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum brim_utf8_kind {
    BRIM_UTF8_VALID,    /* *len bytes are one character */
    BRIM_UTF8_BAD,      /* *len bytes are one maximal subpart */
    BRIM_UTF8_TRUNCATED /* all n bytes begin a character that goes on; *len == n */
};

/* Classify what s[0, n) starts with; n > 0. */
enum brim_utf8_kind brim_utf8_step(const uint8_t *s, size_t n, int *len);

/* Bytes of the longest prefix of s[0, n) that is well-formed. */
size_t brim_utf8_valid_prefix(const uint8_t *s, size_t n);

/* Copy s[0, n) with ill-formed parts replaced; returns the bytes written, at most 3 * n. */
size_t brim_utf8_replace(const uint8_t *s, size_t n, uint8_t *out);

/* The character at s, which must be well-formed; *len receives its bytes. */
uint32_t brim_utf8_decode(const uint8_t *s, int *len);
/* Write one scalar value; returns its bytes, 1 to 4. */
int brim_utf8_encode(uint32_t c, uint8_t *out);

#endif
