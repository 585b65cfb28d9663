/* SPDX-License-Identifier: Apache-2.0
 * kernels.h, products with 4-bit weights: choose the kernel, size the workspace, call it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backend/kernels_w4.h"
#include "cpu/w4_direct.h"
#include "cuda/device.h"
#include "cuda/w4/cluster.h"
#include "cuda/w4/gemv.h"
#include "cuda/w4/stream.h"
#include "cuda/w4/w4.h"
#include "plan/w4_hopper.h"

enum { TILE = 32 };

enum kernel { NONE, CPU, MATVEC, NAIVE, TILED, GEMV, CLUSTER, STREAM };

/* A choice with the schedule that goes with it. */
struct choice {
    enum kernel kernel;
    brim_split_plan split;
    struct brim_w4_hopper_plan hopper;
    size_t workspace_bytes;
};

void brim_w4_args_init(brim_w4_args *args)
{
    memset(args, 0, sizeof *args);
    args->x_dtype = args->y_dtype = args->param_dtype = args->plane_dtype = BRIM_KERNEL_BF16;
    args->group = 128;
}

static enum brim_w4_planes planes_of(const brim_w4_args *args)
{
    return args->plane_dtype == BRIM_KERNEL_F32 ? BRIM_W4_PLANES_F32 : BRIM_W4_PLANES_BF16;
}

static struct brim_cuda_w4 cuda_args(const brim_w4_args *args)
{
    struct brim_cuda_w4 a = {
        .n_row = args->n_row,
        .n_in = args->n_in,
        .n_out = args->n_out,
        .group = args->group,
        .param_dtype = brim_w4_dtype(args->param_dtype),
        .x = args->x,
        .x_stride = args->x_stride,
        .codes = args->codes,
        .scales = args->scales,
        .biases = args->biases,
        .y = args->y,
        .y_stride = args->y_stride,
        .epilogue = BRIM_W4_STORE_BF16,
    };
    return a;
}

/* Codes, then parameters: codes come in units of 4096 bytes. */
static size_t packed_bytes(const brim_w4_args *args, size_t *codes_bytes)
{
    *codes_bytes = brim_cuda_w4_packed_codes_bytes(args->n_out, args->n_in);
    return *codes_bytes + brim_cuda_w4_packed_params_bytes(args->n_out, args->n_in, args->group,
                                                           brim_w4_dtype(args->param_dtype));
}

static struct brim_cuda_w4_packed packed_of(const brim_w4_args *args, const void *packed)
{
    size_t codes_bytes;
    (void)packed_bytes(args, &codes_bytes);
    return (struct brim_cuda_w4_packed){
        .n_out = args->n_out,
        .n_in = args->n_in,
        .n_slab = (args->n_out + BRIM_W4_SLAB - 1) / BRIM_W4_SLAB,
        .n_unit = (args->n_in + BRIM_W4_UNIT - 1) / BRIM_W4_UNIT,
        .group = args->group,
        .param_dtype = brim_w4_dtype(args->param_dtype),
        .codes = (void *)(uintptr_t)packed,
        .params = (uint8_t *)(uintptr_t)packed + codes_bytes,
    };
}

/* The plan of the tiled kernel and the matvec under it. n_sm is 0 on the CPU. */
static brim_status split_choose(const brim_w4_args *args, int n_sm, brim_split_plan *plan,
                                brim_error *err)
{
    brim_split_policy policy = brim_split_policy_course();
    if (args->policy == BRIM_W4_POLICY_DEVICE && n_sm > 0)
        policy =
            brim_split_policy_device((int64_t)BRIM_W4_TILED_PER_SM * n_sm, TILE, TILE, args->group);
    policy.align = args->group;
    if (args->split == BRIM_W4_SPLIT_OFF || (n_sm == 0 && args->policy == BRIM_W4_POLICY_DEVICE))
        policy.cap = 1;
    BRIM_TRY(brim_split_plan_make(&policy, args->n_row, args->n_in, args->n_out, plan, err));
    if (args->split != BRIM_W4_SPLIT_PINNED) return BRIM_OK;
    BRIM_TRY(brim_w4_check_pinned(args, err));
    plan->matvec = args->pinned->matvec;
    plan->split = args->pinned->split;
    plan->partition_inputs = args->pinned->partition_inputs;
    plan->launched_groups = plan->base_groups * plan->split;
    return BRIM_OK;
}

