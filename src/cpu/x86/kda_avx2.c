/* SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "cpu/kda.h"
#include "tensor/dtype.h"

#define LANES 8
#define VEC __m256
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, v) _mm256_storeu_ps(p, v)
#define SET1(x) _mm256_set1_ps(x)
#define MUL(a, b) _mm256_mul_ps(a, b)
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define NAME(x) x##_avx2
#include "cpu/x86/kda_tmpl.h"
