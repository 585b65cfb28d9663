/* SPDX-License-Identifier: Apache-2.0
 * The whole engine on the GPU: logits of the tiny checkpoints on every rung of the ladder, against
 * transformers' and against the CPU's on larger models, and what holds bit for bit. Run from the
 * source directory; ends with "N passed, N failed, N skipped".
 *     check_engine [short|tiny] [--synth PRESET] [--model FILE] [--chain DIR]
 * tiny: two checkpoints on the two highest levels, a prompt and three steps, for racecheck.
 * --synth: CPU against GPU on a synthetic checkpoint made in TMPDIR; --model: greedy text of the
 * committed prompts, CPU against GPU; --chain: of Qwen3-4B's shapes, its schedules. Bounds:
 * docs/numerics.md, "Whole models on a GPU". */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "brim/brim.h"
#include "brim/tools.h"
#include "cuda/device.h"
#include "cuda/runtime/runtime.h"

#define BRIM_SOURCE_DIR "."
#include "cuda/engine_judge.h"
#include "unit/golden.h"

/* Largest difference over the largest golden logit. */
#define BOUND_GOLDEN 4e-2f
/* rms difference over rms logit, CPU against GPU on models of published shape. */
#define BOUND_RMS 5e-2
/* Two logits so close that rounding may swap them, in the model's own units. */
#define NEAR_TIE 0.25f

static void *allocate(size_t n_bytes)
{
    void *block = malloc(n_bytes ? n_bytes : 1);
    if (!block) abort();
    return block;
}

static brim_engine *open_engine(const char *path, brim_device device, const char *level)
{
    brim_engine_options options;
    brim_engine_options_default(&options);
    options.device = device;
    options.level = level;
    brim_engine *engine;
    MUST(brim_engine_open(&engine, path, &options, &err));
    return engine;
}

static brim_session *open_session(brim_engine *engine, int64_t n_context, int64_t chunk,
                                  bool kv_f32)
{
    brim_session_options options;
    brim_session_options_default(&options);
    options.n_context = n_context;
    options.prefill_chunk = chunk;
    options.kv_f32 = kv_f32;
    brim_session *session;
    MUST(brim_session_open(&session, engine, &options, &err));
    return session;
}

static int64_t n_vocab_of(const brim_engine *engine)
{
    brim_model_info info;
    brim_engine_info(engine, &info);
    return info.n_vocab;
}

static double rms_error(const float *a, const float *b, int64_t n)
{
    double d = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        d += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(d / size);
}

/* ---- goldens --------------------------------------------------------------------------------- */

static float golden_difference(const struct golden *g, const float *logits, int64_t first,
                               int64_t n)
{
    float worst = 0;
    for (int64_t i = first * g->n_vocab; i < (first + n) * g->n_vocab; i++) {
        float d = fabsf(logits[i - first * g->n_vocab] - g->logits[i]);
        if (!(d <= worst)) worst = isnan(d) ? INFINITY : d;
    }
    return worst / g->largest;
}

/* Every position at once, in pieces, and the last row alone. */
static void goldens(const char *level, bool is_short)
{
    static const int64_t chunks[] = {0, 1, 7, 20};
    static const int64_t lengths[] = {1, 2, 9, 31, 48};
    float worst = 0;
    for (int i = 0; i < N_GOLDEN; i++) {
        if (is_short && i % 3 != 2) continue; /* F16, BF16 with a bias, affine groups of 32 */
        struct golden g = golden_load(golden_names[i]);
        brim_engine *engine = open_engine(g.path, BRIM_DEVICE_CUDA, level);
        size_t n_bytes = (size_t)g.n_token * (size_t)g.n_vocab * sizeof(float);
        float *logits = allocate(n_bytes);
        for (int c = 0; c < 8; c++) {
            if (is_short && c != 2 && c != 4) continue;
            memset(logits, 0xFF, n_bytes); /* NaN */
            brim_session *session = open_session(engine, 0, chunks[c % 4], c >= 4);
            MUST(brim_session_eval_all(session, g.ids, g.n_token, logits, &err));
            float d = golden_difference(&g, logits, 0, g.n_token);
            worst = fmaxf(worst, d);
            verdict(d <= BOUND_GOLDEN, "%s %s: chunk %d, kv %s: %g", level, golden_names[i],
                    (int)chunks[c % 4], c >= 4 ? "f32" : "f16", (double)d);
            brim_session_close(&session);
        }
        for (int l = 0; l < (is_short ? 1 : 5); l++) {
            brim_session *session = open_session(engine, 0, l == 3 ? 10 : 0, false);
            MUST(brim_session_eval(session, g.ids, lengths[l], &err));
            float d = golden_difference(&g, brim_session_logits(session), lengths[l] - 1, 1);
            worst = fmaxf(worst, d);
            verdict(d <= BOUND_GOLDEN, "%s %s: last row of %d: %g", level, golden_names[i],
                    (int)lengths[l], (double)d);
            brim_session_close(&session);
        }
        free(logits);
        brim_engine_close(&engine);
        golden_free(&g);
    }
    printf("golden %-9s worst %.2g of %.2g\n", level, (double)worst, (double)BOUND_GOLDEN);
}

