/* SPDX-License-Identifier: Apache-2.0
 * Route split-join on the GPU (or the emulator): segments joined through their state maps.
 *     check_kda_join [short]      checks; few of them, for the sanitizers
 * The error against fp64 may be 1.2 times the serial route's, whatever the gates; one segment has
 * the serial route's bits; what runs beside a task, before it or at the same time changes nothing;
 * the CPU's model agrees. */
#include "check/kda_adversary.h"
#include "cuda/kda_pinned.h"

static int64_t tasks_of(const struct kda_case *c)
{
    return c->args.n_seq * c->args.n_value_head;
}

static struct kda_error *measure_all(const struct kda_case *c)
{
    struct kda_error *e = kda_alloc((size_t)tasks_of(c) * sizeof *e);
    for (int64_t i = 0; i < tasks_of(c); i++)
        e[i] = kda_measure(&c->args, i / c->args.n_value_head, i % c->args.n_value_head);
    return e;
}

/* Root mean square of a - b over that of b. */
static double apart(const float *a, const float *b, int64_t n)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    return size > 0 ? sqrt(difference / size) : difference > 0 ? INFINITY : 0;
}

/* A task's outputs in the case beside the model's. Their roundings are the same, their sums are
 * made in another order, which moves some operands over a border between two bf16: the difference
 * is part of the error that either has (seen: up to 0.55 of it, 0.4 of the serial route's). */
static void agree(struct kda_case *c, int64_t seq, int64_t head, int length,
                  const struct kda_error *own, const char *what)
{
    struct brim_kda_task task, model;
    brim_kda_task_make(&c->args, seq, head, &task);
    model = task;
    model.out = kda_alloc((size_t)(task.n_tok * task.out_token + 128) * 2);
    float *final = kda_alloc(16384 * 4), *got = kda_alloc(16384 * 4), *want = kda_alloc(16384 * 4);
    if (task.final) model.final = final;
    model.checkpoints = NULL;
    if (brim_kda_join_task(&c->args, &model, BRIM_KDA_GPU, length, NULL) != BRIM_OK) exit(2);
    float *a = kda_alloc((size_t)(task.n_tok * 128 + 1) * 4),
          *b = kda_alloc((size_t)(task.n_tok * 128 + 1) * 4);
    for (int64_t t = 0; t < task.n_tok; t++)
        for (int i = 0; i < 128; i++) {
            a[t * 128 + i] = brim_f32_from_bf16(task.out[t * task.out_token + i]);
            b[t * 128 + i] = brim_f32_from_bf16(model.out[t * task.out_token + i]);
        }
    brim_kda_state_load(&c->args, task.final, got);
    brim_kda_state_load(&c->args, final, want);
    double out = apart(a, b, task.n_tok * 128), state = apart(got, want, 16384);
    char why[200];
    snprintf(why, sizeof why, "out and state %.2e %.2e off the model's, errors %.2e %.2e", out,
             state, own->out, own->state);
    verdict(out <= 0.7 * own->out && state <= 0.7 * own->state, what, length, (int)head, why);
    free(model.out), free(final), free(got), free(want), free(a), free(b);
}

/* LOOSE: a state of one direction, whose error is a single rounding
 * (kda_adversary_join_quotient). CUT: bits must differ from the serial route's. */
enum kind { PLAIN, LOOSE, CUT };

/* Every segment joined, for lengths [first, last]. Of one or two segments nothing is joined: the
 * first one's state is the serial route's, to the bit. */
