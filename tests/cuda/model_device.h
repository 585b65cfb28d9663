/* SPDX-License-Identifier: Apache-2.0
 * What the programs for the model's kernels share: random numbers, and those of any type in memory.
 */
#ifndef BRIM_TESTS_MODEL_DEVICE_H
#define BRIM_TESTS_MODEL_DEVICE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/rng.h"
#include "cuda/model/ops.h"
#include "device_array.cuh"
#include "tensor/dtype.h"

/* A launcher that must succeed. */
#define RUN(call)                                                \
    do {                                                         \
        brim_error err = {};                                     \
        if ((call) != BRIM_OK) {                                 \
            fprintf(stderr, "%s failed: %s\n", #call, err.text); \
            exit(1);                                             \
        }                                                        \
    } while (0)

/* Nearly normal, mean 0, standard deviation 1. */
static inline float gaussian(brim_rng *rng)
{
    float sum = 0;
    for (int i = 0; i < 12; i++) sum += brim_rng_uniform(rng);
    return sum - 6;
}

/* n numbers as `dtype` in memory. */
static inline std::vector<uint8_t> narrow(const std::vector<float> &x, brim_dtype dtype)
{
    std::vector<uint8_t> out(x.size() * brim_dtype_bytes(dtype));
    for (size_t i = 0; i < x.size(); i++) {
        uint16_t half =
            dtype == BRIM_DTYPE_F16 ? brim_f16_from_f32(x[i]) : brim_bf16_from_f32(x[i]);
        if (dtype == BRIM_DTYPE_F32)
            memcpy(&out[4 * i], &x[i], 4);
        else
            memcpy(&out[2 * i], &half, 2);
    }
    return out;
}

static inline std::vector<float> widen(const std::vector<uint8_t> &x, brim_dtype dtype)
{
    std::vector<float> out(x.size() / brim_dtype_bytes(dtype));
    brim_dtype_to_f32(dtype, x.data(), out.size(), out.data());
    return out;
}

static inline std::vector<float> randoms(size_t n, brim_rng *rng, float scale)
{
    std::vector<float> x(n);
    for (float &v : x) v = gaussian(rng) * scale;
    return x;
}

#endif
