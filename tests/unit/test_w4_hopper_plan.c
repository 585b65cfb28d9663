/* SPDX-License-Identifier: Apache-2.0
 * Which Hopper W4 kernel takes a product: where the measured sweep says, for every row count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "brim/kernels.h"
#include "plan/w4_hopper.h"

static void kernels_change_where_they_were_measured_to(void **state)
{
    (void)state;
    static const struct {
        int64_t in, out, gemv_rows, cluster_rows;
    } shapes[] = {{2560, 4096, 8, 48}, {2560, 1024, 4, 64},  {4096, 2560, 4, 48},
                  {2560, 9728, 8, 48}, {9728, 2560, 8, 48},  {2560, 6144, 8, 48},
                  {2560, 2048, 4, 64}, {2560, 19456, 8, 32}, {576, 960, 8, 64}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int64_t n_row = 1; n_row <= 300; n_row++) {
            struct brim_w4_hopper_plan plan =
                brim_w4_hopper_plan_make(n_row, shapes[i].in, shapes[i].out, 132);
            enum brim_w4_hopper_kernel want = BRIM_W4_KERNEL_STREAM;
            if (n_row <= shapes[i].cluster_rows) want = BRIM_W4_KERNEL_CLUSTER;
            if (n_row <= shapes[i].gemv_rows) want = BRIM_W4_KERNEL_GEMV;
            assert_int_equal(plan.kernel, want);
            assert_true(brim_w4_hopper_plan_ctas(&plan) >= 1);
            if (want == BRIM_W4_KERNEL_CLUSTER)
                assert_true(plan.cluster.n_token * plan.cluster.n_tile_token >= n_row);
            if (want == BRIM_W4_KERNEL_STREAM)
                assert_true(plan.stream.n_token * plan.stream.n_tile_token >= n_row);
        }
}

static void rows_alike_have_the_same_plan(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{2560, 6144}, {4096, 2560}, {2560, 19456}, {9728, 2560},
                                        {2560, 1024}, {576, 960},   {1536, 576},   {64, 96}};
    for (int64_t n_row = 1; n_row <= 700; n_row++) {
        int64_t alike = brim_w4_hopper_rows_alike(n_row);
        assert_true(alike >= n_row && alike < n_row + 32);
        assert_int_equal(brim_w4_hopper_rows_alike(alike), alike);
        if (n_row <= BRIM_W4_GEMV_ROWS) assert_int_equal(alike, n_row);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            char text[2][96];
            struct brim_w4_hopper_plan plans[2];
            for (int in_chain = 0; in_chain < 2; in_chain++) {
                for (int j = 0; j < 2; j++) {
                    plans[j] = (in_chain ? brim_w4_hopper_plan_chain : brim_w4_hopper_plan_make)(
                        j ? alike : n_row, shapes[i][0], shapes[i][1], 132);
                    brim_w4_hopper_plan_print(&plans[j], text[j], sizeof text[j]);
                }
                assert_string_equal(text[0], text[1]);
                assert_int_equal(plans[0].cluster.n_resident, plans[1].cluster.n_resident);
                assert_int_equal(brim_w4_hopper_plan_ctas(&plans[0]),
                                 brim_w4_hopper_plan_ctas(&plans[1]));
            }
        }
    }
}

/* What a row's bits depend on, as the kernels' headers say. */
static int64_t bits_of(const struct brim_w4_hopper_plan *p)
{
    switch (p->kernel) {
    case BRIM_W4_KERNEL_GEMV:
        return p->gemv.kernel * 10000 + p->gemv.n_part * 100 + p->gemv.split;
    case BRIM_W4_KERNEL_CLUSTER:
        return 100000 + p->cluster.n_part * 100 + p->cluster.split;
    default:
        return 200000 + p->stream.split;
    }
}

/* The table of docs/kernels/w4.md: the last of each stretch of rows that share bits. */
static void rows_that_share_bits(void **state)
{
    (void)state;
    static const struct {
        int64_t in, out, last[8];
    } shapes[] = {{2560, 4096, {2, 8, 48, 96, 256}},  {2560, 1024, {2, 4, 64, 128, 256}},
                  {4096, 2560, {2, 4, 48, 128, 256}}, {2560, 9728, {2, 8, 16, 48, 96, 128, 256}},
                  {9728, 2560, {2, 8, 48, 128, 256}}, {2560, 6144, {2, 8, 16, 48, 64, 96, 256}},
                  {2560, 19456, {2, 8, 32, 256}}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t *last = shapes[i].last;
        int64_t before = 0;
        for (int64_t n_row = 1; n_row <= 256; n_row++) {
            struct brim_w4_hopper_plan plan =
                brim_w4_hopper_plan_make(n_row, shapes[i].in, shapes[i].out, 132);
            if (n_row > 1 && n_row - 1 == *last) {
                assert_int_not_equal(bits_of(&plan), before);
                last++;
            } else if (n_row > 1) {
                assert_int_equal(bits_of(&plan), before);
            }
            before = bits_of(&plan);
        }
        assert_int_equal(*last, 256);
    }
}

