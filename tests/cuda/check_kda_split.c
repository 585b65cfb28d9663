/* SPDX-License-Identifier: Apache-2.0
 * Route split on the GPU: against fp64 and the serial routes, and its times.
 *     check_kda_split [short]     checks; few of them, for the sanitizers
 *     check_kda_split bench [GATES [LENGTH [ROUTE [FIRST [LAST]]]]]
 *                                 times beside the serial route, of shapes FIRST to LAST; GATES:
 *                                 normal, weak (-12, one key), minus12, one (channel at -12)
 *     check_kda_split join        times of the exact chain by the segments' length
 * Where every cut holds the error may be 1.2 times the serial route's; where one does not, the bits
 * are the serial route's. */
#include "cuda/kda/record.h"
#include "cuda/kda_pinned.h"
#include "plan/kda_split.h"

/* Do the records that the segments left say that every cut holds? */
static bool all_hold(const struct kda_device *d, int length, int window)
{
    const brim_kda_args *a = &d->args;
    struct brim_kda_split_plan plan =
        brim_kda_split_plan_make(&(struct brim_kda_split_call){.n_seq = a->n_seq,
                                                               .n_row = a->n_seq * a->n_tok,
                                                               .max_tok = a->n_tok,
                                                               .n_value_head = a->n_value_head,
                                                               .n_processor = 132,
                                                               .length = length,
                                                               .first = a->split_first,
                                                               .window = window});
    brim_kda_plan whole;
    brim_error err = {0};
    if (a->cu_seqlens || brim_kda_plan_make(a, &whole, &err) != BRIM_OK) return false;
    size_t n = (size_t)(plan.n_slot * a->n_value_head) * KDA_RECORD_FLOATS;
    float *record = kda_alloc(n * 4);
    CUDA_OK(cudaMemcpy(record, (char *)a->workspace + whole.workspace_bytes - plan.workspace_bytes,
                       n * 4, cudaMemcpyDeviceToHost));
    bool hold = true;
    for (int64_t slot = 0; slot < plan.n_slot; slot++)
        for (int64_t h = 0; h < a->n_value_head; h++) {
            int64_t index = slot / a->n_seq; /* of the segment in its sequence */
            if (brim_kda_split_cut(&plan, index) <= plan.window) continue;
            const float *own = record + (slot * a->n_value_head + h) * KDA_RECORD_FLOATS;
            const float *last = own - a->n_seq * a->n_value_head * KDA_RECORD_FLOATS;
            hold = hold && brim_kda_record_holds(own, last, plan.window);
        }
    free(record);
    return hold;
}

static int n_repeat = 5;
static int pinned_first; /* chunks of each sequence's first segment; 0: as all others */

/* cut: 1 every task is cut, 0 none is, 2 there is nothing to cut, -1 unknown. */
static void check(const char *what, struct kda_case *c, int length, int window, int cut)
{
    struct kda_device d;
    char why[200] = "";
    kda_device_make(&d, c, "m128");
    d.args.split_first = 0;
    run(&d, "m128", 0, 0, false);
    bool ok = kda_device_fetch(&d);
    struct outputs serial = outputs_keep(c);
    struct kda_error *base =
        kda_alloc((size_t)(c->args.n_seq * c->args.n_value_head) * sizeof *base);
    for (int64_t n = 0; n < c->args.n_seq; n++)
        for (int64_t h = 0; h < c->args.n_value_head; h++)
            base[n * c->args.n_value_head + h] = kda_measure(&c->args, n, h);
    d.args.split_first = pinned_first;
    run(&d, "split", length, window, false);
    ok = kda_device_fetch(&d) && ok;
    if (!ok) snprintf(why, sizeof why, "a guard byte changed");
    bool equal = outputs_same(&serial, c);
    if (cut % 2 == 0 && !equal) ok = false, snprintf(why, sizeof why, "bits differ from m128's");
    if (cut == 1 && !all_hold(&d, length, window))
        ok = false, snprintf(why, sizeof why, "a cut does not hold");
    if (cut == 0 && all_hold(&d, length, window))
        ok = false, snprintf(why, sizeof why, "every cut holds");
    for (int64_t n = 0; n < c->args.n_seq && ok; n++)
        for (int64_t h = 0; h < c->args.n_value_head && ok; h++) {
            struct kda_error e = kda_measure(&c->args, n, h),
                             b = base[n * c->args.n_value_head + h];
            if (!e.finite || e.out > 1.2 * b.out + 1e-7 || e.window > 1.2 * b.window + 1e-7 ||
                e.state > 1.2 * b.state + 1e-7) {
                ok = false;
                snprintf(why, sizeof why, "task %d.%d: %.2e %.2e %.2e beside %.2e %.2e %.2e",
                         (int)n, (int)h, e.out, e.window, e.state, b.out, b.window, b.state);
            }
        }
    struct outputs first = outputs_keep(c);
    for (int i = 0; i < n_repeat && ok; i++) {
        run(&d, "split", length, window, false);
        kda_device_fetch(&d);
        if (!outputs_same(&first, c)) ok = false, snprintf(why, sizeof why, "repeat %d differs", i);
    }
    verdict(ok, what, length, window, why);
    free(base);
    outputs_drop(&first);
    outputs_drop(&serial);
    kda_device_free(&d);
}

