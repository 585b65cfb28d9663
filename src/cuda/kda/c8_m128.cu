/* SPDX-License-Identifier: Apache-2.0
 * Route c8-m128: one owner of 128 value rows, seven helpers; taken only by name. */
#include "cuda/kda/ring.cuh"

KDA_RING_ROUTE(c8_m128, 1, 7, 35, KDA_LAUNCH_ALONE)
