/* SPDX-License-Identifier: Apache-2.0
 * A sequence cut into segments that do not wait for each other: each starts from the state that a
 * window of chunks before it writes from zero. A cut is taken only if what the window forgets is
 * proved to be below rounding (docs/numerics.md, "Forgetting"); one that is not makes the task
 * serial, so that it keeps the bits of the serial routes. The model of the GPU's split route. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "cpu/kda.h"

enum { D = 128, N = D * D };

/* log 2^-24 */
static const double threshold = -24 * 0.6931471805599453;

static double norm(const float *state)
{
    double sum = 0;
    for (int i = 0; i < N; i++) sum += (double)state[i] * state[i];
    return sqrt(sum);
}

struct work {
    float state[N], window[N];
    double bound[BRIM_KDA_WINDOW_MAX];
};

/* The shortest window before chunk `cut` whose map is below the threshold, and its log bound; one
 * that reaches the beginning of the sequence forgets nothing. 0: none is short enough. */
static int find_window(const brim_kda_args *args, const struct brim_kda_task *task,
                       enum brim_kda_rounding rounding, int64_t cut, int window_max,
                       struct work *work, double *sum, void *scratch)
{
    *sum = 0;
    for (int w = 1; w <= window_max; w++) {
        double bound;
        memset(work->window, 0, sizeof work->window);
        struct brim_kda_range one = {cut - w, cut - w + 1, true, work->window, &bound, NULL};
        brim_kda_chunk_range(args, task, rounding, &one, scratch);
        *sum += bound;
        if (*sum <= threshold || w == cut) return w;
    }
    return 0;
}

static brim_status serial(const brim_kda_args *args, const struct brim_kda_task *task,
                          enum brim_kda_rounding rounding, void *scratch)
{
    brim_kda_chunk_task(args, task, rounding, scratch);
    return BRIM_OK;
}

static brim_status split_task(const brim_kda_args *args, const struct brim_kda_task *task,
                              enum brim_kda_rounding rounding, const struct brim_kda_split *split,
                              struct brim_kda_split_report *report, struct work *work,
                              double *norms, void *scratch)
{
    int64_t n_chunk = (task->n_tok + BRIM_KDA_CHUNK - 1) / BRIM_KDA_CHUNK;
    int64_t n = split->n_segment < n_chunk ? split->n_segment : n_chunk;

    *report = (struct brim_kda_split_report){0};
    if (n <= 1) return serial(args, task, rounding, scratch);
    /* Initial and final state may be the same memory: the initial one is needed again when a cut
     * fails, so nothing is written there before the last cut has held. */
    struct brim_kda_task inner = *task;
    inner.final = NULL;
    memset(work->state, 0, sizeof work->state);
    if (task->initial) brim_kda_state_load(args, task->initial, work->state);
    for (int64_t s = 0; s < n; s++) {
        int64_t begin = s * n_chunk / n, end = (s + 1) * n_chunk / n;
        if (s > 0) {
            double bound;
            int w =
                find_window(args, task, rounding, begin, split->window_max, work, &bound, scratch);
            if (w == 0) {
                report->n_far++;
                return serial(args, task, rounding, scratch);
            }
            memset(work->window, 0, sizeof work->window);
            if (w == begin && task->initial) brim_kda_state_load(args, task->initial, work->window);
            struct brim_kda_range range = {begin - w, begin, true, work->window, NULL, NULL};
            brim_kda_chunk_range(args, task, rounding, &range, scratch);
            report->n_window_chunk += w;
            /* written so that NaN fails */
            if (w < begin &&
                !(exp(bound) * norms[begin - w] <= exp(threshold) * norm(work->window))) {
                report->n_small++;
                return serial(args, task, rounding, scratch);
            }
            report->n_skipped++;
            memcpy(work->state, work->window, sizeof work->state);
        }
        struct brim_kda_range range = {begin, end, false, work->state, NULL, norms + begin};
        brim_kda_chunk_range(args, &inner, rounding, &range, scratch);
    }
    if (task->final) brim_kda_state_store(args, work->state, task->final);
    return BRIM_OK;
}

brim_status brim_kda_split_task(const brim_kda_args *args, const struct brim_kda_task *task,
                                enum brim_kda_rounding rounding, const struct brim_kda_split *split,
                                struct brim_kda_split_report *report, brim_error *err)
{
    struct brim_kda_split_report unused;
    int64_t n_chunk = (task->n_tok + BRIM_KDA_CHUNK - 1) / BRIM_KDA_CHUNK;
    struct work *work = brim_alloc(sizeof *work);
    double *norms = brim_alloc((size_t)(n_chunk + 1) * sizeof *norms);
    void *scratch = brim_alloc(brim_kda_chunk_scratch_bytes());
    brim_status status = BRIM_E_NO_MEMORY;

    if (work && norms && scratch)
        status = split_task(args, task, rounding, split, report ? report : &unused, work, norms,
                            scratch);
    else
        (void)brim_fail(err, BRIM_E_NO_MEMORY, "kda: no memory for the chunks of a split sequence");
    brim_free(work);
    brim_free(norms);
    brim_free(scratch);
    return status;
}
