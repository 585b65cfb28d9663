/* SPDX-License-Identifier: Apache-2.0
 * What only a runtime that counts and fails on demand can show: a decode step makes one graph
 * launch and one wait and allocates nothing, weights go up once, each reason why a device cannot be
 * used has its own error and leaves the CPU in use, and memory that ends at any allocation is
 * reported and given back. Run from the source directory, on the emulator. */
#define _GNU_SOURCE
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "brim/brim.h"
#include "brim/kernels.h"
#include "cuda_runtime_api.h"
#include "emu_device.h"

#define BRIM_SOURCE_DIR "."
#include "cuda/engine_judge.h"
#include "unit/golden.h"

static brim_status open_engine(brim_engine **out, const char *path, brim_device device,
                               const char *level, brim_error *err)
{
    brim_engine_options options;
    brim_engine_options_default(&options);
    options.device = device;
    options.level = level;
    return brim_engine_open(out, path, &options, err);
}

static brim_session *open_session(brim_engine *engine, int64_t chunk, bool kv_f32)
{
    brim_session_options options;
    brim_session_options_default(&options);
    options.prefill_chunk = chunk;
    options.kv_f32 = kv_f32;
    brim_session *session;
    MUST(brim_session_open(&session, engine, &options, &err));
    return session;
}

static struct emu_calls since(struct emu_calls before)
{
    struct emu_calls now = emu_calls();
    return (struct emu_calls){
        .alloc = now.alloc - before.alloc,
        .free = now.free - before.free,
        .host_alloc = now.host_alloc - before.host_alloc,
        .host_free = now.host_free - before.host_free,
        .create = now.create - before.create,
        .wait = now.wait - before.wait,
        .launch = now.launch - before.launch,
        .graph_launch = now.graph_launch - before.graph_launch,
        .graph_kernel = now.graph_kernel - before.graph_kernel,
        .copy = now.copy - before.copy,
        .fill = now.fill - before.fill,
        .upload_bytes = now.upload_bytes - before.upload_bytes,
    };
}

static bool nothing_made(const struct emu_calls *c)
{
    return c->alloc + c->free + c->host_alloc + c->host_free + c->create == 0;
}

/* ---- a step ---- */

/* Launches, copies and waits of one step, and that nothing was allocated, freed or created. */
static void expect_step(const char *what, const char *level, struct emu_calls c, int64_t n_wait,
                        int64_t n_launch, int64_t n_copy)
{
    verdict(
        nothing_made(&c) && c.graph_launch == 1 && c.graph_kernel > 0 && c.wait == n_wait &&
            c.launch == n_launch && c.copy == n_copy && c.fill == 0 && c.upload_bytes == 0,
        "%s, %s: %d allocated, %d freed, %d created, %d graphs of %d kernels, %d other kernels, "
        "%d waits, %d copies, %d fills, %d bytes up",
        level, what, (int)(c.alloc + c.host_alloc), (int)(c.free + c.host_free), (int)c.create,
        (int)c.graph_launch, (int)c.graph_kernel, (int)c.launch, (int)c.wait, (int)c.copy,
        (int)c.fill, (int)c.upload_bytes);
}

/* After the first step and the first look at its logits a step is one graph, and brim_session_eval
 * waits once, for it. The likeliest token is then on the host. Drawing one is one kernel more and a
 * wait for that, logits are a copy and a wait for that. */
