/* SPDX-License-Identifier: Apache-2.0
 * The CUDA runtime on host memory. An allocation is a mapping of its own that ends, to within 16
 * bytes, at a page nobody may touch, is filled with 0xFF, which is NaN in every format, and is
 * unmapped when it is freed: what reads or writes beyond it, or too late, faults, and the fault is
 * told with the allocation nearby. Work is done at the call unless its stream is captured. */
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"
#include "cuda/launch.h"
#include "cuda_runtime.h"
#include "emu_count.h"
#include "emu_tensormap.h"

enum : size_t {
    PAGE = 4096,
    HOST_BYTES = (size_t)8 << 30, /* the largest page-locked block */
    SMEM_FREE_BYTES = 48 * 1024   /* dynamic shared memory that need not be asked for */
};

/* ---- memory ------------------------------------------------------------------------------------
 */

struct allocation {
    char *map;
    size_t map_bytes, n_bytes;
    bool host;
};

static std::mutex memory_lock;
static std::map<char *, allocation> &allocations = *new std::map<char *, allocation>;
static size_t used_bytes;

/* The allocation that holds the address, or the nearest before it; nullptr if there is none. */
static const std::pair<char *const, allocation> *allocation_before(const void *address)
{
    auto after = allocations.upper_bound((char *)address);
    return after == allocations.begin() ? nullptr : &*std::prev(after);
}

static void on_fault(int signal, siginfo_t *info, void *)
{
    const auto *near = allocation_before(info->si_addr);
    char where[160] = "";
    if (near) {
        ptrdiff_t at = (char *)info->si_addr - near->first;
        if (at < (ptrdiff_t)(near->second.map_bytes + (16 << 20)))
            snprintf(where, sizeof where, ", byte %td of an allocation of %zu", at,
                     near->second.n_bytes);
    }
    emu_die("signal %d at address %p%s", signal, info->si_addr, where);
}

static void catch_faults(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESETHAND;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
}

static cudaError_t capture_forbids(void);

