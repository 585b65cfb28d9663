/* SPDX-License-Identifier: Apache-2.0
 * kernels.h: check the arguments, choose the route, call the device's code. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "brim/kernels.h"
#include "cpu/kda.h"
#include "cuda/kda/kda.h"
#include "plan/kda_route.h"

void brim_kda_args_init(brim_kda_args *args)
{
    memset(args, 0, sizeof *args);
    args->head_dim = BRIM_KDA_DIM;
    args->qkv_dtype = BRIM_KERNEL_BF16;
    args->scale = 0.08838834764831845f; /* 128^-1/2 */
}

static brim_status plan_any(const brim_kda_args *args, struct brim_kda_schedule *schedule,
                            brim_kda_plan *plan, brim_error *err)
{
    int64_t n_processor;

    BRIM_REQUIRE(err, plan, BRIM_E_ARGUMENT, "kda: the plan is null");
    BRIM_TRY(brim_kda_check(args, err));
    if (args->device == BRIM_KERNEL_CPU) return brim_kda_plan_cpu(args, plan, err);
    BRIM_TRY(brim_kda_cuda_processors(&n_processor, err));
    BRIM_TRY(brim_kda_schedule_make(args, n_processor, schedule, plan, err));
    return brim_kda_cuda_supported(args, schedule->route, err);
}

static const struct brim_kda_split_plan *segments_of(const struct brim_kda_schedule *schedule)
{
    return schedule->split.length ? &schedule->split : NULL;
}

brim_status brim_kda_plan_make(const brim_kda_args *args, brim_kda_plan *plan, brim_error *err)
{
    struct brim_kda_schedule schedule;
    BRIM_TRY(plan_any(args, &schedule, plan, err));
    if (args->device == BRIM_KERNEL_CPU) return BRIM_OK;
    return brim_kda_cuda_load(args, schedule.route, segments_of(&schedule), err);
}

brim_status brim_kda_supported(const brim_kda_args *args, brim_error *err)
{
    brim_kda_plan plan;
    return brim_kda_plan_make(args, &plan, err);
}

brim_status brim_kda_workspace_bytes(const brim_kda_args *args, size_t *n_bytes, brim_error *err)
{
    brim_kda_plan plan;
    BRIM_REQUIRE(err, n_bytes, BRIM_E_ARGUMENT, "kda: n_bytes is null");
    BRIM_TRY(brim_kda_plan_make(args, &plan, err));
    *n_bytes = plan.workspace_bytes;
    return BRIM_OK;
}

brim_status brim_kda_workspace_init(brim_kernel_device device, void *workspace, size_t n_bytes,
                                    void *stream, brim_error *err)
{
    BRIM_REQUIRE(err, device == BRIM_KERNEL_CPU || device == BRIM_KERNEL_CUDA, BRIM_E_ARGUMENT,
                 "kda: device %d is neither CPU nor CUDA", (int)device);
    if (n_bytes == 0 || device == BRIM_KERNEL_CPU) return BRIM_OK;
    BRIM_REQUIRE(err, workspace, BRIM_E_WORKSPACE, "kda: the workspace is null");
    return brim_kda_cuda_workspace_init(workspace, n_bytes, stream, err);
}

brim_status brim_kda_prefill(const brim_kda_args *args, brim_error *err)
{
    struct brim_kda_schedule schedule;
    brim_kda_plan plan;

    BRIM_TRY(plan_any(args, &schedule, &plan, err));
    BRIM_REQUIRE(err,
                 plan.workspace_bytes == 0 ||
                     (args->workspace && args->workspace_bytes >= plan.workspace_bytes),
                 BRIM_E_WORKSPACE, "kda: the workspace has %zu bytes; route %s needs %zu",
                 args->workspace ? args->workspace_bytes : 0, plan.route, plan.workspace_bytes);
    BRIM_REQUIRE(err, (uintptr_t)args->workspace % 128 == 0 || plan.workspace_bytes == 0,
                 BRIM_E_ALIGNMENT, "kda: the workspace is not 128-byte aligned");
    if (args->device == BRIM_KERNEL_CUDA)
        return brim_kda_cuda_launch(args, schedule.route, segments_of(&schedule), err);
    if (!strcmp(plan.route, "cpu-ref")) return brim_kda_ref(args, err);
    return brim_kda_cpu(args, BRIM_KDA_FP32, err);
}
