/* SPDX-License-Identifier: Apache-2.0
 * The router of KDA prefill against the committed measurements of bench/results/h200: what it
 * chooses is never more than 5 % slower than the fastest route it may choose. */
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/count.h"
#include "brim/kernels.h"
#include "kda_cuda.h"
#include "plan/clusters.h"
#include "plan/kda_route.h"
#include "plan/kda_route_table.h"

enum { MAX_MEASURED = 16384 };

struct measured {
    int n_seq, n_tok, n_head; /* packed: n_tok of all */
    int longest;              /* packed; else 0 */
    char route[16];
    double us;
    int run; /* the larger the newer */
};

static struct measured *all;
static int n_measured;

/* Of each point the newest run's, and of these the slowest: what the table is made of. */
static bool *stands;

static void add(int n_seq, int n_tok, int n_head, const char *route, double us, int run, bool mixes)
{
    size_t n_mix;
    struct bench_kda_shape *packed = bench_kda_set("packed", 1, 1, &n_mix);
    assert_non_null(packed);
    assert_true(n_measured < MAX_MEASURED);
    struct measured *m = &all[n_measured++];
    *m = (struct measured){n_seq, n_tok, n_head, 0, "", us, run};
    snprintf(m->route, sizeof m->route, "%s", route);
    for (size_t i = 0; i < n_mix && mixes; i++)
        for (int64_t n = 0; n < n_seq && n_seq == packed[i].n_seq && n_tok == packed[i].n_tok; n++)
            if (packed[i].lengths[n] > m->longest) m->longest = (int)packed[i].lengths[n];
    free(packed);
}

/* A run's place in the order that the table's head gives, by the commit in a file's first line. */
static int run_of(FILE *results)
{
    char first[1024], line[1024], commit[48];
    int run = 0;
    assert_non_null(fgets(first, sizeof first, results));
    FILE *table = fopen(BRIM_SOURCE_DIR "/src/plan/kda_route_table.c", "r");
    assert_non_null(table);
    while (fgets(line, sizeof line, table) && strcmp(line, " */\n"))
        if (sscanf(line, " *     %47[0-9a-f] kda_", commit) == 1) {
            char words[80];
            run++;
            snprintf(words, sizeof words, "programs of commit %s;", commit);
            if (!strstr(first, words)) continue;
            fclose(table);
            return run;
        }
    fclose(table);
    fail_msg("the table's head does not know the commit of: %s", first);
    return 0;
}

/* Files of tools/gpu_check.sh bench-kda and sweep-kda: a line a route; gates without a bound are
 * not what the table tells. */
static void read_routes(const char *path, bool mixes)
{
    char line[512], route[16];
    int n_seq, n_tok, n_head, before = n_measured;
    double us;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    int run = run_of(f);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%d,%d,%d,%15[^,],%lf", &n_seq, &n_tok, &n_head, route, &us) == 5 &&
            !strstr(line, ",softplus"))
            add(n_seq, n_tok, n_head, route, us, run, mixes);
    fclose(f);
    assert_true(n_measured > before);
}

/* The split route under gates that forget. The serial route beside it has no name in the file. */
static void read_split(const char *path)
{
    char line[512], gates[16];
    int n_seq, n_tok, n_head, before = n_measured;
    double serial, split;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    int run = run_of(f);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%d,%d,%d,%15[^,],%lf,%lf", &n_tok, &n_head, &n_seq, gates, &serial,
                   &split) == 6 &&
            !strcmp(gates, "normal"))
            add(n_seq, n_tok, n_head, "split", split, run, true);
    fclose(f);
    assert_true(n_measured > before);
}

static bool same_shape(const struct measured *a, const struct measured *b)
{
    return a->n_seq == b->n_seq && a->n_tok == b->n_tok && a->n_head == b->n_head;
}

/* Does a serial route count two calls as one: as many tasks of as many chunks? */
static bool same_point(const struct measured *a, const struct measured *b)
{
    if (strcmp(a->route, b->route)) return false;
    if (!strncmp(a->route, "split", 5) || a->longest || b->longest) return same_shape(a, b);
    return a->n_seq * a->n_head == b->n_seq * b->n_head &&
           (a->n_tok + 31) / 32 == (b->n_tok + 31) / 32;
}