/* ---- bit for bit ----------------------------------------------------------------------------- */

/* One token after the other through the recorded step equals the same operators launched one by
 * one: eval_all never replays. The device's likeliest token is the largest logit. */
static void replay_equals_launches(const char *name, const char *level)
{
    struct golden g = golden_load(name);
    brim_engine *engine = open_engine(g.path, BRIM_DEVICE_CUDA, level);
    brim_session *replayed = open_session(engine, 0, 0, false);
    brim_session *launched = open_session(engine, 0, 0, false);
    brim_sampling sampling;
    brim_sampling_default(&sampling);
    brim_sampler *sampler;
    MUST(brim_sampler_open(&sampler, engine, &sampling, &err));
    size_t line = (size_t)g.n_vocab * sizeof(float);
    float *logits = allocate(line);
    int n_same = 0, n_likeliest = 0;
    for (int i = 0; i < g.n_token; i++) {
        MUST(brim_session_eval(replayed, &g.ids[i], 1, &err));
        int32_t id;
        MUST(brim_sampler_next(sampler, replayed, &id, &err));
        MUST(brim_session_eval_all(launched, &g.ids[i], 1, logits, &err));
        const float *own = brim_session_logits(replayed);
        n_same += memcmp(own, logits, line) == 0;
        int32_t best = -1;
        for (int32_t v = 0; v < g.n_vocab; v++) {
            size_t len;
            if (!brim_token_bytes(engine, v, &len) || len == 0) continue;
            if (best < 0 || own[v] > own[best]) best = v;
        }
        n_likeliest += id == best;
    }
    verdict(n_same == g.n_token, "%s %s: %d of %d replayed steps have the bits of launches", level,
            name, n_same, g.n_token);
    verdict(n_likeliest == g.n_token, "%s %s: %d of %d likeliest tokens", level, name, n_likeliest,
            g.n_token);
    free(logits);
    brim_sampler_close(&sampler);
    brim_session_close(&replayed);
    brim_session_close(&launched);
    brim_engine_close(&engine);
    golden_free(&g);
}

/* A prompt of m tokens behind two others by the recording that one of n tokens left, against the
 * same launch by launch; then one token more, which reads what the prompt's rows left behind it. */
static void prompt_replays_of(brim_engine *engine, const char *name, int64_t n_context,
                              const int32_t *ids, int64_t n, int64_t m)
{
    enum { BEFORE = 2 };
    int64_t n_vocab = n_vocab_of(engine);
    size_t line = (size_t)n_vocab * sizeof(float);
    float *logits = allocate(2 * line);
    bool same[2] = {false, false};
    for (int replayed = 0; replayed < 2; replayed++) {
        brim_session *session = open_session(engine, n_context, 0, false);
        MUST(brim_session_eval(session, ids, BEFORE, &err));
        for (int turn = 0; turn < 2 * replayed; turn++) { /* the second is recorded */
            MUST(brim_session_eval(session, ids + BEFORE, n, &err));
            MUST(brim_session_rewind(session, BEFORE, &err));
        }
        MUST(brim_session_eval(session, ids + BEFORE, m, &err));
        for (int i = 0; i < 2; i++) {
            float *row = logits + (size_t)i * (size_t)n_vocab;
            if (replayed)
                same[i] = memcmp(row, brim_session_logits(session), line) == 0;
            else
                memcpy(row, brim_session_logits(session), line);
            if (i == 0) MUST(brim_session_eval(session, ids + BEFORE + m, 1, &err));
        }
        brim_session_close(&session);
    }
    verdict(same[0] && same[1],
            "%s: %d tokens replayed from %d: the bits of launches: prompt %d, next token %d", name,
            (int)m, (int)n, same[0], same[1]);
    free(logits);
}