static void check_lengths(const char *what, struct kda_case *c, int first, int last, enum kind kind)
{
    struct kda_device d;
    char why[200];
    kda_device_make(&d, c, "m128");
    run(&d, "m128", 0, 0, false);
    bool ok = kda_device_fetch(&d);
    struct outputs serial = outputs_keep(c);
    struct kda_error *base = measure_all(c);
    int64_t n_chunk = ((c->args.cu_seqlens ? c->args.max_tok : c->args.n_tok) + 31) / 32;
    for (int round = 0; round < 2 * (last + 1 - first); round++) {
        int length = first + round / 2, lead = round & 1; /* the first segment a chunk longer */
        bool joined = 2 * length + lead < n_chunk;
        d.args.split_first = lead ? length + lead : 0;
        run(&d, "split-join", length, 0, true);
        ok = kda_device_fetch(&d) && ok;
        snprintf(why, sizeof why, "a guard byte changed");
        if (!joined && !outputs_same(&serial, c))
            ok = false, snprintf(why, sizeof why, "nothing to join, but not m128's bits");
        if (kind == CUT && joined && outputs_same(&serial, c))
            ok = false, snprintf(why, sizeof why, "m128's bits: nothing was joined");
        struct kda_error *own = measure_all(c);
        for (int64_t i = 0; i < tasks_of(c) && ok; i++) {
            const struct kda_error *e = &own[i], *b = &base[i];
            ok = kind == LOOSE
                     ? kda_adversary_join_quotient(e, b) <= 1.2
                     : e->finite && e->out <= 1.2 * b->out + 1e-7 &&
                           e->window <= 1.2 * b->window + 1e-7 && e->state <= 1.2 * b->state + 1e-7;
            snprintf(why, sizeof why, "task %d: %.2e %.2e %.2e beside %.2e %.2e %.2e", (int)i,
                     e->out, e->window, e->state, b->out, b->window, b->state);
        }
        verdict(ok, what, length, lead, why);
        if (ok && kind != LOOSE && !lead) /* the reference's segments are equal */
            agree(c, 0, c->args.n_value_head - 1, length, &own[c->args.n_value_head - 1], what);
        free(own);
        ok = true;
    }
    free(base);
    outputs_drop(&serial);
    kda_device_free(&d);
}

static struct kda_spec spec_of(int64_t n_tok, enum kda_regime regime)
{
    struct kda_spec spec = kda_plain(n_tok, 1, regime);
    spec.checkpoints = 1, spec.seed = 5;
    return spec;
}

static void errors(bool few)
{
    struct kda_case c;
    struct kda_spec spec = spec_of(245, KDA_WEAK);
    kda_case_make(&c, &spec); /* eight chunks, so every number of segments that there can be */
    check_lengths("weak, every length", &c, few ? 3 : 1, few ? 3 : 9, CUT);
    kda_case_free(&c);
    if (few) return;
    for (int regime = KDA_TYPICAL; regime <= KDA_ZEROS; regime++) {
        spec = spec_of(200, (enum kda_regime)regime);
        kda_case_make(&c, &spec);
        check_lengths("regime", &c, 2, 3, PLAIN);
        kda_case_free(&c);
    }
    for (int form = 0; form < KDA_N_BREAK; form++) {
        kda_break_make(&c, (enum kda_break)form, 320);
        check_lengths("made to break a skip", &c, 1, 3, PLAIN);
        kda_case_free(&c);
    }
    for (int form = 0; form < 2; form++) { /* two segments write nothing after a state of 1e6 */
        spec = spec_of(224, KDA_WEAK);
        kda_case_make(&c, &spec);
        for (int i = 0; i < 16384; i++) ((float *)c.initial)[i] *= 1e6f;
        for (int64_t t = 64; t < 192; t++) {
            if (form == 0) memset(c.v + t * 128, 0, 256);
            if (form == 1) ((uint16_t *)c.beta)[t] = brim_bf16_from_f32(-1e4f);
        }
        check_lengths("writes nothing", &c, 2, 2, PLAIN);
        kda_case_free(&c);
    }
    /* the worst of 12,500 seeds of search/search_kda_split.c, as in unit/test_kda_join.c */
    static const uint64_t seeds[] = {6925, 6530, 419, 13131, 16622, 12091};
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        struct kda_adversary a;
        kda_adversary_make(&a, seeds[i]);
        check_lengths("seed", &a.c, a.length, a.length, LOOSE);
        kda_case_free(&a.c);
    }
}

