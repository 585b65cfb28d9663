/* SPDX-License-Identifier: Apache-2.0
 * The schedules of KDA prefill on a GPU: pure functions of sequences, tokens, heads, processors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "brim/kernels.h"
#include "cuda/kda/layout.h"
#include "plan/kda_route.h"

static void forced_routes_state_all_they_use(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int cluster, owners, helpers, instances, depth;
    } want[] = {
        {"m128", 1, 1, 0, 2, 0},     {"m64", 2, 2, 0, 4, 0},       {"pair", 2, 2, 0, 4, 0},
        {"queue", 1, 1, 0, 2, 0},    {"c4-m128", 4, 1, 3, 12, 15}, {"c4-m64", 4, 2, 2, 8, 10},
        {"c5-m64", 5, 2, 3, 12, 15}, {"c6-m64", 6, 2, 4, 16, 20},  {"c8-m128", 8, 1, 7, 28, 35}};
    assert_int_equal(sizeof want / sizeof *want, BRIM_KDA_ROUTE_N);
    for (size_t i = 0; i < BRIM_KDA_ROUTE_N; i++) {
        brim_kda_plan plan;
        char text[4096], part[128];
        assert_int_equal(brim_kda_plan_shape(3, 300, 5, 0, 132, want[i].name, &plan, NULL),
                         BRIM_OK);
        assert_string_equal(plan.route, want[i].name);
        assert_string_equal(plan.reason, "named by the caller");
        assert_int_equal(plan.cluster, want[i].cluster);
        assert_int_equal(plan.owners, want[i].owners);
        assert_int_equal(plan.helpers, want[i].helpers);
        assert_int_equal(plan.instances, want[i].instances);
        assert_int_equal(plan.depth, want[i].depth);
        assert_int_equal(plan.grid, 15 * want[i].cluster);
        size_t bytes = i == BRIM_KDA_ROUTE_QUEUE ? (size_t)BRIM_KDA_MAX_TASK * KDA_CONTROL_BYTES
                       : want[i].depth           ? (size_t)BRIM_KDA_MAX_TASK * KDA_CONTROL_BYTES +
                                             15 * (size_t)want[i].depth * KDA_PACKET_USED
                                       : 0;
        assert_int_equal(plan.workspace_bytes, bytes);
        /* every field is in the line */
        assert_true(brim_kda_plan_print(&plan, text, sizeof text) < sizeof text);
        snprintf(part, sizeof part,
                 "\"grid\":%d,\"cluster\":%d,\"owners\":%d,\"helpers\":%d,\"instances\":%d,"
                 "\"depth\":%d,\"workspace_bytes\":%zu,\"expected_us\":",
                 15 * want[i].cluster, want[i].cluster, want[i].owners, want[i].helpers,
                 want[i].instances, want[i].depth, bytes);
        assert_non_null(strstr(text, part));
        /* a slot must not return to an instance that still waits for it: as many slots as run */
        if (want[i].depth) {
            assert_true(want[i].depth >= want[i].instances);
            assert_true(want[i].depth <= KDA_MAX_DEPTH);
            assert_int_equal(want[i].cluster, want[i].owners + want[i].helpers);
        }
    }
}

static void owner_helper_routes_take_256_tasks(void **state)
{
    (void)state;
    brim_kda_plan plan;
    for (size_t i = 0; i < BRIM_KDA_ROUTE_N; i++) {
        const char *name = brim_kda_routes[i].name;
        brim_status over = brim_kda_routes[i].depth ? BRIM_E_SHAPE : BRIM_OK;
        assert_int_equal(brim_kda_plan_shape(256, 256, 1, 0, 132, name, &plan, NULL), BRIM_OK);
        assert_int_equal(brim_kda_plan_shape(257, 257, 1, 0, 132, name, &plan, NULL), over);
        assert_int_equal(brim_kda_plan_shape(1, 256, 257, 0, 132, name, &plan, NULL), over);
        assert_int_equal(brim_kda_plan_shape(0, 0, 1, 0, 132, name, &plan, NULL), BRIM_OK);
        assert_int_equal(plan.grid, 0);
        assert_int_equal(plan.workspace_bytes, 0);
    }
    assert_int_equal(brim_kda_plan_shape(1, 4096, 1, 0, 132, "m7", &plan, NULL),
                     BRIM_E_UNSUPPORTED);
    assert_int_equal(brim_kda_plan_shape(-1, 4096, 1, 0, 132, NULL, &plan, NULL), BRIM_E_SHAPE);
}

