/* SPDX-License-Identifier: Apache-2.0
 * Gates without a bound on the GPU: softplus and given decays, from none at all to -1e4 and minus
 * infinity a token, against the fp64 recurrence, and their properties bit for bit.
 *     check_kda_gate [route[,route...]] [short]
 * Routes after the first must give the first one's bits. Exit status 1 on any failure. */
#include "cuda/kda_judge.h"

static char *routes[16];
static int n_route;

static struct kda_spec plain(int64_t n_tok, int64_t n_head, enum kda_regime regime)
{
    struct kda_spec spec = kda_plain(n_tok, n_head, regime);
    spec.gate = BRIM_KDA_GATE_SOFTPLUS, spec.seed = (uint64_t)n_tok * 17 + (uint64_t)regime,
    spec.lower_bound = 0;
    return spec;
}

/* Every route on a finished case: the first is judged, the others must equal it. */
static void check_case(struct kda_case *c, const struct kda_spec *spec, const char *what)
{
    uint16_t *out = kda_alloc(c->v_bytes);
    void *final = kda_alloc(c->state_bytes);
    for (int i = 0; i < n_route; i++) {
        struct kda_device d;
        route = routes[i];
        kda_device_make(&d, c, route);
        if (run(&d, what)) {
            verdict(kda_device_fetch(&d), what, "a byte outside a buffer changed");
            verdict(kda_device_inputs_kept(&d), what, "an input changed");
            if (i == 0) {
                judge(c, spec, what);
                memcpy(out, c->out, c->v_bytes), memcpy(final, c->final, c->state_bytes);
            } else {
                verdict(!memcmp(out, c->out, c->v_bytes) &&
                            !memcmp(final, c->final, c->state_bytes),
                        what, route);
            }
        }
        kda_device_free(&d);
    }
    free(out), free(final);
}

static void check_spec(const struct kda_spec *spec, const char *what)
{
    struct kda_case c;
    kda_case_make(&c, spec);
    check_case(&c, spec, what);
    kda_case_free(&c);
}

static void put_decay(struct kda_case *c, int64_t t, int i, float g)
{
    int64_t at = t * c->args.g_stride.token + i;
    if (c->args.g_dtype == BRIM_KERNEL_F32)
        ((float *)c->g)[at] = g;
    else
        ((uint16_t *)c->g)[at] = brim_bf16_from_f32(g);
}

/* Given decays of one head that no factored form survives. */
static void check_given(int kind, bool f32, const char *what)
{
    static const float near[] = {0, -1e-6f, -0.01f, -0.3f}, far[] = {-1e4f, -INFINITY, -88, -3e38f};
    struct kda_spec spec = plain(161, 1, kind == 3 ? KDA_COLLINEAR : KDA_MIXED);
    spec.gate = BRIM_KDA_GATE_GIVEN, spec.f32_decay = f32, spec.seed += (uint64_t)kind;
    struct kda_case c;
    kda_case_make(&c, &spec);
    for (int64_t t = 0; t < 161; t++)
        for (int i = 0; i < 128; i++) {
            unsigned mix = (unsigned)(t * 131 + i) * 2654435761u >> 16;
            float g = near[(i + t) % 4];
            switch (kind) {
            case 0: /* now and then, anywhere */
                if (mix % 7 == 0) g = far[mix / 7 % 4];
                break;
            case 1: /* at the edges of quarters, halves and chunks */
                if (t % 8 == 0 || t % 16 == 15) g = far[i % 4];
                break;
            case 2: /* channels that forget at once beside channels that never do */
                g = i % 2 ? -1e4f : 0;
                break;
            case 3: /* one key, no decay but for one token a chunk */
                g = t % 32 == 19 ? -40 : -1e-5f;
                break;
            default: /* everything, every token */
                g = -1e4f;
            }
            put_decay(&c, t, i, g);
        }
    check_case(&c, &spec, what);
    kda_case_free(&c);
}

