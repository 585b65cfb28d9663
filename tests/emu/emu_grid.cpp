/* SPDX-License-Identifier: Apache-2.0
 * Grids: the threads of the system that CTAs run on, kept from launch to launch, and the watch that
 * ends the program when nothing moves. One grid runs at a time. */
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "emu_cta.h"

using namespace emu;

struct worker { /* a CTA's part of one launch */
    grid_run *run;
    cluster_state *cluster; /* of the gang, one cluster after the other */
    std::atomic<uint64_t> *chosen;
    pthread_barrier_t *gang;
    uint32_t rank;
};

struct alignas(64) place { /* of a CTA among those that run; it has a thread of its own */
    std::atomic<cta *> holds;
    std::atomic<uint64_t> moves; /* counted by its thread alone */
    pthread_cond_t begins;
    worker *work; /* under the lock; null: none */
};

static place places[MAX_CLUSTER];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static unsigned n_begun, n_working; /* threads there are; those that have work */
static bool watched;
static const grid_run *running;
static uint64_t n_run;

/* ---- CTAs ---- */

static void run_clusters(place *at, cta *c, char *stacks)
{
    worker *me = at->work;
    grid_run *run = me->run;
    c->run = run;
    c->cluster = me->cluster;
    c->rank = me->rank;
    c->n_thread = (int)(run->block.x * run->block.y * run->block.z);
    self = c;
    emu_dynamic_end = DYNAMIC_AT + run->smem_bytes;
    for (;;) {
        if (me->rank == 0) {
            *me->chosen = run->next.fetch_add(1);
            cluster_state *k = me->cluster;
            k->arrived = 0;
            k->live = (unsigned)c->n_thread * run->n_cta;
        }
        pthread_barrier_wait(me->gang);
        uint64_t number = *me->chosen;
        if (number >= run->n_cluster) break;
        uint64_t per_row = run->grid.x / run->n_cta;
        blockIdx.x = (unsigned)(number % per_row) * run->n_cta + me->rank;
        blockIdx.y = (unsigned)(number / per_row % run->grid.y);
        blockIdx.z = (unsigned)(number / per_row / run->grid.y);
        blockDim = run->block;
        gridDim = run->grid;
        memset(brim_emu_dynamic, 0xFF, run->smem_bytes);
        memset((void *)c->stores, 0, run->smem_bytes / 4 * sizeof *c->stores);
        c->random = seed ^ (uint32_t)(number * 2654435761u) ^ (me->rank + 1) * 40503u;
        if (c->random == 0) c->random = 1;
        memset(c->barriers, 0, sizeof c->barriers);
        for (int i = 0; i < (c->n_thread + 31) / 32; i++) {
            warp *w = &c->warps[i];
            w->absent = 32 * i + 32 > c->n_thread ? ~0u << (c->n_thread & 31) : 0;
            w->ready = ~w->absent;
            w->watching = w->exited = 0;
            w->n_meeting = 0;
        }
        c->n_unwaited = 0;
        c->held = -1;
        c->n_held = 0;
        for (int i = 0; i < c->n_thread; i++)
            fiber_make(&c->fibers[i], stacks + (size_t)i * STACK_BYTES, i, run->block);
        c->n_live = c->n_thread;
        me->cluster->ctas[me->rank] = c;
        at->holds = c;
        pthread_barrier_wait(me->gang);
        cta_run(c);
        /* others of the cluster may still deliver here, as the device would fault on it */
        pthread_barrier_wait(me->gang);
        at->holds = nullptr;
    }
    self = nullptr;
}

static void *place_main(void *argument)
{
    place *me = (place *)argument;
    char *stacks = (char *)mmap(nullptr, (size_t)MAX_THREAD * STACK_BYTES, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) emu_die("no memory for stacks");
    for (int i = 0; i < MAX_THREAD; i++)
        mprotect(stacks + (size_t)i * STACK_BYTES, 4096, PROT_NONE);
    cta *c = new cta();
    c->dynamic = brim_emu_dynamic;
    c->moves = &me->moves;
    c->fibers = new fiber[MAX_THREAD + 4]() + 2; /* the scheduler looks at those beside */
    c->watches = new watch[MAX_THREAD]();
    c->warps = new warp[MAX_WARP]();
    c->stores = new store[DYNAMIC_BYTES / 4]();
    emu_dynamic_zero = (char *)((uintptr_t)brim_emu_dynamic - DYNAMIC_AT);
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!me->work) pthread_cond_wait(&me->begins, &lock);
        pthread_mutex_unlock(&lock);
        run_clusters(me, c, stacks);
        pthread_mutex_lock(&lock);
        me->work = nullptr;
        if (--n_working == 0) pthread_cond_signal(&ended);
    }
}

