/* SPDX-License-Identifier: Apache-2.0
 * Inputs and measures shared by the KDA tests on the CPU and on the GPU. A case owns exact-size
 * host buffers, so that a sanitizer sees one element too many; outputs start as NaN. */
#ifndef BRIM_CHECK_KDA_CASE_H
#define BRIM_CHECK_KDA_CASE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cpu/kda.h"
#include "tensor/dtype.h"

enum kda_regime {
    KDA_TYPICAL,      /* raw gate N(0,1) */
    KDA_WEAK,         /* -8: hardly any decay */
    KDA_SATURATED,    /* +8 */
    KDA_MIXED,        /* +8 or -8 by channel */
    KDA_ALTERNATE,    /* +8, -8 by token */
    KDA_STEP,         /* +8, -8 by chunk */
    KDA_NEVER,        /* -20 */
    KDA_FULL,         /* +20 */
    KDA_COLLINEAR,    /* one key, gate -12, beta near 1 */
    KDA_ANTIPARALLEL, /* k, -k, k, ... under a weak gate */
    KDA_ZEROS         /* rows of q, k, v that are zero, denormal or one-hot */
};

struct kda_spec {
    int64_t n_seq, n_tok, n_head, n_value_head;
    const int64_t *lengths; /* packed when not NULL; n_tok rows in all (0: their sum) */
    enum kda_regime regime;
    brim_kda_gate gate;
    float lower_bound;
    brim_kernel_dtype state_dtype;
    uint32_t flags;
    int checkpoints, offset_bytes, with_initial, f32_decay, f32_beta,
        pad;              /* pad: extra elements a row */
    int no_rate, no_bias; /* A_log, dt_bias absent */
    float scale;          /* 0: 128^-1/2 */
    uint64_t seed;
};

/* One sequence with an initial state under the gate bounded at -5, q and k normalized, beta as
 * logits. Callers change what they are about. */
static inline struct kda_spec kda_plain(int64_t n_tok, int64_t n_head, enum kda_regime regime)
{
    return (struct kda_spec){.n_seq = 1,
                             .n_tok = n_tok,
                             .n_head = n_head,
                             .n_value_head = n_head,
                             .regime = regime,
                             .gate = BRIM_KDA_GATE_LOWER_BOUND,
                             .lower_bound = -5,
                             .flags = BRIM_KDA_L2NORM | BRIM_KDA_BETA_LOGIT,
                             .with_initial = 1};
}

/* One sequence and head with every input in the test's hands: decays and beta given as f32, keys as
 * they are. */
static inline struct kda_spec kda_given(int64_t n_tok)
{
    return (struct kda_spec){.n_seq = 1,
                             .n_tok = n_tok,
                             .n_head = 1,
                             .n_value_head = 1,
                             .gate = BRIM_KDA_GATE_GIVEN,
                             .lower_bound = -5,
                             .f32_decay = 1,
                             .f32_beta = 1,
                             .with_initial = 1};
}

struct kda_case {
    brim_kda_args args;
    uint16_t *q, *k, *v, *out;
    void *g, *beta, *offsets, *initial, *final, *checkpoints;
    float *a_log, *dt_bias;
    size_t q_bytes, v_bytes, g_bytes, beta_bytes, offset_bytes, state_bytes, checkpoint_bytes;
    int64_t n_row; /* of q, k, v, g, beta and out */
};

/* N(0, 1) from a table, made once: big benchmark inputs need hundreds of millions. */
static inline double kda_normal(struct brim_rng *rng)
{
    enum { N = 8192 };
    static double table[N];
    if (table[0] == 0) {
        struct brim_rng seed = {17};
        for (int i = 0; i < N; i++) {
            double a = (brim_rng_u32(&seed) + 1.0) / 4294967297.0;
            double b = brim_rng_u32(&seed) / 4294967296.0;
            table[i] = sqrt(-2 * log(a)) * cos(6.283185307179586 * b);
        }
    }
    return table[brim_rng_u32(rng) % N];
}