/* exp(A_log) from 1e-3 to 1e4 under raw gates of all sizes. */
static void check_rates(void)
{
    static const float a_log[] = {-7, 0, 5, 9.2f};
    for (int r = KDA_TYPICAL; r <= KDA_FULL; r++) {
        struct kda_spec spec = plain(100, 4, (enum kda_regime)r);
        struct kda_case c;
        char what[32];
        kda_case_make(&c, &spec);
        memcpy(c.a_log, a_log, sizeof a_log);
        snprintf(what, sizeof what, "rates, regime %d", r);
        /* a rate of 1e-3 makes any regime a weak one */
        spec.regime = KDA_MIXED;
        check_case(&c, &spec, what);
        kda_case_free(&c);
    }
}

/* Later tokens change nothing before them; NaN stays behind its chunk's start. */
static void check_causality(void)
{
    struct kda_spec spec = plain(100, 1, KDA_TYPICAL);
    struct kda_case c, one;
    struct kda_device d;
    route = routes[0];
    kda_case_make(&c, &spec);
    kda_device_make(&d, &c, route);
    run(&d, "causality");
    kda_device_fetch(&d);
    kda_device_free(&d);
    for (int t = 1; t < 100; t += 6)
        for (int nan = 0; nan < 2; nan++) {
            kda_case_make(&one, &spec);
            for (int i = t * 128; i < 100 * 128 && !nan; i++)
                one.q[i] = 0x4100, one.k[i] ^= 0x8000, one.v[i] ^= 0x8040,
                ((uint16_t *)one.g)[i] = i & 1 ? 0x42C8 : 0xC0A0;
            if (nan) ((uint16_t *)one.g)[t * 128 + 9] = 0x7FC0;
            kda_device_make(&d, &one, route);
            run(&d, "causality");
            kda_device_fetch(&d);
            int same = nan ? t / 32 * 32 : t;
            verdict(!memcmp(c.out, one.out, (size_t)same * 256), "causality",
                    nan ? "NaN reached an earlier chunk" : "an earlier output changed");
            if (nan)
                verdict((one.out[99 * 128] & 0x7FFF) > 0x7F80, "causality", "a NaN decay was lost");
            kda_device_free(&d);
            kda_case_free(&one);
        }
    kda_case_free(&c);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"typical",   "weak",         "saturated", "mixed",
                                        "alternate", "step",         "never",     "full",
                                        "collinear", "antiparallel", "zeros"};
    static const int lengths[] = {1,  2,  7,  8,  9,  15, 16, 17, 23, 24, 25,  31,  32,
                                  33, 47, 48, 49, 63, 64, 65, 95, 96, 97, 127, 128, 129};
    static const int64_t packed[] = {65, 0, 129, 8, 1, 200, 0};
    int status = kda_begin(argc, argv, "m128");
    if (status) return status;
    char what[48];
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i += brief ? 6 : 1) {
        struct kda_spec spec = plain(lengths[i], 1, KDA_TYPICAL);
        snprintf(what, sizeof what, "%d tokens", lengths[i]);
        check_spec(&spec, what);
    }
    for (int kind = 0; kind < (brief ? 1 : 5); kind++)
        for (int f32 = 0; f32 < 2; f32++) {
            snprintf(what, sizeof what, "given %d, %s", kind, f32 ? "fp32" : "bf16");
            check_given(kind, f32, what);
        }
    if (!brief) {
        for (int r = 0; r <= KDA_ZEROS; r++) {
            struct kda_spec spec = plain(r == KDA_COLLINEAR ? 1024 : 321, 2, (enum kda_regime)r);
            check_spec(&spec, names[r]);
        }
        check_rates();
        struct kda_spec spec = plain(0, 2, KDA_MIXED);
        spec.n_seq = 7, spec.lengths = packed, spec.n_value_head = 4, spec.pad = 8;
        spec.f32_beta = 1, spec.flags = BRIM_KDA_STATE_K_FIRST, spec.state_dtype = BRIM_KERNEL_BF16;
        check_spec(&spec, "packed");
        check_causality();
    }
    return kda_end("gates without a bound");
}