static void prompt_replays(const char *name, int64_t n, int64_t m)
{
    struct golden g = golden_load(name);
    brim_engine *engine = open_engine(g.path, BRIM_DEVICE_CUDA, "hopper");
    prompt_replays_of(engine, name, 0, g.ids, n, m);
    brim_engine_close(&engine);
    golden_free(&g);
}

/* One token takes the matvec on both levels, so its logits have the same bits. */
static void one_token_of_two_levels(const char *name)
{
    struct golden g = golden_load(name);
    size_t line = (size_t)g.n_vocab * sizeof(float);
    float *logits = allocate((size_t)g.n_token * line);
    int n_same = 0;
    for (int l = 0; l < 2; l++) {
        brim_engine *engine = open_engine(g.path, BRIM_DEVICE_CUDA, l ? "split-k" : "tiled");
        brim_session *session = open_session(engine, 0, 0, false);
        for (int i = 0; i < g.n_token; i++) {
            float *row = logits + (size_t)i * (size_t)g.n_vocab;
            MUST(brim_session_eval(session, &g.ids[i], 1, &err));
            if (l)
                n_same += memcmp(row, brim_session_logits(session), line) == 0;
            else
                memcpy(row, brim_session_logits(session), line);
        }
        brim_session_close(&session);
        brim_engine_close(&engine);
    }
    verdict(n_same == g.n_token, "%s: %d of %d single tokens have the bits of tiled in split-k",
            name, n_same, g.n_token);
    free(logits);
    golden_free(&g);
}

/* A prompt, then steps through the recorded graph, a sampled token each. */
static void few_steps(const char *name, const char *level)
{
    enum { N_PROMPT = 20, N_STEP = 3 };
    struct golden g = golden_load(name);
    brim_engine *engine = open_engine(g.path, BRIM_DEVICE_CUDA, level);
    brim_session *session = open_session(engine, 0, 0, false);
    brim_sampling sampling;
    brim_sampling_default(&sampling);
    brim_sampler *sampler;
    MUST(brim_sampler_open(&sampler, engine, &sampling, &err));
    MUST(brim_session_eval(session, g.ids, N_PROMPT, &err));
    float worst = golden_difference(&g, brim_session_logits(session), N_PROMPT - 1, 1);
    for (int i = N_PROMPT; i < N_PROMPT + N_STEP; i++) {
        int32_t id;
        MUST(brim_sampler_next(sampler, session, &id, &err));
        MUST(brim_session_eval(session, &g.ids[i], 1, &err));
        worst = fmaxf(worst, golden_difference(&g, brim_session_logits(session), i, 1));
    }
    verdict(worst <= BOUND_GOLDEN, "%s %s: a prompt and steps: %g", level, name, (double)worst);
    brim_sampler_close(&sampler);
    brim_session_close(&session);
    brim_engine_close(&engine);
    golden_free(&g);
}

static uint8_t *snapshot(const brim_session *session, size_t *n_bytes)
{
    MUST(brim_session_snapshot(session, NULL, 0, n_bytes, &err));
    uint8_t *data = allocate(*n_bytes);
    MUST(brim_session_snapshot(session, data, *n_bytes, n_bytes, &err));
    return data;
}

