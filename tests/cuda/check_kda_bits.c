/* SPDX-License-Identifier: Apache-2.0
 * What must be bit-equal to something else on the GPU, for every route named, those that cut
 * included (pinned to segments of two chunks): repeats, workspaces left dirty, two streams, capture
 * and replay with other offsets, a sequence alone and in a batch, prefixes, later tokens. Serial
 * routes must give m128's bits as well. check_kda_bits [route[,route...]] [short] Exit status 1 on
 * any failure. */
#include "cuda/kda/layout.h"
#include "cuda/kda_judge.h"
#include "cuda/kda_marginal.h"
#include "plan/kda_route.h"

static bool is_split(void)
{
    return !strcmp(route, "split");
}

static bool is_cut(void)
{
    return kda_cuts(route);
}

static struct kda_spec plain(int64_t n_tok, int64_t n_head, enum kda_regime regime)
{
    struct kda_spec spec = kda_plain(n_tok, n_head, regime);
    spec.seed = (uint64_t)n_tok * 31 + (uint64_t)regime;
    return spec;
}

/* Five sequences, one empty; the longest takes several uses of every ring. */
static const int64_t lengths_full[] = {65, 0, 700, 33, 1}, lengths_brief[] = {65, 0, 97, 33, 1};

static const int64_t *packed(struct kda_spec *spec)
{
    const int64_t *lengths = brief ? lengths_brief : lengths_full;
    *spec = plain(0, brief ? 1 : 2, KDA_TYPICAL);
    spec->n_seq = 5, spec->lengths = lengths, spec->checkpoints = 1;
    return lengths;
}

/* A run in the forms that change the addressing: beside m128 to the bit, the split to 1.2 times its
 * error. */
static void check_forms(void)
{
    for (int form = 0; form < 5; form++) {
        struct kda_spec spec = plain(brief ? 97 : 290, 2, KDA_TYPICAL);
        struct kda_case c;
        struct kda_device d;
        char what[32], text[160];
        if (brief && form > 2) break;
        spec.n_value_head = 4, spec.pad = 8, spec.checkpoints = 1;
        spec.no_rate = form == 0, spec.no_bias = form < 2, spec.scale = form == 2 ? -0.3f : 0;
        if (form == 1) spec.gate = BRIM_KDA_GATE_SOFTPLUS, spec.lower_bound = 0, spec.n_seq = 2;
        if (form == 2)
            spec.flags |= BRIM_KDA_STATE_K_FIRST, spec.state_dtype = BRIM_KERNEL_BF16,
                                                  spec.lower_bound = -3;
        if (form == 3) spec.gate = BRIM_KDA_GATE_GIVEN, spec.f32_decay = spec.f32_beta = 1;
        if (form == 4) spec.regime = KDA_MIXED;
        snprintf(what, sizeof what, "form %d", form);
        kda_case_make(&c, &spec);
        kda_device_make(&d, &c, route);
        const char *own = route;
        route = "m128";
        run_and_fetch(&d, what);
        struct outputs serial = outputs_keep(&c);
        int n = (int)(spec.n_seq * spec.n_value_head);
        struct kda_error base[8];
        for (int i = 0; i < n; i++)
            base[i] = kda_measure(&c.args, i / spec.n_value_head, i % spec.n_value_head);
        route = own;
        run_and_fetch(&d, what);
        bool same = outputs_same(&serial, &c);
        if (!is_cut()) verdict(same, what, "bits differ from m128's");
        if (is_split() && form == 4) verdict(same, what, "no cut may hold, and m128's bits differ");
        for (int i = 0; i < n && is_cut(); i++) {
            struct kda_error e = kda_measure(&c.args, i / spec.n_value_head, i % spec.n_value_head);
            snprintf(text, sizeof text, "task %d: %.2e %.2e %.2e beside %.2e %.2e %.2e", i, e.out,
                     e.window, e.state, base[i].out, base[i].window, base[i].state);
            verdict(e.finite && e.out <= 1.2 * base[i].out && e.window <= 1.2 * base[i].window &&
                        e.state <= 1.2 * base[i].state + 1e-7,
                    what, text);
        }
        outputs_drop(&serial);
        kda_device_free(&d);
        kda_case_free(&c);
    }
}

