/* SPDX-License-Identifier: Apache-2.0
 * The split policy against the course's whole table: literal rows, and every row count from 1 to
 * 2048 against a computation written from the definition. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "brim/plan.h"
#include "cuda/w4/w4.h"

struct projection {
    const char *name;
    int64_t n_in, n_out;
};

static const struct projection projections[] = {
    {"q", 2560, 4096},    {"k", 2560, 1024},  {"v", 2560, 1024},    {"o", 4096, 2560},
    {"gate", 2560, 9728}, {"up", 2560, 9728}, {"down", 9728, 2560}, {"head", 2560, 151936},
};
enum { N_PROJECTION = sizeof projections / sizeof projections[0] };

static brim_split_plan course(int64_t n_row, int64_t n_in, int64_t n_out)
{
    brim_split_policy policy = brim_split_policy_course();
    brim_split_plan plan;
    memset(&plan, 0xA5, sizeof plan);
    assert_int_equal(brim_split_plan_make(&policy, n_row, n_in, n_out, &plan, NULL), BRIM_OK);
    return plan;
}

static void the_published_table(void **state)
{
    (void)state;
    static const int rows[] = {16, 32, 64, 96, 128, 2048};
    static const struct {
        int64_t n_in, n_out;
        int split[6], tiles[6], launched[6];
    } table[] = {
        {2560,
         4096,
         {2, 2, 1, 1, 1, 1},
         {128, 128, 256, 384, 512, 8192},
         {256, 256, 256, 384, 512, 8192}},
        {2560,
         1024,
         {10, 10, 5, 2, 2, 1},
         {32, 32, 64, 96, 128, 2048},
         {320, 320, 320, 192, 256, 2048}},
        {4096,
         2560,
         {4, 4, 2, 1, 1, 1},
         {80, 80, 160, 240, 320, 5120},
         {320, 320, 320, 240, 320, 5120}},
        {2560,
         9728,
         {1, 1, 1, 1, 1, 1},
         {304, 304, 608, 912, 1216, 19456},
         {304, 304, 608, 912, 1216, 19456}},
        {9728,
         2560,
         {4, 4, 2, 1, 1, 1},
         {80, 80, 160, 240, 320, 5120},
         {320, 320, 320, 240, 320, 5120}},
        {2560,
         151936,
         {1, 1, 1, 1, 1, 1},
         {4748, 4748, 9496, 14244, 18992, 303872},
         {4748, 4748, 9496, 14244, 18992, 303872}},
    };
    for (size_t t = 0; t < sizeof table / sizeof table[0]; t++)
        for (int r = 0; r < 6; r++) {
            brim_split_plan plan = course(rows[r], table[t].n_in, table[t].n_out);
            assert_int_equal(plan.matvec, 0);
            assert_int_equal(plan.split, table[t].split[r]);
            assert_int_equal(plan.base_groups, table[t].tiles[r]);
            assert_int_equal(plan.launched_groups, table[t].launched[r]);
            assert_int_equal(plan.partition_inputs, table[t].n_in / table[t].split[r]);
        }
}

/* The last column of the table: ranges of rows with one split. */
static void the_published_ranges(void **state)
{
    (void)state;
    static const struct {
        const char *names;
        struct {
            int last, split;
        } range[4];
    } table[] = {
        {"q", {{32, 2}, {2048, 1}}},
        {"k v", {{32, 10}, {64, 5}, {160, 2}, {2048, 1}}},
        {"o", {{32, 4}, {64, 2}, {2048, 1}}},
        {"gate up", {{2048, 1}}},
        {"down", {{32, 4}, {64, 2}, {2048, 1}}},
        {"head", {{2048, 1}}},
    };
    int seen = 0;
    for (size_t t = 0; t < sizeof table / sizeof table[0]; t++)
        for (int p = 0; p < N_PROJECTION; p++) {
            char padded[16] = " ", list[16] = " ";
            strcat(strcat(padded, projections[p].name), " ");
            strcat(strcat(list, table[t].names), " ");
            if (!strstr(list, padded)) continue;
            seen++;
            int r = 0;
            for (int m = 9; m <= 2048; m++) {
                if (m > table[t].range[r].last) r++;
                assert_int_equal(course(m, projections[p].n_in, projections[p].n_out).split,
                                 table[t].range[r].split);
            }
        }
    assert_int_equal(seen, N_PROJECTION);
}

