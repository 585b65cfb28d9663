/* SPDX-License-Identifier: Apache-2.0
 * Expected times from the measured ones (kda_route_table.c) and the choice between them. Between
 * measured lengths a time is linear in the chunks, between measured numbers of tasks of one wave
 * linear in the tasks; waves are counted by what an H200 holds at once. Outside of what was
 * measured a route has no time and is not chosen. */
#include "plan/kda_route.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/count.h"
#include "plan/clusters.h"
#include "plan/kda_route_table.h"
#include "plan/kda_shape.h"

enum { M128 = BRIM_KDA_ROUTE_M128, SPLIT = BRIM_KDA_ROUTE_SPLIT, JOIN = BRIM_KDA_ROUTE_JOIN };
enum { N_ROUTE = BRIM_KDA_ROUTE_ALL };
enum { MAX_COUNT = INT32_MAX, MAX_PROCESSOR = 1 << 20 };
_Static_assert(N_ROUTE - 1 <= BRIM_KDA_MAX_ALTERNATIVE, "a plan lists every other route");

const struct brim_kda_route_info brim_kda_routes[BRIM_KDA_ROUTE_ALL] = {
    [BRIM_KDA_ROUTE_M128] = {"m128", 1, 1, 0, 2, 0, true, NULL},
    [BRIM_KDA_ROUTE_M64] = {"m64", 2, 2, 0, 4, 0, false, NULL},
    [BRIM_KDA_ROUTE_PAIR] = {"pair", 2, 2, 0, 4, 0, true, NULL},
    [BRIM_KDA_ROUTE_QUEUE] = {"queue", 1, 1, 0, 2, 0, false, NULL},
    [BRIM_KDA_ROUTE_C4_M128] = {"c4-m128", 4, 1, 3, 12, 15, true, NULL},
    [BRIM_KDA_ROUTE_C4_M64] = {"c4-m64", 4, 2, 2, 8, 10, true, NULL},
    [BRIM_KDA_ROUTE_C5_M64] = {"c5-m64", 5, 2, 3, 12, 15, true, NULL},
    [BRIM_KDA_ROUTE_C6_M64] = {"c6-m64", 6, 2, 4, 16, 20, true, NULL},
    [BRIM_KDA_ROUTE_C8_M128] = {"c8-m128", 8, 1, 7, 28, 35, false, "by name alone: for validation"},
    [BRIM_KDA_ROUTE_SPLIT] = {"split", 1, 1, 0, 2, 0, false, NULL},
    [BRIM_KDA_ROUTE_JOIN] = {"split-join", 1, 1, 0, 2, 0, false,
                             "by name alone: its time depends on the data"},
};

/* A route is preferred to a simpler one (m128 to all, a serial one to the split) only if it is
 * expected to take at most this share of its time: what runs differ by. */
static const double worth = 0.97;

/* The workspace of an owner-helper route: 40 lines of 128 bytes for each of the most tasks, then
 * the packets (src/cuda/kda/layout.h has the same numbers, a unit test compares them). */
enum { CONTROL_BYTES = BRIM_KDA_MAX_TASK * 40 * 128, PACKET_BYTES = 37376 };

bool brim_kda_route_limited(int route)
{
    return route >= BRIM_KDA_ROUTE_N || brim_kda_routes[route].depth > 0;
}

size_t brim_kda_route_workspace(enum brim_kda_route route, int64_t n_task)
{
    int depth = brim_kda_routes[route].depth;
    if (n_task == 0) return 0;
    if (depth == 0) return route == BRIM_KDA_ROUTE_QUEUE ? CONTROL_BYTES : 0; /* its counter */
    return CONTROL_BYTES + (size_t)n_task * (size_t)depth * PACKET_BYTES;
}

size_t brim_kda_route_workspace_front(size_t route_bytes)
{
    size_t front = route_bytes > CONTROL_BYTES ? route_bytes : CONTROL_BYTES;
    return (front + 127) / 128 * 128;
}

/* ---- expected times -------------------------------------------------------------------------- */

struct expected {
    double us;     /* 0: nothing is known; not measured: it takes at least this long */
    bool measured; /* the shape lies between measured ones */
};

