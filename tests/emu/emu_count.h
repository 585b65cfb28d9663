/* SPDX-License-Identifier: Apache-2.0
 * Between the emulator's runtime and the counts it keeps for tests (emu_device.h). */
#ifndef BRIM_EMU_COUNT_H
#define BRIM_EMU_COUNT_H

#include "cuda_runtime.h"
#include "emu_device.h"

enum : size_t { SMEM_OPTIN_BYTES = 232448 };

/* Remembers the error for cudaGetLastError and returns it. */
cudaError_t emu_fail(cudaError_t code);

void emu_count(int64_t emu_calls::*what, int64_t n = 1);
void emu_count_upload(size_t n_bytes);
void emu_count_kernel(const char *name, dim3 grid, dim3 block);
/* Whether the test wants this one to fail. */
bool emu_allocation_fails(void);

#endif
