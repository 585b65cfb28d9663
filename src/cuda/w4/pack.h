/* SPDX-License-Identifier: Apache-2.0
 * The order in which the Hopper kernel reads 4-bit weights: each thread of a warpgroup loads
 * exactly the fragments it will multiply, 16 bytes at a time, straight from memory into registers.
 *
 * A slab is 64 outputs (the rows of wgmma), a unit is 128 inputs of a slab. Codes of a unit, 4096
 * bytes: [half 2][warp 4][lane 32] of 16 bytes, so that a warp reads 512 consecutive bytes. Word s
 * of half h belongs to k-step 4 h + s (16 inputs): with g = lane / 4, c = lane % 4 nibble i (i < 4)
 * and nibble i + 4 are the low and high bf16 of fragment register i: i = 0: output g, inputs 2c, 2c
 * + 1        i = 1: output g + 8, the same inputs i = 2: output g, inputs 2c + 8, 2c + 9    i = 3:
 * output g + 8, the same inputs of warp w's outputs 16 w .. 16 w + 15. Extracting register i is one
 * shift, one mask. Parameters of a unit: [group in unit][warp 4][g 8] of {scale g, scale g + 8,
 * bias g, bias g + 8} in the checkpoint's own type: one 8- or 16-byte load a lane. Outputs and
 * inputs beyond the matrix have code, scale and bias zero. */
#ifndef BRIM_CUDA_W4_PACK_H
#define BRIM_CUDA_W4_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/dtype.h"

#ifdef __CUDACC__
#define BRIM_HOST_DEVICE __host__ __device__ static inline
#else
#define BRIM_HOST_DEVICE static inline
#endif

enum { BRIM_W4_SLAB = 64, BRIM_W4_UNIT = 128, BRIM_W4_UNIT_BYTES = 4096 };

/* Where the code of (output, input) of one unit lies: word index in the unit and nibble. */
BRIM_HOST_DEVICE void brim_w4_pack_index(int out, int in, int *word, int *nibble)
{
    int warp = out / 16, r = out % 16, step = in / 16, k = in % 16;
    int lane = r % 8 * 4 + k % 8 / 2, reg = k / 8 * 2 + r / 8;
    *word = ((step / 4 * 4 + warp) * 32 + lane) * 4 + step % 4;
    *nibble = reg + (k & 1) * 4;
}

/* Element index, in the unit's parameters, of the scale of output `out` in group `group` of the
 * unit; its bias is two elements later. */
BRIM_HOST_DEVICE int brim_w4_pack_param(int out, int group)
{
    int warp = out / 16, r = out % 16;
    return ((group * 4 + warp) * 8 + r % 8) * 4 + r / 8;
}

struct brim_cuda_w4_packed {
    int64_t n_out, n_in;
    int64_t n_slab, n_unit; /* ceil(n_out / 64), ceil(n_in / 128) */
    int group;
    enum brim_dtype param_dtype;
    void *codes;  /* device, n_slab * n_unit * 4096 bytes, unit after unit of a slab */
    void *params; /* device, n_slab * n_unit * (128 / group) * 128 elements */
};

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the two arrays. */
size_t brim_cuda_w4_packed_codes_bytes(int64_t n_out, int64_t n_in);
size_t brim_cuda_w4_packed_params_bytes(int64_t n_out, int64_t n_in, int group,
                                        enum brim_dtype param_dtype);

struct brim_cuda_w4;
/* Repack codes, scales and biases of `args` (device memory, checkpoint order) into the arrays of
 * `out`, whose pointers the caller has set; fills the rest of *out. Stream-ordered. */
brim_status brim_cuda_w4_pack(const struct brim_cuda_w4 *args, struct brim_cuda_w4_packed *out,
                              void *stream, brim_error *err);

#ifdef __cplusplus
}
#endif
#endif