static int read_all(void **state)
{
    (void)state;
    const char *results = BRIM_SOURCE_DIR "/bench/results/h200/";
    char path[4096];
    all = calloc(MAX_MEASURED, sizeof *all);
    stands = calloc(MAX_MEASURED, sizeof *stands);
    if (!all || !stands) return -1;
    snprintf(path, sizeof path, "%skda_routes.csv", results);
    read_routes(path, true);
    snprintf(path, sizeof path, "%skda_split.csv", results);
    read_split(path);
    snprintf(path, sizeof path, "%skda_sweep*.csv", results);
    glob_t sweep;
    if (glob(path, 0, NULL, &sweep) == 0) {
        for (size_t i = 0; i < sweep.gl_pathc; i++) read_routes(sweep.gl_pathv[i], false);
        globfree(&sweep);
    }
    for (int i = 0; i < n_measured; i++) {
        stands[i] = true;
        for (int j = 0; j < n_measured && stands[i]; j++) {
            const struct measured *a = &all[i], *b = &all[j];
            if (same_point(a, b) &&
                (b->run > a->run ||
                 (b->run == a->run && (b->us > a->us || (b->us == a->us && j < i)))))
                stands[i] = false;
        }
    }
    return 0;
}

static int free_all(void **state)
{
    (void)state;
    free(all);
    free(stands);
    return 0;
}

static void plan_of(const struct measured *m, int allow_split, const char *route,
                    brim_kda_plan *plan)
{
    brim_kda_args args;
    brim_error err;
    brim_kda_args_init(&args);
    args.n_seq = m->n_seq, args.n_tok = m->n_tok, args.n_value_head = m->n_head;
    args.offset_bytes = m->longest ? 8 : 0, args.max_tok = m->longest;
    args.allow_split = allow_split, args.route = route;
    assert_int_equal(brim_kda_plan_gpu(&args, 132, plan, &err), BRIM_OK);
}

static bool admitted(const char *route, int allow_split)
{
    for (int r = 0; r < BRIM_KDA_ROUTE_ALL; r++)
        if (!strcmp(route, brim_kda_routes[r].name))
            return !brim_kda_routes[r].by_name && (r < BRIM_KDA_ROUTE_N || allow_split);
    fail_msg("no route is called %s", route);
    return false;
}

/* What the point of a route takes that a shape is, or 0. */
static double newest(const struct measured *shape, const char *route)
{
    struct measured of = *shape;
    snprintf(of.route, sizeof of.route, "%s", route);
    for (int i = 0; i < n_measured; i++)
        if (stands[i] && same_point(&all[i], &of)) return all[i].us;
    return 0;
}

/* A choice that was not measured at this shape stands by its expected time. */
static void what_is_chosen_is_at_most_5_percent_slower_than_the_best(void **state)
{
    (void)state;
    int n_shape = 0, n_split = 0;
    for (int i = 0; i < n_measured; i++)
        for (int allow_split = 0; allow_split < 2; allow_split++) {
            const struct measured *shape = &all[i];
            brim_kda_plan plan;
            double best = 0;
            plan_of(shape, allow_split, NULL, &plan);
            for (int r = 0; r < BRIM_KDA_ROUTE_ALL; r++) {
                double us = newest(shape, brim_kda_routes[r].name);
                if (us > 0 && admitted(brim_kda_routes[r].name, allow_split))
                    best = best == 0 || us < best ? us : best;
            }
            if (best == 0) continue;
            double chosen = newest(shape, plan.route);
            if (chosen == 0) chosen = plan.expected_us;
            if (!(chosen > 0 && chosen <= 1.05 * best))
                fail_msg("%d x %d x %d, allow_split %d: %s takes %.1f us, the best %.1f",
                         shape->n_seq, shape->n_tok, shape->n_head, allow_split, plan.route, chosen,
                         best);
            n_shape++;
            n_split += !strcmp(plan.route, "split");
        }
    assert_true(n_shape > 100 && n_split > 20);
}

