/* SPDX-License-Identifier: Apache-2.0
 * How the sums of stream.cu leave it: added over the CTAs of a cluster, then stored block by block;
 * or a warpgroup's whole tile by one TMA copy; or one by one where y does not allow either.
 * Fragment blocks are 16 outputs x 8 tokens of a warp (epilogue.cuh). */
#ifndef BRIM_CUDA_W4_STREAM_STORE_CUH
#define BRIM_CUDA_W4_STREAM_STORE_CUH

#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/w4/epilogue.cuh"

struct stream_out {
    CUtensorMap y_map; /* if copies */
    w4_epilogue e;
    bool wide;   /* y takes 16-byte stores */
    bool copies; /* whole tiles of bf16 leave by y_map */
};

/* A lane's part of a line, four fragment blocks of 512 bytes: their sum over `split` ranks in
 * order, `stride` bytes from rank to rank. */
BRIM_DEVICE void sum_lines(uint32_t at, uint32_t stride, int split, float4 (&v)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = ld_shared_v4_f32(at + i * 512);
#pragma unroll 1
    for (int r = 1; r < split; r++) {
        at += stride;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float4 w = ld_shared_v4_f32(at + i * 512);
            v[i].x += w.x, v[i].y += w.y, v[i].z += w.z, v[i].w += w.w;
        }
    }
}

/* Outputs out0 .. out0 + 15 of tokens row0 .. row0 + 31, those before n_row, as four fragment
 * blocks of a warp. bf16 goes through the warp's 1 KB of staging, so that a lane stores 16 bytes
 * and a token's outputs fill whole sectors; f32 fills them as it lies. */
BRIM_DEVICE void store_blocks(const stream_out &p, float4 (&v)[4], int64_t out0, int64_t row0,
                              int64_t n_row, int lane, uint8_t *staging)
{
    const w4_epilogue &e = p.e;
    if (out0 >= e.n_out) return;
    const int g = lane / 4, c = lane % 4;
    if (e.out_bias) {
        float b0 = out0 + g < e.n_out ? __ldg(e.out_bias + out0 + g) : 0;
        float b1 = out0 + g + 8 < e.n_out ? __ldg(e.out_bias + out0 + g + 8) : 0;
#pragma unroll
        for (int j = 0; j < 4; j++) v[j].x += b0, v[j].y += b0, v[j].z += b1, v[j].w += b1;
    }
    if (e.kind == BRIM_W4_STORE_F32 || e.kind == BRIM_W4_ADD_F32) {
        float *y = (float *)e.y + (row0 + 2 * c) * e.y_stride + out0 + g;
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float *at = y + (8 * j + i % 2) * e.y_stride + i / 2 * 8;
                float sum = i == 0 ? v[j].x : i == 1 ? v[j].y : i == 2 ? v[j].z : v[j].w;
                if (row0 + 8 * j + 2 * c + i % 2 >= n_row || out0 + g + i / 2 * 8 >= e.n_out)
                    continue;
                if (e.kind == BRIM_W4_ADD_F32)
                    red_add_f32(at, sum);
                else
                    *at = sum;
            }
        }
        return;
    }
    /* Staging: [token 32][output 16], or [token 32][output 8] of gate and up together. Lane l gives
     * stmatrix the place of row l % 8 of matrix l / 8, and reads back 16 bytes at 16 l. */
    const bool pairs = e.kind == BRIM_W4_SWIGLU;
    const uint32_t at = smem_u32(staging);
    __syncwarp(); /* what was staged before has been read */
    if (pairs) {
        uint32_t r[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            r[j] = bf16x2_pack(w4_silu(v[j].x) * v[j].z, w4_silu(v[j].y) * v[j].w);
        stmatrix_x4_trans(at + lane * 16, r);
    } else {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float4 &a = v[2 * i], &b = v[2 * i + 1];
            uint32_t r[4] = {bf16x2_pack(a.x, a.y), bf16x2_pack(a.z, a.w), bf16x2_pack(b.x, b.y),
                             bf16x2_pack(b.z, b.w)};
            int token = 16 * i + lane / 16 * 8 + lane % 8;
            stmatrix_x4_trans(at + token * 32 + lane / 8 % 2 * 16, r);
        }
    }
    __syncwarp();
    const int64_t n_out = pairs ? e.n_out / 2 : e.n_out;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (pairs && i == 1) break;
        const int64_t row = row0 + (pairs ? lane : 16 * i + lane / 2);
        const int64_t o = pairs ? out0 / 2 : out0 + lane % 2 * 8;
        if (row >= n_row || o >= n_out) continue;
        uint16_t *y = (uint16_t *)e.y + row * e.y_stride + o;
        const uint16_t *src = (const uint16_t *)(staging + i * 512 + lane * 16);
        if (p.wide && o + 8 <= n_out) {
            *(uint4 *)y = *(const uint4 *)src;
        } else {
#pragma unroll 1
            for (int k = 0; k < 8 && o + k < n_out; k++) y[k] = src[k];
        }
    }
}

