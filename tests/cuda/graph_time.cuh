/* SPDX-License-Identifier: Apache-2.0
 * The clock of the W4 programs: one graph replay between two events, as in the peers' table. */
#ifndef BRIM_TESTS_GRAPH_TIME_CUH
#define BRIM_TESTS_GRAPH_TIME_CUH

#include <algorithm>

#include "device_array.cuh"

/* Median microseconds of a graph of what `body` launches. flush: overwritten before each replay, so
 * that L2 holds nothing else; NULL: warm. */
template <typename F>
static double time_graph(cudaStream_t stream, uint8_t *flush, size_t flush_bytes, int n_sample,
                         F body)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    body();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphUpload(exec, stream));
    cudaEvent_t a, b;
    CHECK(cudaEventCreate(&a));
    CHECK(cudaEventCreate(&b));
    std::vector<double> us;
    for (int i = 0; i < n_sample + 3; i++) {
        if (flush) CHECK(cudaMemsetAsync(flush, i, flush_bytes, stream));
        CHECK(cudaEventRecord(a, stream));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaEventRecord(b, stream));
        CHECK(cudaEventSynchronize(b));
        float ms;
        CHECK(cudaEventElapsedTime(&ms, a, b));
        if (i >= 3) us.push_back(ms * 1e3);
    }
    cudaEventDestroy(a), cudaEventDestroy(b);
    cudaGraphExecDestroy(exec), cudaGraphDestroy(graph);
    std::sort(us.begin(), us.end());
    return us[us.size() / 2];
}

struct tiny_params {
    int *p;
};
static __global__ void tiny_kernel(tiny_params p)
{
    if (threadIdx.x == 0) *p.p = 1;
}

/* What the clock reads of a kernel that does nothing. */
static double time_tiny(cudaStream_t stream, uint8_t *flush, size_t flush_bytes)
{
    device_array<int> word(1);
    tiny_params p = {word.ptr};
    brim_launch_shape one = {};
    one.grid = dim3(1), one.block = dim3(32);
    return time_graph(stream, flush, flush_bytes, 30, [&] {
        brim_error err = {};
        if (BRIM_LAUNCH(tiny_kernel, one, stream, p, &err) != BRIM_OK) {
            fprintf(stderr, "%s\n", err.text);
            exit(1);
        }
    });
}

#endif
