/* SPDX-License-Identifier: Apache-2.0
 * Rotary frequencies and tables. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tensor/rope.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_frequencies),
        cmocka_unit_test(tables_are_rounded_once),
    };
    return cmocka_run_group_tests_name("rope", tests, NULL, NULL);
}
