/* SPDX-License-Identifier: Apache-2.0
 * KDA prefill on the GPU. One sample is one replay of a recorded call between two events, after a
 * write of 256 MB that empties the L2; two rounds in an order shuffled by a fixed seed. */
#include "kda_cuda.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/count.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "brim/kernels.h"
#include "cpu/kda.h"
#include "cuda/device.h"
#include "cuda/kda/record.h"
#include "cuda/runtime/runtime.h"
#include "plan/kda_route.h"
#include "tensor/dtype.h"

enum { N_ROUND = 2, MAX_SAMPLE = 64, STATE = 16384, FLUSH = 256 << 20 };
enum { N_ROUTE = BRIM_KDA_ROUTE_ALL };
enum { PERIOD = (1 << 20) + 8 }; /* inputs repeat after so many elements */

/* ---- one shape on the device ----------------------------------------------------------------- */

struct bench {
    void *stream, *begin, *end, *flush;
    int64_t n_processor;
    struct brim_pool *pool;
    uint16_t *pattern; /* [PERIOD], about N(0, 1) in bf16 */
    void *device_pattern;
};

enum { IN_Q, IN_K, IN_V, IN_G, IN_BETA, N_IN };

struct problem {
    const struct bench_kda_shape *shape;
    brim_kda_args args;
    void *in[N_IN], *out, *final, *initial, *offsets, *workspace;
    int64_t *host_offsets; /* [n_seq + 1] rows */
    size_t out_bytes, state_bytes;
    char *got_out, *got_state; /* of the route last run */
    char *first_out, *first_state;
    /* fp64 results of the (sequence, head) that are looked at, computed for the first route */
    double **want;
    int64_t n_want;
};

/* Element i of input `which`; each input starts elsewhere in the pattern. */
static uint16_t input_at(const struct bench *b, int which, int64_t i)
{
    return b->pattern[(i + which * 177771) % PERIOD];
}

static brim_status upload_pattern(struct bench *b, void *to, int which, int64_t n, brim_error *err)
{
    int64_t at = which * 177771 % PERIOD;
    for (int64_t done = 0; done < n; at = 0) {
        int64_t piece = n - done < PERIOD - at ? n - done : PERIOD - at;
        BRIM_TRY(brim_cuda_copy((uint16_t *)to + done, (uint16_t *)b->device_pattern + at,
                                (size_t)piece * 2, b->stream, "inputs", err));
        done += piece;
    }
    return BRIM_OK;
}

static void problem_free(struct problem *p)
{
    for (int i = 0; i < N_IN; i++) brim_cuda_free(p->in[i]);
    void *blocks[] = {p->out, p->final, p->initial, p->offsets, p->workspace};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) brim_cuda_free(blocks[i]);
    for (int64_t i = 0; i < p->n_want; i++) brim_free(p->want[i]);
    void *host[] = {p->host_offsets, p->got_out,     p->got_state,
                    p->first_out,    p->first_state, p->want};
    for (size_t i = 0; i < sizeof host / sizeof *host; i++) brim_free(host[i]);
    memset(p, 0, sizeof *p);
}