static bool has_times(const char *route)
{
    if (!strcmp(route, "split")) return brim_kda_n_split_time > 0;
    for (int i = 0; i < brim_kda_n_time; i++)
        if (!strcmp(route, brim_kda_routes[brim_kda_times[i].route].name)) return true;
    return false;
}

/* The expected time of a measured point is what it took: packed ones are given by their aggregates
 * alone, and what is expected of the split at a shape is its own time. */
static void expected_times_are_near_the_measured_ones(void **state)
{
    (void)state;
    int n = 0;
    for (int i = 0; i < n_measured; i++) {
        const struct measured *m = &all[i];
        brim_kda_plan plan;
        if (!stands[i] || m->longest || !has_times(m->route)) continue;
        plan_of(m, 0, m->route, &plan);
        assert_string_equal(plan.reason, "named by the caller");
        double ratio = plan.expected_us / m->us;
        double most = strcmp(m->route, "split") ? 1.01 : 1.12; /* it may be cut otherwise by now */
        if (!(ratio > 0.99 && ratio < most))
            fail_msg("%d x %d x %d %s: %.1f us expected, %.1f measured", m->n_seq, m->n_tok,
                     m->n_head, m->route, plan.expected_us, m->us);
        n++;
    }
    assert_true(n > 50);
}

static int order(const struct brim_kda_time *a, const struct brim_kda_time *b)
{
    const int x[] = {a->route, a->n_wave, a->chunks, a->n_task};
    const int y[] = {b->route, b->n_wave, b->chunks, b->n_task};
    for (int i = 0; i < 4; i++)
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    return 0;
}

/* CTAs that a processor takes one behind the other. */
static int64_t rounds(const struct brim_kda_split_time *row)
{
    int64_t n_chunk = brim_ceil_div(row->n_tok, 32), n = 1;
    if (n_chunk > row->first) n += brim_ceil_div(n_chunk - row->first, row->length);
    return brim_ceil_div(n * row->n_seq * row->n_head, 132);
}

/* The tables ascend as kda_route_table.h says, name no shape twice, and hold what a time needs. */
static void the_tables_are_sound(void **state)
{
    (void)state;
    assert_true(brim_kda_n_time > 50);
    for (int i = 0; i < brim_kda_n_time; i++) {
        const struct brim_kda_time *a = &brim_kda_times[i];
        assert_true(a->route >= 0 && a->route < BRIM_KDA_ROUTE_N);
        int64_t at_once = brim_clusters_at_once(brim_kda_routes[a->route].cluster, 132);
        assert_true(a->chunks > 0 && a->n_task > 0 && a->us > 3);
        assert_int_equal(a->n_wave, brim_ceil_div(a->n_task, at_once));
        assert_true(i == 0 || order(a - 1, a) < 0);
    }
    assert_true(brim_kda_n_split_time >= 20);
    for (int i = 0; i < brim_kda_n_split_time; i++) {
        const struct brim_kda_split_time *a = &brim_kda_split_times[i];
        assert_true(a->n_seq > 0 && a->n_head > 0 && a->window > 0 && a->us > 3);
        assert_true(a->first >= a->length && a->length >= a->window);
        assert_true(a->n_tok >= brim_kda_split_least_tokens);
        assert_true(a->chunks >= a->first && (i == 0 || a->chunks >= a[-1].chunks));
        for (int j = 0; j < i; j++) {
            const struct brim_kda_split_time *b = &brim_kda_split_times[j];
            /* but for noise and CTAs behind one another; a mix taken for equal sequences breaks it
             */
            if (b->chunks < a->chunks && a->us < 0.9 * b->us && rounds(b) <= rounds(a))
                fail_msg("split %d x %d x %d: %d chunks a processor in %.1f us, %d in %.1f",
                         a->n_seq, a->n_tok, a->n_head, a->chunks, a->us, b->chunks, b->us);
            assert_false(a->n_seq == b->n_seq && a->n_tok == b->n_tok && a->n_head == b->n_head);
        }
    }
}