static cudaError_t allocate(void **out, size_t n_bytes, bool host)
{
    static std::once_flag once;
    std::call_once(once, catch_faults);
    *out = nullptr;
    if (n_bytes == 0) return cudaSuccess;
    emu_count(host ? &emu_calls::host_alloc : &emu_calls::alloc);
    if (emu_allocation_fails()) return emu_fail(cudaErrorMemoryAllocation);
    std::lock_guard<std::mutex> hold(memory_lock);
    if (n_bytes > HOST_BYTES || (!host && used_bytes + n_bytes > emu_device.total_bytes))
        return emu_fail(cudaErrorMemoryAllocation);
    size_t whole = (n_bytes + 15) & ~(size_t)15, data = (whole + PAGE - 1) & ~(PAGE - 1);
    size_t map_bytes = data + 2 * PAGE;
    char *map = (char *)mmap(nullptr, map_bytes, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return emu_fail(cudaErrorMemoryAllocation);
    if (mprotect(map + PAGE, data, PROT_READ | PROT_WRITE)) {
        munmap(map, map_bytes);
        return emu_fail(cudaErrorMemoryAllocation);
    }
    char *at = map + PAGE + data - whole;
    memset(map + PAGE, 0xFF, data);
    allocations[at] = allocation{map, map_bytes, n_bytes, host};
    if (!host) used_bytes += n_bytes;
    *out = at;
    return cudaSuccess;
}

static cudaError_t release(void *memory, bool host)
{
    if (!memory) return cudaSuccess;
    emu_count(host ? &emu_calls::host_free : &emu_calls::free);
    std::lock_guard<std::mutex> hold(memory_lock);
    auto found = allocations.find((char *)memory);
    if (found == allocations.end() || found->second.host != host)
        return emu_fail(cudaErrorInvalidValue);
    munmap(found->second.map, found->second.map_bytes);
    if (!host) used_bytes -= found->second.n_bytes;
    allocations.erase(found);
    return cudaSuccess;
}

extern "C" cudaError_t cudaMalloc(void **out, size_t n_bytes)
{
    if (cudaError_t code = capture_forbids()) return code;
    return allocate(out, n_bytes, false);
}

extern "C" cudaError_t cudaMallocAsync(void **out, size_t n_bytes, cudaStream_t)
{
    return cudaMalloc(out, n_bytes);
}

extern "C" cudaError_t cudaFree(void *memory)
{
    if (cudaError_t code = capture_forbids()) return code;
    return release(memory, false);
}

extern "C" cudaError_t cudaFreeAsync(void *memory, cudaStream_t)
{
    return cudaFree(memory);
}

extern "C" cudaError_t cudaHostAlloc(void **out, size_t n_bytes, unsigned)
{
    return allocate(out, n_bytes, true);
}

extern "C" cudaError_t cudaMallocHost(void **out, size_t n_bytes)
{
    return allocate(out, n_bytes, true);
}

extern "C" cudaError_t cudaFreeHost(void *memory)
{
    return release(memory, true);
}

extern "C" cudaError_t cudaMemGetInfo(size_t *n_free, size_t *n_total)
{
    std::lock_guard<std::mutex> hold(memory_lock);
    *n_free = emu_device.total_bytes - used_bytes;
    *n_total = emu_device.total_bytes;
    return cudaSuccess;
}

extern "C" size_t emu_used_bytes(void)
{
    std::lock_guard<std::mutex> hold(memory_lock);
    return used_bytes;
}

/* Whether n_bytes from there on may be what the caller says: device memory lies whole in one
 * allocation, host memory in none of the device's. */
static bool range_is(const void *from, size_t n_bytes, bool device)
{
    std::lock_guard<std::mutex> hold(memory_lock);
    const auto *near = allocation_before(from);
    bool within = near && (char *)from < near->second.map + near->second.map_bytes;
    if (!within) return !device;
    if ((size_t)((char *)from - near->first) + n_bytes > near->second.n_bytes) return false;
    return device || near->second.host;
}

static bool copy_allowed(const void *to, const void *from, size_t n_bytes, enum cudaMemcpyKind kind)
{
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind == cudaMemcpyDefault)
        return (range_is(to, n_bytes, true) || range_is(to, n_bytes, false)) &&
               (range_is(from, n_bytes, true) || range_is(from, n_bytes, false));
    return range_is(to, n_bytes, to_device) && range_is(from, n_bytes, from_device);
}

/* ---- streams, captures, graphs ------------------------------------------------------------------
 */

struct CUgraphNode_st {
    enum cudaGraphNodeType type;
    struct cudaKernelNodeParams params;
    std::function<void()> work;
};

struct CUgraph_st {
    std::vector<std::shared_ptr<CUgraphNode_st>> nodes;
};

struct CUgraphExec_st {
    std::vector<std::shared_ptr<CUgraphNode_st>> nodes;
};

struct CUstream_st {
    CUgraph_st *capture; /* nullptr: not captured */
    enum cudaStreamCaptureMode mode;
    bool broken;
};

/* Captures that this thread has begun and that forbid what might wait for the device. */
static thread_local std::vector<cudaStream_t> strict_captures;

static cudaError_t capture_forbids(void)
{
    if (strict_captures.empty()) return cudaSuccess;
    for (cudaStream_t s : strict_captures) s->broken = true;
    return emu_fail(cudaErrorStreamCaptureUnsupported);
}

static bool is_captured(cudaStream_t stream)
{
    return stream && stream->capture;
}

