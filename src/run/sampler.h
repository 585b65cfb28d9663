/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRIM_RUN_SAMPLER_H
#define BRIM_RUN_SAMPLER_H

#include "brim/brim.h"

/* brim_sampler_next on given logits [n_vocab] and timeline. */
brim_status brim_sample_logits(brim_sampler *sampler, const float *logits, const int32_t *tokens,
                               int64_t n_token, int32_t *id, brim_error *err);

#endif
