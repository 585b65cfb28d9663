/* SPDX-License-Identifier: Apache-2.0
 * One turn of a loop that waits for another thread. */
#ifndef BRIM_BASE_RELAX_H
#define BRIM_BASE_RELAX_H

static inline void brim_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
