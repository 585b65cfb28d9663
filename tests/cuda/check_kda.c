/* SPDX-License-Identifier: Apache-2.0
 * The KDA kernels on the GPU against the fp64 recurrence, and their properties bit for bit.
 *     check_kda [route] [quick|short|bits]
 * Prints one line a failure and a summary; exit status 1 on any failure. */
#include "cuda/kda/layout.h"
#include "plan/kda_route.h"

#include "cuda/kda_judge.h"

static void check_spec(const struct kda_spec *spec, const char *what)
{
    struct kda_case c;
    struct kda_device d;
    kda_case_make(&c, spec);
    kda_device_make(&d, &c, route);
    if (run(&d, what)) {
        verdict(kda_device_fetch(&d), what, "a byte outside a buffer changed");
        judge(&c, spec, what);
        int64_t last = 0;
        if (c.offsets) {
            last = c.args.offset_bytes == 8 ? ((int64_t *)c.offsets)[spec->n_seq]
                                            : ((int32_t *)c.offsets)[spec->n_seq];
            bool zero = true;
            for (int64_t t = last; t < c.n_row; t++)
                for (int64_t i = 0; i < spec->n_value_head * 128; i++)
                    zero = zero && c.out[t * c.args.out_stride.token + i] == 0;
            verdict(zero, what, "rows behind the last offset are not zero");
        }
    }
    kda_device_free(&d);
    kda_case_free(&c);
}

static struct kda_spec plain(int64_t n_tok, int64_t n_head, enum kda_regime regime)
{
    return (struct kda_spec){.n_seq = 1,
                             .n_tok = n_tok,
                             .n_head = n_head,
                             .n_value_head = n_head,
                             .regime = regime,
                             .gate = BRIM_KDA_GATE_LOWER_BOUND,
                             .lower_bound = -5,
                             .flags = BRIM_KDA_L2NORM | BRIM_KDA_BETA_LOGIT,
                             .with_initial = 1,
                             .seed = (uint64_t)n_tok * 31 + (uint64_t)regime};
}

static void check_regimes(void)
{
    static const char *const names[] = {"typical",   "weak",         "saturated", "mixed",
                                        "alternate", "step",         "never",     "full",
                                        "collinear", "antiparallel", "zeros"};
    for (int r = 0; r <= KDA_ZEROS; r++) {
        struct kda_spec spec = plain(r == KDA_COLLINEAR ? 1024 : 513, 2, (enum kda_regime)r);
        check_spec(&spec, names[r]);
    }
    struct kda_spec spec = plain(4096, 1, KDA_WEAK);
    check_spec(&spec, "weak, 4096 tokens");
}

static void check_lengths(bool brief)
{
    static const int lengths[] = {1,  2,  15, 16, 17,  31,  32,  33,  47,  48,  63,  64,
                                  65, 95, 96, 97, 127, 128, 129, 448, 480, 481, 512, 960};
    for (size_t i = 0; i < (brief ? 8 : sizeof lengths / sizeof *lengths); i++) {
        struct kda_spec spec = plain(lengths[i], 1, KDA_TYPICAL);
        char what[32];
        snprintf(what, sizeof what, "%d tokens", lengths[i]);
        check_spec(&spec, what);
    }
}

