/* SPDX-License-Identifier: Apache-2.0
 * Walking JSON text in place. */
#include "text/json_scan.h"

#include <string.h>

#include "base/mem.h"
#include "text/utf8.h"

enum { MAX_DEPTH = 64 };

void brim_json_scan_free(struct brim_json_scan *scan)
{
    brim_free(scan->unescaped[0]);
    brim_free(scan->unescaped[1]);
    scan->unescaped[0] = scan->unescaped[1] = NULL;
    scan->capacity[0] = scan->capacity[1] = 0;
}

bool brim_json_scan_fail(struct brim_json_scan *scan, const char *what)
{
    if (scan->status == BRIM_OK)
        scan->status =
            brim_fail(scan->err, BRIM_E_FORMAT, "%s: %s at byte %zu", scan->path, what, scan->at);
    return false;
}

char brim_json_scan_peek(struct brim_json_scan *scan)
{
    while (scan->at < scan->len) {
        char c = scan->text[scan->at];
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return c;
        scan->at++;
    }
    return '\0';
}

bool brim_json_scan_take(struct brim_json_scan *scan, char c)
{
    if (scan->status != BRIM_OK) return false;
    if (brim_json_scan_peek(scan) == c && scan->at < scan->len) {
        scan->at++;
        return true;
    }
    char what[] = "'?' expected";
    what[1] = c;
    return brim_json_scan_fail(scan, what);
}

bool brim_json_scan_more(struct brim_json_scan *scan, char close, bool *first)
{
    if (scan->status != BRIM_OK) return false;
    bool was_first = *first;
    *first = false;
    char c = brim_json_scan_peek(scan);
    if (c == close) {
        scan->at++;
        return false;
    }
    if (was_first) return c ? true : brim_json_scan_fail(scan, "the text ends inside a value");
    return brim_json_scan_take(scan, ',');
}

/* Four hexadecimal digits. */
static bool hex4(struct brim_json_scan *scan, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++, scan->at++) {
        char c = scan->at < scan->len ? scan->text[scan->at] : '\0';
        uint32_t digit;
        if (c >= '0' && c <= '9')
            digit = (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (uint32_t)(c - 'a' + 10);
        else if (c >= 'A' && c <= 'F')
            digit = (uint32_t)(c - 'A' + 10);
        else
            return brim_json_scan_fail(scan, "a bad \\u escape");
        *out = *out << 4 | digit;
    }
    return true;
}

/* After a backslash: one character, up to four bytes of it to out. */
static bool escape(struct brim_json_scan *scan, char *out, size_t *n_out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = scan->at < scan->len ? scan->text[scan->at] : '\0';
    const char *known = c ? strchr(from, c) : NULL;
    if (known) {
        scan->at++;
        out[(*n_out)++] = to[known - from];
        return true;
    }
    if (c != 'u') return brim_json_scan_fail(scan, "a bad escape");
    scan->at++;
    uint32_t code, low;
    if (!hex4(scan, &code)) return false;
    if (code >= 0xD800 && code <= 0xDFFF) {
        if (code >= 0xDC00 || scan->len - scan->at < 2 || scan->text[scan->at] != '\\' ||
            scan->text[scan->at + 1] != 'u')
            return brim_json_scan_fail(scan, "a lone surrogate");
        scan->at += 2;
        if (!hex4(scan, &low)) return false;
        if (low < 0xDC00 || low > 0xDFFF) return brim_json_scan_fail(scan, "a lone surrogate");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    *n_out += (size_t)brim_utf8_encode(code, (uint8_t *)out + *n_out);
    return true;
}

bool brim_json_scan_string(struct brim_json_scan *scan, struct brim_str *out)
{
    if (!brim_json_scan_take(scan, '"')) return false;
    size_t begin = scan->at, end = begin;
    bool escapes = false;
    while (end < scan->len && scan->text[end] != '"') {
        if ((unsigned char)scan->text[end] < 0x20) {
            scan->at = end;
            return brim_json_scan_fail(scan, "a control character in a string");
        }
        if (scan->text[end] == '\\') {
            escapes = true;
            end++;
        }
        end++;
    }
    if (end >= scan->len) return brim_json_scan_fail(scan, "a string without end");
    *out = (struct brim_str){scan->text + begin, end - begin};
    if (escapes) {
        int which = scan->next;
        scan->next ^= 1;
        if (scan->capacity[which] < out->len) {
            brim_free(scan->unescaped[which]);
            scan->capacity[which] = 0;
            scan->unescaped[which] = brim_alloc(out->len * 2);
            if (!scan->unescaped[which]) {
                scan->status = brim_fail(scan->err, BRIM_E_NO_MEMORY, "no memory for a string");
                return false;
            }
            scan->capacity[which] = out->len * 2;
        }
        char *to = scan->unescaped[which];
        size_t n = 0; /* an escape is never shorter than what it stands for */
        while (scan->at < end) {
            char c = scan->text[scan->at++];
            if (c != '\\')
                to[n++] = c;
            else if (!escape(scan, to, &n))
                return false;
        }
        *out = (struct brim_str){to, n};
    }
    scan->at = end + 1;
    return true;
}

bool brim_json_scan_int(struct brim_json_scan *scan, int64_t *out)
{
    if (scan->status != BRIM_OK) return false;
    bool negative = brim_json_scan_peek(scan) == '-';
    if (negative) scan->at++;
    size_t begin = scan->at;
    int64_t value = 0;
    while (scan->at < scan->len && scan->text[scan->at] >= '0' && scan->text[scan->at] <= '9') {
        value = value * 10 + (scan->text[scan->at] - '0');
        if (++scan->at - begin > 15) return brim_json_scan_fail(scan, "a number too large");
    }
    char after = scan->at < scan->len ? scan->text[scan->at] : '\0';
    bool leading_zero = scan->at - begin > 1 && scan->text[begin] == '0';
    if (scan->at == begin || leading_zero || after == '.' || after == 'e' || after == 'E') {
        scan->at = begin;
        return brim_json_scan_fail(scan, "an integer expected");
    }
    *out = negative ? -value : value;
    return true;
}

bool brim_json_scan_skip(struct brim_json_scan *scan, struct brim_str *out)
{
    if (scan->status != BRIM_OK) return false;
    (void)brim_json_scan_peek(scan);
    size_t begin = scan->at;
    char stack[MAX_DEPTH];
    int depth = 0;
    struct brim_str ignored;
    do {
        char c = brim_json_scan_peek(scan);
        if (scan->at >= scan->len) return brim_json_scan_fail(scan, "the text ends inside a value");
        if (c == '\0') return brim_json_scan_fail(scan, "a NUL character");
        if (c == '"') {
            if (!brim_json_scan_string(scan, &ignored)) return false;
        } else if (c == '{' || c == '[') {
            if (depth == MAX_DEPTH) return brim_json_scan_fail(scan, "values nested too deep");
            stack[depth++] = c == '{' ? '}' : ']';
            scan->at++;
        } else if (c == '}' || c == ']') {
            if (!depth || stack[depth - 1] != c)
                return brim_json_scan_fail(scan, "an unexpected bracket");
            depth--;
            scan->at++;
        } else if (c == ',' || c == ':') {
            if (!depth) return brim_json_scan_fail(scan, "a value expected");
            scan->at++;
        } else { /* a number or a word */
            while (scan->at < scan->len && !strchr(" \n\t\r,:]}[{\"", scan->text[scan->at]))
                scan->at++;
        }
    } while (depth);
    *out = (struct brim_str){scan->text + begin, scan->at - begin};
    return true;
}