/* The Hopper kernels: up to eight rows stream weights through mma.sync, a cluster joins the
 * reduction of few rows, more rows have tiles of their own. */
static brim_status hopper_choose(const brim_w4_args *args, int n_sm, struct choice *choice,
                                 brim_error *err)
{
    static const enum kernel kernels[] = {[BRIM_W4_KERNEL_GEMV] = GEMV,
                                          [BRIM_W4_KERNEL_CLUSTER] = CLUSTER,
                                          [BRIM_W4_KERNEL_STREAM] = STREAM};
    int64_t n_group = INT64_MAX;
    if (args->n_in <= INT32_MAX) { /* plans count its units in an int */
        choice->hopper = brim_w4_hopper_plan_make(args->n_row, args->n_in, args->n_out, n_sm);
        choice->kernel = kernels[choice->hopper.kernel];
        const struct brim_w4_stream_plan *stream = &choice->hopper.stream;
        n_group = choice->kernel == STREAM
                      ? stream->n_tile_out * stream->n_tile_token * stream->split
                      : brim_w4_hopper_plan_ctas(&choice->hopper);
    }
    BRIM_REQUIRE(err, n_group <= INT32_MAX - 1024, BRIM_E_SHAPE,
                 "w4: n_row %lld, n_out %lld, n_in %lld: more work than one launch takes",
                 (long long)args->n_row, (long long)args->n_out, (long long)args->n_in);
    return BRIM_OK;
}

static brim_status choose(const brim_w4_args *args, struct choice *choice, brim_error *err)
{
    int n_sm = 0;
    memset(choice, 0, sizeof *choice);
    BRIM_REQUIRE(err, args, BRIM_E_ARGUMENT, "w4: the arguments are null");
    BRIM_TRY(brim_w4_check_shape(args, err));
    choice->split = (brim_split_plan){.split = 1, .partition_inputs = args->n_in};
    if (args->n_row == 0 || args->n_out == 0) return BRIM_OK;
    if (args->device == BRIM_KERNEL_CPU) {
        BRIM_TRY(split_choose(args, 0, &choice->split, err));
        BRIM_TRY(brim_w4_check_data(args, false, 0, err));
        choice->kernel = CPU;
        return BRIM_OK;
    }
    bool hopper = args->level == BRIM_W4_HOPPER || (args->level == BRIM_W4_AUTO && args->packed &&
                                                    args->split == BRIM_W4_SPLIT_AUTO);
    size_t codes_bytes;
    BRIM_TRY(brim_w4_check_data(args, hopper, packed_bytes(args, &codes_bytes), err));
    BRIM_TRY(brim_cuda_current_sm(&n_sm, err));
    if (hopper) return hopper_choose(args, n_sm, choice, err);
    if (args->level == BRIM_W4_MATVEC) {
        choice->kernel = args->n_row <= 8 ? MATVEC : NAIVE;
        return BRIM_OK;
    }
    BRIM_TRY(split_choose(args, n_sm, &choice->split, err));
    choice->kernel = choice->split.matvec ? MATVEC : TILED;
    /* The row axis of its grid ends at 65,535 tiles. */
    BRIM_REQUIRE(err, choice->kernel == MATVEC || args->n_row <= 65535 * TILE, BRIM_E_SHAPE,
                 "w4: n_row %lld exceeds the grid of the tiled kernel, %d", (long long)args->n_row,
                 65535 * TILE);
    choice->workspace_bytes =
        brim_cuda_w4_workspace_bytes(&choice->split, args->n_row, args->n_out, planes_of(args));
    return BRIM_OK;
}