static void check_forms(void)
{
    static const int64_t mixed[] = {1300, 547, 0, 2048, 963, 271, 1}, small[] = {64, 1, 33, 0},
                         none[] = {0, 0};
    for (int i = 0; i < 8; i++) {
        struct kda_spec spec = plain(100, 2, i & 1 ? KDA_MIXED : KDA_TYPICAL);
        char what[32];
        spec.n_seq = 3, spec.n_value_head = 4, spec.pad = 8, spec.seed += (uint64_t)i;
        spec.flags = (i & 1 ? BRIM_KDA_L2NORM : 0) | (i & 2 ? BRIM_KDA_BETA_LOGIT : 0) |
                     (i & 4 ? BRIM_KDA_STATE_K_FIRST : 0);
        spec.f32_beta = i % 3 == 0, spec.state_dtype = i & 2 ? BRIM_KERNEL_BF16 : BRIM_KERNEL_F32;
        spec.lower_bound = (float[]){-5, -1, -0.01f, -3}[i & 3];
        spec.with_initial = i != 3;
        if (i >= 4) spec.gate = BRIM_KDA_GATE_GIVEN, spec.f32_decay = i & 1;
        snprintf(what, sizeof what, "form %d", i);
        check_spec(&spec, what);
    }
    struct kda_spec spec = plain(0, 2, KDA_TYPICAL);
    spec.n_seq = 7, spec.lengths = mixed, spec.checkpoints = 1;
    check_spec(&spec, "packed, seven");
    spec.n_seq = 4, spec.lengths = small, spec.n_tok = 110, spec.offset_bytes = 4;
    check_spec(&spec, "packed, tail rows");
    spec.n_seq = 2, spec.lengths = none, spec.n_tok = 5;
    check_spec(&spec, "packed, all empty");
    int64_t ones[257];
    for (int i = 0; i < 257; i++) ones[i] = 1;
    if (!route || strstr(route, "c4") == NULL) {
        spec.n_seq = 257, spec.lengths = ones, spec.n_tok = 0, spec.checkpoints = 0;
        check_spec(&spec, "packed, 257 of one");
    }
}

/* Control words as earlier launches of any shape may have left them, finished or not: any epoch,
 * words of older generations with any bits, packets of NaN. Epochs up to the tag's wrap at 2^29. */
static void dirty_workspace(struct kda_device *d, const uint16_t *out, const float *final)
{
    enum { N_WORD = BRIM_KDA_MAX_TASK * KDA_CONTROL_BYTES / 4, PER_TASK = KDA_CONTROL_BYTES / 4 };
    struct kda_case *c = d->host;
    uint32_t *control = kda_alloc(N_WORD * 4);
    struct brim_rng rng = {99};
    for (int round = 0; round < 24; round++) {
        uint32_t wrap = round < 12 ? brim_rng_u32(&rng) : 0x1FFFFFFFu - brim_rng_u32(&rng) % 8u;
        for (int i = 0; i < N_WORD; i++) {
            uint32_t age = brim_rng_u32(&rng) % 6u;
            control[i] = i % PER_TASK == 0 ? wrap : (wrap - age) << 3 | (brim_rng_u32(&rng) & 7);
        }
        CUDA_OK(cudaMemset(d->args.workspace, 0xFF, d->args.workspace_bytes));
        CUDA_OK(cudaMemcpy(d->args.workspace, control, N_WORD * 4, cudaMemcpyHostToDevice));
        for (int repeat = 0; repeat < 3; repeat++) {
            CUDA_OK(cudaMemset(d->args.out, 0xFF, c->v_bytes));
            if (!run(d, "dirty workspace")) break;
            kda_device_fetch(d);
            verdict(!memcmp(out, c->out, c->v_bytes) && !memcmp(final, c->final, c->state_bytes),
                    "dirty workspace", "bits differ");
        }
    }
    free(control);
}

