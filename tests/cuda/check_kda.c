/* SPDX-License-Identifier: Apache-2.0
 * The KDA kernels on the GPU against the fp64 recurrence: lengths, regimes, forms of every
 * argument. check_kda [route] [quick|short]; short: small shapes, for the sanitizers. Prints one
 * line a failure and a summary; exit status 1 on any failure. */
#include "cuda/kda_judge.h"

static void check_spec(const struct kda_spec *spec, const char *what)
{
    struct kda_case c;
    struct kda_device d;
    kda_case_make(&c, spec);
    kda_device_make(&d, &c, route);
    if (run(&d, what)) {
        verdict(kda_device_fetch(&d), what, "a byte outside a buffer changed");
        verdict(kda_device_inputs_kept(&d), what, "an input changed");
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
    struct kda_spec spec = kda_plain(n_tok, n_head, regime);
    spec.seed = (uint64_t)n_tok * 31 + (uint64_t)regime;
    return spec;
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

static void check_lengths(void)
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
        spec.no_rate = i == 1 || i == 3, spec.no_bias = i >= 2, spec.scale = i % 3 == 2 ? -0.3f : 0;
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

int main(int argc, char **argv)
{
    bool quick = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "quick"))
            quick = true;
        else if (!strcmp(argv[i], "short"))
            quick = brief = true;
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
    check_lengths();
    if (!brief) check_regimes();
    if (!quick) check_forms();
    return kda_end(route ? route : "automatic route");
}
