/* SPDX-License-Identifier: Apache-2.0
 * y = x W^T over panels: which kernel runs, how work is cut for threads, and the scratch it needs.
 *
 * Every choice that can change a bit of the result (matvec or tiles, split of the reduction)
 * depends on the shape alone; the number of threads only decides how many panels and rows an item
 * of work holds, and no result depends on that.
 *
 * Paths: matvec (up to 8 rows, activations straight from x, a panel read once), tiled (x packed in
 * tiles of rows, panels unpacked slice by slice) and int8 (x quantized in tiles, panels used as
 * they are). A row's result does not depend on the rows that come with it on the same path. */
#include "cpu/linear.h"

#include <string.h>

#include "base/mem.h"
#include "brim/plan.h"

enum {
    SLICE = 128,      /* inputs unpacked at a time: two panels of them are 16 KiB, half of L1 */
    CHUNK_ROWS = 256, /* rows packed at a time: bounds the scratch */
    SPLIT_PROCESSORS = 32,    /* the processor count that plans of split reductions assume */
    MATVEC_ITEM_BYTES = 16384 /* weights of one work item of the matvec, at least */
};

struct run {
    const struct brim_cpu_ops *ops;
    const struct brim_linear *linear;
    const float *x;
    int64_t x_stride, n_row;
    float *y;
    int64_t y_stride;

    int64_t tile_rows, n_tile;        /* row tiles; the last ones may be one row shorter */
    int64_t panel_step, n_panel_item; /* panels of an item, items along panels */
    int64_t tile_step;                /* row tiles of an item */
    int64_t split, part_in;           /* partitions of the reduction and their length */
    float *packed;                    /* x in tiles, or sums of x over groups */
    uint8_t *tiles;                   /* x as int8 records */
    float *planes;                    /* [split][n_row][n_panel * 16] when split > 1 */
    uint8_t *workers;                 /* worker_bytes for each thread */
};

/* ---- scratch ---- */

/* Per thread: two unpacked slices, and a tile of results for the panel that n_out cuts short. */
static size_t worker_bytes(void)
{
    return brim_mem_round((2 * SLICE * BRIM_PANEL + BRIM_TILE_ROWS * 2 * BRIM_PANEL) *
                          sizeof(float));
}

/* Rows of each chunk when n_row are taken in chunks of nearly equal size. */
static int64_t chunk_rows(int64_t n_row)
{
    int64_t n_chunk = (n_row + CHUNK_ROWS - 1) / CHUNK_ROWS;
    return n_chunk ? (n_row + n_chunk - 1) / n_chunk : 0;
}

static int64_t plan_split(const struct brim_linear *linear, int64_t n_row)
{
    if (linear->level != BRIM_MATMUL_SPLIT_K || linear->n_in == 0) return 1;
    int64_t align = linear->group ? linear->group : linear->n_in % 32 == 0 ? 32 : linear->n_in;
    brim_split_policy policy =
        brim_split_policy_device(SPLIT_PROCESSORS, BRIM_TILE_ROWS, 2 * BRIM_PANEL, align);
    brim_split_plan plan;
    if (brim_split_plan_make(&policy, n_row, linear->n_in, linear->n_out, &plan, NULL) != BRIM_OK)
        return 1;
    return plan.split;
}

size_t brim_linear_scratch_bytes(const struct brim_linear *linear, int64_t n_row, int n_thread)
{
    /* not chunk_rows(n_row): of up to 300 rows, 256 take the most */
    size_t rows = (size_t)(n_row < CHUNK_ROWS ? n_row : CHUNK_ROWS), n_in = (size_t)linear->n_in;
    size_t packed = brim_mem_round(rows * n_in * sizeof(float));
    size_t tiles = brim_mem_round(rows * (n_in / BRIM_X8_GROUP) * BRIM_X8_RECORD);
    size_t bytes = 64 + (packed > tiles ? packed : tiles) + (size_t)n_thread * worker_bytes();
    /* A prompt may also come in smaller pieces, which are split more often: at most 16 planes of at
     * most SPLIT_PROCESSORS tiles together (split * tiles <= target). */
    size_t planes = (size_t)SPLIT_PROCESSORS * BRIM_TILE_ROWS * 2 * BRIM_PANEL * sizeof(float);
    return bytes + planes;
}

/* ---- pieces of results ---- */

