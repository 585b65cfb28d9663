/* SPDX-License-Identifier: Apache-2.0
 * Where threads wait for each other: barriers of a CTA and of a cluster, and the lanes of a warp.
 */
#include "emu_cta.h"

using namespace emu;

void emu_barrier(unsigned id, unsigned n_thread, bool wait)
{
    cta *c = self;
    if (id > 15) emu_die("barrier %u", id);
    if (n_thread & 31 && (int)n_thread != c->n_thread)
        emu_die("barrier %u for %u threads, not whole warps", id, n_thread);
    barrier *b = &c->barriers[id];
    unsigned expected = n_thread ? n_thread : (unsigned)c->n_live;
    if (b->arrived && b->expected != expected)
        emu_die("barrier %u for %u threads where others wait for %u", id, expected, b->expected);
    static const char *const names[16] = {"barrier 0",  "barrier 1",  "barrier 2",  "barrier 3",
                                          "barrier 4",  "barrier 5",  "barrier 6",  "barrier 7",
                                          "barrier 8",  "barrier 9",  "barrier 10", "barrier 11",
                                          "barrier 12", "barrier 13", "barrier 14", "barrier 15"};
    uint32_t phase = b->phase;
    b->arrived++;
    barrier_complete(b, expected);
    if (!wait || b->phase != phase) return;
    int i = c->current->index;
    b->waiting[i >> 5] |= 1u << (i & 31);
    wait_to_be_woken(names[id]);
}

unsigned emu_barrier_count(bool vote)
{
    barrier *b = &self->barriers[0];
    b->votes += vote;
    emu_barrier(0, 0, true);
    return b->last_votes;
}

void emu_cluster_arrive(void)
{
    cta *c = self;
    fiber *f = c->current;
    if (f->cluster_arrived) emu_die("arrives at the cluster's barrier twice without a wait");
    std::lock_guard<std::mutex> hold(c->cluster->lock);
    /* Seen on an H200: a warp that comes to wait for a phase only after another one of its CTA has
     * arrived at the next phase stands for ever. */
    uint32_t phase = c->cluster->phase.load();
    if (c->n_unwaited > 0 && c->unwaited_phase != phase) {
        int i = 0;
        while (!c->fibers[i].cluster_arrived || c->fibers[i].cluster_waiting) i++;
        emu_die("arrives at the cluster's barrier again before thread %d has waited", i);
    }
    c->n_unwaited++;
    c->unwaited_phase = f->cluster_phase = phase;
    f->cluster_arrived = true;
    c->cluster->arrived++;
    cluster_complete(c->cluster);
}

void emu_cluster_wait(void)
{
    cta *c = self;
    fiber *f = c->current;
    if (!f->cluster_arrived) emu_die("waits at the cluster's barrier without having arrived");
    f->cluster_waiting = true;
    c->n_unwaited--;
    while (c->cluster->phase.load(std::memory_order_acquire) == f->cluster_phase)
        wait_watching(watch{&c->cluster->phase, ~0u, f->cluster_phase, 0},
                      "barrier of the cluster");
    f->cluster_arrived = f->cluster_waiting = false;
}

void *emu_warp_bytes(uint32_t mask, const void *own, uint32_t n_bytes, const char *where,
                     void (*last)(void *, void *), void *context)
{
    warp *w = self->current_warp;
    int lane = emu_lane(), i = 0;
    if (!(mask >> lane & 1)) emu_die("%s: lane %d is not in its own mask %08x", where, lane, mask);
    while (i < w->n_meeting && w->meetings[i].mask != mask) i++;
    meeting *m = &w->meetings[i];
    if (i == w->n_meeting) {
        if (i == MAX_MEETING) emu_die("%s: too many masks in one warp", where);
        w->n_meeting++;
        m->mask = mask;
        m->arrived = 0;
    }
    char *all = m->brought[m->phase & 1];
    if (m->arrived >> lane & 1) emu_die("%s: lane %d comes twice", where, lane);
    if (m->arrived && m->n_bytes != n_bytes)
        emu_die("%s: lanes of %08x come with other operations", where, mask);
    m->n_bytes = n_bytes;
    m->arrived |= 1u << lane;
    if (n_bytes == 4) /* the most of them by far */
        memcpy(all + lane * 4, own, 4);
    else if (n_bytes)
        memcpy(all + (uint32_t)lane * n_bytes, own, n_bytes);
    if (mask & w->exited) emu_die("%s: lanes %08x of its mask have ended", where, mask & w->exited);
    if (((m->arrived | w->absent) & mask) == mask) {
        if (last) last(context, all);
        wake(w, m->arrived);
        m->arrived = 0;
        m->phase++;
        emu_moved();
    } else {
        wait_to_be_woken(where);
    }
    return all;
}
