/* SPDX-License-Identifier: Apache-2.0
 * How the kernel table is filled: every kernel file exports one function that sets the entries it
 * implements. brim_cpu_ops_get calls the plain C ones first, then the tiers in rising order. */
#ifndef BRIM_CPU_CPU_INIT_H
#define BRIM_CPU_CPU_INIT_H

#include "cpu/cpu_ops.h"

/* src/cpu/ref */
void brim_cpu_init_w4_c(struct brim_cpu_ops *ops);
void brim_cpu_init_q8_c(struct brim_cpu_ops *ops);
void brim_cpu_init_dense_c(struct brim_cpu_ops *ops);
void brim_cpu_init_elem_c(struct brim_cpu_ops *ops);
void brim_cpu_init_attn_c(struct brim_cpu_ops *ops);
void brim_cpu_init_kda_c(struct brim_cpu_ops *ops);

#if defined(__x86_64__)
/* src/cpu/x86 */
void brim_cpu_init_w4_avx2(struct brim_cpu_ops *ops);
void brim_cpu_init_q8_avx2(struct brim_cpu_ops *ops);
void brim_cpu_init_dense_avx2(struct brim_cpu_ops *ops);
void brim_cpu_init_elem_avx2(struct brim_cpu_ops *ops);
void brim_cpu_init_attn_avx2(struct brim_cpu_ops *ops);
void brim_cpu_init_kda_avx2(struct brim_cpu_ops *ops);
void brim_cpu_init_w4_avx512(struct brim_cpu_ops *ops);
void brim_cpu_init_q8_avx512(struct brim_cpu_ops *ops);
void brim_cpu_init_dense_avx512(struct brim_cpu_ops *ops);
void brim_cpu_init_elem_avx512(struct brim_cpu_ops *ops);
void brim_cpu_init_attn_avx512(struct brim_cpu_ops *ops);
void brim_cpu_init_kda_avx512(struct brim_cpu_ops *ops);
#elif defined(__aarch64__)
/* src/cpu/arm */
void brim_cpu_init_w4_neon(struct brim_cpu_ops *ops);
void brim_cpu_init_q8_neon(struct brim_cpu_ops *ops);
void brim_cpu_init_x8_neon(struct brim_cpu_ops *ops);
void brim_cpu_init_x8_dotprod(struct brim_cpu_ops *ops);
void brim_cpu_init_dense_neon(struct brim_cpu_ops *ops);
void brim_cpu_init_elem_neon(struct brim_cpu_ops *ops);
void brim_cpu_init_attn_neon(struct brim_cpu_ops *ops);
void brim_cpu_init_kda_neon(struct brim_cpu_ops *ops);
#endif

#endif
