/* SPDX-License-Identifier: Apache-2.0
 * Attention of the neon tier. */
#include "cpu/arm/vec_neon.h"

#define V16_REGISTERS 6

#include "cpu/attn_tmpl.h"
#include "cpu/cpu_init.h"

void brim_cpu_init_attn_neon(struct brim_cpu_ops *ops)
{
    init_attn_vec(ops);
}
