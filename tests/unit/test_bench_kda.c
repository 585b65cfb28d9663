/* SPDX-License-Identifier: Apache-2.0
 * The KDA benchmark's shapes and its CSV, which need no GPU: the sweep covers what the router's
 * table is to hold, its parts make the whole, and the lines are those that
 * tools/kda_route_table.py reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kda_cuda.h"

static bool has(const struct bench_kda_shape *shapes, size_t n, int64_t n_seq, int64_t n_tok,
                int64_t n_head)
{
    for (size_t i = 0; i < n; i++)
        if (shapes[i].n_seq == n_seq && shapes[i].n_tok == n_tok && shapes[i].n_head == n_head)
            return true;
    return false;
}

static void the_sweep_covers_the_region(void **state)
{
    (void)state;
    size_t n;
    struct bench_kda_shape *shapes = bench_kda_set("sweep", 1, 1, &n);
    assert_non_null(shapes);
    assert_true(n > 250 && n < 1000);
    for (size_t i = 0; i < n; i++) {
        assert_true(shapes[i].n_seq * shapes[i].n_tok * shapes[i].n_head <= BENCH_KDA_SWEEP_ROWS);
        assert_null(shapes[i].lengths);
        assert_int_equal(shapes[i].softplus, 0);
        assert_false(
            has(shapes, i, shapes[i].n_seq, shapes[i].n_tok, shapes[i].n_head)); /* no twice */
    }
    for (int64_t n_tok = 64; n_tok <= 131072; n_tok *= 2) assert_true(has(shapes, n, 1, n_tok, 1));
    static const int heads[] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        assert_true(has(shapes, n, 1, 8192, heads[i]) && has(shapes, n, 1, 64, heads[i]));
    for (int n_seq = 1; n_seq <= 64; n_seq *= 2)
        assert_true(has(shapes, n, n_seq, 64, 64) && has(shapes, n, n_seq, 8192, 4));
    free(shapes);
}

static void parts_make_the_whole(void **state)
{
    (void)state;
    static const char *const names[] = {"seed", "lengths", "packed", "softplus",
                                        "all",  "tiny",    "sweep"};
    for (size_t s = 0; s < sizeof names / sizeof *names; s++) {
        size_t n, sum = 0, least = SIZE_MAX, most = 0;
        struct bench_kda_shape *whole = bench_kda_set(names[s], 1, 1, &n);
        assert_non_null(whole);
        for (int part = 1; part <= 5; part++) {
            size_t n_of;
            struct bench_kda_shape *some = bench_kda_set(names[s], part, 5, &n_of);
            assert_non_null(some);
            for (size_t i = 0; i < n_of; i++)
                assert_memory_equal(&some[i], &whole[(size_t)part - 1 + 5 * i], sizeof *some);
            sum += n_of;
            if (n_of < least) least = n_of;
            if (n_of > most) most = n_of;
            free(some);
        }
        assert_int_equal(sum, n);
        assert_true(most - least <= 1);
        free(whole);
    }
    size_t n;
    assert_null(bench_kda_set("none", 1, 1, &n));
}

static void parts_are_written_i_of_n(void **state)
{
    (void)state;
    int part = 0, n_part = 0;
    assert_true(bench_kda_part("2/8", &part, &n_part));
    assert_int_equal(part, 2);
    assert_int_equal(n_part, 8);
    static const char *const wrong[] = {"",   "2",    "0/8",  "9/8",   "2/",
                                        "/8", "2/8x", "-1/8", "1/5000"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(bench_kda_part(wrong[i], &part, &n_part));
}

/* What a committed file begins with, and a line of each kind. */
static void lines_have_the_committed_columns(void **state)
{
    (void)state;
    char header[256] = "", committed[256] = "", line[256];
    const char *path = BRIM_SOURCE_DIR "/bench/results/h200/kda_routes.csv";
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(committed, sizeof committed, f) && committed[0] == '#') continue;
    fclose(f);
    f = tmpfile();
    assert_non_null(f);
    bench_kda_print_header(f);
    struct bench_kda_shape shape = {4, 8192, 12, NULL, 0};
    struct bench_kda_row row = {.shape = &shape, .route = "split", .us_median = 339.24};
    row.us_min = 338, row.us_max = 341, row.us_m128 = 678.48;
    row.out_error = 4.1e-3, row.state_error = 3e-3, row.split_length = 32, row.split_window = 3;
    row.split_first = 40, row.split_chunks = 105;
    bench_kda_print_row(f, &row);
    shape.softplus = 1, row.route = "m128", row.us_m128 = 0,
    row.split_length = row.split_first = row.split_window = 0, row.split_chunks = 0;
    bench_kda_print_row(f, &row);
    rewind(f);
    assert_non_null(fgets(header, sizeof header, f));
    committed[strcspn(committed, "\n")] = 0;
    header[strcspn(header, "\n")] = 0;
    assert_string_equal(header, committed);
    assert_non_null(fgets(line, sizeof line, f));
    assert_string_equal(
        line, "4,8192,12,split,339.2,338.0,341.0,2.000,4.10e-03,3.00e-03,32,40,3,105,bounded\n");
    assert_non_null(fgets(line, sizeof line, f));
    assert_string_equal(
        line, "4,8192,12,m128,339.2,338.0,341.0,1.000,4.10e-03,3.00e-03,0,0,0,0,softplus\n");
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sweep_covers_the_region),
        cmocka_unit_test(parts_make_the_whole),
        cmocka_unit_test(parts_are_written_i_of_n),
        cmocka_unit_test(lines_have_the_committed_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
