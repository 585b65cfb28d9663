/* SPDX-License-Identifier: Apache-2.0
 * The rows at which one kernel gives way to the next. */
#include "plan/w4_hopper.h"

#include <stdio.h>

#include "base/count.h"

/* Rows up to which the cluster kernel is ahead of the stream kernel, as measured on one H200 with
 * the projections of Qwen3-4B. With few outputs, whose tiles need a warpgroup's partner and a
 * cluster to fill the machine, until a tile of 64 rows is full (k and v, 1024); with very many,
 * where the other's persistent CTAs need no join, only to 32 rows (gate with up, 19456). */
static int64_t cluster_rows(int64_t n_out)
{
    if (n_out <= 2048) return 64;
    return n_out < 16384 ? 48 : 32;
}

/* Rows up to which gemv is ahead of the cluster kernel, measured likewise: all of its eight, but
 * only the four that it loads at once where outputs are few and every CTA holds x of many inputs.
 * At eight rows o (4096 to 2560) takes 9.3 us instead of 11.6, k and v 6.6 instead of 7.3. */
static int64_t gemv_rows(int64_t n_in, int64_t n_out)
{
    return n_in >= 2560 && n_in <= 4096 && n_out <= 2560 ? 4 : BRIM_W4_GEMV_ROWS;
}

struct brim_w4_hopper_plan brim_w4_hopper_plan_make(int64_t n_row, int64_t n_in, int64_t n_out,
                                                    int n_sm)
{
    struct brim_w4_hopper_plan plan = {.kernel = BRIM_W4_KERNEL_GEMV};
    if (n_row <= gemv_rows(n_in, n_out)) {
        plan.gemv = brim_w4_gemv_plan_make(n_row, n_in, n_out, n_sm);
    } else if (n_row <= cluster_rows(n_out)) {
        plan.kernel = BRIM_W4_KERNEL_CLUSTER;
        plan.cluster = brim_w4_cluster_plan_make(n_row, n_in, n_out, n_sm);
    } else {
        plan.kernel = BRIM_W4_KERNEL_STREAM;
        plan.stream = brim_w4_stream_plan_make(n_row, n_in, n_out, n_sm);
    }
    return plan;
}

/* Found by searches over the schedules of all products in the chain of Qwen3-4B's layer, at 16, 32,
 * 64 and 128 rows, two at least but one at 128 (bench/results/h200/w4_hopper_chain.csv): those
 * whose layer was shorter in all of them than with brim_w4_hopper_plan_make's, by 0.3 to 2.6 us. */
static const struct {
    int n_sm;
    int n_row; /* as brim_w4_hopper_rows_alike gives them */
    int64_t n_in, n_out;
    enum brim_w4_hopper_kernel kernel;
    int n_slab, split;
    int n_part;  /* of the cluster kernel */
    int n_token; /* of the stream kernel */
} chain[] = {
    {132, 16, 2560, 6144, BRIM_W4_KERNEL_CLUSTER, 1, 2, 2, 0}, /* q, k and v */
    {132, 16, 4096, 2560, BRIM_W4_KERNEL_CLUSTER, 1, 2, 3, 0}, /* o */
    {132, 32, 4096, 2560, BRIM_W4_KERNEL_CLUSTER, 2, 4, 1, 0},
    {132, 64, 4096, 2560, BRIM_W4_KERNEL_STREAM, 2, 4, 0, 64},
    {132, 128, 4096, 2560, BRIM_W4_KERNEL_STREAM, 2, 4, 0, 128},
};

struct brim_w4_hopper_plan brim_w4_hopper_plan_chain(int64_t n_row, int64_t n_in, int64_t n_out,
                                                     int n_sm)
{
    struct brim_w4_hopper_plan plan = {.kernel = BRIM_W4_KERNEL_GEMV};
    if (n_row <= BRIM_W4_GEMV_ROWS) {
        plan.gemv = brim_w4_gemv_plan_chain(n_row, n_in, n_out, n_sm);
        return plan;
    }
    const int64_t alike = brim_w4_hopper_rows_alike(n_row);
    for (size_t i = 0; i < sizeof chain / sizeof *chain; i++) {
        if (chain[i].n_sm != n_sm || chain[i].n_row != alike || chain[i].n_in != n_in ||
            chain[i].n_out != n_out)
            continue;
        plan.kernel = chain[i].kernel;
        if (plan.kernel == BRIM_W4_KERNEL_CLUSTER)
            plan.cluster = brim_w4_cluster_plan_pin(n_row, n_in, n_out, n_sm, chain[i].n_slab,
                                                    chain[i].n_part, chain[i].split);
        else
            plan.stream = brim_w4_stream_plan_pin(n_row, n_in, n_out, n_sm, chain[i].n_token,
                                                  chain[i].n_slab, chain[i].split);
        return plan;
    }
    return brim_w4_hopper_plan_make(n_row, n_in, n_out, n_sm);
}

int64_t brim_w4_hopper_rows_alike(int64_t n_row)
{
    if (n_row <= BRIM_W4_GEMV_ROWS) return n_row;
    int64_t step = n_row <= 64 ? 16 : 32;
    return brim_ceil_div(n_row, step) * step;
}

int64_t brim_w4_hopper_plan_ctas(const struct brim_w4_hopper_plan *plan)
{
    const struct brim_w4_cluster_plan *c = &plan->cluster;
    switch (plan->kernel) {
    case BRIM_W4_KERNEL_GEMV:
        return plan->gemv.n_cta;
    case BRIM_W4_KERNEL_CLUSTER:
        return c->n_tile_out * c->n_tile_token * c->split;
    case BRIM_W4_KERNEL_STREAM:
        break;
    }
    return plan->stream.n_cta;
}

size_t brim_w4_hopper_plan_print(const struct brim_w4_hopper_plan *plan, char *text,
                                 size_t capacity)
{
    const struct brim_w4_gemv_plan *g = &plan->gemv;
    const struct brim_w4_cluster_plan *c = &plan->cluster;
    const struct brim_w4_stream_plan *s = &plan->stream;
    int len = 0;
    switch (plan->kernel) {
    case BRIM_W4_KERNEL_GEMV:
        len =
            snprintf(text, capacity, "gemv%s: %d pairs %d parts split %d",
                     g->kernel == BRIM_W4_GEMV_INT8 ? " int8" : "", g->n_pair, g->n_part, g->split);
        break;
    case BRIM_W4_KERNEL_CLUSTER:
        len = snprintf(text, capacity, "cluster: %d tokens %d slabs %d parts split %d", c->n_token,
                       c->n_slab, c->n_part, c->split);
        break;
    case BRIM_W4_KERNEL_STREAM:
        len = snprintf(text, capacity, "stream: %d tokens %d slabs split %d", s->n_token, s->n_slab,
                       s->split);
        break;
    }
    return len > 0 ? (size_t)len : 0;
}
