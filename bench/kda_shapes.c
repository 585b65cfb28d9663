/* SPDX-License-Identifier: Apache-2.0
 * Which shapes the KDA benchmark runs, and the lines it prints. Needs no GPU. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kda_cuda.h"

static const int64_t mixed[] = {1300, 547, 2048, 963, 271, 3063}, even[] = {1024, 1024, 1024, 1024},
                     steep[] = {4096, 64, 64, 64, 64, 0, 64, 64}, few[] = {70, 0, 33, 129};

static const struct bench_kda_shape all_shapes[] = {
    {1, 2048, 1, NULL, 0},  {1, 2048, 4, NULL, 0},   {1, 2048, 8, NULL, 0},
    {1, 4096, 1, NULL, 0},  {1, 4096, 4, NULL, 0},   {1, 4096, 8, NULL, 0},

    {1, 512, 1, NULL, 0},   {1, 512, 8, NULL, 0},    {1, 512, 32, NULL, 0},
    {1, 1024, 1, NULL, 0},  {1, 1024, 4, NULL, 0},   {1, 1024, 12, NULL, 0},
    {1, 1024, 32, NULL, 0}, {1, 1024, 96, NULL, 0},  {1, 2048, 12, NULL, 0},
    {1, 2048, 16, NULL, 0}, {1, 2048, 24, NULL, 0},  {1, 2048, 32, NULL, 0},
    {1, 4096, 12, NULL, 0}, {1, 4096, 16, NULL, 0},  {1, 4096, 20, NULL, 0},
    {1, 4096, 24, NULL, 0}, {1, 4096, 32, NULL, 0},  {1, 4096, 48, NULL, 0},
    {1, 8192, 1, NULL, 0},  {1, 8192, 8, NULL, 0},   {1, 8192, 12, NULL, 0},
    {1, 8192, 32, NULL, 0}, {1, 8192, 64, NULL, 0},  {1, 8192, 96, NULL, 0},
    {1, 16384, 4, NULL, 0}, {1, 16384, 16, NULL, 0}, {1, 32768, 8, NULL, 0},
    {1, 65536, 1, NULL, 0}, {1, 65536, 8, NULL, 0},  {8, 1024, 4, NULL, 0},
    {8, 1024, 64, NULL, 0},

    {6, 8192, 1, mixed, 0}, {6, 8192, 4, mixed, 0},  {6, 8192, 64, mixed, 0},
    {4, 4096, 4, even, 0},  {8, 4544, 4, steep, 0},

    {1, 2048, 1, NULL, 1},  {1, 2048, 4, NULL, 1},   {1, 2048, 8, NULL, 1},
    {1, 8192, 32, NULL, 1},

    {1, 256, 1, NULL, 0},   {2, 96, 2, NULL, 0},     {4, 232, 1, few, 0},
    {1, 130, 1, NULL, 1},
};

/* The router's sweep: one sequence with every number of heads, more sequences with some of them.
 * The largest hold 2^21 tokens times heads: 0.5 GB an operand. Returns their number. */
static size_t sweep(struct bench_kda_shape *out)
{
    static const int heads[] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96}, some[] = {1, 4, 12, 64};
    size_t n = 0;
    for (int64_t n_seq = 1; n_seq <= 64; n_seq *= 2) {
        const int *list = n_seq == 1 ? heads : some;
        size_t n_list = n_seq == 1 ? sizeof heads / sizeof *heads : sizeof some / sizeof *some;
        for (int64_t n_tok = 64; n_tok <= 131072; n_tok *= 2)
            for (size_t i = 0; i < n_list; i++)
                if (n_seq * n_tok * list[i] <= BENCH_KDA_SWEEP_ROWS)
                    out[n++] = (struct bench_kda_shape){n_seq, n_tok, list[i], NULL, 0};
    }
    return n;
}

struct bench_kda_shape *bench_kda_set(const char *name, int part, int n_part, size_t *n)
{
    static const struct {
        const char *name;
        size_t begin, end;
    } sets[] = {{"seed", 0, 6},     {"lengths", 6, 37},
                {"packed", 37, 42}, {"softplus", 42, 46},
                {"all", 0, 46},     {"tiny", 46, sizeof all_shapes / sizeof *all_shapes}};
    enum { MAX_SWEEP = 1024 };
    struct bench_kda_shape *shapes = malloc(MAX_SWEEP * sizeof *shapes);
    size_t n_all = 0;

    *n = 0;
    if (!shapes) return NULL;
    if (!strcmp(name, "sweep")) n_all = sweep(shapes);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (!strcmp(name, sets[i].name)) {
            n_all = sets[i].end - sets[i].begin;
            memcpy(shapes, all_shapes + sets[i].begin, n_all * sizeof *shapes);
        }
    for (size_t i = (size_t)part - 1; i < n_all; i += (size_t)n_part) shapes[(*n)++] = shapes[i];
    if (n_all > 0) return shapes;
    free(shapes);
    return NULL;
}

bool bench_kda_part(const char *text, int *part, int *n_part)
{
    char *end;
    long i = strtol(text, &end, 10);
    if (end == text || *end != '/') return false;
    const char *after = end + 1;
    long n = strtol(after, &end, 10);
    if (end == after || *end || i < 1 || i > n || n > 1000) return false;
    *part = (int)i, *n_part = (int)n;
    return true;
}

void bench_kda_print_header(FILE *to)
{
    fputs("n_seq,n_tok,n_head,route,us_median,us_min,us_max,speedup,out_error,state_error,"
          "split_length,split_first,split_window,split_chunks,gate\n",
          to);
}

void bench_kda_print_row(FILE *to, const struct bench_kda_row *row)
{
    fprintf(to,
            "%" PRId64 ",%" PRId64 ",%" PRId64 ",%s,%.1f,%.1f,%.1f,%.3f,%.2e,%.2e,%d,%d,%d,%" PRId64
            ",%s\n",
            row->shape->n_seq, row->shape->n_tok, row->shape->n_head, row->route, row->us_median,
            row->us_min, row->us_max, row->us_m128 > 0 ? row->us_m128 / row->us_median : 1,
            row->out_error, row->state_error, row->split_length, row->split_first,
            row->split_window, row->split_chunks, row->shape->softplus ? "softplus" : "bounded");
}