static struct kda_spec spec_of(int64_t n_tok, enum kda_regime regime)
{
    struct kda_spec spec = kda_plain(n_tok, 2, regime);
    spec.checkpoints = 1, spec.seed = 5;
    return spec;
}

static void checks(bool few)
{
    struct kda_case c;
    if (few) n_repeat = 1;
    for (int length = few ? 4 : 1; length <= 9; length += few ? 5 : 1) {
        struct kda_spec spec = spec_of(280, KDA_TYPICAL);
        kda_case_make(&c, &spec);
        check("typical, length, window", &c, length, 1, length < 9 ? 1 : 2);
        if (length > 1) check("typical, length, window", &c, length, 2, length < 9 ? 1 : 2);
        for (pinned_first = length + 1; pinned_first <= 9; pinned_first += few ? 3 : 1)
            check("typical, longer first segment", &c, length, 1, pinned_first < 9 ? 1 : 2);
        pinned_first = 0;
        kda_case_free(&c);
    }
    static const struct {
        enum kda_regime regime;
        int cut;
    } regimes[] = {{KDA_SATURATED, 1}, {KDA_FULL, 1},         {KDA_ALTERNATE, 1},
                   {KDA_WEAK, 0},      {KDA_NEVER, 0},        {KDA_MIXED, 0},
                   {KDA_COLLINEAR, 0}, {KDA_ANTIPARALLEL, 0}, {KDA_STEP, -1}};
    for (size_t i = 0; i < (few ? 0 : sizeof regimes / sizeof *regimes); i++) {
        struct kda_spec spec = spec_of(1024, regimes[i].regime);
        kda_case_make(&c, &spec);
        check("regime, length 4", &c, 4, 2, regimes[i].cut);
        pinned_first = 11;
        check("regime, length 4, the first 11", &c, 4, 2, regimes[i].cut);
        pinned_first = 0;
        kda_case_free(&c);
    }
    if (few) {
        struct kda_spec spec = spec_of(288, KDA_WEAK);
        kda_case_make(&c, &spec);
        check("regime, length 4", &c, 4, 2, 0);
        kda_case_free(&c);
    }
    static const int64_t brief[] = {0, 100, 0, 1, 97, 0};
    static const int64_t mixes[][6] = {{0, 300, 0, 1, 777, 0},
                                       {64, 1, 33, 0, 0, 500},
                                       {31, 32, 33, 95, 96, 97},
                                       {128, 64, 127, 129, 192, 63}, /* at segments' edges */
                                       {0, 0, 0, 0, 0, 0}};
    for (size_t i = 0; i < (few ? 1 : sizeof mixes / sizeof *mixes); i++)
        for (int bytes = 4; bytes <= 8; bytes += 4) {
            struct kda_spec spec = spec_of(few ? 200 : 1300, KDA_TYPICAL);
            spec.n_seq = 6;
            spec.lengths = few ? brief : mixes[i];
            spec.offset_bytes = bytes;
            spec.state_dtype = bytes == 4 ? BRIM_KERNEL_BF16 : BRIM_KERNEL_F32;
            if (bytes == 8) spec.flags |= BRIM_KDA_STATE_K_FIRST;
            kda_case_make(&c, &spec);
            check("packed mix", &c, 2, 1, -1);
            pinned_first = 3;
            check("packed mix, longer first segments", &c, 2, 1, -1);
            pinned_first = 0;
            kda_case_free(&c);
        }
    for (int form = few ? 3 : 0; form < 4;
         form++) { /* GVA, no initial state, given decay, in place */
        struct kda_spec spec = spec_of(few ? 200 : 700, KDA_TYPICAL);
        spec.n_seq = 2;
        spec.checkpoints = form & 1;
        if (form == 0) spec.n_value_head = 4;
        if (form == 1) spec.with_initial = 0;
        if (form == 2) spec.gate = BRIM_KDA_GATE_GIVEN, spec.f32_decay = spec.f32_beta = 1;
        kda_case_make(&c, &spec);
        check("form", &c, 3, 1, 1);
        pinned_first = 5;
        check("form, longer first segments", &c, 3, 1, 1);
        pinned_first = 0;
        if (form == 3) {
            struct kda_device d;
            kda_device_make(&d, &c, "m128");
            run(&d, "split", 3, 1, false);
            kda_device_fetch(&d);
            struct outputs apart = outputs_keep(&c);
            d.args.final_state = (void *)d.args.initial_state;
            run(&d, "split", 3, 1, false);
            kda_device_fetch(&d);
            verdict(outputs_same(&apart, &c), "state in place", 3, 1, "bits differ");
            outputs_drop(&apart);
            kda_device_free(&d);
        }
        kda_case_free(&c);
    }
}

