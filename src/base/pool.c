/* SPDX-License-Identifier: Apache-2.0
 * Jobs follow each other every few microseconds during decode, so workers spin briefly before they
 * sleep on a condition variable. A job ends when its items are done, not when every worker has come
 * by: a worker the system has taken off its processor holds nobody up unless it is inside an item.
 *
 * One 64-bit word says which job is current and how many of its items are left. A worker claims an
 * item by a compare-and-swap of that word; only then does it read the job's other fields, which
 * stay as they are until the claimed item is done. */
#define _GNU_SOURCE
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/relax.h"

/* A pause takes 10-50 ns. Workers spin for 0.2-1 ms, longer than the gap between two tokens of a
 * small model; the caller, who knows that a worker is inside an item, gives way after a tenth of
 * that. */
enum {
    POOL_SPIN = 20000,
    POOL_CALLER_SPIN = 2000,
    POOL_MAX_THREAD = 1024,
    POOL_MAX_ITEM = INT32_MAX /* of one round */
};

struct brim_pool {
    int n_thread;
    pthread_t *threads; /* n_thread - 1 */
    brim_pool_fn *fn;
    void *arg;
    int64_t first_item, n_item;
    _Alignas(64) atomic_uint_fast64_t current; /* job number << 32 | items not yet handed out */
    _Alignas(64) atomic_int_fast64_t n_done;   /* items of the current job that are finished */
    atomic_bool stop;
    atomic_int n_asleep;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
};

struct worker_arg {
    struct brim_pool *pool;
    int worker;
};

static uint32_t job_of(uint64_t current)
{
    return (uint32_t)(current >> 32);
}

/* Work on job number `job` until it has no items left (or is over). */
static void run_items(struct brim_pool *pool, uint32_t job, int worker)
{
    int64_t n_done = 0;
    uint64_t now = atomic_load_explicit(&pool->current, memory_order_acquire);
    while (job_of(now) == job && (uint32_t)now > 0) {
        if (!atomic_compare_exchange_weak_explicit(&pool->current, &now, now - 1,
                                                   memory_order_acq_rel, memory_order_acquire))
            continue;
        pool->fn(pool->arg, pool->first_item + pool->n_item - (int64_t)(uint32_t)now, worker);
        n_done++;
        now = atomic_load_explicit(&pool->current, memory_order_acquire);
    }
    if (n_done > 0) atomic_fetch_add_explicit(&pool->n_done, n_done, memory_order_release);
}

static void *worker_main(void *opaque)
{
    struct worker_arg arg = *(struct worker_arg *)opaque;
    brim_free(opaque);
    struct brim_pool *pool = arg.pool;
    uint32_t seen = 0;
    for (;;) {
        uint32_t job = seen;
        for (int i = 0; i < POOL_SPIN; i++) {
            job = job_of(atomic_load_explicit(&pool->current, memory_order_acquire));
            if (job != seen) break;
            brim_relax();
        }
        if (job == seen) {
            pthread_mutex_lock(&pool->mutex);
            atomic_fetch_add(&pool->n_asleep, 1);
            while ((job = job_of(atomic_load(&pool->current))) == seen)
                pthread_cond_wait(&pool->wake, &pool->mutex);
            atomic_fetch_sub(&pool->n_asleep, 1);
            pthread_mutex_unlock(&pool->mutex);
        }
        seen = job;
        if (atomic_load_explicit(&pool->stop, memory_order_acquire)) return NULL;
        run_items(pool, job, arg.worker);
    }
}

/* Begin the next job, of n_item items. n_asleep is read after the word is written, and a worker
 * re-reads the word under the mutex after raising n_asleep (all sequentially consistent), so no
 * wake-up is lost. */
static uint32_t start_job(struct brim_pool *pool, uint32_t n_item)
{
    uint32_t job = job_of(atomic_load_explicit(&pool->current, memory_order_relaxed)) + 1;
    atomic_store(&pool->current, (uint64_t)job << 32 | n_item);
    if (atomic_load(&pool->n_asleep) > 0) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->mutex);
    }
    return job;
}

static int processors_allowed(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        int n = CPU_COUNT(&set);
        if (n > 0) return n;
    }
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

brim_status brim_pool_create(struct brim_pool **out, int n_thread, brim_error *err)
{
    *out = NULL;
    if (n_thread == 0) n_thread = processors_allowed();
    BRIM_REQUIRE(err, n_thread >= 1 && n_thread <= POOL_MAX_THREAD, BRIM_E_ARGUMENT,
                 "threads: %d is outside 1..%d", n_thread, POOL_MAX_THREAD);
    struct brim_pool *pool = brim_calloc(1, sizeof *pool);
    if (!pool) return brim_fail(err, BRIM_E_NO_MEMORY, "thread pool: out of memory");
    pool->threads = brim_calloc((size_t)n_thread, sizeof *pool->threads);
    if (!pool->threads) {
        brim_free(pool);
        return brim_fail(err, BRIM_E_NO_MEMORY, "thread pool: out of memory");
    }
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pool->n_thread = 1;
    for (int i = 1; i < n_thread; i++) {
        struct worker_arg *arg = brim_alloc(sizeof *arg);
        int code = -1;
        if (arg) {
            *arg = (struct worker_arg){.pool = pool, .worker = i};
            code = pthread_create(&pool->threads[i - 1], NULL, worker_main, arg);
        }
        if (code != 0) {
            brim_free(arg);
            brim_pool_free(&pool);
            return brim_fail(err, BRIM_E_NO_MEMORY, "thread pool: cannot start thread %d of %d", i,
                             n_thread);
        }
        pool->n_thread = i + 1;
    }
    *out = pool;
    return BRIM_OK;
}

int brim_pool_size(const struct brim_pool *pool)
{
    return pool ? pool->n_thread : 1;
}

void brim_pool_run(struct brim_pool *pool, brim_pool_fn *fn, void *arg, int64_t n_item)
{
    if (!pool || pool->n_thread == 1 || n_item <= 1) {
        for (int64_t i = 0; i < n_item; i++) fn(arg, i, 0);
        return;
    }
    for (int64_t first = 0; first < n_item; first += POOL_MAX_ITEM) {
        int64_t n = n_item - first < POOL_MAX_ITEM ? n_item - first : POOL_MAX_ITEM;
        pool->fn = fn;
        pool->arg = arg;
        pool->first_item = first;
        pool->n_item = n;
        atomic_store_explicit(&pool->n_done, 0, memory_order_relaxed);
        run_items(pool, start_job(pool, (uint32_t)n), 0);
        for (int spin = 0; atomic_load_explicit(&pool->n_done, memory_order_acquire) < n; spin++) {
            if (spin < POOL_CALLER_SPIN)
                brim_relax();
            else
                sched_yield(); /* more threads than processors: let the worker finish */
        }
    }
}

void brim_pool_free(struct brim_pool **pool_ptr)
{
    struct brim_pool *pool = *pool_ptr;
    if (!pool) return;
    atomic_store(&pool->stop, true);
    (void)start_job(pool, 0);
    for (int i = 0; i + 1 < pool->n_thread; i++) pthread_join(pool->threads[i], NULL);
    pthread_mutex_destroy(&pool->mutex);
    pthread_cond_destroy(&pool->wake);
    brim_free(pool->threads);
    brim_free(pool);
    *pool_ptr = NULL;
}
