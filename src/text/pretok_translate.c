/* SPDX-License-Identifier: Apache-2.0
 * Patterns of tokenizer.json into PCRE2's dialect. Hugging Face matches them with Oniguruma (Ruby
 * syntax, UTF-8). Where the two agree the text passes through; where they differ it is rewritten to
 * what Oniguruma means; what is neither is refused, so that no pattern is silently read otherwise.
 */
#include "text/pretok.h"

#include <string.h>

#include "base/mem.h"
#include "text/utf8.h"

/* White_Space of Unicode. PCRE2's own \s would add U+180E, which left that set in Unicode 6.3. */
#define SPACES                                                                                   \
    "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}" \
    "\\x{3000}"
/* Word characters: letters and their like, marks, decimal digits, connectors. */
#define WORDS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

struct reader {
    const char *pattern;
    size_t len, at;
    char *out;
    size_t n_out, capacity;
    bool in_class;
    const char *path;
    brim_error *err;
};

static brim_status put(struct reader *r, const char *text, size_t len)
{
    if (len > r->capacity - r->n_out) {
        size_t capacity = (r->n_out + len) * 2 + 64;
        char *grown = brim_realloc(r->out, r->n_out, capacity);
        BRIM_REQUIRE(r->err, grown, BRIM_E_NO_MEMORY, "no memory for a pattern");
        r->out = grown;
        r->capacity = capacity;
    }
    if (len) memcpy(r->out + r->n_out, text, len); /* out is NULL before the first byte */
    r->n_out += len;
    return BRIM_OK;
}

static brim_status put_text(struct reader *r, const char *text)
{
    return put(r, text, strlen(text));
}

static brim_status refuse(struct reader *r, const char *what)
{
    return brim_fail(r->err, BRIM_E_UNSUPPORTED,
                     "%s: the pre-tokenizer's pattern uses %s at byte %zu, which brim does not "
                     "implement",
                     r->path, what, r->at);
}

static bool starts(const struct reader *r, const char *text)
{
    size_t n = strlen(text);
    return r->len - r->at >= n && !memcmp(r->pattern + r->at, text, n);
}

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* \p{Name}, \P{Name}, \p{^Name}: general categories pass, anything longer is a script. */
static brim_status property(struct reader *r)
{
    bool negated = r->pattern[r->at + 1] == 'P';
    size_t at = r->at + 2;
    if (at >= r->len || r->pattern[at] != '{') return refuse(r, "\\p without braces");
    at++;
    if (at < r->len && r->pattern[at] == '^') negated = !negated, at++;
    size_t begin = at;
    while (at < r->len && r->pattern[at] != '}') {
        char c = r->pattern[at];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'))
            return refuse(r, "a property name with other than letters");
        at++;
    }
    if (at >= r->len || at == begin) return refuse(r, "an unfinished \\p");
    BRIM_TRY(put_text(r, negated ? "\\P{" : "\\p{"));
    if (at - begin > 2) BRIM_TRY(put_text(r, "sc:"));
    BRIM_TRY(put(r, r->pattern + begin, at - begin));
    BRIM_TRY(put_text(r, "}"));
    r->at = at + 1;
    return BRIM_OK;
}

/* \xHH, \x{H...}, \uHHHH */
static brim_status code_point(struct reader *r)
{
    size_t at = r->at + 2, begin, n;
    bool braces = r->pattern[r->at + 1] == 'x' && at < r->len && r->pattern[at] == '{';
    if (braces) at++;
    begin = at;
    while (at < r->len && is_hex(r->pattern[at])) at++;
    n = at - begin;
    if (braces) {
        if (at >= r->len || r->pattern[at] != '}' || n == 0 || n > 6)
            return refuse(r, "a malformed \\x{...}");
        at++;
    } else {
        size_t wanted = r->pattern[r->at + 1] == 'x' ? 2 : 4;
        if (n < wanted) return refuse(r, "a short hexadecimal escape");
        n = wanted;
        at = begin + n;
        /* Two hexadecimal digits above 7F are a raw byte to Oniguruma. */
        if (wanted == 2 && r->pattern[begin] >= '8') return refuse(r, "a byte escape above \\x7F");
    }
    BRIM_TRY(put_text(r, "\\x{"));
    BRIM_TRY(put(r, r->pattern + begin, n));
    BRIM_TRY(put_text(r, "}"));
    r->at = at;
    return BRIM_OK;
}

