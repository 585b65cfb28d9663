/* SPDX-License-Identifier: Apache-2.0
 * Host side of the KDA kernels: what they take, how they are launched. */
#include "cuda/kda/kda.h"

#include "cuda/launch.h"

brim_status brim_kda_cuda_processors(int64_t *n_processor, brim_error *err)
{
    int device, n_sm, major, minor;
    BRIM_TRY(brim_cuda_check(cudaGetDevice(&device), "kda: current device", err));
    BRIM_TRY(brim_cuda_check(cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device),
                             "kda: processors", err));
    BRIM_TRY(
        brim_cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                        "kda: architecture", err));
    BRIM_TRY(
        brim_cuda_check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
                        "kda: architecture", err));
    BRIM_REQUIRE(
        err, major == 9 && minor == 0, BRIM_E_ARCH,
        "kda: CUDA device %d has compute capability %d.%d; this build holds machine code for 9.0 "
        "(sm_90a) only",
        device, major, minor);
    *n_processor = n_sm;
    return BRIM_OK;
}

brim_status brim_kda_cuda_supported(const brim_kda_args *args, enum brim_kda_route route,
                                    brim_error *err)
{
    (void)args;
    return brim_fail(err, BRIM_E_UNSUPPORTED, "kda: route %s is not in this build",
                     brim_kda_routes[route].name);
}

brim_status brim_kda_cuda_launch(const brim_kda_args *args, enum brim_kda_route route,
                                 brim_error *err)
{
    return brim_kda_cuda_supported(args, route, err);
}

brim_status brim_kda_cuda_workspace_init(void *workspace, size_t n_bytes, void *stream,
                                         brim_error *err)
{
    return brim_cuda_check(cudaMemsetAsync(workspace, 0, n_bytes, (cudaStream_t)stream),
                           "kda: preparing the workspace", err);
}