static void plans_stay_on_m128_where_nothing_is_measured(void **state)
{
    (void)state;
    static const struct {
        int64_t n_seq, n_row, n_head, packed, n_processor;
        const char *route; /* its beginning: the rings differ by less than runs do */
    } want[] = {
        {1, 4096, 1, 0, 78, "m128"}, {1, 4096, 8, 0, 132, "c"}, {1, 8, 8, 0, 132, "m128"},
        {6, 8192, 4, 1, 132, "c"},   {0, 0, 8, 0, 132, "m128"}, {1, 0, 8, 0, 132, "m128"},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        brim_kda_plan plan;
        assert_int_equal(brim_kda_plan_shape(want[i].n_seq, want[i].n_row, want[i].n_head,
                                             (int)want[i].packed, want[i].n_processor, NULL, &plan,
                                             NULL),
                         BRIM_OK);
        assert_int_equal(strncmp(plan.route, want[i].route, strlen(want[i].route)), 0);
        if (!strcmp(want[i].route, "c")) { /* a ring of two owners */
            assert_int_equal(plan.owners, 2);
            assert_true(plan.depth > 0);
        }
        assert_int_equal(plan.grid, want[i].n_seq * want[i].n_head * plan.cluster);
    }
}

/* No more CTAs than processors, and a word of the workspace that no ring's slot has. */
static void the_queue_takes_any_number_of_tasks(void **state)
{
    (void)state;
    brim_kda_plan plan;
    assert_int_equal(brim_kda_plan_shape(300, 90000, 8, 1, 132, "queue", &plan, NULL), BRIM_OK);
    assert_int_equal(plan.grid, 132);
    assert_int_equal(plan.workspace_bytes, BRIM_KDA_MAX_TASK * KDA_CONTROL_BYTES);
    assert_int_equal(brim_kda_plan_shape(3, 900, 8, 1, 132, "queue", &plan, NULL), BRIM_OK);
    assert_int_equal(plan.grid, 24);
    assert_true(KDA_TICKET_WORD * 4 > KDA_MAX_DEPTH * KDA_LINE + KDA_LINE - 4);
    assert_true(KDA_TICKET_WORD * 4 < KDA_DROP_LINE * KDA_LINE);
}

/* The whole line, every alternative with its time and why it was not taken. */
static void a_plan_prints_its_alternatives(void **state)
{
    (void)state;
    brim_kda_plan plan;
    char text[4096], cut[64], want[256];
    assert_int_equal(brim_kda_plan_shape(1, 4096, 1, 0, 78, NULL, &plan, NULL), BRIM_OK);
    size_t length = brim_kda_plan_print(&plan, text, sizeof text);
    assert_true(length == strlen(text));
    assert_true(length == brim_kda_plan_print(&plan, NULL, 0));
    assert_true(length == brim_kda_plan_print(&plan, cut, sizeof cut));
    assert_int_equal(strlen(cut), sizeof cut - 1);
    assert_int_equal(strncmp(cut, text, sizeof cut - 1), 0);
    assert_non_null(strstr(text, "\"workspace_bytes\":0,\"expected_us\":null,\"alternatives\":["
                                 "{\"route\":\"m64\",\"expected_us\":null,\"why_not\":\""));
    assert_int_equal(brim_kda_plan_shape(1, 4096, 1, 0, 132, NULL, &plan, NULL), BRIM_OK);
    brim_kda_plan_print(&plan, text, sizeof text);
    snprintf(want, sizeof want,
             "\"expected_us\":%.1f,\"alternatives\":[{\"route\":\"m128\",\"expected_us\":%.1f,"
             "\"why_not\":\"not expected faster\"}",
             plan.expected_us, plan.alternative[0].expected_us);
    assert_true(plan.expected_us > 50 && plan.alternative[0].expected_us > plan.expected_us);
    assert_non_null(strstr(text, want));
    assert_non_null(strstr(text, "\"why_not\":\"allow_split is not set\"}]}"));
}

/* A plan is refused where the operator refuses the call, in the same words, before a product of its
 * numbers is formed; up to there all that it prints is exact. */