static void describe(const brim_w4_args *args, const struct choice *choice, brim_w4_plan *plan)
{
    static const char *const names[] = {
        [NONE] = "none",   [CPU] = "cpu",   [MATVEC] = "matvec",   [NAIVE] = "naive",
        [TILED] = "tiled", [GEMV] = "gemv", [CLUSTER] = "cluster", [STREAM] = "stream"};
    memset(plan, 0, sizeof *plan);
    bool split = choice->kernel == TILED && choice->split.split > 1;
    snprintf(plan->kernel, sizeof plan->kernel, "%s", split ? "split-k" : names[choice->kernel]);
    plan->split = choice->split;
    plan->cluster = 1;
    plan->accumulates = choice->kernel != NONE && choice->kernel != CPU;
    plan->reduces = split;
    plan->workspace_bytes = choice->workspace_bytes;
    if (choice->kernel >= GEMV)
        brim_w4_hopper_plan_print(&choice->hopper, plan->schedule, sizeof plan->schedule);
    switch (choice->kernel) {
    case NONE:
        break;
    case CPU:
        plan->tile_rows = (int)(args->n_row < 96 ? args->n_row : 96);
        plan->tile_outs = 16;
        plan->grid = (args->n_out + 15) / 16;
        break;
    case MATVEC:
        plan->tile_rows = (int)args->n_row;
        plan->tile_outs = 16;
        plan->grid = (args->n_out + 15) / 16;
        break;
    case NAIVE:
        plan->tile_rows = 8;
        plan->tile_outs = 32;
        plan->grid = (args->n_row + 7) / 8 * ((args->n_out + 31) / 32);
        break;
    case TILED:
        plan->tile_rows = plan->tile_outs = TILE;
        plan->grid = choice->split.launched_groups;
        break;
    case GEMV:
        plan->tile_rows = (int)args->n_row;
        plan->tile_outs = 32 * choice->hopper.gemv.n_pair;
        plan->cluster = choice->hopper.gemv.split;
        plan->grid = choice->hopper.gemv.n_cta;
        break;
    case CLUSTER:
        plan->tile_rows = choice->hopper.cluster.n_token;
        plan->tile_outs = 64 * choice->hopper.cluster.n_slab;
        plan->cluster = choice->hopper.cluster.split;
        plan->grid = brim_w4_hopper_plan_ctas(&choice->hopper);
        break;
    case STREAM:
        plan->tile_rows = choice->hopper.stream.n_token;
        plan->tile_outs = 64 * choice->hopper.stream.n_slab;
        plan->cluster = choice->hopper.stream.split;
        plan->grid = choice->hopper.stream.n_cta;
        break;
    }
}

brim_status brim_w4_plan_make(const brim_w4_args *args, brim_w4_plan *plan, brim_error *err)
{
    struct choice choice;
    BRIM_REQUIRE(err, plan, BRIM_E_ARGUMENT, "w4: the plan is null");
    BRIM_TRY(choose(args, &choice, err));
    describe(args, &choice, plan);
    return BRIM_OK;
}

