/* SPDX-License-Identifier: Apache-2.0
 * Which kernel a product takes: by the rung of the ladder, the kind of the weights and the number
 * of rows. */
#include "backend/backend_cuda.h"

#include <assert.h>

#include "cuda/runtime/runtime.h"
#include "cuda/w4/cluster.h"
#include "cuda/w4/gemv.h"
#include "cuda/w4/stream.h"
#include "cuda/w4/w4.h"

enum { MATVEC_ROWS = 8, TILE = 32 };

static brim_status split_plan(const struct cuda_backend *cuda, const struct brim_cuda_linear *w,
                              int64_t n_row, brim_split_plan *plan, brim_error *err)
{
    brim_split_policy policy = brim_split_policy_device(
        (int64_t)BRIM_W4_TILED_PER_SM * cuda->device.n_sm, TILE, TILE, w->raw.group);
    if (cuda->level < BRIM_CUDA_SPLIT_K) policy.cap = 1;
    return brim_split_plan_make(&policy, n_row, w->n_in, w->n_out, plan, err);
}

brim_status brim_cuda_product_bytes(const struct cuda_backend *cuda, int64_t n_row, size_t *out,
                                    brim_error *err)
{
    *out = 0;
    if (cuda->level != BRIM_CUDA_SPLIT_K) return BRIM_OK;
    for (const struct brim_matrix *m = cuda->matrices; m; m = m->next) {
        for (int i = 0; i < m->n_part; i++) {
            const struct brim_cuda_linear *w = &m->parts[i];
            if (!w->is_w4) continue;
            for (int64_t n = MATVEC_ROWS + 1; n <= n_row; n++) {
                brim_split_plan plan;
                BRIM_TRY(split_plan(cuda, w, n, &plan, err));
                size_t n_bytes =
                    brim_cuda_w4_workspace_bytes(&plan, n, w->n_out, BRIM_W4_PLANES_BF16);
                if (n_bytes > *out) *out = n_bytes;
            }
        }
    }
    return BRIM_OK;
}

static struct brim_cuda_w4 w4_args(const struct brim_cuda_linear *w,
                                   const struct brim_cuda_product *p)
{
    return (struct brim_cuda_w4){
        .n_row = p->n_row,
        .n_in = w->n_in,
        .n_out = w->n_out,
        .group = w->raw.group,
        .param_dtype = w->raw.dtype,
        .x = p->x,
        .x_stride = p->x_stride,
        .codes = w->raw.data,
        .scales = w->raw.scales,
        .biases = w->raw.biases,
        .y = p->y,
        .y_stride = p->y_stride,
        .epilogue = p->epilogue,
        .out_bias = w->bias,
    };
}

static size_t element(enum brim_w4_epilogue epilogue)
{
    return epilogue == BRIM_W4_STORE_BF16 || epilogue == BRIM_W4_SWIGLU ? 2 : 4;
}

static const struct brim_w4_hopper_plan *plan_of(struct brim_step *step, int64_t n_row,
                                                 int64_t n_in, int64_t n_out)
{
    for (int i = 0; i < BRIM_CUDA_PLANS; i++) {
        const struct brim_cuda_plan *p = &step->plans[i];
        if (p->n_row == n_row && p->n_in == n_in && p->n_out == n_out) return &p->plan;
    }
    struct brim_cuda_plan *p = &step->plans[step->plan_turn++ % BRIM_CUDA_PLANS];
    *p = (struct brim_cuda_plan){n_row, n_in, n_out, {0}};
    int n_sm = step->backend->device.n_sm;
    p->plan = brim_w4_hopper_plan_chain(n_row, n_in, n_out, n_sm);
    return &p->plan;
}