/* ---- the watch ---- */

int emu_patience = 20;

static void report_standstill(void)
{
    std::lock_guard<std::mutex> hold(report_lock);
    fprintf(stderr, "emulator: %s: nothing moves any more\n", running->name);
    for (place &p : places)
        if (cta *c = p.holds.load()) report_cta(c);
    fflush(nullptr);
    _exit(71);
}

static void *watch_over(void *)
{
    uint64_t last = 0;
    for (int still = 0;;) {
        usleep(100000);
        pthread_mutex_lock(&lock);
        uint64_t now = n_run;
        for (const place &p : places) now += p.moves.load(std::memory_order_relaxed);
        still = running && now == last ? still + 1 : 0;
        last = now;
        if (still > emu_patience * 10) report_standstill();
        pthread_mutex_unlock(&lock);
    }
}

/* ---- launching ---- */

/* A child of fork has none of the threads. */
static void forget_threads(void)
{
    n_begun = 0;
    watched = false;
}

static void begin_thread(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, nullptr, body, argument)) emu_die("no thread for a CTA");
    pthread_detach(thread);
}

void brim_emu_run(const char *name, dim3 grid, dim3 block, unsigned smem_bytes, unsigned cluster,
                  const std::function<void()> &thread_body)
{
    grid_run run;
    run.name = name;
    run.grid = grid;
    run.block = block;
    run.smem_bytes = smem_bytes;
    run.n_cta = cluster > 1 ? cluster : 1;
    run.body = &thread_body;
    run.n_cluster = (uint64_t)grid.x / run.n_cta * grid.y * grid.z;
    unsigned n_thread = block.x * block.y * block.z;
    if (n_thread == 0 || n_thread > MAX_THREAD) emu_die("%s: %u threads a CTA", name, n_thread);
    if (run.n_cta > MAX_CLUSTER || grid.x % run.n_cta)
        emu_die("%s: clusters of %u do not divide %u CTAs", name, run.n_cta, grid.x);
    if (smem_bytes > DYNAMIC_BYTES) emu_die("%s: %u bytes of shared memory", name, smem_bytes);

    unsigned n_gang = run.n_cta >= 4 ? 1 : 4 / run.n_cta;
    if (n_gang > run.n_cluster) n_gang = (unsigned)run.n_cluster;
    unsigned n_worker = n_gang * run.n_cta;
    worker workers[MAX_CLUSTER];
    cluster_state states[4];
    std::atomic<uint64_t> chosen[4];
    pthread_barrier_t gangs[4];
    for (unsigned g = 0; g < n_gang; g++) pthread_barrier_init(&gangs[g], nullptr, run.n_cta);

    static std::once_flag once;
    std::call_once(once, [] { pthread_atfork(nullptr, nullptr, forget_threads); });
    pthread_mutex_lock(&lock);
    if (!watched) begin_thread(watch_over, nullptr);
    watched = true;
    running = &run;
    n_run++;
    n_working = n_worker;
    for (unsigned i = 0; i < n_worker; i++) {
        unsigned g = i / run.n_cta;
        workers[i] = worker{&run, &states[g], &chosen[g], &gangs[g], i % run.n_cta};
        places[i].work = &workers[i];
        if (i < n_begun) {
            pthread_cond_signal(&places[i].begins);
        } else {
            pthread_cond_init(&places[i].begins, nullptr);
            begin_thread(place_main, &places[i]);
            n_begun++;
        }
    }
    while (n_working > 0) pthread_cond_wait(&ended, &lock);
    running = nullptr;
    pthread_mutex_unlock(&lock);
    for (unsigned g = 0; g < n_gang; g++) pthread_barrier_destroy(&gangs[g]);
}
