/* SPDX-License-Identifier: Apache-2.0
 * Route c4-m64: two owners of 64 value rows, two helpers. */
#include "cuda/kda/ring.cuh"

KDA_RING_ROUTE(c4_m64, 2, 2, 10, KDA_LAUNCH_SERIAL)
