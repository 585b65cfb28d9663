/* SPDX-License-Identifier: Apache-2.0
 * What a KDA call may count: the refusals that the operator and the plans of every device share. */
#ifndef BRIM_PLAN_KDA_SHAPE_H
#define BRIM_PLAN_KDA_SHAPE_H

#include "base/status.h"
#include "brim/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads n_seq, n_tok, n_value_head, and whether the call is packed. Behind it the tasks fit 31
 * bits, and rows times heads 63. */
brim_status brim_kda_shape_check(const brim_kda_args *args, brim_error *err);

#ifdef __cplusplus
}
#endif
#endif
