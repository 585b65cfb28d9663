/* SPDX-License-Identifier: Apache-2.0
 * KDA over chunks of 32 tokens in fp32: preparation and the recurrence's step (docs/kernels/
 * kda_prefill.md, "CPU"). The including file has included its tier's vec_*.h (v16: elementwise work
 * on sixteen floats) and defines LANES, VEC, LOAD, STORE, SET1, MUL and FMA (a * b + c) for the
 * products; it calls init_kda_vec. A product keeps eight sums alive; with LANES of two registers
 * that is 16 of AArch64's 32. No decay factor exceeds 1, so one form serves every gate: decays are
 * products of the tokens' own, never quotients. A column's sums do not depend on which other
 * columns are computed beside it, nor on where they are computed. */
#include <math.h>
#include <string.h>

#include "cpu/cpu_ops.h"
#include "cpu/kda.h"
#include "cpu/unroll.h"
#include "cpu/vec_exp.h"
#include "tensor/dtype.h"

enum {
    C = BRIM_KDA_CHUNK,
    SUB = BRIM_KDA_SUB,
    D = 128,
    STRIP = BRIM_KDA_STRIP,
    PARTS = STRIP / LANES, /* vectors of a row of a strip */
    ROWS = 4 / PARTS       /* rows of a product over the state: times PARTS times 2 eight sums */
};

struct work {
    float q[C][D], k[C][D], v[C][D];   /* normalized; q scaled; rows past the end are zero */
    float d[C][D];                     /* the token's decay, 2^g */
    float kd[C][D], qs[C][D];          /* k and q decayed from the start of their half of 16 */
    float before[D][SUB], own[D][SUB]; /* columns of pairs by channel: of the first half, decayed to
                                          its end; of a half with itself */
    float half[D];                     /* decay of the first half */
    float l[C][C], inv[C][C], beta[C], qk[C];
};

_Static_assert(sizeof(struct work) <= BRIM_KDA_WORK_BYTES, "work of the vector tiers");

/* Rows of a chunk that are computed: those of the sequence, up to a multiple of what the products
 * take together. */
static inline int rows_of(const struct brim_kda_task *task, int64_t chunk)
{
    int64_t n = task->n_tok - chunk * C;
    return n < C ? (int)(n + 3) / 4 * 4 : C;
}

/* 2^x to about 1 ulp for x from -126 to 127; below that 0, above inf; NaN stays NaN. */
static inline v16 exp2_16(v16 x)
{
    v16 magic = v16_set1(BRIM_EXP_MAGIC), t = v16_add(x, magic);
    v16 r = v16_sub(x, v16_sub(t, magic)), p = v16_set1(1.5353362e-4f);
    p = v16_fma(p, r, v16_set1(1.3398874e-3f));
    p = v16_fma(p, r, v16_set1(9.6184373e-3f));
    p = v16_fma(p, r, v16_set1(5.5503324e-2f));
    p = v16_fma(p, r, v16_set1(2.4022648e-1f));
    p = v16_fma(p, r, v16_set1(6.9314720e-1f));
    p = v16_fma(p, r, v16_set1(1.0f));
    p = v16_zero_if_less(x, -126, v16_add_exponent(p, t));
    return v16_other_unless_le(x, 127, p, v16_add(x, v16_set1(INFINITY)));
}

/* log2(1 + 2^y) = max(y, 0) + log2(1 + u), u = 2^-|y|, and log(1 + u) = 2 atanh(u / (2 + u)): the
 * series' next term is 2^-26 of the sum at u = 1, and small u keep all their bits. */
static inline v16 softplus2(v16 y)
{
    v16 zero = v16_zero(), u = exp2_16(v16_sub(zero, v16_max(v16_sub(zero, y), y)));
    v16 s = v16_div(u, v16_add(v16_set1(2), u)), s2 = v16_mul(s, s), p = v16_set1(1.0f / 13);
    p = v16_fma(p, s2, v16_set1(1.0f / 11));
    p = v16_fma(p, s2, v16_set1(1.0f / 9));
    p = v16_fma(p, s2, v16_set1(1.0f / 7));
    p = v16_fma(p, s2, v16_set1(1.0f / 5));
    p = v16_fma(p, s2, v16_set1(1.0f / 3));
    p = v16_fma(p, s2, v16_set1(1.0f));
    return v16_fma(v16_mul(p, s), v16_set1(2.88539008f), v16_max(zero, y));
}

