/* SPDX-License-Identifier: Apache-2.0
 * Route split on the GPU where something may not be skipped: from there on its bits are m128's. The
 * cases turn each of the rule's conditions (docs/numerics.md, "Forgetting") alone: maps that only
 * look small, windows that write little or nothing, states that are huge, numbers that fp32 loses
 * when they are squared. Beside each stands one that may be cut and is. Then the worst seeds of the
 * search, held to its bar. check_kda_sound [short] [FILE]     FILE: the seeds; else found from the
 * source directory or from a build directory two below it Exit status 1 on any failure. */
#include "check/kda_adversary.h"
#include "cuda/kda/record.h"
#include "cuda/kda_judge.h"
#include "cuda/kda_marginal.h"
#include "plan/kda_split.h"

static const char *seed_file = "tests/golden/kda_split_seeds.txt";

/* One head; decays and beta given as f32, keys of length one that are not normalized again. */
static void given_case(struct kda_case *c, int64_t n_tok)
{
    struct kda_spec spec = kda_given(n_tok);
    spec.checkpoints = 1, spec.seed = 3;
    kda_case_make(c, &spec);
}

static void put_gate(struct kda_case *c, int64_t from, int64_t to, float g)
{
    for (int64_t i = from * 128; i < to * 128; i++) ((float *)c->g)[i] = g;
}

static void put_beta(struct kda_case *c, int64_t from, int64_t to, float beta)
{
    for (int64_t t = from; t < to; t++) ((float *)c->beta)[t] = beta;
}

static void scale_v(struct kda_case *c, int64_t from, int64_t to, float by)
{
    for (int64_t i = from * 128; i < to * 128; i++)
        c->v[i] = brim_bf16_from_f32(by * brim_f32_from_bf16(c->v[i]));
}

static void scale_initial(struct kda_case *c, float by)
{
    for (int i = 0; i < 16384; i++) ((float *)c->initial)[i] *= by;
}

/* k_t = (e_a + e_b) / sqrt 2. */
static void put_key(struct kda_case *c, int64_t t, int a, int b)
{
    memset(c->k + t * 128, 0, 256);
    c->k[t * 128 + a] = c->k[t * 128 + b] = brim_bf16_from_f32(0.70710678f);
}

/* The first segment before which the cut failed in the last run, of one task; how many there are
 * where none did. */
static int first_failed(const struct kda_device *d, int *n_segment)
{
    const brim_kda_args *a = &d->args;
    brim_kda_plan whole;
    brim_error err = {0};
    struct brim_kda_split_plan plan =
        brim_kda_split_plan_make(&(struct brim_kda_split_call){.n_seq = 1,
                                                               .n_row = a->n_tok,
                                                               .max_tok = a->n_tok,
                                                               .n_value_head = 1,
                                                               .n_processor = 132,
                                                               .length = a->split_length,
                                                               .first = a->split_first,
                                                               .window = a->split_window});
    if (brim_kda_plan_make(a, &whole, &err) != BRIM_OK) exit(2);
    size_t n_bytes = (size_t)plan.n_slot * KDA_RECORD_FLOATS * 4;
    float *record = kda_alloc(n_bytes);
    CUDA_OK(cudaMemcpy(record, (char *)a->workspace + whole.workspace_bytes - plan.workspace_bytes,
                       n_bytes, cudaMemcpyDeviceToHost));
    int s = 1;
    for (bool hold = true; hold && s < plan.n_slot; s += hold) {
        const float *own = record + s * KDA_RECORD_FLOATS, *last = own - KDA_RECORD_FLOATS;
        hold = brim_kda_split_cut(&plan, s) <= plan.window ||
               brim_kda_record_holds(own, last, plan.window);
    }
    free(record);
    *n_segment = (int)plan.n_slot;
    return s;
}

/* A workspace for what the arguments say now, to be freed: behind the segments of fewer rows
 * another route may stand, which needs more of it than the whole did. */
