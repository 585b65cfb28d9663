/* SPDX-License-Identifier: Apache-2.0
 * What leaves a W4 kernel, one fragment block at a time (enum brim_w4_epilogue).
 *
 * A block is 16 rows of W (outputs) by 8 tokens, held by a warp as wgmma and mma.sync leave it:
 * with g = lane / 4, c = lane % 4 a lane has (output g, token 2c), (g, 2c + 1), (g + 8, 2c),
 * (g + 8, 2c + 1), that is acc[4 j .. 4 j + 3] of column block j. Lanes g and g ^ 1 exchange one
 * value, so that each stores two neighbouring outputs of one token at once. */
#ifndef BRIM_CUDA_W4_EPILOGUE_CUH
#define BRIM_CUDA_W4_EPILOGUE_CUH

#include "cuda/ptx/copy.cuh"
#include "cuda/w4/w4.h"

struct w4_epilogue {
    void *y;
    const float *out_bias; /* [n_out] or null */
    int64_t y_stride, n_row, n_out;
    enum brim_w4_epilogue kind;
};

static inline w4_epilogue w4_epilogue_of(const struct brim_cuda_w4 *args, int64_t n_out)
{
    w4_epilogue e = {args->y, args->out_bias, args->y_stride, args->n_row, n_out, args->epilogue};
    return e;
}

/* Elements `at` and, if `both`, at + 1 of y. */
BRIM_DEVICE void w4_store_pair(const w4_epilogue &e, int64_t at, bool both, float lo, float hi)
{
    if (e.kind == BRIM_W4_STORE_F32 || e.kind == BRIM_W4_ADD_F32) {
        float *y = (float *)e.y + at;
        const bool add = e.kind == BRIM_W4_ADD_F32;
        if (both && ((uintptr_t)y & 7) == 0) {
            float2 old = add ? *(const float2 *)y : make_float2(0, 0);
            *(float2 *)y = make_float2(add ? old.x + lo : lo, add ? old.y + hi : hi);
        } else {
            y[0] = add ? y[0] + lo : lo;
            if (both) y[1] = add ? y[1] + hi : hi;
        }
        return;
    }
    uint16_t *y = (uint16_t *)e.y + at;
    uint32_t pair = bf16x2_pack(lo, hi);
    if (both && ((uintptr_t)y & 3) == 0) {
        *(uint32_t *)y = pair;
    } else {
        y[0] = (uint16_t)pair;
        if (both) y[1] = (uint16_t)(pair >> 16);
    }
}

/* x / (1 + exp(-x)); -0 where exp overflows. */
BRIM_DEVICE float w4_silu(float x)
{
    return __fdividef(x, 1.0f + __expf(-x));
}

/* Give the partner lane (g ^ 1) the token that it stores; lo, hi: outputs g & ~1 and its successor
 * of token 2c + (g & 1). */
BRIM_DEVICE void w4_exchange(float even_token, float odd_token, int lane, float *lo, float *hi)
{
    const bool odd = lane & 4;
    float other = __shfl_xor_sync(0xFFFFFFFFu, odd ? even_token : odd_token, 4);
    *lo = odd ? other : even_token;
    *hi = odd ? odd_token : other;
}

/* The block of outputs out0 .. out0 + 15 (rows of W) and tokens row0 .. row0 + 7. All lanes of the
 * warp call it, with the same block. */
BRIM_DEVICE void w4_store_block(const w4_epilogue &e, float4 v, int64_t out0, int64_t row0,
                                int lane)
{
    const int g = lane / 4, c = lane % 4;
    if (e.out_bias) {
        float b0 = out0 + g < e.n_out ? __ldg(e.out_bias + out0 + g) : 0;
        float b1 = out0 + g + 8 < e.n_out ? __ldg(e.out_bias + out0 + g + 8) : 0;
        v.x += b0, v.y += b0, v.z += b1, v.w += b1;
    }
    /* Two pairs of outputs, or one of products. One body of stores: its code is read cold. */
    const int64_t row = row0 + 2 * c + (g & 1);
    const bool swiglu = e.kind == BRIM_W4_SWIGLU;
    float lo[2], hi[2];
    if (swiglu) v.x = w4_silu(v.x) * v.z, v.y = w4_silu(v.y) * v.w;
    w4_exchange(v.x, v.y, lane, &lo[0], &hi[0]);
    w4_exchange(v.z, v.w, lane, &lo[1], &hi[1]);
    if (e.kind == BRIM_W4_STORE_BF16 && out0 + 16 <= e.n_out &&
        (((uintptr_t)e.y | (uintptr_t)(e.y_stride * 2)) & 3) == 0) {
        uint16_t *y = (uint16_t *)e.y + row * e.y_stride + out0 + (g & ~1);
        if (row >= e.n_row) return;
        *(uint32_t *)y = bf16x2_pack(lo[0], hi[0]);
        *(uint32_t *)(y + 8) = bf16x2_pack(lo[1], hi[1]);
        return;
    }
    if (swiglu) out0 /= 2;
    const int64_t n_out = swiglu ? e.n_out / 2 : e.n_out;
#pragma unroll 1
    for (int h = 0; h < (swiglu ? 1 : 2); h++) {
        const int64_t o = out0 + 8 * h + (g & ~1);
        if (row >= e.n_row || o >= n_out) continue;
        w4_store_pair(e, row * e.y_stride + o, o + 1 < n_out, h ? lo[1] : lo[0], h ? hi[1] : hi[0]);
    }
}

#endif