/* The maps themselves. What differs is the packets' operands that another order of sums has moved
 * over a border between two bf16 (seen: up to 1.1e-4); operands of the map's products that are
 * single bf16 would be off by ten times that. */
static void maps(enum kda_regime regime)
{
    enum { LENGTH = 2, N_MAP = 3 };
    static const uint16_t no_value[128];
    struct kda_spec spec = spec_of(300, regime);
    struct kda_case c;
    struct kda_device d;
    brim_kda_plan whole;
    brim_error err = {0};
    kda_case_make(&c, &spec);
    kda_device_make(&d, &c, "m128");
    run(&d, "split-join", LENGTH, 0, true);
    CUDA_OK(cudaDeviceSynchronize());
    struct brim_kda_split_plan plan =
        brim_kda_split_plan_exact(&(struct brim_kda_split_call){.n_seq = 1,
                                                                .n_row = 300,
                                                                .max_tok = 300,
                                                                .n_value_head = 1,
                                                                .n_processor = 132,
                                                                .length = LENGTH});
    if (brim_kda_plan_make(&d.args, &whole, &err) != BRIM_OK) exit(2);
    const char *own = (char *)d.args.workspace + whole.workspace_bytes - plan.workspace_bytes;
    float *got = kda_alloc(N_MAP * 65536), *want = kda_alloc(65536), *turned = kda_alloc(65536);
    CUDA_OK(cudaMemcpy(got, own + plan.map_at + 65536, N_MAP * 65536, cudaMemcpyDeviceToHost));
    void *scratch = aligned_alloc(64, (brim_kda_chunk_scratch_bytes() + 63) / 64 * 64);
    struct brim_kda_task task;
    brim_kda_task_make(&c.args, 0, 0, &task);
    task.v = no_value, task.v_token = 0;
    for (int i = 0; i < N_MAP; i++) {
        memset(want, 0, 65536);
        for (int k = 0; k < 128; k++) want[k * 129] = 1;
        struct brim_kda_range range = {
            (i + 1) * LENGTH, (i + 2) * LENGTH, true, want, NULL, NULL, true};
        brim_kda_chunk_range(&c.args, &task, BRIM_KDA_GPU, &range, scratch);
        for (int k = 0; k < 128; k++)
            for (int j = 0; j < 128; j++) turned[j * 128 + k] = want[k * 128 + j];
        double off = apart(got + i * 16384, turned, 16384);
        char why[64];
        snprintf(why, sizeof why, "%.2e off the model's", off);
        verdict(off <= 3e-4, "map", (int)regime, i, why);
    }
    free(got), free(want), free(turned), free(scratch);
    kda_device_free(&d);
    kda_case_free(&c);
}

/* Arguments in all their forms. */
static void forms(bool few)
{
    struct kda_case c;
    for (int form = few ? 2 : 0; form < (few ? 3 : 6); form++) {
        struct kda_spec spec = spec_of(150, form & 1 ? KDA_MIXED : KDA_WEAK);
        spec.n_seq = 2;
        spec.checkpoints = form & 1;
        spec.pad = 8;
        if (form == 0) spec.n_head = 1, spec.n_value_head = 2;
        if (form == 1) spec.with_initial = 0, spec.state_dtype = BRIM_KERNEL_BF16;
        if (form == 2) spec.gate = BRIM_KDA_GATE_GIVEN, spec.f32_decay = spec.f32_beta = 1;
        if (form == 3) spec.gate = BRIM_KDA_GATE_GIVEN, spec.lower_bound = 0;
        if (form == 4) spec.gate = BRIM_KDA_GATE_SOFTPLUS, spec.lower_bound = 0;
        if (form == 5) spec.flags |= BRIM_KDA_STATE_K_FIRST;
        kda_case_make(&c, &spec);
        check_lengths("form", &c, 1 + form % 2, 1 + form % 2, PLAIN);
        kda_case_free(&c);
    }
    static const int64_t mixes[][6] = {{0, 140, 0, 1, 230, 0},
                                       {64, 1, 33, 0, 0, 150},
                                       {31, 32, 33, 95, 96, 97},
                                       {0, 0, 0, 0, 0, 0}};
    for (int i = 0; i < (few ? 1 : 4); i++) {
        struct kda_spec spec = spec_of(420, i & 1 ? KDA_TYPICAL : KDA_WEAK);
        spec.n_seq = 6;
        spec.lengths = mixes[i];
        spec.offset_bytes = i & 1 ? 4 : 8;
        kda_case_make(&c, &spec);
        check_lengths("packed mix", &c, 1, few ? 1 : 2, PLAIN);
        kda_case_free(&c);
    }
}

