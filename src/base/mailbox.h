/* SPDX-License-Identifier: Apache-2.0
 * The ring between preparing and consuming groups of one task: a bounded set of packet slots, one
 * word a slot, one epoch a task. One protocol, two instantiations: C11 atomics here, PTX on the
 * device (cuda/kda/mailbox.cuh); both use these word functions.
 *
 * Word = generation << 3 | bits: 001 ready, 010 owner 0 done, 100 owner 1 done. Use u of a slot in
 * a launch has generation epoch + 1 + u modulo 2^29, where the epoch is what the launch found
 * before adding its uses per slot; so words left by any earlier launch, finished or not, match
 * nothing. Words are compared by equality, never by order.
 *
 *   helper, first use: anything       -> gen|001: the launch itself is ordered behind the last one
 *   helper, later use: (gen - 1)|free -> gen|001: acquire; write the packet; release
 *   owner 0, owner 1:  set 010, set 100 independently, release, after their last read of the packet
 *   free:              011 with one owner, 111 with two */
#ifndef BRIM_BASE_MAILBOX_H
#define BRIM_BASE_MAILBOX_H

#include <stdint.h>

#if defined(__CUDACC__)
#define BRIM_MAILBOX_FN static __host__ __device__ __forceinline__
#else
#define BRIM_MAILBOX_FN static inline
#endif

enum { BRIM_MAILBOX_READY = 1, BRIM_MAILBOX_DONE_0 = 2, BRIM_MAILBOX_DONE_1 = 4 };

/* Shifting drops the bits beyond 29: the generation wraps by itself. */
BRIM_MAILBOX_FN uint32_t brim_mailbox_word(uint32_t epoch, uint32_t use, uint32_t bits)
{
    return (epoch + 1 + use) << 3 | bits;
}

BRIM_MAILBOX_FN uint32_t brim_mailbox_ready(uint32_t epoch, uint32_t use)
{
    return brim_mailbox_word(epoch, use, BRIM_MAILBOX_READY);
}

BRIM_MAILBOX_FN uint32_t brim_mailbox_done(int owner)
{
    return owner == 0 ? BRIM_MAILBOX_DONE_0 : BRIM_MAILBOX_DONE_1;
}

/* The word that frees a slot for use `use` (at least 1): its previous use, acknowledged by all
 * owners. */
BRIM_MAILBOX_FN uint32_t brim_mailbox_free(uint32_t epoch, uint32_t use, int n_owner)
{
    uint32_t bits =
        BRIM_MAILBOX_READY | BRIM_MAILBOX_DONE_0 | (n_owner == 2 ? BRIM_MAILBOX_DONE_1 : 0);
    return brim_mailbox_word(epoch, use - 1, bits);
}

/* Uses of the busiest slot: what a launch of n_packet packets adds to the epoch. */
BRIM_MAILBOX_FN uint32_t brim_mailbox_uses(uint32_t n_packet, uint32_t depth)
{
    return (n_packet + depth - 1) / depth;
}

#if !defined(__CUDACC__) && !defined(__cplusplus)
#include <stdatomic.h>
#include <stdbool.h>

/* Helper: may the packet of `use` be written? Pairs with brim_mailbox_ack of every owner. */
static inline bool brim_mailbox_may_write(_Atomic uint32_t *word, uint32_t epoch, uint32_t use,
                                          int n_owner)
{
    return use == 0 || atomic_load_explicit(word, memory_order_acquire) ==
                           brim_mailbox_free(epoch, use, n_owner);
}

/* Helper: the packet is complete. */
static inline void brim_mailbox_publish(_Atomic uint32_t *word, uint32_t epoch, uint32_t use)
{
    atomic_store_explicit(word, brim_mailbox_ready(epoch, use), memory_order_release);
}

/* Owner: is the packet of `use` there? The other owner's bit does not matter. Pairs with publish.
 */
static inline bool brim_mailbox_may_read(_Atomic uint32_t *word, uint32_t epoch, uint32_t use,
                                         int owner)
{
    uint32_t other = BRIM_MAILBOX_DONE_0 + BRIM_MAILBOX_DONE_1 - brim_mailbox_done(owner);
    return (atomic_load_explicit(word, memory_order_acquire) & ~other) ==
           brim_mailbox_ready(epoch, use);
}

/* Owner: the packet has been read. */
static inline void brim_mailbox_ack(_Atomic uint32_t *word, int owner)
{
    atomic_fetch_or_explicit(word, brim_mailbox_done(owner), memory_order_release);
}
#endif
#endif
