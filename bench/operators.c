/* SPDX-License-Identifier: Apache-2.0
 * brim bench operators: single operators on one model's layer shapes, measured like the course's
 * bench-week2-operators. A sample is the wall time of one call; the order of implementations goes
 * through all permutations, so the number of iterations is a multiple of n!; the statistic is the
 * median. A case whose results differ from plain C is not timed and the command fails. */
#include "operators_cuda.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"
#include "cli.h"

#include "base/clock.h"
#include "base/cpu.h"

enum { MAX_SHAPE = 16, MAX_CASE = 1024, N_SECTION = 5 };

static const struct bench_shape shapes[] = {
    {"qwen3-0.6b", 1024, 3072, 151936, 16, 8, 128, 128},
    {"qwen3-4b", 2560, 9728, 151936, 32, 8, 128, 128},
    {"smollm2-135m", 576, 1536, 49152, 9, 3, 64, 32},
};
enum { N_SHAPE = sizeof(shapes) / sizeof(shapes[0]) };

static const char *const sections[N_SECTION] = {
    "embedding", "decode-projections", "prefill-projections", "model-kernels", "attention"};
static const char *const projections[] = {"q", "k", "v", "o", "gate", "up", "down"};
enum { N_PROJECTION = sizeof(projections) / sizeof(projections[0]) };

static struct {
    const char *model, *tier, *json_output, *device, *mask, *launch, *policy, *solution;
    bool section[N_SECTION], projection[N_PROJECTION];
    int64_t context[MAX_SHAPE], query[MAX_SHAPE];
    size_t n_context, n_query;
    int64_t repeats, gqa_ratio, n_warmup, n_iteration, n_thread, cold_mib;
    bool include_split_k, quiet;
} args;

/* Samples of one case: kept per name, so that repeated passes add to them. */
struct result {
    char name[48];
    const char *section, *impl[BENCH_MAX_IMPL];
    int n_impl;
    char plan[BENCH_MAX_IMPL][40];
    int accumulates[BENCH_MAX_IMPL], reduces[BENCH_MAX_IMPL], n_kernel[BENCH_MAX_IMPL];
    double floor_us;
    double *samples_us[BENCH_MAX_IMPL];
    uint8_t *orders; /* permutation number of each iteration */
    size_t n_sample;
    struct bench_stats stats[BENCH_MAX_IMPL];
};

static struct result results[MAX_CASE];
static size_t n_result;

/* ---- timing ---------------------------------------------------------------------------------- */

