/* SPDX-License-Identifier: Apache-2.0
 * Shared memory by number: what may be accessed, stores that an asynchronous reader must not pass,
 * mbarriers, and the operations that happen later. */
#include "emu_cta.h"

using namespace emu;

/* ---- addresses and stores ---- */

uint32_t emu_shared_number(const void *pointer)
{
    ptrdiff_t at = (const char *)pointer - self->dynamic;
    if (at >= 0 && at <= (ptrdiff_t)self->run->smem_bytes) return DYNAMIC_AT + (uint32_t)at;
    if (at < -0x400000 || at > 0x400000) emu_die("%p is not in shared memory", pointer);
    return (uint32_t)((ptrdiff_t)STATIC_AT + at);
}

__thread char *emu_dynamic_zero;
__thread uint32_t emu_dynamic_end;

void *emu_shared_anywhere(uint32_t number, uint32_t n_bytes, uint32_t alignment)
{
    cta *c = self;
    uint32_t rank = number >> RANK_SHIFT, at = number & ((1u << RANK_SHIFT) - 1);
    if (number & (alignment - 1))
        emu_die("shared address %x is not aligned to %u", number, alignment);
    if (rank > 0) {
        if (rank > c->run->n_cta) emu_die("shared address %x of rank %u", number, rank - 1);
        c = c->cluster->ctas[rank - 1];
        if (c->n_live == 0) emu_die("shared memory of rank %u, which has ended", rank - 1);
    }
    if (at >= STATIC_AT - 0x400000) return c->dynamic + ((ptrdiff_t)at - (ptrdiff_t)STATIC_AT);
    if (at < DYNAMIC_AT || at + n_bytes > DYNAMIC_AT + c->run->smem_bytes)
        emu_die("%u bytes at shared address %x of %u bytes", n_bytes, at, c->run->smem_bytes);
    return c->dynamic + (at - DYNAMIC_AT);
}

/* The notes of n_bytes at a number; 0 of them outside dynamic shared memory. */
static store *stores_of(uint32_t number, uint32_t n_bytes, uint32_t *n)
{
    cta *c = self;
    uint32_t rank = number >> RANK_SHIFT, at = number & ((1u << RANK_SHIFT) - 1);
    if (rank > 0) c = c->cluster->ctas[rank - 1];
    *n = at < STATIC_AT - 0x400000 ? (n_bytes + 3) / 4 : 0;
    return c->stores + (at - DYNAMIC_AT) / 4;
}

void emu_stored(uint32_t number, uint32_t n_bytes)
{
    uint32_t n;
    store *s = stores_of(number, n_bytes, &n);
    fiber *f = self->current;
    f->n_store++;
    for (uint32_t i = 0; i < n; i++) s[i] = store{f, f->n_store};
}

void emu_fence_async(void)
{
    self->current->n_fenced = self->current->n_store;
}

void emu_async_reads(uint32_t number, uint32_t n_bytes)
{
    uint32_t n;
    store *s = stores_of(number, n_bytes, &n);
    for (uint32_t i = 0; i < n; i++)
        if (s[i].by && s[i].by->n_fenced < s[i].number)
            emu_die("an asynchronous operation reads shared address %x, which thread %d has stored "
                    "without a fence.proxy.async since",
                    number + 4 * i, s[i].by->index);
}

void emu_async_wrote(uint32_t number, uint32_t n_bytes)
{
    uint32_t n;
    store *s = stores_of(number, n_bytes, &n);
    for (uint32_t i = 0; i < n; i++) s[i].by = nullptr;
}

uint32_t emu_mapa(uint32_t number, uint32_t rank)
{
    if (rank >= self->run->n_cta) emu_die("mapa: rank %u of %u", rank, self->run->n_cta);
    return (number & ((1u << RANK_SHIFT) - 1)) | (rank + 1) << RANK_SHIFT;
}

uint32_t emu_cluster_rank(void)
{
    return self->rank;
}

uint32_t emu_cluster_size(void)
{
    return self->run->n_cta;
}

/* ---- mbarriers: pending arrivals, arrivals a phase, bytes still to come, phase ---- */

struct mbarrier {
    uint32_t pending, arrivals;
    int64_t bytes;
    uint32_t phase;
};

