/* SPDX-License-Identifier: Apache-2.0
 * A thread that joins takes a slice of the columns if one is left, then does what can be done: step
 * its slice if the packet is there, else prepare the first chunk that nobody has claimed if its
 * slot is free. A chunk that is claimed is being prepared by a running thread, so it comes. A slot
 * that is not free waits for a slice: one that runs gets there, since all chunks before the first
 * unclaimed one come; one that nobody has taken is taken by whoever waits for it. */
#define _DEFAULT_SOURCE
#include "cpu/kda_share.h"

#include <sched.h>

#include "base/mailbox.h"
#include "base/relax.h"

enum { SPIN = 200 }; /* turns before the processor is offered to another thread */

struct slot_word {
    _Alignas(64) _Atomic uint32_t word;
};

struct brim_kda_ring {
    struct slot_word slots[BRIM_KDA_CPU_MAX_DEPTH];
    _Atomic int64_t next; /* the first chunk that nobody has claimed */
    _Atomic int n_joined;
    int begin, end, n_owner, depth;
    int64_t n_chunk;
    struct brim_kda_packet *packets; /* [depth], plain memory: the words order it */
    struct brim_kda_state *state;    /* each strip is touched by its slice's owner alone */
    const struct brim_cpu_ops *ops;
    const brim_kda_args *args;
    struct brim_kda_task task;
};

/* The words of a ring begin a launch of their own: none of them matches epoch 0, use 0. */
enum { EPOCH = 0 };

size_t brim_kda_ring_bytes(int depth)
{
    return sizeof(struct brim_kda_ring) + sizeof(struct brim_kda_state) +
           (size_t)depth * sizeof(struct brim_kda_packet);
}

struct brim_kda_ring *brim_kda_ring_make(void *memory, const struct brim_cpu_ops *ops,
                                         const brim_kda_args *args, int64_t seq, int64_t head,
                                         int begin, int end, int n_owner, int depth)
{
    struct brim_kda_ring *ring = memory;
    ring->ops = ops;
    ring->args = args;
    brim_kda_task_make(args, seq, head, &ring->task);
    ring->n_chunk = brim_kda_n_chunk(&ring->task);
    ring->begin = begin, ring->end = end, ring->n_owner = n_owner, ring->depth = depth;
    ring->state = (struct brim_kda_state *)(ring + 1);
    ring->packets = (struct brim_kda_packet *)(ring->state + 1);
    atomic_init(&ring->next, 0);
    atomic_init(&ring->n_joined, 0);
    for (int i = 0; i < BRIM_KDA_CPU_MAX_DEPTH; i++) atomic_init(&ring->slots[i].word, 0);
    return ring;
}

/* What a thread carries: the slices it owns and how far they are. */
struct owned {
    int n;
    int slice[2], begin[2], end[2];
    int64_t chunk[2];
};

/* Take a slice if there is one left. Those who come after all are taken count on, harmlessly. */
static bool take_slice(struct brim_kda_ring *ring, struct owned *mine)
{
    int slice = atomic_fetch_add_explicit(&ring->n_joined, 1, memory_order_relaxed);
    if (slice >= ring->n_owner) return false;
    int width = (ring->end - ring->begin) / ring->n_owner, i = mine->n++;
    mine->slice[i] = slice;
    mine->begin[i] = ring->begin + slice * width;
    mine->end[i] = mine->begin[i] + width;
    mine->chunk[i] = 0;
    brim_kda_strips_load(ring->args, ring->task.initial, mine->begin[i], mine->end[i], ring->state);
    return true;
}

static bool slices_left(struct brim_kda_ring *ring)
{
    return atomic_load_explicit(&ring->n_joined, memory_order_relaxed) < ring->n_owner;
}

static uint32_t use_of(const struct brim_kda_ring *ring, int64_t chunk)
{
    return (uint32_t)(chunk / ring->depth);
}

/* One chunk's step of the slice, if its packet is there. */
static bool step(struct brim_kda_ring *ring, struct owned *mine, int i)
{
    int64_t chunk = mine->chunk[i];
    int slot = (int)(chunk % ring->depth), begin = mine->begin[i], end = mine->end[i];
    _Atomic uint32_t *word = &ring->slots[slot].word;
    if (!brim_mailbox_may_read(word, EPOCH, use_of(ring, chunk), mine->slice[i])) return false;
    ring->ops->kda_advance(&ring->task, chunk, &ring->packets[slot], begin, end, ring->state);
    brim_mailbox_ack(word, mine->slice[i]);
    brim_kda_strips_checkpoint(ring->args, &ring->task, chunk, ring->state, begin, end);
    mine->chunk[i]++;
    return true;
}

/* Claim the first unclaimed chunk and prepare it, if there is one and its slot is free: it stays
 * free until the one who claims its chunk writes there. */
static bool prepare(struct brim_kda_ring *ring, void *work)
{
    int64_t chunk = atomic_load_explicit(&ring->next, memory_order_relaxed);
    _Atomic uint32_t *word;
    do {
        if (chunk >= ring->n_chunk) return false;
        word = &ring->slots[chunk % ring->depth].word;
        if (!brim_mailbox_may_write(word, EPOCH, use_of(ring, chunk), ring->n_owner)) return false;
    } while (!atomic_compare_exchange_weak_explicit(&ring->next, &chunk, chunk + 1,
                                                    memory_order_relaxed, memory_order_relaxed));
    ring->ops->kda_prepare(ring->args, &ring->task, chunk, ring->begin, ring->end, work,
                           &ring->packets[chunk % ring->depth]);
    brim_mailbox_publish(word, EPOCH, use_of(ring, chunk));
    return true;
}

/* The slice that is furthest behind, -1 when all are done. */
static int behind(const struct brim_kda_ring *ring, const struct owned *mine)
{
    int which = -1;
    for (int i = 0; i < mine->n; i++)
        if (mine->chunk[i] < ring->n_chunk && (which < 0 || mine->chunk[i] < mine->chunk[which]))
            which = i;
    return which;
}

void brim_kda_ring_join(struct brim_kda_ring *ring, void *work)
{
    struct owned mine = {0};
    int spin = 0;
    bool owner = take_slice(ring, &mine);
    for (;;) {
        int slice = behind(ring, &mine);
        if (owner ? slice < 0
                  : atomic_load_explicit(&ring->next, memory_order_relaxed) >= ring->n_chunk)
            break;
        if ((slice >= 0 && step(ring, &mine, slice)) || prepare(ring, work) ||
            (owner && slices_left(ring) && take_slice(ring, &mine))) {
            spin = 0;
            continue;
        }
        if (spin++ < SPIN)
            brim_relax();
        else
            sched_yield(); /* perhaps the one waited for has no processor */
    }
    for (int i = 0; i < mine.n; i++)
        brim_kda_strips_store(ring->args, ring->state, mine.begin[i], mine.end[i],
                              ring->task.final);
}