/* In a chain: what was measured for Qwen3-4B, within the kernels' limits; else as alone. */
static void links_of_a_chain(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {
        {2560, 6144}, {4096, 2560}, {2560, 19456}, {9728, 2560}, {4096, 2561}};
    static const struct {
        int64_t first, last;
        size_t shape;
        const char *text;
        int64_t n_cta;
    } found[] = {{9, 16, 0, "cluster: 16 tokens 1 slabs 2 parts split 2", 192},
                 {9, 16, 1, "cluster: 16 tokens 1 slabs 3 parts split 2", 80},
                 {17, 32, 1, "cluster: 32 tokens 2 slabs 1 parts split 4", 80},
                 {49, 64, 1, "stream: 64 tokens 2 slabs split 4", 80},
                 {97, 128, 1, "stream: 128 tokens 2 slabs split 4", 80}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int64_t n_row = BRIM_W4_GEMV_ROWS + 1; n_row <= 300; n_row++)
            for (int n_sm = 131; n_sm <= 132; n_sm++) {
                const int64_t n_in = shapes[i][0], n_out = shapes[i][1];
                struct brim_w4_hopper_plan p = brim_w4_hopper_plan_chain(n_row, n_in, n_out, n_sm),
                                           want =
                                               brim_w4_hopper_plan_make(n_row, n_in, n_out, n_sm);
                char text[96], alone[96];
                const char *wanted = alone;
                int64_t n_cta = brim_w4_hopper_plan_ctas(&want);
                brim_w4_hopper_plan_print(&p, text, sizeof text);
                brim_w4_hopper_plan_print(&want, alone, sizeof alone);
                for (size_t f = 0; n_sm == 132 && f < sizeof found / sizeof *found; f++)
                    if (found[f].shape == i && n_row >= found[f].first && n_row <= found[f].last)
                        wanted = found[f].text, n_cta = found[f].n_cta;
                assert_string_equal(text, wanted);
                assert_int_equal(brim_w4_hopper_plan_ctas(&p), n_cta);
                if (p.kernel != BRIM_W4_KERNEL_CLUSTER) continue;
                const struct brim_w4_cluster_plan *c = &p.cluster;
                struct brim_w4_cluster_layout l = brim_w4_cluster_lay_out(c, 32, 4);
                assert_in_range(l.n_stage, 1, BRIM_W4_CLUSTER_STAGES);
                assert_true((l.n_byte + 2048) * c->n_resident <= 228 * 1024);
                assert_true(c->n_slab * c->n_part <= brim_w4_cluster_max_warpgroups(c->n_token));
                assert_true(c->split * c->n_part <= c->n_unit);
            }
    /* One to eight rows: the kernel's own choice for a chain. */
    assert_int_equal(brim_w4_hopper_plan_chain(1, 2560, 19456, 132).gemv.n_pair, 4);
    for (int64_t n_row = 1; n_row <= BRIM_W4_GEMV_ROWS; n_row++)
        assert_int_equal(brim_w4_hopper_plan_chain(n_row, 4096, 2560, 132).kernel,
                         BRIM_W4_KERNEL_GEMV);
}

static void a_plan_is_printed_on_one_line(void **state)
{
    (void)state;
    static const char *const names[] = {"gemv", "cluster: ", "stream: "};
    static const int64_t rows[] = {1, 16, 200};
    for (int i = 0; i < 3; i++) {
        struct brim_w4_hopper_plan plan = brim_w4_hopper_plan_make(rows[i], 2560, 4096, 132);
        char text[96], small[8];
        size_t len = brim_w4_hopper_plan_print(&plan, text, sizeof text);
        assert_int_equal(len, strlen(text));
        assert_int_equal(strncmp(text, names[i], strlen(names[i])), 0);
        assert_null(strchr(text, ','));
        assert_int_equal(brim_w4_hopper_plan_print(&plan, small, sizeof small), len);
        assert_int_equal(strlen(small), sizeof small - 1);
    }
}

