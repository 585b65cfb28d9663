/* SPDX-License-Identifier: Apache-2.0
 * brim_struct_layout describes every member of the argument structs: a new one must be added to
 * src/backend/kernels_layout.c, or a binding could never set it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "brim/kernels.h"

static void described(const char *name, size_t size)
{
    char text[4096], *line;
    size_t reported = 0;
    bool seen[2048] = {0};
    assert_true(brim_struct_layout(name, text, sizeof text) < sizeof text);
    for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        char member[64], kind;
        size_t offset, width;
        if (sscanf(line, "%63s %zu %zu %c", member, &offset, &width, &kind) != 4) {
            reported = strtoul(line, NULL, 10);
            continue;
        }
        assert_true(strchr("pifs", kind) && offset + width <= size);
        for (size_t i = offset; i < offset + width; i++) {
            if (seen[i])
                fail_msg("%s: byte %zu belongs to %s and to another member", name, i, member);
            seen[i] = true;
        }
    }
    assert_int_equal(reported, size);
    /* What is left is padding, at most four bytes in a row before a member of eight. */
    for (size_t i = 0, run = 0; i < size; i++) {
        run = seen[i] ? 0 : run + 1;
        if (run > 4)
            fail_msg(
                "%s: no member is described at byte %zu: add it to src/backend/kernels_layout.c",
                name, i - run + 1);
    }
}

static void every_member_is_described(void **state)
{
    (void)state;
    described("brim_kda_args", sizeof(brim_kda_args));
    described("brim_w4_args", sizeof(brim_w4_args));
    described("brim_split_plan", sizeof(brim_split_plan));
}

static void lengths_and_unknown_names(void **state)
{
    (void)state;
    char all[4096], cut[10];
    size_t len = brim_struct_layout("brim_w4_args", all, sizeof all);
    assert_int_equal(strlen(all), len);
    assert_int_equal(brim_struct_layout("brim_w4_args", NULL, 0), len);
    assert_int_equal(brim_struct_layout("brim_w4_args", cut, sizeof cut), len);
    assert_int_equal(strlen(cut), sizeof cut - 1);
    assert_int_equal(brim_struct_layout("brim_nothing", all, sizeof all), 0);
    char expected[64];
    snprintf(expected, sizeof expected, "\nn_out %zu 8 i\n", offsetof(brim_w4_args, n_out));
    assert_non_null(strstr(all, expected));
    assert_true(brim_struct_layout("brim_kda_plan", all, sizeof all) > 0);
    snprintf(expected, sizeof expected, "\nroute %zu 16 s\n", offsetof(brim_kda_plan, route));
    assert_non_null(strstr(all, expected));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_member_is_described),
        cmocka_unit_test(lengths_and_unknown_names),
    };
    return cmocka_run_group_tests_name("kernels_layout", tests, NULL, NULL);
}