static brim_status escape(struct reader *r)
{
    if (r->at + 1 >= r->len) return refuse(r, "a trailing backslash");
    char c = r->pattern[r->at + 1];
    const char *in = NULL, *outside = NULL;
    switch (c) {
    case 'p':
    case 'P':
        return property(r);
    case 'x':
    case 'u':
        return code_point(r);
    case 's':
        in = SPACES, outside = "[" SPACES "]";
        break;
    case 'S':
        in = "\\P{White_Space}", outside = "[^" SPACES "]";
        break;
    case 'w':
        in = WORDS, outside = "[" WORDS "]";
        break;
    case 'W':
        outside = "[^" WORDS "]";
        break;
    case 'd':
        in = outside = "\\p{Nd}";
        break;
    case 'D':
        in = outside = "\\P{Nd}";
        break;
    case 'n':
        in = outside = "\\x0a";
        break;
    case 'r':
        in = outside = "\\x0d";
        break;
    case 't':
        in = outside = "\\x09";
        break;
    case 'f':
        in = outside = "\\x0c";
        break;
    case 'v':
        in = outside = "\\x0b";
        break;
    default:
        break;
    }
    const char *text = r->in_class ? in : outside;
    if (text) {
        r->at += 2;
        return put_text(r, text);
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
        (unsigned char)c >= 0x80)
        return refuse(r, "an escape (\\ and a letter or digit)");
    BRIM_TRY(put(r, r->pattern + r->at, 2));
    r->at += 2;
    return BRIM_OK;
}

static brim_status one(struct reader *r)
{
    char c = r->pattern[r->at];
    if (c == '\\') return escape(r);
    if (c == '\0') return refuse(r, "a NUL character");
    if (r->in_class) {
        if (c == '[') return refuse(r, "a class inside a class");
        if (starts(r, "&&")) return refuse(r, "an intersection of classes");
        if (c == ']') r->in_class = false;
    } else if (c == '[') {
        r->in_class = true;
        BRIM_TRY(put_text(r, "["));
        r->at++;
        if (r->at < r->len && r->pattern[r->at] == '^') {
            BRIM_TRY(put_text(r, "^"));
            r->at++;
        }
        if (r->at < r->len && r->pattern[r->at] == ']')
            return refuse(r, "a class that starts with ]");
        return BRIM_OK;
    } else if (c == '^' || c == '$') {
        return refuse(r, "an anchor (^ or $)");
    } else if (c == '(' && r->at + 1 < r->len && r->pattern[r->at + 1] == '*') {
        return refuse(r, "(*");
    } else if (starts(r, "(?")) {
        static const char *const known[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            if (!starts(r, known[i])) continue;
            r->at += strlen(known[i]);
            return put_text(r, known[i]);
        }
        return refuse(r, "a group with other options than (?: (?i: (?= (?! (?<= (?<! (?>");
    } else if (c == '{') {
        /* A quantifier with both ends written, or one number; other forms are read differently. */
        size_t at = r->at + 1, begin = at;
        while (at < r->len && r->pattern[at] >= '0' && r->pattern[at] <= '9') at++;
        bool ok = at > begin;
        if (ok && at < r->len && r->pattern[at] == ',') at++;
        while (at < r->len && r->pattern[at] >= '0' && r->pattern[at] <= '9') at++;
        if (!ok || at >= r->len || r->pattern[at] != '}') return refuse(r, "{");
        at++;
        if (at < r->len && (r->pattern[at] == '+' || r->pattern[at] == '?'))
            return refuse(r, "a quantifier in braces followed by + or ?");
        BRIM_TRY(put(r, r->pattern + r->at, at - r->at));
        r->at = at;
        return BRIM_OK;
    }
    BRIM_TRY(put(r, &c, 1));
    r->at++;
    return BRIM_OK;
}

brim_status brim_pretok_translate(char **out, size_t *out_len, const char *pattern, size_t len,
                                  const char *path, brim_error *err)
{
    *out = NULL;
    *out_len = 0;
    struct reader r = {.pattern = pattern, .len = len, .path = path, .err = err};
    BRIM_REQUIRE(err, brim_utf8_valid_prefix((const uint8_t *)pattern, len) == len, BRIM_E_FORMAT,
                 "%s: the pre-tokenizer's pattern is not UTF-8", path);
    brim_status status = put(&r, "", 0);
    while (status == BRIM_OK && r.at < r.len) status = one(&r);
    if (status == BRIM_OK && r.in_class) status = refuse(&r, "an unfinished class");
    if (status != BRIM_OK) {
        brim_free(r.out);
        return status;
    }
    *out = r.out;
    *out_len = r.n_out;
    return BRIM_OK;
}
