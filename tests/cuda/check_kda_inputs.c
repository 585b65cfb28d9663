/* SPDX-License-Identifier: Apache-2.0
 * Inputs that KDA kernels may get wrong without any usual case showing it, for every route named:
 * the first is held against fp64, the others, those that cut apart, must have its bits. Every
 * regime of the gate, beta outside of [0, 1], infinities and NaN in q, k, v, g, beta and the
 * initial state, keys that repeat in groups, keys of zeros or of one element under gates that
 * forget nothing, one long sequence among two hundred short ones, a single empty one.
 *     check_kda_inputs [route[,route...]] [short]
 * Exit status 1 on any failure. */
#include "cuda/kda_judge.h"

static struct kda_spec spec_of(int64_t n_tok, enum kda_regime regime)
{
    struct kda_spec spec = kda_plain(n_tok, 1, regime);
    spec.checkpoints = 1, spec.seed = 77 + (uint64_t)regime;
    return spec;
}

/* The first route against fp64 (judged by the bars of `bars`), the others against it; those that
 * cut within 1.2 times its error. */
static void check_case(struct kda_case *c, const struct kda_spec *spec, enum kda_regime bars,
                       const char *what)
{
    struct outputs first = {0};
    struct kda_spec judged = *spec;
    int n_task = (int)(c->args.n_seq * c->args.n_value_head);
    struct kda_error *base = kda_alloc((size_t)n_task * sizeof *base);
    judged.regime = bars;
    for (int i = 0; i < n_route; i++) {
        struct kda_device d;
        char text[96];
        route = routes[i];
        kda_device_make(&d, c, route);
        run_and_fetch(&d, what);
        if (i == 0) {
            judge(c, &judged, what);
            first = outputs_keep(c);
            for (int j = 0; j < n_task; j++)
                base[j] = kda_measure(&c->args, j / c->args.n_value_head, j % c->args.n_value_head);
        } else if (kda_cuts(route)) {
            for (int j = 0; j < n_task; j++) {
                struct kda_error e =
                    kda_measure(&c->args, j / c->args.n_value_head, j % c->args.n_value_head);
                snprintf(text, sizeof text, "%s, task %d: %.2e %.2e beside %.2e %.2e", route, j,
                         e.out, e.state, base[j].out, base[j].state);
                verdict(e.finite && e.out <= 1.2 * base[j].out + 1e-7 &&
                            e.window <= 1.2 * base[j].window + 1e-7 &&
                            e.state <= 1.2 * base[j].state + 1e-7,
                        what, text);
            }
        } else {
            snprintf(text, sizeof text, "%s differs from %s", route, routes[0]);
            verdict(outputs_same(&first, c), what, text);
        }
        kda_device_free(&d);
    }
    free(base);
    outputs_drop(&first);
}

static void check_regimes(void)
{
    for (int r = KDA_TYPICAL; r <= KDA_ZEROS; r++) {
        struct kda_spec spec = spec_of(brief ? 70 : 321, (enum kda_regime)r);
        struct kda_case c;
        char what[32];
        snprintf(what, sizeof what, "regime %d", r);
        kda_case_make(&c, &spec);
        check_case(&c, &spec, spec.regime, what);
        kda_case_free(&c);
    }
}

/* beta as a value, from below 0 to 2 and, as a logit, infinite; then gates of infinities, which end
 * at the bound or at no decay. */
static void check_limits(void)
{
    for (int form = 0; form < 4; form++) {
        static const char *const names[] = {"beta f32", "beta bf16", "beta of infinite logits",
                                            "infinite gates"};
        struct kda_spec spec = spec_of(100, KDA_TYPICAL);
        struct kda_case c;
        const char *what = names[form];
        if (form < 2) spec.flags = BRIM_KDA_L2NORM;
        spec.f32_beta = form == 0;
        kda_case_make(&c, &spec);
        for (int t = 0; t < 100; t++) {
            float b = -0.7f + 2.6f * (float)(t * 37 % 100) / 99;
            if (form == 2) b = t % 3 ? INFINITY : -INFINITY;
            if (form == 0) ((float *)c.beta)[t] = b;
            if (form == 1 || form == 2) ((uint16_t *)c.beta)[t] = brim_bf16_from_f32(b);
            for (int i = 0; i < 128 && form == 3; i += 3)
                ((uint16_t *)c.g)[t * 128 + i] = (t / 7 + i) % 2 ? 0x7F80 : 0xFF80;
        }
        check_case(&c, &spec, KDA_MIXED, what);
        kda_case_free(&c);
    }
}