/* Does the work, or writes it down. */
static cudaError_t submit(cudaStream_t stream, enum cudaGraphNodeType type,
                          const cudaKernelNodeParams *params, std::function<void()> work)
{
    if (is_captured(stream)) {
        if (stream->broken) return emu_fail(cudaErrorStreamCaptureInvalidated);
        auto node = std::make_shared<CUgraphNode_st>();
        node->type = type;
        if (params) node->params = *params;
        node->work = std::move(work);
        stream->capture->nodes.push_back(node);
        return cudaSuccess;
    }
    if (!stream)
        if (cudaError_t code = capture_forbids()) return code;
    emu_count(type == cudaGraphNodeTypeKernel   ? &emu_calls::launch
              : type == cudaGraphNodeTypeMemcpy ? &emu_calls::copy
                                                : &emu_calls::fill);
    work();
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned)
{
    emu_count(&emu_calls::create);
    *out = new CUstream_st();
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return cudaStreamCreateWithFlags(out, cudaStreamDefault);
}

extern "C" cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    if (!stream) return emu_fail(cudaErrorInvalidResourceHandle);
    if (stream->capture) {
        cudaGraph_t graph;
        if (cudaStreamEndCapture(stream, &graph) == cudaSuccess) cudaGraphDestroy(graph);
    }
    delete stream;
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    emu_count(&emu_calls::wait);
    if (is_captured(stream)) {
        stream->broken = true;
        return emu_fail(cudaErrorStreamCaptureUnsupported);
    }
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    if (!is_captured(stream)) return cudaSuccess;
    stream->broken = true;
    return emu_fail(cudaErrorStreamCaptureUnsupported);
}

extern "C" cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned)
{
    return cudaSuccess;
}

extern "C" cudaError_t cudaDeviceSynchronize(void)
{
    emu_count(&emu_calls::wait);
    return capture_forbids();
}

extern "C" cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    emu_count(&emu_calls::create);
    if (!stream) return emu_fail(cudaErrorStreamCaptureUnsupported);
    if (stream->capture) return emu_fail(cudaErrorIllegalState);
    stream->capture = new CUgraph_st();
    stream->mode = mode;
    stream->broken = false;
    if (mode != cudaStreamCaptureModeRelaxed) strict_captures.push_back(stream);
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    *out = nullptr;
    if (!is_captured(stream)) return emu_fail(cudaErrorIllegalState);
    auto found = std::find(strict_captures.begin(), strict_captures.end(), stream);
    if (found != strict_captures.end()) strict_captures.erase(found);
    CUgraph_st *graph = stream->capture;
    stream->capture = nullptr;
    if (stream->broken) {
        delete graph;
        return emu_fail(cudaErrorStreamCaptureInvalidated);
    }
    *out = graph;
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                                enum cudaStreamCaptureStatus *status,
                                                unsigned long long *id, cudaGraph_t *graph)
{
    *status = !is_captured(stream) ? cudaStreamCaptureStatusNone
              : stream->broken     ? cudaStreamCaptureStatusInvalidated
                                   : cudaStreamCaptureStatusActive;
    if (id) *id = (uintptr_t)stream;
    if (graph) *graph = stream ? stream->capture : nullptr;
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                             enum cudaStreamCaptureStatus *status)
{
    return cudaStreamGetCaptureInfo(stream, status, nullptr, nullptr);
}

