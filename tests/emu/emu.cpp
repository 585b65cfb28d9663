/* SPDX-License-Identifier: Apache-2.0
 * The scheduler of a CTA: its fibers, who runs next, and the report of where they stand. */
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "emu_cta.h"

using namespace emu;

/* All kernels' extern __shared__ arrays are this one, whatever they call it. */
extern "C" {
alignas(1024) thread_local char brim_emu_dynamic[DYNAMIC_BYTES];
}
#define DYNAMIC_NAME(name) \
    extern "C" thread_local char name[DYNAMIC_BYTES] __attribute__((alias("brim_emu_dynamic")))
DYNAMIC_NAME(raw);
DYNAMIC_NAME(smem);
DYNAMIC_NAME(smem_raw);
DYNAMIC_NAME(s_mem);
DYNAMIC_NAME(s_ring);

thread_local uint3 threadIdx, blockIdx;
thread_local dim3 blockDim, gridDim;

/* ---- fibers ---- */

/* Saves the registers a call must keep, leaves their place in *from and continues at `to`. */
extern "C" void brim_emu_switch(void **from, void *to);
asm(R"(
    .text
    .type brim_emu_switch, @function
brim_emu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmp *%rcx
    .size brim_emu_switch, .-brim_emu_switch
)");

__thread cta *emu::self;
__thread int emu_current_lane;
std::mutex emu::report_lock;

static uint32_t seed_of_environment(void)
{
    const char *text = getenv("BRIM_EMU_SEED");
    return text ? (uint32_t)strtoul(text, nullptr, 10) : 0;
}
const uint32_t emu::seed = seed_of_environment();

bool emu_seeded(void)
{
    return seed != 0;
}

uint32_t emu_random(void)
{
    uint32_t x = self->random;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return self->random = x;
}

