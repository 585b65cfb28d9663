/* SPDX-License-Identifier: Apache-2.0
 * Writing a checkpoint: one .safetensors file as a stream, in a directory that appears at once. */
#ifndef BRIM_LOAD_ST_WRITE_H
#define BRIM_LOAD_ST_WRITE_H

#include "load/table.h"

struct brim_st_writer {
    int fd; /* -1: closed */
    const char *path;
    uint64_t n_left; /* data bytes still to come */
};

/* Create `path` (which must not exist) with the header for `tensors`: name, type_name, shape and
 * n_bytes count; data follows in this order. metadata: n_pair keys and values. path is borrowed. */
brim_status brim_st_create(struct brim_st_writer *writer, const char *path,
                           const struct brim_tensor_table *tensors, const char *const *metadata,
                           size_t n_pair, brim_error *err);
brim_status brim_st_write(struct brim_st_writer *writer, const void *data, size_t n_bytes,
                          brim_error *err);
/* Flush to the disk and close; everything announced must have been written. */
brim_status brim_st_finish(struct brim_st_writer *writer, brim_error *err);
/* Close without finishing; fine on a closed one. */
void brim_st_abandon(struct brim_st_writer *writer);

/* A directory written under path + ".partial" and renamed when whole. */
struct brim_out_dir {
    char *path, *partial;
};
/* BRIM_E_ARGUMENT if either name exists. */
brim_status brim_out_begin(struct brim_out_dir *dir, const char *path, brim_error *err);
brim_status brim_out_text(const struct brim_out_dir *dir, const char *name, const char *text,
                          size_t len, brim_error *err);
/* Rename; the struct is released whatever happens, and on failure so are the files. */
brim_status brim_out_commit(struct brim_out_dir *dir, brim_error *err);
/* Remove what was written; fine on a zeroed or committed one. */
void brim_out_abandon(struct brim_out_dir *dir);

#endif
