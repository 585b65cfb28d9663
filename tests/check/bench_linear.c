/* SPDX-License-Identifier: Apache-2.0
 * Benches of the matrix kernels: kernels on one thread with weights in L1, then products on one and
 * two threads with weights that rotate through more than the last-level cache. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/clock.h"
#include "check/bench_linear.h"
#include "cpu/linear.h"

/* Best time of a call, in seconds, over runs of 0.1 ms: on a shared machine the minimum repeats. */
static double best_time(void (*call)(void *arg), void *arg)
{
    call(arg);
    int64_t begin = brim_clock_ns(), best = INT64_MAX, now;
    int64_t repeat = 1;
    do {
        int64_t start = brim_clock_ns();
        for (int64_t i = 0; i < repeat; i++) call(arg);
        now = brim_clock_ns();
        if ((now - start) / repeat < best) best = (now - start) / repeat;
        if (now - start < 100000) repeat *= 2;
    } while (now - begin < 60000000);
    return (double)best * 1e-9;
}

struct kernel_bench {
    const struct brim_cpu_ops *ops;
    struct brim_panel panel;
    int n_row;
    float *x, *y, *sum, *unpacked;
    uint8_t *tile;
};

static void run_w4_matvec(void *arg)
{
    struct kernel_bench *b = arg;
    b->ops->w4_matvec(&b->panel, 0, b->panel.n_in, b->x, b->panel.n_in, b->sum,
                      b->panel.n_in / b->panel.group, b->n_row, b->y, BRIM_PANEL);
}

static void run_q8_matvec(void *arg)
{
    struct kernel_bench *b = arg;
    b->ops->q8_matvec(&b->panel, 0, b->panel.n_in, b->x, b->panel.n_in, b->n_row, b->y, BRIM_PANEL);
}

static void run_w4_unpack(void *arg)
{
    struct kernel_bench *b = arg;
    b->ops->w4_unpack(&b->panel, 0, 128, b->unpacked);
}

static void run_gemm(void *arg)
{
    struct kernel_bench *b = arg;
    b->ops->gemm(b->unpacked, 128 * BRIM_PANEL, 2, 128, b->x, b->n_row, b->y, 2 * BRIM_PANEL, 1);
}

static void run_w4_x8(void *arg)
{
    struct kernel_bench *b = arg;
    b->ops->w4_x8(&b->panel, 0, b->panel.n_in, b->tile, b->n_row, b->y, BRIM_PANEL);
}

static void run_q8_x8(void *arg)
{
    struct kernel_bench *b = arg;
    b->ops->q8_x8(&b->panel, 0, b->panel.n_in, b->tile, b->n_row, b->y, BRIM_PANEL);
}

static void report(const struct check *c, const char *name, int n_row, double seconds, double bytes,
                   double flops)
{
    printf("%-7s %-22s rows %4d %9.2f us", brim_cpu_tier_name(c->ops->tier), name, n_row,
           seconds * 1e6);
    if (bytes > 0) printf(" %7.1f GB/s", bytes / seconds * 1e-9);
    printf(" %7.1f GFLOP/s\n", flops / seconds * 1e-9);
}

static void bench_kernels(struct check *c)
{
    const int64_t n_in = 1536;
    size_t w4_bytes = (size_t)n_in / 32 * brim_w4_group_bytes(BRIM_DTYPE_F16, 32);
    size_t q8_bytes = brim_q8_scale_bytes(n_in) + (size_t)n_in * BRIM_PANEL;
    uint8_t *data = brim_calloc(1, q8_bytes);
    struct kernel_bench b = {
        .ops = c->ops,
        .panel = {.data = data, .dtype = BRIM_DTYPE_F16, .group = 32, .n_in = n_in},
        .x = brim_calloc(BRIM_TILE_ROWS * (size_t)n_in, sizeof(float)),
        .y = brim_calloc(BRIM_TILE_ROWS * 2 * BRIM_PANEL, sizeof(float)),
        .sum = brim_calloc(BRIM_TILE_ROWS * (size_t)n_in / 32, sizeof(float)),
        .unpacked = brim_calloc(2 * 128 * BRIM_PANEL, sizeof(float)),
        .tile = brim_calloc(BRIM_TILE_ROWS * (size_t)n_in / 32, BRIM_X8_RECORD)};
    if (!data || !b.x || !b.y || !b.sum || !b.unpacked || !b.tile) abort();
    double mac = (double)n_in * BRIM_PANEL;
    for (b.n_row = 1; b.n_row <= BRIM_MATVEC_ROWS; b.n_row *= 2) {
        report(c, "w4_matvec", b.n_row, best_time(run_w4_matvec, &b), (double)w4_bytes,
               2 * mac * b.n_row);
        report(c, "q8_matvec", b.n_row, best_time(run_q8_matvec, &b), (double)q8_bytes,
               2 * mac * b.n_row);
    }
    report(c, "w4_unpack", 0, best_time(run_w4_unpack, &b), 128 * BRIM_PANEL * 4, 0);
    for (b.n_row = 1; b.n_row <= c->ops->gemm_rows; b.n_row += b.n_row == 1 ? 2 : 3)
        report(c, "gemm", b.n_row, best_time(run_gemm, &b), 0, 4.0 * 128 * BRIM_PANEL * b.n_row);
    for (b.n_row = 1; b.n_row <= c->ops->x8_rows; b.n_row += b.n_row == 1 ? 2 : 3) {
        report(c, "w4_x8", b.n_row, best_time(run_w4_x8, &b), (double)w4_bytes, 2 * mac * b.n_row);
        report(c, "q8_x8", b.n_row, best_time(run_q8_x8, &b), (double)q8_bytes, 2 * mac * b.n_row);
    }
    brim_free(b.tile);
    brim_free(b.unpacked);
    brim_free(b.sum);
    brim_free(b.y);
    brim_free(b.x);
    brim_free(data);
}

