/* SPDX-License-Identifier: Apache-2.0
 * Writing JSON to a stream: commas, nesting and escapes. Bytes that are not UTF-8 become U+FFFD;
 * numbers that are not finite become null. */
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

void json_begin(struct json *json, FILE *out);
/* Ends the line; every level must be closed. */
void json_end(struct json *json);

void json_object(struct json *json);
void json_array(struct json *json);
void json_close(struct json *json);
void json_key(struct json *json, const char *key);

void json_text(struct json *json, const char *text);
void json_bytes(struct json *json, const char *text, size_t len);
void json_int(struct json *json, int64_t value);
void json_uint(struct json *json, uint64_t value);
void json_real(struct json *json, double value);
void json_bool(struct json *json, bool value);

/* Members of the object that is open. */
void json_text_at(struct json *json, const char *key, const char *text);
void json_int_at(struct json *json, const char *key, int64_t value);
void json_real_at(struct json *json, const char *key, double value);
void json_bool_at(struct json *json, const char *key, bool value);

#endif