static brim_status problem_make(struct bench *b, struct problem *p,
                                const struct bench_kda_shape *shape, brim_error *err)
{
    memset(p, 0, sizeof *p);
    p->shape = shape;
    int64_t rows = shape->lengths ? shape->n_tok : shape->n_seq * shape->n_tok, h = shape->n_head;
    p->out_bytes = (size_t)(rows * h) * 256;
    p->state_bytes = (size_t)(shape->n_seq * h) * STATE * 4;
    p->host_offsets = brim_alloc((size_t)(shape->n_seq + 1) * 8);
    char **host[] = {&p->got_out, &p->first_out, &p->got_state, &p->first_state};
    for (int i = 0; i < 4; i++) *host[i] = brim_alloc(i < 2 ? p->out_bytes : p->state_bytes);
    for (int i = 0; i < 4; i++)
        BRIM_REQUIRE(err, *host[i] && p->host_offsets, BRIM_E_NO_MEMORY,
                     "bench kda: no memory for results");
    p->host_offsets[0] = 0;
    for (int64_t i = 0; i < shape->n_seq; i++)
        p->host_offsets[i + 1] =
            p->host_offsets[i] + (shape->lengths ? shape->lengths[i] : shape->n_tok);
    for (int i = 0; i < N_IN; i++) {
        int64_t n = rows * h * (i == IN_BETA ? 1 : 128);
        BRIM_TRY(brim_cuda_alloc(&p->in[i], (size_t)n * 2, "inputs", err));
        BRIM_TRY(upload_pattern(b, p->in[i], i, n, err));
    }
    BRIM_TRY(brim_cuda_alloc(&p->out, p->out_bytes, "output", err));
    BRIM_TRY(brim_cuda_alloc(&p->final, p->state_bytes, "states", err));
    BRIM_TRY(brim_cuda_alloc(&p->initial, p->state_bytes, "states", err));
    BRIM_TRY(brim_cuda_fill(p->initial, 0, p->state_bytes, b->stream, "states", err));

    brim_kda_args *a = &p->args;
    brim_kda_args_init(a);
    a->device = BRIM_KERNEL_CUDA;
    a->stream = b->stream;
    a->n_seq = shape->n_seq, a->n_tok = shape->n_tok;
    a->n_head = a->n_value_head = h;
    a->q = p->in[IN_Q], a->k = p->in[IN_K], a->v = p->in[IN_V], a->g = p->in[IN_G];
    a->beta = p->in[IN_BETA], a->out = p->out;
    brim_kda_stride stride = {shape->n_tok * h * 128, h * 128, 128};
    a->q_stride = a->k_stride = a->v_stride = a->g_stride = a->out_stride = stride;
    a->beta_stride = (brim_kda_stride){shape->n_tok * h, h, 1};
    a->g_dtype = a->beta_dtype = BRIM_KERNEL_BF16;
    a->gate = shape->softplus ? BRIM_KDA_GATE_SOFTPLUS : BRIM_KDA_GATE_LOWER_BOUND;
    a->lower_bound = shape->softplus ? 0 : -5;
    a->flags = BRIM_KDA_L2NORM | BRIM_KDA_BETA_LOGIT;
    a->state_dtype = BRIM_KERNEL_F32;
    a->state_stride = h * STATE;
    a->initial_state = p->initial, a->final_state = p->final;
    if (shape->lengths) {
        size_t n_bytes = (size_t)(shape->n_seq + 1) * 8;
        BRIM_TRY(brim_cuda_alloc(&p->offsets, n_bytes, "offsets", err));
        BRIM_TRY(brim_cuda_copy(p->offsets, p->host_offsets, n_bytes, b->stream, "offsets", err));
        a->cu_seqlens = p->offsets, a->offset_bytes = 8;
        for (int64_t i = 0; i < shape->n_seq; i++)
            if (shape->lengths[i] > a->max_tok) a->max_tok = shape->lengths[i];
    }
    size_t n_bytes = 0;
    for (int r = 0; r < N_ROUTE; r++) {
        brim_kda_plan plan;
        if (brim_kda_route_limited(r) && shape->n_seq * h > BRIM_KDA_MAX_TASK) continue;
        a->route = brim_kda_routes[r].name;
        BRIM_TRY(brim_kda_plan_make(a, &plan, err));
        if (plan.workspace_bytes > n_bytes) n_bytes = plan.workspace_bytes;
    }
    a->route = NULL;
    BRIM_TRY(brim_cuda_alloc(&p->workspace, n_bytes, "workspace", err));
    a->workspace = p->workspace, a->workspace_bytes = n_bytes;
    BRIM_TRY(brim_kda_workspace_init(BRIM_KERNEL_CUDA, a->workspace, n_bytes, a->stream, err));
    return brim_cuda_stream_wait(b->stream, "inputs", err);
}

/* ---- against fp64 ---------------------------------------------------------------------------- */