static void *own_workspace(brim_kda_args *a)
{
    brim_error err = {0};
    if (brim_kda_workspace_bytes(a, &a->workspace_bytes, &err) != BRIM_OK) exit(2);
    CUDA_OK(cudaMalloc(&a->workspace, a->workspace_bytes));
    CUDA_OK(cudaMemset(a->workspace, 0xFF, a->workspace_bytes));
    if (brim_kda_workspace_init(a->device, a->workspace, a->workspace_bytes, NULL, &err)) exit(2);
    return a->workspace;
}

/* Did the last run, whose outputs are `got`, leave what the first `rows` tokens alone give, and
 * what m128 makes of the others from the state behind those? Checkpoints are looked at where both
 * have them at the same places. */
static bool goes_on(struct kda_device *d, int64_t rows, const struct outputs *got)
{
    struct kda_case *c = d->host;
    brim_kda_args *a = &d->args, kept = d->args;
    void *between = NULL;
    CUDA_OK(cudaMalloc(&between, 65536));
    outputs_poison(d);
    a->n_tok = rows;
    void *workspace = own_workspace(a);
    bool ran = run(d, "the rows before");
    CUDA_OK(cudaMemcpy(between, a->final_state, 65536, cudaMemcpyDeviceToDevice));
    a->n_tok = kept.n_tok - rows;
    a->initial_state = between;
    a->q = (const uint16_t *)a->q + rows * a->q_stride.token;
    a->k = (const uint16_t *)a->k + rows * a->k_stride.token;
    a->v = (const uint16_t *)a->v + rows * a->v_stride.token;
    a->g = (const char *)a->g + rows * a->g_stride.token * (a->g_dtype == BRIM_KERNEL_F32 ? 4 : 2);
    a->beta = (const char *)a->beta +
              rows * a->beta_stride.token * (a->beta_dtype == BRIM_KERNEL_F32 ? 4 : 2);
    a->out = (uint16_t *)a->out + rows * a->out_stride.token;
    if (a->checkpoints) a->checkpoints = (char *)a->checkpoints + rows / 64 * 65536;
    route = "m128";
    ran = ran && run(d, "the rows behind");
    route = "split";
    *a = kept;
    kda_device_fetch(d);
    CUDA_OK(cudaFree(between));
    CUDA_OK(cudaFree(workspace));
    size_t n_bytes = c->checkpoints && rows % 64 == 0 ? c->checkpoint_bytes : 0;
    return ran && !memcmp(got->out, c->out, c->v_bytes) &&
           !memcmp(got->final, c->final, c->state_bytes) &&
           (!n_bytes || !memcmp(got->checkpoints, c->checkpoints, n_bytes));
}

enum cut { SERIAL, CUT, SEEN, EITHER };

/* First chunk of the segment before which that cut is. */
static int64_t cut_at(const struct kda_device *d, int segment)
{
    struct brim_kda_split_plan plan = {.length = d->args.split_length};
    plan.first = d->args.split_first > 0 ? d->args.split_first : plan.length;
    return brim_kda_split_cut(&plan, segment);
}

/* m128, then the split: SERIAL, some cut fails; CUT, every cut holds and the error is at most 1.2
 * times m128's; SEEN, and bits differ. Where a cut fails the bits are m128's, or those of the
 * segments before it and m128's from there on. Returns whether it was cut; the errors of both,
 * unless NULL. */
