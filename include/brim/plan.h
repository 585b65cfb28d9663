/* SPDX-License-Identifier: Apache-2.0
 * Schedules as values: ask for one, print it, pin it. Pure functions of shape and processor; they
 * allocate nothing and need no device. */
#ifndef BRIM_PLAN_H
#define BRIM_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How y[n_row][n_out] = x[n_row][n_in] W^T is cut when W has 4-bit groups. */
typedef struct brim_split_policy {
    int64_t block_rows, block_outs; /* output tile of one thread group */
    int64_t target;                 /* thread groups that fill the processor */
    int64_t cap;                    /* largest split */
    int64_t align;                  /* partitions start and end on this many inputs (the group) */
    int64_t matvec_rows;            /* up to this many rows the matvec runs, never split */
} brim_split_policy;

typedef struct brim_split_plan {
    int matvec;               /* 1: the matvec kernel; split is 1 */
    int64_t split;            /* partitions of the reduction; 1: the unsplit kernel, bit for bit */
    int64_t base_groups;      /* output tiles */
    int64_t launched_groups;  /* base_groups * split */
    int64_t partition_inputs; /* n_in / split */
} brim_split_plan;

/* "course": 32 x 32 tiles, target 320, cap 16, align 128, matvec up to 8 rows. */
BRIM_API brim_split_policy brim_split_policy_course(void);
/* Target and tile from the number of processors (SMs of a GPU, threads of a CPU). */
BRIM_API brim_split_policy brim_split_policy_device(int64_t n_processor, int64_t block_rows,
                                                    int64_t block_outs, int64_t align);

/* split = min(cap, max(1, target / tiles), n_in / align), then lowered until partitions are equal
 * and aligned. BRIM_E_SHAPE when n_in is not a multiple of align or a dimension is negative; n_row
 * == 0 or n_out == 0 plans no work (split 1, no groups). */
BRIM_API BRIM_MUST_USE brim_status brim_split_plan_make(const brim_split_policy *policy,
                                                        int64_t n_row, int64_t n_in, int64_t n_out,
                                                        brim_split_plan *out, brim_error *err);
/* One line of JSON without newline; returns the length it has, also when `capacity` is too small.
 */
BRIM_API size_t brim_split_plan_print(const brim_split_plan *plan, char *text, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif
