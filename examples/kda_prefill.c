/* SPDX-License-Identifier: Apache-2.0
 * One operator of libbrim_kernels, without the engine: Kimi Delta Attention over a prompt that
 * arrives in two pieces, on the CPU.
 *
 *   kda_prefill [THREADS]
 *
 * Prints how the call runs, then the size of the outputs and of the state after each piece. On a
 * GPU the same struct takes device pointers, a stream and a workspace of brim_kda_workspace_bytes.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "brim/kernels.h"

enum { TOKENS = 300, HEADS = 2, DIM = BRIM_KDA_DIM, ROW = HEADS * DIM };

static uint16_t q[TOKENS * ROW], k[TOKENS * ROW], v[TOKENS * ROW], g[TOKENS * ROW];
static uint16_t beta[TOKENS * HEADS], out[TOKENS * ROW];
static float state[HEADS * DIM * DIM];

/* bf16 is the upper half of a float; what is dropped here does not matter. */
static uint16_t bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static float widened(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

static void fill(uint16_t *to, int n, int seed)
{
    for (int i = 0; i < n; i++) to[i] = bf16(sinf((float)(i * 37 + seed * 11) * 0.7f));
}

/* Tokens [first, first + n) from the state that the tokens before them left. */
static brim_status prefill(int first, int n, int n_thread, brim_error *err)
{
    brim_kda_args args;
    brim_kda_args_init(&args);
    args.device = BRIM_KERNEL_CPU;
    args.n_thread = n_thread;
    args.n_seq = 1, args.n_tok = n;
    args.n_head = args.n_value_head = HEADS;
    args.q = q + first * ROW, args.k = k + first * ROW, args.v = v + first * ROW;
    args.g = g + first * ROW, args.out = out + first * ROW;
    args.beta = beta + first * HEADS;
    args.g_dtype = args.beta_dtype = BRIM_KERNEL_BF16;
    args.q_stride = (brim_kda_stride){.batch = TOKENS * ROW, .token = ROW, .head = DIM};
    args.k_stride = args.v_stride = args.g_stride = args.out_stride = args.q_stride;
    args.beta_stride = (brim_kda_stride){.batch = TOKENS * HEADS, .token = HEADS, .head = 1};
    args.gate = BRIM_KDA_GATE_LOWER_BOUND, args.lower_bound = -5;
    args.flags = BRIM_KDA_L2NORM | BRIM_KDA_BETA_LOGIT;
    args.initial_state = args.final_state = state;
    args.state_dtype = BRIM_KERNEL_F32, args.state_stride = HEADS * DIM * DIM;

    brim_kda_plan plan;
    char text[2048];
    brim_status status = brim_kda_plan_make(&args, &plan, err);
    if (status != BRIM_OK) return status;
    brim_kda_plan_print(&plan, text, sizeof text);
    puts(text);
    return brim_kda_prefill(&args, err);
}

int main(int argc, char **argv)
{
    static const int pieces[] = {200, TOKENS - 200};
    int n_thread = argc > 1 ? atoi(argv[1]) : 1, first = 0;
    fill(q, TOKENS * ROW, 1), fill(k, TOKENS * ROW, 2), fill(v, TOKENS * ROW, 3);
    fill(g, TOKENS * ROW, 4), fill(beta, TOKENS * HEADS, 5);
    for (int piece = 0; piece < 2; piece++) {
        brim_error err;
        if (prefill(first, pieces[piece], n_thread, &err) != BRIM_OK) {
            fprintf(stderr, "kda_prefill: %s\n", err.text);
            return 1;
        }
        double outputs = 0, states = 0;
        for (int i = first * ROW; i < (first + pieces[piece]) * ROW; i++)
            outputs += (double)widened(out[i]) * (double)widened(out[i]);
        for (size_t i = 0; i < sizeof state / sizeof *state; i++)
            states += (double)state[i] * (double)state[i];
        printf("tokens %d..%d: |out| %.4f, |state| %.4f\n", first, first + pieces[piece] - 1,
               sqrt(outputs), sqrt(states));
        first += pieces[piece];
    }
    return 0;
}