static void the_public_plan_says_the_same(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{2560, 4096}, {2560, 1024}, {4096, 2560}, {576, 960}};
    static const char *const names[] = {[BRIM_W4_KERNEL_GEMV] = "gemv",
                                        [BRIM_W4_KERNEL_CLUSTER] = "cluster",
                                        [BRIM_W4_KERNEL_STREAM] = "stream"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int64_t n_row = 1; n_row <= 300; n_row++)
            for (int n_sm = 78; n_sm <= 132; n_sm += 54) {
                struct brim_w4_hopper_plan want =
                    brim_w4_hopper_plan_make(n_row, shapes[i][0], shapes[i][1], n_sm);
                char schedule[96];
                brim_w4_args args;
                brim_w4_plan plan;
                brim_w4_args_init(&args);
                args.n_row = n_row, args.n_in = shapes[i][0], args.n_out = shapes[i][1];
                args.group = 64;
                assert_int_equal(brim_w4_plan_hopper(&args, n_sm, &plan, NULL), BRIM_OK);
                brim_w4_hopper_plan_print(&want, schedule, sizeof schedule);
                assert_string_equal(plan.schedule, schedule);
                assert_string_equal(plan.kernel, names[want.kernel]);
                assert_int_equal(plan.grid, brim_w4_hopper_plan_ctas(&want));
                assert_int_equal(plan.cluster, want.kernel == BRIM_W4_KERNEL_GEMV ? want.gemv.split
                                               : want.kernel == BRIM_W4_KERNEL_CLUSTER
                                                   ? want.cluster.split
                                                   : want.stream.split);
                assert_int_equal(plan.workspace_bytes, 0);
            }
}

static void what_no_launch_takes_is_refused(void **state)
{
    (void)state;
    static const struct {
        int64_t n_row, n_in, n_out, n_processor;
        int group;
        brim_status status;
        const char *text;
    } calls[] = {
        {0, 2560, 4096, 132, 128, BRIM_OK, ""},
        {1, 128, 0, 132, 128, BRIM_OK, ""},
        {1, 128, 1, 1 << 20, 128, BRIM_OK, ""},
        {300, 2560, 4096, 1, 128, BRIM_OK, ""},
        {1, 2560, 4096, 0, 128, BRIM_E_RANGE, "1 to 1048576 processors, not 0"},
        {1, 2560, 4096, INT64_MAX, 128, BRIM_E_RANGE, "1 to 1048576 processors"},
        {1, 576, 4096, 132, 128, BRIM_E_SHAPE, "576 is not a positive multiple of the group"},
        {1, 2560, 4096, 132, 100, BRIM_E_RANGE, "group is 100"},
        {-1, 2560, 4096, 132, 128, BRIM_E_SHAPE, "n_row -1"},
        {1, 1024000000000000, 1000000000000000, 132, 128, BRIM_E_SHAPE, "weights are too many"},
        {1000000000000000, 128000, 1, 132, 128, BRIM_E_SHAPE, "more than memory can hold"},
        {1000000000000000, 128, 128000, 132, 128, BRIM_E_SHAPE, "more than memory can hold"},
        {16, 1024000000000000, 1, 132, 128, BRIM_E_SHAPE, "more work than one launch takes"},
        {1000000000000, 128, 1000, 132, 128, BRIM_E_SHAPE, "more work than one launch takes"},
        {8, 128, 1000000000000000, 132, 128, BRIM_E_SHAPE, "more work than one launch takes"},
        {16, 32, 1000000000000000, 132, 32, BRIM_E_SHAPE, "more work than one launch takes"},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        brim_w4_args args;
        brim_w4_plan plan;
        brim_error err = {0};
        brim_w4_args_init(&args);
        args.n_row = calls[i].n_row, args.n_in = calls[i].n_in, args.n_out = calls[i].n_out;
        args.group = calls[i].group;
        assert_int_equal(brim_w4_plan_hopper(&args, calls[i].n_processor, &plan, &err),
                         calls[i].status);
        if (!strstr(err.text, calls[i].text)) fail_msg("'%s': %s", calls[i].text, err.text);
        if (calls[i].status == BRIM_OK && calls[i].n_row * calls[i].n_out == 0)
            assert_string_equal(plan.kernel, "none");
        assert_int_equal(brim_w4_plan_hopper(&args, calls[i].n_processor, NULL, NULL),
                         BRIM_E_ARGUMENT);
    }
    assert_int_equal(brim_w4_plan_hopper(NULL, 132, &(brim_w4_plan){0}, NULL), BRIM_E_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_change_where_they_were_measured_to),
        cmocka_unit_test(rows_alike_have_the_same_plan),
        cmocka_unit_test(rows_that_share_bits),
        cmocka_unit_test(links_of_a_chain),
        cmocka_unit_test(a_plan_is_printed_on_one_line),
        cmocka_unit_test(the_public_plan_says_the_same),
        cmocka_unit_test(what_no_launch_takes_is_refused),
    };
    return cmocka_run_group_tests_name("w4_hopper_plan", tests, NULL, NULL);
}
