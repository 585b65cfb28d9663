/* SPDX-License-Identifier: Apache-2.0
 * Which instruction tiers this processor and operating system offer. A tier is a bundle of
 * extensions, not one feature bit. Built without ISA flags. */
#ifndef BRIM_BASE_CPU_H
#define BRIM_BASE_CPU_H

#include <stdbool.h>

enum brim_cpu_tier {
    BRIM_CPU_TIER_C = 0,
    BRIM_CPU_TIER_AVX2 = 1,   /* AVX2, FMA, F16C, BMI2, OS saves YMM */
    BRIM_CPU_TIER_AVX512 = 2, /* AVX2 tier + AVX-512 F, BW, DQ, VL, VNNI, OS saves ZMM */
    BRIM_CPU_TIER_NEON = 3    /* AArch64 base */
};

struct brim_cpu_info {
    enum brim_cpu_tier tier; /* the best tier that may be used */
    bool has_avx512_bf16;    /* modifier: vdpbf16ps (only with the AVX512 tier) */
    bool has_dotprod;        /* modifier: SDOT (only with the NEON tier) */
};

/* Read CPUID and XCR0 (x86) or the hwcaps (AArch64). */
struct brim_cpu_info brim_cpu_detect(void);

/* "c", "avx2", "avx512", "neon". */
const char *brim_cpu_tier_name(enum brim_cpu_tier tier);
/* Inverse of the name; false if unknown. */
bool brim_cpu_tier_parse(const char *name, enum brim_cpu_tier *tier);
/* May `tier` run on a processor described by `info`? C always may. */
bool brim_cpu_tier_ok(const struct brim_cpu_info *info, enum brim_cpu_tier tier);

#endif
