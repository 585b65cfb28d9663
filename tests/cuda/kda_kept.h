/* SPDX-License-Identifier: Apache-2.0
 * Runs of a cut KDA route with pinned lengths, and their outputs kept for comparison: what the
 * checks of the split and of the join share. */
#ifndef BRIM_CHECK_KDA_KEPT_H
#define BRIM_CHECK_KDA_KEPT_H

#include "cuda/kda/layout.h"
#include "cuda/kda_device.h"
#include "plan/kda_route.h"

static int n_pass, n_fail;

static void verdict(bool ok, const char *what, int a, int b, const char *why)
{
    if (ok) {
        n_pass++;
        return;
    }
    n_fail++;
    printf("FAILED: %s %d %d: %s\n", what, a, b, why);
}

/* Route `route` with the lengths pinned, over outputs of NaN and, but for the control words, over a
 * workspace of NaN. */
static void run(struct kda_device *d, const char *route, int length, int window, bool exact)
{
    brim_error err = {0};
    size_t n_bytes = 0;
    d->args.route = route;
    d->args.split_length = length;
    d->args.split_window = window;
    d->args.split_exact = exact;
    if (brim_kda_workspace_bytes(&d->args, &n_bytes, &err) != BRIM_OK) {
        printf("%s: %s\n", route ? route : "auto", err.text);
        exit(2);
    }
    if (n_bytes > d->args.workspace_bytes) {
        d->args.workspace = kda_upload(d, NULL, n_bytes);
        d->args.workspace_bytes = n_bytes;
        if (brim_kda_workspace_init(BRIM_KERNEL_CUDA, d->args.workspace, n_bytes, NULL, &err) !=
            BRIM_OK)
            exit(2);
    }
    size_t control = (size_t)BRIM_KDA_MAX_TASK * KDA_CONTROL_BYTES;
    if (n_bytes > control)
        CUDA_OK(cudaMemset((char *)d->args.workspace + control, 0xFF, n_bytes - control));
    CUDA_OK(cudaMemset(d->args.out, 0xFF, d->host->v_bytes));
    if (d->host->checkpoints)
        CUDA_OK(cudaMemset(d->args.checkpoints, 0xFF, d->host->checkpoint_bytes));
    if (d->args.final_state != d->args.initial_state)
        CUDA_OK(cudaMemset(d->args.final_state, 0xFF, d->host->state_bytes));
    if (brim_kda_prefill(&d->args, &err) != BRIM_OK) {
        printf("%s: %s\n", route ? route : "auto", err.text);
        exit(2);
    }
}

struct kept {
    uint16_t *out;
    char *final, *checkpoints;
};

/* Outputs of a run, fetched before. */
static struct kept keep(const struct kda_case *c)
{
    struct kept k = {kda_alloc(c->v_bytes), kda_alloc(c->state_bytes),
                     kda_alloc(c->checkpoint_bytes)};
    memcpy(k.out, c->out, c->v_bytes);
    memcpy(k.final, c->final, c->state_bytes);
    if (c->checkpoints) memcpy(k.checkpoints, c->checkpoints, c->checkpoint_bytes);
    return k;
}

static bool same(const struct kept *k, const struct kda_case *c)
{
    return !memcmp(k->out, c->out, c->v_bytes) && !memcmp(k->final, c->final, c->state_bytes) &&
           (!c->checkpoints || !memcmp(k->checkpoints, c->checkpoints, c->checkpoint_bytes));
}

static void drop(struct kept *k)
{
    free(k->out), free(k->final), free(k->checkpoints);
}

#endif
