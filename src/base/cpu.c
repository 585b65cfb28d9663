/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

static uint64_t read_xcr0(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

struct brim_cpu_info brim_cpu_detect(void)
{
    struct brim_cpu_info info = {.tier = BRIM_CPU_TIER_C};
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return info;
    const uint32_t need_c1 = bit_FMA | bit_F16C | bit_OSXSAVE | bit_AVX;
    if ((c & need_c1) != need_c1) return info;
    /* XCR0 bits: 1 SSE, 2 YMM, 5 opmask, 6 ZMM0-15 high halves, 7 ZMM16-31. Without the OS saving
     * them the instructions fault although CPUID lists them. */
    uint64_t xcr0 = read_xcr0();
    if ((xcr0 & 0x6) != 0x6) return info;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return info;
    const uint32_t need_b7 = bit_AVX2 | bit_BMI2;
    if ((b & need_b7) != need_b7) return info;
    info.tier = BRIM_CPU_TIER_AVX2;
    const uint32_t need_b7_512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    if ((xcr0 & 0xE0) != 0xE0 || (b & need_b7_512) != need_b7_512 || !(c & bit_AVX512VNNI))
        return info;
    info.tier = BRIM_CPU_TIER_AVX512;
    if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) info.has_avx512_bf16 = (a >> 5) & 1;
    return info;
}

#elif defined(__aarch64__)
#include <sys/auxv.h>

struct brim_cpu_info brim_cpu_detect(void)
{
    unsigned long hwcap = getauxval(AT_HWCAP);
    return (struct brim_cpu_info){
        .tier = BRIM_CPU_TIER_NEON, .has_dotprod = (hwcap >> 20) & 1, /* HWCAP_ASIMDDP */
    };
}

#else

struct brim_cpu_info brim_cpu_detect(void)
{
    return (struct brim_cpu_info){.tier = BRIM_CPU_TIER_C};
}

#endif

static const char *const tier_names[] = {"c", "avx2", "avx512", "neon"};

const char *brim_cpu_tier_name(enum brim_cpu_tier tier)
{
    return tier_names[tier];
}

bool brim_cpu_tier_parse(const char *name, enum brim_cpu_tier *tier)
{
    for (size_t i = 0; i < sizeof tier_names / sizeof *tier_names; i++) {
        if (strcmp(name, tier_names[i]) == 0) {
            *tier = (enum brim_cpu_tier)i;
            return true;
        }
    }
    return false;
}

bool brim_cpu_tier_ok(const struct brim_cpu_info *info, enum brim_cpu_tier tier)
{
    if (tier == BRIM_CPU_TIER_C || tier == info->tier) return true;
    return info->tier == BRIM_CPU_TIER_AVX512 && tier == BRIM_CPU_TIER_AVX2;
}
