/* SPDX-License-Identifier: Apache-2.0
 * Times of the W4 kernels, cold, as CSV: included by check_w4.cu alone. */
#ifndef BRIM_TESTS_W4_BENCH_CUH
#define BRIM_TESTS_W4_BENCH_CUH

#include "w4_problem.cuh"

static double median(std::vector<double> v)
{
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

/* One graph replay of one call after the L2 was flushed, events around it: the clock of the peers'
 * table (a tiny kernel reads about 4 us on it). */
template <typename F>
static double time_cold(cudaStream_t stream, uint8_t *flush, size_t flush_bytes, int n_sample,
                        F launch)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    launch();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    cudaEvent_t a, b;
    CHECK(cudaEventCreate(&a));
    CHECK(cudaEventCreate(&b));
    std::vector<double> us;
    for (int i = 0; i < n_sample + 3; i++) {
        CHECK(cudaMemsetAsync(flush, i, flush_bytes, stream));
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
    return median(us);
}

struct tiny_params {
    int *p;
};
static __global__ void tiny_kernel(tiny_params p)
{
    if (threadIdx.x == 0) *p.p = 1;
}

static void bench(int n_sm)
{
    printf("projection,rows,in,out,form,split,us\n");
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    device_array<uint8_t> flush(256u << 20);
    device_array<int> word(1);
    brim_error err = {};
    tiny_params tp = {word.ptr};
    brim_launch_shape one = {};
    one.grid = dim3(1), one.block = dim3(32);
    double clock_us = time_cold(stream, flush.ptr, flush.n, 30, [&] {
        if (BRIM_LAUNCH(tiny_kernel, one, stream, tp, &err) != BRIM_OK) exit(1);
    });
    printf("clock,0,0,0,tiny,1,%.2f\n", clock_us);
    static const struct {
        const char *name;
        int64_t in, out;
    } shapes[] = {{"q", 2560, 4096},      {"kv", 2560, 1024},   {"o", 4096, 2560},
                  {"gate", 2560, 9728},   {"down", 9728, 2560}, {"qkv", 2560, 6144},
                  {"gateup", 2560, 19456}};
    static const int64_t rows_all[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048};
    for (auto &s : shapes) {
        for (int64_t rows : rows_all) {
            problem p(rows, s.in, s.out, 128, BRIM_DTYPE_BF16, SPECIAL_NONE);
            auto row = [&](const char *form, int64_t split, double us) {
                printf("%s,%lld,%lld,%lld,%s,%lld,%.2f\n", s.name, (long long)rows, (long long)s.in,
                       (long long)s.out, form, (long long)split, us);
            };
            int n_sample = rows >= 512 ? 10 : 20;
            if (rows <= 128) {
                brim_w4_cluster_plan cp = brim_w4_cluster_plan_make(rows, s.in, s.out, n_sm);
                for (int split = 1; split <= 8; split *= 2) {
                    bool chosen = split == cp.split;
                    brim_w4_cluster_plan pinned = cp;
                    pinned.split = split;
                    row(chosen ? "cluster chosen" : "cluster", split,
                        time_cold(stream, flush.ptr, flush.n, n_sample, [&] {
                            brim_cuda_w4_cluster(&p.args, &p.packed, &pinned, 0, stream, &err);
                        }));
                }
            }
            if (rows <= 8)
                row("matvec", 1, time_cold(stream, flush.ptr, flush.n, n_sample, [&] {
                        brim_cuda_w4_matvec(&p.args, stream, &err);
                    }));
            if (rows == 16 || rows == 32 || rows == 64 || rows == 128 || rows == 2048) {
                brim_split_plan off = {0, 1, 0, 0, s.in}, plan;
                brim_split_policy course = brim_split_policy_course();
                if (brim_split_plan_make(&course, rows, s.in, s.out, &plan, &err) != BRIM_OK)
                    exit(1);
                device_array<uint8_t> planes(
                    brim_cuda_w4_workspace_bytes(&plan, rows, s.out, BRIM_W4_PLANES_BF16));
                row("tiled", 1, time_cold(stream, flush.ptr, flush.n, n_sample, [&] {
                        brim_cuda_w4_tiled(&p.args, &off, BRIM_W4_PLANES_BF16, nullptr, stream,
                                           &err);
                    }));
                row("split-k", plan.split, time_cold(stream, flush.ptr, flush.n, n_sample, [&] {
                        brim_cuda_w4_tiled(&p.args, &plan, BRIM_W4_PLANES_BF16, planes.ptr, stream,
                                           &err);
                    }));
            }
            fflush(stdout);
        }
    }
}

#endif