static inline double kda_raw_gate(enum kda_regime regime, struct brim_rng *rng, int64_t t,
                                  int channel)
{
    switch (regime) {
    case KDA_WEAK:
    case KDA_ANTIPARALLEL:
        return -8 + 0.1 * kda_normal(rng);
    case KDA_SATURATED:
        return 8;
    case KDA_MIXED:
        return channel * 2654435761u & 64 ? 8 : -8;
    case KDA_ALTERNATE:
        return t & 1 ? 8 : -8;
    case KDA_STEP:
        return t / 32 & 1 ? 8 : -8;
    case KDA_NEVER:
        return -20;
    case KDA_FULL:
        return 20;
    case KDA_COLLINEAR:
        return -12;
    default:
        return kda_normal(rng);
    }
}

static inline void *kda_alloc(size_t n_bytes)
{
    void *block = malloc(n_bytes ? n_bytes : 1);
    if (!block) abort();
    return block;
}

static inline void kda_case_make(struct kda_case *c, const struct kda_spec *spec)
{
    struct brim_rng rng = {spec->seed * 977 + 5};
    brim_kda_args *a = &c->args;
    memset(c, 0, sizeof *c);
    brim_kda_args_init(a);
    int64_t rows = spec->n_seq * spec->n_tok, sum = 0, longest = 0, h = spec->n_head,
            hv = spec->n_value_head;
    if (spec->lengths) {
        for (int64_t i = 0; i < spec->n_seq; i++) {
            sum += spec->lengths[i];
            if (spec->lengths[i] > longest) longest = spec->lengths[i];
        }
        rows = spec->n_tok ? spec->n_tok : sum;
    }
    c->n_row = rows;
    int64_t q_token = h * 128 + spec->pad, v_token = hv * 128 + spec->pad,
            beta_token = hv + spec->pad;
    c->q_bytes = (size_t)(rows * q_token) * 2;
    c->v_bytes = (size_t)(rows * v_token) * 2;
    c->g_bytes = c->v_bytes * (spec->f32_decay ? 2 : 1);
    c->beta_bytes = (size_t)(rows * beta_token) * (spec->f32_beta ? 4 : 2);
    c->q = kda_alloc(c->q_bytes);
    c->k = kda_alloc(c->q_bytes);
    c->v = kda_alloc(c->v_bytes);
    c->out = kda_alloc(c->v_bytes);
    c->g = kda_alloc(c->g_bytes);
    c->beta = kda_alloc(c->beta_bytes);
    memset(c->out, 0xFF, c->v_bytes);
    memset(c->q, 0xFF, c->q_bytes); /* padding stays NaN */
    memset(c->k, 0xFF, c->q_bytes);
    memset(c->v, 0xFF, c->v_bytes);
    memset(c->g, 0xFF, c->g_bytes);
    memset(c->beta, 0xFF, c->beta_bytes);
    float *base = kda_alloc((size_t)h * 128 * sizeof(float));
    for (int64_t i = 0; i < h * 128; i++) base[i] = (float)kda_normal(&rng);
    for (int64_t t = 0; t < rows; t++) {
        bool dead = spec->regime == KDA_ZEROS && t % 3 == 0;
        for (int64_t i = 0; i < h * 128; i++) {
            double k = kda_normal(&rng), q = kda_normal(&rng);
            if (spec->regime == KDA_COLLINEAR) k = base[i];
            if (spec->regime == KDA_ANTIPARALLEL) k = t & 1 ? -base[i] : base[i];
            if (dead)
                q = t % 2 ? 0 : q, k = t % 4 == 0 ? 0 : t % 4 == 1 ? k * 1e-39 : i % 128 == t % 128;
            if (!(spec->flags & BRIM_KDA_L2NORM)) k /= 11.3, q /= 11.3;
            c->q[t * q_token + i] = brim_bf16_from_f32((float)q);
            c->k[t * q_token + i] = brim_bf16_from_f32((float)k);
        }
        for (int64_t i = 0; i < hv * 128; i++) {
            c->v[t * v_token + i] =
                brim_bf16_from_f32(dead && t % 5 == 0 ? 0 : (float)kda_normal(&rng));
            double g = kda_raw_gate(spec->regime, &rng, t, (int)(i % 128));
            if (spec->gate == BRIM_KDA_GATE_GIVEN)
                g = (spec->lower_bound < 0 ? spec->lower_bound : -9) / (1 + exp(-g));
            if (spec->f32_decay)
                ((float *)c->g)[t * v_token + i] = (float)g;
            else
                ((uint16_t *)c->g)[t * v_token + i] = brim_bf16_from_f32((float)g);
        }
        for (int64_t i = 0; i < hv; i++) {
            double b = spec->regime == KDA_COLLINEAR ? 8
                       : spec->regime == KDA_ZEROS   ? (t & 1 ? 40 : -40)
                                                     : kda_normal(&rng);
            if (!(spec->flags & BRIM_KDA_BETA_LOGIT)) b = 1 / (1 + exp(-b));
            if (spec->f32_beta)
                ((float *)c->beta)[t * beta_token + i] = (float)b;
            else
                ((uint16_t *)c->beta)[t * beta_token + i] = brim_bf16_from_f32((float)b);
        }
    }
    free(base);
    a->device = BRIM_KERNEL_CPU;
    a->n_seq = spec->n_seq;
    a->n_tok = spec->lengths ? rows : spec->n_tok;
    a->n_head = h;
    a->n_value_head = hv;
    a->gate = spec->gate;
    a->lower_bound = spec->lower_bound;
    a->flags = spec->flags;
    a->q = c->q, a->k = c->k, a->v = c->v, a->g = c->g, a->beta = c->beta, a->out = c->out;
    a->q_stride = a->k_stride = (brim_kda_stride){spec->n_tok * q_token, q_token, 128};
    a->v_stride = a->g_stride = a->out_stride =
        (brim_kda_stride){spec->n_tok * v_token, v_token, 128};
    a->beta_stride = (brim_kda_stride){spec->n_tok * beta_token, beta_token, 1};
    a->g_dtype = spec->f32_decay ? BRIM_KERNEL_F32 : BRIM_KERNEL_BF16;
    a->beta_dtype = spec->f32_beta ? BRIM_KERNEL_F32 : BRIM_KERNEL_BF16;
    if (spec->gate != BRIM_KDA_GATE_GIVEN) {
        c->a_log = kda_alloc((size_t)hv * 4);
        c->dt_bias = kda_alloc((size_t)hv * 512);
        for (int64_t i = 0; i < hv; i++) c->a_log[i] = 0.3f * (float)kda_normal(&rng);
        for (int64_t i = 0; i < hv * 128; i++) c->dt_bias[i] = 0.2f * (float)kda_normal(&rng);
        a->a_log = spec->no_rate ? NULL : c->a_log;
        a->dt_bias = spec->no_bias ? NULL : c->dt_bias;
    }
    if (spec->scale != 0) a->scale = spec->scale;
    if (spec->lengths) {
        a->offset_bytes = spec->offset_bytes ? spec->offset_bytes : 8;
        a->max_tok = longest;
        c->offset_bytes = (size_t)(spec->n_seq + 1) * (size_t)a->offset_bytes;
        c->offsets = kda_alloc(c->offset_bytes);
        sum = 0;
        for (int64_t i = 0; i <= spec->n_seq; i++) {
            if (a->offset_bytes == 4)
                ((int32_t *)c->offsets)[i] = (int32_t)sum;
            else
                ((int64_t *)c->offsets)[i] = sum;
            if (i < spec->n_seq) sum += spec->lengths[i];
        }
        a->cu_seqlens = c->offsets;
    }
    a->state_dtype = spec->state_dtype ? spec->state_dtype : BRIM_KERNEL_F32;
    size_t element = a->state_dtype == BRIM_KERNEL_F32 ? 4 : 2;
    int64_t n_state = spec->n_seq * hv * 16384;
    c->state_bytes = (size_t)n_state * element;
    a->state_stride = hv * 16384;
    c->final = kda_alloc(c->state_bytes);
    memset(c->final, 0xFF, c->state_bytes);
    a->final_state = c->final;
    if (spec->with_initial) {
        c->initial = kda_alloc(c->state_bytes);
        for (int64_t i = 0; i < n_state; i++) {
            float x = 0.3f * (float)kda_normal(&rng);
            if (element == 4)
                ((float *)c->initial)[i] = x;
            else
                ((uint16_t *)c->initial)[i] = brim_bf16_from_f32(x);
        }
        a->initial_state = c->initial;
    }
    if (spec->checkpoints) {
        int64_t n = spec->lengths ? rows / 64 : spec->n_seq * (spec->n_tok / 64);
        c->checkpoint_bytes = (size_t)(n * hv * 16384) * element;
        c->checkpoints = kda_alloc(c->checkpoint_bytes);
        memset(c->checkpoints, 0xFF, c->checkpoint_bytes);
        a->checkpoints = c->checkpoints;
    }
}