/* Rewound, synced, restored and fresh sessions agree; a snapshot keeps its bits, the CPU's too. */
static void timelines(const char *name, bool kv_f32)
{
    struct golden g = golden_load(name);
    brim_engine *engine = open_engine(g.path, BRIM_DEVICE_CUDA, NULL);
    brim_engine *cpu = open_engine(g.path, BRIM_DEVICE_CPU, NULL);
    size_t line = (size_t)g.n_vocab * sizeof(float);
    float *first = allocate(line);
    brim_session *a = open_session(engine, 0, 0, kv_f32), *b = open_session(engine, 0, 0, kv_f32);
    MUST(brim_session_eval(a, g.ids, 30, &err));
    memcpy(first, brim_session_logits(a), line);
    size_t n_bytes, n_again;
    uint8_t *saved = snapshot(a, &n_bytes);

    MUST(brim_session_eval(a, g.ids + 30, 5, &err));
    MUST(brim_session_rewind(a, 0, &err));
    MUST(brim_session_eval(a, g.ids, 30, &err));
    verdict(memcmp(first, brim_session_logits(a), line) == 0, "%s: rewound and evaluated", name);
    int64_t n_reused;
    MUST(brim_session_sync(a, g.ids, 20, &n_reused, &err));
    verdict(n_reused == 19 && brim_session_length(a) == 20, "%s: sync", name);

    MUST(brim_session_restore(b, saved, n_bytes, &err));
    verdict(memcmp(first, brim_session_logits(b), line) == 0, "%s: restored logits", name);
    uint8_t *again = snapshot(b, &n_again);
    verdict(n_again == n_bytes && memcmp(saved, again, n_bytes) == 0, "%s: snapshot of a snapshot",
            name);
    free(again);
    MUST(brim_session_rewind(a, 0, &err));
    MUST(brim_session_eval(a, g.ids, 30, &err));
    MUST(brim_session_eval(a, g.ids + 30, 1, &err));
    MUST(brim_session_eval(b, g.ids + 30, 1, &err));
    verdict(memcmp(brim_session_logits(a), brim_session_logits(b), line) == 0,
            "%s: a restored session goes on as the saved one", name);

    /* A snapshot of the CPU is the same thing: keys and values are exact, what follows is within
     * the bound. */
    brim_session *c = open_session(cpu, 0, 0, kv_f32);
    MUST(brim_session_eval(c, g.ids, 30, &err));
    uint8_t *of_cpu = snapshot(c, &n_again);
    MUST(brim_session_restore(b, of_cpu, n_again, &err));
    again = snapshot(b, &n_bytes);
    verdict(n_again == n_bytes && memcmp(of_cpu, again, n_bytes) == 0, "%s: CPU to GPU to memory",
            name);
    MUST(brim_session_eval(b, g.ids + 30, 1, &err));
    float d = golden_difference(&g, brim_session_logits(b), 30, 1);
    verdict(d <= BOUND_GOLDEN, "%s: on from the CPU's snapshot: %g", name, (double)d);
    free(again);
    free(of_cpu);

    int64_t room = brim_session_capacity(a) - brim_session_length(a) + 1;
    int32_t *many = allocate((size_t)room * sizeof *many);
    for (int64_t i = 0; i < room; i++) many[i] = g.ids[0];
    int64_t length = brim_session_length(a);
    brim_error error = {0};
    verdict(brim_session_eval(a, many, room, &error) == BRIM_E_CONTEXT &&
                brim_session_length(a) == length,
            "%s: one token more than the context: %s", name, error.text);
    MUST(brim_session_eval(a, many, room - 1, &err));
    verdict(brim_session_length(a) == brim_session_capacity(a), "%s: a full context", name);
    free(many);
    free(saved);
    free(first);
    brim_session_close(&a);
    brim_session_close(&b);
    brim_session_close(&c);
    brim_engine_close(&engine);
    brim_engine_close(&cpu);
    golden_free(&g);
}

/* ---- two sessions ---------------------------------------------------------------------------- */

struct worker {
    brim_engine *engine;
    const struct golden *g;
    int64_t first;
    float *out; /* [16][n_vocab] */
};

static void *work(void *arg)
{
    struct worker *w = arg;
    brim_session *session = open_session(w->engine, 0, 5, false);
    MUST(brim_session_eval(session, w->g->ids + w->first, 12, &err));
    for (int i = 0; i < 16; i++) {
        MUST(brim_session_eval(session, w->g->ids + i, 1, &err));
        memcpy(w->out + (size_t)i * (size_t)w->g->n_vocab, brim_session_logits(session),
               (size_t)w->g->n_vocab * sizeof(float));
    }
    brim_session_close(&session);
    return NULL;
}