static void add_bias(const struct run *run, int64_t row_begin, int64_t row_end, int64_t out_begin,
                     int64_t out_end)
{
    if (!run->linear->bias) return;
    for (int64_t row = row_begin; row < row_end; row++) {
        float *y = run->y + row * run->y_stride;
        for (int64_t i = out_begin; i < out_end; i++) y[i] += run->linear->bias[i];
    }
}

/* The end of output panels [panel, panel_end) that exists. */
static int64_t out_limit(const struct run *run, int64_t panel_end)
{
    int64_t end = panel_end * BRIM_PANEL;
    return end < run->linear->n_out ? end : run->linear->n_out;
}

static void copy_rows(const float *from, int64_t from_stride, int64_t n_row, int64_t n, float *to,
                      int64_t to_stride)
{
    for (int64_t row = 0; row < n_row; row++)
        memcpy(to + row * to_stride, from + row * from_stride, (size_t)n * sizeof(float));
}

/* First row of a tile: n_row rows in n_tile tiles whose sizes differ by at most one. */
static int64_t tile_begin(const struct run *run, int64_t tile)
{
    return tile * run->n_row / run->n_tile;
}

/* ---- matvec ---- */

static void matvec_panel(const struct run *run, int64_t index, int64_t row, int n_row, float *y,
                         int64_t y_stride)
{
    const struct brim_linear *linear = run->linear;
    const struct brim_panel panel = brim_linear_panel(linear, index);
    const float *x = run->x + row * run->x_stride;
    switch (linear->kind) {
    case BRIM_LINEAR_DENSE:
        run->ops->dense_matvec(&panel, 0, linear->n_in, x, run->x_stride, n_row, y, y_stride);
        return;
    case BRIM_LINEAR_Q8:
        run->ops->q8_matvec(&panel, 0, linear->n_in, x, run->x_stride, n_row, y, y_stride);
        return;
    case BRIM_LINEAR_W4: {
        int64_t n_group = linear->n_in / linear->group;
        run->ops->w4_matvec(&panel, 0, linear->n_in, x, run->x_stride, run->packed + row * n_group,
                            n_group, n_row, y, y_stride);
        return;
    }
    }
}

static void matvec_item(void *arg, int64_t item, int worker)
{
    const struct run *run = arg;
    int64_t begin = item * run->panel_step, end = begin + run->panel_step;
    if (end > run->linear->n_panel) end = run->linear->n_panel;
    (void)worker;
    for (int64_t index = begin; index < end; index++) {
        int64_t out = index * BRIM_PANEL, n = out_limit(run, index + 1) - out;
        for (int64_t row = 0; row < run->n_row; row += run->tile_rows) {
            int n_row =
                (int)(run->n_row - row < run->tile_rows ? run->n_row - row : run->tile_rows);
            float *y = run->y + row * run->y_stride + out;
            if (n == BRIM_PANEL) {
                matvec_panel(run, index, row, n_row, y, run->y_stride);
            } else {
                float edge[BRIM_MATVEC_ROWS * BRIM_PANEL];
                matvec_panel(run, index, row, n_row, edge, BRIM_PANEL);
                copy_rows(edge, BRIM_PANEL, n_row, n, y, run->y_stride);
            }
        }
    }
    add_bias(run, 0, run->n_row, begin * BRIM_PANEL, out_limit(run, end));
}

/* Sums of x over the groups of a W4 matrix. Eight running sums, so that the compiler may use
 * vectors; the order is part of the result. */
static void sum_groups(const struct run *run)
{
    const struct brim_linear *linear = run->linear;
    int64_t n_group = linear->n_in / linear->group;
    for (int64_t row = 0; row < run->n_row; row++) {
        const float *x = run->x + row * run->x_stride;
        float *out = run->packed + row * n_group;
        for (int64_t g = 0; g < n_group; g++, x += linear->group) {
            float part[8] = {0};
            for (int k = 0; k < linear->group; k += 8)
                for (int i = 0; i < 8; i++) part[i] += x[k + i];
            out[g] = ((part[0] + part[4]) + (part[2] + part[6])) +
                     ((part[1] + part[5]) + (part[3] + part[7]));
        }
    }
}

static void run_matvec(struct run *run, struct brim_pool *pool)
{
    const struct brim_linear *linear = run->linear;
    run->tile_rows = linear->level == BRIM_MATMUL_MATVEC ? 1 : BRIM_MATVEC_ROWS;
    if (linear->kind == BRIM_LINEAR_W4) sum_groups(run);
    int64_t n_thread = brim_pool_size(pool);
    int64_t step = (int64_t)(MATVEC_ITEM_BYTES / (linear->panel_bytes + 1)) + 1;
    int64_t fair = linear->n_panel / (4 * n_thread);
    run->panel_step = step < fair ? step : fair > 0 ? fair : 1;
    brim_pool_run(pool, matvec_item, run,
                  (linear->n_panel + run->panel_step - 1) / run->panel_step);
}