/* Decays 2^g of token t. Infinite decays are 2^-inf = 0 like all below 2^-126. */
static void load_decays(const brim_kda_args *args, const struct brim_kda_task *task, int64_t t,
                        float *d)
{
    const float log2e = 1.44269504f;
    float raw[D];
    if (args->g_dtype == BRIM_KERNEL_F32)
        memcpy(raw, (const float *)task->g + t * task->g_token, sizeof raw);
    else
        for (int i = 0; i < D; i++)
            raw[i] = brim_f32_from_bf16(((const uint16_t *)task->g)[t * task->g_token + i]);
    for (int i = 0; i < D; i += 16) {
        v16 x = v16_load(&raw[i]);
        if (task->bias && args->gate != BRIM_KDA_GATE_GIVEN)
            x = v16_add(x, v16_load(&task->bias[i]));
        if (args->gate == BRIM_KDA_GATE_LOWER_BOUND) {
            x = exp2_16(v16_mul(x, v16_set1(-task->a_scale * log2e)));
            x = v16_div(v16_set1(args->lower_bound * log2e), v16_add(v16_set1(1), x));
        } else if (args->gate == BRIM_KDA_GATE_SOFTPLUS) {
            x = v16_mul(softplus2(v16_mul(x, v16_set1(log2e))), v16_set1(-task->a_scale));
        } else {
            x = v16_mul(x, v16_set1(log2e));
        }
        v16_store(&d[i], exp2_16(x));
    }
}

static void load_row(const brim_kda_args *args, const struct brim_kda_task *task, int64_t t, int r,
                     struct work *c)
{
    const uint16_t *q = task->q + t * task->q_token, *k = task->k + t * task->k_token;
    v16 qq = v16_zero(), kk = qq, qk = qq;
    float by_q = args->scale, by_k = 1;
    for (int i = 0; i < D; i++) {
        c->q[r][i] = brim_f32_from_bf16(q[i]);
        c->k[r][i] = brim_f32_from_bf16(k[i]);
    }
    for (int i = 0; i < D; i += 16) {
        v16 x = v16_load(&c->q[r][i]), y = v16_load(&c->k[r][i]);
        qq = v16_fma(x, x, qq);
        kk = v16_fma(y, y, kk);
    }
    if (args->flags & BRIM_KDA_L2NORM) {
        by_q *= 1 / sqrtf(v16_sum(qq) + 1e-6f);
        by_k = 1 / sqrtf(v16_sum(kk) + 1e-6f);
    }
    for (int i = 0; i < D; i += 16) {
        v16 x = v16_mul(v16_load(&c->q[r][i]), v16_set1(by_q));
        v16 y = v16_mul(v16_load(&c->k[r][i]), v16_set1(by_k));
        qk = v16_fma(x, y, qk);
        v16_store(&c->q[r][i], x);
        v16_store(&c->k[r][i], y);
    }
    c->qk[r] = v16_sum(qk);
    c->beta[r] = (float)brim_kda_beta(args, task, t);
    load_decays(args, task, t, c->d[r]);
}

static void load_rows(const brim_kda_args *args, const struct brim_kda_task *task, int64_t t0,
                      int n_row, int begin, int end, struct work *c)
{
    for (int r = 0; r < n_row; r++) {
        int64_t t = t0 + r;
        if (t < task->n_tok) {
            const uint16_t *v = task->v + t * task->v_token;
            load_row(args, task, t, r, c);
            for (int i = begin; i < end; i++) c->v[r][i] = brim_f32_from_bf16(v[i]);
        } else { /* no keys, no decay, no weight: such a row changes nothing */
            memset(c->q[r], 0, sizeof c->q[r]);
            memset(c->k[r], 0, sizeof c->k[r]);
            memset(c->v[r], 0, sizeof c->v[r]);
            for (int i = 0; i < D; i++) c->d[r][i] = 1;
            c->beta[r] = c->qk[r] = 0;
        }
    }
}