static void two_sessions(const char *name)
{
    struct golden g = golden_load(name);
    brim_engine *engine = open_engine(g.path, BRIM_DEVICE_CUDA, NULL);
    size_t n_bytes = 16 * (size_t)g.n_vocab * sizeof(float);
    struct worker alone[2], together[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        alone[i] = together[i] = (struct worker){engine, &g, 7 * i, NULL};
        alone[i].out = allocate(n_bytes);
        together[i].out = allocate(n_bytes);
        work(&alone[i]);
    }
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, &together[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        verdict(memcmp(alone[i].out, together[i].out, n_bytes) == 0,
                "%s: session %d beside another", name, i);
        free(alone[i].out);
        free(together[i].out);
    }
    brim_engine_close(&engine);
    golden_free(&g);
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* More than the device has is refused, whatever else runs on it. */
static void more_than_there_is(const struct brim_cuda_device *device)
{
    void *block;
    brim_error error = {0};
    brim_status status = brim_cuda_alloc(&block, device->total_bytes + 1, "too much", &error);
    if (status == BRIM_OK) brim_cuda_free(block);
    verdict(status == BRIM_E_NO_MEMORY && strstr(error.text, "too much: ") &&
                strstr(error.text, "are needed"),
            "more than the device has: %s %s", brim_status_name(status), error.text);
}

/* What a model and a session say on a device without memory. */
static brim_status open_and_evaluate(const struct golden *g, brim_error *error)
{
    brim_engine_options options;
    brim_engine_options_default(&options);
    options.device = BRIM_DEVICE_CUDA;
    brim_engine *engine = NULL;
    brim_session *session = NULL;
    brim_status status = brim_engine_open(&engine, g->path, &options, error);
    if (status == BRIM_OK) status = brim_session_open(&session, engine, NULL, error);
    if (status == BRIM_OK) status = brim_session_eval(session, g->ids, 5, error);
    brim_session_close(&session);
    brim_engine_close(&engine);
    return status;
}

/* With the device full a model does not open, the text says what is missing; the CPU still works,
 * and the device once there is room. Other programs may give memory back meanwhile: then what they
 * gave is taken too and the model tried again. tests/emu/test_device_engine.c fails each allocation
 * where nobody else is. */
static void out_of_memory(const char *name)
{
    enum { MAX_BLOCK = 16384, N_TRY = 20 };
    static void *blocks[MAX_BLOCK];
    int n_block = 0;
    struct golden g = golden_load(name);
    brim_error error = {0};
    brim_status status = BRIM_OK;
    for (int i = 0; i < N_TRY && status == BRIM_OK; i++) {
        for (size_t size = (size_t)64 << 30; size >= 1 << 20; size /= 2)
            while (n_block < MAX_BLOCK &&
                   brim_cuda_alloc(&blocks[n_block], size, "", NULL) == BRIM_OK)
                n_block++;
        status = open_and_evaluate(&g, &error);
    }
    if (status == BRIM_OK) {
        printf("SKIP: the device was never full: other programs use it\n");
        n_skipped++;
    } else {
        verdict(status == BRIM_E_NO_MEMORY && strstr(error.text, "are needed"),
                "full device: %s %s", brim_status_name(status), error.text);
        printf("full device: %s\n", error.text);
    }
    brim_engine *cpu = open_engine(g.path, BRIM_DEVICE_CPU, NULL);
    brim_session *session = open_session(cpu, 0, 0, false);
    MUST(brim_session_eval(session, g.ids, 5, &err));
    brim_session_close(&session);
    brim_engine_close(&cpu);
    while (n_block > 0) brim_cuda_free(blocks[--n_block]);
    brim_engine *engine = open_engine(g.path, BRIM_DEVICE_CUDA, NULL);
    session = open_session(engine, 0, 0, false);
    MUST(brim_session_eval(session, g.ids, 5, &err));
    verdict(golden_difference(&g, brim_session_logits(session), 4, 1) <= BOUND_GOLDEN,
            "after the device was full");
    brim_session_close(&session);
    brim_engine_close(&engine);
    golden_free(&g);
}

/* ---- CPU against GPU on larger models -------------------------------------------------------- */

static void some_ids(int32_t *ids, int64_t n, int64_t n_vocab)
{
    uint32_t seed = 17;
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)((seed >> 8) % (uint32_t)n_vocab);
    }
}

