/* SPDX-License-Identifier: Apache-2.0
 * A packed W4 matrix to time products with: random codes, small parameters, groups of 128, no
 * reference. */
#ifndef BRIM_TESTS_W4_MATRIX_CUH
#define BRIM_TESTS_W4_MATRIX_CUH

#include <algorithm>
#include <string.h>

#include "base/rng.h"
#include "cuda/w4/pack.h"
#include "device_array.cuh"

struct matrix {
    device_array<uint8_t> codes, params;
    brim_cuda_w4_packed packed;
    matrix(int64_t in, int64_t out)
        : codes(brim_cuda_w4_packed_codes_bytes(out, in)),
          params(brim_cuda_w4_packed_params_bytes(out, in, 128, BRIM_DTYPE_BF16))
    {
        static std::vector<uint8_t> hc(16 << 20), hp(2 << 20);
        static bool ready;
        if (!ready) {
            brim_rng rng;
            brim_rng_seed(&rng, 1);
            for (size_t i = 0; i < hc.size(); i += 4) {
                uint32_t v = brim_rng_u32(&rng);
                memcpy(&hc[i], &v, 4);
            }
            for (size_t i = 0; i < hp.size(); i += 2) {
                uint16_t v = brim_bf16_from_f32((brim_rng_uniform(&rng) - 0.5f) * 0.02f);
                memcpy(&hp[i], &v, 2);
            }
            ready = true;
        }
        for (size_t i = 0; i < codes.n; i += hc.size())
            CHECK(cudaMemcpy(codes.ptr + i, hc.data(), std::min(hc.size(), codes.n - i),
                             cudaMemcpyHostToDevice));
        for (size_t i = 0; i < params.n; i += hp.size())
            CHECK(cudaMemcpy(params.ptr + i, hp.data(), std::min(hp.size(), params.n - i),
                             cudaMemcpyHostToDevice));
        packed = {out,       in,        (out + 63) / 64, (in + 127) / 128, 128, BRIM_DTYPE_BF16,
                  codes.ptr, params.ptr};
    }
    /* Outputs out0 .. out0 + out - 1, multiples of 64. */
    brim_cuda_w4_packed rows(int64_t out0, int64_t out) const
    {
        brim_cuda_w4_packed r = packed;
        int64_t unit = out0 / 64 * packed.n_unit;
        r.n_out = out, r.n_slab = out / 64;
        r.codes = codes.ptr + unit * 4096, r.params = params.ptr + unit * 256;
        return r;
    }
};

#endif