static inline void kda_case_free(struct kda_case *c)
{
    void *blocks[] = {c->q,       c->k,       c->v,     c->out,         c->g,     c->beta,
                      c->offsets, c->initial, c->final, c->checkpoints, c->a_log, c->dt_bias};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) free(blocks[i]);
    memset(c, 0, sizeof *c);
}

/* Root-mean-square error ratios of one task. window: the worst 32 tokens, each element's reference
 * counted as at least 1/8 of its span; peak: an element's error over the root mean square of its
 * window. */
struct kda_error {
    double out, window, state, peak;
    bool finite;
};

static inline struct kda_error kda_measure(const brim_kda_args *args, int64_t seq, int64_t head)
{
    struct kda_error e = {0, 0, 0, 0, true};
    struct brim_kda_task task;
    brim_kda_task_make(args, seq, head, &task);
    size_t n = (size_t)task.n_tok * 128 + 1;
    double *out = kda_alloc(n * 8), *span = kda_alloc(n * 8), *state = kda_alloc(16384 * 8);
    float *got = kda_alloc(16384 * 4);
    if (brim_kda_ref_task(args, &task, true, out, span, state, NULL) != BRIM_OK) abort();
    double err = 0, ref = 0, werr = 0, wref = 0, largest = 0;
    for (int64_t t = 0; t < task.n_tok; t++) {
        for (int j = 0; j < 128; j++) {
            double want = out[t * 128 + j], floor = span[t * 128 + j] / 8;
            double d = brim_f32_from_bf16(task.out[t * task.out_token + j]) - want;
            if (!isfinite(d)) e.finite = false;
            err += d * d;
            ref += want * want;
            werr += d * d;
            wref += fmax(want * want, floor * floor);
            largest = fmax(largest, fabs(d));
        }
        if (t % 32 == 31 || t == task.n_tok - 1) {
            double mean = wref / (double)(128 * (t % 32 + 1));
            e.window = fmax(e.window, wref > 0 ? sqrt(werr / wref) : werr > 0 ? INFINITY : 0);
            e.peak = fmax(e.peak, wref > 0 ? largest / sqrt(mean) : werr > 0 ? INFINITY : 0);
            werr = wref = largest = 0;
        }
    }
    e.out = ref > 0 ? sqrt(err / ref) : err > 0 ? INFINITY : 0;
    if (task.final) {
        brim_kda_state_load(args, task.final, got);
        err = ref = 0;
        for (int i = 0; i < 16384; i++) {
            double d = got[i] - state[i];
            if (!isfinite(d)) e.finite = false;
            err += d * d;
            ref += state[i] * state[i];
        }
        e.state = ref > 0 ? sqrt(err / ref) : err > 0 ? INFINITY : 0;
    }
    free(out), free(span), free(state), free(got);
    return e;
}

/* The bars of the whole task: 5e-3 for typical and saturated gates, 8e-3 for weak and mixed, 5e-2
 * for collinear keys; windows and short sequences, their states too, 8e-3 (5e-2 collinear). An
 * element may be off by twelve times as much: outputs are rounded to bf16, and some are several
 * times the root mean square of their window. */
static inline bool kda_within(const struct kda_error *e, enum kda_regime regime, int64_t n_tok)
{
    bool collinear = regime == KDA_COLLINEAR || regime == KDA_ANTIPARALLEL;
    bool tight = regime == KDA_TYPICAL || regime == KDA_SATURATED || regime == KDA_FULL;
    double bar = collinear ? 5e-2 : tight ? 5e-3 : 8e-3, short_bar = collinear ? 5e-2 : 8e-3;
    if (!e->finite || e->window > short_bar || e->peak > 12 * short_bar) return false;
    if (n_tok < 32) return e->state <= short_bar;
    return e->out <= bar && e->state <= bar;
}

#endif
