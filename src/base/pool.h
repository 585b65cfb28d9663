/* SPDX-License-Identifier: Apache-2.0
 * A fixed set of worker threads that run one job at a time. The caller takes part as worker 0, so a
 * pool of one thread starts none. Work is numbered items; which thread runs an item may change from
 * run to run, so an item's result must not depend on it: that is what makes results independent of
 * the number of threads. */
#ifndef BRIM_BASE_POOL_H
#define BRIM_BASE_POOL_H

#include <stdint.h>

#include "base/status.h"

struct brim_pool;

/* Item `item` of the current job, run by thread `worker` in [0, brim_pool_size). */
typedef void brim_pool_fn(void *arg, int64_t item, int worker);

/* n_thread >= 1; 0 takes the number of processors this process may use. */
brim_status brim_pool_create(struct brim_pool **out, int n_thread, brim_error *err);
int brim_pool_size(const struct brim_pool *pool);
/* Run fn(arg, i, worker) for every i in [0, n_item); returns when all are done. Not reentrant: one
 * caller at a time. Allocates nothing. A NULL pool runs all items on the caller. */
void brim_pool_run(struct brim_pool *pool, brim_pool_fn *fn, void *arg, int64_t n_item);
void brim_pool_free(struct brim_pool **pool);

#endif
