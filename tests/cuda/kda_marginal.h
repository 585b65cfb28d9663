/* SPDX-License-Identifier: Apache-2.0
 * A KDA sequence whose one cut, with segments of two chunks and windows of one, just may be taken:
 * what it drops shows in the last bits of the final state, so a run tells whether it was cut. */
#ifndef BRIM_CHECK_KDA_MARGINAL_H
#define BRIM_CHECK_KDA_MARGINAL_H

#include "check/kda_case.h"

/* 128 tokens of one head. Nothing is written or forgotten but in the window, tokens 32 to 63, which
 * loses 17.6 nats and whose last token writes: the map is bounded by 2 e^-17.6 < 2^-24, the states
 * before it and from it are equally large, and e^-17.6 of one is a fifth of the other's last bit.
 */
static inline void kda_marginal_make(struct kda_case *c)
{
    struct kda_spec spec = kda_given(128);
    spec.flags = BRIM_KDA_L2NORM, spec.seed = 12;
    kda_case_make(c, &spec);
    for (int t = 0; t < 128; t++) {
        ((float *)c->beta)[t] = t == 63;
        for (int i = 0; i < 128; i++)
            ((float *)c->g)[t * 128 + i] = t >= 32 && t < 64 ? -17.6f / 32 : 0;
    }
    for (int i = 0; i < 16384; i++) ((float *)c->initial)[i] *= 0.25f;
}

#endif
