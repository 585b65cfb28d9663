/* SPDX-License-Identifier: Apache-2.0
 * A call of the runtime that must succeed and memory of the device, in the programs for a GPU. */
#ifndef BRIM_TESTS_CUDA_OK_H
#define BRIM_TESTS_CUDA_OK_H

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#define CUDA_OK(call)                                                                        \
    do {                                                                                     \
        cudaError_t code_ = (call);                                                          \
        if (code_ != cudaSuccess) {                                                          \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(code_)); \
            exit(2);                                                                         \
        }                                                                                    \
    } while (0)

static inline void *device_alloc(size_t n_bytes)
{
    void *block;
    CUDA_OK(cudaMalloc(&block, n_bytes));
    return block;
}

#endif
