/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "load/st_write.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "load/json.h"

static brim_status write_all(int fd, const char *path, const void *data, size_t n_bytes,
                             brim_error *err)
{
    const uint8_t *at = data;
    while (n_bytes > 0) {
        size_t part = n_bytes < 1u << 24 ? n_bytes : 1u << 24;
        ssize_t n = write(fd, at, part);
        if (n < 0 && errno == EINTR) continue;
        BRIM_REQUIRE(err, n > 0, BRIM_E_IO, "%s: cannot write: %s", path,
                     n < 0 ? strerror(errno) : "nothing was taken");
        at += n;
        n_bytes -= (size_t)n;
    }
    return BRIM_OK;
}

static json_t *describe(const struct brim_file_tensor *t, uint64_t begin)
{
    json_t *shape = json_array();
    for (int i = 0; i < t->n_dim; i++) json_array_append_new(shape, json_integer(t->shape[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->type_name, "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)(begin + t->n_bytes));
}

/* The JSON header as text, NULL when out of memory; free it with the allocator of Jansson. */
static char *header_text(const struct brim_tensor_table *tensors, const char *const *metadata,
                         size_t n_pair, uint64_t *n_data)
{
    json_t *root = json_object(), *meta = json_object();
    int bad = 0;
    for (size_t i = 0; i < n_pair; i++)
        bad |= json_object_set_new(meta, metadata[2 * i], json_string(metadata[2 * i + 1]));
    bad |= json_object_set_new(root, "__metadata__", meta);
    uint64_t at = 0;
    for (size_t i = 0; i < tensors->n; i++) {
        bad |= json_object_set_new(root, tensors->items[i].name, describe(&tensors->items[i], at));
        at += tensors->items[i].n_bytes;
    }
    *n_data = at;
    char *text = bad ? NULL : json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}

brim_status brim_st_create(struct brim_st_writer *writer, const char *path,
                           const struct brim_tensor_table *tensors, const char *const *metadata,
                           size_t n_pair, brim_error *err)
{
    *writer = (struct brim_st_writer){.fd = -1, .path = path};
    json_malloc_t unused;
    json_free_t json_release;
    json_get_alloc_funcs(&unused, &json_release);
    char *text = header_text(tensors, metadata, n_pair, &writer->n_left);
    if (!text) return brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory", path);
    /* the writers of the format pad the header so that the data begins at a multiple of 8 */
    size_t len = strlen(text), padded = (len + 7) / 8 * 8;
    uint8_t head[8];
    for (int i = 0; i < 8; i++) head[i] = (uint8_t)(padded >> (8 * i));
    brim_status status = BRIM_OK;
    writer->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (writer->fd < 0)
        status = brim_fail(err, BRIM_E_IO, "%s: cannot create: %s", path, strerror(errno));
    if (status == BRIM_OK) status = write_all(writer->fd, path, head, 8, err);
    if (status == BRIM_OK) status = write_all(writer->fd, path, text, len, err);
    if (status == BRIM_OK) status = write_all(writer->fd, path, "       ", padded - len, err);
    json_release(text);
    if (status != BRIM_OK) brim_st_abandon(writer);
    return status;
}

brim_status brim_st_write(struct brim_st_writer *writer, const void *data, size_t n_bytes,
                          brim_error *err)
{
    BRIM_REQUIRE(err, n_bytes <= writer->n_left, BRIM_E_ARGUMENT,
                 "%s: more data than its header announces", writer->path);
    BRIM_TRY(write_all(writer->fd, writer->path, data, n_bytes, err));
    writer->n_left -= n_bytes;
    return BRIM_OK;
}

brim_status brim_st_finish(struct brim_st_writer *writer, brim_error *err)
{
    int fd = writer->fd;
    BRIM_REQUIRE(err, writer->n_left == 0, BRIM_E_ARGUMENT,
                 "%s: less data than its header announces", writer->path);
    int failed = fsync(fd) != 0 ? errno : 0;
    writer->fd = -1;
    if (close(fd) != 0 && !failed) failed = errno;
    BRIM_REQUIRE(err, !failed, BRIM_E_IO, "%s: cannot write: %s", writer->path, strerror(failed));
    return BRIM_OK;
}

void brim_st_abandon(struct brim_st_writer *writer)
{
    if (writer->fd >= 0) close(writer->fd);
    writer->fd = -1;
}

brim_status brim_out_begin(struct brim_out_dir *dir, const char *path, brim_error *err)
{
    *dir = (struct brim_out_dir){0};
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') len--;
    BRIM_REQUIRE(err, len > 0, BRIM_E_ARGUMENT, "the output directory has no name");
    struct stat st;
    char *final = brim_strndup(path, len), *partial = brim_alloc(len + sizeof ".partial");
    brim_status status = BRIM_OK;
    if (!final || !partial) {
        status = brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory", path);
    } else {
        memcpy(partial, final, len);
        memcpy(partial + len, ".partial", sizeof ".partial");
        if (lstat(final, &st) == 0)
            status = brim_fail(err, BRIM_E_ARGUMENT, "%s: exists already, and is not overwritten",
                               final);
        else if (mkdir(partial, 0777) != 0)
            status =
                errno == EEXIST
                    ? brim_fail(err, BRIM_E_ARGUMENT,
                                "%s: exists already: another run is writing it or was "
                                "interrupted; remove it to start again",
                                partial)
                    : brim_fail(err, BRIM_E_IO, "%s: cannot create: %s", partial, strerror(errno));
    }
    if (status != BRIM_OK) {
        brim_free(final);
        brim_free(partial);
        return status;
    }
    *dir = (struct brim_out_dir){final, partial};
    return BRIM_OK;
}

brim_status brim_out_text(const struct brim_out_dir *dir, const char *name, const char *text,
                          size_t len, brim_error *err)
{
    char *path = brim_path_join(dir->partial, name);
    if (!path) return brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory", dir->partial);
    brim_status status = BRIM_OK;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) status = brim_fail(err, BRIM_E_IO, "%s: cannot create: %s", path, strerror(errno));
    if (fd >= 0) status = write_all(fd, path, text, len, err);
    if (fd >= 0 && close(fd) != 0 && status == BRIM_OK)
        status = brim_fail(err, BRIM_E_IO, "%s: cannot write: %s", path, strerror(errno));
    brim_free(path);
    return status;
}

static void release(struct brim_out_dir *dir)
{
    brim_free(dir->path);
    brim_free(dir->partial);
    *dir = (struct brim_out_dir){0};
}

brim_status brim_out_commit(struct brim_out_dir *dir, brim_error *err)
{
    struct stat st;
    brim_status status = BRIM_OK;
    if (lstat(dir->path, &st) == 0) /* rename would replace an empty directory */
        status = brim_fail(err, BRIM_E_ARGUMENT, "%s: appeared meanwhile, and is not overwritten",
                           dir->path);
    else if (rename(dir->partial, dir->path) != 0)
        status = brim_fail(err, BRIM_E_IO, "%s: cannot rename to %s: %s", dir->partial, dir->path,
                           strerror(errno));
    if (status == BRIM_OK)
        release(dir);
    else
        brim_out_abandon(dir);
    return status;
}

void brim_out_abandon(struct brim_out_dir *dir)
{
    if (!dir->partial) return;
    DIR *list = opendir(dir->partial);
    int fd = list ? dirfd(list) : -1;
    const struct dirent *entry;
    while (list && (entry = readdir(list)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(fd, entry->d_name, 0);
    }
    if (list) closedir(list);
    rmdir(dir->partial);
    release(dir);
}
