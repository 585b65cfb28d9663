/* SPDX-License-Identifier: Apache-2.0
 * Seeded generator for sampling, synthetic checkpoints and tests: PCG32 (XSH-RR 64/32, M. O'Neill,
 * "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms", 2014). The same
 * seed gives the same numbers on every machine. */
#ifndef BRIM_BASE_RNG_H
#define BRIM_BASE_RNG_H

#include <stdint.h>

struct brim_rng {
    uint64_t state;
};

static inline uint32_t brim_rng_u32(struct brim_rng *rng)
{
    uint64_t old = rng->state;
    rng->state = old * 6364136223846793005u + 1442695040888963407u;
    uint32_t shifted = (uint32_t)(((old >> 18) ^ old) >> 27);
    uint32_t rot = (uint32_t)(old >> 59);
    return (shifted >> rot) | (shifted << ((32 - rot) & 31));
}

static inline void brim_rng_seed(struct brim_rng *rng, uint64_t seed)
{
    rng->state = seed + 1442695040888963407u;
    (void)brim_rng_u32(rng);
}

/* Uniform in [0, 1), 24 bits: every value is a float. */
static inline float brim_rng_uniform(struct brim_rng *rng)
{
    return (float)(brim_rng_u32(rng) >> 8) * 0x1p-24f;
}

#endif
