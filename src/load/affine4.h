/* SPDX-License-Identifier: Apache-2.0
 * The encoder of MLX affine 4-bit: w = scale * q + bias over a group, code for code as MLX. */
#ifndef BRIM_LOAD_AFFINE4_H
#define BRIM_LOAD_AFFINE4_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/dtype.h"

/* One row of n_in values (a multiple of group) of `dtype` (F32, F16, BF16), any alignment.
 * words: n_in / 8, value j of a word in bits 4j..4j+3; scales, biases: n_in / group of `dtype`.
 * false if a value is not finite; the outputs are then unspecified. */
bool brim_affine4_encode(enum brim_dtype dtype, const void *row, int64_t n_in, int group,
                         uint32_t *words, void *scales, void *biases);

#endif