/* Everything that must be bit-equal to something else on the GPU. */
static void check_properties(void)
{
    static const int64_t lengths[] = {65, 0, 700, 33, 1};
    struct kda_spec spec = plain(0, 2, KDA_TYPICAL);
    struct kda_case c, one;
    struct kda_device d, e;
    spec.n_seq = 5, spec.lengths = lengths, spec.checkpoints = 1;
    kda_case_make(&c, &spec);
    kda_device_make(&d, &c, route);
    if (!run(&d, "properties")) return;
    kda_device_fetch(&d);
    uint16_t *out = kda_alloc(c.v_bytes);
    float *final = kda_alloc(c.state_bytes);
    memcpy(out, c.out, c.v_bytes), memcpy(final, c.final, c.state_bytes);

    /* repeats, over poisoned outputs */
    for (int i = 0; i < 50; i++) {
        CUDA_OK(cudaMemset(d.args.out, 0xFF, c.v_bytes));
        CUDA_OK(cudaMemset(d.args.final_state, 0xFF, c.state_bytes));
        if (!run(&d, "repeat")) return;
        kda_device_fetch(&d);
        verdict(!memcmp(out, c.out, c.v_bytes) && !memcmp(final, c.final, c.state_bytes), "repeat",
                "bits differ");
    }
    if (d.args.workspace) dirty_workspace(&d, out, final);
    /* each sequence alone, and its checkpoints as final states */
    int64_t row = 0;
    for (int n = 0; n < 5; n++) {
        for (int64_t cut = 64; cut <= lengths[n] + 64; cut += 64) {
            int64_t n_tok = cut <= lengths[n] ? cut : lengths[n];
            if (cut > 128 && cut <= lengths[n] - 128) continue;
            brim_kda_args a = d.args;
            a.cu_seqlens = NULL, a.offset_bytes = 0, a.n_seq = 1, a.n_tok = n_tok,
            a.checkpoints = NULL, a.route = route;
            a.q = (const uint16_t *)d.args.q + row * 256,
            a.k = (const uint16_t *)d.args.k + row * 256;
            a.v = (const uint16_t *)d.args.v + row * 256,
            a.g = (const uint16_t *)d.args.g + row * 256;
            a.beta = (const uint16_t *)d.args.beta + row * 2;
            a.initial_state = (const float *)d.args.initial_state + n * 2 * 16384;
            a.final_state = (float *)d.args.final_state + n * 2 * 16384;
            a.out = (uint16_t *)d.args.out + row * 256;
            brim_error err = {0};
            CUDA_OK(cudaMemset(d.args.out, 0xFF, c.v_bytes));
            verdict(brim_kda_prefill(&a, &err) == BRIM_OK, "alone", err.text);
            kda_device_fetch(&d);
            verdict(!memcmp(c.out + row * 256, out + row * 256, (size_t)n_tok * 512), "alone",
                    "output differs from packed");
            const float *want = final + n * 2 * 16384;
            if (cut <= lengths[n])
                want = (const float *)c.checkpoints + (row / 64 + cut / 64 - 1) * 2 * 16384;
            verdict(!memcmp((float *)c.final + n * 2 * 16384, want, 2 * 65536), "alone",
                    cut <= lengths[n] ? "checkpoint differs" : "state differs");
        }
        row += lengths[n];
    }
    /* in place, through a pool with one padding entry and one fresh slot */
    static const int32_t index[] = {4, 1, -1, 0, 2};
    static const uint8_t fresh[] = {0, 0, 0, 1, 0};
    brim_kda_args a = d.args;
    a.state_index = kda_upload(&d, index, sizeof index),
    a.fresh = kda_upload(&d, fresh, sizeof fresh);
    a.n_slot = 5, a.initial_state = a.final_state, a.route = route, a.checkpoints = NULL;
    CUDA_OK(cudaMemcpy(a.final_state, c.initial, c.state_bytes, cudaMemcpyHostToDevice));
    brim_error err = {0};
    verdict(brim_kda_prefill(&a, &err) == BRIM_OK, "pool", err.text);
    kda_device_fetch(&d);
    verdict(!memcmp((float *)c.final + 3 * 32768, (float *)c.initial + 3 * 32768, 131072), "pool",
            "an unused slot changed");
    verdict(!memcmp((float *)c.final + 1 * 32768, (float *)c.initial + 1 * 32768, 131072), "pool",
            "an empty sequence changed its slot");
    verdict(memcmp((float *)c.final + 4 * 32768, (float *)c.initial + 4 * 32768, 131072) != 0,
            "pool", "slot 4 was not written");

    /* capture once, replay with other offsets of the same count */
    static const int64_t moved[] = {0, 10, 400, 401, 799, 799};
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    a = d.args;
    a.stream = stream, a.route = route, a.max_tok = 799;
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    verdict(brim_kda_prefill(&a, &err) == BRIM_OK, "capture", err.text);
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_OK(cudaMemcpy((void *)d.args.cu_seqlens, moved, sizeof moved, cudaMemcpyHostToDevice));
    CUDA_OK(cudaMemset(d.args.checkpoints, 0xFF, c.checkpoint_bytes));
    for (int i = 0; i < 20; i++) CUDA_OK(cudaGraphLaunch(exec, stream));
    kda_device_fetch(&d);
    memcpy(c.offsets, moved, sizeof moved);
    c.args.max_tok = 799;
    judge(&c, &spec, "graph replay");
    kda_device_free(&d);
    kda_case_free(&c);

    /* later tokens change nothing before them; NaN stays in its sequence and behind its chunk */
    spec = plain(200, 1, KDA_TYPICAL);
    spec.n_seq = 2;
    kda_case_make(&c, &spec);
    kda_device_make(&d, &c, route);
    run(&d, "causality");
    kda_device_fetch(&d);
    for (int t = 1; t < 200; t += 13) {
        kda_case_make(&one, &spec);
        for (int i = t * 128; i < 200 * 128; i++)
            one.q[i] = 0x4100, one.k[i] ^= 0x8000, one.v[i] ^= 0x8040,
            ((uint16_t *)one.g)[i] = 0x40A0;
        kda_device_make(&e, &one, route);
        run(&e, "causality");
        kda_device_fetch(&e);
        verdict(!memcmp(c.out, one.out, (size_t)t * 256), "causality", "an earlier output changed");
        kda_device_free(&e);
        kda_case_free(&one);
        kda_case_make(&one, &spec);
        one.k[t * 128 + 5] = one.v[t * 128] = ((uint16_t *)one.g)[t * 128 + 9] = 0x7FC0;
        kda_device_make(&e, &one, route);
        run(&e, "isolation");
        kda_device_fetch(&e);
        verdict(!memcmp(c.out, one.out, (size_t)(t / 32 * 32) * 256), "isolation",
                "NaN reached an earlier chunk");
        verdict(!memcmp(c.out + 200 * 128, one.out + 200 * 128, 200 * 256), "isolation",
                "NaN reached another sequence");
        kda_device_free(&e);
        kda_case_free(&one);
    }
    /* chunk-aligned split continues bit for bit */
    brim_kda_args head = d.args, tail = d.args;
    head.n_seq = tail.n_seq = 1, head.n_tok = 96, tail.n_tok = 104, head.route = tail.route = route;
    CUDA_OK(cudaMemset(d.args.out, 0xFF, c.v_bytes));
    memcpy(out, c.out, 200 * 256), memcpy(final, c.final, 65536);
    tail.initial_state = head.final_state;
    tail.q = (const uint16_t *)head.q + 96 * 128, tail.k = (const uint16_t *)head.k + 96 * 128;
    tail.v = (const uint16_t *)head.v + 96 * 128, tail.g = (const uint16_t *)head.g + 96 * 128;
    tail.beta = (const uint16_t *)head.beta + 96, tail.out = (uint16_t *)head.out + 96 * 128;
    verdict(brim_kda_prefill(&head, &err) == BRIM_OK && brim_kda_prefill(&tail, &err) == BRIM_OK,
            "split", err.text);
    kda_device_fetch(&d);
    verdict(!memcmp(out, c.out, 200 * 256) && !memcmp(final, c.final, 65536), "split",
            "bits differ");
    kda_device_free(&d);
    kda_case_free(&c);
    free(out), free(final);
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaStreamDestroy(stream));
}

int main(int argc, char **argv)
{
    bool quick = false, bits = false;
    bool brief = false; /* small shapes, for the sanitizers */
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "quick"))
            quick = true;
        else if (!strcmp(argv[i], "short"))
            quick = brief = true;
        else if (!strcmp(argv[i], "bits"))
            bits = brief = true;
        else
            route = argv[i];
    }
    int n_device;
    if (cudaGetDeviceCount(&n_device) != cudaSuccess || n_device == 0) {
        printf("SKIP: no CUDA device\n");
        return 77;
    }
    if (brim_pool_create(&pool, 0, NULL) != BRIM_OK) return 2;
    struct kda_spec first = plain(32, 1, KDA_TYPICAL);
    first.with_initial = 0;
    check_spec(&first, "one chunk, no state");
    first = plain(64, 1, KDA_TYPICAL);
    check_spec(&first, "two chunks");
    check_lengths(brief);
    if (!brief) check_regimes();
    if (!quick) {
        if (!bits) check_forms();
        check_properties();
    }
    printf("%s: %d checks, %d failed\n", route ? route : "automatic route", n_check, n_fail);
    brim_pool_free(&pool);
    return n_fail != 0;
}