/* ---- times ----------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

enum { FLUSH = 256 << 20, N_SAMPLE = 20 };

static float time_route(struct kda_device *d, const char *route, int length, bool exact,
                        void *flush, cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begin, end;
    float sample[N_SAMPLE];
    brim_error err = {0};
    run(d, route, length, 0, exact);
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaEventCreate(&begin));
    CUDA_OK(cudaEventCreate(&end));
    d->args.stream = stream;
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    if (brim_kda_prefill(&d->args, &err) != BRIM_OK) exit(2);
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < N_SAMPLE; i++) {
        CUDA_OK(cudaMemsetAsync(flush, i, FLUSH, stream));
        CUDA_OK(cudaEventRecord(begin, stream));
        CUDA_OK(cudaGraphLaunch(exec, stream));
        CUDA_OK(cudaEventRecord(end, stream));
        CUDA_OK(cudaEventSynchronize(end));
        CUDA_OK(cudaEventElapsedTime(&sample[i], begin, end));
    }
    d->args.stream = NULL;
    qsort(sample, N_SAMPLE, sizeof(float), by_value);
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaEventDestroy(begin));
    CUDA_OK(cudaEventDestroy(end));
    return sample[N_SAMPLE / 2] * 1000;
}

static void bench(int argc, char **argv)
{
    static const int64_t shapes[][3] = {
        /* tokens, heads, sequences */
        {2048, 1, 1},  {2048, 4, 1},  {2048, 8, 1},  {4096, 1, 1},  {4096, 4, 1},  {4096, 8, 1},
        {8192, 1, 1},  {8192, 8, 1},  {8192, 12, 1}, {65536, 4, 1}, {8192, 64, 1}, {8192, 96, 1},
        {1024, 4, 1},  {2048, 12, 1}, {2048, 16, 1}, {3072, 10, 1}, {4096, 12, 1}, {2048, 12, 4},
        {8192, 16, 1}, {8192, 24, 1}, {2048, 16, 8}};
    void *flush;
    cudaStream_t stream;
    const char *gates = argc > 2 ? argv[2] : "normal";
    bool weak = !strcmp(gates, "weak"), all = !strcmp(gates, "minus12"),
         one = !strcmp(gates, "one");
    int length = argc > 3 ? atoi(argv[3]) : 0;
    const char *route = argc > 4 ? argv[4] : "split";
    size_t first = argc > 5 ? (size_t)atoi(argv[5]) : 0;
    size_t last = argc > 6 ? (size_t)atoi(argv[6]) : sizeof shapes / sizeof *shapes - 1;
    CUDA_OK(cudaStreamCreate(&stream));
    CUDA_OK(cudaMalloc(&flush, FLUSH));
    printf("n_tok,n_head,n_seq,gates,serial_us,split_us,length,first,window,chunks,grid\n");
    for (size_t i = first; i <= last && i < sizeof shapes / sizeof *shapes; i++) {
        if (shapes[i][0] * shapes[i][1] * shapes[i][2] > 1 << 20) continue;
        struct kda_spec spec = spec_of(shapes[i][0], weak ? KDA_COLLINEAR : KDA_TYPICAL);
        struct kda_case c;
        struct kda_device d;
        brim_kda_plan plan;
        brim_error err = {0};
        spec.n_head = spec.n_value_head = shapes[i][1];
        spec.n_seq = shapes[i][2];
        spec.checkpoints = 0;
        kda_case_make(&c, &spec);
        for (int64_t j = 0; j < c.n_row * shapes[i][1] * 128 && (all || one); j++)
            if (all || j % 128 == 5) ((uint16_t *)c.g)[j] = brim_bf16_from_f32(-12);
        kda_device_make(&d, &c, NULL);
        float serial = time_route(&d, NULL, 0, false, flush, stream);
        float split = time_route(&d, route, length, false, flush, stream);
        if (brim_kda_plan_make(&d.args, &plan, &err) != BRIM_OK) exit(2);
        printf("%d,%d,%d,%s,%.1f,%.1f,%d,%d,%d,%d,%d\n", (int)shapes[i][0], (int)shapes[i][1],
               (int)shapes[i][2], gates, (double)serial, (double)split, plan.split_length,
               plan.split_first, plan.split_window, (int)plan.split_chunks, (int)plan.grid);
        fflush(stdout);
        kda_device_free(&d);
        kda_case_free(&c);
    }
}

