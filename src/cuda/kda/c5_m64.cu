/* SPDX-License-Identifier: Apache-2.0
 * Route c5-m64: two owners of 64 value rows, three helpers. */
#include "cuda/kda/ring.cuh"

KDA_RING_ROUTE(c5_m64, 2, 3, 15, KDA_LAUNCH_SERIAL)
