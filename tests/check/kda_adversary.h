/* SPDX-License-Identifier: Apache-2.0
 * Inputs made to break a split KDA sequence, from a seed alone: gates that change sides, keys that
 * carry the state between channels, windows that write little, states that are huge. A search over
 * seeds (search/search_kda_split.c) keeps the worst in golden/kda_split_seeds.txt, which the tests
 * of the CPU's model and of the GPU's route replay. */
#ifndef BRIM_CHECK_KDA_ADVERSARY_H
#define BRIM_CHECK_KDA_ADVERSARY_H

#include "check/kda_case.h"

struct kda_adversary {
    struct kda_case c;
    int length, window; /* of the split */
};

static inline float kda_pick(struct brim_rng *rng, const float *list, int n)
{
    return list[brim_rng_u32(rng) % (uint32_t)n];
}

static inline void kda_adversary_gates(struct brim_rng *rng, float *g, int64_t n_tok)
{
    static const float decays[] = {0, -1e-4f, -1e-2f, -0.1f, -0.5f, -1, -2.5f, -5};
    float side[2] = {kda_pick(rng, decays, 8), kda_pick(rng, decays, 8)};
    float strong = -1.5f - 3.5f * brim_rng_uniform(rng);
    int kind = (int)(brim_rng_u32(rng) % 6), group = 1 << brim_rng_u32(rng) % 7;
    int period = 1 << brim_rng_u32(rng) % 6, shift = (int)(brim_rng_u32(rng) % 32);
    int weak = (int)(brim_rng_u32(rng) % 128), n_weak = 1 << brim_rng_u32(rng) % 4;
    for (int64_t t = 0; t < n_tok; t++)
        for (int i = 0; i < 128; i++) {
            float x = strong;
            bool odd = (t + shift) / period % 2, upper = i / group % 2;
            if (kind == 0) x = upper ? side[0] : side[1];
            if (kind == 1) x = odd == upper ? -5 : 0;
            if (kind == 2) x = -5 * brim_rng_uniform(rng);
            if (kind == 3) x = odd ? side[0] : -5;
            if (kind == 4 && (i - weak + 128) % 128 < n_weak) x = side[0] / 8;
            if (kind == 5) x = odd == upper ? strong : side[1] / 16;
            g[t * 128 + i] = x;
        }
}

static inline void kda_adversary_keys(struct brim_rng *rng, uint16_t *k, float *beta, int64_t n_tok)
{
    int kind = (int)(brim_rng_u32(rng) % 5), period = 1 << brim_rng_u32(rng) % 5;
    int stride = 1 << brim_rng_u32(rng) % 7, first = (int)(brim_rng_u32(rng) % 128);
    static const float betas[] = {0.5f, 0.9f, 0.99f, 1, 1.5f, 1.95f},
                       sizes[] = {1, 1, 1, 0.5f, 1.2f};
    float b = kda_pick(rng, betas, 6), size = kda_pick(rng, sizes, 5), one[128];
    double norm = 0;
    for (int i = 0; i < 128; i++) one[i] = (float)kda_normal(rng), norm += one[i] * one[i];
    for (int i = 0; i < 128; i++) one[i] /= (float)sqrt(norm);
    for (int64_t t = 0; t < n_tok; t++) {
        float row[128] = {0};
        bool now = t % period == period - 1;
        if (kind == 0 || (kind == 3 && !now)) {
            norm = 0;
            for (int i = 0; i < 128; i++) row[i] = (float)kda_normal(rng), norm += row[i] * row[i];
            for (int i = 0; i < 128; i++) row[i] /= (float)sqrt(norm);
        }
        if (kind == 1 && now) row[first] = row[(first + stride) % 128] = 0.70710678f;
        if (kind == 2) memcpy(row, one, sizeof row);
        if (kind == 3 && now) row[first] = row[(first + stride) % 128] = 0.70710678f;
        if (kind == 4)
            row[(first + t * stride) % 128] = row[(first + (t + 1) * stride) % 128] = 0.70710678f;
        for (int i = 0; i < 128; i++) k[t * 128 + i] = brim_bf16_from_f32(size * row[i]);
        beta[t] = kind == 1 && !now ? 0 : kind == 0 ? brim_rng_uniform(rng) : b;
        if (beta[t] * size * size > 1.98f) beta[t] = 1.98f / (size * size);
    }
}