static brim_status hopper(struct brim_step *step, const struct brim_cuda_linear *w,
                          const struct brim_cuda_product *p, brim_error *err)
{
    const struct brim_cuda_w4 args = w4_args(w, p);
    const struct brim_w4_hopper_plan *plan = plan_of(step, p->n_row, w->n_in, w->n_out);
    if (plan->kernel == BRIM_W4_KERNEL_GEMV) {
        const struct brim_cuda_w4_norm norm = {
            .x = p->x,
            .x_stride = p->x_stride,
            .weight = p->norm ? p->norm->data : NULL,
            .eps = p->eps,
        };
        return brim_cuda_w4_gemv(&args, &w->packed, p->norm ? &norm : NULL, &plan->gemv, 1,
                                 step->stream, err);
    }
    assert(!p->norm); /* norms_inside: the kernel for one to eight rows alone */
    if (plan->kernel == BRIM_W4_KERNEL_STREAM)
        return brim_cuda_w4_stream(&args, &w->packed, &plan->stream, 1, step->stream, err);
    return brim_cuda_w4_cluster(&args, &w->packed, &plan->cluster, 1, step->stream, err);
}

/* Does every part's kernel normalise its input itself? */
static bool norms_inside(const struct brim_step *step, const struct brim_matrix *w, int64_t n_row)
{
    bool inside = step->backend->level == BRIM_CUDA_HOPPER && n_row <= BRIM_W4_GEMV_ROWS;
    for (int i = 0; i < w->n_part; i++) inside = inside && w->parts[i].is_w4;
    return inside;
}

static brim_status part_product(struct brim_step *step, const struct brim_cuda_linear *w,
                                const struct brim_cuda_product *p, brim_error *err)
{
    const struct cuda_backend *cuda = step->backend;
    if (!w->is_w4) {
        const struct brim_cuda_dense_args dense = {
            .n_row = p->n_row,
            .w = w->raw,
            .x = p->x,
            .x_stride = p->x_stride,
            .y = p->y,
            .y_stride = p->y_stride,
            .epilogue = p->epilogue,
            .out_bias = w->bias,
            .pdl = cuda->level == BRIM_CUDA_HOPPER,
        };
        return brim_cuda_dense(&dense, step->stream, err);
    }
    if (cuda->level == BRIM_CUDA_HOPPER) return hopper(step, w, p, err);
    const struct brim_cuda_w4 args = w4_args(w, p);
    if (p->n_row <= MATVEC_ROWS) return brim_cuda_w4_matvec(&args, step->stream, err);
    if (cuda->level < BRIM_CUDA_TILED) return brim_cuda_w4_naive(&args, step->stream, err);
    brim_split_plan plan;
    BRIM_TRY(split_plan(cuda, w, p->n_row, &plan, err));
    return brim_cuda_w4_tiled(&args, &plan, BRIM_W4_PLANES_BF16, step->linear, step->stream, err);
}

static brim_status normalise(struct brim_step *step, struct brim_cuda_product *p, int64_t n,
                             brim_error *err)
{
    const struct brim_cuda_rmsnorm_args norm = {
        .n_row = p->n_row,
        .n = n,
        .x = p->x,
        .x_stride = p->x_stride,
        .weight = p->norm->data,
        .eps = p->eps,
        .y = step->normed,
        .y_stride = step->normed_stride,
        .pdl = step->backend->level == BRIM_CUDA_HOPPER,
        .workspace = step->plain,
    };
    p->x = step->normed;
    p->x_stride = step->normed_stride;
    p->norm = NULL;
    return step->backend->level < BRIM_CUDA_FUSED
               ? brim_cuda_rmsnorm_plain(&norm, step->stream, err)
               : brim_cuda_rmsnorm(&norm, step->stream, err);
}

void brim_cuda_product(struct brim_step *step, const struct brim_matrix *w,
                       const struct brim_cuda_product *p)
{
    if (step->status != BRIM_OK || p->n_row == 0) return;
    assert(p->epilogue != BRIM_W4_SWIGLU || (w->n_part == 1 && w->parts[0].paired));
    assert(p->epilogue != BRIM_W4_ADD_F32 || w->n_part == 1);
    struct brim_cuda_product at = *p;
    if (p->norm && !norms_inside(step, w, p->n_row))
        step->status = normalise(step, &at, w->n_in, &step->error);
    for (int i = 0; i < w->n_part && step->status == BRIM_OK; i++) {
        step->status = part_product(step, &w->parts[i], &at, &step->error);
        at.y = (uint8_t *)at.y + (size_t)w->parts[i].n_out * element(p->epilogue);
    }
}