/* Products of decays from the start of a half and to its end; the packet's rows. */
static void decay_rows(int n_row, struct work *c, struct brim_kda_packet *p)
{
    for (int i = 0; i < D; i += 16) {
        v16 half = v16_set1(1), up = half;
        for (int r = 0; r < n_row; r++) {
            if (r == SUB) half = up, up = v16_set1(1);
            up = v16_mul(up, v16_load(&c->d[r][i]));
            v16 q = v16_mul(v16_load(&c->q[r][i]), up);
            v16_store(&c->qs[r][i], q);
            v16_store(&c->kd[r][i], v16_mul(v16_load(&c->k[r][i]), up));
            v16_store(&p->qd[r][i], r < SUB ? q : v16_mul(q, half));
        }
        if (n_row <= SUB) half = up, up = v16_set1(1);
        v16_store(&c->half[i], half);
        v16_store(&p->gamma[i], v16_mul(half, up));
        v16 last = up, down = v16_set1(1);
        for (int r = n_row - 1; r >= 0; r--) {
            if (r == SUB - 1) down = v16_set1(1);
            v16 k = v16_mul(v16_load(&c->k[r][i]), down);
            down = v16_mul(down, v16_load(&c->d[r][i]));
            v16_store(&p->kr[r][i], r < SUB ? v16_mul(k, last) : k);
            if (r < SUB) v16_store(&c->own[0][0] + r * D + i, k);
        }
    }
    for (int i = 0; i < D && n_row > SUB; i++)
        for (int x = 0; x < SUB; x++) c->before[i][x] = (&c->own[0][0])[x * D + i];
}

/* Rows r .. r + 3 of the second half against the columns of the first. */
static void pairs_across(int r, struct work *c, struct brim_kda_packet *p)
{
    for (int x = 0; x < SUB; x += LANES) {
        VEC k[4], q[4];
        BRIM_UNROLL for (int a = 0; a < 4; a++) k[a] = q[a] = SET1(0);
        for (int i = 0; i < D; i++) {
            VEC column = LOAD(&c->before[i][x]);
            BRIM_UNROLL for (int a = 0; a < 4; a++)
            {
                k[a] = FMA(SET1(c->kd[r + a][i]), column, k[a]);
                q[a] = FMA(SET1(c->qs[r + a][i]), column, q[a]);
            }
        }
        BRIM_UNROLL for (int a = 0; a < 4; a++)
        {
            STORE(&c->l[r + a][x], k[a]);
            STORE(&p->mqk[r + a][x], q[a]);
        }
    }
}

/* Rows r and r + 1 (r even) against the earlier rows x of their half: column x of channel i is k_x
 * times the decays since, brought up to date from row to row; a row enters it after its own
 * products. */
static void pairs_within(int r, struct work *c, struct brim_kda_packet *p)
{
    float unit[2 * SUB + 2] = {0};
    int first = r / SUB * SUB, n = r - first;
    unit[SUB] = 1;
    for (int x = 0; x < SUB; x += LANES) {
        VEC k0 = SET1(0), q0 = k0, k1 = k0, q1 = k0;
        VEC enter0 = LOAD(&unit[SUB - n + x]), enter1 = LOAD(&unit[SUB - n - 1 + x]);
        for (int i = 0; i < D && x <= n; i++) {
            VEC column = MUL(LOAD(&c->own[i][x]), SET1(c->d[r][i]));
            k0 = FMA(SET1(c->k[r][i]), column, k0);
            q0 = FMA(SET1(c->q[r][i]), column, q0);
            column = FMA(SET1(c->k[r][i]), enter0, column);
            column = MUL(column, SET1(c->d[r + 1][i]));
            k1 = FMA(SET1(c->k[r + 1][i]), column, k1);
            q1 = FMA(SET1(c->q[r + 1][i]), column, q1);
            STORE(&c->own[i][x], FMA(SET1(c->k[r + 1][i]), enter1, column));
        }
        STORE(&c->l[r][first + x], k0);
        STORE(&c->l[r + 1][first + x], k1);
        STORE(&p->mqk[r][first + x], q0);
        STORE(&p->mqk[r + 1][first + x], q1);
    }
    p->mqk[r][r] = c->qk[r];
    p->mqk[r + 1][r + 1] = c->qk[r + 1];
}

