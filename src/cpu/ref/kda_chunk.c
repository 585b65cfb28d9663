/* SPDX-License-Identifier: Apache-2.0
 * KDA over chunks of 32 tokens. With G the cumulative log2 decay inside the chunk, W, Z, qd, kr,
 * Mqk and gamma (the packet that crosses from preparation to recurrence on the GPU) give U = Z - W
 * S,   O = qd S + Mqk U,   S <- gamma S + kr^T U. Two forms share this file: fp32 throughout, and
 * every rounding of the sm_90a kernels (cuda/kda/chunk.cuh), so that a kernel's error can be told
 * apart from its format's. Sums run in order, the GPU's do not. */
#include <math.h>
#include <string.h>

#include "cpu/cpu_init.h"
#include "cpu/kda.h"
#include "tensor/dtype.h"

enum { C = BRIM_KDA_CHUNK, SUB = BRIM_KDA_SUB, QUARTER = 8, D = 128 };

struct chunk {
    float q[C][D], k[C][D], v[C][D]; /* normalized; q scaled; rows past the end are zero */
    float g[C][D];     /* log2 decay, cumulative from the start of the sub-block of 16 */
    float total[2][D]; /* of each sub-block */
    float beta[C];
    float kd[C][D], qs[C][D]; /* k and q times 2^g */
    float qd[C][D], kr[C][D]; /* of the packet */
    float ki[C][D];           /* k times 2^-(g + mid) */
    float ko[SUB][D]; /* columns of the block below the diagonal, relative to its first row */
    float l[C][C], mqk[C][C], inv[C][C];
    float w[C][D], z[C][D], u[C][D], gamma[D];
    float s[D][D], sb[D][D]; /* state [K][V] and what the products read of it */
};

_Static_assert(sizeof(struct chunk) <= BRIM_KDA_WORK_BYTES, "work of plain C");

size_t brim_kda_chunk_scratch_bytes(void)
{
    return sizeof(struct brim_kda_state) + sizeof(struct brim_kda_packet) + BRIM_KDA_WORK_BYTES;
}

static float to_bf16(float x)
{
    return brim_f32_from_bf16(brim_bf16_from_f32(x));
}

static float narrow(enum brim_kda_rounding rounding, float x)
{
    return rounding == BRIM_KDA_GPU ? to_bf16(x) : x;
}

/* What a product reads of the state and of U; fine: the sum of two bf16. */
static float operand(enum brim_kda_rounding rounding, bool fine, float x)
{
    float high = narrow(rounding, x);
    return fine && rounding == BRIM_KDA_GPU ? high + to_bf16(x - high) : high;
}

/* The exponent that is split off the column factors: half of a sub-block's worst decay, an integer
 * so that taking it out and putting it back is exact. 58 at a bound of -5. */
static int mid_exponent(const brim_kda_args *args)
{
    return (int)lrint(-8 * (double)args->lower_bound * BRIM_KDA_LOG2E);
}