static void beside_cpu(const char *path, bool is_short)
{
    static const int64_t lengths[] = {1, 5, 9, 40, 130, 300};
    enum { LONGEST = 300, N_DECODE = 3 };
    int n_length = is_short ? 3 : 6;
    int32_t ids[LONGEST + N_DECODE];
    brim_engine *cpu = open_engine(path, BRIM_DEVICE_CPU, NULL);
    int64_t n_vocab = n_vocab_of(cpu);
    some_ids(ids, LONGEST + N_DECODE, n_vocab);
    size_t line = (size_t)n_vocab * sizeof(float), n_logits = (1 + N_DECODE) * line;
    float *expected = allocate((size_t)n_length * n_logits);
    for (int l = 0; l < n_length; l++) {
        brim_session *session = open_session(cpu, 512, 0, false);
        for (int i = 0; i <= N_DECODE; i++) {
            MUST(i ? brim_session_eval(session, ids + lengths[l] + i - 1, 1, &err)
                   : brim_session_eval(session, ids, lengths[l], &err));
            memcpy((char *)expected + (size_t)l * n_logits + (size_t)i * line,
                   brim_session_logits(session), line);
        }
        brim_session_close(&session);
    }
    brim_engine_close(&cpu);
    for (int v = 0; v < N_LEVEL; v++) {
        if (is_short && v != N_LEVEL - 1) continue;
        brim_engine *engine = open_engine(path, BRIM_DEVICE_CUDA, levels[v]);
        double worst = 0;
        for (int l = 0; l < n_length; l++) {
            /* Chunks of 128 and a rest: the last piece is short for 130 and 300. */
            brim_session *session = open_session(engine, 512, l % 2 ? 0 : 128, false);
            for (int i = 0; i <= N_DECODE; i++) {
                MUST(i ? brim_session_eval(session, ids + lengths[l] + i - 1, 1, &err)
                       : brim_session_eval(session, ids, lengths[l], &err));
                const float *row = expected + (size_t)(l * (1 + N_DECODE) + i) * (size_t)n_vocab;
                double e = rms_error(brim_session_logits(session), row, n_vocab);
                worst = e > worst || isnan(e) ? e : worst;
                verdict(e <= BOUND_RMS, "%s %s: %d tokens and %d: rms %.3g", path, levels[v],
                        (int)lengths[l], i, e);
            }
            brim_session_close(&session);
        }
        printf("%s %-9s rms error beside the CPU at most %.2g\n", path, levels[v], worst);
        brim_engine_close(&engine);
    }
    free(expected);
}

/* A checkpoint of Qwen3-4B's shapes, for whose products a chain has schedules of its own at some
 * numbers of rows: recorded prompts against launches, and beside another rung's kernels. */
static void chain_schedules(const char *path)
{
    enum { LONGEST = 160, CONTEXT = 512 };
    static const int64_t rows[][2] = {{9, 16},  {16, 12}, {32, 17},   {33, 48},
                                      {64, 50}, {96, 70}, {128, 100}, {130, 160}};
    enum { N_CASE = sizeof rows / sizeof *rows };
    int32_t ids[LONGEST + 3];
    float *expected = NULL;
    double worst = 0;
    for (int hopper = 0; hopper < 2; hopper++) {
        brim_engine *engine = open_engine(path, BRIM_DEVICE_CUDA, hopper ? "hopper" : "tiled");
        int64_t n_vocab = n_vocab_of(engine);
        some_ids(ids, LONGEST + 3, n_vocab);
        if (!hopper) expected = allocate((size_t)N_CASE * (size_t)n_vocab * sizeof(float));
        for (int i = 0; i < N_CASE; i++) {
            float *row = expected + (size_t)i * (size_t)n_vocab;
            brim_session *session = open_session(engine, CONTEXT, 0, false);
            MUST(brim_session_eval(session, ids, rows[i][1], &err));
            if (hopper) {
                double e = rms_error(brim_session_logits(session), row, n_vocab);
                worst = e > worst || isnan(e) ? e : worst;
                verdict(e <= BOUND_RMS, "%s: %d tokens: rms %.3g", path, (int)rows[i][1], e);
            } else {
                memcpy(row, brim_session_logits(session), (size_t)n_vocab * sizeof(float));
            }
            brim_session_close(&session);
            if (hopper) prompt_replays_of(engine, path, CONTEXT, ids, rows[i][0], rows[i][1]);
        }
        brim_engine_close(&engine);
    }
    printf("%s: rms of hopper beside tiled at most %.2g\n", path, worst);
    free(expected);
}

