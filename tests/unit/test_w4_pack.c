/* SPDX-License-Identifier: Apache-2.0
 * The packed order of 4-bit weights (src/cuda/w4/pack.h): every code and parameter has a place of
 * its own, and what a lane loads at once is what wgmma wants of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cuda/w4/pack.h"

static void every_code_has_a_place(void **state)
{
    (void)state;
    static bool taken[BRIM_W4_UNIT_BYTES / 4][8];
    for (int out = 0; out < BRIM_W4_SLAB; out++)
        for (int in = 0; in < BRIM_W4_UNIT; in++) {
            int word = -1, nibble = -1;
            brim_w4_pack_index(out, in, &word, &nibble);
            assert_in_range(word, 0, BRIM_W4_UNIT_BYTES / 4 - 1);
            assert_in_range(nibble, 0, 7);
            assert_false(taken[word][nibble]);
            taken[word][nibble] = true;
        }
}

/* The A fragment of wgmma m64k16 (PTX: warp w has rows 16 w .. 16 w + 15; register i of lane l rows
 * l / 4 and l / 4 + 8, inputs 2 (l % 4) and the next, from i = 2 on eight further), read back from
 * the 16 bytes that a lane loads for four k-steps. */
static void a_lane_loads_its_fragments(void **state)
{
    (void)state;
    static int out_at[BRIM_W4_UNIT_BYTES / 4][8], in_at[BRIM_W4_UNIT_BYTES / 4][8];
    for (int out = 0; out < BRIM_W4_SLAB; out++)
        for (int in = 0; in < BRIM_W4_UNIT; in++) {
            int word, nibble;
            brim_w4_pack_index(out, in, &word, &nibble);
            out_at[word][nibble] = out, in_at[word][nibble] = in;
        }
    for (int half = 0; half < 2; half++)
        for (int warp = 0; warp < 4; warp++)
            for (int lane = 0; lane < 32; lane++)
                for (int step = 0; step < 4; step++)
                    for (int reg = 0; reg < 4; reg++)
                        for (int high = 0; high < 2; high++) {
                            int word = ((half * 4 + warp) * 32 + lane) * 4 + step;
                            int out = warp * 16 + reg % 2 * 8 + lane / 4;
                            int in = (half * 4 + step) * 16 + reg / 2 * 8 + lane % 4 * 2 + high;
                            assert_int_equal(out_at[word][reg + 4 * high], out);
                            assert_int_equal(in_at[word][reg + 4 * high], in);
                        }
}

/* Scales of outputs g and g + 8, then their biases, are four neighbours; groups of 32, 64, 128. */
static void every_parameter_has_a_place(void **state)
{
    (void)state;
    for (int n_group = 1; n_group <= 4; n_group *= 2) {
        bool taken[4 * BRIM_W4_SLAB * 2] = {false};
        for (int group = 0; group < n_group; group++)
            for (int out = 0; out < BRIM_W4_SLAB; out++)
                for (int bias = 0; bias < 2; bias++) {
                    int at = brim_w4_pack_param(out, group) + 2 * bias;
                    assert_in_range(at, 0, n_group * BRIM_W4_SLAB * 2 - 1);
                    assert_false(taken[at]);
                    taken[at] = true;
                    int first = ((group * 4 + out / 16) * 8 + out % 8) * 4;
                    assert_int_equal(at, first + 2 * bias + out / 8 % 2);
                }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_a_place),
        cmocka_unit_test(a_lane_loads_its_fragments),
        cmocka_unit_test(every_parameter_has_a_place),
    };
    return cmocka_run_group_tests_name("w4_pack", tests, NULL, NULL);
}