brim_status brim_w4_plan_hopper(const brim_w4_args *args, int64_t n_processor, brim_w4_plan *plan,
                                brim_error *err)
{
    enum { MAX_SM = 1 << 20 }; /* far below what the plans' costs count */
    struct choice choice = {.split = {.split = 1}};
    brim_w4_args a;
    uint64_t x_bytes, y_bytes;
    BRIM_REQUIRE(err, args && plan, BRIM_E_ARGUMENT, "w4: the arguments or the plan are null");
    BRIM_REQUIRE(err, n_processor >= 1 && n_processor <= MAX_SM, BRIM_E_RANGE,
                 "w4: a plan needs a GPU of 1 to %d processors, not %lld", MAX_SM,
                 (long long)n_processor);
    brim_w4_args_init(&a);
    a.device = BRIM_KERNEL_CUDA, a.level = BRIM_W4_HOPPER, a.group = args->group;
    a.n_row = args->n_row, a.n_in = a.x_stride = args->n_in, a.n_out = a.y_stride = args->n_out;
    BRIM_TRY(brim_w4_check_shape(&a, err));
    choice.split.partition_inputs = a.n_in;
    if (a.n_row > 0 && a.n_out > 0) {
        BRIM_TRY(brim_w4_check_spans(&a, &x_bytes, &y_bytes, err));
        BRIM_TRY(hopper_choose(&a, (int)n_processor, &choice, err));
    }
    describe(&a, &choice, plan);
    return BRIM_OK;
}

brim_status brim_w4_supported(const brim_w4_args *args, brim_error *err)
{
    struct choice choice;
    return choose(args, &choice, err);
}

brim_status brim_w4_workspace_bytes(const brim_w4_args *args, size_t *n_bytes, brim_error *err)
{
    struct choice choice;
    BRIM_REQUIRE(err, n_bytes, BRIM_E_ARGUMENT, "w4: n_bytes is null");
    BRIM_TRY(choose(args, &choice, err));
    *n_bytes = choice.workspace_bytes;
    return BRIM_OK;
}

size_t brim_w4_plan_print(const brim_w4_plan *plan, char *text, size_t capacity)
{
    /* A cluster's CTAs share a tile's reduction as planes do; one of the two is 1. */
    char partition[48] = "", schedule[96] = "";
    if (plan->schedule[0])
        snprintf(schedule, sizeof schedule, ",\"schedule\":\"%s\"", plan->schedule);
    else
        snprintf(partition, sizeof partition, ",\"partition_inputs\":%" PRId64,
                 plan->split.partition_inputs);
    int len = snprintf(text, capacity,
                       "{\"kernel\":\"%s\",\"split\":%" PRId64 "%s,\"grid\":%" PRId64
                       ",\"tile_rows\":%d,\"tile_outs\":%d,\"cluster\":%d,"
                       "\"accumulates\":%d,\"reduces\":%d,\"workspace_bytes\":%zu%s}",
                       plan->kernel, plan->split.split * plan->cluster, partition, plan->grid,
                       plan->tile_rows, plan->tile_outs, plan->cluster, plan->accumulates,
                       plan->reduces, plan->workspace_bytes, schedule);
    return len > 0 ? (size_t)len : 0;
}

static brim_status check_workspace(brim_kernel_device device, const void *workspace,
                                   brim_error *err)
{
    BRIM_REQUIRE(err, device == BRIM_KERNEL_CPU || device == BRIM_KERNEL_CUDA, BRIM_E_ARGUMENT,
                 "w4: device %d is neither CPU nor CUDA", (int)device);
    BRIM_REQUIRE(err, workspace, BRIM_E_WORKSPACE, "w4: the workspace is null");
    BRIM_REQUIRE(err, (uintptr_t)workspace % 256 == 0, BRIM_E_ALIGNMENT,
                 "w4: the workspace is not 256-byte aligned");
    return BRIM_OK;
}

brim_status brim_w4_workspace_init(brim_kernel_device device, void *workspace, size_t n_bytes,
                                   void *stream, brim_error *err)
{
    if (n_bytes == 0) return BRIM_OK;
    BRIM_TRY(check_workspace(device, workspace, err));
    (void)stream; /* all that lies here is written before it is read */
    return BRIM_OK;
}

brim_status brim_w4_pack_bytes(const brim_w4_args *args, size_t *n_bytes, brim_error *err)
{
    size_t codes_bytes;
    BRIM_REQUIRE(err, args && n_bytes, BRIM_E_ARGUMENT, "w4: the arguments are null");
    BRIM_TRY(brim_w4_check_matrix(args, err));
    BRIM_REQUIRE(err, args->device == BRIM_KERNEL_CUDA, BRIM_E_UNSUPPORTED,
                 "w4: packed weights belong to CUDA");
    *n_bytes = packed_bytes(args, &codes_bytes);
    return BRIM_OK;
}

