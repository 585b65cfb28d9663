/* SPDX-License-Identifier: Apache-2.0
 * Times of the KDA routes on the GPU.
 *     bench_kda ROUTE[,ROUTE...] [small|full|softplus]
 * Each shape is checked against fp64 (two heads) and against the first route (all heads, bit for
 * bit) before it is timed. One sample is one replay of a captured graph between two events, after a
 * 256 MB write that empties the L2; two rounds in shuffled order, median of all samples. CSV on
 * stdout. */
#include "cuda/kda_device.h"

enum { N_SAMPLE = 15, N_ROUND = 2, MAX_ROUTE = 8, FLUSH = 256 << 20 };

struct shape {
    int64_t n_seq, n_tok, n_head;
    const int64_t *lengths;
};

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void bench_shape(const struct shape *shape, char *const *routes, int n_route, bool softplus,
                        void *flush)
{
    struct kda_spec spec = {.n_seq = shape->n_seq,
                            .n_tok = shape->n_tok,
                            .n_head = shape->n_head,
                            .n_value_head = shape->n_head,
                            .lengths = shape->lengths,
                            .regime = KDA_TYPICAL,
                            .gate = softplus ? BRIM_KDA_GATE_SOFTPLUS : BRIM_KDA_GATE_LOWER_BOUND,
                            .lower_bound = softplus ? 0 : -5,
                            .flags = BRIM_KDA_L2NORM | BRIM_KDA_BETA_LOGIT,
                            .with_initial = 1,
                            .seed = 7};
    struct kda_case c;
    struct kda_device d;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    cudaGraphExec_t exec[MAX_ROUTE];
    bool ok[MAX_ROUTE] = {false};
    static float sample[MAX_ROUTE][N_SAMPLE * N_ROUND];
    CUDA_OK(cudaStreamCreate(&stream));
    CUDA_OK(cudaEventCreate(&begin));
    CUDA_OK(cudaEventCreate(&end));
    kda_case_make(&c, &spec);
    kda_device_make(&d, &c, NULL);
    d.args.stream = stream;
    uint16_t *first = NULL;
    float *first_state = NULL;
    struct kda_error error = {0, 0, 0, true};
    for (int i = 0; i < n_route; i++) {
        brim_error err = {0};
        cudaGraph_t graph;
        size_t n_bytes = 0;
        d.args.route = strcmp(routes[i], "auto") ? routes[i] : NULL;
        if (brim_kda_workspace_bytes(&d.args, &n_bytes, &err) != BRIM_OK) {
            printf("# %lld x %lld x %lld %s: %s\n", (long long)shape->n_seq,
                   (long long)shape->n_tok, (long long)shape->n_head, routes[i], err.text);
            continue;
        }
        if (n_bytes > d.args.workspace_bytes) {
            d.args.workspace = kda_upload(&d, NULL, n_bytes);
            d.args.workspace_bytes = n_bytes;
            if (brim_kda_workspace_init(BRIM_KERNEL_CUDA, d.args.workspace, n_bytes, stream,
                                        &err) != BRIM_OK)
                continue;
        }
        CUDA_OK(cudaMemsetAsync(d.args.out, 0xFF, c.v_bytes, stream));
        if (brim_kda_prefill(&d.args, &err) != BRIM_OK) {
            printf("# %s: %s\n", routes[i], err.text);
            continue;
        }
        kda_device_fetch(&d);
        if (!first) {
            first = kda_alloc(c.v_bytes), first_state = kda_alloc(c.state_bytes);
            memcpy(first, c.out, c.v_bytes), memcpy(first_state, c.final, c.state_bytes);
            error = kda_measure(&c.args, shape->n_seq - 1, 0);
            struct kda_error other = kda_measure(&c.args, 0, shape->n_head - 1);
            ok[i] = kda_within(&error, KDA_TYPICAL, 32) && kda_within(&other, KDA_TYPICAL, 32);
        } else {
            ok[i] =
                !memcmp(first, c.out, c.v_bytes) && !memcmp(first_state, c.final, c.state_bytes);
        }
        if (!ok[i]) {
            printf("# %lld x %lld x %lld %s: WRONG, not timed (out %.2e state %.2e)\n",
                   (long long)shape->n_seq, (long long)shape->n_tok, (long long)shape->n_head,
                   routes[i], error.out, error.state);
            continue;
        }
        CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        if (brim_kda_prefill(&d.args, &err) != BRIM_OK) exit(2);
        CUDA_OK(cudaStreamEndCapture(stream, &graph));
        CUDA_OK(cudaGraphInstantiate(&exec[i], graph, 0));
        CUDA_OK(cudaGraphDestroy(graph));
        for (int k = 0; k < 2; k++) CUDA_OK(cudaGraphLaunch(exec[i], stream));
    }
    uint32_t shuffle = 12345;
    for (int round = 0; round < N_ROUND; round++)
        for (int k = 0; k < N_SAMPLE; k++) {
            shuffle = shuffle * 1664525u + 1013904223u;
            for (int j = 0; j < n_route; j++) {
                int i = (j + (int)(shuffle >> 16)) % n_route;
                if (!ok[i]) continue;
                CUDA_OK(cudaMemsetAsync(flush, k, FLUSH, stream));
                CUDA_OK(cudaEventRecord(begin, stream));
                CUDA_OK(cudaGraphLaunch(exec[i], stream));
                CUDA_OK(cudaEventRecord(end, stream));
                CUDA_OK(cudaEventSynchronize(end));
                CUDA_OK(cudaEventElapsedTime(&sample[i][round * N_SAMPLE + k], begin, end));
            }
        }
    float base = 0;
    for (int i = 0; i < n_route; i++) {
        if (!ok[i]) continue;
        qsort(sample[i], N_SAMPLE * N_ROUND, sizeof(float), by_value);
        float median = sample[i][N_SAMPLE * N_ROUND / 2] * 1000;
        if (base == 0) base = median;
        printf("%lld,%lld,%lld,%s,%.1f,%.1f,%.1f,%.3f,%.2e,%.2e\n", (long long)shape->n_seq,
               (long long)(shape->lengths ? c.n_row : shape->n_tok), (long long)shape->n_head,
               routes[i], (double)median, (double)sample[i][0] * 1000,
               (double)sample[i][N_SAMPLE * N_ROUND - 1] * 1000, (double)(base / median), error.out,
               error.state);
        CUDA_OK(cudaGraphExecDestroy(exec[i]));
    }
    fflush(stdout);
    free(first), free(first_state);
    kda_device_free(&d);
    kda_case_free(&c);
    CUDA_OK(cudaEventDestroy(begin));
    CUDA_OK(cudaEventDestroy(end));
    CUDA_OK(cudaStreamDestroy(stream));
}

