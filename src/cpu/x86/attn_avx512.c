/* SPDX-License-Identifier: Apache-2.0
 * Attention of the avx512 tier. */
#include "cpu/x86/vec_avx512.h"

#define V16_REGISTERS 24

#include "cpu/attn_tmpl.h"
#include "cpu/cpu_init.h"

void brim_cpu_init_attn_avx512(struct brim_cpu_ops *ops)
{
    init_attn_vec(ops);
}
