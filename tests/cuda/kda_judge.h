/* SPDX-License-Identifier: Apache-2.0
 * A KDA route's outputs against fp64 and against the rounding model, for programs of one main file.
 * Prints one line a failure and one a case. */
#ifndef BRIM_CHECK_KDA_JUDGE_H
#define BRIM_CHECK_KDA_JUDGE_H

#include "base/pool.h"
#include "cuda/kda_device.h"

static struct brim_pool *pool;
static const char *route;
static int n_check, n_fail;

static inline void verdict(bool ok, const char *what, const char *detail)
{
    n_check++;
    if (ok) return;
    n_fail++;
    printf("FAIL %s: %s\n", what, detail);
}

static inline bool run(struct kda_device *d, const char *what)
{
    brim_error err = {0};
    d->args.route = route;
    if (brim_kda_prefill(&d->args, &err) == BRIM_OK) return true;
    verdict(false, what, err.text);
    return false;
}

/* A run over poisoned outputs, fetched; guards and inputs are checked. */
static inline bool run_and_fetch(struct kda_device *d, const char *what)
{
    outputs_poison(d);
    if (!run(d, what)) return false;
    verdict(kda_device_fetch(d), what, "a byte outside a buffer changed");
    verdict(kda_device_inputs_kept(d), what, "an input changed");
    return true;
}

/* The comma-separated names of `list`, which is cut up. */
static inline int split_names(char *list, char **names, int n, int capacity)
{
    for (char *name = strtok(list, ","); name && n < capacity; name = strtok(NULL, ","))
        names[n++] = name;
    return n;
}

/* A program's command line, `[route[,route...]] [short]`; all: the routes where it names none. */
static char *routes[16];
static int n_route;
static bool brief;

/* Reads it and finds a device. 0, or the status to exit with. */
static inline int kda_begin(int argc, char **argv, const char *all)
{
    static char names[256];
    int n_device;
    snprintf(names, sizeof names, "%s", all);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "short"))
            brief = true;
        else
            n_route = split_names(argv[i], routes, n_route, 16);
    }
    if (n_route == 0) n_route = split_names(names, routes, 0, 16);
    if (cudaGetDeviceCount(&n_device) != cudaSuccess || n_device == 0) {
        printf("SKIP: no CUDA device\n");
        return 77;
    }
    return brim_pool_create(&pool, 0, NULL) == BRIM_OK ? 0 : 2;
}

/* Says how it went; the status to exit with. */
static inline int kda_end(const char *what)
{
    printf("%s: %d checks, %d failed\n", what, n_check, n_fail);
    brim_pool_free(&pool);
    return n_fail != 0;
}

struct measure_job {
    const brim_kda_args *args;
    struct kda_error *error, *model;
    brim_kda_args model_args;
};

static inline void measure_one(void *arg, int64_t item, int worker)
{
    struct measure_job *job = arg;
    (void)worker;
    int64_t seq = item / job->args->n_value_head, head = item % job->args->n_value_head;
    job->error[item] = kda_measure(job->args, seq, head);
    struct brim_kda_task task;
    brim_kda_task_make(&job->model_args, seq, head, &task);
    void *scratch = aligned_alloc(64, (brim_kda_chunk_scratch_bytes() + 63) / 64 * 64);
    brim_kda_chunk_task(&job->model_args, &task, BRIM_KDA_GPU, scratch);
    free(scratch);
    job->model[item] = kda_measure(&job->model_args, seq, head);
}

/* The outputs in `c` against fp64, within the bars and within 1.2 times the rounding model's error.
 */
static inline void judge(struct kda_case *c, const struct kda_spec *spec, const char *what)
{
    int64_t n = c->args.n_seq * c->args.n_value_head;
    struct kda_error *error = calloc((size_t)n, sizeof *error),
                     *model = calloc((size_t)n, sizeof *model);
    struct measure_job job = {&c->args, error, model, c->args};
    job.model_args.out = kda_alloc(c->v_bytes);
    job.model_args.final_state = kda_alloc(c->state_bytes);
    job.model_args.checkpoints = NULL;
    brim_pool_run(pool, measure_one, &job, n);
    char text[256];
    struct kda_error worst = {0, 0, 0, 0, true}, worst_model = worst;
    for (int64_t i = 0; i < n; i++) {
        struct brim_kda_task task;
        brim_kda_task_make(&c->args, i / c->args.n_value_head, i % c->args.n_value_head, &task);
        const struct kda_error *e = &error[i], *m = &model[i];
        /* 1.2 times the model; a few tokens write a state of few directions, whose roundings do not
         * average: 1.5 there */
        bool ok = kda_within(e, spec->regime, task.n_tok) && e->window <= 1.2 * m->window + 1e-5 &&
                  e->out <= 1.2 * m->out + 1e-5 &&
                  e->state <= (task.n_tok < 32 ? 1.5 : 1.2) * m->state + 1e-5;
        snprintf(text, sizeof text,
                 "task %lld: out %.2e window %.2e peak %.2e state %.2e finite %d; model %.2e %.2e "
                 "%.2e %.2e",
                 (long long)i, e->out, e->window, e->peak, e->state, e->finite, m->out, m->window,
                 m->peak, m->state);
        verdict(ok, what, text);
        worst.out = fmax(worst.out, e->out), worst.window = fmax(worst.window, e->window),
        worst.state = fmax(worst.state, e->state);
        worst_model.out = fmax(worst_model.out, m->out),
        worst_model.window = fmax(worst_model.window, m->window);
        worst_model.state = fmax(worst_model.state, m->state);
        if (!ok && i > 4) break;
    }
    printf("%-28s out %.2e (model %.2e) window %.2e (%.2e) state %.2e (%.2e)\n", what, worst.out,
           worst_model.out, worst.window, worst_model.window, worst.state, worst_model.state);
    free(job.model_args.out), free(job.model_args.final_state), free(error), free(model);
}

#endif
