/* SPDX-License-Identifier: Apache-2.0
 * The rule by which a cut of route split holds, over the records that two segments left (layout.h),
 * for the host: what split.cu decides on the device, in double. */
#ifndef BRIM_CUDA_KDA_RECORD_H
#define BRIM_CUDA_KDA_RECORD_H

#include <math.h>
#include <stdbool.h>

#include "cuda/kda/layout.h"

/* own: of the segment behind the cut, with its window's bounds; last: of the one before it. A
 * segment that stopped has NaN for what it did not come to; that does not hold. */
static inline bool brim_kda_record_holds(const float *own, const float *last, int window)
{
    double bound = 1, wrote = own[KDA_RECORD_WROTE], before = last[KDA_RECORD_BEFORE];
    for (int w = 0; w < window; w++) bound *= own[KDA_RECORD_BOUND + w];
    return bound <= KDA_FORGOTTEN && bound * sqrt(before) <= KDA_FORGOTTEN * sqrt(wrote);
}

#endif