static bool compare(const char *what, struct kda_case *c, int length, int window, enum cut cut,
                    struct kda_error *of_m128, struct kda_error *of_split)
{
    struct kda_device d;
    char text[160];
    int n_segment;
    c->args.split_length = length, c->args.split_window = window;
    kda_device_make(&d, c, "split");
    route = "m128";
    run_and_fetch(&d, what);
    struct outputs serial = outputs_keep(c);
    struct kda_error base = kda_measure(&c->args, 0, 0);
    route = "split";
    run_and_fetch(&d, what);
    bool same = outputs_same(&serial, c);
    struct kda_error e = kda_measure(&c->args, 0, 0);
    snprintf(text, sizeof text,
             "segments of %d, windows of %d: %.2e %.2e %.2e beside %.2e %.2e %.2e", length, window,
             e.out, e.window, e.state, base.out, base.window, base.state);
    int failed = first_failed(&d, &n_segment);
    bool cuts = failed == n_segment, kept = !cuts && cut_at(&d, failed - 1) > window;
    if (cut == SERIAL) verdict(!cuts, what, "was cut");
    if (cut == CUT || cut == SEEN) verdict(cuts, what, "was not cut");
    if (cut == SEEN) verdict(!same, what, "was computed serially in spite of that");
    if (!cuts && !kept) verdict(same, what, "not cut, and not m128's bits");
    if (cut == CUT || cut == SEEN || (kept && cut == SERIAL))
        verdict(e.finite && e.out <= 1.2 * base.out + 1e-7 &&
                    e.window <= 1.2 * base.window + 1e-7 && e.state <= 1.2 * base.state + 1e-7,
                what, text);
    if (kept) {
        struct outputs got = outputs_keep(c);
        verdict(goes_on(&d, cut_at(&d, failed) * 32, &got), what,
                "a cut fails, and not the bits of the rows before it and m128's behind");
        outputs_drop(&got);
    }
    if (of_m128) *of_m128 = base, *of_split = e;
    outputs_drop(&serial);
    kda_device_free(&d);
    return cuts;
}

static void check(const char *what, struct kda_case *c, int length, int window, enum cut cut)
{
    compare(what, c, length, window, cut, NULL, NULL);
}

/* Maps that are not small although decays are large. */
static void check_maps(void)
{
    struct kda_case c;
    int64_t n_tok = brief ? 160 : 256;
    int length = brief ? 2 : 4;
    for (int channel = 0; channel < 128; channel += brief ? 77 : 9)
        for (int window = 1; window <= (brief ? 1 : 3); window++) {
            given_case(&c, n_tok);
            put_gate(&c, 0, n_tok, -5);
            for (int64_t t = 0; t < n_tok; t++) ((float *)c.g)[t * 128 + channel] = -1e-4f;
            check("one weak channel of 128", &c, length, window, SERIAL);
            kda_case_free(&c);
        }
    /* every channel loses 40 nats in 16 tokens, the state a factor of four */
    for (int window = 1; window <= (brief ? 1 : 3); window++) {
        given_case(&c, n_tok);
        for (int64_t t = 0; t < n_tok; t++) {
            bool change = t % 8 == 7;
            ((float *)c.beta)[t] = change ? 0.99f : 0;
            memset(c.k + t * 128, 0, 256);
            if (change) put_key(&c, t, 0, 64);
            for (int i = 0; i < 128; i++)
                ((float *)c.g)[t * 128 + i] = (i < 64) == (t / 8 % 2 == 0) ? -5 : 0;
        }
        check("keys that move the state", &c, length, window, SERIAL);
        kda_case_free(&c);
    }
    /* a reflection a token carries the state on by one channel, the only one that does not decay */
    given_case(&c, n_tok);
    put_gate(&c, 0, n_tok, -5);
    put_beta(&c, 0, n_tok, 1.95f);
    for (int64_t t = 0; t < n_tok; t++) {
        put_key(&c, t, (int)(t % 128), (int)((t + 1) % 128));
        ((float *)c.g)[t * 128 + t % 128] = 0;
    }
    check("keys that rotate", &c, length, 1, SERIAL);
    kda_case_free(&c);
    given_case(&c, n_tok);
    put_gate(&c, 0, n_tok, -5);
    check("every channel strong", &c, length, 1, CUT);
    kda_case_free(&c);
}

/* Small maps, beside what the window writes and what lies before it. Segments of two chunks: the
 * first cut is at token 64, its window are tokens 32 to 63. */
