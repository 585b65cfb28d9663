/* SPDX-License-Identifier: Apache-2.0
 * From logits to a token. A candidate is one 64-bit key, logit in the high half and id in the low
 * half, ordered so that a larger key is the better candidate and equal logits prefer the lower id.
 * Nothing is sorted whole: top-k keeps a heap of k, top-p pops one only as far as it needs. */
#include "run/engine.h"
#include "run/sampler.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/greedy.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tensor/dtype.h"

struct brim_sampler {
    const brim_engine *engine;
    brim_sampling sampling;
    struct brim_rng rng;
    float *logits;  /* [n_vocab], with the penalty; only if repeat_penalty is on */
    uint8_t *seen;  /* [n_vocab], all zero between calls; as `logits` */
    uint64_t *heap; /* [n_vocab]; only if temperature is on */
    float *weight;  /* [n_vocab]; as `heap` */
};

void brim_sampling_default(brim_sampling *sampling)
{
    *sampling = (brim_sampling){.top_p = 1, .repeat_penalty = 1, .repeat_window = 64};
}

static brim_status check(const brim_sampling *s, brim_error *err)
{
    BRIM_REQUIRE(err, s->temperature >= 0 && isfinite(s->temperature), BRIM_E_RANGE,
                 "temperature: %g is not a finite number of 0 or more", (double)s->temperature);
    BRIM_REQUIRE(err, s->top_p >= 0 && s->top_p <= 1, BRIM_E_RANGE, "top_p: %g is outside 0..1",
                 (double)s->top_p);
    BRIM_REQUIRE(err, s->min_p >= 0 && s->min_p <= 1, BRIM_E_RANGE, "min_p: %g is outside 0..1",
                 (double)s->min_p);
    BRIM_REQUIRE(err, s->repeat_penalty > 0 && isfinite(s->repeat_penalty), BRIM_E_RANGE,
                 "repeat_penalty: %g is not a finite number above 0", (double)s->repeat_penalty);
    BRIM_REQUIRE(err, s->repeat_window >= -1, BRIM_E_RANGE,
                 "repeat_window: %" PRId32 " is below -1", s->repeat_window);
    return BRIM_OK;
}

static bool is_greedy(const brim_sampling *s)
{
    return s->temperature < BRIM_GREEDY_TEMPERATURE;
}

static bool has_penalty(const brim_sampling *s)
{
    return s->repeat_penalty != 1 && s->repeat_window != 0;
}

brim_status brim_sampler_open(brim_sampler **out, const brim_engine *engine,
                              const brim_sampling *sampling, brim_error *err)
{
    BRIM_REQUIRE(err, out, BRIM_E_ARGUMENT, "sampler: out is null");
    *out = NULL;
    BRIM_REQUIRE(err, engine, BRIM_E_ARGUMENT, "sampler: engine is null");
    brim_sampling defaults;
    brim_sampling_default(&defaults);
    if (!sampling) sampling = &defaults;
    BRIM_TRY(check(sampling, err));
    brim_sampler *sampler = brim_calloc(1, sizeof *sampler);
    BRIM_REQUIRE(err, sampler, BRIM_E_NO_MEMORY, "sampler: out of memory");
    sampler->engine = engine;
    sampler->sampling = *sampling;
    brim_rng_seed(&sampler->rng, sampling->seed);
    size_t n_vocab = (size_t)engine->model->config.n_vocab;
    bool ok = true;
    if (has_penalty(sampling)) {
        sampler->logits = brim_alloc(n_vocab * sizeof *sampler->logits);
        sampler->seen = brim_calloc(n_vocab, 1);
        ok = sampler->logits && sampler->seen;
    }
    if (!is_greedy(sampling)) {
        sampler->heap = brim_alloc(n_vocab * sizeof *sampler->heap);
        sampler->weight = brim_alloc(n_vocab * sizeof *sampler->weight);
        ok = ok && sampler->heap && sampler->weight;
    }
    if (!ok) {
        brim_sampler_close(&sampler);
        return brim_fail(err, BRIM_E_NO_MEMORY, "sampler: out of memory for %zu candidates",
                         n_vocab);
    }
    *out = sampler;
    return BRIM_OK;
}

void brim_sampler_close(brim_sampler **sampler_ptr)
{
    if (!sampler_ptr || !*sampler_ptr) return;
    brim_sampler *sampler = *sampler_ptr;
    brim_free(sampler->logits);
    brim_free(sampler->seen);
    brim_free(sampler->heap);
    brim_free(sampler->weight);
    brim_free(sampler);
    *sampler_ptr = NULL;
}