static void load_rows(const brim_kda_args *args, const struct brim_kda_task *task, int64_t t0,
                      struct chunk *c)
{
    memset(c->q, 0, sizeof c->q);
    memset(c->k, 0, sizeof c->k);
    memset(c->v, 0, sizeof c->v);
    for (int r = 0; r < C; r++) {
        int64_t t = t0 + r;
        bool inside = t < task->n_tok;
        float nq = 0, nk = 0;
        c->beta[r] = inside ? (float)brim_kda_beta(args, task, t) : 0;
        for (int i = 0; i < D && inside; i++) {
            c->q[r][i] = brim_f32_from_bf16(task->q[t * task->q_token + i]);
            c->k[r][i] = brim_f32_from_bf16(task->k[t * task->k_token + i]);
            c->v[r][i] = brim_f32_from_bf16(task->v[t * task->v_token + i]);
            nq += c->q[r][i] * c->q[r][i];
            nk += c->k[r][i] * c->k[r][i];
        }
        bool norm = args->flags & BRIM_KDA_L2NORM;
        nq = (norm ? 1 / sqrtf(nq + 1e-6f) : 1) * args->scale;
        nk = norm ? 1 / sqrtf(nk + 1e-6f) : 1;
        for (int i = 0; i < D; i++) {
            float before = r % SUB ? c->g[r - 1][i] : 0, g = 0;
            if (inside) g = (float)(brim_kda_log_decay(args, task, t, i) * BRIM_KDA_LOG2E);
            /* below 2^-128 everything is zero; sums of such decays would lose the small ones */
            if (g < -128) g = -128;
            c->q[r][i] *= nq;
            c->k[r][i] *= nk;
            c->g[r][i] = before + g;
        }
    }
    memcpy(c->total[0], c->g[SUB - 1], sizeof c->total[0]);
    memcpy(c->total[1], c->g[C - 1], sizeof c->total[1]);
}

static void decay_rows(enum brim_kda_rounding m, int mid, struct chunk *c)
{
    for (int i = 0; i < D; i++) {
        float end0 = exp2f(c->total[0][i]), end1 = exp2f(c->total[1][i]);
        float back0 = exp2f(c->total[0][i] + (float)mid),
              back1 = exp2f(c->total[1][i] + (float)mid);
        c->gamma[i] = end0 * end1;
        for (int r = 0; r < C; r++) {
            float up = exp2f(c->g[r][i]), down = c->k[r][i] * exp2f(-c->g[r][i] - (float)mid);
            float q = c->q[r][i] * up;
            c->kd[r][i] = narrow(m, c->k[r][i] * up);
            c->qs[r][i] = narrow(m, q);
            c->ki[r][i] = narrow(m, down);
            c->qd[r][i] = r < SUB ? c->qs[r][i] : narrow(m, q * end0);
            if (r < SUB) c->ko[r][i] = narrow(m, down * back0);
            c->kr[r][i] = narrow(m, r < SUB ? down * back0 * end1 : down * back1);
        }
    }
}

static void pair_products(enum brim_kda_rounding m, int mid, struct chunk *c)
{
    float back = exp2f((float)mid);
    memset(c->l, 0, sizeof c->l);
    memset(c->mqk, 0, sizeof c->mqk);
    for (int r = 0; r < C; r++)
        for (int x = 0; x <= r; x++) {
            bool below = r >= SUB && x < SUB;
            const float *column = below ? c->ko[x] : c->ki[x];
            float kk = 0, qk = 0;
            for (int i = 0; i < D; i++) {
                kk += c->kd[r][i] * column[i];
                qk += c->qs[r][i] * column[i];
            }
            if (!below) kk *= back, qk *= back;
            if (x == r) { /* no decay, so none of its factors' roundings */
                qk = 0;
                for (int i = 0; i < D; i++) qk += c->q[r][i] * c->k[r][i];
            }
            c->mqk[r][x] = narrow(m, qk);
            if (x < r) c->l[r][x] = kk * c->beta[r];
        }
}

/* Without a bound, with the GPU's roundings: pairs inside a quarter of eight tokens in fp32;
 * between the quarters of a half rows count from their quarter's start, columns to their quarter's
 * end; between the halves rows from the middle, columns to it. No factor exceeds 1. */
