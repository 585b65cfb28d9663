/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/tensormap.h"

#include "cuda/launch.h"

/* The encoder lives in the driver library, which a build must not link: asked for by name. */
typedef CUresult encode_tiled_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                 const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                 const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

brim_status brim_tensormap_bf16(CUtensorMap *map, const void *base, int64_t n_row, int64_t n_col,
                                int64_t stride, int box_rows, brim_error *err)
{
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    BRIM_TRY(brim_cuda_check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry,
                                                              12000, cudaEnableDefault, &found),
                             "finding cuTensorMapEncodeTiled", err));
    BRIM_REQUIRE(err, found == cudaDriverEntryPointSuccess, BRIM_E_DRIVER,
                 "the driver has no cuTensorMapEncodeTiled");
    cuuint64_t size[2] = {(cuuint64_t)n_col, (cuuint64_t)n_row};
    cuuint64_t stride_bytes[1] = {(cuuint64_t)stride * 2};
    cuuint32_t box[2] = {64, (cuuint32_t)box_rows}, step[2] = {1, 1};
    CUresult code = ((encode_tiled_fn *)entry)(
        map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)base, size, stride_bytes, box, step,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    BRIM_REQUIRE(err, code == CUDA_SUCCESS, BRIM_E_DEVICE,
                 "tensor map of %lld x %lld, stride %lld: driver error %d", (long long)n_row,
                 (long long)n_col, (long long)stride, (int)code);
    return BRIM_OK;
}
