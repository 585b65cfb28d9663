/* SPDX-License-Identifier: Apache-2.0
 * Builds the kernel tables, once, for every tier this architecture has. Building a table only
 * stores addresses, so tables of tiers the processor lacks are harmless. */
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
}

static void build_tables(void)
{
    for (int tier = 0; tier < 4; tier++) {
        for (int modifier = 0; modifier < 2; modifier++) {
            struct brim_cpu_ops *ops = &tables[tier][modifier];
            init_c(ops);
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
