/* SPDX-License-Identifier: Apache-2.0 */
#include "load/json.h"

#include <string.h>

#include "base/map.h"
#include "base/mem.h"

brim_status brim_json_parse(json_t **out, const void *data, size_t n_bytes, const char *path,
                            brim_error *err)
{
    json_error_t error;
    *out = json_loadb(n_bytes ? data : "", n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!*out) {
        if (json_error_code(&error) == json_error_out_of_memory)
            return brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory", path);
        return brim_fail(err, BRIM_E_FORMAT, "%s: line %d: %s", path, error.line, error.text);
    }
    if (!json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        return brim_fail(err, BRIM_E_FORMAT, "%s: not a JSON object", path);
    }
    return BRIM_OK;
}

brim_status brim_json_open(json_t **out, const char *dir, const char *name, bool required,
                           brim_error *err)
{
    *out = NULL;
    char *path = brim_path_join(dir, name);
    if (!path) return brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory", dir);
    struct brim_map map;
    brim_error local;
    brim_status status = brim_map_open(&map, path, &local);
    if (status == BRIM_OK) {
        status = brim_json_parse(out, map.data, map.n_bytes, path, err);
        brim_map_close(&map);
    } else if (status == BRIM_E_MISSING && !required) {
        status = BRIM_OK;
    } else if (err) {
        *err = local;
    }
    brim_free(path);
    return status;
}

json_t *brim_json_get(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static brim_status find(const json_t *object, const char *key, bool required, const char *path,
                        const char *what, json_t **out, brim_error *err)
{
    *out = brim_json_get(object, key);
    BRIM_REQUIRE(err, *out || !required, BRIM_E_MISSING, "%s: %s%s is missing", path, what, key);
    return BRIM_OK;
}

brim_status brim_json_int(const json_t *object, const char *key, bool required, const char *path,
                          const char *what, int64_t *out, brim_error *err)
{
    json_t *value;
    BRIM_TRY(find(object, key, required, path, what, &value, err));
    BRIM_REQUIRE(err, !value || json_is_integer(value), BRIM_E_FORMAT, "%s: %s%s is no integer",
                 path, what, key);
    if (value) *out = json_integer_value(value);
    return BRIM_OK;
}

brim_status brim_json_number(const json_t *object, const char *key, bool required, const char *path,
                             const char *what, double *out, brim_error *err)
{
    json_t *value;
    BRIM_TRY(find(object, key, required, path, what, &value, err));
    BRIM_REQUIRE(err, !value || json_is_number(value), BRIM_E_FORMAT, "%s: %s%s is no number", path,
                 what, key);
    if (value) *out = json_number_value(value);
    return BRIM_OK;
}

brim_status brim_json_bool(const json_t *object, const char *key, const char *path,
                           const char *what, bool *out, brim_error *err)
{
    json_t *value = brim_json_get(object, key);
    BRIM_REQUIRE(err, !value || json_is_boolean(value), BRIM_E_FORMAT,
                 "%s: %s%s is neither true nor false", path, what, key);
    if (value) *out = json_is_true(value);
    return BRIM_OK;
}

char *brim_path_join(const char *dir, const char *name)
{
    size_t n_dir = strlen(dir), n_name = strlen(name);
    char *path = brim_alloc(n_dir + n_name + 2);
    if (!path) return NULL;
    memcpy(path, dir, n_dir);
    if (n_dir > 0 && dir[n_dir - 1] != '/') path[n_dir++] = '/';
    memcpy(path + n_dir, name, n_name + 1);
    return path;
}
