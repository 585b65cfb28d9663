/* SPDX-License-Identifier: Apache-2.0
 * The schedule of the W4 kernels for one to eight rows (src/cuda/w4/gemv.h) as a value: which of
 * the two, how many outputs a CTA has and how many warps and CTAs share their reduction. */
#ifndef BRIM_PLAN_W4_GEMV_H
#define BRIM_PLAN_W4_GEMV_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    BRIM_W4_GEMV_ROWS = 8,  /* the most rows of one call */
    BRIM_W4_GEMV_WARPS = 12 /* the most warps of a CTA */
};

enum brim_w4_gemv_kernel {
    BRIM_W4_GEMV_BF16 = 0, /* gemv.cu: chosen for more rows */
    BRIM_W4_GEMV_INT8 = 1  /* gemv_int8.cu: chosen for one and two */
};

/* When a launch that depends on this one may begin to load its weights, with programmatic dependent
 * launch. */
enum brim_w4_gemv_release {
    BRIM_W4_GEMV_REQUESTED = 0, /* when this one's weights are on their way */
    BRIM_W4_GEMV_AT_ONCE,
    BRIM_W4_GEMV_STAGED /* when this one has its x */
};

/* A CTA has n_pair pairs of 16 outputs. The 128-input units of the reduction are one line cut into
 * split * n_part even parts: CTA `rank` of a cluster takes n_part of them, one a warp and pair.
 * Results depend on the kernel, n_part and split (and, with a norm in front, on the number of
 * warps), not on n_row. */
struct brim_w4_gemv_plan {
    int n_pair;     /* n_pair * n_part: 1 .. BRIM_W4_GEMV_WARPS warps */
    int n_part;     /* n_part * split <= n_unit */
    int split;      /* CTAs of a cluster: 1, 2, 4 or 8 */
    int64_t n_unit; /* of 128 inputs */
    int64_t n_cta;  /* split times the groups of n_pair pairs */
    enum brim_w4_gemv_kernel kernel;
    int depth; /* units a warp has in flight at most, up to 4; 0: 4 */
    enum brim_w4_gemv_release release;
};

/* From shape and multiprocessors; n_row chooses the kernel alone, so that one and two rows share
 * bits, and so do three to eight. Dimensions >= 1. */
struct brim_w4_gemv_plan brim_w4_gemv_plan_make(int64_t n_row, int64_t n_in, int64_t n_out,
                                                int n_sm);

/* The same for a link of a chain of dependent launches, the products of a layer in turn with
 * attention behind the first: what was measured there, else brim_w4_gemv_plan_make's. */
struct brim_w4_gemv_plan brim_w4_gemv_plan_chain(int64_t n_row, int64_t n_in, int64_t n_out,
                                                 int n_sm);

/* "bf16" or "int8"; the second form is false, and *plan as it was, where the name is neither. A
 * schedule fits both kernels. */
const char *brim_w4_gemv_kernel_name(enum brim_w4_gemv_kernel kernel);
bool brim_w4_gemv_plan_name(struct brim_w4_gemv_plan *plan, const char *name);

/* First unit of part `part` of split * n_part; part + 1 gives its end. */
static inline int64_t brim_w4_gemv_part(const struct brim_w4_gemv_plan *plan, int64_t part)
{
    return plan->n_unit * part / ((int64_t)plan->split * plan->n_part);
}

#ifdef __cplusplus
}
#endif
#endif