static void steps(const char *level, bool kv_f32)
{
    struct golden g = golden_load("qwen3_mlx_g64");
    brim_engine *engine;
    MUST(open_engine(&engine, g.path, BRIM_DEVICE_CUDA, level, &err));
    brim_session *session = open_session(engine, 0, kv_f32);
    brim_sampling greedy, drawing;
    brim_sampling_default(&greedy);
    brim_sampling_default(&drawing);
    drawing.temperature = 0.8f;
    drawing.top_k = 20;
    brim_sampler *likeliest, *drawn;
    MUST(brim_sampler_open(&likeliest, engine, &greedy, &err));
    MUST(brim_sampler_open(&drawn, engine, &drawing, &err));
    MUST(brim_session_eval(session, g.ids, 9, &err));
    MUST(brim_session_eval(session, g.ids + 9, 1, &err));
    (void)brim_session_logits(session);
    int32_t id;
    for (int i = 10; i < 13; i++) {
        struct emu_calls before = emu_calls();
        MUST(brim_session_eval(session, g.ids + i, 1, &err));
        MUST(brim_sampler_next(likeliest, session, &id, &err));
        expect_step("the likeliest token", level, since(before), 1, 0, 0);
    }
    for (int i = 13; i < 16; i++) {
        struct emu_calls before = emu_calls();
        MUST(brim_session_eval(session, g.ids + i, 1, &err));
        MUST(brim_sampler_next(drawn, session, &id, &err));
        expect_step("a drawn token", level, since(before), 2, 1, 0);
    }
    for (int i = 16; i < 19; i++) {
        struct emu_calls before = emu_calls();
        MUST(brim_session_eval(session, g.ids + i, 1, &err));
        verdict(brim_session_logits(session) != NULL, "%s: logits", level);
        expect_step("the logits", level, since(before), 2, 0, 1);
    }
    for (int i = 19; i < 22; i++) {
        struct emu_calls before = emu_calls();
        MUST(brim_session_eval(session, g.ids + i, 1, &err));
        expect_step("nobody looks", level, since(before), 1, 0, 0);
    }
    /* Several rows: a prompt allocates nothing either. At level hopper the second of its length is
     * recorded, others of as many rows or nearly are replayed. */
    bool recorded = !strcmp(level, "hopper");
    for (int turn = 0; turn < 4; turn++) {
        struct emu_calls before = emu_calls();
        MUST(brim_session_rewind(session, 0, &err));
        MUST(brim_session_eval(session, g.ids, turn < 3 ? 17 : 20, &err));
        struct emu_calls c = since(before);
        if (recorded && turn >= 2) {
            expect_step("a prompt", level, c, 1, 0, 0);
            continue;
        }
        bool records = recorded && turn == 1;
        verdict((records || nothing_made(&c)) && c.graph_launch == records &&
                    (c.launch > 0) == !records,
                "%s: prompt %d: %d allocated, %d freed, %d created, %d launches, %d graphs", level,
                turn, (int)(c.alloc + c.host_alloc), (int)(c.free + c.host_free), (int)c.create,
                (int)c.launch, (int)c.graph_launch);
    }
    brim_sampler_close(&likeliest);
    brim_sampler_close(&drawn);
    brim_session_close(&session);
    brim_engine_close(&engine);
    verdict(emu_used_bytes() == 0, "%s: %zu bytes are left", level, emu_used_bytes());
    golden_free(&g);
}

/* One token takes the matvec on both levels: the same bits, by the same launches. */
static void one_token_of_two_levels(const char *name)
{
    struct golden g = golden_load(name);
    size_t line = (size_t)g.n_vocab * sizeof(float);
    float *logits = malloc(2 * line);
    struct emu_calls c[2];
    uint64_t kernels[2];
    for (int l = 0; l < 2; l++) {
        brim_engine *engine;
        MUST(open_engine(&engine, g.path, BRIM_DEVICE_CUDA, l ? "split-k" : "tiled", &err));
        brim_session *session = open_session(engine, 0, false);
        for (int i = 0; i < 6; i++) {
            struct emu_calls before = emu_calls();
            emu_kernels_restart();
            MUST(brim_session_eval(session, g.ids + i, 1, &err));
            memcpy((char *)logits + (size_t)l * line, brim_session_logits(session), line);
            c[l] = since(before);
            kernels[l] = emu_calls().kernels;
        }
        brim_session_close(&session);
        brim_engine_close(&engine);
    }
    verdict(memcmp(logits, (char *)logits + line, line) == 0,
            "%s: one token has other bits in split-k than in tiled", name);
    verdict(c[0].graph_kernel == c[1].graph_kernel && kernels[0] == kernels[1] &&
                c[0].graph_kernel > 0,
            "%s: one token is %d kernels in tiled and %d in split-k", name, (int)c[0].graph_kernel,
            (int)c[1].graph_kernel);
    free(logits);
    golden_free(&g);
}

/* ---- weights ---- */

struct progress {
    uint64_t done, total;
    int n_call, n_back;
};

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct progress *p = ctx;
    p->n_back += done < p->done || (p->n_call > 0 && total != p->total);
    p->done = done, p->total = total;
    p->n_call++;
}