static void expect_same(struct kda_device *d, const struct outputs *want, const char *what,
                        int round)
{
    bool clean = kda_device_fetch(d);
    verdict(clean && outputs_same(want, d->host), what, round, 0,
            clean ? "bits differ" : "a guard byte changed");
}

/* What must not matter: repeats, a workspace that other calls or an aborted one have left, a state
 * replaced in place, slots of a pool, the other sequences of a call, a graph. */
static void properties(bool few)
{
    enum { LENGTH = 2 };
    static const int64_t lengths[] = {150, 0, 33, 97};
    struct kda_spec spec = spec_of(0, KDA_WEAK);
    struct kda_case c;
    struct kda_device d;
    spec.n_seq = 4, spec.lengths = lengths;
    kda_case_make(&c, &spec);
    kda_device_make(&d, &c, "m128");
    run(&d, "split-join", LENGTH, 0, true);
    kda_device_fetch(&d);
    struct outputs first = outputs_keep(&c);
    for (int i = 0; i < (few ? 2 : 200); i++) {
        run(&d, "split-join", LENGTH, 0, true);
        expect_same(&d, &first, "repeat", i);
    }
    uint32_t *control = d.args.workspace;
    size_t n_control = (size_t)BRIM_KDA_MAX_TASK * KDA_CONTROL_BYTES;
    CUDA_OK(cudaMemset(control, 0xFF, n_control));
    run(&d, "split-join", LENGTH, 0, true);
    expect_same(&d, &first, "control words of an aborted call", 0);
    CUDA_OK(cudaMemset(control, 0xFF, n_control)); /* every task is marked: it is joined */
    run(&d, "split-join", LENGTH, 1, false);
    expect_same(&d, &first, "control words of an aborted call", 1);
    run(&d, "split", LENGTH, 1, false); /* it leaves records where the join has others */
    brim_error err = {0};
    d.args.route = "split-join", d.args.split_window = 0, d.args.split_exact = true;
    if (brim_kda_prefill(&d.args, &err) != BRIM_OK) exit(2);
    expect_same(&d, &first, "a workspace that another route has left", 0);

    void *final = d.args.final_state;
    CUDA_OK(cudaMemcpy(final, c.initial, c.state_bytes, cudaMemcpyHostToDevice));
    const void *initial = d.args.initial_state;
    d.args.initial_state = final;
    run(&d, "split-join", LENGTH, 0, true);
    expect_same(&d, &first, "state in place", 0);

    /* pools: sequence 0 in slot 3, 2 in slot 0, 3 nowhere */
    static const int32_t index[] = {3, 2, 0, -1};
    static const uint8_t fresh[] = {0, 0, 1, 0};
    d.args.state_index = kda_upload(&d, index, sizeof index);
    d.args.n_slot = 4;
    CUDA_OK(cudaMemset(final, 0xFF, c.state_bytes));
    CUDA_OK(cudaMemcpy((char *) final + 3 * 65536, c.initial, 65536, cudaMemcpyHostToDevice));
    CUDA_OK(
        cudaMemcpy((char *) final, (char *)c.initial + 2 * 65536, 65536, cudaMemcpyHostToDevice));
    run(&d, "split-join", LENGTH, 0, true);
    bool clean = kda_device_fetch(&d);
    verdict(clean && !memcmp(c.out, first.out, 183 * 256), "pool", 0, 0, "outputs differ");
    verdict(!memcmp((char *)c.final + 3 * 65536, first.final, 65536) &&
                !memcmp(c.final, first.final + 2 * 65536, 65536),
            "pool", 1, 0, "states differ");
    bool untouched = true;
    for (int i = 0; i < 65536; i++) untouched = untouched && ((uint8_t *)c.final)[65536 + i] == 255;
    verdict(untouched, "pool", 2, 0, "a slot that no sequence has was written");
    uint16_t *third = kda_alloc(97 * 256);
    memcpy(third, c.out + 183 * 128, 97 * 256);
    d.args.state_index = NULL;
    d.args.initial_state = NULL; /* what sequence 3 has seen */
    run(&d, "split-join", LENGTH, 0, true);
    kda_device_fetch(&d);
    verdict(!memcmp(third, c.out + 183 * 128, 97 * 256), "pool", 3, 0, "not from zero");
    memcpy(third, c.out + 150 * 128, 33 * 256);
    d.args.initial_state = initial;
    d.args.fresh = kda_upload(&d, fresh, sizeof fresh);
    run(&d, "split-join", LENGTH, 0, true);
    kda_device_fetch(&d);
    verdict(!memcmp(third, c.out + 150 * 128, 33 * 256) && !memcmp(c.out, first.out, 150 * 256),
            "fresh", 0, 0, "outputs differ");
    free(third);
    d.args.fresh = NULL;

    /* a graph, replayed with other offsets of as many rows */
    static const int64_t moved[] = {0, 40, 210, 210, 280};
    cudaStream_t streams[2], stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    for (int i = 0; i < 2; i++)
        CUDA_OK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    stream = streams[0];
    d.args.stream = stream, d.args.max_tok = 170;
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    verdict(brim_kda_prefill(&d.args, &err) == BRIM_OK, "capture", 0, 0, err.text);
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_OK(cudaMemset(d.args.checkpoints, 0xFF, c.checkpoint_bytes));
    CUDA_OK(cudaMemset(d.args.out, 0xFF, c.v_bytes));
    for (int i = 0; i < 3; i++) CUDA_OK(cudaGraphLaunch(exec, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    expect_same(&d, &first, "graph", 0);
    CUDA_OK(cudaMemcpy((void *)d.args.cu_seqlens, moved, sizeof moved, cudaMemcpyHostToDevice));
    CUDA_OK(cudaMemset(d.args.checkpoints, 0xFF, c.checkpoint_bytes));
    CUDA_OK(cudaGraphLaunch(exec, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    kda_device_fetch(&d);
    struct outputs replayed = outputs_keep(&c);
    d.args.stream = NULL;
    run(&d, "split-join", LENGTH, 0, true);
    expect_same(&d, &replayed, "graph, other offsets", 0);
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));

    /* a sequence alone, on another stream at the same time: the same segments, the same bits */
    spec.lengths = NULL, spec.n_seq = 1, spec.n_tok = 150;
    struct kda_case one;
    struct kda_device e;
    kda_case_make(&one, &spec);
    memcpy(one.q, c.q, one.q_bytes), memcpy(one.k, c.k, one.q_bytes);
    memcpy(one.v, c.v, one.v_bytes), memcpy(one.g, c.g, one.g_bytes);
    memcpy(one.beta, c.beta, one.beta_bytes), memcpy(one.initial, c.initial, one.state_bytes);
    memcpy(one.a_log, c.a_log, 4), memcpy(one.dt_bias, c.dt_bias, 512);
    kda_device_make(&e, &one, "m128");
    run(&e, "split-join", LENGTH, 0, true); /* makes the workspace */
    CUDA_OK(cudaMemset(e.args.out, 0xFF, one.v_bytes));
    CUDA_OK(cudaDeviceSynchronize());
    d.args.stream = streams[0], e.args.stream = streams[1];
    for (int i = 0; i < 3; i++)
        verdict(brim_kda_prefill(&d.args, &err) == BRIM_OK &&
                    brim_kda_prefill(&e.args, &err) == BRIM_OK,
                "two streams", i, 0, err.text);
    expect_same(&d, &replayed, "two streams", 3);
    kda_device_fetch(&e);
    verdict(!memcmp(one.out, first.out, one.v_bytes) &&
                !memcmp(one.final, first.final, one.state_bytes) &&
                !memcmp(one.checkpoints, first.checkpoints, one.checkpoint_bytes),
            "alone", 0, 0, "bits differ");
    for (int i = 0; i < 2; i++) CUDA_OK(cudaStreamDestroy(streams[i]));
    kda_device_free(&e);
    kda_case_free(&one);
    outputs_drop(&first);
    outputs_drop(&replayed);
    kda_device_free(&d);
    kda_case_free(&c);
}

/* With windows: a task whose cuts hold has the split's bits, another one the exact chain's. */
static void windows(void)
{
    enum { LENGTH = 2 };
    for (int form = 0; form < 3; form++) {
        struct kda_spec spec = spec_of(230, KDA_TYPICAL);
        struct kda_case c;
        struct kda_device d;
        spec.n_head = spec.n_value_head = 2;
        kda_case_make(&c, &spec);
        /* head 1 remembers: everywhere; after the first segments; not once all is known */
        for (int64_t t = form == 1 ? 96 : 0; t < 230; t++)
            for (int i = 128; i < 256; i++)
                if (form < 2) ((uint16_t *)c.g)[t * 256 + i] = brim_bf16_from_f32(-12);
        kda_device_make(&d, &c, "m128");
        run(&d, "split", LENGTH, 1, false);
        kda_device_fetch(&d);
        struct outputs split = outputs_keep(&c);
        run(&d, "split-join", LENGTH, 0, true);
        kda_device_fetch(&d);
        struct outputs exact = outputs_keep(&c);
        for (int place = 0; place < 2; place++) {
            if (place) {
                CUDA_OK(cudaMemcpy(d.args.final_state, c.initial, c.state_bytes,
                                   cudaMemcpyHostToDevice));
                d.args.initial_state = d.args.final_state;
            }
            run(&d, "split-join", LENGTH, 1, false);
            bool ok = kda_device_fetch(&d);
            verdict(ok, "windows", form, place, "a guard byte changed");
            for (int head = 0; head < 2; head++) {
                const struct outputs *want = head == 1 && form < 2 ? &exact : &split;
                ok = !memcmp((char *)c.final + head * 65536, want->final + head * 65536, 65536);
                for (int64_t t = 0; t < 230; t++)
                    ok = ok && !memcmp(c.out + t * 256 + head * 128,
                                       want->out + t * 256 + head * 128, 256);
                for (int64_t i = head; i < 6; i += 2)
                    ok = ok && !memcmp((char *)c.checkpoints + i * 65536,
                                       want->checkpoints + i * 65536, 65536);
                verdict(ok, "windows", form, head, "bits differ");
            }
        }
        /* marks are cleared by whoever has seen them, or the next call could not cut */
        uint32_t words[2 * KDA_CONTROL_BYTES / 4];
        CUDA_OK(cudaMemset(d.args.workspace, 0xFF, sizeof words));
        run(&d, "split-join", LENGTH, 1, false);
        CUDA_OK(cudaMemcpy(words, d.args.workspace, sizeof words, cudaMemcpyDeviceToHost));
        for (int head = 0; head < 2; head++)
            verdict(words[(head * KDA_CONTROL_BYTES + KDA_DROP_LINE * KDA_LINE) / 4] == 0, "mark",
                    form, head, "still set");
        outputs_drop(&split);
        outputs_drop(&exact);
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
    bool few = argc > 1 && !strcmp(argv[1], "short");
    maps(KDA_WEAK);
    if (!few) maps(KDA_ANTIPARALLEL), maps(KDA_MIXED), maps(KDA_COLLINEAR);
    errors(few);
    forms(few);
    properties(few);
    windows();
    printf("%d passed, %d failed\n", n_pass, n_fail);
    return n_fail > 0;
}
