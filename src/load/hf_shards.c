/* SPDX-License-Identifier: Apache-2.0
 * Which .safetensors files make up a Hugging Face directory. With model.safetensors.index.json the
 * index decides, tensor by tensor; without it all model*.safetensors, else all *.safetensors. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "load/checkpoint_impl.h"
#include "load/json.h"
#include "load/safetensors.h"

static const char index_name[] = "model.safetensors.index.json";

/* A sorted list of file names without doubles. */
struct names {
    char **items;
    size_t n, capacity;
};

static brim_status names_add(struct names *names, const char *name, const char *path,
                             brim_error *err)
{
    if (names->n == names->capacity) {
        size_t capacity = names->capacity ? names->capacity * 2 : 16;
        char **grown =
            brim_realloc(names->items, names->n * sizeof *grown, capacity * sizeof *grown);
        if (!grown) return brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory", path);
        names->items = grown;
        names->capacity = capacity;
    }
    size_t at = names->n;
    while (at > 0 && strcmp(names->items[at - 1], name) > 0) at--;
    if (at > 0 && strcmp(names->items[at - 1], name) == 0) return BRIM_OK;
    char *copy = brim_strndup(name, strlen(name));
    if (!copy) return brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory", path);
    memmove(names->items + at + 1, names->items + at, (names->n - at) * sizeof *names->items);
    names->items[at] = copy;
    names->n++;
    return BRIM_OK;
}

static void names_free(struct names *names)
{
    for (size_t i = 0; i < names->n; i++) brim_free(names->items[i]);
    brim_free(names->items);
    *names = (struct names){0};
}