/* A context of 32,768: pieces of 512 against pieces of 2048, the last eight tokens by decode's
 * attention against prefill's, and the end of the context. */
static void long_context(const char *path)
{
    enum { CONTEXT = 32768, TAIL = 8 };
    brim_engine *engine = open_engine(path, BRIM_DEVICE_CUDA, NULL);
    int64_t n_vocab = n_vocab_of(engine);
    size_t line = (size_t)n_vocab * sizeof(float);
    int32_t *ids = allocate((CONTEXT + 1) * sizeof *ids);
    float *logits = allocate(line);
    some_ids(ids, CONTEXT + 1, n_vocab);
    brim_session *a = open_session(engine, CONTEXT, 512, false);
    brim_session *b = open_session(engine, CONTEXT, 2048, false);
    MUST(brim_session_eval(a, ids, CONTEXT - TAIL, &err));
    memcpy(logits, brim_session_logits(a), line);
    MUST(brim_session_eval(b, ids, CONTEXT - TAIL, &err));
    double pieces = rms_error(brim_session_logits(b), logits, n_vocab);
    verdict(pieces <= BOUND_RMS, "32k: pieces of 512 and 2048: rms %.3g", pieces);
    MUST(brim_session_rewind(b, CONTEXT - 2 * TAIL, &err));
    MUST(brim_session_eval(b, ids + CONTEXT - 2 * TAIL, TAIL, &err));
    double tail = rms_error(brim_session_logits(b), logits, n_vocab);
    verdict(tail <= BOUND_RMS, "32k: the last eight tokens alone: rms %.3g", tail);
    for (int i = 0; i < TAIL; i++) MUST(brim_session_eval(b, ids + CONTEXT - TAIL + i, 1, &err));
    MUST(brim_session_eval(a, ids + CONTEXT - TAIL, TAIL, &err));
    double steps = rms_error(brim_session_logits(b), brim_session_logits(a), n_vocab);
    verdict(steps <= BOUND_RMS, "32k: eight steps and eight rows: rms %.3g", steps);
    brim_error error = {0};
    verdict(brim_session_eval(b, ids + CONTEXT, 1, &error) == BRIM_E_CONTEXT, "32k: beyond");
    printf("context of 32768: rms %.2g by pieces, %.2g by tail, %.2g by steps\n", pieces, tail,
           steps);
    brim_session_close(&a);
    brim_session_close(&b);
    brim_engine_close(&engine);
    free(logits);
    free(ids);
}