/* Nothing is skipped, so gates are all the same to it. */
static void bench_join(void)
{
    static const int64_t shapes[][3] = {/* tokens, heads, sequences */
                                        {2048, 1, 1},  {2048, 8, 1}, {4096, 1, 1},  {4096, 4, 1},
                                        {8192, 1, 1},  {8192, 4, 1}, {8192, 12, 1}, {16384, 1, 1},
                                        {32768, 2, 1}, {2048, 4, 4}};
    void *flush;
    cudaStream_t stream;
    CUDA_OK(cudaStreamCreate(&stream));
    CUDA_OK(cudaMalloc(&flush, FLUSH));
    printf("n_tok,n_head,n_seq,length,join_us\n");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct kda_spec spec = spec_of(shapes[i][0], KDA_TYPICAL);
        struct kda_case c;
        struct kda_device d;
        spec.n_head = spec.n_value_head = shapes[i][1];
        spec.n_seq = shapes[i][2];
        spec.checkpoints = 0;
        kda_case_make(&c, &spec);
        kda_device_make(&d, &c, NULL);
        int n_chunk = (int)(shapes[i][0] / 32);
        for (int n = 1; n <= 64 && n <= n_chunk / 2; n += n < 4 ? 1 : n / 2) {
            int length = (n_chunk + n - 1) / n;
            float us = time_route(&d, "split-join", length, true, flush, stream);
            printf("%d,%d,%d,%d,%.1f\n", (int)shapes[i][0], (int)shapes[i][1], (int)shapes[i][2],
                   length, (double)us);
            fflush(stdout);
        }
        kda_device_free(&d);
        kda_case_free(&c);
    }
}

int main(int argc, char **argv)
{
    int n_device;
    if (cudaGetDeviceCount(&n_device) != cudaSuccess || n_device == 0) {
        printf("SKIP: no CUDA device\n");
        return 77;
    }
    if (argc > 1 && !strcmp(argv[1], "bench")) {
        bench(argc, argv);
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "join")) {
        bench_join();
        return 0;
    }
    checks(argc > 1 && !strcmp(argv[1], "short"));
    printf("%d passed, %d failed\n", n_pass, n_fail);
    return n_fail > 0;
}