static inline void kda_adversary_make(struct kda_adversary *a, uint64_t seed)
{
    struct brim_rng rng;
    brim_rng_seed(&rng, seed * 2654435761u + 17);
    struct kda_spec spec = kda_given(96 + 16 * (int64_t)(brim_rng_u32(&rng) % 9));
    spec.seed = seed;
    kda_case_make(&a->c, &spec);
    a->length = 1 + (int)(brim_rng_u32(&rng) % 3);
    a->window = 1 + (int)(brim_rng_u32(&rng) % (uint32_t)a->length);
    kda_adversary_gates(&rng, a->c.g, spec.n_tok);
    kda_adversary_keys(&rng, a->c.k, a->c.beta, spec.n_tok);
    static const float initials[] = {0, 1, 1, 1e3f, 1e6f}, sizes[] = {1, 1, 1e-3f, 1e-6f, 0};
    float initial = kda_pick(&rng, initials, 5), v = kda_pick(&rng, sizes, 5);
    int64_t from = brim_rng_u32(&rng) % (uint32_t)spec.n_tok; /* where v takes that size */
    for (int i = 0; i < 16384; i++) ((float *)a->c.initial)[i] *= initial;
    for (int64_t i = from * 128; i < spec.n_tok * 128; i++)
        a->c.v[i] = brim_bf16_from_f32(v * brim_f32_from_bf16(a->c.v[i]));
}

/* Has the final state faded below 2^-24 of the largest it was? Then what a cut may drop, 2^-24 of
 * the state at that place, can be all that is left: no relative accuracy is promised of it. */
static inline bool kda_adversary_faded(const struct kda_adversary *a,
                                       const struct brim_kda_task *task, void *scratch)
{
    double norm[16] = {0}, largest = 0, last = 0;
    float *state = kda_alloc(16384 * sizeof *state);
    brim_kda_state_load(&a->c.args, task->initial, state);
    struct brim_kda_range all = {0, brim_kda_n_chunk(task), true, state, NULL, norm, false};
    brim_kda_chunk_range(&a->c.args, task, BRIM_KDA_GPU, &all, scratch);
    for (int i = 0; i < 16; i++) largest = fmax(largest, norm[i]);
    for (int i = 0; i < 16384; i++) last += (double)state[i] * state[i];
    free(state);
    return sqrt(last) < largest / 16777216;
}

/* How much worse the split's error is than the serial form's: the largest quotient over output, its
 * windows and state; differences below 1e-6 do not count. Infinity: it is not finite where the
 * serial form is. */
static inline double kda_adversary_quotient(const struct kda_error *split,
                                            const struct kda_error *serial, bool faded)
{
    if (!serial->finite) return 0;
    if (!split->finite) return INFINITY;
    double a = fmax(split->out - 1e-6, 0) / fmax(serial->out, 1e-9);
    double b = fmax(split->window - 1e-6, 0) / fmax(serial->window, 1e-9);
    double c = fmax(split->state - 1e-6, 0) / fmax(serial->state, 1e-9);
    return fmax(a, faded ? b : fmax(b, c));
}

/* The same for segments joined exactly, which drop nothing, so a faded state counts too. A state of
 * one direction has an error of a single rounding, which averages over nothing: 2^-12 is given.
 * Where the serial error is larger than the value there is nothing to keep. */
static inline double kda_adversary_join_quotient(const struct kda_error *join,
                                                 const struct kda_error *serial)
{
    const double given = 1.0 / 4096;
    double e[3] = {join->out, join->window, join->state},
           s[3] = {serial->out, serial->window, serial->state}, worst = 0;
    if (!serial->finite) return 0;
    if (!join->finite) return INFINITY;
    for (int i = 0; i < 3; i++)
        if (s[i] < 1) worst = fmax(worst, fmax(e[i] - given, 0) / fmax(s[i], 1e-9));
    return worst;
}

/* A task of the same call: tokens [from, to) from a state, without values if `mute`. The state
 * behind them replaces it. */