extern "C" cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
    size_t n_node = graph->nodes.size();
    if (nodes)
        for (size_t i = 0; i < n_node && i < *n; i++) nodes[i] = graph->nodes[i].get();
    *n = nodes && *n < n_node ? *n : n_node;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type)
{
    *type = node->type;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node,
                                                    struct cudaKernelNodeParams *params)
{
    if (node->type != cudaGraphNodeTypeKernel) return emu_fail(cudaErrorInvalidValue);
    *params = node->params;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                            unsigned long long)
{
    emu_count(&emu_calls::create);
    *out = new CUgraphExec_st{graph->nodes};
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
    if (is_captured(stream)) return emu_fail(cudaErrorStreamCaptureUnsupported);
    emu_count(&emu_calls::graph_launch);
    for (const auto &node : graph->nodes) {
        if (node->type == cudaGraphNodeTypeKernel) emu_count(&emu_calls::graph_kernel);
        node->work();
    }
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
    delete graph;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

/* ---- copies and fills --------------------------------------------------------------------------
 */

static cudaError_t copy_lines(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t line_bytes, size_t n_line, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    if (line_bytes == 0 || n_line == 0) return cudaSuccess;
    if (line_bytes > to_pitch || line_bytes > from_pitch) return emu_fail(cudaErrorInvalidValue);
    for (size_t i = 0; i < n_line; i++)
        if (!copy_allowed((char *)to + i * to_pitch, (const char *)from + i * from_pitch,
                          line_bytes, kind))
            return emu_fail(cudaErrorInvalidValue);
    if (!is_captured(stream) && !range_is(to, line_bytes, false) &&
        range_is(from, line_bytes, false))
        emu_count_upload(line_bytes * n_line);
    return submit(stream, cudaGraphNodeTypeMemcpy, nullptr, [=] {
        for (size_t i = 0; i < n_line; i++)
            memmove((char *)to + i * to_pitch, (const char *)from + i * from_pitch, line_bytes);
    });
}

static cudaError_t fill_lines(void *to, size_t pitch, int byte, size_t line_bytes, size_t n_line,
                              cudaStream_t stream)
{
    if (line_bytes == 0 || n_line == 0) return cudaSuccess;
    if (line_bytes > pitch) return emu_fail(cudaErrorInvalidValue);
    for (size_t i = 0; i < n_line; i++)
        if (!range_is((char *)to + i * pitch, line_bytes, true))
            return emu_fail(cudaErrorInvalidValue);
    return submit(stream, cudaGraphNodeTypeMemset, nullptr, [=] {
        for (size_t i = 0; i < n_line; i++) memset((char *)to + i * pitch, byte, line_bytes);
    });
}

extern "C" cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n_bytes,
                                       enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return copy_lines(to, n_bytes, from, n_bytes, n_bytes, 1, kind, stream);
}

extern "C" cudaError_t cudaMemcpy(void *to, const void *from, size_t n_bytes,
                                  enum cudaMemcpyKind kind)
{
    return cudaMemcpyAsync(to, from, n_bytes, kind, nullptr);
}

extern "C" cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from,
                                         size_t from_pitch, size_t line_bytes, size_t n_line,
                                         enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return copy_lines(to, to_pitch, from, from_pitch, line_bytes, n_line, kind, stream);
}

extern "C" cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                                    size_t line_bytes, size_t n_line, enum cudaMemcpyKind kind)
{
    return copy_lines(to, to_pitch, from, from_pitch, line_bytes, n_line, kind, nullptr);
}

extern "C" cudaError_t cudaMemsetAsync(void *to, int byte, size_t n_bytes, cudaStream_t stream)
{
    return fill_lines(to, n_bytes, byte, n_bytes, 1, stream);
}

extern "C" cudaError_t cudaMemset(void *to, int byte, size_t n_bytes)
{
    return cudaMemsetAsync(to, byte, n_bytes, nullptr);
}

extern "C" cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int byte, size_t line_bytes,
                                         size_t n_line, cudaStream_t stream)
{
    return fill_lines(to, pitch, byte, line_bytes, n_line, stream);
}

extern "C" cudaError_t cudaMemset2D(void *to, size_t pitch, int byte, size_t line_bytes,
                                    size_t n_line)
{
    return fill_lines(to, pitch, byte, line_bytes, n_line, nullptr);
}

/* ---- events -------------------------------------------------------------------------------------
 */

struct CUevent_st {
    struct timespec at;
    bool recorded, timed;
};

extern "C" cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    emu_count(&emu_calls::create);
    *out = new CUevent_st();
    (*out)->timed = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
}

extern "C" cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

extern "C" cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}