static bool not_finite(uint16_t x)
{
    return (x & 0x7F80) == 0x7F80;
}

/* What is not finite stays behind its chunk's start and in its sequence; it is not lost. */
static void check_not_finite(void)
{
    static const uint16_t odd[] = {0x7FC0, 0x7F80, 0xFF80};
    enum { N_TOK = 140, AT = 71 };
    enum { Q, BETA, STATE, K, V, N_WHERE };
    for (int where = 0; where < N_WHERE; where++)
        for (int x = 0; x < 3; x++) {
            static const char *const names[] = {"in q", "in beta", "in the initial state", "in k",
                                                "in v"};
            struct kda_spec spec = spec_of(N_TOK, KDA_TYPICAL);
            struct kda_case c, clean;
            char what[48];
            if (brief && (where + x) % 2) continue;
            snprintf(what, sizeof what, "%s %s",
                     x == 0   ? "NaN"
                     : x == 1 ? "inf"
                              : "-inf",
                     names[where]);
            spec.n_seq = 2, spec.flags = BRIM_KDA_L2NORM;
            kda_case_make(&c, &spec);
            kda_case_make(&clean, &spec);
            int column = where == STATE ? 5 : where == V ? 9 : -1; /* the one it stays in */
            if (where == Q) c.q[AT * 128 + 9] = odd[x];
            if (where == K) c.k[AT * 128 + 9] = odd[x];
            if (where == V) c.v[AT * 128 + 9] = odd[x];
            if (where == BETA) ((uint16_t *)c.beta)[AT] = odd[x];
            if (where == STATE)
                ((float *)c.initial)[5 * 128 + 7] = brim_f32_from_bf16(odd[x]); /* value 5, key 7 */
            for (int i = 0; i < n_route; i++) {
                struct kda_device d;
                route = routes[i];
                kda_device_make(&d, &clean, route);
                run_and_fetch(&d, what);
                kda_device_free(&d);
                kda_device_make(&d, &c, route);
                run_and_fetch(&d, what);
                kda_device_free(&d);
                int n = where == STATE ? 0 : AT / 32 * 32;
                verdict(!memcmp(c.out, clean.out, (size_t)n * 256), what,
                        "reached an earlier chunk");
                verdict(!memcmp(c.out + N_TOK * 128, clean.out + N_TOK * 128, N_TOK * 256), what,
                        "reached another sequence");
                verdict(!memcmp((float *)c.final + 16384, (float *)clean.final + 16384, 65536),
                        what, "reached another state");
                bool kept = true, apart = true;
                for (int t = where == STATE ? 0 : AT; t < (where == Q ? AT + 1 : N_TOK); t++)
                    for (int v = 0; v < 128; v++)
                        if (column < 0 || v == column)
                            kept = kept && not_finite(c.out[t * 128 + v]);
                verdict(kept, what, "was lost");
                /* q ends with its chunk; values do not meet */
                if (where == Q)
                    apart = !memcmp(c.out + 96 * 128, clean.out + 96 * 128, (N_TOK - 96) * 256) &&
                            !memcmp(c.final, clean.final, 65536);
                for (int v = 0; v < 128 && column >= 0; v++) {
                    if (v == column) continue;
                    for (int t = 0; t < N_TOK; t++)
                        apart = apart && c.out[t * 128 + v] == clean.out[t * 128 + v];
                    apart = apart && !memcmp((float *)c.final + v * 128,
                                             (float *)clean.final + v * 128, 512);
                }
                verdict(apart, what, "reached what it has no part in");
            }
            kda_case_free(&c);
            kda_case_free(&clean);
        }
}

