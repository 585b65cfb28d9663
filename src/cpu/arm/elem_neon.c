/* SPDX-License-Identifier: Apache-2.0
 * Element-wise operators of the neon tier. */
#include "cpu/arm/vec_neon.h"

#include "cpu/cpu_init.h"
#include "cpu/elem_tmpl.h"

void brim_cpu_init_elem_neon(struct brim_cpu_ops *ops)
{
    init_elem_vec(ops);
}