static void weights_go_up_once(const char *name)
{
    struct golden g = golden_load(name);
    struct progress progress = {0};
    brim_engine_options options;
    brim_engine_options_default(&options);
    options.device = BRIM_DEVICE_CUDA;
    options.progress = on_progress;
    options.progress_ctx = &progress;
    struct emu_calls before = emu_calls();
    brim_engine *engine;
    MUST(brim_engine_open(&engine, g.path, &options, &err));
    uint64_t up = since(before).upload_bytes;
    brim_model_info info;
    brim_engine_info(engine, &info);
    size_t held = emu_used_bytes();
    verdict(progress.n_call > 1 && progress.n_back == 0 && progress.done == progress.total &&
                progress.total > 0,
            "%s: %d reports, %d of them back, %llu of %llu", name, progress.n_call, progress.n_back,
            (unsigned long long)progress.done, (unsigned long long)progress.total);
    before = emu_calls();
    for (int i = 0; i < 2; i++) {
        brim_session *session = open_session(engine, 4, false);
        MUST(brim_session_eval(session, g.ids, 13, &err));
        MUST(brim_session_eval(session, g.ids + 13, 1, &err));
        brim_session_close(&session);
    }
    uint64_t later = since(before).upload_bytes;
    verdict(up >= progress.total / 2 && up <= 2 * progress.total + 65536 && later < up / 8,
            "%s: %llu bytes go up at the start, %llu later, of %llu", name, (unsigned long long)up,
            (unsigned long long)later, (unsigned long long)progress.total);
    verdict(emu_used_bytes() == held, "%s: sessions leave %zu bytes", name,
            emu_used_bytes() - held);
    brim_engine_close(&engine);
    golden_free(&g);
}

/* A scale or bias that is not finite is found when a checkpoint is opened, at every level, and
 * named. */
static void parameters_that_are_not_finite(void)
{
    static const char tensor[] = "model.layers.1.mlp.down_proj";
    char directory[] = "/tmp/brim-device-XXXXXX", command[300], path[64], name[80];
    if (!mkdtemp(directory)) abort();
    snprintf(command, sizeof command, "cp " GOLDEN_DIR "qwen3_mlx_g32/* %s", directory);
    snprintf(path, sizeof path, "%s/model.safetensors", directory);
    verdict(system(command) == 0, "%s", command);
    for (int i = 0; i < 4; i++) {
        FILE *f = fopen(GOLDEN_DIR "qwen3_mlx_g32/model.safetensors", "rb");
        static char data[1 << 20];
        size_t n = f ? fread(data, 1, sizeof data, f) : 0;
        uint64_t n_header;
        long offset;
        if (f) fclose(f);
        memcpy(&n_header, data, 8);
        snprintf(name, sizeof name, "\"%s.%s\"", tensor, i & 1 ? "biases" : "scales");
        data[sizeof data - 1] = 0;
        const char *at = strstr(data + 8, name);
        at = at ? strstr(at, "\"data_offsets\"") : NULL;
        if (!verdict(n > 0 && n < sizeof data && at &&
                         sscanf(strchr(at, '['), "[%ld", &offset) == 1,
                     "no %s", name))
            break;
        memcpy(data + 8 + n_header + offset + 2 * 5, i & 2 ? "\x80\x7F" : "\xC0\x7F", 2);
        f = fopen(path, "wb");
        verdict(f && fwrite(data, 1, n, f) == n && fclose(f) == 0, "%s is not written", path);
        for (int l = 0; l < N_LEVEL; l++) {
            brim_engine *engine;
            brim_error err = {0};
            brim_status status = open_engine(&engine, directory, BRIM_DEVICE_CUDA, levels[l], &err);
            verdict(status == BRIM_E_NOT_FINITE && !engine && strstr(err.text, tensor) &&
                        strstr(err.text, "group"),
                    "%s, %s: %s: %s", levels[l], name, brim_status_name(status), err.text);
            if (status == BRIM_OK) brim_engine_close(&engine);
            verdict(emu_used_bytes() == 0, "%s: %zu bytes are left", levels[l], emu_used_bytes());
        }
    }
    snprintf(command, sizeof command, "rm -r %s", directory);
    verdict(system(command) == 0, "%s", command);
}

/* ---- devices that cannot be used ---- */

static void the_cpu_works(const struct golden *g, const char *why)
{
    brim_engine *engine;
    brim_error err = {0};
    if (!verdict(open_engine(&engine, g->path, BRIM_DEVICE_CPU, NULL, &err) == BRIM_OK,
                 "%s: the CPU: %s", why, err.text))
        return;
    brim_session *session = open_session(engine, 0, false);
    MUST(brim_session_eval(session, g->ids, 5, &err));
    float worst = 0;
    for (int64_t i = 0; i < g->n_vocab; i++)
        worst =
            fmaxf(worst, fabsf(brim_session_logits(session)[i] - g->logits[4 * g->n_vocab + i]));
    verdict(worst <= 1e-2f * g->largest, "%s: the CPU is off by %g", why, (double)worst);
    brim_session_close(&session);
    brim_engine_close(&engine);
}