extern "C" cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    if (is_captured(stream)) return cudaSuccess;
    clock_gettime(CLOCK_MONOTONIC, &event->at);
    event->recorded = true;
    return cudaSuccess;
}

extern "C" cudaError_t cudaEventSynchronize(cudaEvent_t)
{
    emu_count(&emu_calls::wait);
    return cudaSuccess;
}

extern "C" cudaError_t cudaEventQuery(cudaEvent_t)
{
    return cudaSuccess;
}

extern "C" cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    if (!begin->recorded || !end->recorded || !begin->timed || !end->timed)
        return emu_fail(cudaErrorInvalidResourceHandle);
    *ms = (float)((double)(end->at.tv_sec - begin->at.tv_sec) * 1e3 +
                  (double)(end->at.tv_nsec - begin->at.tv_nsec) * 1e-6);
    return cudaSuccess;
}

/* ---- kernels ------------------------------------------------------------------------------------
 */

struct known_kernel {
    emu_kernel what;
    size_t smem_bytes; /* dynamic shared memory it has been allowed */
    bool large_cluster, loaded;
};

static std::mutex kernel_lock;
static std::map<const void *, known_kernel> &kernels = *new std::map<const void *, known_kernel>;

void emu_kernel_known(const void *kernel, emu_kernel what)
{
    std::lock_guard<std::mutex> hold(kernel_lock);
    auto made = kernels.emplace(kernel, known_kernel{what, SMEM_FREE_BYTES, false, false});
    if (made.second) return;
    if (made.first->second.what.call != what.call) /* another file's instance of the same caller */
        made.first->second.what = what;
}

extern "C" cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute which,
                                            int value)
{
    std::lock_guard<std::mutex> hold(kernel_lock);
    auto found = kernels.find(kernel);
    if (found == kernels.end()) return emu_fail(cudaErrorInvalidDeviceFunction);
    if (which == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || (size_t)value > SMEM_OPTIN_BYTES) return emu_fail(cudaErrorInvalidValue);
        found->second.smem_bytes = std::max((size_t)value, (size_t)SMEM_FREE_BYTES);
    } else {
        found->second.large_cluster = value != 0;
    }
    return cudaSuccess;
}

/* Its code comes to the device at its first use, and stays. kernel_lock is held. */
static cudaError_t load(known_kernel *k)
{
    std::lock_guard<std::mutex> hold(memory_lock);
    if (k->loaded) return cudaSuccess;
    if (used_bytes + emu_device.code_bytes > emu_device.total_bytes)
        return emu_fail(cudaErrorMemoryAllocation);
    used_bytes += emu_device.code_bytes;
    k->loaded = true;
    return cudaSuccess;
}

extern "C" cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes,
                                             const void *kernel)
{
    std::lock_guard<std::mutex> hold(kernel_lock);
    auto found = kernels.find(kernel);
    if (found == kernels.end()) return emu_fail(cudaErrorInvalidDeviceFunction);
    attributes->maxDynamicSharedSizeBytes = (int)found->second.smem_bytes;
    return load(&found->second);
}

extern "C" cudaError_t cudaFuncGetName(const char **name, const void *kernel)
{
    std::lock_guard<std::mutex> hold(kernel_lock);
    auto found = kernels.find(kernel);
    if (found == kernels.end()) return emu_fail(cudaErrorInvalidDeviceFunction);
    *name = found->second.what.name;
    return cudaSuccess;
}

