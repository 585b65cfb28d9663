/* SPDX-License-Identifier: Apache-2.0
 * The first KDA call of a process on each route, of gates with a bound and of gates without: all
 * that it needs was there when its plan was asked for. It runs with every other byte of the
 * device's memory taken, gives the bits that it gives with memory to spare, leaves the free memory
 * as it was, and takes less than three times as long as the second call, on the host's clock from
 * the call to its end.
 *     check_kda_first [route[,route...]] [short]
 * short: memory is not taken where there is much of it, no times. Wants the GPU to itself. Exit
 * status 1 on any failure. */
#define _DEFAULT_SOURCE /* clock_gettime */
#include "base/clock.h"
#include "cuda/kda_judge.h"

enum { MAX_BLOCK = 4096, MAX_ROUTE = 16, N_CALL = 7 };

static void *taken[MAX_BLOCK];
static int n_taken;

/* Takes device memory until not even 4 KB are left. */
static void take_memory(void)
{
    size_t n_free, n_total;
    CUDA_OK(cudaMemGetInfo(&n_free, &n_total));
    if (brief && n_free > (size_t)1 << 30) return;
    for (size_t size = n_free; size >= 4096 && n_taken < MAX_BLOCK;) {
        if (cudaMalloc(&taken[n_taken], size) == cudaSuccess)
            n_taken++;
        else
            size /= 2;
    }
    cudaGetLastError(); /* out of memory, as wanted */
    void *more = NULL;
    verdict(cudaMalloc(&more, 4096) != cudaSuccess, "memory", "there is more of it");
    cudaGetLastError();
}

static void give_memory_back(void)
{
    while (n_taken > 0) CUDA_OK(cudaFree(taken[--n_taken]));
}

/* Microseconds of one call and its work. */
static double timed_call(struct kda_device *d, const char *what)
{
    int64_t begin = brim_clock_ns();
    run(d, what);
    CUDA_OK(cudaStreamSynchronize(NULL));
    return (double)(brim_clock_ns() - begin) / 1e3;
}

/* Other instances of the same kernels. */
static void take_gates_without_bound(brim_kda_args *args)
{
    args->gate = BRIM_KDA_GATE_SOFTPLUS;
    args->lower_bound = 0;
}

/* A plan that has kernels to load, those of gates without a bound, may be asked for while a stream
 * is being captured in any mode. */
static void check_capture(const struct kda_device *d)
{
    brim_error err = {0};
    brim_kda_args a = d->args;
    cudaStream_t stream;
    cudaGraph_t graph;
    take_gates_without_bound(&a);
    a.route = route;
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    verdict(brim_kda_supported(&a, &err) == BRIM_OK, route, err.text);
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaStreamDestroy(stream));
}

static void first_call(struct kda_device *d)
{
    double us[N_CALL];
    size_t before, after, n_total;
    char text[120];
    brim_error err = {0};
    int64_t begin = brim_clock_ns();
    verdict(brim_kda_supported(&d->args, &err) == BRIM_OK, route, err.text);
    double plan_us = (double)(brim_clock_ns() - begin) / 1e3;
    CUDA_OK(cudaMemGetInfo(&before, &n_total));
    for (int i = 0; i < N_CALL; i++) us[i] = timed_call(d, route);
    brim_kda_args bounded = d->args;
    take_gates_without_bound(&d->args);
    timed_call(d, route);
    d->args = bounded;
    timed_call(d, route);
    CUDA_OK(cudaMemGetInfo(&after, &n_total));
    snprintf(text, sizeof text, "%zu bytes free before the calls, %zu behind", before, after);
    verdict(before == after, route, text);
    printf("%-10s first call %.0f us, second %.0f, last %.0f; its plan %.1f\n", route, us[0], us[1],
           us[N_CALL - 1], plan_us);
    snprintf(text, sizeof text, "the first call took %.1f times the second's time", us[0] / us[1]);
    verdict(brief || us[0] < 3 * us[1], route, text);
}

int main(int argc, char **argv)
{
    int status = kda_begin(argc, argv,
                           "m128,m64,pair,queue,c4-m128,c4-m64,c5-m64,c6-m64,c8-m128,split,"
                           "split-join");
    if (status) return status;
    struct kda_spec spec = kda_plain(brief ? 200 : 2048, brief ? 1 : 8, KDA_TYPICAL);
    struct kda_case c;
    struct kda_device d[MAX_ROUTE];
    struct outputs first[MAX_ROUTE];
    kda_case_make(&c, &spec);
    for (int i = 0; i < n_route; i++) kda_device_make(&d[i], &c, routes[i]);
    for (int i = 0; i < n_route; i++) route = routes[i], check_capture(&d[i]);
    CUDA_OK(cudaDeviceSynchronize());
    take_memory();
    for (int i = 0; i < n_route; i++) {
        route = routes[i];
        first_call(&d[i]);
        verdict(kda_device_fetch(&d[i]), route, "a byte outside a buffer changed");
        first[i] = outputs_keep(&c);
    }
    give_memory_back();
    for (int i = 0; i < n_route; i++) {
        route = routes[i];
        run_and_fetch(&d[i], route);
        verdict(outputs_same(&first[i], &c), route, "other bits with memory to spare");
        if (!kda_cuts(route) && !strcmp(routes[0], "m128"))
            verdict(outputs_same(&first[0], &c), route, "not m128's bits");
        kda_device_free(&d[i]);
    }
    for (int i = 0; i < n_route; i++) outputs_drop(&first[i]);
    kda_case_free(&c);
    return kda_end("first calls");
}
