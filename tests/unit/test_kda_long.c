/* SPDX-License-Identifier: Apache-2.0
 * KDA on the CPU over thousands of tokens: keys that hardly differ, and betas near one, where an
 * inverse or a rounded beta drifts.
 * ctest labels: slow */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "check/kda_case.h"

static struct kda_spec plain(int64_t n_tok, enum kda_regime regime)
{
    struct kda_spec spec = kda_plain(n_tok, 1, regime);
    spec.seed = 5, spec.with_initial = 0;
    return spec;
}

/* With the GPU's roundings the error of keys that hardly differ, which nothing forgets, grows with
 * the length, past the bar of 5e-2: this is what it may reach in 16,384 tokens. */
static const double drift_bar = 0.2;

/* Both forms against fp64; bars of the regime. */
static void hold(struct kda_case *c, enum kda_regime regime, bool drifts, const char *what)
{
    for (int gpu = 0; gpu < 2; gpu++) {
        brim_error err = {0};
        if (brim_kda_cpu(&c->args, gpu ? BRIM_KDA_GPU : BRIM_KDA_FP32, &err) != BRIM_OK)
            fail_msg("%s", err.text);
        for (int64_t h = 0; h < c->args.n_value_head; h++) {
            struct kda_error e = kda_measure(&c->args, 0, h);
            bool within = gpu && drifts
                              ? e.finite && fmax(fmax(e.out, e.window), e.state) < drift_bar
                              : kda_within(&e, regime, c->args.n_tok);
            if (!within || (!gpu && c->args.state_dtype == BRIM_KERNEL_F32 && e.state > 3e-5))
                fail_msg("%s, gpu %d: out %.2e window %.2e state %.2e", what, gpu, e.out, e.window,
                         e.state);
        }
    }
}

/* K1: one key, raw gate -12, raw beta 8. */
static void one_key(void **state)
{
    (void)state;
    static const int64_t lengths[] = {64, 16384};
    for (int i = 0; i < 2; i++) {
        struct kda_spec spec = plain(lengths[i], KDA_COLLINEAR);
        struct kda_case c;
        kda_case_make(&c, &spec);
        hold(&c, KDA_COLLINEAR, lengths[i] > 1024, "one key");
        kda_case_free(&c);
    }
}

/* K2: k = base + 1e-2 noise, two heads. */
static void nearly_one_key(void **state)
{
    (void)state;
    struct kda_spec spec = plain(8192, KDA_COLLINEAR);
    spec.n_head = spec.n_value_head = 2;
    struct kda_case c;
    struct brim_rng rng = {77};
    kda_case_make(&c, &spec);
    for (int64_t i = 0; i < 8192 * 256; i++)
        c.k[i] = brim_bf16_from_f32(brim_f32_from_bf16(c.k[i]) + 1e-2f * (float)kda_normal(&rng));
    hold(&c, KDA_COLLINEAR, true, "nearly one key");
    kda_case_free(&c);
}

/* K21: beta of logits in [3, 6], which bf16 would round to a few values below 1. */
static void betas_near_one(void **state)
{
    (void)state;
    for (int f32 = 0; f32 < 2; f32++) {
        struct kda_spec spec = plain(4096, KDA_WEAK);
        struct kda_case c;
        struct brim_rng rng = {78};
        spec.f32_beta = f32;
        kda_case_make(&c, &spec);
        for (int t = 0; t < 4096; t++) {
            float logit = 3 + 3 * brim_rng_uniform(&rng);
            if (f32)
                ((float *)c.beta)[t] = logit;
            else
                ((uint16_t *)c.beta)[t] = brim_bf16_from_f32(logit);
        }
        hold(&c, KDA_WEAK, false, "betas near one");
        kda_case_free(&c);
    }
}

/* K22: a bf16 state costs one rounding where it is read and one where it is written. */
static void bf16_states(void **state)
{
    (void)state;
    struct kda_spec spec = plain(8192, KDA_WEAK);
    struct kda_case c;
    spec.with_initial = 1, spec.state_dtype = BRIM_KERNEL_BF16;
    kda_case_make(&c, &spec);
    hold(&c, KDA_WEAK, false, "bf16 states");
    kda_case_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_key),
        cmocka_unit_test(nearly_one_key),
        cmocka_unit_test(betas_near_one),
        cmocka_unit_test(bf16_states),
    };
    return cmocka_run_group_tests_name("kda_long", tests, NULL, NULL);
}