/* Keys that repeat `group` times, then others; `turn`: with alternating sign. */
static void check_groups(void)
{
    static const int groups[] = {8, 16, 32, 64};
    for (int i = 0; i < 4; i++)
        for (int turn = 0; turn < 2; turn++) {
            struct kda_spec spec = spec_of(brief ? 100 : 200, KDA_COLLINEAR);
            struct kda_case c;
            char what[48];
            if (brief && turn != i % 2) continue;
            spec.gate = BRIM_KDA_GATE_LOWER_BOUND;
            snprintf(what, sizeof what, "keys in groups of %d%s", groups[i], turn ? ", +-" : "");
            kda_case_make(&c, &spec);
            struct brim_rng rng = {(uint64_t)groups[i]};
            for (int64_t t = 0; t < spec.n_tok; t++)
                for (int k = 0; k < 128; k++) {
                    uint16_t *key = &c.k[t * 128 + k];
                    if (t % groups[i] == 0)
                        *key = brim_bf16_from_f32((float)kda_normal(&rng));
                    else
                        *key = (uint16_t)(key[-128] ^ (turn ? 0x8000 : 0));
                }
            check_case(&c, &spec, KDA_COLLINEAR, what);
            kda_case_free(&c);
        }
}

/* Keys of zeros, of one element, or one of those after the other, forgotten hardly or never. */
static void check_sparse(void)
{
    for (int form = 0; form < 4; form++) {
        static const char *const names[] = {"keys of zeros", "keys of one element",
                                            "zeros and single elements", "q of zeros"};
        struct kda_spec spec = spec_of(100, form & 1 ? KDA_NEVER : KDA_WEAK);
        struct kda_case c;
        kda_case_make(&c, &spec);
        for (int t = 0; t < 100; t++) {
            uint16_t *k = c.k + t * 128;
            if (form == 3) {
                if (t % 5 < 3) memset(c.q + t * 128, 0, 256);
                continue;
            }
            memset(k, 0, 256);
            if (form == 1 || (form == 2 && t % 2)) k[t * 7 % 128] = t % 3 ? 0x3F80 : 0xBF80;
        }
        check_case(&c, &spec, KDA_WEAK, names[form]);
        kda_case_free(&c);
    }
}

static void check_crowd(void)
{
    enum { N = 201 };
    int64_t lengths[N];
    for (int n = 0; n < N; n++) lengths[n] = n * 11 % 7;
    lengths[120] = brief ? 100 : 2000;
    struct kda_spec spec = spec_of(0, KDA_TYPICAL);
    struct kda_case c;
    spec.n_seq = brief ? 41 : N, spec.lengths = brief ? lengths + 100 : lengths;
    spec.checkpoints = 0;
    kda_case_make(&c, &spec);
    check_case(&c, &spec, KDA_TYPICAL, "one long among many short");
    kda_case_free(&c);
}

/* One sequence of no tokens: its state passes through, as the only thing there is. */
static void check_empty(void)
{
    static const int64_t none[] = {0};
    for (int form = 0; form < 3; form++) {
        static const char *const names[] = {"empty, fixed", "empty, packed", "empty, rows behind"};
        struct kda_spec spec = spec_of(0, KDA_TYPICAL);
        struct kda_case c;
        if (form > 0) spec.lengths = none;
        if (form == 2) spec.n_tok = 3;
        kda_case_make(&c, &spec);
        for (int i = 0; i < n_route; i++) {
            struct kda_device d;
            route = routes[i];
            kda_device_make(&d, &c, route);
            run_and_fetch(&d, names[form]);
            verdict(!memcmp(c.initial, c.final, c.state_bytes), names[form], "the state changed");
            bool zero = true;
            for (size_t j = 0; j < c.v_bytes / 2; j++) zero = zero && c.out[j] == 0;
            verdict(zero, names[form], "rows behind the last offset are not zero");
            kda_device_free(&d);
        }
        kda_case_free(&c);
    }
}

int main(int argc, char **argv)
{
    int status = kda_begin(argc, argv, "m128,split,split-join");
    if (status) return status;
    check_regimes();
    check_limits();
    check_not_finite();
    check_groups();
    check_sparse();
    check_crowd();
    check_empty();
    return kda_end("odd inputs");
}
