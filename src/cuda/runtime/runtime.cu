/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/runtime/runtime.h"

#include "cuda/launch.h"

extern "C" brim_status brim_cuda_alloc(void **out, size_t n_bytes, const char *what,
                                       brim_error *err)
{
    *out = NULL;
    cudaError_t code = cudaMalloc(out, n_bytes ? n_bytes : 256);
    if (code != cudaErrorMemoryAllocation) return brim_cuda_check(code, what, err);
    *out = NULL;
    (void)cudaGetLastError(); /* the refusal is reported here and not by a later call */
    size_t n_free = 0, n_total = 0;
    (void)cudaMemGetInfo(&n_free, &n_total);
    return brim_fail(err, BRIM_E_NO_MEMORY,
                     "%s: %zu bytes of device memory are needed, %zu of %zu are free", what,
                     n_bytes, n_free, n_total);
}

extern "C" void brim_cuda_free(void *memory)
{
    (void)cudaFree(memory);
}

extern "C" brim_status brim_cuda_host_alloc(void **out, size_t n_bytes, const char *what,
                                            brim_error *err)
{
    *out = NULL;
    cudaError_t code = cudaHostAlloc(out, n_bytes ? n_bytes : 64, cudaHostAllocMapped);
    if (code != cudaErrorMemoryAllocation) return brim_cuda_check(code, what, err);
    *out = NULL;
    (void)cudaGetLastError();
    return brim_fail(err, BRIM_E_NO_MEMORY, "%s: no %zu bytes of page-locked memory", what,
                     n_bytes);
}

extern "C" void brim_cuda_host_free(void *memory)
{
    if (memory) (void)cudaFreeHost(memory);
}

extern "C" brim_status brim_cuda_stream_create(void **out, brim_error *err)
{
    cudaStream_t stream = NULL;
    brim_status status = brim_cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                         "creating a stream", err);
    *out = stream;
    return status;
}

extern "C" void brim_cuda_stream_free(void *stream)
{
    if (stream) (void)cudaStreamDestroy((cudaStream_t)stream);
}

extern "C" brim_status brim_cuda_stream_wait(void *stream, const char *what, brim_error *err)
{
    return brim_cuda_check(cudaStreamSynchronize((cudaStream_t)stream), what, err);
}

extern "C" brim_status brim_cuda_event_create(void **out, brim_error *err)
{
    cudaEvent_t event = NULL;
    brim_status status = brim_cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                                         "creating an event", err);
    *out = event;
    return status;
}

extern "C" void brim_cuda_event_free(void *event)
{
    if (event) (void)cudaEventDestroy((cudaEvent_t)event);
}

extern "C" brim_status brim_cuda_event_record(void *event, void *stream, brim_error *err)
{
    return brim_cuda_check(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream),
                           "recording an event", err);
}

extern "C" brim_status brim_cuda_event_wait(void *event, brim_error *err)
{
    return brim_cuda_check(cudaEventSynchronize((cudaEvent_t)event), "waiting for the device", err);
}

extern "C" brim_status brim_cuda_event_create_timed(void **out, brim_error *err)
{
    cudaEvent_t event = NULL;
    brim_status status = brim_cuda_check(cudaEventCreate(&event), "creating an event", err);
    *out = event;
    return status;
}

extern "C" brim_status brim_cuda_event_elapsed_us(void *begin, void *end, double *us,
                                                  brim_error *err)
{
    float ms = 0;
    BRIM_TRY(brim_cuda_event_wait(end, err));
    BRIM_TRY(brim_cuda_check(cudaEventElapsedTime(&ms, (cudaEvent_t)begin, (cudaEvent_t)end),
                             "reading a time", err));
    *us = (double)ms * 1e3;
    return BRIM_OK;
}

extern "C" brim_status brim_cuda_copy(void *to, const void *from, size_t n_bytes, void *stream,
                                      const char *what, brim_error *err)
{
    if (n_bytes == 0) return BRIM_OK;
    return brim_cuda_check(
        cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDefault, (cudaStream_t)stream), what, err);
}

extern "C" brim_status brim_cuda_copy_2d(void *to, size_t to_pitch, const void *from,
                                         size_t from_pitch, size_t line_bytes, size_t n_line,
                                         void *stream, const char *what, brim_error *err)
{
    if (line_bytes == 0 || n_line == 0) return BRIM_OK;
    return brim_cuda_check(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, line_bytes, n_line,
                                             cudaMemcpyDefault, (cudaStream_t)stream),
                           what, err);
}

extern "C" brim_status brim_cuda_fill(void *to, int byte, size_t n_bytes, void *stream,
                                      const char *what, brim_error *err)
{
    if (n_bytes == 0) return BRIM_OK;
    return brim_cuda_check(cudaMemsetAsync(to, byte, n_bytes, (cudaStream_t)stream), what, err);
}

extern "C" brim_status brim_cuda_capture_begin(void *stream, brim_error *err)
{
    return brim_cuda_check(
        cudaStreamBeginCapture((cudaStream_t)stream, cudaStreamCaptureModeThreadLocal),
        "recording a step", err);
}

extern "C" brim_status brim_cuda_capture_end(void *stream, void **out, brim_error *err)
{
    *out = NULL;
    cudaGraph_t graph = NULL;
    brim_status status = brim_cuda_check(cudaStreamEndCapture((cudaStream_t)stream, &graph),
                                         "recording a step", err);
    if (status != BRIM_OK) {
        (void)cudaGetLastError();
        return status;
    }
    cudaGraphExec_t exec = NULL;
    status = brim_cuda_check(cudaGraphInstantiate(&exec, graph, 0), "preparing a step", err);
    (void)cudaGraphDestroy(graph);
    *out = status == BRIM_OK ? exec : NULL;
    return status;
}

extern "C" brim_status brim_cuda_capture_kernels(void *stream, int *n_kernel, brim_error *err)
{
    cudaStreamCaptureStatus capture;
    cudaGraph_t graph = NULL;
    cudaGraphNode_t nodes[64];
    size_t n = 64;
    *n_kernel = 0;
    BRIM_TRY(brim_cuda_check(cudaStreamGetCaptureInfo((cudaStream_t)stream, &capture, NULL, &graph),
                             "looking at a recording", err));
    BRIM_REQUIRE(err, capture == cudaStreamCaptureStatusActive, BRIM_E_ARGUMENT,
                 "cuda: the stream is not being recorded");
    BRIM_TRY(brim_cuda_check(cudaGraphGetNodes(graph, nodes, &n), "looking at a recording", err));
    for (size_t i = 0; i < n; i++) {
        cudaGraphNodeType type;
        BRIM_TRY(
            brim_cuda_check(cudaGraphNodeGetType(nodes[i], &type), "looking at a recording", err));
        *n_kernel += type == cudaGraphNodeTypeKernel;
    }
    return BRIM_OK;
}

extern "C" brim_status brim_cuda_graph_launch(void *graph, void *stream, brim_error *err)
{
    return brim_cuda_check(cudaGraphLaunch((cudaGraphExec_t)graph, (cudaStream_t)stream),
                           "launching a step", err);
}

extern "C" void brim_cuda_graph_free(void *graph)
{
    if (graph) (void)cudaGraphExecDestroy((cudaGraphExec_t)graph);
}
