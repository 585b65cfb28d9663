/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/tensormap.h"

#include <atomic>

#include "cuda/launch.h"

/* The encoder lives in the driver library, which a build must not link: asked for by name. */
typedef CUresult encode_tiled_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                 const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                 const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

struct box {
    CUtensorMapDataType type;
    int64_t n_row, n_col, stride_bytes; /* columns in elements */
    cuuint32_t rows, cols;
    CUtensorMapSwizzle swizzle;
};

/* Asked for once: launching a product waits for the answer. */
static brim_status find_encoder(encode_tiled_fn **out, brim_error *err)
{
    static std::atomic<encode_tiled_fn *> known;
    *out = known.load(std::memory_order_relaxed);
    if (*out) return BRIM_OK;
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    BRIM_TRY(brim_cuda_check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry,
                                                              12000, cudaEnableDefault, &found),
                             "finding cuTensorMapEncodeTiled", err));
    BRIM_REQUIRE(err, found == cudaDriverEntryPointSuccess, BRIM_E_DRIVER,
                 "the driver has no cuTensorMapEncodeTiled");
    *out = (encode_tiled_fn *)entry;
    known.store(*out, std::memory_order_relaxed);
    return BRIM_OK;
}

static brim_status encode(CUtensorMap *map, const void *base, box b, brim_error *err)
{
    encode_tiled_fn *encoder;
    BRIM_TRY(find_encoder(&encoder, err));
    cuuint64_t size[2] = {(cuuint64_t)b.n_col, (cuuint64_t)b.n_row};
    cuuint64_t stride[1] = {(cuuint64_t)b.stride_bytes};
    cuuint32_t extent[2] = {b.cols, b.rows}, step[2] = {1, 1};
    CUresult code = encoder(map, b.type, 2, (void *)base, size, stride, extent, step,
                            CU_TENSOR_MAP_INTERLEAVE_NONE, b.swizzle,
                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    BRIM_REQUIRE(err, code == CUDA_SUCCESS, BRIM_E_DEVICE,
                 "tensor map of %lld x %lld, stride %lld bytes: driver error %d",
                 (long long)b.n_row, (long long)b.n_col, (long long)b.stride_bytes, (int)code);
    return BRIM_OK;
}

brim_status brim_tensormap_bf16(CUtensorMap *map, const void *base, int64_t n_row, int64_t n_col,
                                int64_t stride, int box_rows, brim_error *err)
{
    box b = {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, n_row, n_col, stride * 2, (cuuint32_t)box_rows, 64,
             CU_TENSOR_MAP_SWIZZLE_128B};
    return encode(map, base, b, err);
}

brim_status brim_tensormap_bf16_narrow(CUtensorMap *map, const void *base, int64_t n_row,
                                       int64_t n_col, int64_t stride, int box_rows, brim_error *err)
{
    box b = {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, n_row, n_col, stride * 2, (cuuint32_t)box_rows, 32,
             CU_TENSOR_MAP_SWIZZLE_64B};
    return encode(map, base, b, err);
}

brim_status brim_tensormap_bytes(CUtensorMap *map, const void *base, int64_t n_row,
                                 int64_t row_bytes, int box_rows, int box_bytes, brim_error *err)
{
    box b = {CU_TENSOR_MAP_DATA_TYPE_UINT64,
             n_row,
             row_bytes / BRIM_TENSORMAP_WORD,
             row_bytes,
             (cuuint32_t)box_rows,
             (cuuint32_t)(box_bytes / BRIM_TENSORMAP_WORD),
             CU_TENSOR_MAP_SWIZZLE_NONE};
    return encode(map, base, b, err);
}
