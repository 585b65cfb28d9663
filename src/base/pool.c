/* SPDX-License-Identifier: Apache-2.0
 * Jobs follow each other every few microseconds during decode, so workers spin briefly before they
 * sleep on a condition variable. */
#define _GNU_SOURCE
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

/* About 20-50 us of spinning: longer than the gap between two operators of a forward pass, short
 * enough not to burn a core while the caller samples or prints. */
enum { POOL_SPIN = 20000, POOL_MAX_THREAD = 1024 };

struct brim_pool {
    int n_thread;
    pthread_t *threads; /* n_thread - 1 */
    brim_pool_fn *fn;
    void *arg;
    int64_t n_item;
    _Alignas(64) atomic_int_fast64_t next; /* next item to hand out */
    _Alignas(64) atomic_int n_busy;        /* workers that have not finished the current job */
    _Alignas(64) atomic_uint generation;   /* counts jobs; a change is the start signal */
    atomic_bool stop;
    atomic_int n_asleep;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
};

struct worker_arg {
    struct brim_pool *pool;
    int worker;
};

static inline void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void run_items(struct brim_pool *pool, int worker)
{
    for (;;) {
        int64_t item = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (item >= pool->n_item) return;
        pool->fn(pool->arg, item, worker);
    }
}

static void *worker_main(void *opaque)
{
    struct worker_arg arg = *(struct worker_arg *)opaque;
    brim_free(opaque);
    struct brim_pool *pool = arg.pool;
    unsigned seen = 0;
    for (;;) {
        unsigned now = seen;
        for (int i = 0; i < POOL_SPIN; i++) {
            now = atomic_load_explicit(&pool->generation, memory_order_acquire);
            if (now != seen) break;
            cpu_relax();
        }
        if (now == seen) {
            pthread_mutex_lock(&pool->mutex);
            atomic_fetch_add(&pool->n_asleep, 1);
            while ((now = atomic_load(&pool->generation)) == seen)
                pthread_cond_wait(&pool->wake, &pool->mutex);
            atomic_fetch_sub(&pool->n_asleep, 1);
            pthread_mutex_unlock(&pool->mutex);
        }
        seen = now;
        if (atomic_load_explicit(&pool->stop, memory_order_acquire)) return NULL;
        run_items(pool, arg.worker);
        atomic_fetch_sub_explicit(&pool->n_busy, 1, memory_order_release);
    }
}

/* The start signal. n_asleep is read after generation is written, and a worker re-reads generation
 * under the mutex after raising n_asleep (both sequentially consistent), so no wake-up is lost. */
static void start_workers(struct brim_pool *pool)
{
    atomic_fetch_add(&pool->generation, 1);
    if (atomic_load(&pool->n_asleep) > 0) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->mutex);
    }
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
    pool->fn = fn;
    pool->arg = arg;
    pool->n_item = n_item;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->n_busy, pool->n_thread - 1, memory_order_relaxed);
    start_workers(pool);
    run_items(pool, 0);
    for (int spin = 0; atomic_load_explicit(&pool->n_busy, memory_order_acquire) > 0; spin++) {
        if (spin < POOL_SPIN)
            cpu_relax();
        else
            sched_yield(); /* more threads than processors: let the last worker run */
    }
}

void brim_pool_free(struct brim_pool **pool_ptr)
{
    struct brim_pool *pool = *pool_ptr;
    if (!pool) return;
    atomic_store(&pool->stop, true);
    start_workers(pool);
    for (int i = 0; i + 1 < pool->n_thread; i++) pthread_join(pool->threads[i], NULL);
    pthread_mutex_destroy(&pool->mutex);
    pthread_cond_destroy(&pool->wake);
    brim_free(pool->threads);
    brim_free(pool);
    *pool_ptr = NULL;
}
