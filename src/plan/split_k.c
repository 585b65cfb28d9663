/* SPDX-License-Identifier: Apache-2.0
 * How far to split the reduction of a product whose output tiles alone do not fill the processor.
 *
 * The rule: the smallest whole number of partitions that keeps tiles * split within the target, at
 * most the cap, each partition a whole number of groups and all of equal length. A split of one
 * means the unsplit kernel, unchanged. Source of the course's numbers: the tiny-llm course, week 2,
 * day 7 (32 x 32 tiles, about 16 thread groups for each of 20 GPU cores, at most 16 partitions,
 * matvec up to 8 rows). */
#include "brim/plan.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/count.h"
#include "base/status.h"

brim_split_policy brim_split_policy_course(void)
{
    return (brim_split_policy){.block_rows = 32,
                               .block_outs = 32,
                               .target = 320,
                               .cap = 16,
                               .align = 128,
                               .matvec_rows = 8};
}

brim_split_policy brim_split_policy_device(int64_t n_processor, int64_t block_rows,
                                           int64_t block_outs, int64_t align)
{
    return (brim_split_policy){.block_rows = block_rows,
                               .block_outs = block_outs,
                               .target = n_processor,
                               .cap = 16,
                               .align = align,
                               .matvec_rows = 8};
}

brim_status brim_split_plan_make(const brim_split_policy *policy, int64_t n_row, int64_t n_in,
                                 int64_t n_out, brim_split_plan *out, brim_error *err)
{
    BRIM_REQUIRE(err, policy && out, BRIM_E_ARGUMENT, "split plan: policy and out must be given");
    BRIM_REQUIRE(err,
                 policy->block_rows > 0 && policy->block_outs > 0 && policy->target > 0 &&
                     policy->cap > 0 && policy->align > 0 && policy->matvec_rows >= 0,
                 BRIM_E_ARGUMENT,
                 "split policy: block_rows, block_outs, target, cap and align must be positive and "
                 "matvec_rows not negative");
    BRIM_REQUIRE(err, n_row >= 0 && n_in >= 0 && n_out >= 0, BRIM_E_SHAPE,
                 "split plan: %" PRId64 " rows, %" PRId64 " inputs, %" PRId64
                 " outputs: a dimension is negative",
                 n_row, n_in, n_out);
    BRIM_REQUIRE(err, n_in % policy->align == 0, BRIM_E_SHAPE,
                 "split plan: %" PRId64 " inputs are not a multiple of %" PRId64, n_in,
                 policy->align);

    brim_split_plan plan = {
        .matvec = n_row <= policy->matvec_rows, .split = 1, .partition_inputs = n_in};
    if (n_row > 0 && n_out > 0) {
        int64_t tiles;
        BRIM_REQUIRE(err,
                     !__builtin_mul_overflow(brim_ceil_div(n_row, policy->block_rows),
                                             brim_ceil_div(n_out, policy->block_outs), &tiles),
                     BRIM_E_SHAPE,
                     "split plan: %" PRId64 " rows times %" PRId64 " outputs are too many tiles",
                     n_row, n_out);
        plan.base_groups = tiles;
        int64_t n_group = n_in / policy->align;
        if (!plan.matvec && n_group > 0) {
            /* target / tiles may be 0: then the grid is full. The product stays within target. */
            int64_t split = policy->target / tiles;
            split = brim_min_i64(brim_min_i64(split > 1 ? split : 1, policy->cap), n_group);
            while (n_group % split != 0) split--;
            plan.split = split;
        }
        plan.launched_groups = plan.base_groups * plan.split;
        plan.partition_inputs = n_in / plan.split;
    }
    *out = plan;
    return BRIM_OK;
}

size_t brim_split_plan_print(const brim_split_plan *plan, char *text, size_t capacity)
{
    int len;
    if (plan->matvec)
        len = snprintf(text, capacity,
                       "{\"kernel\":\"matvec\",\"split\":1,\"base_groups\":%" PRId64
                       ",\"launched_groups\":%" PRId64 ",\"partition_inputs\":%" PRId64 "}",
                       plan->base_groups, plan->launched_groups, plan->partition_inputs);
    else
        len = snprintf(text, capacity,
                       "{\"split\":%" PRId64 ",\"base_groups\":%" PRId64
                       ",\"launched_groups\":%" PRId64
                       ",\"kernel\":\"%s\",\"partition_inputs\":%" PRId64 "}",
                       plan->split, plan->base_groups, plan->launched_groups,
                       plan->split > 1 ? "split-k" : "tiled", plan->partition_inputs);
    return len > 0 ? (size_t)len : 0;
}