struct check_job {
    struct bench *b;
    struct problem *p;
    int64_t n;           /* of all (sequence, head), spread evenly over them */
    double *out, *state; /* [item] error ratios; NAN: no memory */
};

/* The result of one (sequence, head) in fp64: n_tok rows of output, then the state; its inputs as
 * dense rows. NULL: no memory. */
static double *reference(struct bench *b, const struct problem *p, int64_t seq, int64_t head)
{
    int64_t heads = p->shape->n_head, row0 = p->host_offsets[seq];
    int64_t n_tok = p->host_offsets[seq + 1] - row0;
    size_t n = (size_t)n_tok * 128;
    uint16_t *rows = brim_alloc(n * 8 + (size_t)n_tok * 2 + 2);
    double *want = brim_alloc((n + STATE + 1) * 8);
    brim_status status = BRIM_E_NO_MEMORY;
    if (rows && want) {
        uint16_t *in[N_IN];
        for (int i = 0; i < N_IN; i++) {
            int64_t width = i == IN_BETA ? 1 : 128;
            in[i] = rows + (size_t)i * n;
            for (int64_t t = 0; t < n_tok; t++)
                for (int64_t j = 0; j < width; j++)
                    in[i][t * width + j] = input_at(b, i, ((row0 + t) * heads + head) * width + j);
        }
        brim_kda_args a = p->args;
        a.device = BRIM_KERNEL_CPU;
        a.n_seq = a.n_head = a.n_value_head = 1, a.n_tok = n_tok;
        a.cu_seqlens = NULL, a.offset_bytes = 0;
        a.q = in[IN_Q], a.k = in[IN_K], a.v = in[IN_V], a.g = in[IN_G], a.beta = in[IN_BETA];
        a.q_stride = a.k_stride = a.v_stride = a.g_stride = a.out_stride =
            (brim_kda_stride){n_tok * 128, 128, 128};
        a.beta_stride = (brim_kda_stride){n_tok, 1, 1};
        a.initial_state = NULL, a.final_state = NULL, a.out = in[IN_Q];
        struct brim_kda_task task;
        brim_error err;
        brim_kda_task_make(&a, 0, 0, &task);
        status = brim_kda_ref_task(&a, &task, true, want, NULL, want + n, &err);
    }
    brim_free(rows);
    if (status == BRIM_OK) return want;
    brim_free(want);
    return NULL;
}

/* The errors of what was got of one (sequence, head). */
static void check_task(void *arg, int64_t item, int worker)
{
    struct check_job *job = arg;
    struct problem *p = job->p;
    (void)worker;
    int64_t heads = p->shape->n_head, last = p->shape->n_seq * heads - 1;
    int64_t nth = job->n > 1 ? item * last / (job->n - 1) : 0, seq = nth / heads,
            head = nth % heads;
    int64_t row0 = p->host_offsets[seq], n_tok = p->host_offsets[seq + 1] - row0;
    job->out[item] = job->state[item] = NAN;
    if (!p->want[item]) p->want[item] = reference(job->b, p, seq, head);
    const double *want = p->want[item];
    if (!want) return;
    double d2 = 0, w2 = 0;
    const uint16_t *out = (const uint16_t *)p->got_out;
    for (int64_t t = 0; t < n_tok; t++)
        for (int j = 0; j < 128; j++) {
            double w = want[t * 128 + j];
            double d = brim_f32_from_bf16(out[((row0 + t) * heads + head) * 128 + j]) - w;
            d2 += d * d, w2 += w * w;
        }
    job->out[item] = n_tok ? sqrt(d2 / w2) : 0;
    const double *state = want + n_tok * 128;
    const float *got = (const float *)p->got_state + (seq * heads + head) * STATE;
    d2 = w2 = 0;
    for (int k = 0; k < 128; k++)
        for (int v = 0; v < 128; v++) { /* got is [V][K] */
            double w = state[k * 128 + v], d = got[v * 128 + k] - w;
            d2 += d * d, w2 += w * w;
        }
    job->state[item] = n_tok ? sqrt(d2 / w2) : sqrt(d2);
}

