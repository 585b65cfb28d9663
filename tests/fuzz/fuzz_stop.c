/* SPDX-License-Identifier: Apache-2.0
 * Stop strings over text cut anywhere, against a search of the whole text. Input: how many stops,
 * each with its length, then text; the lengths of the cuts come from the text itself. */
#include "fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "run/stop.h"

enum { MAX_STOP = 4, MAX_LEN = 15, MAX_CUT = 8 };

/* Where the text must end: before the stop that ends first, the longest of those that end together.
 */
static size_t find_stop(const char *text, size_t len, char stops[][MAX_LEN + 1], size_t n_stop,
                        bool *found)
{
    *found = false;
    for (size_t end = 1; end <= len; end++) {
        size_t longest = 0;
        for (size_t i = 0; i < n_stop; i++) {
            size_t n = strlen(stops[i]);
            if (n <= end && n > longest && !memcmp(text + end - n, stops[i], n)) longest = n;
        }
        if (longest) {
            *found = true;
            return end - longest;
        }
    }
    return len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char stops[MAX_STOP][MAX_LEN + 1] = {{0}};
    const char *list[MAX_STOP];
    size_t at = 1;
    size_t n_stop = size ? 1 + data[0] % MAX_STOP : 0;
    for (size_t i = 0; i < n_stop; i++) {
        size_t n = at < size ? 1 + data[at] % MAX_LEN : 0;
        if (!n || at + 1 + n > size || memchr(data + at + 1, 0, n)) return 0;
        memcpy(stops[i], data + at + 1, n);
        list[i] = stops[i];
        at += 1 + n;
    }
    if (!n_stop) return 0;
    const char *text = (const char *)data + at;
    size_t len = size - at;
    bool expect_found;
    size_t expected = find_stop(text, len, stops, n_stop, &expect_found);

    struct brim_stop *stop = NULL;
    brim_error err = {0};
    if (brim_stop_create(&stop, list, n_stop, MAX_CUT, &err) != BRIM_OK) {
        /* a stop that is not UTF-8 can never occur in finished text */
        FUZZ_REQUIRE(!stop && err.text[0]);
        return 0;
    }
    char *out = malloc(len + 1);
    FUZZ_REQUIRE(out);
    size_t n_out = 0;
    bool found = false;
    for (size_t i = 0; i < len && !found;) {
        size_t n = 1 + (unsigned char)text[i] % MAX_CUT;
        if (n > len - i) n = len - i;
        const char *piece;
        size_t n_piece;
        found = brim_stop_feed(stop, text + i, n, &piece, &n_piece);
        FUZZ_REQUIRE(n_piece <= len - n_out);
        memcpy(out + n_out, piece, n_piece);
        n_out += n_piece;
        i += n;
    }
    if (!found) {
        const char *piece;
        size_t n_piece;
        brim_stop_flush(stop, &piece, &n_piece);
        FUZZ_REQUIRE(n_piece <= len - n_out);
        memcpy(out + n_out, piece, n_piece);
        n_out += n_piece;
    }
    FUZZ_REQUIRE(found == expect_found && n_out == expected && !memcmp(out, text, n_out));
    brim_stop_free(&stop);
    free(out);
    return 0;
}
