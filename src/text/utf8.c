/* SPDX-License-Identifier: Apache-2.0
 * UTF-8 classification, replacement and the streaming decoder. No allocation. */
#include "text/utf8.h"

#include <string.h>

#include "text/tokenizer.h"

static const uint8_t replacement[3] = {0xEF, 0xBF, 0xBD}; /* U+FFFD */

enum brim_utf8_kind brim_utf8_step(const uint8_t *s, size_t n, int *len)
{
    uint8_t lead = s[0];
    int need;
    uint8_t low = 0x80, high = 0xBF; /* range of the second byte */
    *len = 1;
    if (lead < 0x80) return BRIM_UTF8_VALID;
    if (lead < 0xC2 || lead > 0xF4) return BRIM_UTF8_BAD;
    if (lead < 0xE0) {
        need = 2;
    } else if (lead < 0xF0) {
        need = 3;
        if (lead == 0xE0) low = 0xA0;  /* shorter forms exist below */
        if (lead == 0xED) high = 0x9F; /* surrogates above */
    } else {
        need = 4;
        if (lead == 0xF0) low = 0x90;
        if (lead == 0xF4) high = 0x8F; /* beyond U+10FFFF above */
    }
    for (int i = 1; i < need; i++) {
        *len = i;
        if ((size_t)i == n) return BRIM_UTF8_TRUNCATED;
        if (s[i] < low || s[i] > high) return BRIM_UTF8_BAD;
        low = 0x80, high = 0xBF;
    }
    *len = need;
    return BRIM_UTF8_VALID;
}

size_t brim_utf8_valid_prefix(const uint8_t *s, size_t n)
{
    size_t at = 0;
    while (at < n) {
        uint64_t word;
        while (n - at >= sizeof word) {
            memcpy(&word, s + at, sizeof word);
            if (word & 0x8080808080808080u) break;
            at += sizeof word;
        }
        if (at == n) break;
        int len;
        if (brim_utf8_step(s + at, n - at, &len) != BRIM_UTF8_VALID) break;
        at += (size_t)len;
    }
    return at;
}

size_t brim_utf8_replace(const uint8_t *s, size_t n, uint8_t *out)
{
    size_t n_out = 0;
    for (size_t at = 0; at < n;) {
        int len;
        if (brim_utf8_step(s + at, n - at, &len) == BRIM_UTF8_VALID) {
            memcpy(out + n_out, s + at, (size_t)len);
            n_out += (size_t)len;
        } else {
            memcpy(out + n_out, replacement, sizeof replacement);
            n_out += 3;
        }
        at += (size_t)len;
    }
    return n_out;
}

uint32_t brim_utf8_decode(const uint8_t *s, int *len)
{
    if (s[0] < 0x80) {
        *len = 1;
        return s[0];
    }
    if (s[0] < 0xE0) {
        *len = 2;
        return (uint32_t)(s[0] & 0x1F) << 6 | (s[1] & 0x3F);
    }
    if (s[0] < 0xF0) {
        *len = 3;
        return (uint32_t)(s[0] & 0x0F) << 12 | (uint32_t)(s[1] & 0x3F) << 6 | (s[2] & 0x3F);
    }
    *len = 4;
    return (uint32_t)(s[0] & 0x07) << 18 | (uint32_t)(s[1] & 0x3F) << 12 |
           (uint32_t)(s[2] & 0x3F) << 6 | (s[3] & 0x3F);
}

int brim_utf8_encode(uint32_t c, uint8_t *out)
{
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (uint8_t)(0xC0 | c >> 6);
        out[1] = (uint8_t)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (uint8_t)(0xE0 | c >> 12);
        out[1] = (uint8_t)(0x80 | (c >> 6 & 0x3F));
        out[2] = (uint8_t)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (uint8_t)(0xF0 | c >> 18);
    out[1] = (uint8_t)(0x80 | (c >> 12 & 0x3F));
    out[2] = (uint8_t)(0x80 | (c >> 6 & 0x3F));
    out[3] = (uint8_t)(0x80 | (c & 0x3F));
    return 4;
}

size_t brim_utf8_stream_feed(struct brim_utf8_stream *stream, const char *bytes, size_t len,
                             char *out)
{
    const uint8_t *s = (const uint8_t *)bytes;
    uint8_t *to = (uint8_t *)out;
    size_t n_out = 0, at = 0;
    /* What is held begins a character: complete it byte by byte. */
    while (stream->n_held && at < len) {
        stream->held[stream->n_held] = s[at];
        int used;
        enum brim_utf8_kind kind = brim_utf8_step(stream->held, (size_t)stream->n_held + 1, &used);
        if (kind == BRIM_UTF8_BAD) { /* the new byte does not belong to it: read it again below */
            n_out += brim_utf8_stream_flush(stream, out + n_out);
            break;
        }
        stream->n_held++;
        at++;
        if (kind == BRIM_UTF8_VALID) {
            memcpy(to + n_out, stream->held, (size_t)used);
            n_out += (size_t)used;
            stream->n_held = 0;
        }
    }
    while (at < len) {
        int used;
        enum brim_utf8_kind kind = brim_utf8_step(s + at, len - at, &used);
        if (kind == BRIM_UTF8_TRUNCATED) {
            memcpy(stream->held, s + at, (size_t)used);
            stream->n_held = used;
            break;
        }
        n_out += brim_utf8_replace(s + at, (size_t)used, to + n_out);
        at += (size_t)used;
    }
    return n_out;
}

size_t brim_utf8_stream_flush(struct brim_utf8_stream *stream, char *out)
{
    if (!stream->n_held) return 0;
    stream->n_held = 0;
    memcpy(out, replacement, sizeof replacement);
    return 3;
}
