/* SPDX-License-Identifier: Apache-2.0
 * NFC: canonical decomposition and composition come from utf8proc; the ordering of combining marks
 * is done here, because utf8proc's takes quadratic time on long unordered runs. */
#include "text/norm.h"

#include <string.h>
#include <utf8proc.h>

#include "base/checked.h"
#include "base/mem.h"
#include "text/utf8.h"

/* Canonical decompositions are at most four characters long, so is every entry of utf8proc's. */
enum { MAX_DECOMPOSED = 4, SHORT_RUN = 16 };

bool brim_norm_is_nfc_quick(const char *text, size_t len)
{
    /* Below U+0300 nothing combines and everything is its own form C. U+0300 is CC 80. */
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] >= 0xCC) return false;
    return true;
}

static int class_of(int32_t c)
{
    return c < 0x300 ? 0 : utf8proc_get_property(c)->combining_class;
}

/* Stable order by combining class of run[0, n), all of non-zero class. `spare` has room for n. */
static void order_run(int32_t *run, size_t n, int32_t *spare)
{
    if (n <= SHORT_RUN) {
        for (size_t i = 1; i < n; i++) {
            int32_t c = run[i];
            int key = class_of(c);
            size_t at = i;
            while (at && class_of(run[at - 1]) > key) {
                run[at] = run[at - 1];
                at--;
            }
            run[at] = c;
        }
        return;
    }
    size_t start[257] = {0};
    for (size_t i = 0; i < n; i++) start[class_of(run[i]) + 1]++;
    for (int i = 0; i < 256; i++) start[i + 1] += start[i];
    for (size_t i = 0; i < n; i++) spare[start[class_of(run[i])]++] = run[i];
    memcpy(run, spare, n * sizeof *run);
}

static void order_marks(int32_t *chars, size_t n, int32_t *spare)
{
    for (size_t i = 0; i < n; i++) {
        if (!class_of(chars[i])) continue;
        size_t begin = i;
        while (i < n && class_of(chars[i])) i++;
        order_run(chars + begin, i - begin, spare);
    }
}

brim_status brim_norm_nfc(char **out, size_t *out_len, const char *text, size_t len,
                          brim_error *err)
{
    *out = NULL;
    *out_len = 0;
    const uint8_t *s = (const uint8_t *)text;
    size_t n_char = 0;
    for (size_t i = 0; i < len; i++) n_char += (s[i] & 0xC0) != 0x80;
    uint64_t room;
    BRIM_REQUIRE(err,
                 brim_mul_u64(n_char, MAX_DECOMPOSED * 2 * sizeof(int32_t), &room) &&
                     len < PTRDIFF_MAX / 16,
                 BRIM_E_NO_MEMORY, "a text of %zu bytes is too long to normalize", len);
    int32_t *chars = brim_alloc(room + 2 * sizeof *chars);
    BRIM_REQUIRE(err, chars, BRIM_E_NO_MEMORY, "no memory to normalize %zu bytes", len);
    size_t n = 0;
    for (size_t at = 0; at < len;) {
        int used;
        uint32_t c = brim_utf8_decode(s + at, &used);
        at += (size_t)used;
        if (c < 0xC0) {
            chars[n++] = (int32_t)c;
            continue;
        }
        int boundary = 0;
        utf8proc_ssize_t made = utf8proc_decompose_char(
            (int32_t)c, chars + n, MAX_DECOMPOSED, UTF8PROC_STABLE | UTF8PROC_COMPOSE, &boundary);
        if (made < 0 || made > MAX_DECOMPOSED) {
            brim_free(chars);
            return brim_fail(err, BRIM_E_UNSUPPORTED, "U+%04X has no usable decomposition",
                             (unsigned)c);
        }
        n += (size_t)made;
    }
    order_marks(chars, n, chars + n_char * MAX_DECOMPOSED + 1);
    /* In place: a character's UTF-8 never needs more than the four bytes it stands in. */
    utf8proc_ssize_t n_bytes =
        utf8proc_reencode(chars, (utf8proc_ssize_t)n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (n_bytes < 0) {
        brim_free(chars);
        return brim_fail(err, BRIM_E_FORMAT, "cannot normalize a text of %zu bytes", len);
    }
    *out = (char *)chars;
    *out_len = (size_t)n_bytes;
    return BRIM_OK;
}