/* A shape that was measured is expected to take what it took, unless it is cut otherwise. */
static void measured_splits_have_their_own_time(void **state)
{
    (void)state;
    for (int i = 0; i < brim_kda_n_split_time; i++) {
        const struct brim_kda_split_time *row = &brim_kda_split_times[i];
        brim_kda_plan plan;
        brim_kda_args args;
        brim_kda_args_init(&args);
        args.n_seq = row->n_seq, args.n_tok = row->n_tok, args.n_value_head = row->n_head;
        args.route = "split", args.split_length = row->length, args.split_first = row->first;
        args.split_window = row->window;
        assert_int_equal(brim_kda_plan_gpu(&args, 132, &plan, NULL), BRIM_OK);
        assert_true(plan.expected_us == row->us);
        args.split_length = 1, args.split_first = 0, args.split_window = 1;
        assert_int_equal(brim_kda_plan_gpu(&args, 132, &plan, NULL), BRIM_OK);
        assert_true(row->length == 1 || plan.expected_us != row->us);
    }
    brim_kda_plan whole, longer; /* a segment longer than its sequence ends with it */
    brim_kda_args args;
    brim_kda_args_init(&args);
    args.n_seq = 1, args.n_tok = 4096, args.n_value_head = 8, args.route = "split";
    args.split_length = 128, args.split_window = 1;
    assert_int_equal(brim_kda_plan_gpu(&args, 132, &whole, NULL), BRIM_OK);
    args.split_length = 400, args.split_window = 8;
    assert_int_equal(brim_kda_plan_gpu(&args, 132, &longer, NULL), BRIM_OK);
    assert_true(whole.expected_us > 0 && longer.expected_us == whole.expected_us);
}

/* Over a grid: nothing by name alone is ever chosen, nor anything without a time; the times lie
 * between the neighbouring measured lengths'; a longer sequence never takes less. */
static void the_choice_stays_inside_what_was_measured(void **state)
{
    (void)state;
    static const int64_t heads[] = {1, 4, 8, 12, 16, 24, 30, 31, 48, 60, 64, 96, 133, 300},
                         seqs[] = {1, 2, 8, 40};
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
        for (size_t s = 0; s < sizeof seqs / sizeof *seqs; s++)
            for (int form = 0; form < 4; form++) {
                double last = 0;
                for (int64_t n_tok = 32; n_tok < 300000; n_tok += n_tok / 5) {
                    bool packed = form & 1;
                    brim_kda_args args;
                    brim_kda_plan plan;
                    brim_kda_args_init(&args);
                    args.n_seq = seqs[s], args.n_value_head = heads[h];
                    args.n_tok = packed ? n_tok * seqs[s] : n_tok;
                    args.offset_bytes = packed ? 4 : 0;
                    args.allow_split = form >> 1;
                    assert_int_equal(brim_kda_plan_gpu(&args, 78, &plan, NULL), BRIM_OK);
                    assert_string_equal(plan.route, "m128"); /* another GPU */
                    assert_true(plan.expected_us == 0);
                    assert_int_equal(brim_kda_plan_gpu(&args, 132, &plan, NULL), BRIM_OK);
                    assert_true(admitted(plan.route, args.allow_split));
                    assert_true(plan.expected_us > 0 || !strcmp(plan.route, "m128"));
                    assert_true(plan.depth == 0 || seqs[s] * heads[h] <= BRIM_KDA_MAX_TASK);
                    assert_int_equal(plan.n_alternative, BRIM_KDA_ROUTE_ALL - 1);
                    for (int i = 0; i < plan.n_alternative; i++) {
                        assert_string_not_equal(plan.alternative[i].route, plan.route);
                        assert_true(strlen(plan.alternative[i].why_not) > 4);
                    }
                    plan_of(&(struct measured){.n_seq = (int)seqs[s],
                                               .n_tok = (int)n_tok,
                                               .n_head = (int)heads[h]},
                            0, "m128", &plan);
                    if (plan.expected_us > 0) assert_true(plan.expected_us >= last);
                    last = plan.expected_us;
                }
            }
}