static void quarters(struct chunk *c)
{
    memset(c->l, 0, sizeof c->l);
    memset(c->mqk, 0, sizeof c->mqk);
    for (int i = 0; i < D; i++) {
        float end0 = exp2f(c->total[0][i]), end1 = exp2f(c->total[1][i]);
        c->gamma[i] = end0 * end1;
        for (int r = 0; r < C; r++) {
            float up = exp2f(c->g[r][i]), down = exp2f(c->total[r / SUB][i] - c->g[r][i]);
            c->kd[r][i] = to_bf16(c->k[r][i] * up);
            c->qs[r][i] = to_bf16(c->q[r][i] * up);
            c->qd[r][i] = to_bf16(c->q[r][i] * up * (r < SUB ? 1 : end0));
            c->kr[r][i] = to_bf16(c->k[r][i] * down * (r < SUB ? end1 : 1));
            if (r < SUB) c->ko[r][i] = to_bf16(c->k[r][i] * down);
        }
    }
    for (int r = 0; r < C; r++)
        for (int x = 0; x <= r; x++) {
            bool same = r / QUARTER == x / QUARTER, below = r / SUB != x / SUB;
            float kk = 0, qk = 0;
            for (int i = 0; i < D; i++) {
                float k = c->kd[r][i], q = c->qs[r][i], column = below ? c->ko[x][i] : 0;
                if (same) {
                    k = c->k[r][i], q = c->q[r][i];
                    column = c->k[x][i] * exp2f(c->g[r][i] - c->g[x][i]);
                } else if (!below) {
                    float edge = c->g[r / QUARTER * QUARTER - 1][i];
                    float up = exp2f(c->g[r][i] - edge);
                    k = to_bf16(c->k[r][i] * up), q = to_bf16(c->q[r][i] * up);
                    column = to_bf16(c->k[x][i] * exp2f(edge - c->g[x][i]));
                }
                kk += k * column;
                qk += q * column;
            }
            c->mqk[r][x] = to_bf16(qk);
            if (x < r) c->l[r][x] = kk * c->beta[r];
        }
}

/* Without a bound no anchor is safe: form each pair's decay, at most 1, and the packet's factors
 * from the cumulative decay of the whole chunk. fp32 only. */
static void pairwise(struct chunk *c)
{
    memset(c->l, 0, sizeof c->l);
    memset(c->mqk, 0, sizeof c->mqk);
    for (int r = SUB; r < C; r++)
        for (int i = 0; i < D; i++) c->g[r][i] += c->total[0][i];
    for (int r = 0; r < C; r++) {
        for (int i = 0; i < D; i++) {
            float up = exp2f(c->g[r][i]);
            c->kd[r][i] = c->k[r][i] * up;
            c->qd[r][i] = c->q[r][i] * up;
            c->kr[r][i] = c->k[r][i] * exp2f(c->g[C - 1][i] - c->g[r][i]);
            c->gamma[i] = exp2f(c->g[C - 1][i]);
        }
        for (int x = 0; x <= r; x++) {
            float kk = 0, qk = 0;
            for (int i = 0; i < D; i++) {
                float column = c->k[x][i] * exp2f(c->g[r][i] - c->g[x][i]);
                kk += c->k[r][i] * column;
                qk += c->q[r][i] * column;
            }
            c->mqk[r][x] = qk;
            if (x < r) c->l[r][x] = kk * c->beta[r];
        }
    }
}

/* (I + L)^-1 by forward substitution in fp32, times beta of the column: 3e-8 off where doubling
 * schemes lose everything on repeated keys. */
static void invert(enum brim_kda_rounding m, struct chunk *c)
{
    for (int x = 0; x < C; x++)
        for (int r = 0; r < C; r++) {
            float a = r == x;
            for (int y = x; y < r; y++) a -= c->l[r][y] * c->inv[y][x];
            c->inv[r][x] = r < x ? 0 : a;
        }
    for (int r = 0; r < C; r++)
        for (int x = 0; x < C; x++) c->inv[r][x] = narrow(m, c->inv[r][x] * c->beta[x]);
}

static void solve(enum brim_kda_rounding m, bool split, struct chunk *c)
{
    for (int r = 0; r < C; r++)
        for (int i = 0; i < D; i++) {
            float w = 0, w1 = 0, z = 0;
            for (int x = 0; x <= r; x++) {
                if (split && x >= SUB)
                    w1 += c->inv[r][x] * c->kd[x][i];
                else
                    w += c->inv[r][x] * c->kd[x][i];
                z += c->inv[r][x] * c->v[x][i];
            }
            c->w[r][i] = narrow(m, w + exp2f(c->total[0][i]) * w1);
            c->z[r][i] = narrow(m, z);
        }
}

