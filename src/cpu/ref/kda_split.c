/* SPDX-License-Identifier: Apache-2.0
 * A sequence cut into segments that do not wait for each other: each starts from the state that a
 * window of chunks before it writes from zero. A cut is taken only if what the window forgets is
 * proved to be below rounding (docs/numerics.md, "Forgetting"); from one that is not the task goes
 * on serially from the true state, so that no row's bits depend on later tokens. The model of the
 * GPU's split route. */
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

static brim_status split_task(const brim_kda_args *args, const struct brim_kda_task *task,
                              enum brim_kda_rounding rounding, const struct brim_kda_split *split,
                              struct brim_kda_split_report *report, struct work *work,
                              double *norms, void *scratch)
{
    int64_t n_chunk = brim_kda_n_chunk(task);

    *report = (struct brim_kda_split_report){0};
    memset(work->state, 0, sizeof work->state);
    if (task->initial) brim_kda_state_load(args, task->initial, work->state);
    for (int64_t begin = 0, end; begin < n_chunk; begin = end) {
        int64_t length = begin == 0 && split->first > 0 ? split->first : split->length;
        end = begin + length < n_chunk ? begin + length : n_chunk;
        int64_t from = begin > split->window ? begin - split->window : 0;
        bool cut = begin > 0;
        if (cut) {
            double sum = 0;
            memset(work->window, 0, sizeof work->window);
            if (from == 0 && task->initial) brim_kda_state_load(args, task->initial, work->window);
            struct brim_kda_range window = {from,        begin, true, work->window,
                                            work->bound, NULL,  false};
            brim_kda_chunk_range(args, task, rounding, &window, scratch);
            for (int64_t i = 0; i < begin - from; i++) sum += work->bound[i];
            /* written so that NaN fails */
            bool near = from == 0 || sum <= threshold;
            bool large = from == 0 || exp(sum) * norms[from] <= exp(threshold) * norm(work->window);
            report->n_far += !near;
            report->n_small += near && !large;
            cut = near && large;
            report->n_skipped += cut;
            if (cut)
                memcpy(work->state, work->window, sizeof work->state);
            else
                end = n_chunk; /* and from the state before */
        }
        struct brim_kda_range range = {begin, end, false, work->state, NULL, norms + begin, false};
        brim_kda_chunk_range(args, task, rounding, &range, scratch);
    }
    if (task->final) brim_kda_state_store(args, work->state, task->final);
    return BRIM_OK;
}

brim_status brim_kda_split_task(const brim_kda_args *args, const struct brim_kda_task *task,
                                enum brim_kda_rounding rounding, const struct brim_kda_split *split,
                                struct brim_kda_split_report *report, brim_error *err)
{
    struct brim_kda_split_report unused;
    int64_t n_chunk = brim_kda_n_chunk(task);
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