/* The first token of the penalty's window. */
static int64_t penalty_begin(const brim_sampling *s, int64_t n_token)
{
    return s->repeat_window >= 0 && n_token > s->repeat_window ? n_token - s->repeat_window : 0;
}

/* The logits with repeated tokens made less likely: each token once, however often it occurs. */
static const float *penalise(brim_sampler *sampler, const float *logits, const int32_t *tokens,
                             int64_t n_token)
{
    const brim_sampling *s = &sampler->sampling;
    int64_t n_vocab = sampler->engine->model->config.n_vocab;
    int64_t first = penalty_begin(s, n_token);
    memcpy(sampler->logits, logits, (size_t)n_vocab * sizeof *logits);
    for (int64_t i = first; i < n_token; i++) {
        if (sampler->seen[tokens[i]]) continue;
        sampler->seen[tokens[i]] = 1;
        float *logit = &sampler->logits[tokens[i]];
        *logit = *logit > 0 ? *logit / s->repeat_penalty : *logit * s->repeat_penalty;
    }
    for (int64_t i = first; i < n_token; i++) sampler->seen[tokens[i]] = 0;
    return sampler->logits;
}

/* The best token; *bad is set when a NaN or +infinity is among the candidates, or nothing but
 * -infinity. */
static int32_t argmax(const brim_engine *engine, const float *logits, bool *bad)
{
    int32_t best = -1;
    float largest = -INFINITY;
    bool odd = false;
    for (size_t r = 0; r < engine->n_sampled; r++) {
        for (int32_t id = engine->sampled[r].begin; id < engine->sampled[r].end; id++) {
            odd |= !(logits[id] < INFINITY);
            if (logits[id] > largest) {
                largest = logits[id];
                best = id;
            }
        }
    }
    *bad = odd || best < 0;
    return best;
}

/* Float bits as an unsigned number of the same order. */
static uint32_t ordered_bits(float value)
{
    uint32_t bits = brim_f32_bits(value + 0.0f); /* -0 and 0 are equal logits */
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static uint64_t key_of(float logit, int32_t id)
{
    return (uint64_t)ordered_bits(logit) << 32 | (uint32_t)~id;
}

static int32_t key_id(uint64_t key)
{
    return (int32_t) ~(uint32_t)key;
}

/* Both heaps keep their first element at the top: the largest key, or the smallest. */
static void sink_max(uint64_t *heap, size_t n, size_t i)
{
    uint64_t moved = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] > heap[child]) child++;
        if (heap[child] <= moved) break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

static void sink_min(uint64_t *heap, size_t n, size_t i)
{
    uint64_t moved = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= moved) break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

/* The best k candidates (or all), in no particular order; returns their number. */
static size_t gather(uint64_t *best, const brim_engine *engine, const float *logits, size_t k)
{
    size_t n = 0;
    for (size_t r = 0; r < engine->n_sampled; r++) {
        for (int32_t id = engine->sampled[r].begin; id < engine->sampled[r].end; id++) {
            uint64_t key = key_of(logits[id], id);
            if (n < k) {
                best[n++] = key;
                if (n == k) /* from here on the worst of the k is at the top */
                    for (size_t i = k / 2; i-- > 0;) sink_min(best, k, i);
            } else if (key > best[0]) {
                best[0] = key;
                sink_min(best, k, 0);
            }
        }
    }
    return n;
}

/* The fewest best candidates whose weights reach `enough`, at least one, to the end of the array,
 * best last; returns their number and the sum of their weights. */
static size_t nucleus(struct brim_sampler *sampler, const float *logits, float largest, size_t n,
                      double enough, double *sum)
{
    const brim_sampling *s = &sampler->sampling;
    uint64_t *heap = sampler->heap;
    for (size_t i = n / 2; i-- > 0;) sink_max(heap, n, i);
    *sum = 0;
    size_t n_left = n;
    while (n_left > 0 && (n_left == n || *sum < enough)) {
        uint64_t best = heap[0];
        float w = expf((logits[key_id(best)] - largest) / s->temperature);
        if (n_left < n && w < s->min_p) break;
        heap[0] = heap[--n_left];
        heap[n_left] = best;
        sink_max(heap, n_left, 0);
        sampler->weight[n_left] = w;
        *sum += (double)w;
    }
    return n - n_left;
}