/* The definition read literally: of all splits, the largest that is allowed. */
static void every_row_count_by_definition(void **state)
{
    (void)state;
    for (int p = 0; p < N_PROJECTION; p++)
        for (int m = 1; m <= 2048; m++) {
            int64_t tiles = 0;
            for (int row = 0; row < m; row += 32)
                for (int64_t o = 0; o < projections[p].n_out; o += 32) tiles++;
            int64_t best = 1;
            if (m > 8)
                for (int64_t s = 2; s <= 16; s++)
                    if (tiles * s <= 320 && projections[p].n_in % (s * 128) == 0) best = s;
            brim_split_plan plan = course(m, projections[p].n_in, projections[p].n_out);
            assert_int_equal(plan.split, best);
            assert_int_equal(plan.matvec, m <= 8);
            assert_int_equal(plan.base_groups, tiles);
            assert_int_equal(plan.launched_groups, tiles * best);
            assert_int_equal(plan.partition_inputs * best, projections[p].n_in);
            assert_int_equal(plan.partition_inputs % 128, 0);
        }
}

static void printed_line(void **state)
{
    (void)state;
    char text[200];
    brim_split_plan plan = course(32, 2560, 1024);
    size_t len = brim_split_plan_print(&plan, text, sizeof text);
    assert_string_equal(text, "{\"split\":10,\"base_groups\":32,\"launched_groups\":320,"
                              "\"kernel\":\"split-k\",\"partition_inputs\":256}");
    assert_int_equal(len, strlen(text));
    for (int m = 1; m <= 8; m++) {
        plan = course(m, 2560, 1024);
        brim_split_plan_print(&plan, text, sizeof text);
        assert_non_null(strstr(text, "\"kernel\":\"matvec\",\"split\":1,"));
    }
    plan = course(9, 2560, 9728);
    brim_split_plan_print(&plan, text, sizeof text);
    assert_non_null(strstr(text, "{\"split\":1,\"base_groups\":304,\"launched_groups\":304,"
                                 "\"kernel\":\"tiled\""));
    /* Too small a buffer: cut, terminated, and the length it needs. */
    char *exact = malloc(9);
    assert_int_equal(brim_split_plan_print(&plan, exact, 9), strlen(text));
    assert_int_equal(strlen(exact), 8);
    free(exact);
    assert_int_equal(brim_split_plan_print(&plan, NULL, 0), strlen(text));
}

static void device_form(void **state)
{
    (void)state;
    brim_split_plan plan;
    /* 132 processors, 64 x 128 tiles: K/V has 8 tiles at 64 rows, 132 / 8 = 16, lowered to the next
     * divisor of 20 groups. */
    brim_split_policy policy = brim_split_policy_device(132, 64, 128, 128);
    assert_int_equal(brim_split_plan_make(&policy, 64, 2560, 1024, &plan, NULL), BRIM_OK);
    assert_int_equal(plan.base_groups, 8);
    assert_int_equal(plan.split, 10);
    /* Two threads, panels of 16 outputs: more panels than threads are never split. */
    policy = brim_split_policy_device(2, 64, 16, 32);
    assert_int_equal(brim_split_plan_make(&policy, 64, 576, 192, &plan, NULL), BRIM_OK);
    assert_int_equal(plan.split, 1);
    assert_int_equal(brim_split_plan_make(&policy, 64, 576, 16, &plan, NULL), BRIM_OK);
    assert_int_equal(plan.split, 2);
    assert_int_equal(plan.partition_inputs, 288);
    /* Every legal plan: within the target once split, whole groups, equal partitions. */
    for (int p = 1; p <= 300; p += 7)
        for (int m = 9; m < 300; m += 5)
            for (int64_t n_in = 0; n_in <= 640; n_in += 32) {
                policy = brim_split_policy_device(p, 16, 16, 32);
                assert_int_equal(brim_split_plan_make(&policy, m, n_in, 48, &plan, NULL), BRIM_OK);
                assert_true(plan.split == 1 || plan.launched_groups <= p);
                assert_int_equal(plan.split * plan.partition_inputs, n_in);
                assert_int_equal(plan.partition_inputs % 32, 0);
                assert_true(plan.split <= 16);
            }
}

/* What an H200 measured, bench/results/h200/w4_split.csv: us of a projection at some rows by form
 * and split; 0 where the file has none. */
static double measured_us(const char *projection, int64_t rows, const char *form, int64_t split)
{
    char line[256], name[16], is[16];
    long long m, s;
    double us, found = 0;
    FILE *f = fopen(BRIM_SOURCE_DIR "/bench/results/h200/w4_split.csv", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%15[^,],%lld,%15[^,],%lld,%lf", name, &m, is, &s, &us) == 5 &&
            !strcmp(name, projection) && m == rows && !strcmp(is, form) && s == split)
            found = us;
    fclose(f);
    return found;
}

