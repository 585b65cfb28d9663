/* SPDX-License-Identifier: Apache-2.0
 * src/cuda/launch.h for the emulator: a launch first makes its kernel known, so that the runtime
 * can call it by address as the device does. */
#ifndef BRIM_EMU_LAUNCH_H
#define BRIM_EMU_LAUNCH_H

#include_next "cuda/launch.h"

/* A kernel that takes one struct: how to call it, and how large the struct is. */
struct emu_kernel {
    const char *name;
    size_t param_bytes;
    void (*call)(const void *kernel, const void *params);
};

void emu_kernel_known(const void *kernel, emu_kernel what);

template <class P> static inline void emu_kernel_make_known(const char *name, void (*kernel)(P))
{
    emu_kernel_known((const void *)kernel, {name, sizeof(P), [](const void *k, const void *params) {
                                                ((void (*)(P))k)(*(const P *)params);
                                            }});
}

#undef BRIM_LAUNCH
#define BRIM_LAUNCH(kernel, shape, stream, params, err)                             \
    ((void)sizeof(((kernel)(params)), 0), emu_kernel_make_known(#kernel, (kernel)), \
     brim_launch_kernel(#kernel, (const void *)(kernel), (shape), (stream), &(params), (err)))

#endif
