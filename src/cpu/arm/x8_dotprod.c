/* SPDX-License-Identifier: Apache-2.0
 * int8 activations by SDOT, where the processor has it. */
#if !defined(__ARM_FEATURE_DOTPROD)
#error "this file needs the flags of the dot product extension"
#endif
#include <arm_neon.h>

#define DOT4 vdotq_s32
#define NAME(stem) stem##_dotprod
#include "cpu/arm/x8_tmpl.h"
