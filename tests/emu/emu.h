/* SPDX-License-Identifier: Apache-2.0
 * CUDA kernels on the CPU, for their function and never for their speed (docs/verification.md).
 *
 * Every CTA is an operating-system thread, every CUDA thread a fiber of it; the CTAs of a cluster
 * are resident together, clusters only as many as fit, so nothing may count on more. Fibers are
 * switched where a kernel waits. Shared variables are thread_local; a shared address is a number as
 * on the device, and each access by number is checked against the CTA's own memory. Asynchronous
 * copies and products happen at a time the seed chooses between their issue and the wait that ends
 * them. A grid in which nothing moves for some seconds is reported, fiber by fiber, and ends the
 * program. BRIM_EMU_SEED seeds the order; 0, the default, runs everything in its plainest one. */
#ifndef BRIM_EMU_H
#define BRIM_EMU_H

#include <stdint.h>
#include <string.h>

#include <functional>

/* ---- what a kernel sees as its place ---- */

extern thread_local uint3 threadIdx, blockIdx;
extern thread_local dim3 blockDim, gridDim;
enum { warpSize = 32 };

/* ---- launching ---- */

/* Runs a whole grid to its end: every thread calls thread_body once. */
void brim_emu_run(const char *name, dim3 grid, dim3 block, unsigned smem_bytes, unsigned cluster,
                  const std::function<void()> &thread_body);

/* ---- waiting ---- */

/* Seconds without any movement that are taken for a standstill. */
extern int emu_patience;
/* Let the others run; `where` is for the report of a standstill. */
void emu_yield(const char *where);
/* The same for about so many turns of the whole CTA. */
void emu_sleep(unsigned turns);
/* Something has changed that others may wait for. */
void emu_moved(void);
/* Prints the message and where this thread stands, and ends the program. */
[[noreturn]] void emu_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A number that depends on the seed and on how often this CTA has asked. */
uint32_t emu_random(void);
bool emu_seeded(void);

/* ---- barriers ---- */

void emu_barrier(unsigned id, unsigned n_thread, bool wait); /* n_thread 0: all that still run */
void emu_cluster_arrive(void);
void emu_cluster_wait(void);

/* The number of threads of the CTA for which `vote` holds; all of them come here. */
unsigned emu_barrier_count(bool vote);

/* ---- warps ---- */

extern __thread int emu_current_lane;
static inline int emu_lane(void)
{
    return emu_current_lane;
}
/* All lanes of `mask` that still run come here. Each brings `own`, n_bytes <= 64, all as many;
 * returns those of all lanes, [32], valid until the lane comes here twice more. The last to come
 * calls last(context, all) first, so that one lane can work for all. */
void *emu_warp_bytes(uint32_t mask, const void *own, uint32_t n_bytes, const char *where,
                     void (*last)(void *context, void *all), void *context);

template <class T> static inline const T *emu_warp(uint32_t mask, const T &own, const char *where)
{
    static_assert(sizeof(T) <= 64, "what a lane brings");
    return (const T *)emu_warp_bytes(mask, &own, sizeof own, where, nullptr, nullptr);
}
/* Comes with nothing. */
static inline void emu_warp(uint32_t mask, const char *where)
{
    emu_warp_bytes(mask, nullptr, 0, where, nullptr, nullptr);
}

/* ---- shared memory by number ---- */

uint32_t emu_shared_number(const void *pointer);
/* n_bytes at a number of this CTA, or from mapa of any of the cluster; ends the program where
 * they do not lie in it or are not aligned. */
void *emu_shared_anywhere(uint32_t number, uint32_t n_bytes, uint32_t alignment);
enum : uint32_t { EMU_DYNAMIC_AT = 0x400 }; /* number of the first byte, as on the device */
/* This CTA's dynamic shared memory: the address that belongs to number 0, the number behind it. */
extern __thread char *emu_dynamic_zero;
extern __thread uint32_t emu_dynamic_end;

static inline void *emu_shared(uint32_t number, uint32_t n_bytes, uint32_t alignment)
{
    if (number >= EMU_DYNAMIC_AT && (uint64_t)number + n_bytes <= emu_dynamic_end &&
        !(number & (alignment - 1)))
        return emu_dynamic_zero + number;
    return emu_shared_anywhere(number, n_bytes, alignment);
}
/* What is stored by number is noted, because an asynchronous copy or product may read it only after
 * its writer's fence.proxy.async: emu_async_reads ends the program where that is missing. What
 * asynchronous operations write themselves needs no fence. Stores through pointers are not seen. */
void emu_stored(uint32_t number, uint32_t n_bytes);
void emu_fence_async(void);
void emu_async_reads(uint32_t number, uint32_t n_bytes);
void emu_async_wrote(uint32_t number, uint32_t n_bytes);
uint32_t emu_mapa(uint32_t number, uint32_t rank);
uint32_t emu_cluster_rank(void);
uint32_t emu_cluster_size(void);

/* ---- mbarriers ---- */

void emu_mbarrier_init(uint32_t number, uint32_t n_arrival);
void emu_mbarrier_expect(uint32_t number, uint32_t n_bytes);
void emu_mbarrier_arrive(uint32_t number);
void emu_mbarrier_deliver(uint32_t number, uint32_t n_bytes);
bool emu_mbarrier_passed(uint32_t number, uint32_t parity);
/* false after a while without the phase's end, as on the device */
bool emu_mbarrier_try(uint32_t number, uint32_t parity);
void emu_mbarrier_wait(uint32_t number, uint32_t parity);

/* ---- what happens later ---- */

/* The operations a thread has to wait for by itself. */
enum emu_kind { EMU_CP_ASYNC, EMU_BULK, EMU_WGMMA, EMU_KIND_N };
bool emu_may_be_now(enum emu_kind kind);
void emu_put_off(enum emu_kind kind, std::function<void()> work);
/* Does `work` now or at the wait for its group, as the seed will have it. */
template <class W> static inline void emu_later(enum emu_kind kind, W work)
{
    if (emu_may_be_now(kind))
        work();
    else
        emu_put_off(kind, work);
}
void emu_commit(enum emu_kind kind);
/* All groups but the last n_pending are done. */
void emu_wait(enum emu_kind kind, unsigned n_pending);
/* Work that nobody of this CTA calls for: done in one of the next turns. */
void emu_deliver(std::function<void()> work);

#endif
