/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRIM_TESTS_BENCH_LINEAR_H
#define BRIM_TESTS_BENCH_LINEAR_H

#include "check/check.h"

/* Rates of the matrix kernels and of whole products in the shapes of a small model. */
void bench_linear(struct check *c);

#endif
