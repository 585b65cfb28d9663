/* SPDX-License-Identifier: Apache-2.0
 * A CTA as the emulator keeps it: what the scheduler (emu.cpp), grids (emu_grid.cpp), barriers and
 * warps (emu_wait.cpp) and shared memory (emu_shared.cpp) have in common. Of a CTA only its own
 * thread writes, but for what is atomic or under a lock. */
#ifndef BRIM_EMU_CTA_H
#define BRIM_EMU_CTA_H

#include <atomic>
#include <deque>
#include <mutex>

#include "cuda_runtime.h"

namespace emu
{

enum : uint32_t {
    DYNAMIC_BYTES = 232448,
    DYNAMIC_AT = EMU_DYNAMIC_AT,
    STATIC_AT = 0x800000,
    RANK_SHIFT = 24
};

enum { MAX_THREAD = 1024, MAX_WARP = MAX_THREAD / 32, MAX_CLUSTER = 16 };

struct later {
    unsigned group;
    std::function<void()> work;
};

struct alignas(64) fiber {
    void *sp;
    uint3 place;
    int index;
    bool done;
    const char *where;
    uint32_t cluster_phase;     /* at its last arrival */
    bool cluster_arrived;       /* ... which it has not waited for */
    bool cluster_waiting;       /* ... or waits for now */
    uint64_t n_store, n_fenced; /* stores to shared memory; those before the last fence */
    unsigned group[EMU_KIND_N];
    std::deque<later> pending[EMU_KIND_N];
};

struct watch { /* what a fiber waits for that other CTAs may change, or the turns it sleeps */
    const std::atomic<uint32_t> *word; /* null: only for the turns */
    uint32_t mask, seen;               /* it waits while the bits of `mask` are those of `seen` */
    unsigned turns;                    /* that it waits at most; 0: without end */
};

struct barrier {
    uint32_t phase;
    unsigned arrived, expected, votes, last_votes;
    uint32_t waiting[MAX_WARP]; /* lanes */
};

struct meeting { /* of the lanes of one mask */
    uint32_t mask, arrived, phase, n_bytes;
    alignas(64) char brought[2][32 * 64];
};

enum { MAX_MEETING = 8 };

/* A live lane is ready, or watches something, or is woken by the last of its barrier or meeting. */
struct alignas(64) warp {
    uint32_t ready, watching;
    uint32_t absent, exited; /* lanes the block does not have; lanes that have ended */
    int n_meeting;
    meeting meetings[MAX_MEETING];
};

struct cluster_state {
    std::mutex lock;
    std::atomic<uint32_t> phase{0};
    unsigned arrived = 0, live = 0;
    struct cta *ctas[MAX_CLUSTER] = {};
};

struct store { /* the last one to four bytes of dynamic shared memory */
    fiber *by;
    uint64_t number;
};

struct grid_run {
    const char *name;
    dim3 grid, block;
    unsigned smem_bytes, n_cta; /* n_cta: of a cluster */
    const std::function<void()> *body;
    std::atomic<uint64_t> next{0}; /* the cluster that is begun next */
    uint64_t n_cluster;
};

struct cta {
    const grid_run *run;
    cluster_state *cluster;
    uint32_t rank;
    char *dynamic;
    store *stores;
    int n_thread, n_live;
    fiber *fibers, *current;
    warp *current_warp;
    watch *watches;
    void *scheduler_sp;
    int at, step, n_left; /* of this turn: the next thread, to which side it goes on, how many */
    int held, n_held;     /* a warp that is left behind, -1: none; for how many turns yet */
    std::atomic<uint64_t> *moves;
    unsigned
        n_unwaited; /* arrivals at the cluster's barrier, in that phase, without a wait so far */
    uint32_t unwaited_phase;
    warp *warps;
    barrier barriers[16];
    std::deque<std::function<void()>> deliveries;
    uint32_t random;
};

/* Of the thread: the CTA that it runs, null outside a kernel. */
extern __thread cta *self;
extern const uint32_t seed;

enum { STACK_BYTES = 256 * 1024 };
void fiber_make(fiber *f, char *stack, int index, dim3 block);
/* Runs all fibers to their end. */
void cta_run(cta *c);
extern std::mutex report_lock;
void report_cta(const cta *c);

/* Lets others run until somebody of the CTA has made this thread ready. */
void wait_to_be_woken(const char *where);
static inline void wake(warp *w, uint32_t lanes)
{
    w->ready |= lanes;
}
/* Lets others run until it has come to pass, or for w.turns. */
void wait_watching(watch w, const char *where);
/* End the phase if all that are expected have come. The cluster's lock is held by the caller. */
void cluster_complete(cluster_state *k);
void barrier_complete(barrier *b, unsigned expected);

} // namespace emu

/* All kernels' extern __shared__ arrays are this one, whatever they call it. */
extern "C" {
extern thread_local char brim_emu_dynamic[emu::DYNAMIC_BYTES];
}

#endif