/* The worst error ratios of the results in p->got_*. */
static brim_status check_fp64(struct bench *b, struct problem *p, int64_t check_heads, double *out,
                              double *state, brim_error *err)
{
    int64_t rows = p->host_offsets[p->shape->n_seq], heads = p->shape->n_head;
    int64_t n = p->shape->n_seq * heads;
    if (check_heads == 0 && rows * heads > 1 << 20) check_heads = 2 * p->shape->n_seq;
    if (check_heads > 0 && check_heads < n) n = check_heads;
    struct check_job job = {b, p, n, NULL, NULL};
    job.out = brim_alloc((size_t)n * 16);
    if (!p->want && (p->want = brim_calloc((size_t)n, sizeof *p->want)) != NULL) p->n_want = n;
    if (!p->want) brim_free(job.out), job.out = NULL;
    BRIM_REQUIRE(err, job.out, BRIM_E_NO_MEMORY, "bench kda: no memory for the check");
    job.state = job.out + n;
    brim_pool_run(b->pool, check_task, &job, n);
    *out = *state = 0;
    for (int64_t i = 0; i < n; i++) {
        *out = job.out[i] > *out || isnan(job.out[i]) ? job.out[i] : *out;
        *state = job.state[i] > *state || isnan(job.state[i]) ? job.state[i] : *state;
    }
    brim_free(job.out);
    return BRIM_OK;
}

/* ---- timing ---------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Is `name` in the comma-separated list? */
static bool listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; (at = strstr(at, name)) != NULL; at += n)
        if ((at == list || at[-1] == ',') && (at[n] == 0 || at[n] == ',')) return true;
    return false;
}

struct timed {
    void *graph;
    double sample[N_ROUND * MAX_SAMPLE];
};

static brim_status run_once(struct bench *b, struct problem *p, brim_error *err)
{
    BRIM_TRY(brim_cuda_fill(p->out, 0xFF, p->out_bytes, b->stream, "poison", err));
    BRIM_TRY(brim_cuda_fill(p->final, 0xFF, p->state_bytes, b->stream, "poison", err));
    BRIM_TRY(brim_kda_prefill(&p->args, err));
    BRIM_TRY(brim_cuda_copy(p->got_out, p->out, p->out_bytes, b->stream, "output", err));
    BRIM_TRY(brim_cuda_copy(p->got_state, p->final, p->state_bytes, b->stream, "states", err));
    return brim_cuda_stream_wait(b->stream, "bench kda", err);
}

static brim_status record(struct bench *b, struct problem *p, struct timed *t, brim_error *err)
{
    brim_error unused;
    BRIM_TRY(brim_cuda_capture_begin(b->stream, err));
    brim_status status = brim_kda_prefill(&p->args, err);
    brim_status ended = brim_cuda_capture_end(b->stream, &t->graph, status ? &unused : err);
    return status ? status : ended;
}

static brim_status sample(struct bench *b, struct timed *t, int i, brim_error *err)
{
    BRIM_TRY(brim_cuda_fill(b->flush, i, FLUSH, b->stream, "L2", err));
    BRIM_TRY(brim_cuda_event_record(b->begin, b->stream, err));
    BRIM_TRY(brim_cuda_graph_launch(t->graph, b->stream, err));
    BRIM_TRY(brim_cuda_event_record(b->end, b->stream, err));
    return brim_cuda_event_elapsed_us(b->begin, b->end, &t->sample[i], err);
}

struct summary {
    char selected[16];
    double m128, helped; /* us; 0: not timed */
    const char *helper_route;
};

/* Does a route run segments, whose bits are not m128's? */
static bool cuts(int route)
{
    return route >= BRIM_KDA_ROUTE_N;
}

/* What every segment left, in [0, n_seq) x [0, n_head), numbered as src/cuda/kda/split.cuh does:
 * does each cut hold? Bits do not tell: what is forgotten to 2^-24 seldom reaches one. */
