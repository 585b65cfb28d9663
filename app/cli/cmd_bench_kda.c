/* SPDX-License-Identifier: Apache-2.0
 * brim bench kda: KDA prefill. Output and final state are checked against the fp64 recurrence
 * before anything is timed. CPU: one line of JSON a shape. CUDA: every route beside m128, as CSV
 * (kda_cuda.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "bench.h"
#include "brim/kernels.h"
#include "cli.h"
#include "kda_cuda.h"

enum { MAX_SHAPE = 32, MAX_REPEAT = 1000, STATE = 128 * 128 };

static float from_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* Roughly N(0, 1) as bf16 (cut, not rounded): the sum of four uniform numbers. */
static uint16_t random_bf16(uint64_t *seed)
{
    double sum = -2;
    for (int i = 0; i < 4; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(*seed >> 40) / 16777216.0;
    }
    float value = (float)(sum * 1.7320508);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

struct inputs {
    uint16_t *q, *k, *v, *g, *beta, *out, *expected;
    float *state, *expected_state;
};

static void free_inputs(struct inputs *in)
{
    void *blocks[] = {
        in->q, in->k, in->v, in->g, in->beta, in->out, in->expected, in->state, in->expected_state};
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) free(blocks[i]);
}

static bool make_inputs(struct inputs *in, brim_kda_args *args, int64_t n_tok, int64_t n_head,
                        bool softplus)
{
    size_t n = (size_t)n_tok * (size_t)n_head * 128, n_beta = (size_t)n_tok * (size_t)n_head;
    uint16_t **rows[] = {&in->q, &in->k, &in->v, &in->g, &in->out, &in->expected};
    uint64_t seed = 1;
    memset(in, 0, sizeof *in);
    for (int i = 0; i < 6; i++) {
        *rows[i] = malloc(n * 2);
        if (!*rows[i]) return false;
        for (size_t j = 0; j < n && i < 4; j++) (*rows[i])[j] = random_bf16(&seed);
    }
    in->beta = malloc(n_beta * 2);
    in->state = malloc((size_t)n_head * STATE * 4);
    in->expected_state = malloc((size_t)n_head * STATE * 4);
    if (!in->beta || !in->state || !in->expected_state) return false;
    for (size_t j = 0; j < n_beta; j++) in->beta[j] = random_bf16(&seed);

    brim_kda_args_init(args);
    args->device = BRIM_KERNEL_CPU;
    args->n_seq = 1;
    args->n_tok = n_tok;
    args->n_head = args->n_value_head = n_head;
    args->q = in->q, args->k = in->k, args->v = in->v, args->g = in->g, args->beta = in->beta;
    brim_kda_stride stride = {n_tok * n_head * 128, n_head * 128, 128};
    args->q_stride = args->k_stride = args->v_stride = args->g_stride = args->out_stride = stride;
    args->beta_stride = (brim_kda_stride){n_tok * n_head, n_head, 1};
    args->g_dtype = args->beta_dtype = BRIM_KERNEL_BF16;
    args->gate = softplus ? BRIM_KDA_GATE_SOFTPLUS : BRIM_KDA_GATE_LOWER_BOUND;
    args->lower_bound = softplus ? 0 : -5;
    args->flags = BRIM_KDA_L2NORM | BRIM_KDA_BETA_LOGIT;
    args->state_dtype = BRIM_KERNEL_F32;
    args->state_stride = n_head * STATE;
    return true;
}

/* Root-mean-square error ratios of output and final state against the fp64 recurrence. */
static brim_status check(const struct inputs *in, brim_kda_args *args, double *out_error,
                         double *state_error, brim_error *err)
{
    size_t n = (size_t)args->n_tok * (size_t)args->n_head * 128;
    size_t n_state = (size_t)args->n_head * STATE;
    double error = 0, square = 0;
    args->route = "cpu-ref";
    args->out = in->expected, args->final_state = in->expected_state;
    brim_status status = brim_kda_prefill(args, err);
    if (status != BRIM_OK) return status;
    args->route = NULL;
    args->out = in->out, args->final_state = in->state;
    status = brim_kda_prefill(args, err);
    for (size_t i = 0; i < n; i++) {
        double want = from_bf16(in->expected[i]), d = from_bf16(in->out[i]) - want;
        error += d * d, square += want * want;
    }
    *out_error = sqrt(error / square);
    error = square = 0;
    for (size_t i = 0; i < n_state; i++) {
        double want = in->expected_state[i], d = in->state[i] - want;
        error += d * d, square += want * want;
    }
    *state_error = sqrt(error / square);
    return status;
}

