/* SPDX-License-Identifier: Apache-2.0
 * The rungs of the CUDA ladder and their names; known in every build, so that a wrong name is the
 * same error everywhere. */
#ifndef BRIM_BACKEND_CUDA_LEVEL_H
#define BRIM_BACKEND_CUDA_LEVEL_H

#include <string.h>

#include "base/status.h"

/* Cumulative: each keeps what the one before brought. */
enum brim_cuda_level {
    BRIM_CUDA_DENSE,     /* weights dequantized to bf16, operators of several plain kernels */
    BRIM_CUDA_MATVEC,    /* 4-bit weights: matvec up to 8 rows, above them a thread an output */
    BRIM_CUDA_FUSED,     /* RMSNorm, rotation and SwiGLU of one kernel each */
    BRIM_CUDA_ATTENTION, /* online softmax: decode split over the cache, prefill in tiles */
    BRIM_CUDA_TILED,     /* above 8 rows 32 x 32 tiles on tensor cores */
    BRIM_CUDA_SPLIT_K,   /* tiles split along the reduction where they do not fill the device */
    BRIM_CUDA_HOPPER     /* repacked weights, wgmma, norms and activations inside the products */
};

static const char *const brim_cuda_level_names[] = {
    [BRIM_CUDA_DENSE] = "dense",   [BRIM_CUDA_MATVEC] = "matvec",
    [BRIM_CUDA_FUSED] = "fused",   [BRIM_CUDA_ATTENTION] = "attention",
    [BRIM_CUDA_TILED] = "tiled",   [BRIM_CUDA_SPLIT_K] = "split-k",
    [BRIM_CUDA_HOPPER] = "hopper",
};

/* NULL: the last. */
static inline brim_status brim_cuda_level_parse(const char *name, enum brim_cuda_level *out,
                                                brim_error *err)
{
    *out = BRIM_CUDA_HOPPER;
    if (!name) return BRIM_OK;
    for (int i = BRIM_CUDA_DENSE; i <= BRIM_CUDA_HOPPER; i++) {
        *out = (enum brim_cuda_level)i;
        if (strcmp(name, brim_cuda_level_names[i]) == 0) return BRIM_OK;
    }
    return brim_fail(err, BRIM_E_ARGUMENT,
                     "level: \"%s\" is none of dense, matvec, fused, attention, tiled, split-k, "
                     "hopper",
                     name);
}

#endif