struct product_bench {
    const struct brim_cpu_ops *ops;
    struct brim_pool *pool;
    struct brim_linear *matrices;
    int n_matrix, next;
    enum brim_activation_mode mode;
    int64_t n_row;
    float *x, *y;
    void *scratch;
};

static void run_product(void *arg)
{
    struct product_bench *b = arg;
    const struct brim_linear *linear = &b->matrices[b->next];
    b->next = (b->next + 1) % b->n_matrix;
    brim_linear_run(b->ops, b->pool, linear, b->mode, b->x, linear->n_in, b->n_row, b->y,
                    linear->n_out, b->scratch);
}

struct pack_bench {
    struct brim_weight w;
    struct brim_pool *pool;
};

static void run_pack(void *arg)
{
    struct pack_bench *b = arg;
    struct brim_linear linear;
    if (brim_linear_pack(&linear, &b->w, 1, "w", b->pool, NULL) != BRIM_OK) abort();
    brim_linear_free(&linear);
}

/* Repacking, the larger part of loading a model; includes the first touch of the panels. */
static void bench_pack(struct check *c, struct brim_pool *pool, enum brim_weight_kind kind,
                       int64_t n_out, int64_t n_in)
{
    struct pack_bench b = {.pool = pool};
    b.w = (struct brim_weight){
        .kind = kind, .dtype = BRIM_DTYPE_F16, .n_out = n_out, .n_in = n_in, .group = 32};
    b.w.data_bytes = (size_t)n_out * brim_weight_row_bytes(&b.w);
    void *data = brim_calloc(1, b.w.data_bytes);
    if (!data) abort();
    b.w.data = data;
    char name[64];
    snprintf(name, sizeof name, "pack %s %lldx%lld", brim_weight_kind_name(kind), (long long)n_out,
             (long long)n_in);
    report(c, name, 0, best_time(run_pack, &b), (double)b.w.data_bytes, 0);
    brim_free(data);
}

static void bench_product(struct check *c, struct brim_pool *pool, enum brim_weight_kind kind,
                          int64_t n_out, int64_t n_in)
{
    enum { ROTATE_BYTES = 96 << 20, MAX_ROWS = 512 };
    struct brim_weight w = {
        .kind = kind, .dtype = BRIM_DTYPE_F16, .n_out = n_out, .n_in = n_in, .group = 32};
    w.data_bytes = (size_t)n_out * brim_weight_row_bytes(&w);
    uint8_t *data = brim_calloc(1, w.data_bytes);
    struct product_bench b = {.ops = c->ops, .pool = pool};
    b.n_matrix = (int)(ROTATE_BYTES / w.data_bytes) + 1;
    b.matrices = brim_calloc((size_t)b.n_matrix, sizeof *b.matrices);
    if (!data || !b.matrices) abort();
    w.data = data;
    for (int i = 0; i < b.n_matrix; i++)
        if (brim_linear_pack(&b.matrices[i], &w, 1, "w", pool, NULL) != BRIM_OK) abort();
    b.x = brim_calloc(MAX_ROWS * (size_t)n_in, sizeof(float));
    b.y = brim_calloc(MAX_ROWS * (size_t)n_out, sizeof(float));
    b.scratch = brim_alloc(brim_linear_scratch_bytes(&b.matrices[0], MAX_ROWS, 2));
    if (!b.x || !b.y || !b.scratch) abort();
    static const int rows[] = {1, 8, 16, 32, 128, 512};
    for (int mode = 0; mode < 2; mode++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            if (rows[i] > 8 && n_out > 10000) break;
            b.mode = (enum brim_activation_mode)mode;
            b.n_row = rows[i];
            char name[64];
            snprintf(name, sizeof name, "%s %lldx%lld %s", brim_weight_kind_name(kind),
                     (long long)n_out, (long long)n_in, mode ? "int8" : "f32");
            report(c, name, rows[i], best_time(run_product, &b),
                   (double)b.matrices[0].panel_bytes * (double)b.matrices[0].n_panel,
                   2.0 * (double)(n_out * n_in) * rows[i]);
        }
    brim_free(b.scratch);
    brim_free(b.y);
    brim_free(b.x);
    for (int i = 0; i < b.n_matrix; i++) brim_linear_free(&b.matrices[i]);
    brim_free(b.matrices);
    brim_free(data);
}

void bench_linear(struct check *c)
{
    static const int64_t shapes[][2] = {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}};
    bench_kernels(c);
    if (c->ops == c->ref) return; /* minutes, and nobody's choice */
    for (int n_thread = 1; n_thread <= 2; n_thread++) {
        struct brim_pool *pool = NULL;
        if (brim_pool_create(&pool, n_thread, NULL) != BRIM_OK) abort();
        printf("%s, %d thread%s\n", brim_cpu_tier_name(c->ops->tier), n_thread,
               n_thread > 1 ? "s" : "");
        bench_pack(c, pool, BRIM_WEIGHT_Q4_1, 3072, 576);
        bench_pack(c, pool, BRIM_WEIGHT_Q4_1, 576, 1536);
        bench_pack(c, pool, BRIM_WEIGHT_Q8_0, 49152, 576);
        bench_pack(c, pool, BRIM_WEIGHT_DENSE, 3072, 576);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            bench_product(c, pool, BRIM_WEIGHT_Q4_1, shapes[i][0], shapes[i][1]);
        bench_product(c, pool, BRIM_WEIGHT_Q8_0, 49152, 576);
        brim_pool_free(&pool);
    }
}
