/* SPDX-License-Identifier: Apache-2.0
 * JSON files of a checkpoint, by Jansson: duplicate keys refused, the root is an object. Jansson
 * allocates with malloc: replacing its allocator would change it for the whole host program. */
#ifndef BRIM_LOAD_JSON_H
#define BRIM_LOAD_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* json_decref the result. On failure *out is NULL. */
brim_status brim_json_parse(json_t **out, const void *data, size_t n_bytes, const char *path,
                            brim_error *err);
/* The file dir/name. Absent and not required: BRIM_OK with *out NULL. */
brim_status brim_json_open(json_t **out, const char *dir, const char *name, bool required,
                           brim_error *err);

/* A member; NULL when absent or null. */
json_t *brim_json_get(const json_t *object, const char *key);
/* Typed members. Absent or null leaves *out unchanged unless `required`; another type is an error.
 * `what` goes before the key in error texts: "" or "rope_scaling.". */
brim_status brim_json_int(const json_t *object, const char *key, bool required, const char *path,
                          const char *what, int64_t *out, brim_error *err);
brim_status brim_json_number(const json_t *object, const char *key, bool required, const char *path,
                             const char *what, double *out, brim_error *err);
brim_status brim_json_bool(const json_t *object, const char *key, const char *path,
                           const char *what, bool *out, brim_error *err);

/* "dir/name", or NULL when out of memory; brim_free it. */
char *brim_path_join(const char *dir, const char *name);

#endif
