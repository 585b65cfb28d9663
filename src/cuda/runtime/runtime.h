/* SPDX-License-Identifier: Apache-2.0
 * Memory, copies, streams, events and graphs of the CUDA device, for plain C. Handles are opaque
 * pointers. `what` names the thing in error texts. Nothing here is called inside a decode step but
 * copies, event records and graph launches, none of which waits for the device. */
#ifndef BRIM_CUDA_RUNTIME_H
#define BRIM_CUDA_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Device memory, aligned to 256 bytes; n_bytes 0 gives a valid pointer. BRIM_E_NO_MEMORY names the
 * bytes asked for and the bytes free. */
brim_status brim_cuda_alloc(void **out, size_t n_bytes, const char *what, brim_error *err);
void brim_cuda_free(void *memory);
/* Page-locked host memory the device can read and write at the same address. */
brim_status brim_cuda_host_alloc(void **out, size_t n_bytes, const char *what, brim_error *err);
void brim_cuda_host_free(void *memory);

brim_status brim_cuda_stream_create(void **out, brim_error *err);
void brim_cuda_stream_free(void *stream);
/* Wait for everything in the stream; the first failure of any of it. */
brim_status brim_cuda_stream_wait(void *stream, const char *what, brim_error *err);

brim_status brim_cuda_event_create(void **out, brim_error *err);
void brim_cuda_event_free(void *event);
brim_status brim_cuda_event_record(void *event, void *stream, brim_error *err);
brim_status brim_cuda_event_wait(void *event, brim_error *err);

/* An event that knows when it happened, for benchmarks. */
brim_status brim_cuda_event_create_timed(void **out, brim_error *err);
/* Wait for `end`; microseconds from `begin` to it, both recorded. */
brim_status brim_cuda_event_elapsed_us(void *begin, void *end, double *us, brim_error *err);

/* Stream-ordered copies of any direction; host memory that is not page-locked makes them wait. */
brim_status brim_cuda_copy(void *to, const void *from, size_t n_bytes, void *stream,
                           const char *what, brim_error *err);
/* n_line pieces of line_bytes, `to_pitch` and `from_pitch` bytes apart. */
brim_status brim_cuda_copy_2d(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t line_bytes, size_t n_line, void *stream, const char *what,
                              brim_error *err);
brim_status brim_cuda_fill(void *to, int byte, size_t n_bytes, void *stream, const char *what,
                           brim_error *err);

/* Record what is put into `stream` from here on instead of running it. Calls of other threads are
 * not affected. */
brim_status brim_cuda_capture_begin(void *stream, brim_error *err);
/* End the recording, also after a failure within it. *out is an executable graph or NULL. */
brim_status brim_cuda_capture_end(void *stream, void **out, brim_error *err);
/* Kernels recorded in `stream` since brim_cuda_capture_begin. */
brim_status brim_cuda_capture_kernels(void *stream, int *n_kernel, brim_error *err);
brim_status brim_cuda_graph_launch(void *graph, void *stream, brim_error *err);
void brim_cuda_graph_free(void *graph);

#ifdef __cplusplus
}
#endif
#endif