/* Everything behind the control words as one of: NaN, zeros, large and small numbers of any sign.
 */
static void dirty_rest(struct kda_device *d, size_t control, int round, struct brim_rng *rng)
{
    char *rest = (char *)d->args.workspace + control;
    size_t n = d->args.workspace_bytes > control ? d->args.workspace_bytes - control : 0;
    CUDA_OK(cudaMemset(rest, round % 3 == 1 ? 0 : 0xFF, n));
    if (round % 3 < 2) return;
    uint32_t *noise = kda_alloc(n);
    for (size_t i = 0; i < n / 4; i++) noise[i] = brim_rng_u32(rng);
    CUDA_OK(cudaMemcpy(rest, noise, n, cudaMemcpyHostToDevice));
    free(noise);
}

/* Control words as earlier launches of any shape may have left them, finished or not: any epoch,
 * words of older generations with any bits; packets and records of anything. Epochs up to the tag's
 * wrap at 2^29. */
static void dirty_workspace(struct kda_device *d, const struct outputs *clean)
{
    enum { N_WORD = BRIM_KDA_MAX_TASK * KDA_CONTROL_BYTES / 4, PER_TASK = KDA_CONTROL_BYTES / 4 };
    struct kda_case *c = d->host;
    uint32_t *control = kda_alloc(N_WORD * 4);
    struct brim_rng rng = {99};
    for (int round = 0; round < (brief ? 4 : 24); round++) {
        uint32_t wrap = round < 12 && !(brief && round == 3)
                            ? brim_rng_u32(&rng)
                            : 0x1FFFFFFFu - brim_rng_u32(&rng) % 8u;
        for (int i = 0; i < N_WORD; i++) {
            uint32_t age = brim_rng_u32(&rng) % 6u;
            control[i] = i % PER_TASK == 0 ? wrap : (wrap - age) << 3 | (brim_rng_u32(&rng) & 7);
            if (i % PER_TASK / (KDA_LINE / 4) == KDA_DROP_LINE) control[i] = 0;
        }
        CUDA_OK(cudaMemcpy(d->args.workspace, control, N_WORD * 4, cudaMemcpyHostToDevice));
        dirty_rest(d, N_WORD * 4, round, &rng);
        for (int repeat = 0; repeat < (brief ? 2 : 3); repeat++) {
            if (!run_and_fetch(d, "dirty workspace")) break;
            verdict(outputs_same(clean, c), "dirty workspace", "bits differ");
        }
    }
    free(control);
}

/* A split's mark left behind, that a cut has failed: the next call is serial, m128's bits, and
 * takes the mark away; so it is with several. */
static void check_mark(void)
{
    struct kda_case c;
    struct kda_device d;
    kda_marginal_make(&c);
    kda_device_make(&d, &c, "split");
    const char *name = route;
    route = "m128";
    run_and_fetch(&d, "mark");
    struct outputs serial = outputs_keep(&c);
    route = name;
    run_and_fetch(&d, "mark");
    struct outputs cut = outputs_keep(&c);
    verdict(!outputs_same(&serial, &c), "mark", "cut or not, the bits are the same");
    for (int repeat = 0; repeat < 4; repeat++) {
        /* of the whole task, of none of its segments */
        static const uint32_t marks[] = {0xFFFFFFFFu, 0, 1, 0};
        char *word = (char *)d.args.workspace + KDA_DROP_LINE * KDA_LINE;
        if (marks[repeat]) CUDA_OK(cudaMemcpy(word, &marks[repeat], 4, cudaMemcpyHostToDevice));
        run_and_fetch(&d, "mark");
        bool whole = marks[repeat] == 0xFFFFFFFFu;
        verdict(outputs_same(whole ? &serial : &cut, &c), "mark",
                whole ? "a marked task is not m128's" : "the mark is still there");
    }
    outputs_drop(&serial), outputs_drop(&cut);
    kda_device_free(&d);
    kda_case_free(&c);
}