/* ---- how tiles are cut into items ---- */

/* Pairs of panels times runs of row tiles: at least four items per thread where rows allow it. */
static int64_t cut_items(struct run *run, struct brim_pool *pool, int64_t panel_step)
{
    int64_t n_thread = brim_pool_size(pool);
    run->panel_step = panel_step;
    run->n_panel_item = (run->linear->n_panel + panel_step - 1) / panel_step;
    int64_t want = n_thread == 1 ? 1 : (4 * n_thread - 1) / (run->n_panel_item * run->split) + 1;
    int64_t cuts = run->n_tile / 4 < want ? run->n_tile / 4 : want; /* 4 tiles repay unpacking */
    if (cuts < 1) cuts = 1;
    run->tile_step = (run->n_tile + cuts - 1) / cuts;
    return run->n_panel_item * run->split * ((run->n_tile + run->tile_step - 1) / run->tile_step);
}

/* ---- tiled, f32 activations ---- */

static void pack_tile(void *arg, int64_t tile, int worker)
{
    const struct run *run = arg;
    (void)worker;
    int64_t row = tile_begin(run, tile), n_in = run->linear->n_in;
    int n_row = (int)(tile_begin(run, tile + 1) - row);
    run->ops->x_pack(run->x + row * run->x_stride, run->x_stride, n_row, n_in,
                     run->packed + row * n_in);
}

static void unpack_slice(const struct run *run, int64_t index, int64_t begin, int64_t end,
                         float *out)
{
    const struct brim_panel panel = brim_linear_panel(run->linear, index);
    switch (run->linear->kind) {
    case BRIM_LINEAR_DENSE:
        run->ops->dense_unpack(&panel, begin, end, out);
        return;
    case BRIM_LINEAR_W4:
        run->ops->w4_unpack(&panel, begin, end, out);
        return;
    case BRIM_LINEAR_Q8:
        run->ops->q8_unpack(&panel, begin, end, out);
        return;
    }
}

/* One pair of panels, one partition [begin, end) of the reduction, a run of row tiles. */
struct gemm_part {
    int64_t first, begin, end, tile, tile_end;
    int n_panel;
    float *y; /* row 0, first output of the pair */
    int64_t y_stride, n_out;
    bool whole; /* all 16 lanes of both panels exist in y */
    float *slice, *edge;
};

/* Few tiles of rows: weights go from codes to sums without being stored, once for each tile. The
 * bits are those of gemm_slices. */
static void gemm_few_tiles(const struct run *run, const struct gemm_part *p)
{
    for (int i = 0; i < p->n_panel; i++) {
        const struct brim_panel panel = brim_linear_panel(run->linear, p->first + i);
        int64_t n = p->n_out - i * BRIM_PANEL; /* outputs of this panel that exist */
        for (int64_t t = p->tile; t < p->tile_end; t++) {
            int64_t row = tile_begin(run, t);
            int n_row = (int)(tile_begin(run, t + 1) - row);
            const float *x = run->packed + row * run->linear->n_in + p->begin * n_row;
            float *y = p->y + row * p->y_stride + i * BRIM_PANEL;
            if (p->whole || n >= BRIM_PANEL) {
                run->ops->w4_gemm(&panel, p->begin, p->end, x, n_row, y, p->y_stride);
            } else {
                run->ops->w4_gemm(&panel, p->begin, p->end, x, n_row, p->edge, BRIM_PANEL);
                copy_rows(p->edge, BRIM_PANEL, n_row, n, y, p->y_stride);
            }
        }
    }
}