static const brim_kda_alternative *other_of(const brim_kda_plan *plan, const char *route)
{
    for (int i = 0; i < plan->n_alternative; i++)
        if (!strcmp(plan->alternative[i].route, route)) return &plan->alternative[i];
    fail_msg("%s is not among the alternatives to %s", route, plan->route);
    return NULL;
}

/* Every route is one of the plan's, whether it was measured or not; by name it can be had. */
static void every_route_is_listed(void **state)
{
    (void)state;
    struct measured shape = {.n_seq = 1, .n_tok = 4096, .n_head = 8};
    for (int r = 0; r < BRIM_KDA_ROUTE_ALL; r++) {
        const struct brim_kda_route_info *info = &brim_kda_routes[r];
        brim_kda_plan plan;
        bool has_time = has_times(info->name);
        plan_of(&shape, 1, info->name, &plan);
        assert_string_equal(plan.route, info->name);
        assert_true(has_time || plan.expected_us == 0);
        assert_int_equal(plan.cluster, info->cluster);
        assert_int_equal(plan.split_length > 0, r >= BRIM_KDA_ROUTE_N);
        plan_of(&shape, 1, NULL, &plan);
        if (!strcmp(plan.route, info->name)) continue;
        const brim_kda_alternative *other = other_of(&plan, info->name);
        assert_true(has_time || other->expected_us == 0);
        if (info->by_name) assert_string_equal(other->why_not, info->by_name);
        if (!info->by_name && !has_time) assert_string_equal(other->why_not, "not measured");
    }
}

/* The rows `weak` of kda_split.csv: gates that do not forget, nothing is cut. What is chosen there
 * was decided by the time of the same shape's row `normal`, which stands before: the split if that
 * is 3 % shorter than the serial route's. */
static void uncut_it_takes_no_longer_than_stated(void **state)
{
    (void)state;
    char line[512], gates[16];
    int n = 0, n_normal = 0, n_split = 0;
    double serial, split;
    struct measured shape = {0}, ahead[64]; /* us: the split's part of the serial route's time */
    brim_kda_plan plan;
    FILE *f = fopen(BRIM_SOURCE_DIR "/bench/results/h200/kda_split.csv", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%d,%d,%d,%15[^,],%lf,%lf", &shape.n_tok, &shape.n_head, &shape.n_seq,
                   gates, &serial, &split) != 6)
            continue;
        if (!strcmp(gates, "normal")) {
            assert_true(n_normal < (int)(sizeof ahead / sizeof *ahead));
            shape.us = split / serial;
            ahead[n_normal++] = shape;
        }
        if (strcmp(gates, "weak")) continue;
        int i = 0;
        while (i < n_normal && (ahead[i].n_tok != shape.n_tok || ahead[i].n_head != shape.n_head ||
                                ahead[i].n_seq != shape.n_seq))
            i++;
        assert_true(i < n_normal);
        plan_of(&shape, 1, NULL, &plan);
        if (ahead[i].us < 0.94 || ahead[i].us > 1) /* between them runs decide */
            assert_int_equal(!strcmp(plan.route, "split"), ahead[i].us < 0.97);
        n_split += ahead[i].us < 0.97;
        plan_of(&shape, 1, "split", &plan);
        if (!(plan.uncut_us > plan.expected_us && plan.uncut_us >= split))
            fail_msg("%d x %d x %d: %.1f us measured, %.1f stated", shape.n_seq, shape.n_tok,
                     shape.n_head, split, plan.uncut_us);
        n++;
    }
    fclose(f);
    assert_true(n >= 20 && n_split >= 17); /* all but those that fill the GPU */
}

