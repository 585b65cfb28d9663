/* SPDX-License-Identifier: Apache-2.0
 * The mailbox of base/mailbox.h on the device, for packets moved by bulk copies. Nothing else
 * touches control words. One thread calls each function.
 *
 * Proxies. Writer: the threads' ordinary stores to shared memory are fenced to the async proxy
 * before the bulk store reads them; the store is complete in global memory (wait_group 0, not
 * .read) and fenced before the release. Reader: the acquire is fenced before the bulk load; the
 * load's mbarrier says that its reads are done, then the acknowledgement is released; the next
 * writer's acquire is fenced before its bulk store. */
#ifndef BRIM_CUDA_KDA_MAILBOX_CUH
#define BRIM_CUDA_KDA_MAILBOX_CUH

#include "base/mailbox.h"
#include "cuda/kda/params.cuh"
#include "cuda/ptx/copy.cuh"

struct kda_mailbox {
    uint32_t *words; /* of the task: the epoch, then one word a slot, a line each */
    char *packets;
    uint32_t epoch; /* before this launch added to it */
};

BRIM_DEVICE uint32_t *kda_word(const kda_mailbox &m, int slot)
{
    return m.words + (1 + slot) * (KDA_LINE / 4);
}

/* One thread of the task, once a launch. */
BRIM_DEVICE uint32_t kda_mailbox_open(const kda_mailbox &m, int n_chunk, int depth)
{
    return atom_add_acq_rel_gpu(m.words, brim_mailbox_uses((uint32_t)n_chunk, (uint32_t)depth));
}

/* Helper: start the store of a finished packet (already fenced and behind a barrier) once its slot
 * is free. */
BRIM_DEVICE void kda_mailbox_store(const kda_mailbox &m, int slot, uint32_t use, int n_owner,
                                   uint32_t packet)
{
    if (use > 0) {
        uint32_t free_word = brim_mailbox_free(m.epoch, use, n_owner);
        while (ld_acquire_gpu(kda_word(m, slot)) != free_word) BRIM_WAITING();
        fence_proxy_async(); /* the owners' reads precede the async writes that follow */
    }
    bulk_store(m.packets + (int64_t)slot * KDA_PACKET_USED, packet, KDA_PACKET_USED);
    bulk_commit();
}

/* Helper: publish what kda_mailbox_store started. */
BRIM_DEVICE void kda_mailbox_publish(const kda_mailbox &m, int slot, uint32_t use)
{
    bulk_wait_all();
    fence_proxy_async(); /* the async writes precede the release */
    st_release_gpu(kda_word(m, slot), brim_mailbox_ready(m.epoch, use));
}

/* Owner: wait for the packet and start its load into `stage`, which completes on `full`. One of two
 * owners takes its own half of Z alone. */
template <int n_owner>
BRIM_DEVICE void kda_mailbox_load(const kda_mailbox &m, int slot, uint32_t use, int owner,
                                  uint32_t stage, uint32_t full)
{
    uint32_t other = BRIM_MAILBOX_DONE_0 + BRIM_MAILBOX_DONE_1 - brim_mailbox_done(owner);
    uint32_t ready = brim_mailbox_ready(m.epoch, use);
    while ((ld_acquire_gpu(kda_word(m, slot)) & ~other) != ready) BRIM_WAITING();
    fence_proxy_async(); /* the helper's writes precede the async reads that follow */
    const char *packet = m.packets + (int64_t)slot * KDA_PACKET_USED;
    if (n_owner == 1) {
        mbarrier_arrive_expect_tx(full, KDA_PACKET_USED);
        bulk_load(stage, packet, KDA_PACKET_USED, full);
    } else {
        kda_half half = kda_half_of(owner);
        mbarrier_arrive_expect_tx(full, KDA_PACKET_USED - KDA_PANEL);
        bulk_load(stage, packet, half.end, full);
        bulk_load(stage + half.begin, packet + half.begin, KDA_PACKET_USED - half.begin, full);
    }
}

/* Owner: the load of that use is complete. */
BRIM_DEVICE void kda_mailbox_ack(const kda_mailbox &m, int slot, uint32_t use, int owner,
                                 int n_owner)
{
    if (n_owner == 1)
        st_release_gpu(kda_word(m, slot),
                       brim_mailbox_word(m.epoch, use, BRIM_MAILBOX_READY | BRIM_MAILBOX_DONE_0));
    else
        atom_or_release_gpu(kda_word(m, slot), brim_mailbox_done(owner));
}

#endif
