/* SPDX-License-Identifier: Apache-2.0
 * Builds the kernel tables, once, for every tier this processor has. The init functions of a tier
 * are compiled with its instructions, so even filling a table the processor lacks could fault. */
#include "cpu/cpu_ops.h"

#include <assert.h>
#include <pthread.h>

#include "cpu/cpu_init.h"

static struct brim_cpu_ops tables[4][2]; /* [tier][has the tier's modifier] */
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void init_c(struct brim_cpu_ops *ops)
{
    brim_cpu_init_w4_c(ops);
    brim_cpu_init_q8_c(ops);
    brim_cpu_init_dense_c(ops);
    brim_cpu_init_elem_c(ops);
    brim_cpu_init_attn_c(ops);
    brim_cpu_init_kda_c(ops);
}

/* What `tier` adds to the C table; modifier: has_avx512_bf16 or has_dotprod. */
static void init_tier(struct brim_cpu_ops *ops, enum brim_cpu_tier tier, int modifier)
{
    (void)modifier;
#if defined(__x86_64__)
    if (tier == BRIM_CPU_TIER_AVX2 || tier == BRIM_CPU_TIER_AVX512) {
        brim_cpu_init_w4_avx2(ops);
        brim_cpu_init_q8_avx2(ops);
        brim_cpu_init_dense_avx2(ops);
        brim_cpu_init_elem_avx2(ops);
        brim_cpu_init_attn_avx2(ops);
        brim_cpu_init_kda_avx2(ops);
    }
    if (tier == BRIM_CPU_TIER_AVX512) {
        brim_cpu_init_w4_avx512(ops);
        brim_cpu_init_q8_avx512(ops);
        brim_cpu_init_dense_avx512(ops);
        brim_cpu_init_elem_avx512(ops);
        brim_cpu_init_attn_avx512(ops);
        brim_cpu_init_kda_avx512(ops);
    }
#elif defined(__aarch64__)
    if (tier == BRIM_CPU_TIER_NEON) {
        brim_cpu_init_w4_neon(ops);
        brim_cpu_init_q8_neon(ops);
        brim_cpu_init_x8_neon(ops);
        if (modifier) brim_cpu_init_x8_dotprod(ops);
        brim_cpu_init_dense_neon(ops);
        brim_cpu_init_elem_neon(ops);
        brim_cpu_init_attn_neon(ops);
        brim_cpu_init_kda_neon(ops);
    }
#else
    (void)ops;
    (void)tier;
#endif
}

static void build_tables(void)
{
    struct brim_cpu_info info = brim_cpu_detect();
    for (int tier = 0; tier < 4; tier++) {
        if (!brim_cpu_tier_ok(&info, (enum brim_cpu_tier)tier)) continue;
        for (int modifier = 0; modifier < 2; modifier++) {
            if (modifier && !info.has_dotprod && !info.has_avx512_bf16) continue;
            struct brim_cpu_ops *ops = &tables[tier][modifier];
            init_c(ops);
            init_tier(ops, (enum brim_cpu_tier)tier, modifier);
            ops->tier = (enum brim_cpu_tier)tier;
        }
    }
}

const struct brim_cpu_ops *brim_cpu_ops_get(enum brim_cpu_tier tier,
                                            const struct brim_cpu_info *info)
{
    assert(brim_cpu_tier_ok(info, tier));
    pthread_once(&tables_once, build_tables);
    int modifier = tier == BRIM_CPU_TIER_AVX512 ? info->has_avx512_bf16
                   : tier == BRIM_CPU_TIER_NEON ? info->has_dotprod
                                                : 0;
    return &tables[tier][modifier];
}
