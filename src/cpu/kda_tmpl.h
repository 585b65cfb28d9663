/* SPDX-License-Identifier: Apache-2.0
 * KDA over chunks of 32 tokens in fp32 with vectors of LANES floats: the form of ref/kda_chunk.c
 * for gates with a bound, products tiled over registers. The including file defines LANES, VEC,
 * LOAD, STORE, SET1, MUL and FMA (a * b + c), and calls init_kda_vec. At most eight sums are alive
 * beside one vector of the state: with LANES of two registers that is 18 of AArch64's 32. */
#include <math.h>
#include <string.h>

#include "cpu/cpu_ops.h"
#include "cpu/kda.h"
#include "tensor/dtype.h"

enum { C = BRIM_KDA_CHUNK, SUB = BRIM_KDA_SUB, D = 128 };

struct tiles {
    float q[C][D], k[C][D], v[C][D];
    float g[C][D], down[C][D]; /* log2 decay from the start of the half; k 2^-(g + mid) */
    float kd[C][D], qs[C][D], qd[C][D], kr[C][D];
    float columns[2][D][C]; /* of the blocks that rows of each half meet, by channel */
    float l[C][C], mqk[C][C], inv[C][C], beta[C];
    float w[C][D], u[C][D], o[C][D], gamma[D], half[D];
    float s[D][D]; /* [K][V] */
};

_Static_assert(sizeof(struct tiles) <= BRIM_KDA_SCRATCH_BYTES, "scratch of the vector tiers");

/* 2^x for x at most 127, to about 1 ulp; below -126 gives 2^-126. NaN stays NaN. */
static inline float exp2_poly(float x)
{
    float clamped = x < -126 ? -126 : x;
    float shifted = clamped + 12582912.0f; /* 1.5 * 2^23: rounds to the nearest integer */
    float fraction = clamped - (shifted - 12582912.0f);
    int32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (int32_t)((uint32_t)(bits + 127) << 23);
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    float p = 1.5353362e-4f;
    p = p * fraction + 1.3398874e-3f;
    p = p * fraction + 9.6184373e-3f;
    p = p * fraction + 5.5503324e-2f;
    p = p * fraction + 2.4022648e-1f;
    p = p * fraction + 6.9314720e-1f;
    p = p * fraction + 1.0f;
    return p * scale;
}

static void load_rows(const brim_kda_args *args, const struct brim_kda_task *task, int64_t t0,
                      struct tiles *c)
{
    const float log2e = 1.44269504f;
    bool norm = args->flags & BRIM_KDA_L2NORM, sigmoid = args->gate == BRIM_KDA_GATE_LOWER_BOUND;
    for (int r = 0; r < C; r++) {
        int64_t t = t0 + r;
        if (t >= task->n_tok) { /* no keys, no decay, no weight: such a row changes nothing */
            memset(c->q[r], 0, sizeof c->q[r]);
            memset(c->k[r], 0, sizeof c->k[r]);
            memset(c->v[r], 0, sizeof c->v[r]);
            for (int i = 0; i < D; i++) c->g[r][i] = r % SUB ? c->g[r - 1][i] : 0;
            c->beta[r] = 0;
            continue;
        }
        const uint16_t *q = task->q + t * task->q_token, *k = task->k + t * task->k_token;
        const uint16_t *v = task->v + t * task->v_token;
        float nq = 0, nk = 0;
        for (int i = 0; i < D; i++) {
            c->q[r][i] = brim_f32_from_bf16(q[i]);
            c->k[r][i] = brim_f32_from_bf16(k[i]);
            c->v[r][i] = brim_f32_from_bf16(v[i]);
            nq += c->q[r][i] * c->q[r][i];
            nk += c->k[r][i] * c->k[r][i];
        }
        nq = (norm ? 1 / sqrtf(nq + 1e-6f) : 1) * args->scale;
        nk = norm ? 1 / sqrtf(nk + 1e-6f) : 1;
        float raw[D];
        if (args->g_dtype == BRIM_KERNEL_F32)
            memcpy(raw, (const float *)task->g + t * task->g_token, sizeof raw);
        else
            for (int i = 0; i < D; i++)
                raw[i] = brim_f32_from_bf16(((const uint16_t *)task->g)[t * task->g_token + i]);
        if (sigmoid) {
            float bound = args->lower_bound * log2e, slope = -task->a_scale * log2e;
            for (int i = 0; i < D; i++) {
                float x = (raw[i] + (task->bias ? task->bias[i] : 0)) * slope;
                raw[i] = bound / (1 + exp2_poly(x > 126 ? 126 : x));
            }
        } else {
            for (int i = 0; i < D; i++) raw[i] *= log2e;
        }
        for (int i = 0; i < D; i++) {
            c->q[r][i] *= nq;
            c->k[r][i] *= nk;
            c->g[r][i] = (r % SUB ? c->g[r - 1][i] : 0) + raw[i];
        }
        c->beta[r] = (float)brim_kda_beta(args, task, t);
    }
}

