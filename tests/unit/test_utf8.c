/* SPDX-License-Identifier: Apache-2.0
 * utf8: maximal subparts, replacement, streaming at every cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

#define FFFD "\xEF\xBF\xBD"

struct pair {
    const char *in, *out;
};

/* Outputs are those of bytes.decode("utf-8", "replace") in Python. */
static const struct pair pairs[] = {
    {"plain", "plain"},
    {"\xE2\x80", FFFD},
    {"\xFF", FFFD},
    {"\xED\xA0\x80", FFFD FFFD FFFD},          /* a lone surrogate */
    {"\xC0\xAF", FFFD FFFD},                   /* overlong */
    {"\xE0\x80\x80", FFFD FFFD FFFD},          /* overlong */
    {"\xF4\x90\x80\x80", FFFD FFFD FFFD FFFD}, /* beyond U+10FFFF */
    {"\xF0\x9F\x98", FFFD},                    /* one maximal subpart */
    {"\xF0\x9F\x98x", FFFD "x"},               /* the next character survives */
    {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", FFFD FFFD FFFD FFFD "A"},
    {"a\xC3\xA9\x80z", "a\xC3\xA9" FFFD "z"},
    {"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80"},
};

static void replaces_maximal_subparts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        size_t n = strlen(pairs[i].in);
        uint8_t *in = malloc(n), *out = malloc(3 * n); /* exact, for the sanitizer */
        memcpy(in, pairs[i].in, n);
        size_t n_out = brim_utf8_replace(in, n, out);
        assert_int_equal(n_out, strlen(pairs[i].out));
        assert_memory_equal(out, pairs[i].out, n_out);
        free(in);
        free(out);
    }
}

static size_t feed(struct brim_utf8_stream *stream, const char *bytes, size_t len, char *out)
{
    char *exact = malloc(len ? len : 1), *room = malloc(BRIM_UTF8_STREAM_ROOM(len));
    memcpy(exact, bytes, len);
    size_t n = brim_utf8_stream_feed(stream, exact, len, room);
    assert_true(n <= BRIM_UTF8_STREAM_ROOM(len));
    memcpy(out, room, n);
    free(exact);
    free(room);
    return n;
}

static void stream_equals_whole_at_every_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        size_t n = strlen(pairs[i].in);
        for (size_t first = 0; first <= n; first++) {
            for (size_t second = first; second <= n; second++) {
                struct brim_utf8_stream stream = {{0}, 0};
                char out[128];
                size_t n_out = feed(&stream, pairs[i].in, first, out);
                n_out += feed(&stream, pairs[i].in + first, second - first, out + n_out);
                n_out += feed(&stream, pairs[i].in + second, n - second, out + n_out);
                n_out += brim_utf8_stream_flush(&stream, out + n_out);
                assert_int_equal(n_out, strlen(pairs[i].out));
                assert_memory_equal(out, pairs[i].out, n_out);
            }
        }
    }
}

/* What comes out before the flush is valid at every moment, and the whole is the replacement. */
static void stream_of_random_bytes(void **state)
{
    (void)state;
    struct brim_rng rng;
    brim_rng_seed(&rng, 5);
    static const char alphabet[] = "a\x80\xBF\xC3\xA9\xE2\x82\xAC\xED\xA0\xF0\x9F\x98\xF4\x90\xFF";
    for (int round = 0; round < 3000; round++) {
        char bytes[40];
        size_t n = brim_rng_u32(&rng) % sizeof bytes;
        for (size_t i = 0; i < n; i++)
            bytes[i] = alphabet[brim_rng_u32(&rng) % (sizeof alphabet - 1)];
        uint8_t whole[120];
        size_t n_whole = brim_utf8_replace((const uint8_t *)bytes, n, whole);
        struct brim_utf8_stream stream = {{0}, 0};
        char out[256];
        size_t n_out = 0;
        for (size_t at = 0; at < n;) {
            size_t piece = 1 + brim_rng_u32(&rng) % 5;
            if (piece > n - at) piece = n - at;
            n_out += feed(&stream, bytes + at, piece, out + n_out);
            assert_int_equal(brim_utf8_valid_prefix((uint8_t *)out, n_out), n_out);
            at += piece;
        }
        n_out += brim_utf8_stream_flush(&stream, out + n_out);
        assert_int_equal(n_out, n_whole);
        assert_memory_equal(out, whole, n_whole);
    }
}

static void every_scalar_round_trips(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        if (c >= 0xD800 && c <= 0xDFFF) continue;
        uint8_t bytes[4];
        int n = brim_utf8_encode(c, bytes), len;
        assert_int_equal(brim_utf8_step(bytes, (size_t)n, &len), BRIM_UTF8_VALID);
        assert_int_equal(len, n);
        assert_int_equal(brim_utf8_decode(bytes, &len), c);
        if (n > 1) {
            assert_int_equal(brim_utf8_step(bytes, (size_t)n - 1, &len), BRIM_UTF8_TRUNCATED);
            assert_int_equal(len, n - 1);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replaces_maximal_subparts),
        cmocka_unit_test(stream_equals_whole_at_every_cut),
        cmocka_unit_test(stream_of_random_bytes),
        cmocka_unit_test(every_scalar_round_trips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