static int32_t draw(brim_sampler *sampler, const float *logits, float largest)
{
    const brim_sampling *s = &sampler->sampling;
    uint64_t *keys = sampler->heap;
    float *weight = sampler->weight;
    size_t n_vocab = (size_t)sampler->engine->model->config.n_vocab;
    size_t k = s->top_k > 0 && (size_t)s->top_k < n_vocab ? (size_t)s->top_k : n_vocab;
    size_t n = gather(keys, sampler->engine, logits, k), begin = 0;

    /* Weights e^((logit - largest) / T) <= 1, the largest exactly 1. */
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        weight[i] = expf((logits[key_id(keys[i])] - largest) / s->temperature);
        sum += (double)weight[i];
    }
    if (s->top_p < 1 || k < n_vocab) {
        /* Drawn from the best down. All weights below (1 - p) sum / n together are less than
         * (1 - p) sum: the nucleus does not need them. This leaves hundreds of candidates where a
         * vocabulary has 150,000. */
        float least = (float)((1 - (double)s->top_p) * sum / (double)n * 0.999);
        size_t n_kept = 0;
        for (size_t i = 0; i < n; i++)
            if (weight[i] >= least) keys[n_kept++] = keys[i];
        double enough = s->top_p < 1 ? (double)s->top_p * sum : INFINITY;
        begin = n_kept - nucleus(sampler, logits, largest, n_kept, enough, &sum);
        n = n_kept;
    } else if (s->min_p > 0) {
        sum = 0;
        for (size_t i = 0; i < n; i++) {
            if (weight[i] < s->min_p) weight[i] = 0;
            sum += (double)weight[i];
        }
    }

    double target = (double)brim_rng_uniform(&sampler->rng) * sum;
    size_t chosen = n;
    for (size_t i = n; i-- > begin;) {
        if (weight[i] <= 0) continue;
        chosen = i;
        target -= (double)weight[i];
        if (target < 0) break;
    }
    return key_id(keys[chosen]);
}

static brim_status check_finite(bool finite, int64_t n_token, brim_error *err)
{
    BRIM_REQUIRE(err, finite, BRIM_E_NOT_FINITE,
                 "sampler: the logits after %" PRId64 " tokens are not finite", n_token);
    return BRIM_OK;
}

brim_status brim_sample_logits(brim_sampler *sampler, const float *logits, const int32_t *tokens,
                               int64_t n_token, int32_t *id, brim_error *err)
{
    const brim_sampling *s = &sampler->sampling;
    if (has_penalty(s)) logits = penalise(sampler, logits, tokens, n_token);
    bool bad;
    int32_t best = argmax(sampler->engine, logits, &bad);
    BRIM_TRY(check_finite(!bad, n_token, err));
    *id = is_greedy(s) ? best : draw(sampler, logits, logits[best]);
    return BRIM_OK;
}

static brim_status sample_on_device(brim_sampler *sampler, const brim_session *session, int32_t *id,
                                    brim_error *err)
{
    const brim_sampling *s = &sampler->sampling;
    const struct brim_state *state = &session->state;
    struct brim_sample_args args = {
        .temperature = s->temperature,
        .top_p = s->top_p,
        .min_p = s->min_p,
        .repeat_penalty = s->repeat_penalty,
        .top_k = s->top_k,
        .uniform = is_greedy(s) ? 0 : brim_rng_uniform(&sampler->rng),
    };
    if (has_penalty(s)) {
        int64_t first = penalty_begin(s, session->n_token);
        args.recent = session->tokens + first;
        args.n_recent = session->n_token - first;
    }
    BRIM_TRY(session->engine->backend->ops->sample(state->step, state->logits, &args, id, err));
    return check_finite(*id >= 0, session->n_token, err);
}

brim_status brim_sampler_next(brim_sampler *sampler, const brim_session *session, int32_t *id,
                              brim_error *err)
{
    BRIM_REQUIRE(err, sampler && session && id, BRIM_E_ARGUMENT, "sampler, session or id is null");
    BRIM_REQUIRE(err, sampler->engine == session->engine, BRIM_E_ARGUMENT,
                 "sampler: it was opened for another engine");
    BRIM_REQUIRE(err, session->has_logits, BRIM_E_ARGUMENT,
                 "sampler: the session has no logits; evaluate a token first");
    if (session->engine->backend->ops->sample) return sample_on_device(sampler, session, id, err);
    const float *logits;
    BRIM_TRY(brim_session_fetch_logits(session, &logits, err));
    return brim_sample_logits(sampler, logits, session->tokens, session->n_token, id, err);
}