/* The recurrence's step; writes the valid rows of the output unless `quiet`. */
static void advance(enum brim_kda_rounding m, bool fine, const struct brim_kda_task *task,
                    int64_t t0, bool quiet, struct chunk *c)
{
    for (int i = 0; i < D; i++)
        for (int j = 0; j < D; j++) c->sb[i][j] = operand(m, fine, c->s[i][j]);
    for (int r = 0; r < C; r++) {
        float o[D] = {0};
        memcpy(c->u[r], c->z[r], sizeof c->u[r]);
        for (int i = 0; i < D; i++)
            for (int j = 0; j < D; j++) {
                c->u[r][j] -= c->w[r][i] * c->sb[i][j];
                o[j] += c->qd[r][i] * c->sb[i][j];
            }
        for (int j = 0; j < D; j++) c->u[r][j] = operand(m, fine, c->u[r][j]);
        for (int x = 0; x <= r; x++)
            for (int j = 0; j < D; j++) o[j] += c->mqk[r][x] * c->u[x][j];
        if (t0 + r < task->n_tok && !quiet)
            for (int j = 0; j < D; j++)
                task->out[(t0 + r) * task->out_token + j] = brim_bf16_from_f32(o[j]);
    }
    for (int i = 0; i < D; i++) {
        for (int j = 0; j < D; j++) c->s[i][j] *= c->gamma[i];
        for (int r = 0; r < C; r++)
            for (int j = 0; j < D; j++) c->s[i][j] += c->kr[r][i] * c->u[r][j];
    }
}

static double norm2(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    return sqrt(sum);
}

/* Logarithm of the better bound on the spectral norm of the chunk's map; docs/numerics.md. */
static double log_bound(const brim_kda_args *args, const struct brim_kda_task *task, int64_t t0,
                        const struct chunk *c)
{
    double by_decay = 0, by_packet = 0;
    /* comparisons, not fmax: GCC 12 for AArch64 fails on that reduction */
    for (int i = 0; i < D; i++)
        if (!(c->gamma[i] <= by_packet)) by_packet = c->gamma[i];
    for (int r = 0; r < C; r++) {
        by_packet += norm2(c->kr[r], D) * norm2(c->w[r], D);
        if (t0 + r >= task->n_tok) continue;
        double largest = -INFINITY, k = norm2(c->k[r], D);
        for (int i = 0; i < D; i++)
            largest = fmax(largest, brim_kda_log_decay(args, task, t0 + r, i));
        by_decay += c->beta[r] >= 0 && c->beta[r] * k * k <= 2 ? largest : INFINITY;
    }
    return fmin(by_decay, log(by_packet));
}

static void prepare(const brim_kda_args *args, const struct brim_kda_task *task,
                    enum brim_kda_rounding rounding, int64_t t0, struct chunk *c)
{
    bool bounded = args->lower_bound < 0;
    int mid = mid_exponent(args);

    load_rows(args, task, t0, c);
    if (bounded) {
        decay_rows(rounding, mid, c);
        pair_products(rounding, mid, c);
    } else if (rounding == BRIM_KDA_GPU) {
        quarters(c);
    } else {
        pairwise(c);
    }
    invert(rounding, c);
    solve(rounding, bounded || rounding == BRIM_KDA_GPU, c);
}

