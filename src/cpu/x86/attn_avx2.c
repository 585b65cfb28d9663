/* SPDX-License-Identifier: Apache-2.0
 * Attention of the avx2 tier. */
#include "cpu/x86/vec_avx2.h"

#define V16_REGISTERS 6

#include "cpu/attn_tmpl.h"
#include "cpu/cpu_init.h"

void brim_cpu_init_attn_avx2(struct brim_cpu_ops *ops)
{
    init_attn_vec(ops);
}