static void check_sizes(void)
{
    static const struct {
        const char *what;
        float initial, first_gate, gate, v;
        enum cut cut;
    } cases[] = {
        {"ordinary", 1, -0.8f, -0.8f, 1, CUT},
        {"v = 0 throughout", 1, -0.8f, -0.8f, 0, SERIAL},
        {"initial 1e6, forgotten far", 1e6f, 0, -3, 1, CUT},
        {"initial 1e6, forgotten less", 1e6f, 0, -0.8f, 1, SERIAL},
        {"initial 1e6, v = 0", 1e6f, 0, -3, 0, SERIAL},
        {"initial 1e20", 1e20f, 0, -3, 1, SERIAL},
        {"initial 1e20, v = 0", 1e20f, 0, -3, 0, SERIAL},
        {"initial 1e-25, v = 0", 1e-25f, -0.1f, -0.8f, 0, SERIAL},
        {"no state, v = 0", 0, -0.8f, -0.8f, 0, EITHER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kda_case c;
        given_case(&c, 128);
        put_gate(&c, 0, 32, cases[i].first_gate);
        put_gate(&c, 32, 128, cases[i].gate);
        put_beta(&c, 0, 128, 0.5f);
        scale_v(&c, 0, 128, cases[i].v);
        scale_initial(&c, cases[i].initial);
        check(cases[i].what, &c, 2, 1, cases[i].cut);
        kda_case_free(&c);
    }
    struct kda_case c;
    kda_marginal_make(&c);
    check("as much as may be", &c, 2, 1, SEEN);
    kda_case_free(&c);
    kda_marginal_make(&c);
    scale_initial(&c, 4);
    check("four times as much", &c, 2, 1, SERIAL);
    kda_case_free(&c);
    for (int form = 0; form < 4; form++) {
        static const char *const names[] = {"v = 0 in the window", "beta = 0 in the window",
                                            "beta = 0 throughout", "1e20 before the window"};
        given_case(&c, 128);
        put_gate(&c, 0, 128, -0.8f);
        put_beta(&c, 0, 128, 0.5f);
        if (form == 0) scale_v(&c, 32, 64, 0);
        if (form == 1) put_beta(&c, 32, 64, 0);
        if (form == 2) put_beta(&c, 0, 128, 0);
        if (form == 3) scale_v(&c, 0, 32, 1e20f);
        check(names[form], &c, 2, 1, SERIAL);
        kda_case_free(&c);
    }
}

/* Bounds whose parts are too small to be squared in fp32. Channels 64..127 keep the state until a
 * key moves it to the others, which by then have lost 75 nats and now lose `after`; the window
 * writes `v`, far less than what is moved on from a state of 1e6. */
static void check_underflow(void)
{
    static const struct {
        float initial, v, after;
    } cases[] = {
        {1e6f, 1e-17f, 52}, {1e6f, 0, 52}, {1, 0, 52}, {1, 1e-21f, 52}, {1e12f, 1e-12f, 54}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kda_case c;
        given_case(&c, 128);
        put_gate(&c, 0, 32, 0);
        put_gate(&c, 64, 128, 0);
        put_beta(&c, 0, 128, 0);
        for (int64_t t = 0; t < 128; t++)
            for (int j = 0; j < 128; j++) {
                if (t < 32 || t >= 64) continue;
                float first = j < 64 ? -5 : 0, then = j < 64 ? -cases[i].after / 22 : -5;
                ((float *)c.g)[t * 128 + j] = t < 42 ? first : then;
            }
        scale_v(&c, 32, 128, cases[i].v);
        scale_initial(&c, cases[i].initial);
        put_key(&c, 41, 0, 64), put_beta(&c, 41, 42, 1);
        put_key(&c, 63, 64, 65), put_beta(&c, 63, 64, 0.5f);
        char what[80];
        snprintf(what, sizeof what, "squares lost: initial %g, v %g", (double)cases[i].initial,
                 (double)cases[i].v);
        check(what, &c, 2, 1, SERIAL);
        kda_case_free(&c);
    }
    /* three chunks of a window, each bound of which is far above the smallest number, their product
     * below it; the state before is 1e18 */
    struct kda_case c;
    given_case(&c, 256);
    put_gate(&c, 0, 32, 0);
    put_gate(&c, 32, 256, -1.1f);
    put_beta(&c, 0, 256, 0);
    scale_initial(&c, 1e17f);
    check("product lost, three chunks", &c, 4, 3, SERIAL);
    kda_case_free(&c);
}

/* Decays so even over channels that bound (a) is small enough where the packet's is not: 17.6 nats
 * a chunk, less 3 for the delta factors. Then each of its conditions alone. */
static void check_decays(void)
{
    static const char *const names[] = {
        "even decays",           "even decays, normalized keys",
        "even decays, bf16",     "even decays, sigmoid",
        "even decays, softplus", "even decays, long keys",
        "a weaker channel",      "a beta above 2",
        "a beta below 0",        "keys too long",
        "even decays, weaker",   "a bias",
    };
    for (int form = 0; form < (int)(sizeof names / sizeof *names); form++) {
        struct kda_case c;
        struct kda_spec spec = kda_given(128);
        bool raw = form == 3 || form == 4 || form == 11;
        spec.checkpoints = 1, spec.seed = 3;
        if (form == 1) spec.flags = BRIM_KDA_L2NORM;
        if (form == 2 || raw) spec.f32_decay = spec.f32_beta = 0;
        if (raw) spec.gate = BRIM_KDA_GATE_LOWER_BOUND, spec.flags = BRIM_KDA_L2NORM;
        if (form == 4) spec.gate = BRIM_KDA_GATE_SOFTPLUS, spec.lower_bound = 0;
        kda_case_make(&c, &spec);
        /* 5 sigmoid(-2.05) and softplus(-0.27) are 0.57 */
        float g = form == 4 ? -0.27f : raw ? -2.05f : form == 10 ? -0.51f : -0.55f;
        for (int64_t i = 0; i < 128 * 128; i++) {
            if (spec.f32_decay)
                ((float *)c.g)[i] = g;
            else
                ((uint16_t *)c.g)[i] = brim_bf16_from_f32(g);
            if (form == 5) c.k[i] = brim_bf16_from_f32(4 * brim_f32_from_bf16(c.k[i]));
        }
        if (raw) memset(c.a_log, 0, 4), memset(c.dt_bias, 0, 512);
        if (form == 11) c.dt_bias[77] = -1;
        if (spec.f32_beta) put_beta(&c, 0, 128, form == 5 ? 0.06f : 0.9f);
        if (form == 6)
            for (int t = 40; t < 43; t++) ((float *)c.g)[t * 128 + 9] = 0;
        if (form == 7) put_beta(&c, 40, 41, 2.6f);
        if (form == 8) put_beta(&c, 40, 41, -0.01f);
        if (form == 9)
            for (int i = 0; i < 128; i++)
                c.k[40 * 128 + i] = brim_bf16_from_f32(2 * brim_f32_from_bf16(c.k[40 * 128 + i]));
        check(names[form], &c, 2, 1, form < 6 ? CUT : SERIAL);
        kda_case_free(&c);
    }
}

/* More cuts than a warp has lanes, all of which hold but for the one that is named; longer segments
 * and windows, so that the task goes on at odd and even chunks. */
static void check_many(void)
{
    enum { N_CHUNK = 42 };
    static const int weak[] = {0, 2, 32, 33, 34, 40};
    static const int longer[][3] = {{2, 1, 5}, {2, 2, 10}, {3, 1, 17}, {4, 3, 13}, {5, 2, 38}};
    for (size_t i = 0; i < sizeof weak / sizeof *weak; i++) {
        struct kda_case c;
        char what[48];
        snprintf(what, sizeof what, "%d cuts, chunk %d weak", N_CHUNK - 1, weak[i]);
        given_case(&c, N_CHUNK * 32);
        put_gate(&c, 0, N_CHUNK * 32, -3);
        put_beta(&c, 0, N_CHUNK * 32, 0.5f);
        /* chunk 0 is no cut's window but the first's, which begins with the sequence */
        put_gate(&c, weak[i] * 32, weak[i] * 32 + 32, -0.01f);
        check(what, &c, 1, 1, weak[i] == 0 ? CUT : SERIAL);
        kda_case_free(&c);
    }
    for (size_t i = 0; i < sizeof longer / sizeof *longer; i++)
        for (int step = 0; step < 4; step++) {
            struct kda_case c;
            char what[64];
            int lead = step >> 1; /* the first segment longer, all cuts behind */
            snprintf(what, sizeof what, "segments of %d, windows of %d, chunk %d weak",
                     longer[i][0], longer[i][1], longer[i][2] + lead);
            given_case(&c, N_CHUNK * 32 - 7);
            put_gate(&c, 0, c.n_row, -3);
            int64_t from = (longer[i][2] + lead) * 32;
            int64_t to = from + (step & 1 ? 120 : longer[i][1] * 32);
            c.args.split_first = lead ? longer[i][0] + lead : 0;
            put_gate(&c, from, to < c.n_row ? to : c.n_row, -0.01f);
            check(what, &c, longer[i][0], longer[i][1], SERIAL);
            kda_case_free(&c);
        }
}

static void check_seeds(void)
{
    FILE *file = fopen(seed_file, "r");
    char line[128], what[48];
    int n = 0, n_cut = 0;
    if (!file) file = fopen("../../tests/golden/kda_split_seeds.txt", "r");
    verdict(file != NULL, seed_file, "cannot be opened: name it, or run in the source directory");
    if (!file) return;
    void *scratch = aligned_alloc(64, (brim_kda_chunk_scratch_bytes() + 63) / 64 * 64);
    while (fgets(line, sizeof line, file) && !(brief && n == 4)) {
        unsigned long long seed;
        if (sscanf(line, "%llu", &seed) != 1) continue;
        struct kda_adversary a;
        struct brim_kda_task task;
        struct brim_kda_split_report report;
        kda_adversary_make(&a, seed);
        snprintf(what, sizeof what, "seed %llu", seed);
        struct brim_kda_split split = {a.length, a.window, 0};
        brim_kda_task_make(&a.c.args, 0, 0, &task);
        if (brim_kda_split_task(&a.c.args, &task, BRIM_KDA_GPU, &split, &report, NULL)) exit(2);
        bool faded = kda_adversary_faded(&a, &task, scratch);
        /* where the model, which knows both bounds, may not cut, neither may the kernel */
        bool may = report.n_far + report.n_small == 0;
        struct kda_error serial, e;
        n_cut += compare(what, &a.c, a.length, a.window, may ? EITHER : SERIAL, &serial, &e);
        double quotient = kda_adversary_quotient(&e, &serial, faded);
        char text[64];
        snprintf(text, sizeof text, "%.3f times the serial error", quotient);
        verdict(quotient <= 1.2, what, text);
        kda_case_free(&a.c);
        n++;
    }
    fclose(file);
    free(scratch);
    snprintf(what, sizeof what, "%d seeds, %d of them cut", n, n_cut);
    puts(what);
    verdict(brief ? n == 4 : n >= 12, seed_file, "fewer seeds than there were");
    verdict(n_cut > 0, seed_file, "no seed was cut");
}

int main(int argc, char **argv)
{
    int n_device;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "short"))
            brief = true;
        else
            seed_file = argv[i];
    }
    if (cudaGetDeviceCount(&n_device) != cudaSuccess || n_device == 0) {
        printf("SKIP: no CUDA device\n");
        return 77;
    }
    check_sizes();
    check_underflow();
    check_maps();
    check_decays();
    if (!brief) check_many();
    check_seeds();
    return kda_end("what must not be skipped");
}