/* Slice by slice, each unpacked once for all tiles; at least one, so that n_in == 0 gives zeros. */
static void gemm_slices(const struct run *run, const struct gemm_part *p)
{
    int64_t in = p->begin;
    do {
        int64_t n_k = p->end - in < SLICE ? p->end - in : SLICE;
        for (int i = 0; i < p->n_panel; i++)
            unpack_slice(run, p->first + i, in, in + n_k, p->slice + i * SLICE * BRIM_PANEL);
        bool accumulate = in != p->begin;
        for (int64_t t = p->tile; t < p->tile_end; t++) {
            int64_t row = tile_begin(run, t);
            int n_row = (int)(tile_begin(run, t + 1) - row);
            const float *x = run->packed + row * run->linear->n_in + in * n_row;
            float *y = p->y + row * p->y_stride, *to = p->whole ? y : p->edge;
            int64_t stride = p->whole ? p->y_stride : 2 * BRIM_PANEL;
            if (!p->whole && accumulate) copy_rows(y, p->y_stride, n_row, p->n_out, to, stride);
            run->ops->gemm(p->slice, SLICE * BRIM_PANEL, p->n_panel, n_k, x, n_row, to, stride,
                           accumulate);
            if (!p->whole) copy_rows(to, stride, n_row, p->n_out, y, p->y_stride);
        }
        in += SLICE;
    } while (in < p->end);
}

static void gemm_item(void *arg, int64_t item, int worker)
{
    const struct run *run = arg;
    const struct brim_linear *linear = run->linear;
    int64_t rest = item / run->n_panel_item, part = rest % run->split;
    struct gemm_part p = {
        .first = item % run->n_panel_item * 2,
        .begin = part * run->part_in,
        .end = (part + 1) * run->part_in,
        .tile = rest / run->split * run->tile_step,
        .slice = (float *)(void *)(run->workers + (size_t)worker * worker_bytes()),
    };
    p.tile_end = p.tile + run->tile_step < run->n_tile ? p.tile + run->tile_step : run->n_tile;
    p.edge = p.slice + 2 * SLICE * BRIM_PANEL;
    p.n_panel = p.first + 1 < linear->n_panel ? 2 : 1;
    int64_t out = p.first * BRIM_PANEL;
    p.n_out = out_limit(run, p.first + p.n_panel) - out;
    p.whole = run->split > 1 || p.n_out == p.n_panel * BRIM_PANEL;
    p.y_stride = run->split > 1 ? linear->n_panel * BRIM_PANEL : run->y_stride;
    p.y = (run->split > 1 ? run->planes + part * run->n_row * p.y_stride : run->y) + out;
    if (p.tile_end - p.tile <= 2 && linear->kind == BRIM_LINEAR_W4 && run->ops->w4_gemm)
        gemm_few_tiles(run, &p);
    else
        gemm_slices(run, &p);
    if (run->split == 1)
        add_bias(run, tile_begin(run, p.tile), tile_begin(run, p.tile_end), out, out + p.n_out);
}

/* Add the planes of one row in the order of the partitions. */
static void reduce_row(void *arg, int64_t row, int worker)
{
    const struct run *run = arg;
    (void)worker;
    int64_t stride = run->linear->n_panel * BRIM_PANEL, n_out = run->linear->n_out;
    const float *plane = run->planes + row * stride;
    float *y = run->y + row * run->y_stride;
    memcpy(y, plane, (size_t)n_out * sizeof *y);
    for (int64_t part = 1; part < run->split; part++) {
        plane += run->n_row * stride;
        for (int64_t i = 0; i < n_out; i++) y[i] += plane[i];
    }
    add_bias(run, row, row + 1, 0, n_out);
}

static void run_tiled(struct run *run, struct brim_pool *pool)
{
    run->tile_rows = run->ops->gemm_rows;
    run->n_tile = (run->n_row + run->tile_rows - 1) / run->tile_rows;
    run->split = plan_split(run->linear, run->n_row);
    run->part_in = run->linear->n_in / run->split;
    brim_pool_run(pool, pack_tile, run, run->n_tile);
    brim_pool_run(pool, gemm_item, run, cut_items(run, pool, 2));
    if (run->split > 1) brim_pool_run(pool, reduce_row, run, run->n_row);
}

/* ---- int8 activations ---- */

static size_t x8_row_bytes(const struct run *run)
{
    return (size_t)(run->linear->n_in / BRIM_X8_GROUP) * BRIM_X8_RECORD;
}

static void quantize_tile(void *arg, int64_t tile, int worker)
{
    const struct run *run = arg;
    (void)worker;
    int64_t row = tile_begin(run, tile);
    run->ops->x_quantize(run->x + row * run->x_stride, run->x_stride,
                         (int)(tile_begin(run, tile + 1) - row), run->linear->n_in / BRIM_X8_GROUP,
                         run->tiles + (size_t)row * x8_row_bytes(run));
}