brim_status brim_w4_pack(const brim_w4_args *args, void *packed, brim_error *err)
{
    size_t n_bytes;
    int n_sm;
    BRIM_TRY(brim_w4_pack_bytes(args, &n_bytes, err));
    BRIM_TRY(brim_cuda_current_sm(&n_sm, err));
    if (args->n_out == 0) return BRIM_OK;
    BRIM_REQUIRE(err, packed, BRIM_E_ARGUMENT, "w4: packed is null");
    BRIM_REQUIRE(err, (uintptr_t)packed % 256 == 0, BRIM_E_ALIGNMENT,
                 "w4: packed is not 256-byte aligned");
    BRIM_TRY(brim_w4_check_weights(args, err));
    struct brim_cuda_w4 a = cuda_args(args);
    struct brim_cuda_w4_packed out = packed_of(args, packed);
    return brim_cuda_w4_pack(&a, &out, args->stream, err);
}

static brim_status run_cpu(const brim_w4_args *args, const brim_split_plan *plan, brim_error *err)
{
    struct brim_w4_direct w = {
        .n_row = args->n_row,
        .n_in = args->n_in,
        .n_out = args->n_out,
        .x_stride = args->x_stride,
        .y_stride = args->y_stride,
        .group = args->group,
        .x_dtype = brim_w4_dtype(args->x_dtype),
        .y_dtype = brim_w4_dtype(args->y_dtype),
        .param_dtype = brim_w4_dtype(args->param_dtype),
        .x = args->x,
        .codes = args->codes,
        .scales = args->scales,
        .biases = args->biases,
        .y = args->y,
        .matvec = plan->matvec,
        .split = plan->split,
        .planes_bf16 = args->plane_dtype == BRIM_KERNEL_BF16,
    };
    return brim_w4_direct_run(&w, args->n_thread, err);
}

brim_status brim_w4_matmul(const brim_w4_args *args, brim_error *err)
{
    struct choice choice;
    BRIM_TRY(choose(args, &choice, err));
    if (choice.workspace_bytes > 0) {
        BRIM_REQUIRE(err, args->workspace && args->workspace_bytes >= choice.workspace_bytes,
                     BRIM_E_WORKSPACE, "w4: the workspace has %zu bytes; this product needs %zu",
                     args->workspace ? args->workspace_bytes : 0, choice.workspace_bytes);
        BRIM_TRY(check_workspace(args->device, args->workspace, err));
    }
    struct brim_cuda_w4 a = cuda_args(args);
    struct brim_cuda_w4_packed w = {0};
    if (choice.kernel >= GEMV) w = packed_of(args, args->packed);
    switch (choice.kernel) {
    case NONE:
        return BRIM_OK;
    case CPU:
        return run_cpu(args, &choice.split, err);
    case MATVEC:
        return brim_cuda_w4_matvec(&a, args->stream, err);
    case NAIVE:
        return brim_cuda_w4_naive(&a, args->stream, err);
    case TILED:
        return brim_cuda_w4_tiled(&a, &choice.split, planes_of(args), args->workspace, args->stream,
                                  err);
    case GEMV:
        return brim_cuda_w4_gemv(&a, &w, NULL, &choice.hopper.gemv, 0, args->stream, err);
    case CLUSTER:
        return brim_cuda_w4_cluster(&a, &w, &choice.hopper.cluster, 0, args->stream, err);
    case STREAM:
        return brim_cuda_w4_stream(&a, &w, &choice.hopper.stream, 0, args->stream, err);
    }
    return brim_fail(err, BRIM_E_ARGUMENT, "w4: no kernel was chosen");
}
