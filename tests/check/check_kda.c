/* SPDX-License-Identifier: Apache-2.0
 * The KDA kernel of a tier against the fp64 recurrence, inputs behind guard pages; and whether it
 * is the kernel that a call of the library takes. */
#include "check/check.h"

#include <string.h>

#include "check/kda_case.h"
#include "cpu/cpu_ops.h"

static struct kda_spec spec_of(int64_t n_tok, enum kda_regime regime)
{
    struct kda_spec spec = kda_plain(n_tok, 1, regime);
    spec.seed = (uint64_t)n_tok;
    return spec;
}

static const void *guarded(struct check *c, const void *from, size_t n_bytes)
{
    if (!from) return NULL;
    return memcpy(check_alloc(c, n_bytes, 16), from, n_bytes);
}

static void guard(struct check *c, struct kda_case *k)
{
    brim_kda_args *a = &k->args;
    a->q = guarded(c, k->q, k->q_bytes);
    a->k = guarded(c, k->k, k->q_bytes);
    a->v = guarded(c, k->v, k->v_bytes);
    a->g = guarded(c, k->g, k->g_bytes);
    a->beta = guarded(c, k->beta, k->beta_bytes);
    a->initial_state = guarded(c, k->initial, k->state_bytes);
    a->out = check_alloc(c, k->v_bytes, 16);
    a->final_state = check_alloc(c, k->state_bytes, 16);
    if (k->checkpoints) a->checkpoints = check_alloc(c, k->checkpoint_bytes, 16);
}

static void hold(struct check *c, const struct kda_spec *spec, struct kda_case *k)
{
    guard(c, k);
    for (int64_t head = 0; head < spec->n_value_head; head++) {
        struct brim_kda_task task;
        brim_kda_task_make(&k->args, 0, head, &task);
        brim_kda_chunk_task_ops(c->ops, &k->args, &task,
                                check_alloc(c, brim_kda_chunk_scratch_bytes(), 64));
        struct kda_error e = kda_measure(&k->args, 0, head);
        double state_bar = k->args.state_dtype == BRIM_KERNEL_F32 ? 3e-5 : 3e-3;
        if (!kda_within(&e, spec->regime, spec->n_tok) || e.state > state_bar)
            check_fail(c, "head %d: out %.2e window %.2e state %.2e", (int)head, e.out, e.window,
                       e.state);
    }
    kda_case_free(k);
}

static void case_task(struct check *c, const void *param)
{
    const struct kda_spec *spec = param;
    struct kda_case k;
    kda_case_make(&k, spec);
    hold(c, spec, &k);
}

/* Given decays without a bound: every fifth token or so forgets all of some channels, by decays far
 * beyond what 2^x reaches, among channels that forget hardly anything. */
static void case_steep(struct check *c, const void *param)
{
    int form = *(const int *)param;
    struct kda_spec spec = spec_of(97 + form, KDA_MIXED);
    struct kda_case k;
    spec.gate = BRIM_KDA_GATE_GIVEN, spec.lower_bound = 0, spec.f32_decay = 1;
    kda_case_make(&k, &spec);
    for (int64_t i = 0; i < spec.n_tok * 128; i++) {
        static const float steep[] = {-INFINITY, -1e30f, -1e4f, -88.7f};
        ((float *)k.g)[i] = (i / 128 + i) % 5 ? -0.01f * (float)(i % 7) : steep[form];
    }
    hold(c, &spec, &k);
}

/* Rows from `first` on change, then become NaN: those before them, and before the NaN's chunk, keep
 * their bits. */
static void case_causal(struct check *c, const void *param)
{
    const int *first_and_gate = param;
    int first = first_and_gate[0];
    enum { N_TOK = 70 };
    struct kda_spec spec = spec_of(N_TOK, KDA_TYPICAL);
    if (first_and_gate[1]) spec.gate = BRIM_KDA_GATE_SOFTPLUS, spec.lower_bound = 0;
    struct kda_case clean, k;
    kda_case_make(&clean, &spec);
    kda_case_make(&k, &spec);
    guard(c, &clean);
    int64_t chunk = first / 32 * 32;
    for (int64_t i = first * 128; i < N_TOK * 128; i++) {
        k.q[i] = 0x4100, k.v[i] ^= 0x8000, k.k[i] ^= 0x8000, ((uint16_t *)k.g)[i] = 0x40A0;
    }
    guard(c, &k);
    for (int poisoned = 0; poisoned < 2; poisoned++) {
        struct kda_case *both[] = {&clean, &k};
        for (int i = 0; i < 2; i++) {
            struct brim_kda_task task;
            brim_kda_task_make(&both[i]->args, 0, 0, &task);
            brim_kda_chunk_task_ops(c->ops, &both[i]->args, &task,
                                    check_alloc(c, brim_kda_chunk_scratch_bytes(), 64));
        }
        int64_t n_equal = poisoned ? chunk : first;
        check_equal(c, poisoned ? "rows before a NaN's chunk" : "rows before a change",
                    clean.args.out, k.args.out, (size_t)n_equal * 256);
        for (int64_t i = first * 128; i < N_TOK * 128; i++) k.k[i] = 0x7FC0;
        k.args.k = guarded(c, k.k, k.q_bytes);
    }
    kda_case_free(&clean), kda_case_free(&k);
}

