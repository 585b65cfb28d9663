/* SPDX-License-Identifier: Apache-2.0
 * The GPU as the rest of the library sees it: a few numbers and a gate. Includes no CUDA header, so
 * that plain C may call it; a build without CUDA has the same functions, which fail with
 * BRIM_E_DEVICE (src/backend/nocuda.c). */
#ifndef BRIM_CUDA_DEVICE_H
#define BRIM_CUDA_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct brim_cuda_device {
    int ordinal;
    char name[64];
    int cc_major, cc_minor; /* compute capability */
    int n_sm;               /* multiprocessors: what plans count */
    size_t l2_bytes;
    size_t smem_block_bytes; /* largest dynamic shared memory of a block */
    size_t total_bytes, free_bytes;
    int driver_version, runtime_version; /* 13000 = 13.0 */
};

/* Describe device `ordinal` and check that this build runs on it. BRIM_E_DEVICE: none there, or a
 * device call failed; BRIM_E_DRIVER: the driver is older than this build needs; BRIM_E_ARCH: not
 * compute capability 9.0. The text names what was found and what is needed. */
brim_status brim_cuda_device_get(int ordinal, struct brim_cuda_device *out, brim_error *err);

/* Multiprocessors of the calling thread's current device, which is checked for the architecture
 * alone: cheap, and allowed while a graph is being captured. */
brim_status brim_cuda_current_sm(int *n_sm, brim_error *err);

#ifdef __cplusplus
}
#endif
#endif
