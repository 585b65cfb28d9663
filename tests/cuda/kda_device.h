/* SPDX-License-Identifier: Apache-2.0
 * A KDA case on the device: copies of its buffers, and the way back into the host's. */
#ifndef BRIM_CHECK_KDA_DEVICE_H
#define BRIM_CHECK_KDA_DEVICE_H

#include "check/kda_case.h"
#include "cuda_ok.h"

enum { KDA_GUARD = 512 }; /* bytes of 0xA5 on both sides of every device buffer */

struct kda_device {
    struct kda_case *host;
    brim_kda_args args;
    char *block[24];
    size_t bytes[24];
    const void *source[24]; /* host memory whose bytes an input has; NULL: no input */
    int n_block;
};

static inline void *kda_upload(struct kda_device *d, const void *from, size_t n_bytes)
{
    char *block;
    CUDA_OK(cudaMalloc((void **)&block, n_bytes + 2 * KDA_GUARD));
    CUDA_OK(cudaMemset(block, 0xA5, n_bytes + 2 * KDA_GUARD));
    if (from) CUDA_OK(cudaMemcpy(block + KDA_GUARD, from, n_bytes, cudaMemcpyHostToDevice));
    if (d->n_block == 24) abort();
    d->block[d->n_block] = block;
    d->source[d->n_block] = NULL;
    d->bytes[d->n_block++] = n_bytes;
    return block + KDA_GUARD;
}

/* The same for what a call may read and must not change. `from` outlives the device's copy. */
static inline void *kda_upload_input(struct kda_device *d, const void *from, size_t n_bytes)
{
    void *at = kda_upload(d, from, n_bytes);
    d->source[d->n_block - 1] = from;
    return at;
}

/* Does a route run segments, whose bits are not m128's? */
static inline bool kda_cuts(const char *route)
{
    return route && !strncmp(route, "split", 5);
}

/* The device's arguments for a host case; extra pointers (pool, fresh) are the caller's business.
 * Routes that cut are pinned to segments of two chunks; of split-join every one is joined. */
static inline void kda_device_make(struct kda_device *d, struct kda_case *c, const char *route)
{
    memset(d, 0, sizeof *d);
    d->host = c;
    d->args = c->args;
    brim_kda_args *a = &d->args;
    a->device = BRIM_KERNEL_CUDA;
    a->route = route;
    if (kda_cuts(route) && a->split_length == 0) {
        a->split_length = 2, a->split_exact = strcmp(route, "split") != 0;
        a->split_window = !a->split_exact;
    }
    a->q = kda_upload_input(d, c->q, c->q_bytes);
    a->k = kda_upload_input(d, c->k, c->q_bytes);
    a->v = kda_upload_input(d, c->v, c->v_bytes);
    a->g = kda_upload_input(d, c->g, c->g_bytes);
    a->beta = kda_upload_input(d, c->beta, c->beta_bytes);
    a->out = kda_upload(d, c->out, c->v_bytes);
    a->final_state = kda_upload(d, c->final, c->state_bytes);
    if (c->initial) a->initial_state = kda_upload_input(d, c->initial, c->state_bytes);
    if (c->offsets) a->cu_seqlens = kda_upload_input(d, c->offsets, c->offset_bytes);
    if (c->checkpoints) a->checkpoints = kda_upload(d, c->checkpoints, c->checkpoint_bytes);
    if (a->a_log) a->a_log = kda_upload_input(d, c->a_log, (size_t)a->n_value_head * 4);
    if (a->dt_bias) a->dt_bias = kda_upload_input(d, c->dt_bias, (size_t)a->n_value_head * 512);
    size_t n_bytes = 0;
    brim_error err = {0};
    if (brim_kda_workspace_bytes(a, &n_bytes, &err) == BRIM_OK && n_bytes) {
        a->workspace = kda_upload(d, NULL, n_bytes);
        a->workspace_bytes = n_bytes;
        CUDA_OK(cudaMemset(a->workspace, 0xFF, n_bytes)); /* NaN where nothing is written */
        if (brim_kda_workspace_init(BRIM_KERNEL_CUDA, a->workspace, n_bytes, NULL, &err))
            printf("%s\n", err.text);
    }
}