/* Bias of outputs o and o + 8 of a lane. */
template <int n_tok>
BRIM_DEVICE void add_bias(const w4_epilogue &e, float (&acc)[n_tok / 2], int64_t o)
{
    const float b0 = o < e.n_out ? __ldg(e.out_bias + o) : 0;
    const float b1 = o + 8 < e.n_out ? __ldg(e.out_bias + o + 8) : 0;
#pragma unroll
    for (int i = 0; i < n_tok / 2; i++) acc[i] += i / 2 % 2 ? b1 : b0;
}

/* A warpgroup's tile of bf16 results: through shared memory at `image` ([token][64 outputs], or 32
 * of gate and up together, swizzled as y_map says), by one copy that leaves out what lies beyond y.
 * thread: of the warpgroup; slab, row: of the matrix. dry: all but the copy. */
template <int n_tok>
BRIM_DEVICE void copy_tile(const stream_out &p, const float (&acc)[n_tok / 2], int slab, int row,
                           uint32_t image, uint32_t barrier, int thread, bool dry)
{
    const int warp = thread / 32, lane = thread % 32;
    const bool pairs = p.e.kind == BRIM_W4_SWIGLU;
    if (thread == 0) bulk_wait_read_all(); /* the tile before has left */
    named_barrier_sync(barrier, 128);
    if (pairs) {
        const uint32_t at = image + lane * 64 + ((warp ^ (lane / 2 % 4)) << 4);
#pragma unroll
        for (int i = 0; i < n_tok / 32; i++) {
            uint32_t r[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float *v = acc + 16 * i + 4 * j;
                r[j] = bf16x2_pack(w4_silu(v[0]) * v[2], w4_silu(v[1]) * v[3]);
            }
            stmatrix_x4_trans(at + i * 2048, r);
        }
    } else {
        const uint32_t at = image + swizzle_128b(lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2);
#pragma unroll
        for (int i = 0; i < n_tok / 16; i++) {
            uint32_t r[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                r[j] = bf16x2_pack(acc[8 * i + 2 * j], acc[8 * i + 2 * j + 1]);
            stmatrix_x4_trans(at + i * 2048, r);
        }
    }
    fence_proxy_async_shared();
    named_barrier_sync(barrier, 128);
    if (thread == 0 && !dry) {
        tma_store_2d(&p.y_map, slab * (pairs ? 32 : 64), row, image);
        bulk_commit();
    }
}

/* The same one by one: f32, and bf16 whose rows do not start on 16 bytes. Outputs out0 .. out0 + 15
 * of a warp, rows row0 .. n_row - 1. */
template <int n_tok>
BRIM_DEVICE void store_tile(const w4_epilogue &e, const float (&acc)[n_tok / 2], int64_t out0,
                            int64_t row0, int64_t n_row, int lane)
{
    const int64_t row = row0 + lane % 4 * 2, o = out0 + lane / 4;
    const int n_here = (int)(n_row - row < n_tok ? n_row - row : n_tok);
    if (e.kind == BRIM_W4_SWIGLU) {
        uint16_t *y = (uint16_t *)e.y + row * e.y_stride + out0 / 2 + lane / 4;
        if (o + 8 >= e.n_out) return;
#pragma unroll
        for (int i = 0; i < n_tok / 4; i++) {
            const float *v = acc + i / 2 * 4 + i % 2;
            const int token = i / 2 * 8 + i % 2;
            if (token < n_here)
                y[token * e.y_stride] = (uint16_t)bf16x2_pack(w4_silu(v[0]) * v[2], 0);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < n_tok / 2; i++) {
        const int token = i / 4 * 8 + i % 2, h = i / 2 % 2 * 8;
        const int64_t at = (row + token) * e.y_stride + o + h;
        if (token >= n_here || o + h >= e.n_out) continue;
        if (e.kind == BRIM_W4_ADD_F32)
            red_add_f32((float *)e.y + at, acc[i]);
        else if (e.kind == BRIM_W4_STORE_F32)
            ((float *)e.y)[at] = acc[i];
        else
            ((uint16_t *)e.y)[at] = (uint16_t)bf16x2_pack(acc[i], 0);
    }
}

#endif
