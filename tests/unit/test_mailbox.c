/* SPDX-License-Identifier: Apache-2.0
 * The mailbox of base/mailbox.h between threads: helpers publish out of order, one or two owners
 * consume in order, over rings that earlier runs left in any state. ctest labels: threads
 * With BRIM_MAILBOX_RELAXED nothing is released, which the thread sanitizer must report. */
#ifdef BRIM_MAILBOX_RELAXED
#include <stdatomic.h>
#define memory_order_release memory_order_relaxed
#endif
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sched.h>
#include <cmocka.h>

#include "base/mailbox.h"
#include "base/rng.h"

enum { MAX_DEPTH = 15, PACKET = 64, N_HELPER = 3 };

struct ring {
    _Atomic uint32_t word[MAX_DEPTH];
    uint32_t packet[MAX_DEPTH][PACKET]; /* plain memory: the words alone order it */
    uint32_t epoch;
    int n_packet, depth, n_owner;
    uint64_t seed;
    _Atomic int n_bad;
};

struct party {
    struct ring *ring;
    int index;
};

static void pause_sometimes(struct brim_rng *rng)
{
    if (brim_rng_u32(rng) % 4 == 0)
        for (uint32_t i = brim_rng_u32(rng) % 3; i > 0; i--) sched_yield();
}

static void *helper_main(void *arg)
{
    struct party *p = arg;
    struct ring *r = p->ring;
    struct brim_rng rng = {r->seed + (uint64_t)p->index};
    for (int c = p->index; c < r->n_packet; c += N_HELPER) {
        int slot = c % r->depth;
        uint32_t use = (uint32_t)(c / r->depth);
        pause_sometimes(&rng);
        while (!brim_mailbox_may_write(&r->word[slot], r->epoch, use, r->n_owner)) sched_yield();
        for (int i = 0; i < PACKET; i++) r->packet[slot][i] = (uint32_t)(c * PACKET + i);
        pause_sometimes(&rng);
        brim_mailbox_publish(&r->word[slot], r->epoch, use);
    }
    return NULL;
}

static void *owner_main(void *arg)
{
    struct party *p = arg;
    struct ring *r = p->ring;
    struct brim_rng rng = {r->seed + 100 + (uint64_t)p->index};
    for (int c = 0; c < r->n_packet; c++) {
        int slot = c % r->depth, bad = 0;
        while (!brim_mailbox_may_read(&r->word[slot], r->epoch, (uint32_t)(c / r->depth), p->index))
            sched_yield();
        for (int i = 0; i < PACKET; i++) bad += r->packet[slot][i] != (uint32_t)(c * PACKET + i);
        pause_sometimes(&rng);
        if (bad) atomic_fetch_add(&r->n_bad, 1);
        brim_mailbox_ack(&r->word[slot], p->index);
    }
    return NULL;
}

/* One launch over the ring as it is; the caller adds the uses to the epoch, as the device does. */
static void launch(struct ring *r)
{
    pthread_t threads[N_HELPER + 2];
    struct party parties[N_HELPER + 2];
    int n = 0;
    for (int i = 0; i < N_HELPER; i++, n++) {
        parties[n] = (struct party){r, i};
        assert_int_equal(pthread_create(&threads[n], NULL, helper_main, &parties[n]), 0);
    }
    for (int i = 0; i < r->n_owner; i++, n++) {
        parties[n] = (struct party){r, i};
        assert_int_equal(pthread_create(&threads[n], NULL, owner_main, &parties[n]), 0);
    }
    for (int i = 0; i < n; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    r->epoch += brim_mailbox_uses((uint32_t)r->n_packet, (uint32_t)r->depth);
    assert_int_equal(atomic_load(&r->n_bad), 0);
}

static void packets_arrive_whole_and_in_order(void **state)
{
    (void)state;
    for (int n_owner = 1; n_owner <= 2; n_owner++)
        for (int depth = 3; depth <= MAX_DEPTH; depth += 4) {
            struct ring r = {.depth = depth, .n_owner = n_owner, .seed = (uint64_t)depth};
            static const int counts[] = {0, 1, 2, 14, 15, 16, 153};
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
                r.n_packet = counts[i];
                launch(&r);
            }
        }
}

static void any_older_words_are_harmless(void **state)
{
    (void)state;
    struct brim_rng rng = {5};
    for (int round = 0; round < 40; round++) {
        struct ring r = {.depth = 3 + round % 13,
                         .n_owner = 1 + round % 2,
                         .n_packet = 31,
                         .seed = (uint64_t)round};
        r.epoch = round < 20 ? brim_rng_u32(&rng)
                             : 0x1FFFFFFFu - brim_rng_u32(&rng) % 8; /* over the tag's wrap */
        for (int i = 0; i < r.depth; i++)
            atomic_store(&r.word[i],
                         (r.epoch - brim_rng_u32(&rng) % 6) << 3 | (brim_rng_u32(&rng) & 7));
        memset(r.packet, 0xFF, sizeof r.packet);
        launch(&r);
        launch(&r);
    }
}

static void words_compare_by_equality(void **state)
{
    (void)state;
    _Atomic uint32_t word = 0;
    assert_true(brim_mailbox_may_write(&word, 7, 0, 1));
    assert_false(brim_mailbox_may_write(&word, 7, 1, 1));
    brim_mailbox_publish(&word, 7, 0);
    assert_int_equal(atomic_load(&word), 8 << 3 | 1);
    assert_true(brim_mailbox_may_read(&word, 7, 0, 0) && brim_mailbox_may_read(&word, 7, 0, 1));
    assert_false(brim_mailbox_may_read(&word, 6, 0,
                                       0)); /* a later generation is as wrong as an earlier one */
    assert_false(brim_mailbox_may_read(&word, 7, 1, 0));
    brim_mailbox_ack(&word, 0);
    assert_false(brim_mailbox_may_read(&word, 7, 0, 0));
    assert_true(brim_mailbox_may_read(&word, 7, 0, 1));
    assert_true(brim_mailbox_may_write(&word, 7, 1, 1));
    assert_false(
        brim_mailbox_may_write(&word, 7, 1, 2)); /* 011 does not free a slot of two owners */
    brim_mailbox_ack(&word, 1);
    assert_true(brim_mailbox_may_write(&word, 7, 1, 2));
    atomic_store(&word, 8 << 3 | 5);
    assert_false(brim_mailbox_may_write(&word, 7, 1, 2));     /* nor does 101 */
    assert_int_equal(brim_mailbox_word(0x1FFFFFFF, 0, 1), 1); /* wrap */
    assert_int_equal(brim_mailbox_uses(0, 15), 0);
    assert_int_equal(brim_mailbox_uses(16, 15), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_compare_by_equality),
        cmocka_unit_test(packets_arrive_whole_and_in_order),
        cmocka_unit_test(any_older_words_are_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
