/* SPDX-License-Identifier: Apache-2.0
 * `brim bench kda --device cuda` (kda_cuda.h) as a program that needs the driver alone.
 *     bench_kda [SET [ROUTE,...|all [SAMPLES [CHECK_HEADS [I/N]]]]]
 * SET: seed, lengths, packed, softplus, all, tiny, sweep; I/N: part I of N of it. On the emulator
 * (preset emu) `emu_bench_kda tiny all 1` runs its checks; the times there mean nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kda_cuda.h"

int main(int argc, char **argv)
{
    size_t n_shape;
    int n_wrong, part = 1, n_part = 1;
    brim_error err;
    const char *set = argc > 1 ? argv[1] : "seed", *routes = argc > 2 ? argv[2] : "all";
    if (argc > 5 && !bench_kda_part(argv[5], &part, &n_part)) {
        fprintf(stderr, "bench_kda: '%s' is no part I/N\n", argv[5]);
        return 2;
    }
    struct bench_kda_shape *shapes = bench_kda_set(set, part, n_part, &n_shape);
    if (!shapes) {
        fprintf(stderr, "bench_kda: no set is called '%s'\n", set);
        return 2;
    }
    struct bench_kda_options options = {
        .routes = strcmp(routes, "all") ? routes : NULL,
        .n_sample = argc > 3 ? atoi(argv[3]) : 15,
        .check_heads = argc > 4 ? atoi(argv[4]) : 0,
    };
    brim_status status = bench_kda_cuda(shapes, n_shape, &options, &n_wrong, &err);
    free(shapes);
    if (status != BRIM_OK) {
        fprintf(stderr, "bench_kda: %s\n", err.text);
        return 1;
    }
    return n_wrong != 0;
}
