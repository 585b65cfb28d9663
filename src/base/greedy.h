/* SPDX-License-Identifier: Apache-2.0
 * Where sampling begins, for the samplers on the CPU and on the device (include/brim/brim.h). */
#ifndef BRIM_BASE_GREEDY_H
#define BRIM_BASE_GREEDY_H

/* Below this temperature the largest logit is taken: dividing by it would only overflow. */
#define BRIM_GREEDY_TEMPERATURE 1e-5f

#endif