extern "C" cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel,
                                           void **args)
{
    known_kernel k;
    {
        std::lock_guard<std::mutex> hold(kernel_lock);
        auto found = kernels.find(kernel);
        if (found == kernels.end()) return emu_fail(cudaErrorInvalidDeviceFunction);
        if (cudaError_t code = load(&found->second)) return code;
        k = found->second;
    }
    if (emu_device.launch_error) return emu_fail((cudaError_t)emu_device.launch_error);
    dim3 grid = config->gridDim, block = config->blockDim;
    unsigned cluster = 1, smem_bytes = (unsigned)config->dynamicSmemBytes;
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) {
            cluster = config->attrs[i].val.clusterDim.x;
            if (config->attrs[i].val.clusterDim.y != 1 || config->attrs[i].val.clusterDim.z != 1)
                return emu_fail(cudaErrorInvalidConfiguration);
        }
    uint64_t n_thread = (uint64_t)block.x * block.y * block.z;
    if (n_thread == 0 || n_thread > 1024 || block.z > 64 || grid.x == 0 || grid.x > 0x7FFFFFFF ||
        grid.y == 0 || grid.y > 65535 || grid.z == 0 || grid.z > 65535)
        return emu_fail(cudaErrorInvalidConfiguration);
    if (cluster == 0 || grid.x % cluster || cluster > (k.large_cluster ? 16 : 8))
        return emu_fail(cudaErrorInvalidConfiguration);
    if (smem_bytes > k.smem_bytes) return emu_fail(cudaErrorInvalidValue);
    if (k.what.param_bytes > 32764) return emu_fail(cudaErrorInvalidValue);

    size_t whole = (k.what.param_bytes + 63) & ~(size_t)63;
    std::shared_ptr<void> params(aligned_alloc(64, whole), free);
    memcpy(params.get(), args[0], k.what.param_bytes);
    cudaKernelNodeParams node = {};
    node.func = (void *)kernel;
    node.gridDim = grid;
    node.blockDim = block;
    node.sharedMemBytes = smem_bytes;
    return submit(config->stream, cudaGraphNodeTypeKernel, &node, [=] {
        static std::mutex device; /* one grid at a time, whichever thread launches it */
        std::lock_guard<std::mutex> hold(device);
        emu_count_kernel(k.what.name, grid, block);
        brim_emu_run(k.what.name, grid, block, smem_bytes, cluster,
                     [&] { k.what.call(kernel, params.get()); });
    });
}

/* ---- tensor maps: what the driver asks of one --------------------------------------------------
 */

static CUresult encode_tiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                             void *base, const cuuint64_t *size, const cuuint64_t *stride,
                             const cuuint32_t *box, const cuuint32_t *step, CUtensorMapInterleave,
                             CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                             CUtensorMapFloatOOBfill)
{
    static const uint8_t element_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};
    emu_tensormap m = {};
    if ((uintptr_t)map % 64 || rank != 2 || (uintptr_t)base % 16) return CUDA_ERROR_INVALID_VALUE;
    m.base = (char *)base;
    m.element_bytes = element_bytes[type];
    m.swizzle_bytes = swizzle ? 16u << swizzle : 0;
    m.stride_bytes = stride[0];
    if (m.stride_bytes % 16 || m.stride_bytes >= 1ull << 40) return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < 2; i++) {
        m.size[i] = size[i];
        m.box[i] = box[i];
        if (size[i] == 0 || size[i] > 1ull << 32 || box[i] == 0 || box[i] > 256 || step[i] != 1)
            return CUDA_ERROR_INVALID_VALUE;
    }
    uint32_t line = m.box[0] * m.element_bytes;
    if (line % 16 || (m.swizzle_bytes && line > m.swizzle_bytes)) return CUDA_ERROR_INVALID_VALUE;
    m.made = EMU_TENSORMAP_MADE;
    static_assert(sizeof m <= sizeof *map, "fits");
    memset((void *)map, 0, sizeof *map);
    memcpy((void *)map, &m, sizeof m);
    return CUDA_SUCCESS;
}

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **entry, unsigned,
                                                        unsigned long long,
                                                        enum cudaDriverEntryPointQueryResult *found)
{
    bool known = strcmp(name, "cuTensorMapEncodeTiled") == 0;
    *entry = known ? (void *)encode_tiled : nullptr;
    *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
