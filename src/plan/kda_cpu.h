/* SPDX-License-Identifier: Apache-2.0
 * How a KDA call on the CPU spreads over threads: a pure function of its size. Tasks are the call's
 * (sequence, value head) pairs. As long as there are threads enough, a task is one thread's; those
 * left over in the end, or all if they are few, are shared by several threads each. The results do
 * not depend on the plan. */
#ifndef BRIM_PLAN_KDA_CPU_H
#define BRIM_PLAN_KDA_CPU_H

#include <stdint.h>

enum { BRIM_KDA_CPU_MAX_DEPTH = 16, BRIM_KDA_CPU_MIN_CHUNKS = 4 };

struct brim_kda_cpu_plan {
    int64_t n_task;
    int64_t n_whole; /* the first n_whole tasks are run by one thread each */
    /* Every other task: n_ring groups of threads, each over 128 / n_ring value columns with a ring
     * of `depth` packets of its own (base/mailbox.h). A group has n_owner (1 or 2) threads that
     * carry the state, 16 to 128 columns each, and prepare chunks when they would wait, and
     * n_helper threads that only prepare. All 0 where there is no such task. */
    int n_ring, n_owner, n_helper, depth;
};

/* n_tok: of the longest sequence. n_thread below 1 counts as 1. brim_kda_plan_cpu says the same. */
struct brim_kda_cpu_plan brim_kda_cpu_plan_make(int64_t n_task, int64_t n_tok, int64_t n_thread);
/* Threads on one shared task, 1 where there is none. */
int brim_kda_cpu_plan_team(const struct brim_kda_cpu_plan *plan);
/* Whether the plan has the form above: for one that is not from brim_kda_cpu_plan_make. */
int brim_kda_cpu_plan_ok(const struct brim_kda_cpu_plan *plan);

#endif
