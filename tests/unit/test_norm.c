/* SPDX-License-Identifier: Apache-2.0
 * norm: form C of what composes, stays, reorders; long unordered runs of marks in bounded time. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "text/norm.h"
#include "text/utf8.h"

static void expect(const char *in, const char *out)
{
    size_t n = strlen(in), n_made;
    char *exact = malloc(n ? n : 1), *made;
    memcpy(exact, in, n);
    assert_int_equal(brim_norm_nfc(&made, &n_made, exact, n, NULL), BRIM_OK);
    if (n_made != strlen(out) || memcmp(made, out, n_made))
        fail_msg("<<%s>> gives <<%.*s>>, not <<%s>>", in, (int)n_made, made, out);
    if (brim_norm_is_nfc_quick(exact, n)) assert_string_equal(in, out);
    brim_free(made);
    free(exact);
}

/* Outputs are those of Python's unicodedata.normalize("NFC", ...). */
static void composes(void **state)
{
    (void)state;
    expect("", "");
    expect("plain ASCII", "plain ASCII");
    expect("\xC3\xA9", "\xC3\xA9");
    expect("e\xCC\x81", "\xC3\xA9");
    expect("e\xCC\x81\xCC\x81", "\xC3\xA9\xCC\x81");
    expect("a\xCC\xA3\xCC\x82", "\xE1\xBA\xAD");        /* dot below, circumflex: one letter */
    expect("a\xCC\x82\xCC\xA3", "\xE1\xBA\xAD");        /* in the other order too */
    expect("q\xCC\x87\xCC\xA3", "q\xCC\xA3\xCC\x87");   /* reordered, nothing to compose */
    expect("\xE2\x84\xAB", "\xC3\x85");                 /* Angstrom sign */
    expect("\xE2\x84\xA6", "\xCE\xA9");                 /* Ohm sign */
    expect("\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC"); /* excluded from composition */
    expect("\xEF\xA4\x80", "\xE8\xB1\x88");             /* compatibility ideograph */
    expect("\xF0\xAF\xA0\x80", "\xE4\xB8\xBD");         /* the same, four bytes */
    expect("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", "\xEA\xB0\x81"); /* jamo */
    expect("\xEA\xB0\x80\xE1\x86\xA8", "\xEA\xB0\x81");             /* syllable and final */
    expect("\xCD\x84", "\xCC\x88\xCC\x81");                         /* U+0344 comes apart */
    expect("\xE1\xBA\x9B\xCC\xA3", "\xE1\xBA\x9B\xCC\xA3");
    expect("\xEF\xAC\x81", "\xEF\xAC\x81"); /* ligature fi stays: not form K */
    expect("\xCC\x81x", "\xCC\x81x");
    expect("\xF0\x9D\x85\x9E",
           "\xF0\x9D\x85\x97\xF0\x9D\x85\xA5"); /* musical: three times longer */
}

/* Two marks of different class in turn: the ordering of utf8proc alone would take hours. */
static void long_runs_of_marks(void **state)
{
    (void)state;
    enum { N = 500000 };
    char *text = malloc(1 + N * 4), *made;
    size_t n = 0, n_made;
    text[n++] = 'q';
    for (int i = 0; i < N; i++) {
        memcpy(text + n, "\xCC\x81\xCC\xA3", 4); /* above (230), below (220) */
        n += 4;
    }
    int64_t begin = brim_clock_ns();
    assert_int_equal(brim_norm_nfc(&made, &n_made, text, n, NULL), BRIM_OK);
    assert_true(brim_clock_ns() - begin < 10000000000);
    assert_int_equal(n_made, n);
    for (size_t i = 0; i < N; i++) {
        assert_memory_equal(made + 1 + 2 * i, "\xCC\xA3", 2);
        assert_memory_equal(made + 1 + 2 * (N + i), "\xCC\x81", 2);
    }
    brim_free(made);
    free(text);
}

/* Idempotent on every character, alone and with marks behind it. */
static void stable_on_every_character(void **state)
{
    (void)state;
    for (uint32_t c = 1; c <= 0x10FFFF; c++) {
        if (c >= 0xD800 && c <= 0xDFFF) continue;
        uint8_t text[8];
        size_t n = (size_t)brim_utf8_encode(c, text), n_once, n_twice;
        memcpy(text + n, "\xCC\x81\xCC\xA3", 4);
        char *once, *twice;
        assert_int_equal(brim_norm_nfc(&once, &n_once, (char *)text, n + 4, NULL), BRIM_OK);
        assert_int_equal(brim_norm_nfc(&twice, &n_twice, once, n_once, NULL), BRIM_OK);
        assert_int_equal(n_once, n_twice);
        assert_memory_equal(once, twice, n_once);
        assert_int_equal(brim_utf8_valid_prefix((uint8_t *)once, n_once), n_once);
        brim_free(once);
        brim_free(twice);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(composes),
        cmocka_unit_test(long_runs_of_marks),
        cmocka_unit_test(stable_on_every_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