static void decay_rows(float mid, struct tiles *c)
{
    for (int i = 0; i < D; i++) {
        c->half[i] = exp2_poly(c->g[SUB - 1][i]);
        c->gamma[i] = c->half[i] * exp2_poly(c->g[C - 1][i]);
    }
    for (int r = 0; r < C; r++) {
        const float *end = c->g[r < SUB ? SUB - 1 : C - 1], *rest = c->g[C - 1];
        for (int i = 0; i < D; i++) {
            float up = exp2_poly(c->g[r][i]), to_end = exp2_poly(end[i] - c->g[r][i]);
            c->kd[r][i] = c->k[r][i] * up;
            c->qs[r][i] = c->q[r][i] * up;
            c->down[r][i] = c->k[r][i] * exp2_poly(-c->g[r][i] - mid);
            c->kr[r][i] = c->k[r][i] * to_end; /* to the end of the half; below, of the chunk */
            c->qd[r][i] = r < SUB ? c->qs[r][i] : c->qs[r][i] * c->half[i];
        }
        for (int i = 0; i < D; i++) {
            c->columns[r / SUB][i][r] = c->down[r][i];
            if (r < SUB) c->columns[1][i][r] = c->kr[r][i];
        }
        if (r < SUB)
            for (int i = 0; i < D; i++) c->kr[r][i] *= exp2_poly(rest[i]);
    }
}

/* Rows r and r + 1 of L and Mqk against all columns of their half. */
static void pair_rows(int r, float back, struct tiles *c)
{
    int half = r / SUB, n_col = half ? C : SUB;
    for (int x0 = 0; x0 < n_col; x0 += LANES) {
        VEC k0 = SET1(0), k1 = k0, q0 = k0, q1 = k0;
        for (int i = 0; i < D; i++) {
            VEC column = LOAD(&c->columns[half][i][x0]);
            k0 = FMA(SET1(c->kd[r][i]), column, k0);
            k1 = FMA(SET1(c->kd[r + 1][i]), column, k1);
            q0 = FMA(SET1(c->qs[r][i]), column, q0);
            q1 = FMA(SET1(c->qs[r + 1][i]), column, q1);
        }
        STORE(&c->l[r][x0], k0);
        STORE(&c->l[r + 1][x0], k1);
        STORE(&c->mqk[r][x0], q0);
        STORE(&c->mqk[r + 1][x0], q1);
    }
    for (int row = r; row < r + 2; row++)
        for (int x = 0; x < C; x++) {
            float scale = x / SUB == half ? back : 1;
            c->mqk[row][x] = x <= row ? c->mqk[row][x] * scale : 0;
            c->l[row][x] = x < row ? c->l[row][x] * scale * c->beta[row] : 0;
        }
}

static void invert(struct tiles *c)
{
    memset(c->inv, 0, sizeof c->inv);
    for (int r = 0; r < C; r++) {
        c->inv[r][r] = 1;
        for (int y = 0; y < r; y++)
            for (int x = 0; x < C; x++) c->inv[r][x] -= c->l[r][y] * c->inv[y][x];
    }
    for (int r = 0; r < C; r++)
        for (int x = 0; x < C; x++) c->inv[r][x] = x <= r ? c->inv[r][x] * c->beta[x] : 0;
}

/* W = INV kd (the second half's rows still count from the middle) and U = INV V, as far as K1 goes.
 */
static void solve(struct tiles *c)
{
    for (int r = 0; r < C; r++) {
        for (int j = 0; j < D; j += LANES) {
            VEC w = SET1(0), own = w, z = w, half = LOAD(&c->half[j]);
            int split = r < SUB ? r + 1 : SUB;
            for (int x = 0; x < split; x++) {
                VEC f = SET1(c->inv[r][x]);
                w = FMA(f, LOAD(&c->kd[x][j]), w);
                z = FMA(f, LOAD(&c->v[x][j]), z);
            }
            for (int x = SUB; x <= r; x++) {
                VEC f = SET1(c->inv[r][x]);
                own = FMA(f, LOAD(&c->kd[x][j]), own);
                z = FMA(f, LOAD(&c->v[x][j]), z);
            }
            STORE(&c->w[r][j], MUL(SET1(-1), FMA(half, own, w)));
            STORE(&c->u[r][j], z);
        }
    }
}

