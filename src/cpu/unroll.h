/* SPDX-License-Identifier: Apache-2.0
 * BRIM_UNROLL before a loop of constant count: unroll it completely, so that arrays of accumulators
 * indexed by its variable live in registers. Clang ignores GCC's spelling, at half the speed. */
#ifndef BRIM_CPU_UNROLL_H
#define BRIM_CPU_UNROLL_H

#if defined(__clang__)
#define BRIM_UNROLL _Pragma("clang loop unroll(full)")
#else
#define BRIM_UNROLL _Pragma("GCC unroll 16")
#endif

#endif
