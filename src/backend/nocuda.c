/* SPDX-License-Identifier: Apache-2.0
 * Stands in for src/cuda in a build without nvcc. */
#include "cuda/device.h"
#include "cuda/kda/kda.h"
#include "cuda/w4/gemv.h"

#ifndef BRIM_HAVE_CUDA
brim_status brim_cuda_device_get(int ordinal, struct brim_cuda_device *out, brim_error *err)
{
    (void)out;
    return brim_fail(err, BRIM_E_DEVICE, "CUDA device %d: this build of brim has no CUDA kernels",
                     ordinal);
}

static brim_status no_kda(brim_error *err)
{
    return brim_fail(err, BRIM_E_DEVICE, "kda: this build of brim has no CUDA kernels");
}

brim_status brim_kda_cuda_processors(int64_t *n_processor, brim_error *err)
{
    (void)n_processor;
    return no_kda(err);
}

brim_status brim_kda_cuda_supported(const brim_kda_args *args, enum brim_kda_route route,
                                    brim_error *err)
{
    (void)args;
    (void)route;
    return no_kda(err);
}

brim_status brim_kda_cuda_load(const brim_kda_args *args, enum brim_kda_route route,
                               const struct brim_kda_split_plan *split, brim_error *err)
{
    (void)split;
    (void)args;
    (void)route;
    return no_kda(err);
}

brim_status brim_kda_cuda_launch(const brim_kda_args *args, enum brim_kda_route route,
                                 const struct brim_kda_split_plan *split, brim_error *err)
{
    (void)split;
    (void)args;
    (void)route;
    return no_kda(err);
}

brim_status brim_kda_cuda_workspace_init(void *workspace, size_t n_bytes, void *stream,
                                         brim_error *err)
{
    (void)workspace;
    (void)n_bytes;
    (void)stream;
    return no_kda(err);
}

brim_status brim_cuda_w4_gemv(const struct brim_cuda_w4 *args, const struct brim_cuda_w4_packed *w,
                              const struct brim_cuda_w4_norm *norm,
                              const struct brim_w4_gemv_plan *plan, int pdl, void *stream,
                              brim_error *err)
{
    (void)args;
    (void)w;
    (void)norm;
    (void)plan;
    (void)pdl;
    (void)stream;
    return brim_fail(err, BRIM_E_DEVICE, "w4: this build of brim has no CUDA kernels");
}
#endif