static bool records_hold(const struct problem *p, const struct brim_kda_split_plan *split,
                         const float *record)
{
    int64_t heads = p->shape->n_head, per = (int64_t)split->length * BRIM_KDA_CHUNK;
    bool packed = p->shape->lengths;
    for (int64_t n = 0; n < p->shape->n_seq; n++) {
        int64_t slot = packed ? p->host_offsets[n] / per + n : n;
        int64_t step = packed ? 1 : p->shape->n_seq, cut;
        int64_t n_chunk =
            brim_ceil_div(p->host_offsets[n + 1] - p->host_offsets[n], BRIM_KDA_CHUNK);
        for (int64_t s = 1; (cut = brim_kda_split_cut(split, s)) < n_chunk; s++) {
            slot += step;
            for (int64_t h = 0; h < heads && cut > split->window; h++) {
                const float *own = record + (slot * heads + h) * KDA_RECORD_FLOATS;
                const float *last = own - step * heads * KDA_RECORD_FLOATS;
                if (!brim_kda_record_holds(own, last, split->window)) return false;
            }
        }
    }
    return true;
}

/* Run a route that cuts, its own workspace poisoned. *hold: does every cut hold, or is a state that
 * must not be skipped joined by the route itself? */
static brim_status run_cut(struct bench *b, struct problem *p,
                           const struct brim_kda_schedule *schedule, bool *hold, brim_error *err)
{
    int64_t heads = p->shape->n_head, n_task = p->shape->n_seq * heads;
    char *own = (char *)p->workspace +
                brim_kda_route_workspace_front(brim_kda_route_workspace(schedule->route, n_task));
    size_t n_bytes = (size_t)(schedule->split.n_slot * heads) * KDA_RECORD_FLOATS * sizeof(float);
    BRIM_TRY(brim_cuda_fill(own, 0xFF, schedule->split.workspace_bytes, b->stream, "poison", err));
    BRIM_TRY(run_once(b, p, err));
    float *record = brim_alloc(n_bytes);
    BRIM_REQUIRE(err, record, BRIM_E_NO_MEMORY, "bench kda: no memory for records");
    brim_status status = brim_cuda_copy(record, own, n_bytes, b->stream, "records", err);
    if (status == BRIM_OK) status = brim_cuda_stream_wait(b->stream, "records", err);
    *hold =
        status == BRIM_OK && (schedule->split.join || records_hold(p, &schedule->split, record));
    brim_free(record);
    return status;
}

/* Run a route once; is its result right? m128's is kept and held against fp64, the others' must be
 * its bits, those of a route that cuts as near to fp64. *hold: false where a cut failed. */
static brim_status check_route(struct bench *b, struct problem *p, int r,
                               const struct brim_kda_schedule *schedule, int64_t check_heads,
                               double errors[N_ROUTE][2], bool *ok, bool *hold, brim_error *err)
{
    const double *m128 = errors[BRIM_KDA_ROUTE_M128];
    *hold = true;
    if (cuts(r))
        BRIM_TRY(run_cut(b, p, schedule, hold, err));
    else
        BRIM_TRY(run_once(b, p, err));
    if (cuts(r) || r == BRIM_KDA_ROUTE_M128) {
        BRIM_TRY(check_fp64(b, p, check_heads, &errors[r][0], &errors[r][1], err));
    } else {
        errors[r][0] = m128[0], errors[r][1] = m128[1];
    }
    if (r == BRIM_KDA_ROUTE_M128) {
        *ok = errors[r][0] < 5e-3 && errors[r][1] < 5e-3;
        memcpy(p->first_out, p->got_out, p->out_bytes);
        memcpy(p->first_state, p->got_state, p->state_bytes);
    } else if (cuts(r)) {
        *ok = errors[r][0] <= 1.2 * m128[0] && errors[r][1] <= 1.2 * m128[1];
    } else {
        *ok = !memcmp(p->first_out, p->got_out, p->out_bytes) &&
              !memcmp(p->first_state, p->got_state, p->state_bytes);
    }
    return BRIM_OK;
}