/* Tasks (split: CTAs) of a route that run at once on the GPU that was measured. */
static int64_t resident(int route)
{
    return brim_clusters_at_once(brim_kda_routes[route].cluster, brim_kda_table_processors);
}

static double between(double x, double x0, double y0, double x1, double y1)
{
    return x1 > x0 ? y0 + (y1 - y0) * (x - x0) / (x1 - x0) : y0;
}

/* The first row that is not before these in the table's order. */
static int first_row(int route, int64_t n_wave, int64_t chunks, int64_t n_task)
{
    int low = 0, high = brim_kda_n_time;
    while (low < high) {
        int middle = (low + high) / 2;
        const struct brim_kda_time *row = &brim_kda_times[middle];
        bool before = row->route != route     ? row->route < route
                      : row->n_wave != n_wave ? row->n_wave < n_wave
                      : row->chunks != chunks ? row->chunks < chunks
                                              : row->n_task < n_task;
        if (before)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* At a measured length, in n_wave waves: linear in the tasks, level before the fewest and after
 * the most. */
static double at_length(int route, int64_t n_wave, int32_t chunks, int64_t n_task)
{
    int begin = first_row(route, n_wave, chunks, 0), end = first_row(route, n_wave, chunks + 1, 0);
    int at = first_row(route, n_wave, chunks, n_task); /* the first with as many or more */
    const struct brim_kda_time *more = &brim_kda_times[at < end ? at : end - 1];
    const struct brim_kda_time *fewer = at > begin && more->n_task > n_task ? more - 1 : more;
    return between((double)n_task, fewer->n_task, fewer->us, more->n_task, more->us);
}

/* n_task tasks of so many chunks on a serial route. */
static struct expected expect(int route, int64_t chunks, int64_t n_task)
{
    int64_t n_wave = brim_ceil_div(n_task, resident(route));
    int begin = first_row(route, n_wave, 0, 0), end = first_row(route, n_wave + 1, 0, 0);
    int at = first_row(route, n_wave, chunks, 0); /* the first as long or longer */
    const struct brim_kda_time *longer = at < end ? &brim_kda_times[at] : NULL;
    const struct brim_kda_time *shorter = longer && longer->chunks == chunks ? longer
                                          : at > begin ? &brim_kda_times[at - 1]
                                                       : NULL;
    if (shorter && longer)
        return (struct expected){between((double)chunks, shorter->chunks,
                                         at_length(route, n_wave, shorter->chunks, n_task),
                                         longer->chunks,
                                         at_length(route, n_wave, longer->chunks, n_task)),
                                 true};
    if (route == M128 && n_wave > 1) { /* it has a time for any number of tasks */
        struct expected one = expect(route, chunks, resident(route));
        return (struct expected){(double)n_wave * one.us, one.measured};
    }
    if (shorter) return (struct expected){at_length(route, n_wave, shorter->chunks, n_task), false};
    return (struct expected){0, false};
}

/* What a call is, without its data. */
struct work {
    int64_t n_seq, n_row, n_head, n_task;
    int64_t mean, longest; /* tokens of a sequence; longest: the mean where it is not known */
    int64_t bound;         /* tokens no sequence is longer than */
    bool packed;
};

/* Sequences of unequal lengths start longest first, each task where one has ended: a task of the
 * longest, or all of the mean evenly over what runs at once and half a task more at the end, since
 * the last to start are the shortest. More than two waves of them were measured on m128 alone. */
static struct expected expect_serial(const struct work *work, int route)
{
    int64_t at_once = resident(route), n_wave = brim_ceil_div(work->n_task, at_once);
    int64_t mean = brim_ceil_div(work->mean, BRIM_KDA_CHUNK);
    if (work->longest <= work->mean) return expect(route, mean, work->n_task);
    int64_t n_first = brim_min_i64(work->n_task, at_once);
    struct expected all = expect(route, brim_ceil_div(work->longest, BRIM_KDA_CHUNK), n_first);
    if (n_wave > 1) {
        struct expected task = expect(route, mean, n_first);
        double even = ((double)work->n_task / (double)at_once + 0.5) * task.us;
        if (even > all.us) all.us = even;
        all.measured = all.measured && task.measured;
        if (n_wave > 2 && route != M128) all.measured = false;
    }
    return all;
}

/* CTAs that a processor takes one behind the other. */
static int64_t rounds(const struct brim_kda_split_time *row)
{
    int64_t n = 1, behind = brim_ceil_div(row->n_tok, BRIM_KDA_CHUNK) - row->first;
    if (behind > 0) n += brim_ceil_div(behind, row->length);
    return brim_ceil_div(n * row->n_seq * row->n_head, resident(SPLIT));
}

/* A measured shape has its own time. Of others counts what a processor works through, beside shapes
 * of no more rounds: a CTA behind another takes up to 5 us more than its chunks. Of rows of one
 * number of chunks the slowest stands for all. */
static struct expected expect_split(const struct work *work,
                                    const struct brim_kda_split_plan *split)
{
    if (split->length == 0) return (struct expected){0, false};
    int64_t chunks = split->chunks;
    int64_t n_round = brim_ceil_div(split->n_slot * work->n_head, resident(SPLIT));
    const struct brim_kda_split_time *shorter = NULL, *longer = NULL;
    for (int i = 0; i < brim_kda_n_split_time; i++) {
        const struct brim_kda_split_time *row = &brim_kda_split_times[i];
        if (row->n_seq == work->n_seq && row->n_tok == work->mean && row->n_head == work->n_head &&
            row->length == split->length && row->first == split->first &&
            row->window == split->window && !work->packed)
            return (struct expected){row->us, true};
        if (rounds(row) > n_round) continue;
        if (row->chunks <= chunks &&
            (!shorter || row->chunks > shorter->chunks || row->us > shorter->us))
            shorter = row;
        if (row->chunks >= chunks &&
            (!longer || (row->chunks == longer->chunks && row->us > longer->us)))
            longer = row;
    }
    if (!shorter) return (struct expected){0, false};
    if (!longer) return (struct expected){shorter->us, false};
    return (struct expected){
        between((double)chunks, shorter->chunks, shorter->us, longer->chunks, longer->us),
        work->mean >= brim_kda_split_least_tokens};
}

/* The exact chain, whose time does not depend on the data. Packed ones were not measured. */
static struct expected expect_join(const struct work *work, const struct brim_kda_split_plan *plan)
{
    /* nor longer first segments */
    if (plan->length == 0 || work->n_seq == 0 || work->packed || plan->first > plan->length)
        return (struct expected){0, false};
    int64_t chunks = brim_ceil_div(work->mean, BRIM_KDA_CHUNK);
    double us = brim_kda_split_cost_exact(work->n_seq, plan->n_slot, plan->n_slot / work->n_seq,
                                          work->n_head, resident(JOIN), plan->length);
    return (struct expected){us, chunks >= brim_kda_join_cost.least_chunks &&
                                     chunks <= brim_kda_join_cost.most_chunks};
}

/* ---- the choice ------------------------------------------------------------------------------ */

static int find_route(const char *name)
{
    for (int r = 0; r < N_ROUTE; r++)
        if (!strcmp(name, brim_kda_routes[r].name)) return r;
    return -1;
}

/* How a call would be cut: with windows, and where split_exact asks for it without any. */
struct cuts {
    struct brim_kda_split_plan split, exact;
};

/* Why the automatic choice must leave a route out, or NULL. */
static const char *excluded(const struct work *work, const brim_kda_args *args, int route,
                            const struct cuts *cuts)
{
    if (work->n_task > BRIM_KDA_MAX_TASK && brim_kda_route_limited(route))
        return "its workspace has no words for so many tasks";
    if (route >= BRIM_KDA_ROUTE_N && !args->allow_split) return "allow_split is not set";
    if (route == JOIN && args->split_exact)
        return cuts->exact.n_slot > work->n_seq ? NULL : "joined it would take longer";
    if (route >= BRIM_KDA_ROUTE_N &&
        cuts->split.first >= brim_ceil_div(work->bound, BRIM_KDA_CHUNK))
        return "too short to be cut";
    if (route == SPLIT && args->split_exact) return "split_exact is set: it skips what it may";
    return brim_kda_routes[route].by_name;
}

static brim_status check(const brim_kda_args *args, int64_t n_processor, brim_error *err)
{
    BRIM_REQUIRE(err, n_processor >= 1 && n_processor <= MAX_PROCESSOR, BRIM_E_RANGE,
                 "kda: a plan needs a GPU of 1 to 2^20 processors, not %lld",
                 (long long)n_processor);
    BRIM_TRY(brim_kda_shape_check(args, err));
    BRIM_REQUIRE(err,
                 args->n_seq <= MAX_COUNT && args->n_tok <= MAX_COUNT &&
                     args->n_value_head <= MAX_COUNT,
                 BRIM_E_SHAPE, "kda: a plan counts sequences, tokens and heads in 31 bits");
    BRIM_REQUIRE(err, !args->route || find_route(args->route) >= 0, BRIM_E_UNSUPPORTED,
                 "kda: no route is called '%.40s' in this build", args->route);
    return brim_kda_split_check(args->split_length, args->split_first, args->split_window, err);
}

static void fill(brim_kda_plan *plan, const struct work *work, int route,
                 const struct brim_kda_schedule *schedule, int64_t n_processor)
{
    const struct brim_kda_route_info *info = &brim_kda_routes[route];
    const struct brim_kda_split_plan *split = &schedule->split;
    snprintf(plan->route, sizeof plan->route, "%s", info->name);
    plan->cluster = info->cluster;
    plan->owners = info->owners;
    plan->helpers = info->helpers;
    plan->instances = info->instances;
    plan->depth = info->depth;
    plan->grid = work->n_task * info->cluster;
    if (route == BRIM_KDA_ROUTE_QUEUE) plan->grid = brim_min_i64(plan->grid, n_processor);
    plan->workspace_bytes = brim_kda_route_workspace(schedule->route, work->n_task);
    if (split->length == 0) return;
    if (!split->join)
        snprintf(plan->serial, sizeof plan->serial, "%s", brim_kda_routes[schedule->route].name);
    plan->grid = split->n_slot * work->n_head;
    plan->split_length = split->length;
    plan->split_first = split->first;
    plan->split_window = split->window;
    plan->split_chunks = split->chunks;
    plan->split_slots = split->n_slot;
    plan->workspace_bytes =
        brim_kda_route_workspace_front(plan->workspace_bytes) + split->workspace_bytes;
}

static struct cuts cuts_of(const brim_kda_args *args, const struct work *work, int64_t n_processor)
{
    struct cuts cuts = {{0}, {0}};
    bool wanted = args->allow_split || (args->route && find_route(args->route) >= BRIM_KDA_ROUTE_N);
    if (work->n_task > BRIM_KDA_MAX_TASK || !wanted) return cuts;
    struct brim_kda_split_call call = {.n_seq = work->n_seq,
                                       .n_row = work->n_row,
                                       .max_tok = work->bound,
                                       .n_value_head = work->n_head,
                                       .packed = work->packed,
                                       .n_processor = n_processor,
                                       .length = args->split_length,
                                       .first = args->split_first,
                                       .window = args->split_window};
    cuts.split = brim_kda_split_plan_make(&call);
    if (args->split_exact) cuts.exact = brim_kda_split_plan_exact(&call);
    return cuts;
}

static struct brim_kda_split_plan joined(const brim_kda_args *args, const struct work *work,
                                         const struct cuts *cuts)
{
    if (args->split_exact) return cuts->exact;
    struct brim_kda_split_plan split = cuts->split;
    brim_kda_split_plan_join(&split, work->n_seq, work->n_head);
    return split;
}

struct candidates {
    struct expected time[N_ROUTE];
    const char *why_not[N_ROUTE]; /* NULL: may be chosen */
};

static void consider(const brim_kda_args *args, const struct work *work, const struct cuts *cuts,
                     bool known, struct candidates *all)
{
    const char *unknown = known              ? "not measured"
                          : work->n_task > 0 ? "not measured on such a GPU"
                                             : "there is no sequence";
    for (int r = 0; r < N_ROUTE; r++) {
        all->time[r] = (struct expected){0, false};
        if (known && r < BRIM_KDA_ROUTE_N) all->time[r] = expect_serial(work, r);
        if (known && r == SPLIT) all->time[r] = expect_split(work, &cuts->split);
        if (known && r == JOIN) all->time[r] = expect_join(work, &cuts->exact);
        all->why_not[r] = excluded(work, args, r, cuts);
        if (!all->why_not[r] && !all->time[r].measured) all->why_not[r] = unknown;
    }
}

/* The serial route expected fastest; behind: of those that may stand behind segments. */
static int fastest(const struct candidates *all, bool behind)
{
    const struct expected *time = all->time;
    int best = M128;
    for (int r = M128 + 1; r < BRIM_KDA_ROUTE_N; r++) {
        if (all->why_not[r] || (behind && !brim_kda_routes[r].behind)) continue;
        if (time[r].us <= worth * time[M128].us && (best == M128 || time[r].us < time[best].us))
            best = r;
    }
    return best;
}

static int choose(const struct candidates *all, const char **reason)
{
    const struct expected *time = all->time;
    int serial = fastest(all, false);
    bool other = false;
    if (!all->why_not[SPLIT] && time[SPLIT].us <= worth * time[serial].us) {
        *reason = "expected fastest where gates forget; where not, the serial route's time comes "
                  "on top";
        return SPLIT;
    }
    if (!all->why_not[JOIN] && time[JOIN].us <= worth * time[serial].us) {
        *reason = "expected fastest; nothing is skipped";
        return JOIN;
    }
    for (int r = M128 + 1; r < BRIM_KDA_ROUTE_N; r++) other = other || !all->why_not[r];
    *reason = all->why_not[serial] ? all->why_not[serial]
              : other              ? "expected fastest"
                                   : "no other route admitted is measured";
    return serial;
}

static struct work work_of(const brim_kda_args *args)
{
    struct work work = {.n_seq = args->n_seq, .n_head = args->n_value_head};
    work.packed = args->offset_bytes != 0;
    work.n_row = work.packed ? args->n_tok : args->n_seq * args->n_tok;
    work.n_task = args->n_seq * args->n_value_head;
    work.mean = args->n_seq ? work.n_row / args->n_seq : 0;
    /* a longest of all rows says nothing: it is what a caller gives who does not know */
    bool told = work.packed && args->max_tok > 0 && args->max_tok < work.n_row;
    work.longest = told ? args->max_tok : work.mean;
    work.bound = told || !work.packed ? work.longest : work.n_row;
    return work;
}

brim_status brim_kda_schedule_make(const brim_kda_args *args, int64_t n_processor,
                                   struct brim_kda_schedule *schedule, brim_kda_plan *plan,
                                   brim_error *err)
{
    *schedule = (struct brim_kda_schedule){0};
    memset(plan, 0, sizeof *plan);
    BRIM_TRY(check(args, n_processor, err));
    struct work work = work_of(args);
    struct cuts cuts = cuts_of(args, &work, n_processor);
    struct candidates all;
    consider(args, &work, &cuts, n_processor == brim_kda_table_processors && work.n_task > 0, &all);
    int forced = args->route ? find_route(args->route) : -1;
    const char *reason;
    int chosen = choose(&all, &reason);
    if (forced >= 0) {
        bool exact = forced == SPLIT && args->split_exact;
        chosen = exact ? JOIN : forced;
        reason = exact ? "split named by the caller; split_exact: nothing is skipped"
                       : "named by the caller";
    }
    int serial = chosen < BRIM_KDA_ROUTE_N ? chosen : M128; /* join: its CTA, no ring */
    if (chosen == SPLIT) serial = fastest(&all, true);
    BRIM_REQUIRE(err, work.n_task <= BRIM_KDA_MAX_TASK || !brim_kda_route_limited(chosen),
                 BRIM_E_SHAPE, "kda: route %s takes at most %d tasks, not %lld",
                 brim_kda_routes[chosen].name, BRIM_KDA_MAX_TASK, (long long)work.n_task);
    schedule->route = (enum brim_kda_route)serial;
    if (chosen == SPLIT) schedule->split = cuts.split;
    if (chosen == JOIN) schedule->split = joined(args, &work, &cuts);
    fill(plan, &work, chosen, schedule, n_processor);
    BRIM_REQUIRE(err, plan->grid <= MAX_COUNT, BRIM_E_SHAPE,
                 "kda: route %s counts the CTAs of its launch in 31 bits, not %lld", plan->route,
                 (long long)plan->grid);
    snprintf(plan->reason, sizeof plan->reason, "%s", reason);
    for (int r = 0; r < N_ROUTE; r++) {
        double us = all.time[r].measured ? all.time[r].us : 0;
        if (r == chosen) {
            plan->expected_us = us;
            continue;
        }
        const char *why_not = all.why_not[r];
        if (!why_not) why_not = forced >= 0 ? "not the one named" : "not expected faster";
        plan->alternative[plan->n_alternative++] =
            (brim_kda_alternative){brim_kda_routes[r].name, us, why_not};
    }
    if (chosen == SPLIT && plan->expected_us > 0 && all.time[serial].measured)
        plan->uncut_us = plan->expected_us + all.time[serial].us;
    return BRIM_OK;
}

brim_status brim_kda_plan_gpu(const brim_kda_args *args, int64_t n_processor, brim_kda_plan *plan,
                              brim_error *err)
{
    struct brim_kda_schedule schedule;
    BRIM_REQUIRE(err, args && plan, BRIM_E_ARGUMENT, "kda: the arguments or the plan are null");
    return brim_kda_schedule_make(args, n_processor, &schedule, plan, err);
}

brim_status brim_kda_plan_shape(int64_t n_seq, int64_t n_tok_total, int64_t n_value_head,
                                int packed, int64_t n_processor, const char *route,
                                brim_kda_plan *plan, brim_error *err)
{
    brim_kda_args args = {.n_seq = n_seq, .n_value_head = n_value_head, .route = route};
    args.n_tok = packed || n_seq <= 0 ? n_tok_total : n_tok_total / n_seq;
    args.offset_bytes = packed ? 8 : 0;
    return brim_kda_plan_gpu(&args, n_processor, plan, err);
}

/* ---- as text --------------------------------------------------------------------------------- */

struct text {
    char *at;
    size_t capacity, length;
};

static void put(struct text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    bool room = text->length < text->capacity;
    int n = vsnprintf(room ? text->at + text->length : NULL,
                      room ? text->capacity - text->length : 0, format, args);
    va_end(args);
    if (n > 0) text->length += (size_t)n;
}

static void put_us(struct text *text, const char *name, double us)
{
    if (us > 0)
        put(text, ",\"%s\":%.1f", name, us);
    else
        put(text, ",\"%s\":null", name);
}

size_t brim_kda_plan_print(const brim_kda_plan *plan, char *string, size_t capacity)
{
    struct text text = {string, capacity, 0};
    put(&text,
        "{\"route\":\"%s\",\"reason\":\"%s\",\"grid\":%lld,\"cluster\":%d,\"owners\":%d,"
        "\"helpers\":%d,\"instances\":%d,\"depth\":%d,",
        plan->route, plan->reason, (long long)plan->grid, plan->cluster, plan->owners,
        plan->helpers, plan->instances, plan->depth);
    if (plan->split_length)
        put(&text,
            "\"split_length\":%d,\"split_first\":%d,\"split_window\":%d,\"split_chunks\":%lld,"
            "\"split_slots\":%lld,",
            plan->split_length, plan->split_first, plan->split_window,
            (long long)plan->split_chunks, (long long)plan->split_slots);
    if (plan->serial[0]) put(&text, "\"serial\":\"%s\",", plan->serial);
    put(&text, "\"workspace_bytes\":%zu", plan->workspace_bytes);
    put_us(&text, "expected_us", plan->expected_us);
    if (plan->serial[0]) put_us(&text, "uncut_us", plan->uncut_us);
    put(&text, ",\"alternatives\":[");
    for (int i = 0; i < plan->n_alternative; i++) {
        const brim_kda_alternative *other = &plan->alternative[i];
        put(&text, "%s{\"route\":\"%s\"", i ? "," : "", other->route);
        put_us(&text, "expected_us", other->expected_us);
        put(&text, ",\"why_not\":\"%s\"}", other->why_not);
    }
    put(&text, "]}");
    return text.length;
}
