/* SPDX-License-Identifier: Apache-2.0
 * States of KDA between the caller's types and layouts and those of the kernels. */
#include <string.h>

#include "cpu/kda.h"
#include "tensor/dtype.h"

void brim_kda_state_load(const brim_kda_args *args, const void *from, float *state)
{
    bool k_first = args->flags & BRIM_KDA_STATE_K_FIRST,
         is_f32 = args->state_dtype == BRIM_KERNEL_F32;
    for (int k = 0; k < 128; k++)
        for (int v = 0; v < 128; v++) {
            int at = k_first ? k * 128 + v : v * 128 + k;
            state[k * 128 + v] = is_f32 ? ((const float *)from)[at]
                                        : brim_f32_from_bf16(((const uint16_t *)from)[at]);
        }
}

void brim_kda_state_store(const brim_kda_args *args, const float *state, void *to)
{
    bool k_first = args->flags & BRIM_KDA_STATE_K_FIRST,
         is_f32 = args->state_dtype == BRIM_KERNEL_F32;
    for (int k = 0; k < 128; k++)
        for (int v = 0; v < 128; v++) {
            int at = k_first ? k * 128 + v : v * 128 + k;
            if (is_f32)
                ((float *)to)[at] = state[k * 128 + v];
            else
                ((uint16_t *)to)[at] = brim_bf16_from_f32(state[k * 128 + v]);
        }
}

/* Between a strip and its columns v0.. of a stored state, by tiles of 4 x 4, which the compiler
 * turns in registers; the form is constant where these are inlined. */
#define BETWEEN static inline __attribute__((always_inline)) void

enum { STRIP = BRIM_KDA_STRIP, TILE = 4 };

static inline int stored_at(bool k_first, int k, int v)
{
    return k_first ? k * 128 + v : v * 128 + k;
}

BETWEEN strip_load(bool k_first, bool is_f32, const void *from, int v0, float (*strip)[STRIP])
{
    for (int k = 0; k < 128; k += TILE)
        for (int v = 0; v < STRIP; v += TILE) {
            float tile[TILE][TILE];
            for (int x = 0; x < TILE; x++)
                for (int y = 0; y < TILE; y++) {
                    int at = stored_at(k_first, k + y, v0 + v + x);
                    tile[x][y] = is_f32 ? ((const float *)from)[at]
                                        : brim_f32_from_bf16(((const uint16_t *)from)[at]);
                }
            for (int y = 0; y < TILE; y++)
                for (int x = 0; x < TILE; x++) strip[k + y][v + x] = tile[x][y];
        }
}

BETWEEN strip_store(bool k_first, bool is_f32, const float (*strip)[STRIP], int v0, void *to)
{
    for (int k = 0; k < 128; k += TILE)
        for (int v = 0; v < STRIP; v += TILE) {
            float tile[TILE][TILE];
            for (int y = 0; y < TILE; y++)
                for (int x = 0; x < TILE; x++) tile[x][y] = strip[k + y][v + x];
            for (int x = 0; x < TILE; x++)
                for (int y = 0; y < TILE; y++) {
                    int at = stored_at(k_first, k + y, v0 + v + x);
                    if (is_f32)
                        ((float *)to)[at] = tile[x][y];
                    else
                        ((uint16_t *)to)[at] = brim_bf16_from_f32(tile[x][y]);
                }
        }
}

void brim_kda_strips_load(const brim_kda_args *args, const void *from, int begin, int end,
                          struct brim_kda_state *state)
{
    bool k_first = args->flags & BRIM_KDA_STATE_K_FIRST,
         is_f32 = args->state_dtype == BRIM_KERNEL_F32;
    for (int v = begin; v < end; v += STRIP) {
        float(*strip)[STRIP] = state->strip[v / STRIP];
        if (!from)
            memset(strip, 0, sizeof state->strip[0]);
        else if (k_first && is_f32)
            strip_load(true, true, from, v, strip);
        else if (k_first)
            strip_load(true, false, from, v, strip);
        else if (is_f32)
            strip_load(false, true, from, v, strip);
        else
            strip_load(false, false, from, v, strip);
    }
}

void brim_kda_strips_store(const brim_kda_args *args, const struct brim_kda_state *state, int begin,
                           int end, void *to)
{
    bool k_first = args->flags & BRIM_KDA_STATE_K_FIRST,
         is_f32 = args->state_dtype == BRIM_KERNEL_F32;
    for (int v = begin; v < end && to; v += STRIP) {
        const float(*strip)[STRIP] = (const float(*)[STRIP])state->strip[v / STRIP];
        if (k_first && is_f32)
            strip_store(true, true, strip, v, to);
        else if (k_first)
            strip_store(true, false, strip, v, to);
        else if (is_f32)
            strip_store(false, true, strip, v, to);
        else
            strip_store(false, false, strip, v, to);
    }
}

void brim_kda_strips_checkpoint(const brim_kda_args *args, const struct brim_kda_task *task,
                                int64_t chunk, const struct brim_kda_state *state, int begin,
                                int end)
{
    int64_t done = (chunk + 1) * BRIM_KDA_CHUNK, every = BRIM_KDA_CHECKPOINT;
    if (task->checkpoints && done % every == 0 && done <= task->n_tok)
        brim_kda_strips_store(args, state, begin, end,
                              task->checkpoints + (done / every - 1) * task->checkpoint_step);
}
