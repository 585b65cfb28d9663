/* SPDX-License-Identifier: Apache-2.0
 * Checked calls and device memory, for the programs that are C++. */
#ifndef BRIM_TESTS_DEVICE_ARRAY_CUH
#define BRIM_TESTS_DEVICE_ARRAY_CUH

#include <stdio.h>
#include <stdlib.h>
#include <vector>

#include "cuda/device.h"
#include "cuda/launch.h"

#define CHECK(call)                                             \
    do {                                                        \
        brim_error err_ = {};                                   \
        if (brim_cuda_check((call), #call, &err_) != BRIM_OK) { \
            fprintf(stderr, "%s\n", err_.text);                 \
            exit(1);                                            \
        }                                                       \
    } while (0)

template <typename T> struct device_array {
    T *ptr = nullptr;
    size_t n = 0;
    explicit device_array(size_t count) : n(count)
    {
        CHECK(cudaMalloc(&ptr, (count ? count : 1) * sizeof(T)));
    }
    explicit device_array(const std::vector<T> &v) : device_array(v.size()) { from(v); }
    device_array(const device_array &) = delete;
    ~device_array() { cudaFree(ptr); }
    void from(const std::vector<T> &v)
    {
        CHECK(cudaMemcpy(ptr, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    }
    std::vector<T> to_host() const
    {
        std::vector<T> v(n);
        CHECK(cudaMemcpy(v.data(), ptr, n * sizeof(T), cudaMemcpyDeviceToHost));
        return v;
    }
    void fill(int byte) { CHECK(cudaMemset(ptr, byte, n * sizeof(T))); }
};

#endif