static void products_of_large_numbers(void **state)
{
    (void)state;
    enum { MOST = INT32_MAX };
    const struct {
        int64_t n_seq, n_tok, n_head;
        int packed;
        const char *route;
        int length;
        const char *refusal; /* on every device, of a plan without a route */
    } calls[] = {
        {MOST, 0, 1, 0, NULL, 0, NULL},
        {1, 64, MOST, 0, NULL, 0, NULL},
        {0, MOST, MOST, 0, NULL, 0, NULL},
        {MOST, MOST, 1, 1, NULL, 0, NULL},
        {1, MOST, 1 << 24, 0, NULL, 0, NULL},
        {1000000000, 64, 1000000, 0, NULL, 0, "kda: n_seq * n_value_head does not fit 31 bits"},
        {1000000000, 64, 1000000, 1, NULL, 0, "kda: n_seq * n_value_head does not fit 31 bits"},
        {INT64_MAX, 64, 4, 0, NULL, 0, "kda: n_seq * n_value_head does not fit 31 bits"},
        {1, 64, (int64_t)1 << 31, 0, NULL, 0, "kda: n_seq * n_value_head does not fit 31 bits"},
        {-1, 64, 4, 0, NULL, 0, "kda: n_seq -1 and n_tok 64 must not be negative"},
        {1, 64, 0, 0, NULL, 0, "kda: n_value_head 0 must be at least 1"},
        {1000000000, 1000000000, 1, 0, NULL, 0,
         "kda: n_seq 1000000000, n_tok 1000000000 and n_value_head 1 reach beyond what memory can "
         "hold"},
        {1, MOST, 1 << 25, 0, NULL, 0,
         "kda: n_seq 1, n_tok 2147483647 and n_value_head 33554432 reach beyond what memory can "
         "hold"},
        {2, INT64_MAX, 1, 0, NULL, 0,
         "kda: n_seq 2, n_tok 9223372036854775807 and n_value_head 1 reach beyond what memory can "
         "hold"},
        {1 << 30, 64, 1, 0, "m64", 0,
         "kda: route m64 counts the CTAs of its launch in 31 bits, "
         "not 2147483648"},
        {32, MOST, 1, 0, "split", 1,
         "kda: route split counts the CTAs of its launch in 31 bits, "
         "not 2147483648"},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        brim_kda_args args;
        brim_kda_plan plan;
        brim_error err = {0};
        brim_kda_args_init(&args);
        args.n_seq = calls[i].n_seq, args.n_tok = args.max_tok = calls[i].n_tok;
        args.n_value_head = calls[i].n_head, args.offset_bytes = calls[i].packed ? 8 : 0;
        args.route = calls[i].route, args.split_length = calls[i].length;
        brim_status want = calls[i].refusal ? BRIM_E_SHAPE : BRIM_OK;
        assert_int_equal(brim_kda_plan_gpu(&args, 132, &plan, &err), want);
        if (calls[i].refusal) assert_string_equal(err.text, calls[i].refusal);
        if (want == BRIM_OK) assert_true(plan.grid == calls[i].n_seq * calls[i].n_head);
        if (calls[i].route) continue;
        assert_int_equal(brim_kda_plan_cpu(&args, &plan, &err), want);
        if (calls[i].refusal) assert_string_equal(err.text, calls[i].refusal);
    }
    /* the most that a route's launch and workspace come to */
    brim_kda_args args;
    brim_kda_plan plan;
    brim_kda_args_init(&args);
    args.n_seq = 1, args.n_tok = MOST, args.n_value_head = 31;
    args.route = "split-join", args.split_length = 1;
    assert_int_equal(brim_kda_plan_gpu(&args, 132, &plan, NULL), BRIM_OK);
    uint64_t n_segment = (uint64_t)31 << 26;
    assert_true(plan.grid == (int64_t)n_segment);
    assert_true(plan.workspace_bytes ==
                BRIM_KDA_MAX_TASK * KDA_CONTROL_BYTES + n_segment * (48 + 2 * 65536) + 31 * 65536);
}

/* The two owners' shares of a packet leave out exactly the other's half of Z. */
static void halves_of_a_packet(void **state)
{
    (void)state;
    for (int owner = 0; owner < 2; owner++) {
        kda_half half = kda_half_of(owner);
        assert_int_equal(half.begin - half.end, KDA_PANEL);
        assert_int_equal(half.end, KDA_PACKET_Z + (owner == 0 ? KDA_PANEL : 0));
        assert_true(half.end % 16 == 0 && (KDA_PACKET_USED - half.begin) % 16 == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forced_routes_state_all_they_use),
        cmocka_unit_test(owner_helper_routes_take_256_tasks),
        cmocka_unit_test(plans_stay_on_m128_where_nothing_is_measured),
        cmocka_unit_test(the_queue_takes_any_number_of_tasks),
        cmocka_unit_test(a_plan_prints_its_alternatives),
        cmocka_unit_test(products_of_large_numbers),
        cmocka_unit_test(halves_of_a_packet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
