/* SPDX-License-Identifier: Apache-2.0
 * KDA of the avx512 tier. */
#include "cpu/cpu_init.h"
#include "cpu/x86/vec_avx512.h"

#define LANES 16
#define VEC __m512
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define SET1(x) _mm512_set1_ps(x)
#define MUL(a, b) _mm512_mul_ps(a, b)
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)

#include "cpu/kda_tmpl.h"

void brim_cpu_init_kda_avx512(struct brim_cpu_ops *ops)
{
    init_kda_vec(ops);
}