static void pairs(int n_row, struct work *c, struct brim_kda_packet *p)
{
    for (int r = 0; r < n_row; r += 2) {
        if (r % SUB == 0) memset(c->own, 0, sizeof c->own);
        pairs_within(r, c, p);
    }
    for (int r = SUB; r < n_row; r += 4) pairs_across(r, c, p);
}

/* (I + L)^-1 by forward substitution, times beta of the column. */
static void invert(int n_row, struct work *c)
{
    for (int r = 0; r < n_row; r++) {
        VEC row[C / LANES];
        BRIM_UNROLL for (int x = 0; x < C / LANES; x++) row[x] = SET1(0);
        for (int y = 0; y < r; y++) {
            VEC f = SET1(-c->beta[r] * c->l[r][y]);
            BRIM_UNROLL for (int x = 0; x < C / LANES; x++) row[x] =
                FMA(f, LOAD(&c->inv[y][x * LANES]), row[x]);
        }
        BRIM_UNROLL for (int x = 0; x < C / LANES; x++) STORE(&c->inv[r][x * LANES], row[x]);
        c->inv[r][r] = 1;
    }
    for (int r = 0; r < n_row; r++)
        for (int x = 0; x <= r; x++) c->inv[r][x] *= c->beta[x];
}

/* W = INV kd, where the rows of the second half still count from the middle, and Z = INV V of
 * columns [begin, end). */
static void solve(int n_row, int begin, int end, struct work *c, struct brim_kda_packet *p)
{
    for (int r = 0; r < n_row; r++)
        for (int j = 0; j < D; j += LANES) {
            VEC w = SET1(0), own = w;
            for (int x = 0; x <= r && x < SUB; x++)
                w = FMA(SET1(c->inv[r][x]), LOAD(&c->kd[x][j]), w);
            for (int x = SUB; x <= r; x++) own = FMA(SET1(c->inv[r][x]), LOAD(&c->kd[x][j]), own);
            STORE(&p->w[r][j], MUL(SET1(-1), FMA(LOAD(&c->half[j]), own, w)));
        }
    for (int r = 0; r < n_row; r++)
        for (int j = begin; j < end; j += LANES) {
            VEC z = SET1(0);
            for (int x = 0; x <= r; x++) z = FMA(SET1(c->inv[r][x]), LOAD(&c->v[x][j]), z);
            STORE(&p->z[r][j], z);
        }
}

static void prepare_vec(const brim_kda_args *args, const struct brim_kda_task *task, int64_t chunk,
                        int begin, int end, void *work, struct brim_kda_packet *p)
{
    struct work *c = work;
    int n_row = rows_of(task, chunk);
    load_rows(args, task, chunk * C, n_row, begin, end, c);
    decay_rows(n_row, c, p);
    pairs(n_row, c, p);
    invert(n_row, c);
    solve(n_row, begin, end, c, p);
}

/* ---- the recurrence ---------------------------------------------------------------------------
 */

struct strip_rows {
    float u[C][STRIP], o[C][STRIP];
};

