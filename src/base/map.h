/* SPDX-License-Identifier: Apache-2.0
 * Read-only mapping of a whole file. */
#ifndef BRIM_BASE_MAP_H
#define BRIM_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct brim_map {
    const uint8_t *data; /* page aligned; NULL for an empty file */
    size_t n_bytes;
};

/* Map `path` read-only. On failure *map is zeroed and nothing stays open. */
brim_status brim_map_open(struct brim_map *map, const char *path, brim_error *err);
/* Hand the pages lying wholly inside [data, data + n_bytes) back to the kernel (they can be read
 * again from the file). A hint; keeps peak memory near the larger of file and repacked weights. */
void brim_map_release(const struct brim_map *map, const void *data, size_t n_bytes);
void brim_map_close(struct brim_map *map);

#endif