static void split_is_taken_where_admitted_and_says_what_it_rests_on(void **state)
{
    (void)state;
    brim_kda_plan plan;
    struct measured shape = {.n_seq = 1, .n_tok = 4096, .n_head = 8};
    plan_of(&shape, 0, NULL, &plan);
    char ring[sizeof plan.route];
    assert_true(plan.depth > 0);
    snprintf(ring, sizeof ring, "%s", plan.route);
    assert_string_equal(other_of(&plan, "split")->why_not, "allow_split is not set");
    plan_of(&shape, 1, NULL, &plan);
    assert_string_equal(plan.route, "split");
    assert_string_equal(plan.serial, ring);
    assert_non_null(strstr(plan.reason, "serial route's time comes on top"));
    assert_int_equal(plan.split_slots, 16);
    assert_int_equal(plan.grid, 128);
    shape.n_tok = brim_kda_split_least_tokens / 2; /* never measured so short */
    plan_of(&shape, 1, NULL, &plan);
    assert_string_not_equal(plan.route, "split");
    plan_of(&shape, 0, "split", &plan); /* but by name */
    assert_string_equal(plan.route, "split");
    assert_true(plan.expected_us == 0 && plan.uncut_us == 0);
    shape.n_head = 257;
    plan_of(&shape, 1, NULL, &plan);
    assert_string_equal(plan.route, "m128");
    /* beyond the longest measured m128 takes at least as long as there: the split may beat that */
    shape = (struct measured){.n_seq = 1, .n_tok = 1 << 19, .n_head = 1};
    plan_of(&shape, 1, NULL, &plan);
    assert_string_equal(plan.route, "split");
    plan_of(&shape, 0, NULL, &plan);
    assert_string_equal(plan.route, "m128");
    assert_string_equal(plan.reason, "not measured");
}

/* A pinned first segment counts where it is the longest: neither cut is chosen for a sequence that
 * is nearly all one segment. A window that is pinned stays as long as it is. */
static void pinned_first_segments_count(void **state)
{
    (void)state;
    for (int form = 0; form < 3; form++) { /* a batch, packed, nothing skipped */
        brim_kda_args args;
        brim_kda_plan plan;
        brim_kda_args_init(&args);
        args.n_seq = 1, args.n_tok = 8192, args.n_value_head = 1, args.allow_split = 1;
        args.offset_bytes = form == 1 ? 8 : 0, args.split_exact = form == 2;
        args.split_length = 4, args.split_first = 250;
        assert_int_equal(brim_kda_plan_gpu(&args, 132, &plan, NULL), BRIM_OK);
        if (strncmp(plan.route, "split", 5) == 0) fail_msg("form %d: %s", form, plan.route);
        args.route = "split";
        assert_int_equal(brim_kda_plan_gpu(&args, 132, &plan, NULL), BRIM_OK);
        assert_true(plan.split_chunks >= 250);
        args.split_first = args.split_length = 0, args.split_window = form == 2 ? 0 : 8;
        assert_int_equal(brim_kda_plan_gpu(&args, 132, &plan, NULL), BRIM_OK);
        assert_int_equal(plan.split_window, args.split_window);
    }
    brim_kda_plan plan;
    brim_error err = {0};
    brim_kda_args args;
    brim_kda_args_init(&args);
    args.n_seq = args.n_value_head = 1, args.n_tok = INT32_MAX;
    assert_int_equal(brim_kda_plan_gpu(&args, 1 << 20, &plan, &err), BRIM_OK);
    assert_int_equal(brim_kda_plan_gpu(&args, (1 << 20) + 1, &plan, &err), BRIM_E_RANGE);
}

/* With split_exact and allow_split the exact chain is a route like others, where it was measured.
 */