static mbarrier unpack(uint64_t word)
{
    mbarrier b;
    b.pending = word & 0x7FFF;
    b.arrivals = word >> 15 & 0x7FFF;
    b.bytes = (int64_t)(word >> 30 & 0xFFFFFFFF) - 0x80000000ll;
    b.phase = (uint32_t)(word >> 62 & 1);
    return b;
}

static uint64_t pack(mbarrier b)
{
    return (uint64_t)b.pending | (uint64_t)b.arrivals << 15 |
           (uint64_t)(b.bytes + 0x80000000ll) << 30 | (uint64_t)b.phase << 62;
}

static void mbarrier_change(uint32_t number, uint32_t n_arrival, int64_t n_bytes)
{
    uint64_t *word = (uint64_t *)emu_shared(number, 8, 8);
    uint64_t old = __atomic_load_n(word, __ATOMIC_ACQUIRE), next;
    do {
        if (old >> 63) emu_die("mbarrier %x has not been initialised", number);
        mbarrier b = unpack(old);
        if (n_arrival > b.pending)
            emu_die("mbarrier %x: more arrivals than its phase takes", number);
        b.pending -= n_arrival;
        b.bytes += n_bytes;
        if (b.pending == 0 && b.bytes == 0) {
            b.pending = b.arrivals;
            b.phase ^= 1;
        }
        next = pack(b);
    } while (
        !__atomic_compare_exchange_n(word, &old, next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    emu_moved();
}

void emu_mbarrier_init(uint32_t number, uint32_t n_arrival)
{
    mbarrier b = {n_arrival, n_arrival, 0, 0};
    __atomic_store_n((uint64_t *)emu_shared(number, 8, 8), pack(b), __ATOMIC_RELEASE);
}

void emu_mbarrier_expect(uint32_t number, uint32_t n_bytes)
{
    mbarrier_change(number, 0, n_bytes);
}

void emu_mbarrier_arrive(uint32_t number)
{
    mbarrier_change(number, 1, 0);
}

void emu_mbarrier_deliver(uint32_t number, uint32_t n_bytes)
{
    mbarrier_change(number, 0, -(int64_t)n_bytes);
}

bool emu_mbarrier_passed(uint32_t number, uint32_t parity)
{
    uint64_t word = __atomic_load_n((uint64_t *)emu_shared(number, 8, 8), __ATOMIC_ACQUIRE);
    if (word >> 63) emu_die("waits for mbarrier %x, which has not been initialised", number);
    return unpack(word).phase != (parity & 1);
}

/* The word's upper half has the phase and whether it is a barrier at all in its upper bits. */
static void mbarrier_watch(uint32_t number, uint32_t parity, unsigned turns)
{
    const char *word = (const char *)emu_shared(number, 8, 8);
    wait_watching(
        watch{(const std::atomic<uint32_t> *)(word + 4), 3u << 30, (parity & 1) << 30, turns},
        "mbarrier");
}

bool emu_mbarrier_try(uint32_t number, uint32_t parity)
{
    if (emu_mbarrier_passed(number, parity)) return true;
    mbarrier_watch(number, parity, 8);
    return emu_mbarrier_passed(number, parity);
}

void emu_mbarrier_wait(uint32_t number, uint32_t parity)
{
    while (!emu_mbarrier_passed(number, parity)) mbarrier_watch(number, parity, 0);
}

/* ---- later ---- */

bool emu_may_be_now(enum emu_kind kind)
{
    return self->current->pending[kind].empty() && (!emu_seeded() || (emu_random() & 1));
}

void emu_put_off(enum emu_kind kind, std::function<void()> work)
{
    fiber *f = self->current;
    f->pending[kind].push_back(later{f->group[kind], std::move(work)});
}

void emu_commit(enum emu_kind kind)
{
    self->current->group[kind]++;
}

void emu_wait(enum emu_kind kind, unsigned n_pending)
{
    fiber *f = self->current;
    while (!f->pending[kind].empty() &&
           f->pending[kind].front().group + n_pending < f->group[kind]) {
        std::function<void()> work = std::move(f->pending[kind].front().work);
        f->pending[kind].pop_front();
        work();
    }
}

void emu_deliver(std::function<void()> work)
{
    self->deliveries.push_back(std::move(work));
}
