/* SPDX-License-Identifier: Apache-2.0
 * The choice between whole tasks, value slices and helpers, by the work that each of a group's
 * threads would have a chunk. */
#include "plan/kda_cpu.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "brim/kernels.h"
#include "plan/kda_shape.h"
#include "plan/kda_split.h"

/* Work on one chunk of 128 value columns, in hundredths of a whole task's (a profile of one head on
 * Zen 4, AVX-512): preparation but for Z, Z, the recurrence. HAND: what it costs to fetch a packet
 * that another thread may have written. */
enum { PREPARE = 35, VALUES = 3, ADVANCE = 62, WHOLE = PREPARE + VALUES + ADVANCE, HAND = 4 };
enum { MAX_RING = 8, MAX_SLICE = 8 /* of 16 columns */ };

/* Thousandths of WHOLE that a chunk takes a group of n_owner + n_helper threads. */
static int64_t group_time(int n_ring, int n_owner, int n_helper)
{
    const int64_t scale = 10;
    int64_t prepare = scale * (PREPARE + VALUES / n_ring), advance = scale * ADVANCE / n_ring;
    int64_t hand = n_owner + n_helper > 1 ? scale * HAND * n_owner : 0;
    int64_t all = (prepare + advance + hand) / (n_owner + n_helper);
    int64_t owner = (advance + hand) / n_owner; /* the recurrence is ordered: it does not spread */
    return all > owner ? all : owner;
}

/* The group for a task of n_thread threads: the fastest, of those the one of fewest threads. */
static void share(struct brim_kda_cpu_plan *plan, int n_thread)
{
    int64_t best = INT64_MAX;
    int n_best = 0;
    for (int n_ring = 1; n_ring <= MAX_RING; n_ring *= 2)
        for (int n_owner = 1; n_owner <= 2 && n_ring * n_owner <= MAX_SLICE; n_owner++)
            for (int n_helper = 0; n_helper <= 2 && n_ring * (n_owner + n_helper) <= n_thread;
                 n_helper++) {
                int64_t time = group_time(n_ring, n_owner, n_helper);
                int n = n_ring * (n_owner + n_helper);
                if (time > best || (time == best && n >= n_best)) continue;
                best = time, n_best = n;
                plan->n_ring = n_ring, plan->n_owner = n_owner, plan->n_helper = n_helper;
            }
    int depth = 2 * (plan->n_owner + plan->n_helper);
    plan->depth = depth > 4 ? depth : 4;
}

struct brim_kda_cpu_plan brim_kda_cpu_plan_make(int64_t n_task, int64_t n_tok, int64_t n_thread)
{
    struct brim_kda_cpu_plan plan = {.n_task = n_task, .n_whole = n_task};
    if (n_thread < 1) n_thread = 1;
    int64_t left = n_task % n_thread, each = left ? n_thread / left : 1;
    if (each < 2 || n_tok <= (BRIM_KDA_CPU_MIN_CHUNKS - 1) * BRIM_KDA_CHUNK) return plan;
    share(&plan, each < 1024 ? (int)each : 1024);
    plan.n_whole = n_task - left;
    return plan;
}

int brim_kda_cpu_plan_team(const struct brim_kda_cpu_plan *plan)
{
    return plan->n_ring ? plan->n_ring * (plan->n_owner + plan->n_helper) : 1;
}

int brim_kda_cpu_plan_ok(const struct brim_kda_cpu_plan *plan)
{
    if (plan->n_task < 0 || plan->n_whole < 0 || plan->n_whole > plan->n_task) return 0;
    if (plan->n_whole == plan->n_task) return 1;
    int n_slice = plan->n_ring * plan->n_owner;
    return plan->n_ring >= 1 && plan->n_owner >= 1 && plan->n_owner <= 2 && plan->n_helper >= 0 &&
           n_slice <= MAX_SLICE && MAX_SLICE % n_slice == 0 && plan->depth >= 1 &&
           plan->depth <= BRIM_KDA_CPU_MAX_DEPTH;
}

brim_status brim_kda_plan_cpu(const brim_kda_args *args, brim_kda_plan *plan, brim_error *err)
{
    BRIM_REQUIRE(err, args && plan, BRIM_E_ARGUMENT, "kda: the arguments or the plan are null");
    bool ref = args->route && !strcmp(args->route, "cpu-ref");
    BRIM_REQUIRE(err, !args->route || ref || !strcmp(args->route, "cpu-chunk"), BRIM_E_UNSUPPORTED,
                 "kda: the CPU has routes cpu-chunk and cpu-ref, not '%.40s'", args->route);
    BRIM_TRY(brim_kda_shape_check(args, err));
    int64_t n_tok = args->offset_bytes ? args->max_tok : args->n_tok;
    struct brim_kda_cpu_plan cpu =
        brim_kda_cpu_plan_make(args->n_seq * args->n_value_head, n_tok, ref ? 1 : args->n_thread);
    bool shared = cpu.n_ring > 0;
    memset(plan, 0, sizeof *plan);
    snprintf(plan->route, sizeof plan->route, "%s", ref ? "cpu-ref" : "cpu-chunk");
    snprintf(plan->reason, sizeof plan->reason, "%s; %s%s",
             args->route ? "named by the caller" : "host memory",
             shared && cpu.n_whole ? "the last tasks are shared by threads"
             : shared              ? "tasks are shared by threads"
                                   : "a task is one thread's",
             shared && cpu.n_helper ? ", some only prepare" : "");
    plan->grid = cpu.n_task;
    plan->cluster = brim_kda_cpu_plan_team(&cpu);
    plan->owners = shared ? cpu.n_ring * cpu.n_owner : 1;
    plan->helpers = cpu.n_ring * cpu.n_helper;
    plan->instances = shared ? cpu.n_ring : 1;
    plan->depth = cpu.depth;
    return BRIM_OK;
}