static void the_exact_chain_is_chosen_where_it_is_faster(void **state)
{
    (void)state;
    static const struct {
        int n_seq, n_tok, n_head, allow, processors;
        const char *route, *why_not; /* the route's beginning */
    } rows[] = {{1, 16384, 1, 1, 132, "split-join", NULL},
                {1, 32768, 2, 1, 132, "split-join", NULL},
                {1, 16384, 1, 0, 132, "c", "allow_split is not set"},
                {1, 2048, 8, 1, 132, "c", "not expected faster"},
                {1, 8192, 96, 1, 132, "m128", "joined it would take longer"},
                {1, 131072, 1, 1, 132, NULL, "not measured"},
                {1, 16384, 1, 1, 78, "m128", "not measured on such a GPU"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        brim_kda_plan plan;
        brim_kda_args args;
        brim_kda_args_init(&args);
        args.n_seq = rows[i].n_seq, args.n_tok = rows[i].n_tok, args.n_value_head = rows[i].n_head;
        args.allow_split = rows[i].allow, args.split_exact = 1;
        assert_int_equal(brim_kda_plan_gpu(&args, rows[i].processors, &plan, NULL), BRIM_OK);
        if (rows[i].route)
            assert_int_equal(strncmp(plan.route, rows[i].route, strlen(rows[i].route)), 0);
        if (rows[i].why_not) {
            assert_string_equal(other_of(&plan, "split-join")->why_not, rows[i].why_not);
            continue;
        }
        assert_string_equal(plan.reason, "expected fastest; nothing is skipped");
        assert_string_equal(plan.serial, "");
        assert_int_equal(plan.split_window, 0);
        assert_true(plan.split_slots > 8 && plan.expected_us > 50);
        assert_true(plan.expected_us < 0.97 * other_of(&plan, "c6-m64")->expected_us);
        assert_non_null(strstr(other_of(&plan, "split")->why_not, "split_exact"));
    }
}

/* The longest of packed sequences is a lower bound of a serial route's time, unless it is all rows:
 * then it is not known. */
/* By name alone, whatever is admitted; with a serial route's workspace for the control words only.
 */
static void segments_are_joined_by_name(void **state)
{
    (void)state;
    brim_kda_plan plan, split;
    brim_kda_args args;
    brim_kda_args_init(&args);
    args.n_seq = 2, args.n_tok = 4096, args.n_value_head = 8;
    args.split_length = 4, args.split_window = 2, args.route = "split";
    assert_int_equal(brim_kda_plan_gpu(&args, 132, &split, NULL), BRIM_OK);
    args.route = "split-join";
    assert_int_equal(brim_kda_plan_gpu(&args, 132, &plan, NULL), BRIM_OK);
    assert_string_equal(plan.route, "split-join");
    assert_string_equal(plan.reason, "named by the caller");
    assert_string_equal(plan.serial, "");
    assert_true(plan.expected_us == 0 && plan.n_alternative == BRIM_KDA_ROUTE_ALL - 1);
    assert_int_equal(plan.split_length, 4);
    assert_int_equal(plan.split_window, 2);
    assert_int_equal(plan.split_slots, 2 * 32);
    assert_int_equal(plan.grid, 64 * 8);
    assert_int_equal(plan.workspace_bytes,
                     brim_kda_route_workspace_front(0) + 64 * 8 * (48 + 2 * 65536) + 2 * 8 * 65536);
    static const char *const names[] = {"split", "split-join"};
    for (int i = 0; i < 2; i++) {
        args.route = names[i], args.split_exact = 1;
        assert_int_equal(brim_kda_plan_gpu(&args, 132, &split, NULL), BRIM_OK);
        assert_string_equal(split.route, "split-join");
        assert_string_equal(split.reason,
                            i ? "named by the caller"
                              : "split named by the caller; split_exact: nothing is skipped");
        assert_int_equal(split.split_window, 0);
        assert_int_equal(split.workspace_bytes, plan.workspace_bytes);
    }
    args.route = NULL, args.allow_split = 1;
    assert_int_equal(brim_kda_plan_gpu(&args, 132, &plan, NULL), BRIM_OK);
    assert_string_not_equal(plan.route, "split-join");
    assert_int_equal(plan.split_length, 0);
    for (int i = 0; i < plan.n_alternative; i++) {
        const brim_kda_alternative *other = &plan.alternative[i];
        if (!strcmp(other->route, "split")) assert_non_null(strstr(other->why_not, "split_exact"));
        if (!strcmp(other->route, "split-join")) /* so short are these segments pinned */
            assert_string_equal(other->why_not, "not expected faster");
    }
    args.route = "split-join", args.n_value_head = 129; /* 258 tasks */
    assert_int_equal(brim_kda_plan_gpu(&args, 132, &plan, NULL), BRIM_E_SHAPE);
}

static void packed_sequences_by_their_aggregates(void **state)
{
    (void)state;
    brim_kda_plan equal, uneven, unknown;
    struct measured shape = {.n_seq = 8, .n_tok = 8192, .n_head = 4, .longest = 1024};
    plan_of(&shape, 0, "m128", &equal);
    shape.longest = 4096;
    plan_of(&shape, 0, "m128", &uneven);
    shape.longest = 8192;
    plan_of(&shape, 0, "m128", &unknown);
    assert_true(equal.expected_us > 0 && uneven.expected_us > 2.5 * equal.expected_us);
    assert_true(unknown.expected_us == equal.expected_us);
}

static void tasks_beyond_what_runs_at_once_take_another_wave(void **state)
{
    (void)state;
    brim_kda_plan one, two;
    struct measured shape = {.n_seq = 1, .n_tok = 4096, .n_head = 132};
    plan_of(&shape, 0, "m128", &one);
    shape.n_head = 133;
    plan_of(&shape, 0, "m128", &two);
    assert_true(one.expected_us > 0 && two.expected_us > 1.8 * one.expected_us);
    shape.n_head = 30;
    plan_of(&shape, 0, "c4-m128", &one);
    shape.n_head = 31;
    plan_of(&shape, 0, "c4-m128", &two);
    assert_true(one.expected_us > 0 && two.expected_us > 1.8 * one.expected_us);
}

static void what_cannot_be_planned_is_refused(void **state)
{
    (void)state;
    brim_kda_args args;
    brim_kda_plan plan;
    brim_kda_args_init(&args);
    args.n_seq = 1, args.n_tok = 4096, args.n_value_head = 8;
    assert_int_equal(brim_kda_plan_gpu(NULL, 132, &plan, NULL), BRIM_E_ARGUMENT);
    assert_int_equal(brim_kda_plan_gpu(&args, 132, NULL, NULL), BRIM_E_ARGUMENT);
    for (int64_t n_processor = -1; n_processor <= 0; n_processor++)
        assert_int_equal(brim_kda_plan_gpu(&args, n_processor, &plan, NULL), BRIM_E_RANGE);
    assert_int_equal(brim_kda_plan_gpu(&args, INT64_MAX, &plan, NULL), BRIM_E_RANGE);
    args.route = "split", args.split_window = 9;
    assert_int_equal(brim_kda_plan_gpu(&args, 132, &plan, NULL), BRIM_E_RANGE);
    args.split_length = 2, args.split_window = 3;
    assert_int_equal(brim_kda_plan_gpu(&args, 132, &plan, NULL), BRIM_E_RANGE);
    args.split_window = 2;
    assert_int_equal(brim_kda_plan_gpu(&args, 132, &plan, NULL), BRIM_OK);
    assert_int_equal(plan.split_length, 2);
    assert_int_equal(plan.split_window, 2);
    args.n_value_head = 257;
    assert_int_equal(brim_kda_plan_gpu(&args, 132, &plan, NULL), BRIM_E_SHAPE);
    args.route = NULL, args.n_tok = (int64_t)1 << 40;
    assert_int_equal(brim_kda_plan_gpu(&args, 132, &plan, NULL), BRIM_E_SHAPE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_chosen_is_at_most_5_percent_slower_than_the_best),
        cmocka_unit_test(pinned_first_segments_count),
        cmocka_unit_test(expected_times_are_near_the_measured_ones),
        cmocka_unit_test(the_tables_are_sound),
        cmocka_unit_test(measured_splits_have_their_own_time),
        cmocka_unit_test(the_choice_stays_inside_what_was_measured),
        cmocka_unit_test(every_route_is_listed),
        cmocka_unit_test(uncut_it_takes_no_longer_than_stated),
        cmocka_unit_test(split_is_taken_where_admitted_and_says_what_it_rests_on),
        cmocka_unit_test(segments_are_joined_by_name),
        cmocka_unit_test(the_exact_chain_is_chosen_where_it_is_faster),
        cmocka_unit_test(packed_sequences_by_their_aggregates),
        cmocka_unit_test(tasks_beyond_what_runs_at_once_take_another_wave),
        cmocka_unit_test(what_cannot_be_planned_is_refused),
    };
    return cmocka_run_group_tests(tests, read_all, free_all);
}
