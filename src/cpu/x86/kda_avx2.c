/* SPDX-License-Identifier: Apache-2.0
 * KDA of the avx2 tier. */
#include "cpu/cpu_init.h"
#include "cpu/x86/vec_avx2.h"

#define LANES 8
#define VEC __m256
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, v) _mm256_storeu_ps(p, v)
#define SET1(x) _mm256_set1_ps(x)
#define MUL(a, b) _mm256_mul_ps(a, b)
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)

#include "cpu/kda_tmpl.h"

void brim_cpu_init_kda_avx2(struct brim_cpu_ops *ops)
{
    init_kda_vec(ops);
}