int main(int argc, char **argv)
{
    static const int64_t mixed[] = {1300, 547, 2048, 963, 271, 3063};
    static const struct shape shapes[] = {
        {1, 2048, 1, NULL},  {1, 2048, 4, NULL},  {1, 2048, 8, NULL},  {1, 4096, 1, NULL},
        {1, 4096, 4, NULL},  {1, 4096, 8, NULL},  {1, 512, 1, NULL},   {1, 512, 8, NULL},
        {1, 1024, 4, NULL},  {1, 1024, 32, NULL}, {1, 2048, 16, NULL}, {1, 2048, 32, NULL},
        {1, 4096, 12, NULL}, {1, 4096, 32, NULL}, {1, 8192, 1, NULL},  {1, 8192, 8, NULL},
        {1, 8192, 12, NULL}, {1, 16384, 4, NULL}, {1, 65536, 1, NULL}, {1, 8192, 64, NULL},
        {1, 8192, 96, NULL}, {6, 0, 64, mixed},   {6, 0, 4, mixed},    {8, 1024, 64, NULL},
    };
    static const struct shape unbounded[] = {
        {1, 2048, 1, NULL}, {1, 2048, 4, NULL}, {1, 2048, 8, NULL}, {1, 8192, 32, NULL}};
    if (argc < 2) return 2;
    bool softplus = argc > 2 && !strcmp(argv[2], "softplus");
    char *routes[MAX_ROUTE];
    int n_route = 0,
        n_shape = argc > 2 && !strcmp(argv[2], "full") ? (int)(sizeof shapes / sizeof *shapes) : 6;
    for (char *name = strtok(argv[1], ","); name && n_route < MAX_ROUTE; name = strtok(NULL, ","))
        routes[n_route++] = name;
    void *flush;
    struct cudaDeviceProp prop;
    int driver = 0;
    CUDA_OK(cudaGetDeviceProperties(&prop, 0));
    CUDA_OK(cudaDriverGetVersion(&driver));
    CUDA_OK(cudaMalloc(&flush, FLUSH));
    printf("# %s, %d SMs, CUDA driver %d; graph replay, cold L2, us; error of the first route "
           "against fp64\n",
           prop.name, prop.multiProcessorCount, driver);
    printf("n_seq,n_tok,n_head,route,us_median,us_min,us_max,speedup,out_error,state_error\n");
    if (softplus) n_shape = (int)(sizeof unbounded / sizeof *unbounded);
    for (int i = 0; i < n_shape; i++)
        bench_shape(softplus ? &unbounded[i] : &shapes[i], routes, n_route, softplus, flush);
    CUDA_OK(cudaFree(flush));
    return 0;
}
