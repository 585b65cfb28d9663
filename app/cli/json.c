/* SPDX-License-Identifier: Apache-2.0
 * See json.h. */
#include "json.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

void jw_begin(struct json *json, FILE *out)
{
    *json = (struct json){.out = out};
}

void jw_end(struct json *json)
{
    assert(json->depth == 0);
    fputc('\n', json->out);
}

/* The comma before a value or key. */
static void separate(struct json *json)
{
    if (json->after_key) {
        json->after_key = false;
        return;
    }
    if (json->filled[json->depth]) fputc(',', json->out);
    json->filled[json->depth] = true;
}

static void open_level(struct json *json, char open, char close)
{
    separate(json);
    assert(json->depth < JSON_MAX_DEPTH);
    json->close[json->depth++] = close;
    json->filled[json->depth] = false;
    fputc(open, json->out);
}

void jw_object(struct json *json)
{
    open_level(json, '{', '}');
}

void jw_array(struct json *json)
{
    open_level(json, '[', ']');
}

void jw_close(struct json *json)
{
    assert(json->depth > 0);
    fputc(json->close[--json->depth], json->out);
}

void jw_key(struct json *json, const char *key)
{
    jw_text(json, key);
    fputc(':', json->out);
    json->after_key = true;
}

/* Length of the well-formed UTF-8 sequence at `s`, 0 when there is none: no overlong forms, no
 * surrogates, nothing above U+10FFFF. */
static size_t utf8_len(const unsigned char *s, size_t len)
{
    size_t n = s[0] < 0x80                   ? 1
               : s[0] >= 0xC2 && s[0] < 0xE0 ? 2
               : s[0] >= 0xE0 && s[0] < 0xF0 ? 3
               : s[0] >= 0xF0 && s[0] < 0xF5 ? 4
                                             : 0;
    if (!n || n > len) return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    if (s[0] == 0xE0 && s[1] < 0xA0) return 0;
    if (s[0] == 0xED && s[1] > 0x9F) return 0;
    if (s[0] == 0xF0 && s[1] < 0x90) return 0;
    if (s[0] == 0xF4 && s[1] > 0x8F) return 0;
    return n;
}

void jw_bytes(struct json *json, const char *text, size_t len)
{
    separate(json);
    FILE *out = json->out;
    const unsigned char *s = (const unsigned char *)text;
    fputc('"', out);
    for (size_t i = 0; i < len;) {
        size_t n = utf8_len(s + i, len - i);
        if (!n) {
            fputs("\\ufffd", out);
            i++;
            continue;
        }
        if (s[i] == '"' || s[i] == '\\')
            fprintf(out, "\\%c", s[i]);
        else if (s[i] == '\n')
            fputs("\\n", out);
        else if (s[i] < 0x20 || s[i] == 0x7F)
            fprintf(out, "\\u%04x", s[i]);
        else
            fwrite(s + i, 1, n, out);
        i += n;
    }
    fputc('"', out);
}

void jw_text(struct json *json, const char *text)
{
    jw_bytes(json, text, strlen(text));
}

void jw_int(struct json *json, int64_t value)
{
    separate(json);
    fprintf(json->out, "%" PRId64, value);
}

void jw_uint(struct json *json, uint64_t value)
{
    separate(json);
    fprintf(json->out, "%" PRIu64, value);
}

void jw_real(struct json *json, double value)
{
    separate(json);
    if (isfinite(value))
        fprintf(json->out, "%.9g", value);
    else
        fputs("null", json->out);
}

void jw_bool(struct json *json, bool value)
{
    separate(json);
    fputs(value ? "true" : "false", json->out);
}

void jw_text_at(struct json *json, const char *key, const char *text)
{
    jw_key(json, key);
    jw_text(json, text);
}

void jw_int_at(struct json *json, const char *key, int64_t value)
{
    jw_key(json, key);
    jw_int(json, value);
}

void jw_real_at(struct json *json, const char *key, double value)
{
    jw_key(json, key);
    jw_real(json, value);
}

void jw_bool_at(struct json *json, const char *key, bool value)
{
    jw_key(json, key);
    jw_bool(json, value);
}
