/* SPDX-License-Identifier: Apache-2.0
 * The one exponential of all CPU kernels. Every tier evaluates the same steps, so tiers differ only
 * where a fused multiply-add rounds once and a plain one twice:
 *   t = x * log2(e) + 1.5 * 2^23 rounds to the integer n, r = x - n ln2_hi - n ln2_lo,
 *   e = 1 + r + r^2 (C2 + ... + C6 r^4), n added to the exponent field of e.
 * |r| <= 0.35; the polynomial errs by 0.18 * 2^-24 (minimax fit of (e^r - 1 - r) / r^2, rounded to
 * f32). ln2_hi has 9 significant bits, so n ln2_hi is exact. Largest error seen over all floats:
 * 1 ulp with FMA, 2 ulp without (tests/check/check_elem.c holds that).
 * Below BRIM_EXP_LOW the result is 0 (no subnormals), above BRIM_EXP_HIGH +inf; NaN gives NaN. */
#ifndef BRIM_CPU_EXP_POLY_H
#define BRIM_CPU_EXP_POLY_H

#define BRIM_EXP_LOW -87.3365f /* just above ln 2^-126: results stay normal */
#define BRIM_EXP_HIGH 88.7228f /* just below ln 2^128 */
#define BRIM_EXP_LOG2E 0x1.715476p+0f
#define BRIM_EXP_MAGIC 0x1.8p+23f
#define BRIM_EXP_LN2_HI 0x1.62p-1f
#define BRIM_EXP_LN2_LO 0x1.c85fep-10f
#define BRIM_EXP_C6 0x1.6d113cp-10f
#define BRIM_EXP_C5 0x1.120ba2p-7f
#define BRIM_EXP_C4 0x1.55551ap-5f
#define BRIM_EXP_C3 0x1.5554dcp-3f
#define BRIM_EXP_C2 0.5f

#endif
