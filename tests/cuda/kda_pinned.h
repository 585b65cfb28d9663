/* SPDX-License-Identifier: Apache-2.0
 * Runs of a cut KDA route with pinned lengths, and their verdicts: what the checks of the split and
 * of the join share. */
#ifndef BRIM_CHECK_KDA_PINNED_H
#define BRIM_CHECK_KDA_PINNED_H

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
    outputs_poison(d);
    if (brim_kda_prefill(&d->args, &err) != BRIM_OK) {
        printf("%s: %s\n", route ? route : "auto", err.text);
        exit(2);
    }
}

#endif
