/* SPDX-License-Identifier: Apache-2.0
 * Runs a fuzz target on every file of the directories and files named, each in a heap block of its
 * exact size, so that a sanitizer sees the first byte read beyond. */
#define _POSIX_C_SOURCE 200809L
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat st;
    if (!file || stat(path, &st)) {
        fprintf(stderr, "cannot read %s\n", path);
        if (file) fclose(file);
        return -1;
    }
    size_t size = (size_t)st.st_size;
    uint8_t *data = malloc(size ? size : 1);
    int result = -1;
    if (data && fread(data, 1, size, file) == size) {
        /* named before: a crash leaves it on the screen */
        fprintf(stderr, "%s\n", path);
        LLVMFuzzerTestOneInput(data, size);
        result = 0;
    }
    free(data);
    fclose(file);
    return result;
}

static int replay_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (!folder) return -1;
    int n = 0;
    for (struct dirent *entry; n >= 0 && (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        char name[4096];
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        n = replay_file(name) ? -1 : n + 1;
    }
    closedir(folder);
    return n;
}

int main(int argc, char **argv)
{
    int n = 0;
    for (int i = 1; i < argc; i++) {
        struct stat st;
        int n_here = stat(argv[i], &st)     ? -1
                     : S_ISDIR(st.st_mode)  ? replay_folder(argv[i])
                     : replay_file(argv[i]) ? -1
                                            : 1;
        if (n_here < 0) {
            fprintf(stderr, "cannot replay %s\n", argv[i]);
            return 1;
        }
        n += n_here;
    }
    if (!n) fprintf(stderr, "no seed was given\n");
    return n ? 0 : 1;
}
