/* SPDX-License-Identifier: Apache-2.0
 * Stands in for src/cuda/runtime in a build without nvcc. Only benchmarks call it there, after the
 * device has been refused. */
#include "cuda/runtime/runtime.h"

#ifndef BRIM_HAVE_CUDA
static brim_status no_device(brim_error *err)
{
    return brim_fail(err, BRIM_E_DEVICE, "this build of brim has no CUDA kernels");
}

static brim_status no_handle(void **out, brim_error *err)
{
    *out = NULL;
    return no_device(err);
}

#define UNUSED(x) ((void)(x))

brim_status brim_cuda_alloc(void **out, size_t n_bytes, const char *what, brim_error *err)
{
    UNUSED(n_bytes), UNUSED(what);
    return no_handle(out, err);
}

void brim_cuda_free(void *memory)
{
    UNUSED(memory);
}

brim_status brim_cuda_stream_create(void **out, brim_error *err)
{
    return no_handle(out, err);
}

void brim_cuda_stream_free(void *stream)
{
    UNUSED(stream);
}

brim_status brim_cuda_stream_wait(void *stream, const char *what, brim_error *err)
{
    UNUSED(stream), UNUSED(what);
    return no_device(err);
}

brim_status brim_cuda_event_create_timed(void **out, brim_error *err)
{
    return no_handle(out, err);
}

void brim_cuda_event_free(void *event)
{
    UNUSED(event);
}

brim_status brim_cuda_event_record(void *event, void *stream, brim_error *err)
{
    UNUSED(event), UNUSED(stream);
    return no_device(err);
}

brim_status brim_cuda_event_elapsed_us(void *begin, void *end, double *us, brim_error *err)
{
    UNUSED(begin), UNUSED(end), UNUSED(us);
    return no_device(err);
}

brim_status brim_cuda_copy(void *to, const void *from, size_t n_bytes, void *stream,
                           const char *what, brim_error *err)
{
    UNUSED(to), UNUSED(from), UNUSED(n_bytes), UNUSED(stream), UNUSED(what);
    return no_device(err);
}

brim_status brim_cuda_fill(void *to, int byte, size_t n_bytes, void *stream, const char *what,
                           brim_error *err)
{
    UNUSED(to), UNUSED(byte), UNUSED(n_bytes), UNUSED(stream), UNUSED(what);
    return no_device(err);
}

brim_status brim_cuda_capture_begin(void *stream, brim_error *err)
{
    UNUSED(stream);
    return no_device(err);
}

brim_status brim_cuda_capture_end(void *stream, void **out, brim_error *err)
{
    UNUSED(stream);
    return no_handle(out, err);
}

brim_status brim_cuda_capture_kernels(void *stream, int *n_kernel, brim_error *err)
{
    UNUSED(stream), UNUSED(n_kernel);
    return no_device(err);
}

brim_status brim_cuda_graph_launch(void *graph, void *stream, brim_error *err)
{
    UNUSED(graph), UNUSED(stream);
    return no_device(err);
}

void brim_cuda_graph_free(void *graph)
{
    UNUSED(graph);
}
#endif