static void synthetic(const char *preset, bool is_short)
{
    const char *tmp = getenv("TMPDIR");
    char dir[512], path[600], command[700];
    snprintf(dir, sizeof dir, "%s/check_engine.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir)) abort();
    snprintf(path, sizeof path, "%s/%s", dir, preset);
    MUST(brim_synth(preset, path, 1, NULL, NULL, &err));
    beside_cpu(path, is_short);
    if (!is_short) long_context(path);
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    if (system(command) != 0) printf("left behind: %s\n", dir);
}

/* Greedy tokens of the committed prompts: the GPU follows the CPU's text and must choose the same
 * token at every step but near-ties, which are shown. */
static void greedy(const char *path)
{
    enum { N_TOKEN = 48 };
    FILE *file = fopen("tests/golden/text/prompts.txt", "rb");
    char text[1024];
    brim_engine *engines[2] = {open_engine(path, BRIM_DEVICE_CPU, NULL),
                               open_engine(path, BRIM_DEVICE_CUDA, NULL)};
    int64_t n_vocab = n_vocab_of(engines[0]);
    int n_prompt = 0, n_step = 0, n_tie = 0;
    while (file && fgets(text, sizeof text, file)) {
        text[strcspn(text, "\n")] = 0;
        if (!text[0]) continue;
        int32_t ids[1024];
        size_t n;
        MUST(brim_tokenize(engines[0], text, strlen(text), false, ids, 1024, &n, &err));
        brim_session *s[2] = {open_session(engines[0], 1024, 0, false),
                              open_session(engines[1], 1024, 0, false)};
        for (int e = 0; e < 2; e++) MUST(brim_session_eval(s[e], ids, (int64_t)n, &err));
        for (int i = 0; i < N_TOKEN; i++, n_step++) {
            const float *l[2] = {brim_session_logits(s[0]), brim_session_logits(s[1])};
            int32_t best[2] = {0, 0};
            for (int e = 0; e < 2; e++)
                for (int32_t v = 1; v < n_vocab; v++)
                    if (l[e][v] > l[e][best[e]]) best[e] = v;
            if (best[0] != best[1]) {
                float gap = fmaxf(l[0][best[0]] - l[0][best[1]], l[1][best[1]] - l[1][best[0]]);
                n_tie++;
                printf("near-tie: prompt %d, token %d: ids %d and %d, gap %.3f\n", n_prompt, i,
                       best[0], best[1], (double)gap);
                verdict(gap <= NEAR_TIE, "prompt %d, token %d: %d against %d", n_prompt, i, best[1],
                        best[0]);
            }
            for (int e = 0; e < 2; e++) MUST(brim_session_eval(s[e], &best[0], 1, &err));
        }
        for (int e = 0; e < 2; e++) brim_session_close(&s[e]);
        n_prompt++;
    }
    if (file) fclose(file);
    verdict(n_prompt > 0, "no prompt was read");
    printf("greedy: %d prompts, %d tokens, %d near-ties\n", n_prompt, n_step, n_tie);
    for (int e = 0; e < 2; e++) brim_engine_close(&engines[e]);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    bool is_short = false, is_tiny = false;
    const char *preset = NULL, *model = NULL, *chain = NULL;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "short")) is_short = true;
        if (!strcmp(argv[i], "tiny")) is_tiny = true;
        if (!strcmp(argv[i], "--synth") && i + 1 < argc) preset = argv[++i];
        if (!strcmp(argv[i], "--model") && i + 1 < argc) model = argv[++i];
        if (!strcmp(argv[i], "--chain") && i + 1 < argc) chain = argv[++i];
    }
    struct brim_cuda_device device;
    brim_error err = {0};
    if (brim_cuda_device_get(0, &device, &err) != BRIM_OK) {
        printf("SKIP: %s\n0 passed, 0 failed, 1 skipped\n", err.text);
        return 77;
    }
    if (is_tiny) {
        for (int l = N_LEVEL - 2; l < N_LEVEL; l++) {
            few_steps("qwen3_mlx_g64", levels[l]);
            few_steps("llama_tied", levels[l]);
        }
        printf("%d passed, %d failed, %d skipped\n", n_passed, n_failed, n_skipped);
        return n_failed ? 1 : 0;
    }
    for (int l = 0; l < N_LEVEL; l++) goldens(levels[l], is_short);
    for (int l = 0; l < N_LEVEL; l++) {
        if (is_short && l != N_LEVEL - 1) continue;
        replay_equals_launches("qwen3_mlx_g64", levels[l]);
        replay_equals_launches("llama_tied", levels[l]);
    }
    static const int64_t alike[][2] = {{3, 3}, {9, 16}, {16, 11}, {17, 19}};
    for (size_t i = is_short ? 2 : 0; i < sizeof alike / sizeof *alike; i++) {
        prompt_replays("qwen3_mlx_g64", alike[i][0], alike[i][1]);
        if (!is_short) prompt_replays("llama_tied", alike[i][0], alike[i][1]);
    }
    one_token_of_two_levels("qwen3_mlx_g64");
    if (!is_short) one_token_of_two_levels("qwen3_mlx_g32");
    more_than_there_is(&device);
    for (int f = 0; f < 2; f++) {
        timelines("qwen3_mlx_g32", f);
        if (!is_short) timelines("qwen2_bias", f);
    }
    two_sessions("qwen3_mlx_g64");
    if (!is_short) out_of_memory("qwen3_mlx_g64");
    if (preset) synthetic(preset, is_short);
    if (chain) chain_schedules(chain);
    if (model)
        greedy(model);
    else
        n_skipped++;
    printf("%d passed, %d failed, %d skipped\n", n_passed, n_failed, n_skipped);
    return n_failed ? 1 : 0;
}