static int bench_shape(int64_t n_tok, int64_t n_head, bool softplus, int64_t n_thread,
                       int64_t n_repeat)
{
    struct inputs in;
    brim_kda_args args;
    brim_kda_plan plan;
    brim_error err;
    double out_error, state_error, times[MAX_REPEAT];
    int code = CLI_FAILED;
    if (!make_inputs(&in, &args, n_tok, n_head, softplus)) {
        free_inputs(&in);
        return cli_out_of_memory();
    }
    args.n_thread = (int)n_thread;
    if (check(&in, &args, &out_error, &state_error, &err) != BRIM_OK ||
        brim_kda_plan_make(&args, &plan, &err) != BRIM_OK) {
        code = cli_fail(&err);
    } else if (!(out_error < 5e-3 && state_error < 1e-4)) {
        cli_error("bench kda: %lld tokens, %lld heads: error %.1e in the output, %.1e in the "
                  "state; not timed",
                  (long long)n_tok, (long long)n_head, out_error, state_error);
    } else {
        struct bench_stats stats;
        code = CLI_OK;
        for (int64_t i = 0; i < n_repeat && code == CLI_OK; i++) {
            int64_t begin = cli_now_ns();
            if (brim_kda_prefill(&args, &err) != BRIM_OK) code = cli_fail(&err);
            times[i] = (double)(cli_now_ns() - begin) * 1e-6;
        }
        if (code == CLI_OK && !bench_statistics(times, (size_t)n_repeat, &stats))
            code = cli_out_of_memory();
        if (code == CLI_OK)
            printf("{\"bench\":\"kda\",\"device\":\"cpu\",\"batch\":1,\"tokens\":%lld,\"heads\":%"
                   "lld,\"gate\":\"%s\",\"threads\":%lld,\"owners\":%d,\"helpers\":%d,"
                   "\"ms_median\":%.3f,\"ms_min\":%.3f,\"ms_max\":%.3f,\"repeats\":%lld,"
                   "\"out_error\":%.2e,\"state_error\":%.2e}\n",
                   (long long)n_tok, (long long)n_head, softplus ? "softplus" : "bounded",
                   (long long)n_thread, plan.owners, plan.helpers, stats.median, stats.min,
                   stats.max, (long long)n_repeat, out_error, state_error);
    }
    free_inputs(&in);
    return code;
}

struct cuda_options {
    const char *set, *part; /* NULL: the tokens and heads; all of the set */
    bool list, softplus;
    struct bench_kda_options bench;
};

/* One sequence of each of the tokens and heads. */
static struct bench_kda_shape *own_shapes(const int64_t *n_tok, size_t n_tokens,
                                          const int64_t *n_head, size_t n_heads, int softplus,
                                          size_t *n)
{
    struct bench_kda_shape *shapes = calloc(n_tokens * n_heads, sizeof *shapes);
    *n = 0;
    for (size_t t = 0; shapes && t < n_tokens; t++)
        for (size_t h = 0; h < n_heads; h++)
            shapes[(*n)++] = (struct bench_kda_shape){1, n_tok[t], n_head[h], NULL, softplus};
    return shapes;
}

static int run_cuda(const struct cuda_options *options, struct bench_kda_shape *shapes, size_t n)
{
    if (options->list) {
        puts("n_seq,n_tok,n_head,packed,softplus");
        for (size_t i = 0; i < n; i++)
            printf("%lld,%lld,%lld,%d,%d\n", (long long)shapes[i].n_seq, (long long)shapes[i].n_tok,
                   (long long)shapes[i].n_head, shapes[i].lengths != NULL, shapes[i].softplus);
        return cli_close_stdout(CLI_OK);
    }
    brim_error err;
    int n_wrong = 0;
    if (bench_kda_cuda(shapes, n, &options->bench, &n_wrong, &err) != BRIM_OK)
        return cli_fail(&err);
    int code = cli_close_stdout(CLI_OK);
    return n_wrong ? CLI_FAILED : code;
}

