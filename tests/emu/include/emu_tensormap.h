/* SPDX-License-Identifier: Apache-2.0
 * What the emulator's CUtensorMap holds: two dimensions, the inner one first. */
#ifndef BRIM_EMU_TENSORMAP_H
#define BRIM_EMU_TENSORMAP_H

#include <stdint.h>

struct emu_tensormap {
    char *base;
    uint64_t size[2];       /* elements of a row that exist; rows */
    uint64_t stride_bytes;  /* from row to row */
    uint32_t box[2];        /* elements, rows; beyond `size` a load gives zeros, a store nothing */
    uint32_t element_bytes; /* 1, 2, 4 or 8 */
    uint32_t swizzle_bytes; /* 0, 32, 64 or 128: the 16-byte piece of an address is xored with the
                               address's bits 7.. modulo swizzle_bytes / 16 */
    uint64_t made;          /* EMU_TENSORMAP_MADE, or nobody has encoded it */
};

#define EMU_TENSORMAP_MADE 0x6272696d746d6170ull

#endif