static void gate(void)
{
    struct golden g = golden_load("qwen3_mlx_g64");
    const struct emu_device good = emu_device_default();
    const struct {
        const char *what;
        struct emu_device device;
        brim_status status;
        const char *text;
    } cases[] = {
        {"no device",
         {0, 9, 0, good.driver_version, good.total_bytes, 0},
         BRIM_E_DEVICE,
         "no such CUDA device"},
        {"no driver",
         {1, 9, 0, 0, good.total_bytes, 0},
         BRIM_E_DRIVER,
         "the NVIDIA driver is missing or older"},
        {"an old driver",
         {1, 9, 0, 12080, good.total_bytes, 0},
         BRIM_E_DRIVER,
         "the NVIDIA driver is missing or older"},
        {"an older device",
         {1, 8, 0, good.driver_version, good.total_bytes, 0},
         BRIM_E_ARCH,
         "has compute capability 8.0"},
        {"a newer device",
         {1, 10, 0, good.driver_version, good.total_bytes, 0},
         BRIM_E_ARCH,
         "has compute capability 10.0"},
        {"little memory",
         {1, 9, 0, good.driver_version, 100000, 0},
         BRIM_E_NO_MEMORY,
         "bytes of device memory are needed"},
        {"no code for it",
         {1, 9, 0, good.driver_version, good.total_bytes, cudaErrorNoKernelImageForDevice},
         BRIM_E_ARCH,
         "this build holds machine code for sm_90a only"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        emu_device = cases[i].device;
        brim_error err = {0};
        brim_engine *engine = (brim_engine *)1;
        brim_status status = open_engine(&engine, g.path, BRIM_DEVICE_CUDA, NULL, &err);
        verdict(status == cases[i].status && err.status == status && !engine &&
                    strstr(err.text, cases[i].text),
                "%s: %s: %s", cases[i].what, brim_status_name(status), err.text);
        the_cpu_works(&g, cases[i].what);
        verdict(emu_used_bytes() == 0, "%s: %zu bytes are left", cases[i].what, emu_used_bytes());
        printf("%s: %s\n", cases[i].what, err.text);
    }
    emu_device = good;
    brim_engine *engine;
    MUST(open_engine(&engine, g.path, BRIM_DEVICE_CUDA, NULL, &err));
    brim_session *session = open_session(engine, 0, false);
    MUST(brim_session_eval(session, g.ids, 5, &err));
    brim_session_close(&session);
    brim_engine_close(&engine);
    golden_free(&g);
}

/* Every allocation of an engine, a session and its first steps fails once. */
static void every_allocation(const char *level)
{
    struct golden g = golden_load("qwen3_mlx_g64");
    int n_refused = 0;
    bool whole = false;
    for (int64_t n = 0; n < 1000 && !whole; n++) {
        brim_error err = {0};
        brim_engine *engine = NULL;
        brim_session *session = NULL;
        emu_fail_allocation_after(n);
        brim_status status = open_engine(&engine, g.path, BRIM_DEVICE_CUDA, level, &err);
        if (status == BRIM_OK) status = brim_session_open(&session, engine, NULL, &err);
        if (status == BRIM_OK) status = brim_session_eval(session, g.ids, 5, &err);
        if (status == BRIM_OK) status = brim_session_eval(session, g.ids + 5, 1, &err);
        bool logits = status == BRIM_OK && brim_session_logits(session);
        whole = logits;
        emu_fail_allocation_after(-1);
        if (status != BRIM_OK) {
            n_refused++;
            verdict(status == BRIM_E_NO_MEMORY &&
                        (strstr(err.text, "are needed") || strstr(err.text, "page-locked memory")),
                    "%s: allocation %d: %s: %s", level, (int)n, brim_status_name(status), err.text);
        }
        brim_session_close(&session);
        brim_engine_close(&engine);
        verdict(emu_used_bytes() == 0, "%s: allocation %d: %zu bytes are left", level, (int)n,
                emu_used_bytes());
    }
    verdict(whole && n_refused > 10, "%s: %d allocations were refused", level, n_refused);
    golden_free(&g);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int l = 0; l < N_LEVEL; l++) steps(levels[l], false);
    steps("hopper", true);
    one_token_of_two_levels("qwen3_mlx_g64");
    one_token_of_two_levels("qwen3_mlx_g32");
    weights_go_up_once("qwen3_mlx_g64");
    weights_go_up_once("llama_tied");
    parameters_that_are_not_finite();
    gate();
    every_allocation("hopper");
    every_allocation("split-k");
    printf("%d passed, %d failed, %d skipped\n", n_passed, n_failed, n_skipped);
    return n_failed ? 1 : 0;
}
