/* SPDX-License-Identifier: Apache-2.0
 * For tests on the emulator: the device that the runtime reports, failures of its calls, and what
 * has been called so far. For C and C++. The environment sets the device of a program that has no
 * test in it: BRIM_EMU_DEVICES, BRIM_EMU_CC ("8.0"), BRIM_EMU_DRIVER ("12040"), BRIM_EMU_MEMORY
 * and BRIM_EMU_CODE (bytes). */
#ifndef BRIM_EMU_DEVICE_H
#define BRIM_EMU_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct emu_device {
    int n_device, cc_major, cc_minor;
    int driver_version; /* 13000 = 13.0; 0: no driver at all */
    size_t total_bytes; /* of device memory */
    int launch_error;   /* what every launch reports instead of its work; 0: none */
    size_t code_bytes;  /* of the memory, what each kernel takes at its first use and keeps */
};

/* What is reported from the next call on; a test may write it while no call is running. */
extern struct emu_device emu_device;
/* An H200 but for its memory, changed by the environment. */
struct emu_device emu_device_default(void);

/* From now on the allocation after `n` others fails, once, on the device or page-locked; n < 0:
 * none. */
void emu_fail_allocation_after(int64_t n);

struct emu_calls {
    int64_t alloc, free, host_alloc, host_free; /* of device and of page-locked memory */
    int64_t create;                             /* streams, events, captures, graphs */
    int64_t wait;                               /* for a stream, an event or the device */
    int64_t launch, graph_launch;               /* kernels outside of graphs; graphs */
    int64_t graph_kernel;                       /* kernels in launched graphs */
    int64_t copy, fill;                         /* outside of graphs */
    uint64_t upload_bytes;                      /* host to device, outside of graphs */
    uint64_t kernels; /* a hash of the name, grid and block of each that ran, in order */
};

/* Since the program began. */
struct emu_calls emu_calls(void);
/* emu_calls().kernels begins anew. */
void emu_kernels_restart(void);
/* Device memory that is allocated. */
size_t emu_used_bytes(void);

#ifdef __cplusplus
}
#endif
#endif