/* Outputs back into the host case. false: a guard byte changed. */
static inline bool kda_device_fetch(struct kda_device *d)
{
    struct kda_case *c = d->host;
    bool clean = true;
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaMemcpy(c->out, d->args.out, c->v_bytes, cudaMemcpyDeviceToHost));
    CUDA_OK(cudaMemcpy(c->final, d->args.final_state, c->state_bytes, cudaMemcpyDeviceToHost));
    if (c->checkpoints)
        CUDA_OK(cudaMemcpy(c->checkpoints, d->args.checkpoints, c->checkpoint_bytes,
                           cudaMemcpyDeviceToHost));
    for (int i = 0; i < d->n_block; i++) {
        unsigned char guard[2 * KDA_GUARD];
        CUDA_OK(cudaMemcpy(guard, d->block[i], KDA_GUARD, cudaMemcpyDeviceToHost));
        CUDA_OK(cudaMemcpy(guard + KDA_GUARD, d->block[i] + KDA_GUARD + d->bytes[i], KDA_GUARD,
                           cudaMemcpyDeviceToHost));
        for (int j = 0; j < 2 * KDA_GUARD; j++) clean = clean && guard[j] == 0xA5;
    }
    return clean;
}

/* Do the inputs hold what the host's copies hold? The initial state is none where the final one is
 * written in its place. */
static inline bool kda_device_inputs_kept(struct kda_device *d)
{
    bool kept = true;
    CUDA_OK(cudaDeviceSynchronize());
    for (int i = 0; i < d->n_block; i++) {
        if (!d->source[i] || d->block[i] + KDA_GUARD == (const char *)d->args.final_state) continue;
        char *now = kda_alloc(d->bytes[i]);
        CUDA_OK(cudaMemcpy(now, d->block[i] + KDA_GUARD, d->bytes[i], cudaMemcpyDeviceToHost));
        kept = kept && !memcmp(now, d->source[i], d->bytes[i]);
        free(now);
    }
    return kept;
}

/* Outputs as a run left them, once fetched. */
struct outputs {
    uint16_t *out;
    char *final, *checkpoints;
};

static inline struct outputs outputs_keep(const struct kda_case *c)
{
    struct outputs o = {kda_alloc(c->v_bytes), kda_alloc(c->state_bytes),
                        kda_alloc(c->checkpoint_bytes)};
    memcpy(o.out, c->out, c->v_bytes);
    memcpy(o.final, c->final, c->state_bytes);
    if (c->checkpoints) memcpy(o.checkpoints, c->checkpoints, c->checkpoint_bytes);
    return o;
}

static inline bool outputs_same(const struct outputs *o, const struct kda_case *c)
{
    return !memcmp(o->out, c->out, c->v_bytes) && !memcmp(o->final, c->final, c->state_bytes) &&
           (!c->checkpoints || !memcmp(o->checkpoints, c->checkpoints, c->checkpoint_bytes));
}

static inline void outputs_drop(struct outputs *o)
{
    free(o->out), free(o->final), free(o->checkpoints);
}

/* Every output on the device becomes NaN. */
static inline void outputs_poison(struct kda_device *d)
{
    CUDA_OK(cudaMemset(d->args.out, 0xFF, d->host->v_bytes));
    if (d->args.final_state != d->args.initial_state)
        CUDA_OK(cudaMemset(d->args.final_state, 0xFF, d->host->state_bytes));
    if (d->args.checkpoints)
        CUDA_OK(cudaMemset(d->args.checkpoints, 0xFF, d->host->checkpoint_bytes));
}

static inline void kda_device_free(struct kda_device *d)
{
    for (int i = 0; i < d->n_block; i++) CUDA_OK(cudaFree(d->block[i]));
    memset(d, 0, sizeof *d);
}

#endif
