/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/device.h"

#include <stdio.h>

#include "cuda/launch.h"

brim_status brim_cuda_check(cudaError_t code, const char *what, brim_error *err)
{
    switch (code) {
    case cudaSuccess:
        return BRIM_OK;
    case cudaErrorMemoryAllocation:
        return brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of device memory", what);
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
        return brim_fail(err, BRIM_E_DEVICE, "%s: no such CUDA device", what);
    case cudaErrorInsufficientDriver:
        return brim_fail(err, BRIM_E_DRIVER,
                         "%s: the NVIDIA driver is missing or older than CUDA %d.%d needs", what,
                         CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    case cudaErrorNoKernelImageForDevice:
        return brim_fail(err, BRIM_E_ARCH, "%s: this build holds machine code for sm_90a only",
                         what);
    default:
        return brim_fail(err, BRIM_E_DEVICE, "%s: %s: %s", what, cudaGetErrorName(code),
                         cudaGetErrorString(code));
    }
}

brim_status brim_cuda_device_get(int ordinal, struct brim_cuda_device *out, brim_error *err)
{
    int n_device = 0;
    BRIM_TRY(brim_cuda_check(cudaGetDeviceCount(&n_device), "counting CUDA devices", err));
    BRIM_REQUIRE(err, ordinal >= 0 && ordinal < n_device, BRIM_E_DEVICE,
                 "CUDA device %d: this machine has %d", ordinal, n_device);
    cudaDeviceProp prop;
    BRIM_TRY(brim_cuda_check(cudaGetDeviceProperties(&prop, ordinal), "reading the device", err));
    struct brim_cuda_device device = {};
    device.ordinal = ordinal;
    snprintf(device.name, sizeof device.name, "%.63s", prop.name);
    device.cc_major = prop.major;
    device.cc_minor = prop.minor;
    device.n_sm = prop.multiProcessorCount;
    device.l2_bytes = (size_t)prop.l2CacheSize;
    device.smem_block_bytes = prop.sharedMemPerBlockOptin;
    BRIM_TRY(brim_cuda_check(cudaDriverGetVersion(&device.driver_version), "driver version", err));
    BRIM_TRY(
        brim_cuda_check(cudaRuntimeGetVersion(&device.runtime_version), "runtime version", err));
    BRIM_REQUIRE(err, device.driver_version / 1000 >= CUDART_VERSION / 1000, BRIM_E_DRIVER,
                 "CUDA device %d (%s): its driver serves CUDA %d.%d, this build needs %d.x",
                 ordinal, prop.name, device.driver_version / 1000,
                 device.driver_version % 1000 / 10, CUDART_VERSION / 1000);
    BRIM_REQUIRE(err, prop.major == 9 && prop.minor == 0, BRIM_E_ARCH,
                 "CUDA device %d (%s) has compute capability %d.%d; this build holds machine code "
                 "for 9.0 (sm_90a) only",
                 ordinal, prop.name, prop.major, prop.minor);
    BRIM_TRY(brim_cuda_check(cudaSetDevice(ordinal), "choosing the device", err));
    BRIM_TRY(brim_cuda_check(cudaMemGetInfo(&device.free_bytes, &device.total_bytes),
                             "reading device memory", err));
    *out = device;
    return BRIM_OK;
}

brim_status brim_cuda_current_sm(int *n_sm, brim_error *err)
{
    int device, major, minor;
    BRIM_TRY(brim_cuda_check(cudaGetDevice(&device), "current device", err));
    BRIM_TRY(brim_cuda_check(cudaDeviceGetAttribute(n_sm, cudaDevAttrMultiProcessorCount, device),
                             "processors", err));
    BRIM_TRY(
        brim_cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                        "architecture", err));
    BRIM_TRY(
        brim_cuda_check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
                        "architecture", err));
    BRIM_REQUIRE(err, major == 9 && minor == 0, BRIM_E_ARCH,
                 "CUDA device %d has compute capability %d.%d; this build holds machine code for "
                 "9.0 (sm_90a) only",
                 device, major, minor);
    return BRIM_OK;
}

brim_status brim_launch_kernel(const char *name, const void *kernel, struct brim_launch_shape shape,
                               cudaStream_t stream, const void *params, brim_error *err)
{
    if (shape.load) {
        cudaFuncAttributes found; /* asking for them loads it */
        return brim_cuda_check(cudaFuncGetAttributes(&found, kernel), name, err);
    }
    if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return BRIM_OK;
    /* Static shared memory counts too: asked for well before the 48 KB that need no asking. */
    if (shape.smem_bytes > 32 * 1024)
        BRIM_TRY(brim_cuda_check(cudaFuncSetAttribute(kernel,
                                                      cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                      (int)shape.smem_bytes),
                                 name, err));
    if (shape.cluster > 8)
        BRIM_TRY(brim_cuda_check(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), name,
            err));
    cudaLaunchAttribute attrs[2];
    cudaLaunchConfig_t config = {};
    config.gridDim = shape.grid;
    config.blockDim = shape.block;
    config.dynamicSmemBytes = shape.smem_bytes;
    config.stream = stream;
    config.attrs = attrs;
    if (shape.cluster > 1) {
        cudaLaunchAttribute *attr = &attrs[config.numAttrs++];
        attr->id = cudaLaunchAttributeClusterDimension;
        attr->val.clusterDim.x = shape.cluster;
        attr->val.clusterDim.y = attr->val.clusterDim.z = 1;
    }
    if (shape.pdl) {
        cudaLaunchAttribute *attr = &attrs[config.numAttrs++];
        attr->id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attr->val.programmaticStreamSerializationAllowed = 1;
    }
    void *args[] = {(void *)params};
    return brim_cuda_check(cudaLaunchKernelExC(&config, kernel, args), name, err);
}
