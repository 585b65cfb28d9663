/* SPDX-License-Identifier: Apache-2.0
 * Route c6-m64: two owners of 64 value rows, four helpers. */
#include "cuda/kda/ring.cuh"

KDA_RING_ROUTE(c6_m64, 2, 4, 20, KDA_LAUNCH_SERIAL)
