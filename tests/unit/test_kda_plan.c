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
    } want[] = {{"m128", 1, 1, 0, 2, 0},      {"m64", 2, 2, 0, 4, 0},
                {"c4-m128", 4, 1, 3, 12, 15}, {"c4-m64", 4, 2, 2, 8, 10},
                {"c5-m64", 5, 2, 3, 12, 15},  {"c6-m64", 6, 2, 4, 16, 20},
                {"c8-m128", 8, 1, 7, 28, 35}};
    assert_int_equal(sizeof want / sizeof *want, BRIM_KDA_ROUTE_N);
    for (size_t i = 0; i < BRIM_KDA_ROUTE_N; i++) {
        brim_kda_plan plan;
        char text[512], part[128];
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
        size_t bytes = want[i].depth ? (size_t)BRIM_KDA_MAX_TASK * KDA_CONTROL_BYTES +
                                           15 * (size_t)want[i].depth * KDA_PACKET_USED
                                     : 0;
        assert_int_equal(plan.workspace_bytes, bytes);
        /* every field is in the line */
        assert_true(brim_kda_plan_print(&plan, text, sizeof text) < sizeof text);
        snprintf(part, sizeof part,
                 "\"grid\":%d,\"cluster\":%d,\"owners\":%d,\"helpers\":%d,\"instances\":%d,"
                 "\"depth\":%d,\"workspace_bytes\":%zu}",
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

/* Over a grid of shapes: another GPU never leaves m128, c8-m128 is never chosen, short sequences
 * stay on m128, and a choice always fits the limit of tasks. */
static void the_choice_stays_inside_what_was_measured(void **state)
{
    (void)state;
    static const int64_t tokens[] = {0, 1, 64, 255, 512, 1024, 2048, 4096, 8192, 65536, 1 << 20},
                         heads[] = {1, 2, 4, 8, 12, 16, 17, 22, 24, 30, 32, 48, 64, 66, 96, 300},
                         seqs[] = {1, 2, 8, 40};
    for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++)
        for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
            for (size_t n = 0; n < sizeof seqs / sizeof *seqs; n++)
                for (int packed = 0; packed < 2; packed++) {
                    brim_kda_plan plan;
                    int64_t total = tokens[t] * seqs[n];
                    assert_int_equal(brim_kda_plan_shape(seqs[n], total, heads[h], packed, 78, NULL,
                                                         &plan, NULL),
                                     BRIM_OK);
                    assert_string_equal(plan.route, "m128");
                    assert_int_equal(brim_kda_plan_shape(seqs[n], total, heads[h], packed, 132,
                                                         NULL, &plan, NULL),
                                     BRIM_OK);
                    assert_string_not_equal(plan.route, "c8-m128");
                    if (tokens[t] < 256) assert_string_equal(plan.route, "m128");
                    assert_true(plan.depth == 0 || seqs[n] * heads[h] <= BRIM_KDA_MAX_TASK);
                    assert_int_equal(plan.grid, seqs[n] * heads[h] * plan.cluster);
                }
}

/* A route of ring.cuh is taken by name alone, whatever the gate. */
static void rings_of_two_owners_are_taken_by_name(void **state)
{
    (void)state;
    enum brim_kda_route route;
    brim_kda_plan plan;
    for (int form = 0; form < 4; form++) {
        bool packed = form & 1, bounded = form & 2;
        assert_int_equal(
            brim_kda_route_choose(1, 4096, 8, packed, bounded, 132, NULL, &route, &plan, NULL),
            BRIM_OK);
        assert_string_equal(plan.route, "c4-m128");
        assert_int_equal(
            brim_kda_route_choose(1, 4096, 8, packed, bounded, 132, "c6-m64", &route, &plan, NULL),
            BRIM_OK);
        assert_int_equal(route, BRIM_KDA_ROUTE_C6_M64);
    }
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
        cmocka_unit_test(the_choice_stays_inside_what_was_measured),
        cmocka_unit_test(rings_of_two_owners_are_taken_by_name),
        cmocka_unit_test(halves_of_a_packet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