static brim_status bench_shape(struct bench *b, struct problem *p,
                               const struct bench_kda_options *options, struct summary *summary,
                               int *n_wrong, brim_error *err)
{
    const struct bench_kda_shape *shape = p->shape;
    int n = N_ROUND * options->n_sample;
    struct timed timed[N_ROUTE] = {0};
    double errors[N_ROUTE][2] = {{0}};
    brim_kda_plan plan;
    struct brim_kda_schedule schedule[N_ROUTE] = {0};
    bool first_ok = true;
    p->args.allow_split = 1;
    BRIM_TRY(brim_kda_plan_make(&p->args, &plan, err));
    snprintf(summary->selected, sizeof summary->selected, "%s", plan.route);
    brim_status status = BRIM_OK;
    for (int r = 0; r < N_ROUTE && status == BRIM_OK && first_ok; r++) {
        bool wanted = r == BRIM_KDA_ROUTE_M128 || !options->routes ||
                      listed(options->routes, brim_kda_routes[r].name);
        if (!wanted ||
            (brim_kda_route_limited(r) && shape->n_seq * shape->n_head > BRIM_KDA_MAX_TASK))
            continue;
        p->args.route = brim_kda_routes[r].name;
        status = brim_kda_schedule_make(&p->args, b->n_processor, &schedule[r], &plan, err);
        if (status != BRIM_OK) break;
        if (cuts(r) && schedule[r].split.n_slot <= shape->n_seq) continue;
        bool ok, hold;
        status = check_route(b, p, r, &schedule[r], options->check_heads, errors, &ok, &hold, err);
        if (status != BRIM_OK) break;
        if (!ok || !hold) {
            printf("# %" PRId64 " x %" PRId64 " x %" PRId64 " %s: %s (%.2e, %.2e), not timed\n",
                   shape->n_seq, shape->n_tok, shape->n_head, brim_kda_routes[r].name,
                   ok ? "a cut does not hold" : "wrong", errors[r][0], errors[r][1]);
            *n_wrong += !ok;
            if (r == BRIM_KDA_ROUTE_M128) first_ok = false; /* nothing to hold the others against */
            continue;
        }
        status = record(b, p, &timed[r], err);
    }
    uint32_t shuffle = 12345;
    for (int i = 0; i < n; i++) {
        shuffle = shuffle * 1664525u + 1013904223u;
        for (int j = 0; j < N_ROUTE && status == BRIM_OK; j++) {
            int r = (j + (int)(shuffle >> 16)) % N_ROUTE;
            if (timed[r].graph) status = sample(b, &timed[r], i, err);
        }
    }
    for (int r = 0; r < N_ROUTE && status == BRIM_OK; r++) {
        if (!timed[r].graph) continue;
        qsort(timed[r].sample, (size_t)n, sizeof(double), by_value);
        double median = timed[r].sample[n / 2];
        if (r == BRIM_KDA_ROUTE_M128) summary->m128 = median;
        if (brim_kda_routes[r].depth && (summary->helped == 0 || median < summary->helped))
            summary->helped = median, summary->helper_route = brim_kda_routes[r].name;
        bench_kda_print_row(stdout,
                            &(struct bench_kda_row){.shape = shape,
                                                    .route = brim_kda_routes[r].name,
                                                    .us_median = median,
                                                    .us_min = timed[r].sample[0],
                                                    .us_max = timed[r].sample[n - 1],
                                                    .us_m128 = summary->m128,
                                                    .out_error = errors[r][0],
                                                    .state_error = errors[r][1],
                                                    .split_length = schedule[r].split.length,
                                                    .split_first = schedule[r].split.first,
                                                    .split_window = schedule[r].split.window,
                                                    .split_chunks = schedule[r].split.chunks});
    }
    fflush(stdout);
    for (int r = 0; r < N_ROUTE; r++) brim_cuda_graph_free(timed[r].graph);
    return status;
}

