/* SPDX-License-Identifier: Apache-2.0
 * The vector types of CUDA that brim uses, for C and C++, with the alignment they have there. */
#ifndef BRIM_EMU_VECTOR_TYPES_H
#define BRIM_EMU_VECTOR_TYPES_H

#define BRIM_EMU_ALIGNED(n) __attribute__((aligned(n)))

struct uint3 {
    unsigned x, y, z;
};

struct BRIM_EMU_ALIGNED(8) float2 {
    float x, y;
};
struct BRIM_EMU_ALIGNED(8) uint2 {
    unsigned x, y;
};
struct BRIM_EMU_ALIGNED(8) int2 {
    int x, y;
};

struct BRIM_EMU_ALIGNED(16) float4 {
    float x, y, z, w;
};
struct BRIM_EMU_ALIGNED(16) uint4 {
    unsigned x, y, z, w;
};
struct BRIM_EMU_ALIGNED(16) int4 {
    int x, y, z, w;
};

struct dim3 {
    unsigned x, y, z;
#ifdef __cplusplus
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
#endif
};

#ifndef __cplusplus
typedef struct uint3 uint3;
typedef struct float2 float2;
typedef struct uint2 uint2;
typedef struct int2 int2;
typedef struct float4 float4;
typedef struct uint4 uint4;
typedef struct int4 int4;
typedef struct dim3 dim3;
#endif

#endif
