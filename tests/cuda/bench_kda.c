/* SPDX-License-Identifier: Apache-2.0
 * `brim bench kda --device cuda` (kda_cuda.h) as a program that needs the driver alone.
 *     bench_kda [SET [ROUTE,...|all [SAMPLES [CHECK_HEADS]]]]     SET: seed, sweep, packed, all */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kda_cuda.h"

int main(int argc, char **argv)
{
    size_t n_shape;
    int n_wrong;
    brim_error err;
    const char *set = argc > 1 ? argv[1] : "seed", *routes = argc > 2 ? argv[2] : "all";
    const struct bench_kda_shape *shapes = bench_kda_set(set, &n_shape);
    if (!shapes) {
        fprintf(stderr, "bench_kda: no set is called '%s'\n", set);
        return 2;
    }
    if (bench_kda_cuda(shapes, n_shape, strcmp(routes, "all") ? routes : NULL,
                       argc > 3 ? atoi(argv[3]) : 15, argc > 4 ? atoi(argv[4]) : 0, &n_wrong,
                       &err) != BRIM_OK) {
        fprintf(stderr, "bench_kda: %s\n", err.text);
        return 1;
    }
    return n_wrong != 0;
}