/* Sequence n of a packed call, its first n_tok tokens, as a call of its own. */
static brim_kda_args alone(const struct kda_device *d, int64_t row, int n, int64_t n_tok)
{
    brim_kda_args a = d->args;
    int64_t h = a.n_head;
    a.cu_seqlens = NULL, a.offset_bytes = 0, a.n_seq = 1, a.n_tok = n_tok;
    a.checkpoints = NULL, a.route = route;
    a.q = (const uint16_t *)a.q + row * h * 128, a.k = (const uint16_t *)a.k + row * h * 128;
    a.v = (const uint16_t *)a.v + row * h * 128, a.g = (const uint16_t *)a.g + row * h * 128;
    a.beta = (const uint16_t *)a.beta + row * h, a.out = (uint16_t *)a.out + row * h * 128;
    a.initial_state = (const float *)a.initial_state + n * h * 16384;
    a.final_state = (float *)a.final_state + n * h * 16384;
    return a;
}

/* Each sequence alone; its prefixes, whose final states are the checkpoints. */
static void check_alone(struct kda_device *d, const int64_t *lengths, const struct outputs *want)
{
    struct kda_case *c = d->host;
    int64_t row = 0, h = c->args.n_head;
    for (int n = 0; n < 5; n++) {
        for (int64_t cut = 64; cut <= lengths[n] + 64; cut += 64) {
            int64_t n_tok = cut <= lengths[n] ? cut : lengths[n];
            if (cut > 128 && cut <= lengths[n] - 128) continue;
            brim_kda_args a = alone(d, row, n, n_tok);
            brim_error err = {0};
            outputs_poison(d);
            verdict(brim_kda_prefill(&a, &err) == BRIM_OK, "alone", err.text);
            kda_device_fetch(d);
            verdict(!memcmp(c->out + row * h * 128, want->out + row * h * 128,
                            (size_t)(n_tok * h) * 256),
                    "alone", "output differs from packed");
            const float *state = (const float *)want->final + n * h * 16384;
            if (cut <= lengths[n])
                state = (const float *)want->checkpoints + (row / 64 + cut / 64 - 1) * h * 16384;
            verdict(!memcmp((float *)c->final + n * h * 16384, state, (size_t)h * 65536), "alone",
                    cut <= lengths[n] ? "checkpoint differs" : "state differs");
        }
        row += lengths[n];
    }
}

/* A hundred replays, each with inputs of its own: the bits of a call with them. */
static void check_new_data(struct kda_device *d, cudaGraphExec_t exec, cudaStream_t stream)
{
    struct kda_case *c = d->host;
    struct brim_rng rng = {17};
    for (int i = 0; i < (brief ? 2 : 100); i++) {
        for (size_t j = 0; j < c->v_bytes / 2; j++) {
            c->v[j] = (uint16_t)(c->v[j] ^ (brim_rng_u32(&rng) & 0x80FF));
            ((uint16_t *)c->g)[j] = (uint16_t)(((uint16_t *)c->g)[j] ^ (j % 7 == 0 ? 0x8000 : 0));
        }
        CUDA_OK(cudaMemcpy((void *)d->args.v, c->v, c->v_bytes, cudaMemcpyHostToDevice));
        CUDA_OK(cudaMemcpy((void *)d->args.g, c->g, c->g_bytes, cudaMemcpyHostToDevice));
        run_and_fetch(d, "new data");
        struct outputs direct = outputs_keep(c);
        outputs_poison(d);
        CUDA_OK(cudaDeviceSynchronize());
        CUDA_OK(cudaGraphLaunch(exec, stream));
        kda_device_fetch(d);
        verdict(outputs_same(&direct, c), "new data", "a replay's bits differ from a call's");
        outputs_drop(&direct);
    }
}

/* Captured once, replayed with other offsets of the same count; each replay has the bits of a call
 * with those offsets. */
