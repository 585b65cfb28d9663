/* SPDX-License-Identifier: Apache-2.0
 * Which of the three Hopper W4 kernels takes a product, and its schedule: the one place that the
 * operator, the engine's backend and the measured sweep ask. */
#ifndef BRIM_PLAN_W4_HOPPER_H
#define BRIM_PLAN_W4_HOPPER_H

#include <stddef.h>
#include <stdint.h>

#include "plan/w4_cluster.h"
#include "plan/w4_gemv.h"
#include "plan/w4_stream.h"

#ifdef __cplusplus
extern "C" {
#endif

enum brim_w4_hopper_kernel {
    BRIM_W4_KERNEL_GEMV,    /* to 4 or 8 rows: src/cuda/w4/gemv.h */
    BRIM_W4_KERNEL_CLUSTER, /* few: one tile of all of them: cluster.h */
    BRIM_W4_KERNEL_STREAM   /* more: stream.h */
};

/* Results depend on the plan of the kernel named, as its header says. */
struct brim_w4_hopper_plan {
    enum brim_w4_hopper_kernel kernel;
    /* Only the named one is set. */
    struct brim_w4_gemv_plan gemv;
    struct brim_w4_cluster_plan cluster;
    struct brim_w4_stream_plan stream;
};

/* From shape and multiprocessors. Dimensions >= 1. */
struct brim_w4_hopper_plan brim_w4_hopper_plan_make(int64_t n_row, int64_t n_in, int64_t n_out,
                                                    int n_sm);

/* The same for a link of a chain of dependent launches, the products of a layer in turn with norms,
 * rotation and attention between: what was measured there, else what the kernel's own choice for a
 * chain or brim_w4_hopper_plan_make gives. Its bits may differ from that one's where the schedule
 * does. */
struct brim_w4_hopper_plan brim_w4_hopper_plan_chain(int64_t n_row, int64_t n_in, int64_t n_out,
                                                     int n_sm);

/* The most rows that take the same kernel on the same schedule as n_row, whatever the shape, of
 * _make or of _chain: such rows share bits, and launches but for the rows that they store. n_row
 * itself up to eight, of which gemv has all or some; tiles of the other kernels end at multiples of
 * 16 or 32 tokens. */
int64_t brim_w4_hopper_rows_alike(int64_t n_row);

/* CTAs of the launch. */
int64_t brim_w4_hopper_plan_ctas(const struct brim_w4_hopper_plan *plan);

/* One line without commas, always ended by a zero if capacity > 0; returns its whole length. */
size_t brim_w4_hopper_plan_print(const struct brim_w4_hopper_plan *plan, char *text,
                                 size_t capacity);

#ifdef __cplusplus
}
#endif
#endif
