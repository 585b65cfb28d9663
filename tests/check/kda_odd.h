/* SPDX-License-Identifier: Apache-2.0
 * Inputs that a KDA kernel may get wrong without any usual case showing it, for the tests on the
 * CPU and on the GPU: every regime of the gate, beta outside of [0, 1], infinite gates and logits,
 * keys that repeat in groups, keys of zeros or of one element under gates that forget nothing, one
 * long sequence among two hundred short ones; and numbers that are not finite, with where they may
 * show. */
#ifndef BRIM_CHECK_KDA_ODD_H
#define BRIM_CHECK_KDA_ODD_H

#include <stdio.h>

#include "check/kda_case.h"

struct kda_odd {
    char what[48];
    struct kda_spec spec;
    enum kda_regime bars;
    int64_t lengths[201];
    struct kda_case c;
};

static inline struct kda_spec kda_odd_spec(int64_t n_tok, enum kda_regime regime)
{
    struct kda_spec spec = kda_plain(n_tok, 1, regime);
    spec.checkpoints = 1, spec.seed = 77 + (uint64_t)regime;
    return spec;
}

/* beta as a value, from below 0 to 2, and as a logit infinite; gates of infinities, which end at
 * the bound or at no decay. */
static inline void kda_odd_limits(struct kda_odd *o, int form)
{
    static const char *const names[] = {"beta f32", "beta bf16", "beta of infinite logits",
                                        "infinite gates"};
    snprintf(o->what, sizeof o->what, "%s", names[form]);
    o->spec = kda_odd_spec(100, KDA_TYPICAL), o->bars = KDA_MIXED;
    if (form < 2) o->spec.flags = BRIM_KDA_L2NORM;
    o->spec.f32_beta = form == 0;
    kda_case_make(&o->c, &o->spec);
    for (int t = 0; t < 100; t++) {
        float b = -0.7f + 2.6f * (float)(t * 37 % 100) / 99;
        if (form == 2) b = t % 3 ? INFINITY : -INFINITY;
        if (form == 0) ((float *)o->c.beta)[t] = b;
        if (form == 1 || form == 2) ((uint16_t *)o->c.beta)[t] = brim_bf16_from_f32(b);
        for (int i = 0; i < 128 && form == 3; i += 3)
            ((uint16_t *)o->c.g)[t * 128 + i] = (t / 7 + i) % 2 ? 0x7F80 : 0xFF80;
    }
}

/* Keys that repeat 8 to 64 times, then others; every other form with alternating sign. */
static inline void kda_odd_groups(struct kda_odd *o, int form, bool brief)
{
    int group = 8 << form / 2, turn = form % 2;
    struct brim_rng rng = {(uint64_t)group};
    snprintf(o->what, sizeof o->what, "keys in groups of %d%s", group, turn ? ", +-" : "");
    o->spec = kda_odd_spec(brief ? 100 : 200, KDA_COLLINEAR), o->bars = KDA_COLLINEAR;
    kda_case_make(&o->c, &o->spec);
    for (int64_t t = 0; t < o->spec.n_tok; t++)
        for (int k = 0; k < 128; k++) {
            uint16_t *key = &o->c.k[t * 128 + k];
            if (t % group == 0)
                *key = brim_bf16_from_f32((float)kda_normal(&rng));
            else
                *key = (uint16_t)(key[-128] ^ (turn ? 0x8000 : 0));
        }
}

/* Keys of zeros, of one element, or one of those after the other, forgotten hardly or never; q of
 * zeros. */
static inline void kda_odd_sparse(struct kda_odd *o, int form)
{
    static const char *const names[] = {"keys of zeros", "keys of one element",
                                        "zeros and single elements", "q of zeros"};
    snprintf(o->what, sizeof o->what, "%s", names[form]);
    o->spec = kda_odd_spec(100, form & 1 ? KDA_NEVER : KDA_WEAK), o->bars = KDA_WEAK;
    kda_case_make(&o->c, &o->spec);
    for (int t = 0; t < 100; t++) {
        uint16_t *k = o->c.k + t * 128;
        if (form == 3) {
            if (t % 5 < 3) memset(o->c.q + t * 128, 0, 256);
            continue;
        }
        memset(k, 0, 256);
        if (form == 1 || (form == 2 && t % 2)) k[t * 7 % 128] = t % 3 ? 0x3F80 : 0xBF80;
    }
}

static inline void kda_odd_crowd(struct kda_odd *o, bool brief)
{
    int n_seq = brief ? 41 : 201;
    snprintf(o->what, sizeof o->what, "one long among many short");
    o->spec = kda_odd_spec(0, KDA_TYPICAL), o->bars = KDA_TYPICAL;
    for (int n = 0; n < n_seq; n++) o->lengths[n] = n * 11 % 7;
    o->lengths[20] = brief ? 100 : 2000;
    o->spec.n_seq = n_seq, o->spec.lengths = o->lengths, o->spec.checkpoints = 0;
    kda_case_make(&o->c, &o->spec);
}

