/* SPDX-License-Identifier: Apache-2.0
 * The rule by which a cut of route split holds, over the records that two segments left (layout.h),
 * for the host: what split.cu decides on the device, in double. */
#ifndef BRIM_CUDA_KDA_RECORD_H
#define BRIM_CUDA_KDA_RECORD_H

#include <math.h>
#include <stdbool.h>

#include "cuda/kda/layout.h"

/* own: of the segment behind the cut, with its window's bounds; last: of the one before it. A
 * segment that stopped leaves its record as it was; NaN there does not hold. */
static inline bool brim_kda_record_holds(const float *own, const float *last, int window)
{
    double bound = 1, wrote = 0, before = 0;
    for (int w = 0; w < window; w++) {
        const float *share = own + KDA_RECORD_BOUND + 4 * w;
        bound *= (double)share[0] + share[1] + share[2] + share[3];
    }
    for (int i = 0; i < 8; i++) {
        wrote += own[KDA_RECORD_WROTE + i];
        before += last[KDA_RECORD_BEFORE + i];
    }
    return bound <= KDA_FORGOTTEN && bound * sqrt(before) <= KDA_FORGOTTEN * sqrt(wrote);
}

#endif