/* The table of a tier holds a kernel of its own, and a call of the library on this processor gives
 * that kernel's bits, which are not those of plain C. */
static void case_chosen(struct check *c, const void *param)
{
    (void)param;
    struct brim_cpu_info info = brim_cpu_detect();
    struct kda_spec spec = spec_of(97, KDA_TYPICAL);
    struct kda_case k;
    brim_error err = {0};
    bool plain = c->ops->tier == BRIM_CPU_TIER_C;
    if (plain !=
        (c->ops->kda_prepare == c->ref->kda_prepare || c->ops->kda_advance == c->ref->kda_advance))
        check_fail(c, "the tier has %s", plain ? "two kernels" : "no kernel of its own");
    kda_case_make(&k, &spec);
    float *by_tier = check_poison(c, 16384), *by_c = check_poison(c, 16384);
    struct brim_kda_task task;
    brim_kda_task_make(&k.args, 0, 0, &task);
    void *scratch = check_alloc(c, brim_kda_chunk_scratch_bytes(), 64);
    task.final = by_tier, brim_kda_chunk_task_ops(c->ops, &k.args, &task, scratch);
    task.final = by_c, brim_kda_chunk_task_ops(c->ref, &k.args, &task, scratch);
    if (!plain && memcmp(by_tier, by_c, 65536) == 0)
        check_fail(c, "the tier's state has the bits of plain C");
    if (c->ops->tier == info.tier) {
        if (brim_kda_prefill(&k.args, &err) != BRIM_OK) check_fail(c, "%s", err.text);
        check_equal(c, "final state of a call", by_tier, k.final, 65536);
    }
    kda_case_free(&k);
}

static void call_task(const struct brim_cpu_ops *ops, void *arg)
{
    struct kda_case *k = arg;
    struct brim_kda_task task;
    brim_kda_task_make(&k->args, 0, 0, &task);
    brim_kda_chunk_task_ops(ops, &k->args, &task, k->checkpoints);
}

static void case_bench(struct check *c, const void *param)
{
    static const char *const names[] = {"kda, 1024 tokens of one head",
                                        "kda, 1024 tokens of one head, softplus",
                                        "kda, one token of one head"};
    int which = *(const int *)param;
    struct kda_spec spec = spec_of(which == 2 ? 1 : 1024, KDA_TYPICAL);
    struct kda_case k;
    if (which == 1) spec.gate = BRIM_KDA_GATE_SOFTPLUS, spec.lower_bound = 0;
    kda_case_make(&k, &spec);
    k.checkpoints = aligned_alloc(64, (brim_kda_chunk_scratch_bytes() + 63) / 64 * 64);
    check_bench(c, names[which], (double)spec.n_tok, "token", call_task, &k);
    kda_case_free(&k);
}

void check_kda(struct check *c)
{
    static const int lengths[] = {1, 15, 17, 31, 33, 65, 129};
    enum { N_LENGTH = sizeof lengths / sizeof *lengths, N_REGIME = KDA_ZEROS + 1 };
    check_case(c, case_chosen, NULL, "kda: the tier's kernel is the one that runs");
    for (int i = 0; i < N_REGIME * 5; i++) {
        int64_t n_tok = lengths[i % N_LENGTH];
        struct kda_spec spec = spec_of(n_tok, (enum kda_regime)(i / 5));
        spec.checkpoints = i % 2;
        if (i % 5 == 1) spec.gate = BRIM_KDA_GATE_GIVEN, spec.f32_decay = i % 2;
        if (i % 5 == 3) spec.gate = BRIM_KDA_GATE_SOFTPLUS, spec.lower_bound = 0;
        if (i % 5 == 4)
            spec.gate = BRIM_KDA_GATE_GIVEN, spec.lower_bound = 0, spec.f32_decay = i % 2;
        if (i % 5 == 2) { /* two heads, rows apart, the bound and the state's form varied */
            spec.n_value_head = 2, spec.pad = 8, spec.lower_bound = i & 4 ? -1 : -0.01f;
            spec.f32_beta = 1, spec.flags |= BRIM_KDA_STATE_K_FIRST;
            if (i & 1) spec.state_dtype = BRIM_KERNEL_BF16;
        }
        check_case(c, case_task, &spec, "kda tokens=%d regime=%d form=%d", (int)n_tok, i / 5,
                   i % 5);
    }
    for (int i = 0; i < 4; i++) check_case(c, case_steep, &i, "kda: steep decays %d", i);
    static const int firsts[] = {1, 16, 31, 32, 33, 48, 69};
    for (size_t i = 0; i < 2 * (sizeof firsts / sizeof *firsts); i++) {
        int first_and_gate[] = {firsts[i / 2], i % 2};
        check_case(c, case_causal, first_and_gate, "kda: token %d changes nothing before%s",
                   first_and_gate[0], i % 2 ? ", softplus" : "");
    }
    for (int i = 0; i < 3 && c->bench; i++) check_case(c, case_bench, &i, "kda bench %d", i);
}