void brim_kda_chunk_range(const brim_kda_args *args, const struct brim_kda_task *task,
                          enum brim_kda_rounding rounding, const struct brim_kda_range *range,
                          void *scratch)
{
    struct chunk *c = scratch;

    memmove(c->s, range->state, sizeof c->s); /* they may be the same */
    for (int64_t i = range->begin; i < range->end; i++) {
        int64_t t0 = i * C;
        prepare(args, task, rounding, t0, c);
        if (range->log_bound) range->log_bound[i - range->begin] = log_bound(args, task, t0, c);
        if (range->norm) range->norm[i - range->begin] = norm2(&c->s[0][0], (int64_t)D * D);
        advance(rounding, range->fine, task, t0, range->quiet, c);
        int64_t done = t0 + C;
        if (task->checkpoints && done % 64 == 0 && done <= task->n_tok && !range->quiet)
            brim_kda_state_store(args, &c->s[0][0],
                                 task->checkpoints + (done / 64 - 1) * task->checkpoint_step);
    }
    memmove(range->state, c->s, sizeof c->s);
}

void brim_kda_chunk_task(const brim_kda_args *args, const struct brim_kda_task *task,
                         enum brim_kda_rounding rounding, void *scratch)
{
    float(*state)[D] = ((struct chunk *)scratch)->s;

    memset(state, 0, sizeof((struct chunk *)scratch)->s);
    if (task->initial) brim_kda_state_load(args, task->initial, &state[0][0]);
    struct brim_kda_range all = {.end = brim_kda_n_chunk(task), .state = &state[0][0]};
    if (task->n_tok) brim_kda_chunk_range(args, task, rounding, &all, scratch);
    if (task->final) brim_kda_state_store(args, &state[0][0], task->final);
}

static void kda_prepare_c(const brim_kda_args *args, const struct brim_kda_task *task,
                          int64_t chunk, int begin, int end, void *work, struct brim_kda_packet *p)
{
    struct chunk *c = work;
    (void)begin, (void)end; /* all columns */
    prepare(args, task, BRIM_KDA_FP32, chunk * C, c);
    for (int r = 0; r < C; r++)
        for (int i = 0; i < D; i++) p->w[r][i] = -c->w[r][i];
    memcpy(p->qd, c->qd, sizeof p->qd);
    memcpy(p->kr, c->kr, sizeof p->kr);
    memcpy(p->z, c->z, sizeof p->z);
    memcpy(p->mqk, c->mqk, sizeof p->mqk);
    memcpy(p->gamma, c->gamma, sizeof p->gamma);
}

/* `advance` over strips of the state. */
static void kda_advance_c(const struct brim_kda_task *task, int64_t chunk,
                          const struct brim_kda_packet *p, int begin, int end,
                          struct brim_kda_state *state)
{
    enum { STRIP = BRIM_KDA_STRIP };
    for (int j = begin; j < end; j += STRIP) {
        float(*s)[STRIP] = state->strip[j / STRIP], u[C][STRIP];
        for (int r = 0; r < C; r++) {
            float o[STRIP] = {0};
            memcpy(u[r], &p->z[r][j], sizeof u[r]);
            for (int i = 0; i < D; i++)
                for (int x = 0; x < STRIP; x++) {
                    u[r][x] += p->w[r][i] * s[i][x];
                    o[x] += p->qd[r][i] * s[i][x];
                }
            for (int y = 0; y <= r; y++)
                for (int x = 0; x < STRIP; x++) o[x] += p->mqk[r][y] * u[y][x];
            for (int x = 0; x < STRIP && chunk * C + r < task->n_tok; x++)
                task->out[(chunk * C + r) * task->out_token + j + x] = brim_bf16_from_f32(o[x]);
        }
        for (int i = 0; i < D; i++) {
            for (int x = 0; x < STRIP; x++) s[i][x] *= p->gamma[i];
            for (int r = 0; r < C; r++)
                for (int x = 0; x < STRIP; x++) s[i][x] += p->kr[r][i] * u[r][x];
        }
    }
}

void brim_cpu_init_kda_c(struct brim_cpu_ops *ops)
{
    ops->kda_prepare = kda_prepare_c;
    ops->kda_advance = kda_advance_c;
}