static void check_replay(const struct kda_spec *spec)
{
    static const int64_t full[][6] = {
        {0, 10, 400, 401, 799, 799}, {0, 0, 0, 799, 799, 799}, {0, 300, 364, 365, 500, 640}};
    static const int64_t few[][6] = {
        {0, 10, 80, 81, 196, 196}, {0, 0, 0, 130, 130, 190}, {0, 64, 128, 129, 140, 160}};
    struct kda_case c;
    struct kda_device d;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    brim_error err = {0};
    kda_case_make(&c, spec);
    c.args.max_tok = c.n_row;
    kda_device_make(&d, &c, route);
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_OK(cudaDeviceSynchronize());
    brim_kda_args a = d.args;
    a.stream = stream, a.route = route;
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    verdict(brim_kda_prefill(&a, &err) == BRIM_OK, "capture", err.text);
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        const int64_t *moved = brief ? few[i] : full[i];
        memcpy(c.offsets, moved, 6 * sizeof *moved);
        CUDA_OK(cudaMemcpy((void *)d.args.cu_seqlens, moved, 6 * sizeof *moved,
                           cudaMemcpyHostToDevice));
        run_and_fetch(&d, "direct call");
        struct outputs direct = outputs_keep(&c);
        outputs_poison(&d);
        CUDA_OK(cudaDeviceSynchronize());
        for (int j = 0; j < (brief ? 1 : 10); j++) CUDA_OK(cudaGraphLaunch(exec, stream));
        kda_device_fetch(&d);
        verdict(outputs_same(&direct, &c), "replay", "bits differ from a call's");
        if (!is_split() || i == 0) judge(&c, spec, "graph replay");
        outputs_drop(&direct);
    }
    check_new_data(&d, exec, stream);
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaStreamDestroy(stream));
    kda_device_free(&d);
    kda_case_free(&c);
}

