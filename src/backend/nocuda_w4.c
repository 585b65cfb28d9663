/* SPDX-License-Identifier: Apache-2.0
 * Stands in for src/cuda/w4 in a build without nvcc. */
#include "cuda/device.h"
#include "cuda/w4/cluster.h"
#include "cuda/w4/stream.h"
#include "cuda/w4/w4.h"

#ifndef BRIM_HAVE_CUDA
static brim_status no_w4(brim_error *err)
{
    return brim_fail(err, BRIM_E_DEVICE, "w4: this build of brim has no CUDA kernels");
}

brim_status brim_cuda_current_sm(int *n_sm, brim_error *err)
{
    *n_sm = 0;
    return no_w4(err);
}

brim_status brim_cuda_w4_matvec(const struct brim_cuda_w4 *args, void *stream, brim_error *err)
{
    (void)args, (void)stream;
    return no_w4(err);
}

brim_status brim_cuda_w4_naive(const struct brim_cuda_w4 *args, void *stream, brim_error *err)
{
    (void)args, (void)stream;
    return no_w4(err);
}

size_t brim_cuda_w4_workspace_bytes(const brim_split_plan *plan, int64_t n_row, int64_t n_out,
                                    enum brim_w4_planes planes)
{
    (void)plan, (void)n_row, (void)n_out, (void)planes;
    return 0;
}

brim_status brim_cuda_w4_tiled(const struct brim_cuda_w4 *args, const brim_split_plan *plan,
                               enum brim_w4_planes planes, void *workspace, void *stream,
                               brim_error *err)
{
    (void)args, (void)plan, (void)planes, (void)workspace, (void)stream;
    return no_w4(err);
}

brim_status brim_cuda_w4_cluster(const struct brim_cuda_w4 *args,
                                 const struct brim_cuda_w4_packed *w,
                                 const struct brim_w4_cluster_plan *plan, int pdl, void *stream,
                                 brim_error *err)
{
    (void)args, (void)w, (void)plan, (void)pdl, (void)stream;
    return no_w4(err);
}

brim_status brim_cuda_w4_stream(const struct brim_cuda_w4 *args,
                                const struct brim_cuda_w4_packed *w,
                                const struct brim_w4_stream_plan *plan, int pdl, void *stream,
                                brim_error *err)
{
    (void)args, (void)w, (void)plan, (void)pdl, (void)stream;
    return no_w4(err);
}

size_t brim_cuda_w4_packed_codes_bytes(int64_t n_out, int64_t n_in)
{
    (void)n_out, (void)n_in;
    return 0;
}

size_t brim_cuda_w4_packed_params_bytes(int64_t n_out, int64_t n_in, int group,
                                        enum brim_dtype param_dtype)
{
    (void)n_out, (void)n_in, (void)group, (void)param_dtype;
    return 0;
}

brim_status brim_cuda_w4_pack(const struct brim_cuda_w4 *args, struct brim_cuda_w4_packed *out,
                              void *stream, brim_error *err)
{
    (void)args, (void)out, (void)stream;
    return no_w4(err);
}
#endif