/* U = Z - W S and O = qd S for four rows: eight products to every vector of S. */
static void read_state(int r, struct tiles *c)
{
    for (int j = 0; j < D; j += LANES) {
        VEC u0 = LOAD(&c->u[r][j]), u1 = LOAD(&c->u[r + 1][j]), u2 = LOAD(&c->u[r + 2][j]);
        VEC u3 = LOAD(&c->u[r + 3][j]), o0 = SET1(0), o1 = o0, o2 = o0, o3 = o0;
        for (int i = 0; i < D; i++) {
            VEC s = LOAD(&c->s[i][j]);
            u0 = FMA(SET1(c->w[r][i]), s, u0);
            u1 = FMA(SET1(c->w[r + 1][i]), s, u1);
            u2 = FMA(SET1(c->w[r + 2][i]), s, u2);
            u3 = FMA(SET1(c->w[r + 3][i]), s, u3);
            o0 = FMA(SET1(c->qd[r][i]), s, o0);
            o1 = FMA(SET1(c->qd[r + 1][i]), s, o1);
            o2 = FMA(SET1(c->qd[r + 2][i]), s, o2);
            o3 = FMA(SET1(c->qd[r + 3][i]), s, o3);
        }
        STORE(&c->u[r][j], u0), STORE(&c->u[r + 1][j], u1);
        STORE(&c->u[r + 2][j], u2), STORE(&c->u[r + 3][j], u3);
        STORE(&c->o[r][j], o0), STORE(&c->o[r + 1][j], o1);
        STORE(&c->o[r + 2][j], o2), STORE(&c->o[r + 3][j], o3);
    }
}

static void finish(const struct brim_kda_task *task, int64_t t0, struct tiles *c)
{
    for (int r = 0; r < C && t0 + r < task->n_tok; r++) {
        uint16_t *out = task->out + (t0 + r) * task->out_token;
        for (int j = 0; j < D; j += LANES) {
            VEC o = LOAD(&c->o[r][j]);
            for (int x = 0; x <= r; x++) o = FMA(SET1(c->mqk[r][x]), LOAD(&c->u[x][j]), o);
            STORE(&c->o[r][j], o);
        }
        for (int j = 0; j < D; j++) out[j] = brim_bf16_from_f32(c->o[r][j]);
    }
    for (int i = 0; i < D; i += 4)
        for (int j = 0; j < D; j += LANES) {
            VEC s0 = MUL(SET1(c->gamma[i]), LOAD(&c->s[i][j])),
                s1 = MUL(SET1(c->gamma[i + 1]), LOAD(&c->s[i + 1][j]));
            VEC s2 = MUL(SET1(c->gamma[i + 2]), LOAD(&c->s[i + 2][j]));
            VEC s3 = MUL(SET1(c->gamma[i + 3]), LOAD(&c->s[i + 3][j]));
            for (int r = 0; r < C; r++) {
                VEC u = LOAD(&c->u[r][j]);
                s0 = FMA(SET1(c->kr[r][i]), u, s0);
                s1 = FMA(SET1(c->kr[r][i + 1]), u, s1);
                s2 = FMA(SET1(c->kr[r][i + 2]), u, s2);
                s3 = FMA(SET1(c->kr[r][i + 3]), u, s3);
            }
            STORE(&c->s[i][j], s0), STORE(&c->s[i + 1][j], s1);
            STORE(&c->s[i + 2][j], s2), STORE(&c->s[i + 3][j], s3);
        }
}

static void kda_task_vec(const brim_kda_args *args, const struct brim_kda_task *task, void *scratch)
{
    struct tiles *c = scratch;
    float mid = (float)lrint(-8 * (double)args->lower_bound * BRIM_KDA_LOG2E), back = exp2f(mid);
    memset(c->s, 0, sizeof c->s);
    if (task->initial) brim_kda_state_load(args, task->initial, &c->s[0][0]);
    for (int64_t t0 = 0; t0 < task->n_tok; t0 += C) {
        load_rows(args, task, t0, c);
        decay_rows(mid, c);
        for (int r = 0; r < C; r += 2) pair_rows(r, back, c);
        invert(c);
        solve(c);
        for (int r = 0; r < C; r += 4) read_state(r, c);
        finish(task, t0, c);
        int64_t done = t0 + C;
        if (task->checkpoints && done % 64 == 0 && done <= task->n_tok)
            brim_kda_state_store(args, &c->s[0][0],
                                 task->checkpoints + (done / 64 - 1) * task->checkpoint_step);
    }
    if (task->final) brim_kda_state_store(args, &c->s[0][0], task->final);
}

static void init_kda_vec(struct brim_cpu_ops *ops)
{
    ops->kda_task = kda_task_vec;
}
