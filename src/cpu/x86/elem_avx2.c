/* SPDX-License-Identifier: Apache-2.0
 * Element-wise operators of the avx2 tier. */
#include "cpu/x86/vec_avx2.h"

#include "cpu/cpu_init.h"
#include "cpu/elem_tmpl.h"

void brim_cpu_init_elem_avx2(struct brim_cpu_ops *ops)
{
    init_elem_vec(ops);
}