/* Two streams at once, a workspace each: the bits of either alone. */
static void check_streams(void)
{
    struct kda_case c[2];
    struct kda_device d[2];
    struct outputs want[2];
    cudaStream_t stream[2];
    brim_error err = {0};
    for (int i = 0; i < 2; i++) {
        struct kda_spec spec = plain(brief ? 100 : 600 + 200 * i, 2, i ? KDA_STEP : KDA_TYPICAL);
        kda_case_make(&c[i], &spec);
        kda_device_make(&d[i], &c[i], route);
        run_and_fetch(&d[i], "streams");
        want[i] = outputs_keep(&c[i]);
        outputs_poison(&d[i]);
        CUDA_OK(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
    }
    CUDA_OK(cudaDeviceSynchronize());
    for (int repeat = 0; repeat < (brief ? 2 : 50); repeat++) {
        for (int i = 0; i < 2; i++) {
            brim_kda_args a = d[i].args;
            a.stream = stream[i], a.route = route;
            verdict(brim_kda_prefill(&a, &err) == BRIM_OK, "streams", err.text);
        }
        for (int i = 0; i < 2 && (repeat % 10 == 9 || brief); i++) {
            kda_device_fetch(&d[i]);
            verdict(outputs_same(&want[i], &c[i]), "streams", "bits differ from alone");
            outputs_poison(&d[i]);
            CUDA_OK(cudaDeviceSynchronize());
        }
    }
    for (int i = 0; i < 2; i++) {
        outputs_drop(&want[i]);
        CUDA_OK(cudaStreamDestroy(stream[i]));
        kda_device_free(&d[i]);
        kda_case_free(&c[i]);
    }
}

/* Later tokens change nothing before them; NaN stays in its sequence and behind its chunk. A split
 * whose later cuts fail computes the whole task serially: there the rows before keep m128's bits.
 */
static void check_causality(void)
{
    int n_tok = brief ? 70 : 200, step = brief ? 34 : 13;
    struct kda_spec spec = plain(n_tok, 1, KDA_TYPICAL);
    struct kda_case c, one;
    struct kda_device d, e;
    spec.n_seq = 2;
    kda_case_make(&c, &spec);
    kda_device_make(&d, &c, route);
    run_and_fetch(&d, "causality");
    struct outputs own = outputs_keep(&c);
    const char *name = route;
    route = "m128";
    run_and_fetch(&d, "causality");
    route = name;
    size_t second = (size_t)n_tok * 128;
    for (int t = 1; t < n_tok; t += step)
        for (int nan = 0; nan < 2; nan++) {
            kda_case_make(&one, &spec);
            for (int i = t * 128; i < n_tok * 128 && !nan; i++)
                one.q[i] = 0x4100, one.k[i] ^= 0x8000, one.v[i] ^= 0x8040,
                ((uint16_t *)one.g)[i] = 0x40A0;
            if (nan)
                one.k[t * 128 + 5] = one.v[t * 128] = ((uint16_t *)one.g)[t * 128 + 9] = 0x7FC0;
            kda_device_make(&e, &one, route);
            run_and_fetch(&e, "causality");
            size_t n = (size_t)(nan ? t / 32 * 32 : t) * 256;
            bool held = !memcmp(own.out, one.out, n);
            if (is_split()) held = held || !memcmp(c.out, one.out, n);
            verdict(held, "causality",
                    nan ? "NaN reached an earlier chunk" : "an earlier output changed");
            verdict(!memcmp(own.out + second, one.out + second, second * 2), "causality",
                    "another sequence changed");
            kda_device_free(&e);
            kda_case_free(&one);
        }
    kda_device_free(&d);
    kda_case_free(&c);
    outputs_drop(&own);
}

/* A call from the state that another left after whole chunks continues it bit for bit. */
static void check_continued(void)
{
    struct kda_spec spec = plain(200, 1, KDA_TYPICAL);
    struct kda_case c;
    struct kda_device d;
    brim_error err = {0};
    kda_case_make(&c, &spec);
    kda_device_make(&d, &c, route);
    run_and_fetch(&d, "continued");
    struct outputs whole = outputs_keep(&c);
    brim_kda_args head = d.args, tail = d.args;
    head.n_tok = 96, tail.n_tok = 104, head.route = tail.route = route;
    outputs_poison(&d);
    tail.initial_state = head.final_state;
    tail.q = (const uint16_t *)head.q + 96 * 128, tail.k = (const uint16_t *)head.k + 96 * 128;
    tail.v = (const uint16_t *)head.v + 96 * 128, tail.g = (const uint16_t *)head.g + 96 * 128;
    tail.beta = (const uint16_t *)head.beta + 96, tail.out = (uint16_t *)head.out + 96 * 128;
    verdict(brim_kda_prefill(&head, &err) == BRIM_OK && brim_kda_prefill(&tail, &err) == BRIM_OK,
            "continued", err.text);
    kda_device_fetch(&d);
    verdict(outputs_same(&whole, &c), "continued", "bits differ");
    outputs_drop(&whole);
    kda_device_free(&d);
    kda_case_free(&c);
}

static void check_route(void)
{
    struct kda_spec spec;
    struct kda_case c;
    struct kda_device d;
    const int64_t *lengths = packed(&spec);
    const char *name = route;
    kda_case_make(&c, &spec);
    kda_device_make(&d, &c, route);
    route = "m128";
    run_and_fetch(&d, "m128");
    struct outputs serial = outputs_keep(&c);
    route = name;
    if (run_and_fetch(&d, "packed")) {
        struct outputs first = outputs_keep(&c);
        if (!is_cut()) verdict(outputs_same(&serial, &c), "packed", "bits differ from m128's");
        for (int i = 0; i < (brief ? 2 : 200); i++) {
            if (!run_and_fetch(&d, "repeat")) break;
            verdict(outputs_same(&first, &c), "repeat", "bits differ");
        }
        if (d.args.workspace) dirty_workspace(&d, &first);
        check_alone(&d, lengths, &first);
        outputs_drop(&first);
    }
    outputs_drop(&serial);
    kda_device_free(&d);
    kda_case_free(&c);
    check_forms();
    check_replay(&spec);
    check_streams();
    check_causality();
    if (is_split()) check_mark();
    if (!is_cut()) check_continued();
}

int main(int argc, char **argv)
{
    int status = kda_begin(argc, argv, "m128,c4-m128,c5-m64,split,split-join");
    if (status) return status;
    for (int i = 0; i < n_route; i++) {
        route = routes[i];
        check_route();
        printf("%s: %d checks, %d failed\n", route, n_check, n_fail);
    }
    return kda_end("bits");
}
