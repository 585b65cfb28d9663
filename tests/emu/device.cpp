/* SPDX-License-Identifier: Apache-2.0
 * The device as the runtime reports it, the runtime's errors, and the counts of emu_device.h. */
#include "emu_count.h"

struct emu_device emu_device_default(void)
{
    struct emu_device d = {1, 9, 0, CUDART_VERSION, (size_t)8 << 30, 0, 0};
    if (const char *text = getenv("BRIM_EMU_DEVICES")) d.n_device = atoi(text);
    if (const char *text = getenv("BRIM_EMU_CC")) sscanf(text, "%d.%d", &d.cc_major, &d.cc_minor);
    if (const char *text = getenv("BRIM_EMU_DRIVER")) d.driver_version = atoi(text);
    if (const char *text = getenv("BRIM_EMU_MEMORY")) d.total_bytes = strtoull(text, nullptr, 10);
    if (const char *text = getenv("BRIM_EMU_CODE")) d.code_bytes = strtoull(text, nullptr, 10);
    return d;
}

struct emu_device emu_device = emu_device_default();

/* ---- counts ---- */

static std::mutex count_lock;
static struct emu_calls calls;
static int64_t allocations_left = -1;

void emu_count(int64_t emu_calls::*what, int64_t n)
{
    std::lock_guard<std::mutex> hold(count_lock);
    calls.*what += n;
}

void emu_count_upload(size_t n_bytes)
{
    std::lock_guard<std::mutex> hold(count_lock);
    calls.upload_bytes += n_bytes;
}

void emu_count_kernel(const char *name, dim3 grid, dim3 block)
{
    std::lock_guard<std::mutex> hold(count_lock);
    uint64_t h = calls.kernels;
    auto mix = [&](uint64_t v) { h = (h ^ v) * 0x100000001B3u; };
    for (const char *c = name; *c; c++) mix((unsigned char)*c);
    for (unsigned v : {grid.x, grid.y, grid.z, block.x, block.y, block.z}) mix(v);
    calls.kernels = h;
}

bool emu_allocation_fails(void)
{
    std::lock_guard<std::mutex> hold(count_lock);
    return allocations_left >= 0 && allocations_left-- == 0;
}

extern "C" void emu_fail_allocation_after(int64_t n)
{
    std::lock_guard<std::mutex> hold(count_lock);
    allocations_left = n;
}

extern "C" struct emu_calls emu_calls(void)
{
    std::lock_guard<std::mutex> hold(count_lock);
    return calls;
}

extern "C" void emu_kernels_restart(void)
{
    std::lock_guard<std::mutex> hold(count_lock);
    calls.kernels = 0;
}

/* ---- errors ---- */

static thread_local cudaError_t last_error;

cudaError_t emu_fail(cudaError_t code)
{
    if (code != cudaSuccess) last_error = code;
    return code;
}

extern "C" const char *cudaGetErrorName(cudaError_t code)
{
    switch (code) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
        return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice:
        return "cudaErrorInvalidDevice";
    case cudaErrorInvalidDeviceFunction:
        return "cudaErrorInvalidDeviceFunction";
    case cudaErrorInvalidResourceHandle:
        return "cudaErrorInvalidResourceHandle";
    case cudaErrorNoDevice:
        return "cudaErrorNoDevice";
    case cudaErrorInsufficientDriver:
        return "cudaErrorInsufficientDriver";
    case cudaErrorNoKernelImageForDevice:
        return "cudaErrorNoKernelImageForDevice";
    case cudaErrorNotReady:
        return "cudaErrorNotReady";
    case cudaErrorStreamCaptureUnsupported:
        return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
        return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorIllegalState:
        return "cudaErrorIllegalState";
    }
    return "unknown";
}

extern "C" const char *cudaGetErrorString(cudaError_t code)
{
    return cudaGetErrorName(code);
}

extern "C" cudaError_t cudaGetLastError(void)
{
    cudaError_t code = last_error;
    last_error = cudaSuccess;
    return code;
}

extern "C" cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

/* ---- the device: an H200's figures but for its memory ---- */

/* A runtime of CUDA 13 works on any driver of 13; on an older one every call says so. */
static cudaError_t driver_error(void)
{
    return emu_device.driver_version / 1000 < CUDART_VERSION / 1000 ? cudaErrorInsufficientDriver
                                                                    : cudaSuccess;
}

static bool is_device(int device)
{
    return device >= 0 && device < emu_device.n_device;
}

extern "C" cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 0;
    if (cudaError_t code = driver_error()) return emu_fail(code);
    if (emu_device.n_device <= 0) return emu_fail(cudaErrorNoDevice);
    *n = emu_device.n_device;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    if (cudaError_t code = driver_error()) return emu_fail(code);
    return emu_fail(emu_device.n_device > 0 ? cudaSuccess : cudaErrorNoDevice);
}

extern "C" cudaError_t cudaSetDevice(int device)
{
    return emu_fail(is_device(device) ? cudaSuccess : cudaErrorInvalidDevice);
}

extern "C" cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    if (!is_device(device)) return emu_fail(cudaErrorInvalidDevice);
    memset(prop, 0, sizeof *prop);
    snprintf(prop->name, sizeof prop->name, "emulated H200");
    prop->major = emu_device.cc_major;
    prop->minor = emu_device.cc_minor;
    prop->multiProcessorCount = 132;
    prop->l2CacheSize = 60 << 20;
    prop->totalGlobalMem = emu_device.total_bytes;
    prop->sharedMemPerBlockOptin = SMEM_OPTIN_BYTES;
    prop->sharedMemPerMultiprocessor = SMEM_OPTIN_BYTES + 1024;
    return cudaSuccess;
}

extern "C" cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int device)
{
    if (!is_device(device)) return emu_fail(cudaErrorInvalidDevice);
    switch (which) {
    case cudaDevAttrMultiProcessorCount:
        *value = 132;
        return cudaSuccess;
    case cudaDevAttrL2CacheSize:
        *value = 60 << 20;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *value = emu_device.cc_major;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *value = emu_device.cc_minor;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = SMEM_OPTIN_BYTES;
        return cudaSuccess;
    }
    return emu_fail(cudaErrorInvalidValue);
}

extern "C" cudaError_t cudaDriverGetVersion(int *version)
{
    *version = emu_device.driver_version;
    return cudaSuccess;
}

extern "C" cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}
