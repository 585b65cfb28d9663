/* SPDX-License-Identifier: Apache-2.0
 * Rotary frequencies and tables. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tensor/rope.h"
#include "unit/rope_vectors.h"

static void plain_frequencies(void **state)
{
    (void)state;
    struct brim_rope_config config = {.kind = BRIM_ROPE_NONE};
    double freq[32], amplitude;
    brim_rope_frequencies(&config, 10000, 64, freq, &amplitude);
    assert_true(amplitude == 1);
    assert_true(freq[0] == 1);
    for (int i = 0; i < 32; i++) assert_true(fabs(freq[i] * pow(10000, i / 32.0) - 1) < 1e-14);
    config.kind = BRIM_ROPE_LINEAR;
    config.factor = 4;
    double slow[32];
    brim_rope_frequencies(&config, 10000, 64, slow, &amplitude);
    for (int i = 0; i < 32; i++) assert_true(slow[i] == freq[i] / 4);
}

static void tables_are_rounded_once(void **state)
{
    (void)state;
    const double freq[3] = {1, 0.25, 1e-5};
    float cosine[2][3], sine[2][3];
    brim_rope_table(freq, 3, 1.5, 131071, 2, cosine[0], sine[0]);
    for (int t = 0; t < 2; t++) {
        for (int i = 0; i < 3; i++) {
            double angle = (131071 + t) * freq[i];
            assert_true(cosine[t][i] == (float)(cos(angle) * 1.5));
            assert_true(sine[t][i] == (float)(sin(angle) * 1.5));
        }
    }
}

/* transformers computes in float32: powers, quotients and the ramp each round once. */
static void scaled_frequencies_as_transformers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rope_vectors / sizeof *rope_vectors; i++) {
        double freq[64], amplitude;
        brim_rope_frequencies(&rope_vectors[i].config, rope_vectors[i].theta,
                              rope_vectors[i].head_dim, freq, &amplitude);
        if (fabs(amplitude - rope_vectors[i].amplitude) > 1e-12)
            fail_msg("%s: amplitude %.12g, expected %.12g", rope_vectors[i].name, amplitude,
                     rope_vectors[i].amplitude);
        for (int k = 0; k < rope_vectors[i].head_dim / 2; k++) {
            double expected = rope_vectors[i].inv_freq[k];
            if (!(fabs(freq[k] - expected) <= 2e-6 * expected))
                fail_msg("%s: frequency %d is %.9g, expected %.9g", rope_vectors[i].name, k,
                         freq[k], expected);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_frequencies),
        cmocka_unit_test(scaled_frequencies_as_transformers),
        cmocka_unit_test(tables_are_rounded_once),
    };
    return cmocka_run_group_tests_name("rope", tests, NULL, NULL);
}