enum { KDA_N_ODD = KDA_ZEROS + 1 + 4 + 8 + 4 + 1 };

/* Number i of KDA_N_ODD; kda_case_free(&o->c). */
static inline void kda_odd_make(struct kda_odd *o, int i, bool brief)
{
    memset(o, 0, sizeof *o);
    if (i <= KDA_ZEROS) {
        snprintf(o->what, sizeof o->what, "regime %d", i);
        o->spec = kda_odd_spec(brief ? 70 : 321, (enum kda_regime)i), o->bars = o->spec.regime;
        kda_case_make(&o->c, &o->spec);
    } else if ((i -= KDA_ZEROS + 1) < 4) {
        kda_odd_limits(o, i);
    } else if ((i -= 4) < 8) {
        kda_odd_groups(o, i, brief);
    } else if ((i -= 8) < 4) {
        kda_odd_sparse(o, i);
    } else {
        kda_odd_crowd(o, brief);
    }
}

/* ---- what is not finite ---------------------------------------------------------------------- */

enum { KDA_POISON_TOK = 140, KDA_POISON_AT = 71 };
enum kda_poison { KDA_IN_Q, KDA_IN_BETA, KDA_IN_STATE, KDA_IN_K, KDA_IN_V, KDA_N_POISON };

/* Two sequences of one head; `x` (NaN, inf, -inf) at one place of the first, and without. */
static inline void kda_poison_make(struct kda_case *c, struct kda_case *clean,
                                   enum kda_poison where, int x, char what[48])
{
    static const char *const names[] = {"in q", "in beta", "in the initial state", "in k", "in v"},
                             *const values[] = {"NaN", "inf", "-inf"};
    static const uint16_t odd[] = {0x7FC0, 0x7F80, 0xFF80};
    struct kda_spec spec = kda_odd_spec(KDA_POISON_TOK, KDA_TYPICAL);
    snprintf(what, 48, "%s %s", values[x], names[where]);
    spec.n_seq = 2, spec.flags = BRIM_KDA_L2NORM;
    kda_case_make(c, &spec);
    kda_case_make(clean, &spec);
    int at = KDA_POISON_AT * 128 + 9;
    if (where == KDA_IN_Q) c->q[at] = odd[x];
    if (where == KDA_IN_K) c->k[at] = odd[x];
    if (where == KDA_IN_V) c->v[at] = odd[x];
    if (where == KDA_IN_BETA) ((uint16_t *)c->beta)[KDA_POISON_AT] = odd[x];
    if (where == KDA_IN_STATE)
        ((float *)c->initial)[5 * 128 + 7] = brim_f32_from_bf16(odd[x]); /* value 5, key 7 */
}

/* Of the outputs of both: it stays behind its chunk's start, in its sequence and, values do not
 * meet, in its column; q's ends with its chunk; and it is not lost. NULL, or what is wrong. */
static inline const char *kda_poison_fault(const struct kda_case *c, const struct kda_case *clean,
                                           enum kda_poison where)
{
    enum { N_TOK = KDA_POISON_TOK, AT = KDA_POISON_AT, NEXT = (AT / 32 + 1) * 32 };
    int column = where == KDA_IN_STATE ? 5 : where == KDA_IN_V ? 9 : -1;
    const float *final = c->final, *clean_final = clean->final;
    if (where != KDA_IN_STATE && memcmp(c->out, clean->out, AT / 32 * 32 * 256))
        return "reached an earlier chunk";
    if (memcmp(c->out + N_TOK * 128, clean->out + N_TOK * 128, N_TOK * 256))
        return "reached another sequence";
    if (memcmp(final + 16384, clean_final + 16384, 65536)) return "reached another state";
    for (int t = where == KDA_IN_STATE ? 0 : AT; t < (where == KDA_IN_Q ? AT + 1 : N_TOK); t++)
        for (int v = 0; v < 128; v++)
            if ((column < 0 || v == column) && (c->out[t * 128 + v] & 0x7F80) != 0x7F80)
                return "was lost";
    if (where == KDA_IN_Q &&
        (memcmp(c->out + NEXT * 128, clean->out + NEXT * 128, (N_TOK - NEXT) * 256) ||
         memcmp(final, clean_final, 65536)))
        return "reached what it has no part in";
    for (int v = 0; v < 128 && column >= 0; v++) {
        if (v == column) continue;
        for (int t = 0; t < N_TOK; t++)
            if (c->out[t * 128 + v] != clean->out[t * 128 + v]) return "reached another value";
        if (memcmp(final + v * 128, clean_final + v * 128, 512)) return "reached another value";
    }
    return NULL;
}

#endif