static void x8_panel(const struct run *run, int64_t index, int64_t tile, int64_t tile_end,
                     float *edge)
{
    const struct brim_linear *linear = run->linear;
    const struct brim_panel panel = brim_linear_panel(linear, index);
    int64_t out = index * BRIM_PANEL, n = out_limit(run, index + 1) - out;
    for (; tile < tile_end; tile++) {
        int64_t row = tile_begin(run, tile);
        int n_row = (int)(tile_begin(run, tile + 1) - row);
        const uint8_t *records = run->tiles + (size_t)row * x8_row_bytes(run);
        float *to = run->y + row * run->y_stride + out;
        float *y = n == BRIM_PANEL ? to : edge;
        int64_t y_stride = n == BRIM_PANEL ? run->y_stride : BRIM_PANEL;
        if (linear->kind == BRIM_LINEAR_W4)
            run->ops->w4_x8(&panel, 0, linear->n_in, records, n_row, y, y_stride);
        else
            run->ops->q8_x8(&panel, 0, linear->n_in, records, n_row, y, y_stride);
        if (y == edge) copy_rows(edge, BRIM_PANEL, n_row, n, to, run->y_stride);
    }
}

static void x8_item(void *arg, int64_t item, int worker)
{
    const struct run *run = arg;
    float *edge = (float *)(void *)(run->workers + (size_t)worker * worker_bytes());
    int64_t begin = item % run->n_panel_item * run->panel_step, end = begin + run->panel_step;
    int64_t tile = item / run->n_panel_item * run->tile_step;
    int64_t tile_end = tile + run->tile_step < run->n_tile ? tile + run->tile_step : run->n_tile;
    if (end > run->linear->n_panel) end = run->linear->n_panel;
    for (int64_t index = begin; index < end; index++) x8_panel(run, index, tile, tile_end, edge);
    add_bias(run, tile_begin(run, tile), tile_begin(run, tile_end), begin * BRIM_PANEL,
             out_limit(run, end));
}

static void run_x8(struct run *run, struct brim_pool *pool)
{
    const struct brim_linear *linear = run->linear;
    run->tile_rows = linear->level == BRIM_MATMUL_MATVEC ? 1 : run->ops->x8_rows;
    run->n_tile = (run->n_row + run->tile_rows - 1) / run->tile_rows;
    run->split = 1;
    brim_pool_run(pool, quantize_tile, run, run->n_tile);
    int64_t n_thread = brim_pool_size(pool);
    int64_t step = (int64_t)(MATVEC_ITEM_BYTES / (linear->panel_bytes + 1)) / run->n_tile + 1;
    int64_t fair = linear->n_panel / (4 * n_thread);
    step = step < fair ? step : fair > 0 ? fair : 1;
    brim_pool_run(pool, x8_item, run, cut_items(run, pool, step));
}

/* ---- entry ---- */

void brim_linear_run(const struct brim_cpu_ops *ops, struct brim_pool *pool,
                     const struct brim_linear *linear, enum brim_activation_mode mode,
                     const float *x, int64_t x_stride, int64_t n_row, float *y, int64_t y_stride,
                     void *scratch)
{
    if (n_row <= 0 || linear->n_out == 0) return;
    int64_t step = chunk_rows(n_row);
    size_t rows = (size_t)step, n_in = (size_t)linear->n_in;
    size_t packed = brim_mem_round(rows * n_in * sizeof(float));
    size_t tiles = brim_mem_round(rows * (n_in / BRIM_X8_GROUP) * BRIM_X8_RECORD);
    uint8_t *base = (uint8_t *)scratch + (64 - (uintptr_t)scratch % 64) % 64;
    uint8_t *workers = base + (packed > tiles ? packed : tiles);
    for (int64_t row = 0; row < n_row; row += step) {
        struct run run = {
            .ops = ops,
            .linear = linear,
            .x = x + row * x_stride,
            .x_stride = x_stride,
            .n_row = n_row - row < step ? n_row - row : step,
            .y = y + row * y_stride,
            .y_stride = y_stride,
            .split = 1,
            .packed = (float *)(void *)base,
            .tiles = base,
            .workers = workers,
            .planes = (float *)(void *)(workers + (size_t)brim_pool_size(pool) * worker_bytes()),
        };
        if (mode == BRIM_ACTIVATIONS_INT8 && linear->kind != BRIM_LINEAR_DENSE)
            run_x8(&run, pool);
        else if (linear->level == BRIM_MATMUL_MATVEC || run.n_row <= BRIM_MATVEC_ROWS)
            run_matvec(&run, pool);
        else
            run_tiled(&run, pool);
    }
}