static bool names_have(const struct names *names, const char *name)
{
    for (size_t i = 0; i < names->n; i++)
        if (strcmp(names->items[i], name) == 0) return true;
    return false;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* All names in the directory that end in `end`. */
static brim_status list_directory(const char *path, const char *end, struct names *out,
                                  brim_error *err)
{
    DIR *dir = opendir(path);
    if (!dir) return brim_fail(err, BRIM_E_IO, "%s: cannot list: %s", path, strerror(errno));
    brim_status status = BRIM_OK;
    const struct dirent *entry;
    while (status == BRIM_OK && (entry = readdir(dir)) != NULL)
        if (entry->d_name[0] != '.' && ends_with(entry->d_name, end))
            status = names_add(out, entry->d_name, path, err);
    closedir(dir);
    return status;
}

/* "model-00002-of-00005.safetensors": stem length, number and count; false for other names. */
static bool split_name(const char *name, size_t *stem, long *number, long *count)
{
    static const char end[] = ".safetensors";
    size_t n = strlen(name);
    if (!ends_with(name, end) || n < sizeof end - 1 + 15) return false;
    const char *tail = name + n - (sizeof end - 1) - 15; /* "-00002-of-00005" */
    int used = 0;
    if (sscanf(tail, "-%5ld-of-%5ld%n", number, count, &used) != 2 || used != 15) return false;
    *stem = (size_t)(tail - name);
    return *number >= 1 && *number <= *count && *count <= 99999;
}

/* Without an index the numbers in the names still tell which shards are missing. */
static brim_status check_numbering(const struct names *names, const char *path, brim_error *err)
{
    char missing[200];
    size_t len = 0;
    long n_missing = 0, n_there = 0, total = 0, number, count;
    size_t stem;
    if (names->n == 0 || !split_name(names->items[0], &stem, &number, &total)) return BRIM_OK;
    for (long want = 1; want <= total; want++) {
        char name[300];
        snprintf(name, sizeof name, "%.*s-%05ld-of-%05ld.safetensors", stem > 200 ? 200 : (int)stem,
                 names->items[0], want, total);
        if (names_have(names, name)) {
            n_there++;
            continue;
        }
        if (n_missing++ < 3) {
            int n = snprintf(missing + len, sizeof missing - len, "%s%s", len ? ", " : "", name);
            if (n > 0 && (size_t)n < sizeof missing - len) len += (size_t)n;
        }
    }
    for (size_t i = 0; i < names->n; i++)
        BRIM_REQUIRE(err, split_name(names->items[i], &stem, &number, &count) && count == total,
                     BRIM_E_FORMAT,
                     "%s: %s and %s belong to different sets of files; remove one set or add %s",
                     path, names->items[0], names->items[i], index_name);
    BRIM_REQUIRE(err, n_missing == 0, BRIM_E_MISSING,
                 "%s: %ld of %ld files are missing: %s%s; download them again", path, n_missing,
                 total, missing, n_missing > 3 ? ", ..." : "");
    return BRIM_OK;
}

static brim_status choose_without_index(const char *path, struct names *out, brim_error *err)
{
    struct names all = {0};
    brim_status status = list_directory(path, ".safetensors", &all, err);
    bool model_only = false;
    for (size_t i = 0; i < all.n; i++)
        model_only = model_only || strncmp(all.items[i], "model", 5) == 0;
    for (size_t i = 0; status == BRIM_OK && i < all.n; i++)
        if (!model_only || strncmp(all.items[i], "model", 5) == 0)
            status = names_add(out, all.items[i], path, err);
    names_free(&all);
    if (status != BRIM_OK) return status;
    BRIM_REQUIRE(err, out->n > 0, BRIM_E_MISSING,
                 "%s: no .safetensors file; brim reads no .bin or .npz weights", path);
    return check_numbering(out, path, err);
}

/* Names of the files the index maps tensors to. */
static brim_status index_files(const json_t *map, const char *path, struct names *out,
                               brim_error *err)
{
    BRIM_REQUIRE(err, json_is_object(map) && json_object_size(map) > 0, BRIM_E_FORMAT,
                 "%s/%s: weight_map is no object with entries", path, index_name);
    const char *tensor, *last = "";
    json_t *file;
    json_object_foreach((json_t *)(uintptr_t)map, tensor, file)
    {
        const char *name = json_string_value(file);
        BRIM_REQUIRE(err,
                     name && ends_with(name, ".safetensors") && !strchr(name, '/') &&
                         name[0] != '.' && strlen(name) < 200,
                     BRIM_E_FORMAT, "%s/%s: tensor %.100s is not mapped to a plain file name", path,
                     index_name, tensor);
        if (strcmp(name, last) != 0) BRIM_TRY(names_add(out, name, path, err));
        last = name;
    }
    return BRIM_OK;
}

/* Every file of the index that is not there, with what it holds and what to do. */
static brim_status check_index_files(const json_t *map, const struct names *files,
                                     const struct names *there, const char *path, brim_error *err)
{
    char missing[120], tensors[160];
    size_t len = 0, tensor_len = 0, n_missing = 0, n_tensor = 0;
    missing[0] = tensors[0] = '\0';
    for (size_t i = 0; i < files->n; i++) {
        if (names_have(there, files->items[i])) continue;
        int n =
            snprintf(missing + len, sizeof missing - len, "%s%s", len ? ", " : "", files->items[i]);
        if (n > 0 && (size_t)n < sizeof missing - len)
            len += (size_t)n;
        else
            missing[len] = '\0';
        n_missing++;
        const char *tensor;
        json_t *file;
        json_object_foreach((json_t *)(uintptr_t)map, tensor, file)
        {
            if (strcmp(json_string_value(file), files->items[i]) != 0) continue;
            if (n_tensor++ >= 3) continue;
            n = snprintf(tensors + tensor_len, sizeof tensors - tensor_len, "%s%.60s",
                         tensor_len ? ", " : "", tensor);
            if (n > 0 && (size_t)n < sizeof tensors - tensor_len) tensor_len += (size_t)n;
        }
    }
    if (n_missing == 0) return BRIM_OK;
    bool all_gone = n_missing == files->n && there->n > 0;
    return brim_fail(err, BRIM_E_MISSING,
                     "%s: %zu of %zu files of the index are missing (%s), with %zu tensors: "
                     "%s%s; %s",
                     path, n_missing, files->n, missing, n_tensor, tensors,
                     n_tensor > 3 ? ", ..." : "",
                     all_gone ? "the index may be stale: delete it, or download these files"
                              : "download these files again");
}

static brim_status map_shards(struct brim_checkpoint *checkpoint, const struct names *files,
                              brim_error *err)
{
    checkpoint->shards = brim_calloc(files->n, sizeof *checkpoint->shards);
    if (!checkpoint->shards)
        return brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory", checkpoint->path);
    for (size_t i = 0; i < files->n; i++) {
        struct brim_shard *shard = &checkpoint->shards[i];
        checkpoint->n_shard = i + 1;
        shard->path = brim_path_join(checkpoint->path, files->items[i]);
        if (!shard->path)
            return brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory", checkpoint->path);
        BRIM_TRY(brim_map_open(&shard->map, shard->path, err));
        BRIM_TRY(brim_safetensors_parse(&checkpoint->table, shard->map.data, shard->map.n_bytes,
                                        (int)i, shard->path, err));
    }
    return BRIM_OK;
}

/* Keep of the table what the index assigns to the file it was found in; then every tensor of the
 * index must be left. */
static brim_status apply_index(struct brim_checkpoint *checkpoint, const json_t *map,
                               const struct names *files, brim_error *err)
{
    struct brim_tensor_table *table = &checkpoint->table;
    size_t n_kept = 0, n_dropped = 0;
    for (size_t i = 0; i < table->n; i++) {
        struct brim_file_tensor *t = &table->items[i];
        const char *file = json_string_value(json_object_get(map, t->name));
        if (file && strcmp(file, files->items[t->shard]) == 0) {
            table->items[n_kept++] = *t;
        } else {
            brim_free(t->name);
            n_dropped++;
        }
    }
    table->n = n_kept;
    if (n_dropped > 0)
        brim_checkpoint_warn(checkpoint,
                             "%s: %zu tensors are not assigned to their file by %s and are ignored",
                             checkpoint->path, n_dropped, index_name);
    BRIM_TRY(brim_table_index(table, checkpoint->path, err));
    if (n_kept == json_object_size(map)) return BRIM_OK;
    const char *tensor;
    json_t *file;
    json_object_foreach((json_t *)(uintptr_t)map, tensor, file) BRIM_REQUIRE(
        err, brim_table_find(table, tensor), BRIM_E_MISSING,
        "%s: %s lacks tensor %.100s which the index assigns to it (%zu such tensors); "
        "index and files do not belong together",
        checkpoint->path, json_string_value(file), tensor, json_object_size(map) - n_kept);
    return BRIM_OK;
}

static brim_status open_indexed(struct brim_checkpoint *checkpoint, const json_t *map,
                                struct names *files, struct names *there, brim_error *err)
{
    BRIM_TRY(index_files(map, checkpoint->path, files, err));
    BRIM_TRY(list_directory(checkpoint->path, ".safetensors", there, err));
    BRIM_TRY(check_index_files(map, files, there, checkpoint->path, err));
    for (size_t i = 0; i < there->n; i++)
        if (!names_have(files, there->items[i]))
            brim_checkpoint_warn(checkpoint, "%s: %s is not in the index and is ignored",
                                 checkpoint->path, there->items[i]);
    BRIM_TRY(map_shards(checkpoint, files, err));
    return apply_index(checkpoint, map, files, err);
}

brim_status brim_hf_open_shards(struct brim_checkpoint *checkpoint, brim_error *err)
{
    struct names files = {0}, there = {0};
    json_t *index;
    BRIM_TRY(brim_json_open(&index, checkpoint->path, index_name, false, err));
    brim_status status;
    if (index) {
        status =
            open_indexed(checkpoint, json_object_get(index, "weight_map"), &files, &there, err);
    } else {
        status = choose_without_index(checkpoint->path, &files, err);
        if (status == BRIM_OK) status = map_shards(checkpoint, &files, err);
        if (status == BRIM_OK) status = brim_table_index(&checkpoint->table, checkpoint->path, err);
    }
    json_decref(index);
    names_free(&files);
    names_free(&there);
    return status;
}