/* U = Z - W S and O = qd S of ROWS rows. */
static inline void read_state(const struct brim_kda_packet *p, int r, int column,
                              const float (*s)[STRIP], struct strip_rows *rows)
{
    VEC u[ROWS][PARTS], o[ROWS][PARTS];
    BRIM_UNROLL for (int a = 0; a < ROWS; a++) BRIM_UNROLL for (int b = 0; b < PARTS; b++)
    {
        u[a][b] = LOAD(&p->z[r + a][column + b * LANES]);
        o[a][b] = SET1(0);
    }
    for (int i = 0; i < D; i++) {
        VEC state[PARTS];
        BRIM_UNROLL for (int b = 0; b < PARTS; b++) state[b] = LOAD(&s[i][b * LANES]);
        BRIM_UNROLL for (int a = 0; a < ROWS; a++)
        {
            VEC w = SET1(p->w[r + a][i]), q = SET1(p->qd[r + a][i]);
            BRIM_UNROLL for (int b = 0; b < PARTS; b++)
            {
                u[a][b] = FMA(w, state[b], u[a][b]);
                o[a][b] = FMA(q, state[b], o[a][b]);
            }
        }
    }
    BRIM_UNROLL for (int a = 0; a < ROWS; a++) BRIM_UNROLL for (int b = 0; b < PARTS; b++)
    {
        STORE(&rows->u[r + a][b * LANES], u[a][b]);
        STORE(&rows->o[r + a][b * LANES], o[a][b]);
    }
}

/* O += Mqk U, each row over the rows up to its own alone. */
static inline void add_own(const struct brim_kda_packet *p, int n_row, struct strip_rows *rows)
{
    for (int r = 0; r < n_row; r++) {
        VEC o[PARTS];
        BRIM_UNROLL for (int b = 0; b < PARTS; b++) o[b] = LOAD(&rows->o[r][b * LANES]);
        for (int x = 0; x <= r; x++) {
            VEC f = SET1(p->mqk[r][x]);
            BRIM_UNROLL for (int b = 0; b < PARTS; b++) o[b] =
                FMA(f, LOAD(&rows->u[x][b * LANES]), o[b]);
        }
        BRIM_UNROLL for (int b = 0; b < PARTS; b++) STORE(&rows->o[r][b * LANES], o[b]);
    }
}

/* S <- gamma S + kr^T U of 2 ROWS channels. */
static inline void update_state(const struct brim_kda_packet *p, int n_row, int i,
                                float (*s)[STRIP], const struct strip_rows *rows)
{
    VEC state[2 * ROWS][PARTS];
    BRIM_UNROLL for (int a = 0; a < 2 * ROWS; a++) BRIM_UNROLL for (int b = 0; b < PARTS; b++)
        state[a][b] = MUL(SET1(p->gamma[i + a]), LOAD(&s[i + a][b * LANES]));
    for (int r = 0; r < n_row; r++) {
        VEC u[PARTS];
        BRIM_UNROLL for (int b = 0; b < PARTS; b++) u[b] = LOAD(&rows->u[r][b * LANES]);
        BRIM_UNROLL for (int a = 0; a < 2 * ROWS; a++)
        {
            VEC k = SET1(p->kr[r][i + a]);
            BRIM_UNROLL for (int b = 0; b < PARTS; b++) state[a][b] = FMA(k, u[b], state[a][b]);
        }
    }
    BRIM_UNROLL for (int a = 0; a < 2 * ROWS; a++) BRIM_UNROLL for (int b = 0; b < PARTS; b++)
        STORE(&s[i + a][b * LANES], state[a][b]);
}

static void advance_vec(const struct brim_kda_task *task, int64_t chunk,
                        const struct brim_kda_packet *p, int begin, int end,
                        struct brim_kda_state *state)
{
    int n_row = rows_of(task, chunk);
    for (int j = begin; j < end; j += STRIP) {
        float(*s)[STRIP] = state->strip[j / STRIP];
        struct strip_rows rows;
        for (int r = 0; r < n_row; r += ROWS) read_state(p, r, j, (const float(*)[STRIP])s, &rows);
        add_own(p, n_row, &rows);
        for (int r = 0; r < C && chunk * C + r < task->n_tok; r++) {
            uint16_t *out = task->out + (chunk * C + r) * task->out_token + j;
            for (int x = 0; x < STRIP; x++) out[x] = brim_bf16_from_f32(rows.o[r][x]);
        }
        for (int i = 0; i < D; i += 2 * ROWS) update_state(p, n_row, i, s, &rows);
    }
}

static void init_kda_vec(struct brim_cpu_ops *ops)
{
    ops->kda_prepare = prepare_vec;
    ops->kda_advance = advance_vec;
}