static brim_status bench_open(struct bench *b, brim_error *err)
{
    struct brim_cuda_device info;
    BRIM_TRY(brim_cuda_device_get(0, &info, err));
    b->n_processor = info.n_sm;
    BRIM_TRY(brim_pool_create(&b->pool, 0, err));
    BRIM_TRY(brim_cuda_stream_create(&b->stream, err));
    BRIM_TRY(brim_cuda_event_create_timed(&b->begin, err));
    BRIM_TRY(brim_cuda_event_create_timed(&b->end, err));
    BRIM_TRY(brim_cuda_alloc(&b->flush, FLUSH, "the L2's filler", err));
    b->pattern = brim_alloc(PERIOD * sizeof *b->pattern);
    BRIM_REQUIRE(err, b->pattern, BRIM_E_NO_MEMORY, "bench kda: no memory for inputs");
    struct brim_rng rng = {7};
    for (int64_t i = 0; i < PERIOD; i++) {
        float sum = -6;
        for (int k = 0; k < 12; k++) sum += brim_rng_uniform(&rng);
        b->pattern[i] = brim_bf16_from_f32(sum);
    }
    size_t n_bytes = PERIOD * sizeof *b->pattern;
    BRIM_TRY(brim_cuda_alloc(&b->device_pattern, n_bytes, "inputs", err));
    BRIM_TRY(brim_cuda_copy(b->device_pattern, b->pattern, n_bytes, b->stream, "inputs", err));
    printf("# %s, %d SMs; graph replay, cold L2, events, us; %d rounds; lower bound -5, gates and "
           "beta logits N(0,1), l2 normalization, fp32 states; errors against fp64: m128's, "
           "split's own; selected with allow_split\n",
           info.name, info.n_sm, N_ROUND);
    return BRIM_OK;
}

static void bench_close(struct bench *b)
{
    if (b->pool) brim_pool_free(&b->pool);
    brim_cuda_free(b->flush);
    brim_cuda_free(b->device_pattern);
    brim_cuda_event_free(b->begin);
    brim_cuda_event_free(b->end);
    brim_cuda_stream_free(b->stream);
    brim_free(b->pattern);
}

brim_status bench_kda_cuda(const struct bench_kda_shape *shapes, size_t n_shape,
                           const struct bench_kda_options *options, int *n_wrong, brim_error *err)
{
    struct bench b = {0};
    *n_wrong = 0;
    BRIM_REQUIRE(err, options->n_sample >= 1 && options->n_sample <= MAX_SAMPLE, BRIM_E_RANGE,
                 "bench kda: at most %d samples a round", MAX_SAMPLE);
    struct summary *rows = brim_calloc(n_shape + 1, sizeof *rows);
    BRIM_REQUIRE(err, rows, BRIM_E_NO_MEMORY, "bench kda: no memory for results");
    brim_status status = bench_open(&b, err);
    if (status == BRIM_OK) bench_kda_print_header(stdout);
    for (size_t i = 0; i < n_shape && status == BRIM_OK; i++) {
        struct problem p;
        status = problem_make(&b, &p, &shapes[i], err);
        if (status == BRIM_OK) status = bench_shape(&b, &p, options, &rows[i], n_wrong, err);
        problem_free(&p);
    }
    if (status == BRIM_OK) printf("# B,T,H,selected,m128,owner_helper,route,speedup\n");
    for (size_t i = 0; i < n_shape && status == BRIM_OK; i++) {
        const struct summary *row = &rows[i];
        if (row->helper_route && row->m128 > 0)
            printf("# %" PRId64 ",%" PRId64 ",%" PRId64 ",%s,%.1f,%.1f,%s,%.2f\n", shapes[i].n_seq,
                   shapes[i].n_tok, shapes[i].n_head, row->selected, row->m128, row->helped,
                   row->helper_route, row->m128 / row->helped);
    }
    bench_close(&b);
    brim_free(rows);
    return status;
}