void emu_moved(void)
{
    std::atomic<uint64_t> *n = self->moves;
    n->store(n->load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

/* ---- reports ---- */

void emu::report_cta(const cta *c)
{
    int first = 0;
    fprintf(stderr, "  rank %u (CTA thread group, %d of %d threads live)\n", c->rank, c->n_live,
            c->n_thread);
    for (int i = 1; i <= c->n_thread; i++) {
        const fiber *a = &c->fibers[first], *b = i < c->n_thread ? &c->fibers[i] : nullptr;
        if (b && a->done == b->done && (a->done || a->where == b->where)) continue;
        fprintf(stderr, "    threads %d-%d: %s\n", first, i - 1,
                a->done    ? "ended"
                : a->where ? a->where
                           : "running");
        first = i;
    }
    for (int i = 0; i < 16; i++)
        if (c->barriers[i].arrived)
            fprintf(stderr, "    barrier %d: %u of %u came\n", i, c->barriers[i].arrived,
                    c->barriers[i].expected);
}

void emu_die(const char *format, ...)
{
    std::lock_guard<std::mutex> hold(report_lock);
    va_list list;
    va_start(list, format);
    fprintf(stderr, "emulator: ");
    if (self)
        fprintf(stderr, "%s, CTA (%u, %u, %u), thread %d: ", self->run->name, blockIdx.x,
                blockIdx.y, blockIdx.z, self->current ? self->current->index : -1);
    vfprintf(stderr, format, list);
    fprintf(stderr, "\n");
    va_end(list);
    fflush(nullptr);
    _exit(70);
}

/* ---- switching ---- */

/* Makes those of the lanes ready that have waited long enough. */
static void look_at_watches(cta *c, int w, uint32_t lanes)
{
    uint32_t ready = 0;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        watch *o = &c->watches[32 * w + lane];
        if ((o->word && ((o->word->load(std::memory_order_acquire) ^ o->seen) & o->mask)) ||
            (o->turns && --o->turns == 0))
            ready |= 1u << lane;
    }
    c->warps[w].watching &= ~ready;
    c->warps[w].ready |= ready;
}

/* The next thread of this turn that can run; null: the turn is over. */
static fiber *next_fiber(cta *c)
{
    while (c->n_left > 0) {
        int w = c->at >> 5, lane = c->at & 31, n;
        uint32_t lanes;
        if (c->step > 0) {
            n = std::min(std::min(32 - lane, c->n_thread - c->at), c->n_left);
            lanes = (~0u >> (32 - n)) << lane;
        } else {
            n = std::min(lane + 1, c->n_left);
            lanes = (~0u >> (32 - n)) << (lane + 1 - n);
        }
        warp *of = &c->warps[w];
        if (w == c->held) lanes = 0;
        if (of->watching & lanes) look_at_watches(c, w, of->watching & lanes);
        fiber *f = nullptr;
        if (uint32_t ready = of->ready & lanes) {
            int first = c->step > 0 ? __builtin_ctz(ready) : 31 - __builtin_clz(ready);
            n = (c->step > 0 ? first - lane : lane - first) + 1;
            f = &c->fibers[32 * w + first];
        }
        c->n_left -= n;
        c->at += c->step * n;
        if (c->at == c->n_thread) c->at = 0;
        if (c->at < 0) c->at = c->n_thread - 1;
        if (f) return f;
    }
    return nullptr;
}

static void switch_to(cta *c, void **from, fiber *f)
{
    c->current = f;
    threadIdx = f->place;
    int index = (int)(f - c->fibers);
    emu_current_lane = index & 31;
    c->current_warp = &c->warps[index >> 5];
    /* who comes next, as a rule: its stack is long out of the first cache */
    __builtin_prefetch(f[c->step].sp);
    __builtin_prefetch(&f[2 * c->step]);
    brim_emu_switch(from, f->sp);
}

/* From this thread to the next, or to the scheduler when the turn is over. */
static void go_on(cta *c, fiber *from)
{
    if (fiber *f = next_fiber(c)) {
        switch_to(c, &from->sp, f);
    } else {
        c->current = nullptr;
        brim_emu_switch(&from->sp, c->scheduler_sp);
    }
}

void emu_yield(const char *where)
{
    cta *c = self;
    fiber *f = c->current;
    f->where = where;
    go_on(c, f);
}

void emu::wait_to_be_woken(const char *where)
{
    cta *c = self;
    fiber *f = c->current;
    c->current_warp->ready &= ~(1u << emu_current_lane);
    f->where = where;
    go_on(c, f);
}

void emu::wait_watching(watch what, const char *where)
{
    cta *c = self;
    fiber *f = c->current;
    c->watches[f->index] = what;
    c->current_warp->watching |= 1u << emu_current_lane;
    wait_to_be_woken(where);
}

void emu_sleep(unsigned turns)
{
    wait_watching(watch{nullptr, 0, 0, turns + 1}, "asleep");
    emu_moved();
}

void emu::cluster_complete(cluster_state *k)
{
    if (k->live == 0 || k->arrived < k->live) return;
    k->arrived = 0;
    k->phase.fetch_add(1, std::memory_order_release);
    emu_moved();
}

void emu::barrier_complete(barrier *b, unsigned expected)
{
    b->expected = expected;
    if (b->arrived < expected) return;
    b->arrived = 0;
    b->last_votes = b->votes;
    b->votes = 0;
    b->phase++;
    cta *c = self;
    for (int i = 0; i < (c->n_thread + 31) / 32; i++) {
        wake(&c->warps[i], b->waiting[i]);
        b->waiting[i] = 0;
    }
    emu_moved();
}

static void fiber_leaves(cta *c, fiber *f)
{
    f->done = true;
    c->warps[f->index >> 5].ready &= ~(1u << (f->index & 31));
    for (int kind = 0; kind < EMU_KIND_N; kind++)
        for (later &l : f->pending[kind]) l.work();
    for (int kind = 0; kind < EMU_KIND_N; kind++) f->pending[kind].clear();
    c->n_live--;
    warp *w = &c->warps[f->index / 32];
    w->exited |= 1u << (f->index & 31);
    for (int i = 0; i < w->n_meeting; i++) {
        meeting *m = &w->meetings[i];
        if (m->arrived && (m->mask & w->exited))
            emu_die("a lane ends while others of its mask %08x wait for it", m->mask);
    }
    /* a barrier of the whole CTA no longer waits for it */
    if (c->n_live > 0 && c->barriers[0].arrived &&
        c->barriers[0].expected == (unsigned)c->n_live + 1)
        barrier_complete(&c->barriers[0], (unsigned)c->n_live);
    std::lock_guard<std::mutex> hold(c->cluster->lock);
    /* The device counts such a thread once for its arrival and once for its end, so that a phase
     * may end before all have come (seen on an H200: others then wait for a phase that is over). */
    if (f->cluster_arrived)
        emu_die("ends after an arrival at the cluster's barrier without a wait");
    c->cluster->live--;
    cluster_complete(c->cluster);
    emu_moved();
}

static void fiber_begins(void)
{
    cta *c = self;
    (*c->run->body)();
    fiber_leaves(c, c->current);
    go_on(c, c->current);
    abort();
}

void emu::fiber_make(fiber *f, char *stack, int index, dim3 block)
{
    f->index = index;
    f->place.x = (unsigned)index % block.x;
    f->place.y = (unsigned)index / block.x % block.y;
    f->place.z = (unsigned)index / block.x / block.y;
    f->done = false;
    f->where = nullptr;
    f->cluster_arrived = f->cluster_waiting = false;
    f->n_store = f->n_fenced = 0;
    for (int i = 0; i < EMU_KIND_N; i++) f->group[i] = 0;
    /* not all at the same place of their pages, or they share few lines of the caches */
    void **sp = (void **)(stack + STACK_BYTES - 64 - (unsigned)index * 320 % 65536);
    *--sp = nullptr; /* so that the stack is aligned as after a call */
    *--sp = (void *)fiber_begins;
    for (int i = 0; i < 6; i++) *--sp = nullptr;
    f->sp = sp;
}

/* ---- a CTA ---- */

/* Does some of what is due, `at_least` or all. */
static void deliver(cta *c, unsigned at_least)
{
    for (unsigned n = 0;; n++) {
        std::function<void()> work;
        if (c->deliveries.empty()) return;
        if (n >= at_least && seed && (emu_random() & 3) != 0) return;
        work = std::move(c->deliveries.front());
        c->deliveries.pop_front();
        work();
        emu_moved();
    }
}

/* Turns alone keep all warps abreast. What counts on that shows when one falls behind, now by
 * little, now by far. */
static void choose_held(cta *c)
{
    if (c->n_held > 0) {
        c->n_held--;
    } else {
        c->held = -1;
        uint32_t draw = emu_random();
        if (draw % 32 == 0) {
            c->held = (int)(draw / 32 % (unsigned)((c->n_thread + 31) / 32));
            c->n_held = 1 << (emu_random() % 8);
        }
    }
}

/* Turn after turn: each lets every thread that can run do so once. */
void emu::cta_run(cta *c)
{
    while (c->n_live > 0) {
        uint64_t moves = c->moves->load(std::memory_order_relaxed);
        deliver(c, 0);
        if (seed) choose_held(c);
        c->at = seed ? (int)(emu_random() % (unsigned)c->n_thread) : 0;
        c->step = seed && (emu_random() & 1) ? -1 : 1;
        c->n_left = c->n_thread;
        if (fiber *f = next_fiber(c)) {
            switch_to(c, &c->scheduler_sp, f);
        } else {
            c->held = -1;
            c->n_held = 0;
            deliver(c, 1);
        }
        if (c->moves->load(std::memory_order_relaxed) == moves) sched_yield();
    }
    deliver(c, ~0u);
}