static const uint8_t permutations2[2][BENCH_MAX_IMPL] = {{0, 1}, {1, 0}};
static const uint8_t permutations3[6][BENCH_MAX_IMPL] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                                         {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

static const uint8_t *permutation(int n_impl, int64_t i)
{
    return n_impl == 2 ? permutations2[i % 2] : permutations3[i % 6];
}

static int factorial(int n)
{
    return n == 3 ? 6 : n;
}

static struct result *find_result(const struct bench_case *c, const char *section)
{
    for (size_t i = 0; i < n_result; i++)
        if (!strcmp(results[i].name, c->name) && results[i].section == section) return &results[i];
    if (n_result == MAX_CASE) return NULL;
    struct result *r = &results[n_result];
    *r = (struct result){.section = section, .n_impl = c->n_impl, .floor_us = c->floor_us};
    snprintf(r->name, sizeof(r->name), "%s", c->name);
    size_t capacity = (size_t)(args.n_iteration * args.repeats);
    bool ok = (r->orders = malloc(capacity)) != NULL;
    for (int i = 0; i < c->n_impl; i++) {
        r->impl[i] = c->impl[i].name;
        memcpy(r->plan[i], c->impl[i].plan, sizeof(r->plan[i]));
        r->accumulates[i] = c->impl[i].accumulates;
        r->reduces[i] = c->impl[i].reduces;
        r->n_kernel[i] = c->impl[i].n_kernel;
        r->samples_us[i] = malloc(capacity * sizeof(double));
        ok = ok && r->samples_us[i];
    }
    n_result++;
    return ok ? r : NULL;
}

/* Every order of so many implementations equally often. */
static bool whole_orders(int n_impl)
{
    if (args.n_iteration % factorial(n_impl) == 0) return true;
    cli_error("--iterations: %" PRId64 " is not a multiple of %d, the orders of %d implementations",
              args.n_iteration, factorial(n_impl), n_impl);
    return false;
}

static int time_case(const struct bench_case *c, const char *section)
{
    if (c->check[0]) {
        cli_error("bench operators: %s: not timed", c->check);
        return CLI_FAILED;
    }
    if (!whole_orders(c->n_impl)) return CLI_USAGE;
    struct result *r = find_result(c, section);
    if (!r) return cli_out_of_memory();
    for (int64_t i = -args.n_warmup; i < args.n_iteration; i++) {
        if (cli_interrupted()) return CLI_INTERRUPTED;
        const uint8_t *order = permutation(c->n_impl, i + args.n_warmup);
        for (int k = 0; k < c->n_impl; k++) {
            int64_t start = brim_clock_ns();
            double us = 0;
            if (c->impl[order[k]].time) {
                us = c->impl[order[k]].time(c->impl[order[k]].ctx, i + args.n_warmup);
            } else {
                c->impl[order[k]].run(c->impl[order[k]].ctx, i + args.n_warmup);
                us = (double)(brim_clock_ns() - start) / 1e3;
            }
            if (us < 0) {
                cli_error("bench operators: %s, implementation %s: the device failed", c->name,
                          c->impl[order[k]].name);
                return CLI_FAILED;
            }
            if (i >= 0) r->samples_us[order[k]][r->n_sample] = us;
        }
        if (i >= 0)
            r->orders[r->n_sample++] = (uint8_t)((i + args.n_warmup) % factorial(c->n_impl));
    }
    return CLI_OK;
}

/* `status` is what preparing the case returned; frees the case. */
static int finish_case(struct bench_case *c, const char *section, brim_status status,
                       const brim_error *err)
{
    int code = status == BRIM_OK ? time_case(c, section) : cli_fail(err);
    if (c->free) c->free(c);
    return code;
}

/* ---- sections -------------------------------------------------------------------------------- */

static void say(const char *section, const char *what, int64_t n)
{
    if (args.quiet) return;
    fprintf(stderr, "bench operators: %s %s", section, what);
    fprintf(stderr, n ? " %" PRId64 "\n" : "\n", n);
}

static int run_fixed_sections(const struct bench_context *ctx)
{
    static const char *const kernels[] = {"rmsnorm", "rope", "swiglu"};
    struct bench_case c;
    brim_error err = {0};
    int code = CLI_OK;
    if (args.section[0]) {
        say(sections[0], "", 0);
        code = finish_case(&c, sections[0],
                           ctx->cuda ? bench_cuda_embedding(&c, ctx, &err)
                                     : bench_case_embedding(&c, ctx, &err),
                           &err);
    }
    for (int i = 0; i <= N_PROJECTION && args.section[1] && code == CLI_OK; i++) {
        const char *name = i < N_PROJECTION ? projections[i] : "head";
        say(sections[1], name, 0);
        code = finish_case(&c, sections[1],
                           ctx->cuda ? bench_cuda_projection(&c, ctx, name, 1, false, &err)
                                     : bench_case_projection(&c, ctx, name, 1, false, &err),
                           &err);
    }
    for (int i = 0; i < 3 && args.section[3] && code == CLI_OK; i++) {
        say(sections[3], kernels[i], 0);
        code = finish_case(&c, sections[3],
                           ctx->cuda ? bench_cuda_kernel(&c, ctx, kernels[i], &err)
                                     : bench_case_kernel(&c, ctx, kernels[i], &err),
                           &err);
    }
    return code;
}

static int run_context(const struct bench_context *ctx, int64_t context)
{
    struct bench_case c;
    brim_error err = {0};
    int code = CLI_OK;
    for (int i = 0; i < N_PROJECTION && args.section[2] && code == CLI_OK; i++) {
        if (!args.projection[i]) continue;
        say(sections[2], projections[i], context);
        code = finish_case(&c, sections[2],
                           ctx->cuda ? bench_cuda_projection(&c, ctx, projections[i], context,
                                                             args.include_split_k, &err)
                                     : bench_case_projection(&c, ctx, projections[i], context,
                                                             args.include_split_k, &err),
                           &err);
    }
    for (size_t q = 0; q < args.n_query && args.section[4] && code == CLI_OK; q++) {
        say(sections[4], "S", context);
        int n_head_kv =
            args.gqa_ratio ? ctx->shape->n_head / (int)args.gqa_ratio : ctx->shape->n_head_kv;
        code = finish_case(
            &c, sections[4],
            ctx->cuda ? bench_cuda_attention(&c, ctx, context, args.query[q], n_head_kv, &err)
                      : bench_case_attention(&c, ctx, context, args.query[q], n_head_kv, &err),
            &err);
    }
    return code;
}

/* ---- report ---------------------------------------------------------------------------------- */

/* What the device did: each implementation's schedule, the kernels that ran (accumulate + reduce,
 * or all) and its share of the floor. The clock's own part is not taken off. */
static void print_schedule(const struct result *r, bool cuda)
{
    for (int k = 0; k < r->n_impl && cuda; k++) {
        printf("  [%s%s%d", r->plan[k], r->plan[k][0] ? ": " : "",
               r->accumulates[k] ? r->accumulates[k] : r->n_kernel[k]);
        if (r->accumulates[k]) printf("+%d", r->reduces[k]);
        if (r->floor_us > 0) printf(", %.0f %%", 100 * r->floor_us / r->stats[k].median);
        printf("]");
    }
    if (cuda && r->floor_us > 0) printf("  of %.2f us", r->floor_us);
    printf("\n");
}

/* Section by section; the last column is the first implementation's time over the last one's. */
static void print_table(const struct bench_cuda *cuda)
{
    if (cuda)
        printf("%s: policy %s, %s, weights %s\n\n", cuda->info.name,
               cuda->course ? "course" : "device", cuda->graph ? "graph replay" : "plain launches",
               args.cold_mib ? "cold" : "hot");
    bool first = true;
    for (int section = 0; section < N_SECTION; section++) {
        int header = 0; /* implementations named by the header above */
        for (size_t i = 0; i < n_result; i++) {
            const struct result *r = &results[i];
            if (r->section != sections[section]) continue;
            if (header != r->n_impl) {
                printf("%s%s, median us\n  %-28s", first ? "" : "\n", r->section, "");
                for (int k = 0; k < r->n_impl; k++) printf("%12s", r->impl[k]);
                printf("%12s\n", "speedup");
                first = false;
                header = r->n_impl;
            }
            printf("  %-28s", r->name);
            for (int k = 0; k < r->n_impl; k++) printf("%12.2f", r->stats[k].median);
            printf("%11.2fx", r->stats[0].median / r->stats[r->n_impl - 1].median);
            print_schedule(r, cuda != NULL);
        }
    }
}

static void print_json(FILE *out, const struct bench_context *ctx)
{
    char processor[128], when[32];
    bench_processor_name(processor, sizeof(processor));
    time_t now = time(NULL);
    strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    struct json json;
    jw_begin(&json, out);
    jw_object(&json);
    jw_int_at(&json, "schema", 1);
    jw_text_at(&json, "benchmark", "operators");
    jw_text_at(&json, "build_version", BRIM_VERSION_STRING);
    jw_text_at(&json, "cpu_info", processor);
    jw_text_at(&json, "device", ctx->cuda ? "cuda" : "cpu");
    if (ctx->cuda) {
        jw_text_at(&json, "gpu", ctx->cuda->info.name);
        jw_int_at(&json, "multiprocessors", ctx->cuda->info.n_sm);
        jw_int_at(&json, "driver", ctx->cuda->info.driver_version);
        jw_text_at(&json, "launch", ctx->cuda->graph ? "graph" : "plain");
        jw_text_at(&json, "policy", ctx->cuda->course ? "course" : "device");
        jw_real_at(&json, "empty_kernel_us", ctx->cuda->empty_us);
    }
    jw_text_at(&json, "cpu_tier", brim_cpu_tier_name(ctx->ops->tier));
    jw_int_at(&json, "threads", ctx->n_thread);
    jw_text_at(&json, "model_shapes", ctx->shape->name);
    jw_int_at(&json, "group", ctx->shape->group);
    jw_text_at(&json, "time", when);
    jw_int_at(&json, "warmup", args.n_warmup);
    jw_int_at(&json, "iterations", args.n_iteration);
    jw_int_at(&json, "context_repeats", args.repeats);
    jw_int_at(&json, "cold_mib", args.cold_mib);
    jw_key(&json, "cases");
    jw_array(&json);
    for (size_t i = 0; i < n_result; i++) {
        const struct result *r = &results[i];
        jw_object(&json);
        jw_text_at(&json, "section", r->section);
        jw_text_at(&json, "name", r->name);
        if (r->floor_us > 0) jw_real_at(&json, "floor_us", r->floor_us);
        jw_key(&json, "orders"); /* the implementations in the order they ran, per iteration */
        jw_array(&json);
        for (size_t s = 0; s < r->n_sample; s++) {
            jw_array(&json);
            for (int k = 0; k < r->n_impl; k++)
                jw_int(&json, permutation(r->n_impl, r->orders[s])[k]);
            jw_close(&json);
        }
        jw_close(&json);
        jw_key(&json, "implementations");
        jw_array(&json);
        for (int k = 0; k < r->n_impl; k++) {
            jw_object(&json);
            jw_text_at(&json, "name", r->impl[k]);
            if (ctx->cuda) {
                jw_text_at(&json, "plan", r->plan[k]);
                jw_int_at(&json, "accumulates", r->accumulates[k]);
                jw_int_at(&json, "reduces", r->reduces[k]);
                jw_int_at(&json, "kernels", r->n_kernel[k]);
                if (r->floor_us > 0)
                    jw_real_at(&json, "floor_fraction", r->floor_us / r->stats[k].median);
            }
            jw_real_at(&json, "median_us", r->stats[k].median);
            jw_real_at(&json, "min_us", r->stats[k].min);
            jw_key(&json, "samples_us");
            jw_array(&json);
            for (size_t s = 0; s < r->n_sample; s++) jw_real(&json, r->samples_us[k][s]);
            jw_close(&json);
            jw_close(&json);
        }
        jw_close(&json);
        jw_close(&json);
    }
    jw_close(&json);
    jw_close(&json);
    jw_end(&json);
}

static int report(const struct bench_context *ctx)
{
    for (size_t i = 0; i < n_result; i++)
        for (int k = 0; k < results[i].n_impl; k++)
            if (!bench_statistics(results[i].samples_us[k], results[i].n_sample,
                                  &results[i].stats[k]))
                return cli_out_of_memory();
    bool to_stdout = args.json_output && !strcmp(args.json_output, "-");
    if (!to_stdout) print_table(ctx->cuda);
    if (!args.json_output) return CLI_OK;
    FILE *out = to_stdout ? stdout : fopen(args.json_output, "w");
    bool ok = out != NULL;
    if (ok) print_json(out, ctx);
    if (ok && out != stdout) ok = fclose(out) == 0;
    if (ok) return CLI_OK;
    cli_error("cannot write '%s': %s", args.json_output, strerror(errno));
    return CLI_FAILED;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int operators(const struct bench_shape *shape)
{
    if (!bench_writable(args.json_output)) return CLI_FAILED;
    struct brim_cpu_info info = brim_cpu_detect();
    enum brim_cpu_tier tier = info.tier;
    if (args.tier) (void)brim_cpu_tier_parse(args.tier, &tier); /* one of the choices */
    if (!brim_cpu_tier_ok(&info, tier)) {
        cli_error("--cpu-tier: this processor does not offer %s", args.tier);
        return CLI_FAILED;
    }
    struct bench_context ctx = {.shape = shape,
                                .reference = brim_cpu_ops_get(BRIM_CPU_TIER_C, &info),
                                .ops = brim_cpu_ops_get(tier, &info),
                                .cold_bytes = args.cold_mib << 20};
    brim_error err = {0};
    if (brim_pool_create(&ctx.pool, (int)args.n_thread, &err) != BRIM_OK) return cli_fail(&err);
    ctx.n_thread = brim_pool_size(ctx.pool);
    struct bench_cuda cuda;
    int code = CLI_OK;
    if (args.device && !strcmp(args.device, "cuda")) {
        ctx.cuda = &cuda;
        if (bench_cuda_open(&cuda, !args.launch || strcmp(args.launch, "plain") != 0,
                            args.policy && !strcmp(args.policy, "course"), &err) != BRIM_OK) {
            code = cli_fail(&err);
            bench_cuda_close(&cuda);
            brim_pool_free(&ctx.pool);
            return code;
        }
    }

    code = run_fixed_sections(&ctx);
    bool by_context = args.section[2] || args.section[4];
    for (int64_t pass = 0; pass < args.repeats && by_context && code == CLI_OK; pass++)
        for (size_t i = 0; i < args.n_context && code == CLI_OK; i++)
            code = run_context(&ctx, args.context[pass % 2 ? args.n_context - 1 - i : i]);
    if (code == CLI_OK) code = report(&ctx);
    for (size_t i = 0; i < n_result; i++) {
        free(results[i].orders);
        for (int k = 0; k < BENCH_MAX_IMPL; k++) free(results[i].samples_us[k]);
    }
    n_result = 0;
    if (ctx.cuda) bench_cuda_close(&cuda);
    brim_pool_free(&ctx.pool);
    return code;
}

/* Marks the words of `list` in `marks`, all when the list is empty and `all` is set. */
static bool choose(const char *option, const struct args_list *list, const char *const *words,
                   size_t n_word, bool all, bool *marks)
{
    for (size_t w = 0; w < n_word; w++) marks[w] = all && list->n == 0;
    for (size_t i = 0; i < list->n; i++) {
        size_t w = 0;
        while (w < n_word && strcmp(words[w], list->items[i])) w++;
        if (w == n_word) {
            cli_error("--%s: '%s' is unknown (see 'brim bench operators --help')", option,
                      list->items[i]);
            return false;
        }
        marks[w] = true;
    }
    return true;
}

/* Three implementations of a decode's projections and, with split-K, of a prefill's; two of all
 * else, whose orders divide those. */
static bool check_iterations(void)
{
    return whole_orders(args.section[1] || (args.section[2] && args.include_split_k) ? 3 : 2);
}

/* Queries are the last rows of their context, so there are no more of them than of its keys. Asked
 * before anything is measured. */
static bool check_queries(void)
{
    for (size_t c = 0; c < args.n_context && args.section[4]; c++)
        for (size_t q = 0; q < args.n_query; q++)
            if (args.query[q] > args.context[c]) {
                cli_error("--query-length: %" PRId64 " queries cannot see the %" PRId64
                          " keys of --context causally",
                          args.query[q], args.context[c]);
                return false;
            }
    return true;
}

static bool settle(const struct args_list *section, const struct args_list *context,
                   const struct args_list *query, const struct args_list *projection,
                   const struct bench_shape **shape)
{
    *shape = NULL;
    for (int i = 0; i < N_SHAPE; i++)
        if (!strcmp(shapes[i].name, args.model)) *shape = &shapes[i];
    if (!*shape) {
        cli_error("--model: no shapes are known for '%s' (qwen3-0.6b, qwen3-4b or smollm2-135m)",
                  args.model);
        return false;
    }
    if (!choose("section", section, sections, N_SECTION, true, args.section) ||
        !choose("prefill-projection", projection, projections, N_PROJECTION, false,
                args.projection))
        return false;
    if (!check_iterations()) return false;
    if (!projection->n) args.projection[0] = true;
    for (size_t i = 0; i < context->n; i++)
        if (!bench_numbers("context", context->items[i], 2, 1 << 20, args.context, MAX_SHAPE,
                           &args.n_context))
            return false;
    for (size_t i = 0; i < query->n; i++)
        if (!bench_numbers("query-length", query->items[i], 1, 1 << 20, args.query, MAX_SHAPE,
                           &args.n_query))
            return false;
    if (!args.n_context) args.context[args.n_context++] = 128;
    if (!args.n_query) args.query[args.n_query++] = 1;
    if (args.n_query > 1 && (section->n != 1 || !args.section[4])) {
        cli_error("--query-length: a sweep needs --section attention alone");
        return false;
    }
    if (!check_queries()) return false;
    if (!args.repeats) args.repeats = args.n_context > 1 ? 2 : 1;
    if (args.n_context > 1 && args.repeats % 2) {
        cli_error("--context-repeats must be even with several contexts: half run in reverse");
        return false;
    }
    if (args.gqa_ratio && (*shape)->n_head % args.gqa_ratio) {
        cli_error("--gqa-ratio: %d heads cannot be shared by %" PRId64, (*shape)->n_head,
                  args.gqa_ratio);
        return false;
    }
    return true;
}

int cmd_bench_operators(int argc, char **argv)
{
    struct args_list section = {0}, context = {0}, query = {0}, projection = {0}, words = {0};
    memset(&args, 0, sizeof(args));
    args.model = "qwen3-0.6b";
    args.n_warmup = 12;
    args.n_iteration = 60;
    const struct args_option options[] = {
        {"model", 'm', ARGS_TEXT, &args.model, "NAME",
         "layer shapes of qwen3-0.6b, qwen3-4b or smollm2-135m (qwen3-0.6b);\n"
         "weights are random",
         0, 0},
        {"section", 0, ARGS_LIST, &section, "NAME",
         "embedding, decode-projections, prefill-projections, model-kernels or\n"
         "attention; repeated (all)",
         0, 0},
        {"context", 0, ARGS_LIST, &context, "N", "rows of a prefill, keys of attention (128)", 0,
         0},
        {"context-repeats", 0, ARGS_INT, &args.repeats, "N",
         "passes over the contexts, forward and reverse (1; several contexts: 2)", 1, 100},
        {"query-length", 0, ARGS_LIST, &query, "N", "query rows of attention (1)", 0, 0},
        {"gqa-ratio", 0, ARGS_INT, &args.gqa_ratio, "N",
         "query heads that share a key head (the model's)", 1, 1024},
        {"attention-mask", 0, ARGS_CHOICE, &args.mask, "causal", "(causal)", 0, 0},
        {"warmup", 0, ARGS_INT, &args.n_warmup, "N", "untimed iterations (12)", 0, 10000},
        {"iterations", 0, ARGS_INT, &args.n_iteration, "N",
         "samples; a multiple of n! for n implementations (60)", 1, BENCH_MAX_SAMPLES},
        {"prefill-projection", 0, ARGS_LIST, &projection, "NAME",
         "q k v o gate up down; repeated (q)", 0, 0},
        {"include-split-k", 0, ARGS_FLAG, &args.include_split_k, NULL,
         "add the split-K implementation to prefill projections", 0, 0},
        {"cold", 0, ARGS_INT, &args.cold_mib, "MIB",
         "rotate copies of the weights over this much memory (0: one copy,\n"
         "which stays in the cache)",
         0, 65536},
        {"json-output", 0, ARGS_TEXT, &args.json_output, "FILE",
         "settings, orders, raw samples and medians; - for standard output", 0, 0},
        {"device", 0, ARGS_CHOICE, &args.device, "cpu|cuda",
         "(cpu); cuda compares the dense, matvec, tiled, split-K and Hopper kernels,\n"
         "plain and fused forms of the others",
         0, 0},
        {"launch", 0, ARGS_CHOICE, &args.launch, "graph|plain",
         "CUDA: replay a recording, or call (graph)", 0, 0},
        {"policy", 0, ARGS_CHOICE, &args.policy, "device|course",
         "CUDA: what split-K's plans aim at (device)", 0, 0},
        {"threads", 't', ARGS_INT, &args.n_thread, "N", "worker threads (all processors)", 1, 1024},
        {"cpu-tier", 0, ARGS_CHOICE, &args.tier, "c|avx2|avx512|neon",
         "instruction set of the optimized kernels (the best here)", 0, 0},
        {"solution", 0, ARGS_TEXT, &args.solution, "NAME",
         "accepted as the course has it: there is one", 0, 0},
        {"quiet", 'q', ARGS_FLAG, &args.quiet, NULL, "no progress", 0, 0},
    };
    const struct args_command command = {
        .name = "bench operators",
        .positional = "",
        .about = "Single operators on the shapes of one layer: plain C, this processor's kernels, "
                 "int8\nactivations; prefill tiled, split-K and int8. Times are medians in us.",
        .groups = {{"Options", options, sizeof(options) / sizeof(options[0])}},
    };
    int code;
    if (args_parse(&command, argc, argv, &words, &code)) {
        const struct bench_shape *shape;
        cli_catch_interrupt();
        code = settle(&section, &context, &query, &projection, &shape)
                   ? cli_close_stdout(operators(shape))
                   : CLI_USAGE;
    }
    args_list_free(&section);
    args_list_free(&context);
    args_list_free(&query);
    args_list_free(&projection);
    args_list_free(&words);
    return code;
}
