/* SPDX-License-Identifier: Apache-2.0
 * Writing JSON to a stream: commas, nesting and escapes. Bytes that are not UTF-8 become U+FFFD;
 * numbers that are not finite become null. The names keep clear of Jansson, which the same program
 * links. */
#ifndef BRIM_CLI_JSON_H
#define BRIM_CLI_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { JSON_MAX_DEPTH = 16 };

struct json {
    FILE *out;
    int depth;
    bool after_key;
    char close[JSON_MAX_DEPTH]; /* '}' or ']' of each open level */
    bool filled[JSON_MAX_DEPTH + 1];
};

void jw_begin(struct json *json, FILE *out);
/* Ends the line; every level must be closed. */
void jw_end(struct json *json);

void jw_object(struct json *json);
void jw_array(struct json *json);
void jw_close(struct json *json);
void jw_key(struct json *json, const char *key);

void jw_text(struct json *json, const char *text);
void jw_bytes(struct json *json, const char *text, size_t len);
void jw_int(struct json *json, int64_t value);
void jw_uint(struct json *json, uint64_t value);
void jw_real(struct json *json, double value);
void jw_bool(struct json *json, bool value);

/* Members of the object that is open. */
void jw_text_at(struct json *json, const char *key, const char *text);
void jw_int_at(struct json *json, const char *key, int64_t value);
void jw_real_at(struct json *json, const char *key, double value);
void jw_bool_at(struct json *json, const char *key, bool value);

#endif
