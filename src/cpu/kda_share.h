/* SPDX-License-Identifier: Apache-2.0
 * One KDA task shared by a group of threads: owners carry the state over slices of value columns,
 * packets cross in a ring of base/mailbox.h. Any number of threads may take part, one alone
 * included, and each may come late or never: nobody waits for a thread that has not begun. */
#ifndef BRIM_CPU_KDA_SHARE_H
#define BRIM_CPU_KDA_SHARE_H

#include "cpu/cpu_ops.h"
#include "cpu/kda.h"
#include "plan/kda_cpu.h"

struct brim_kda_ring;

size_t brim_kda_ring_bytes(int depth); /* a multiple of 64 */
/* Columns [begin, end) of a task for n_owner owners (1 or 2), in 64-byte aligned memory. args, ops
 * and the memory must stay. */
struct brim_kda_ring *brim_kda_ring_make(void *memory, const struct brim_cpu_ops *ops,
                                         const brim_kda_args *args, int64_t seq, int64_t head,
                                         int begin, int end, int n_owner, int depth);
/* Take part as one thread: as an owner while there are columns without one, else as a helper. The
 * columns are done when as many calls as the ring has owners have returned. work:
 * BRIM_KDA_WORK_BYTES, 64-byte aligned, the thread's own. */
void brim_kda_ring_join(struct brim_kda_ring *ring, void *work);

#endif