/* Where the policy `device` cuts a product on an H200 the cut was measured and is faster than the
 * unsplit kernel, which was recorded first; K at 32 rows is among them, and so is every projection
 * the course splits there. */
static void the_device_splits_below_the_crossover(void **state)
{
    (void)state;
    static const struct projection measured[] = {{"kv", 2560, 1024},
                                                 {"q", 2560, 4096},
                                                 {"o", 4096, 2560},
                                                 {"gate", 2560, 9728},
                                                 {"down", 9728, 2560}};
    static const int64_t rows[] = {16, 32, 64, 128};
    int n_split = 0, n_whole = 0;
    for (size_t p = 0; p < 5; p++)
        for (size_t r = 0; r < 4; r++) {
            const struct projection *of = &measured[p];
            brim_split_policy policy =
                brim_split_policy_device(132 * (int64_t)BRIM_W4_TILED_PER_SM, 32, 32, 128);
            brim_split_plan plan;
            assert_int_equal(
                brim_split_plan_make(&policy, rows[r], of->n_in, of->n_out, &plan, NULL), BRIM_OK);
            double unsplit = measured_us(of->name, rows[r], "tiled", 1);
            assert_true(unsplit > 0);
            if (plan.split == 1) {
                n_whole++;
                assert_true(rows[r] >= 64); /* at 32 rows and below every projection is split */
                continue;
            }
            double us = measured_us(of->name, rows[r], "pinned", plan.split);
            if (!(us > 0 && us < unsplit))
                print_message("%s, %d rows, split %d: %.2f us, unsplit %.2f\n", of->name,
                              (int)rows[r], (int)plan.split, us, unsplit);
            assert_true(us > 0 && us < unsplit);
            n_split++;
        }
    assert_true(n_split >= 10 && n_whole >= 1);
}

static void refusals_and_empty_products(void **state)
{
    (void)state;
    brim_split_policy policy = brim_split_policy_course();
    brim_split_plan plan = {.split = 77};
    brim_error err = {0};
    assert_int_equal(brim_split_plan_make(&policy, 32, 2500, 1024, &plan, &err), BRIM_E_SHAPE);
    assert_non_null(strstr(err.text, "2500 inputs are not a multiple of 128"));
    assert_int_equal(brim_split_plan_make(&policy, -1, 2560, 1024, &plan, &err), BRIM_E_SHAPE);
    assert_int_equal(brim_split_plan_make(&policy, 1, -128, 1024, &plan, &err), BRIM_E_SHAPE);
    assert_int_equal(brim_split_plan_make(&policy, 1, 2560, -1, &plan, &err), BRIM_E_SHAPE);
    assert_int_equal(brim_split_plan_make(NULL, 1, 2560, 1, &plan, &err), BRIM_E_ARGUMENT);
    assert_int_equal(brim_split_plan_make(&policy, 1, 2560, 1, NULL, &err), BRIM_E_ARGUMENT);
    assert_int_equal(brim_split_plan_make(&policy, INT64_MAX, 128, INT64_MAX, &plan, &err),
                     BRIM_E_SHAPE);
    policy.align = 0;
    assert_int_equal(brim_split_plan_make(&policy, 1, 2560, 1, &plan, &err), BRIM_E_ARGUMENT);
    assert_int_equal(plan.split, 77); /* untouched by a failure */
    const int64_t empty[][3] = {{0, 2560, 1024}, {32, 2560, 0}, {0, 0, 0}};
    for (size_t i = 0; i < 3; i++) {
        plan = course(empty[i][0], empty[i][1], empty[i][2]);
        assert_int_equal(plan.split, 1);
        assert_int_equal(plan.launched_groups, 0);
    }
    plan = course(32, 0, 1024); /* nothing to sum, but outputs to write */
    assert_int_equal(plan.split, 1);
    assert_int_equal(plan.launched_groups, 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_table),
        cmocka_unit_test(the_published_ranges),
        cmocka_unit_test(every_row_count_by_definition),
        cmocka_unit_test(printed_line),
        cmocka_unit_test(device_form),
        cmocka_unit_test(the_device_splits_below_the_crossover),
        cmocka_unit_test(refusals_and_empty_products),
    };
    return cmocka_run_group_tests_name("split_k", tests, NULL, NULL);
}
