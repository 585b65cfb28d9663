/* SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "cpu/kda.h"
#include "tensor/dtype.h"

#define LANES 16
#define VEC __m512
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define SET1(x) _mm512_set1_ps(x)
#define MUL(a, b) _mm512_mul_ps(a, b)
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define NAME(x) x##_avx512
#include "cpu/x86/kda_tmpl.h"