static inline void kda_adversary_run(const struct kda_adversary *a, int64_t from, int64_t to,
                                     bool mute, float *state)
{
    static const uint16_t no_value[128];
    struct brim_kda_task task;
    brim_kda_args args = a->c.args;
    double *behind = kda_alloc(16384 * sizeof *behind);
    args.n_tok = to - from, args.initial_state = state, args.checkpoints = NULL;
    args.q = a->c.q + from * 128, args.k = a->c.k + from * 128;
    args.v = mute ? no_value : a->c.v + from * 128;
    if (mute) args.v_stride.token = 0;
    args.g = (float *)a->c.g + from * 128, args.beta = (float *)a->c.beta + from;
    brim_kda_task_make(&args, 0, 0, &task);
    if (brim_kda_ref_task(&args, &task, true, NULL, NULL, behind, NULL) != BRIM_OK) abort();
    for (int k = 0; k < 128; k++)
        for (int v = 0; v < 128; v++) state[v * 128 + k] = (float)behind[k * 128 + v];
    free(behind);
}

static inline double kda_adversary_norm(const float *state)
{
    double sum = 0;
    for (int i = 0; i < 16384; i++) sum += (double)state[i] * state[i];
    return sqrt(sum);
}

/* Is the bound one? The largest quotient, over the windows before all cuts, of what the window
 * leaves of the state before it, in fp64, and of what the bound says: at most 1, and the rounding
 * of the operands that the bound is taken from (2^-8). */
static inline double kda_adversary_share(const struct kda_adversary *a,
                                         const struct brim_kda_task *task, void *scratch)
{
    double worst = 0, bound[BRIM_KDA_WINDOW_MAX];
    float *state = kda_alloc(65536), *work = kda_alloc(65536);
    int64_t n_chunk = brim_kda_n_chunk(task);
    memcpy(state, a->c.initial, 65536);
    int64_t at = 0; /* chunks that `state` has seen */
    for (int64_t begin = a->length; begin < n_chunk; begin += a->length) {
        int64_t from = begin - a->window;
        if (from <= 0) continue;
        if (from > at) kda_adversary_run(a, 32 * at, 32 * from, false, state);
        at = from;
        memset(work, 0, 65536);
        struct brim_kda_range window = {from, begin, true, work, bound, NULL, false};
        brim_kda_chunk_range(&a->c.args, task, BRIM_KDA_GPU, &window, scratch);
        double most = 0;
        for (int64_t i = 0; i < a->window; i++) most += bound[i];
        if (most > -4) continue; /* nothing that could be skipped: there it is 1, and the map too */
        most += log(kda_adversary_norm(state));
        memcpy(work, state, 65536);
        kda_adversary_run(a, 32 * from, 32 * begin, true, work);
        double left = log(kda_adversary_norm(work));
        if (most > -60) worst = fmax(worst, exp(left - most)); /* fp32 holds it */
    }
    free(state), free(work);
    return worst;
}

/* Gates that change inside a segment, from strong to weak and back; one weak channel among 127
 * strong ones; keys that carry the state from the channels that decay to those that do not yet,
 * where every channel's accumulated decay is large and the state's is a factor of 4. */
enum kda_break {
    KDA_STRONG_TO_WEAK,
    KDA_SELDOM_STRONG,
    KDA_ONE_WEAK,
    KDA_ROTATING_KEY,
    KDA_N_BREAK
};

/* One head, decays and beta given as f32. */
static inline void kda_break_make(struct kda_case *c, enum kda_break form, int64_t n_tok)
{
    struct kda_spec spec = kda_given(n_tok);
    spec.checkpoints = 1, spec.seed = 3;
    kda_case_make(c, &spec);
    for (int64_t t = 0; t < n_tok; t++) {
        bool change = t % 8 == 7;
        if (form == KDA_ROTATING_KEY) ((float *)c->beta)[t] = change ? 0.99f : 0;
        for (int i = 0; i < 128; i++) {
            float *g = (float *)c->g + t * 128 + i;
            if (form == KDA_STRONG_TO_WEAK) *g = t / 48 % 2 ? -1e-3f : -5;
            if (form == KDA_SELDOM_STRONG) *g = t % 128 < 16 ? -5 : -1e-3f;
            if (form == KDA_ONE_WEAK) *g = i == 77 ? -1e-4f : -5;
            if (form != KDA_ROTATING_KEY) continue;
            *g = (i < 64) == (t / 8 % 2 == 0) ? -5 : 0;
            c->k[t * 128 + i] = brim_bf16_from_f32(change && i % 64 == 0 ? 0.70710678f : 0);
        }
    }
}

#endif