static int bench_cuda(const struct cuda_options *options, const int64_t *n_tok, size_t n_tokens,
                      const int64_t *n_head, size_t n_heads)
{
    size_t n = 0;
    int part = 1, n_part = 1;
    if (options->part && (!options->set || !bench_kda_part(options->part, &part, &n_part))) {
        cli_error("bench kda: --part is I/N with I from 1 to N, of a --set");
        return CLI_USAGE;
    }
    if (options->set && options->softplus) {
        cli_error("bench kda: a --set has its own gates; --softplus is of --tokens and --heads");
        return CLI_USAGE;
    }
    struct bench_kda_shape *shapes =
        options->set ? bench_kda_set(options->set, part, n_part, &n)
                     : own_shapes(n_tok, n_tokens, n_head, n_heads, options->softplus, &n);
    if (!shapes && options->set) {
        cli_error("bench kda: no set is called '%s'; see --help", options->set);
        return CLI_USAGE;
    }
    if (!shapes) return cli_out_of_memory();
    int code = run_cuda(options, shapes, n);
    free(shapes);
    return code;
}

int cmd_bench_kda(int argc, char **argv)
{
    const char *device = "cpu", *tokens = NULL, *heads = NULL;
    struct cuda_options cuda = {0};
    int64_t n_repeat = 5, n_thread = 1, check_heads = 0, n_tok[MAX_SHAPE], n_head[MAX_SHAPE];
    size_t n_tokens = 0, n_heads = 0;
    const struct args_option options[] = {
        {"device", 0, ARGS_CHOICE, &device, "cpu|cuda", "where to run (cpu)", 0, 0},
        {"tokens", 0, ARGS_TEXT, &tokens, "T,..", "tokens of the sequence (512,2048)", 0, 0},
        {"heads", 0, ARGS_TEXT, &heads, "H,..", "heads (1,4)", 0, 0},
        {"threads", 0, ARGS_INT, &n_thread, "N", "threads (1)", 1, 1024},
        {"repeats", 0, ARGS_INT, &n_repeat, "N", "timed repeats of a shape (5)", 1, MAX_REPEAT},
        {"softplus", 0, ARGS_FLAG, &cuda.softplus, NULL, "the softplus gate, which has no bound", 0,
         0},
        {"set", 0, ARGS_TEXT, &cuda.set, "NAME",
         "cuda: shapes: seed, lengths, packed, softplus, all, or sweep: every\n"
         "route over T 64..131072, H 1..96, N 1..64",
         0, 0},
        {"part", 0, ARGS_TEXT, &cuda.part, "I/N", "cuda: part I of N of the set", 0, 0},
        {"list", 0, ARGS_FLAG, &cuda.list, NULL, "cuda: print the shapes, run nothing", 0, 0},
        {"routes", 0, ARGS_TEXT, &cuda.bench.routes, "R,..", "cuda: these beside m128 (every one)",
         0, 0},
        {"check-heads", 0, ARGS_INT, &check_heads, "N",
         "cuda: heads of all sequences together held against fp64 (all up to\n"
         "2^20 tokens x heads, two of each sequence beyond)",
         0, 4096},
    };
    const struct args_command command = {
        .name = "bench kda",
        .positional = "",
        .about = "KDA prefill, checked against the fp64 recurrence, then timed: a line of JSON a\n"
                 "shape, gates bounded at -5 unless asked for softplus.",
        .groups = {{"Options", options, sizeof(options) / sizeof(options[0])}},
    };
    int code;
    if (!args_parse(&command, argc, argv, NULL, &code)) return code;
    if (cuda.set && (tokens || heads)) {
        cli_error("bench kda: a --set has its own tokens and heads");
        return CLI_USAGE;
    }
    if (!tokens) tokens = "512,2048";
    if (!heads) heads = "1,4";
    if (!bench_numbers("tokens", tokens, 1, 1 << 20, n_tok, MAX_SHAPE, &n_tokens) ||
        !bench_numbers("heads", heads, 1, 4096, n_head, MAX_SHAPE, &n_heads))
        return CLI_USAGE;
    if (!strcmp(device, "cuda")) {
        cuda.bench.n_sample = n_repeat < 64 ? (int)n_repeat : 64;
        cuda.bench.check_heads = check_heads;
        return bench_cuda(&cuda, n_tok, n_tokens, n_head, n_heads);
    }
    if (cuda.set || cuda.part || cuda.list || cuda.bench.routes || check_heads) {
        cli_error(
            "bench kda: --set, --part, --list, --routes and --check-heads need --device cuda");
        return CLI_USAGE;
    }
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t h = 0; h < n_heads; h++) {
            code = bench_shape(n_tok[t], n_head[h], cuda.softplus, n_thread, n_repeat);
            if (code != CLI_OK) return code;
        }
    return cli_close_stdout(CLI_OK);
}
