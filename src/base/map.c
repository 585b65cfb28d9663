/* SPDX-License-Identifier: Apache-2.0 */
#define _DEFAULT_SOURCE
#include "base/map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

brim_status brim_map_open(struct brim_map *map, const char *path, brim_error *err)
{
    *map = (struct brim_map){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return brim_fail(err, errno == ENOENT ? BRIM_E_MISSING : BRIM_E_IO, "%s: cannot open: %s",
                         path, strerror(errno));
    struct stat st;
    brim_status status = BRIM_OK;
    if (fstat(fd, &st) != 0) {
        status = brim_fail(err, BRIM_E_IO, "%s: cannot stat: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        status = brim_fail(err, BRIM_E_IO, "%s: not a regular file", path);
    } else if (st.st_size > 0) {
        void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            status = brim_fail(err, BRIM_E_IO, "%s: cannot map: %s", path, strerror(errno));
        } else {
            map->data = data;
            map->n_bytes = (size_t)st.st_size;
        }
    }
    close(fd);
    return status;
}

void brim_map_release(const struct brim_map *map, const void *data, size_t n_bytes)
{
    if (!map->data || n_bytes == 0) return;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)data + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)data + n_bytes) / page * page;
    if (begin < end) (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

void brim_map_close(struct brim_map *map)
{
    if (map->data) munmap((void *)(uintptr_t)map->data, map->n_bytes);
    *map = (struct brim_map){0};
}
