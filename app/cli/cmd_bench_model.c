/* SPDX-License-Identifier: Apache-2.0
 * brim bench model: rates of a whole model, in the terms of llama-bench. A test "ppN" evaluates N
 * random tokens at once, "tgN" evaluates N tokens one by one; "@ dD" means after D tokens already
 * in the cache. Untimed runs go before each test. Rates are tokens over wall time. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"
#include "cli.h"

enum { MAX_LIST = 32, MAX_REPEAT = 1000 };

struct test {
    char name[48];
    int64_t n_prompt, n_gen, n_depth;
    int64_t n_token; /* per sample */
    double samples_ns[MAX_REPEAT];
    struct bench_stats ns, rate;
};

struct setting {
    const char *model, *output, *prompt;
    int64_t n_repeat, chunk;
    int64_t n_prompt[MAX_LIST], n_gen[MAX_LIST], n_depth[MAX_LIST];
    size_t n_prompts, n_gens, n_depths;
    bool no_check, no_warmup;
};

/* ---- measuring ------------------------------------------------------------------------------- */

/* The tokens of one sample after `depth` tokens are in the cache. */
static brim_status evaluate(brim_session *session, const int32_t *ids, int64_t n, bool one_by_one,
                            brim_error *err)
{
    if (!one_by_one) return brim_session_eval(session, ids, n, err);
    for (int64_t i = 0; i < n; i++) {
        brim_status status = brim_session_eval(session, &ids[i], 1, err);
        if (status != BRIM_OK) return status;
    }
    return BRIM_OK;
}

static brim_status measure(brim_session *session, const int32_t *ids, const struct setting *s,
                           struct test *test, brim_error *err)
{
    bool decode = test->n_gen > 0;
    brim_status status = brim_session_rewind(session, 0, err);
    if (status == BRIM_OK && test->n_depth > 0)
        status = brim_session_eval(session, ids, test->n_depth, err);
    const int32_t *rest = ids + test->n_depth;
    /* The second evaluation of a prompt may be recorded as a graph, later ones are replayed. */
    int64_t n_untimed = s->no_warmup ? 0 : decode ? 1 : 2;
    for (int64_t i = -n_untimed; i < s->n_repeat && status == BRIM_OK; i++) {
        if (cli_interrupted()) return brim_session_length(session) ? BRIM_E_CANCELLED : status;
        int64_t start = cli_now_ns();
        status = evaluate(session, rest, test->n_token, decode, err);
        if (i >= 0) test->samples_ns[i] = (double)(cli_now_ns() - start);
        if (status == BRIM_OK) status = brim_session_rewind(session, test->n_depth, err);
    }
    return status;
}

/* Time to first token of a text: tokenize, evaluate, take the likeliest token. */
static brim_status measure_first(brim_engine *engine, brim_session *session, int32_t *ids,
                                 size_t capacity, const struct setting *s, struct test *test,
                                 brim_error *err)
{
    size_t n = 0;
    brim_sampling sampling;
    brim_sampling_default(&sampling);
    brim_sampler *sampler = NULL;
    brim_status status = brim_sampler_open(&sampler, engine, &sampling, err);
    for (int64_t i = -2; i < s->n_repeat && status == BRIM_OK; i++) {
        int32_t next;
        status = brim_session_rewind(session, 0, err);
        int64_t start = cli_now_ns();
        if (status == BRIM_OK)
            status =
                brim_tokenize(engine, s->prompt, strlen(s->prompt), false, ids, capacity, &n, err);
        if (status == BRIM_OK) status = brim_session_eval(session, ids, (int64_t)n, err);
        if (status == BRIM_OK) status = brim_sampler_next(sampler, session, &next, err);
        if (i >= 0) test->samples_ns[i] = (double)(cli_now_ns() - start);
    }
    brim_sampler_close(&sampler);
    test->n_token = test->n_prompt = (int64_t)n;
    snprintf(test->name, sizeof(test->name), "ttft%zu", n);
    return status;
}

/* ---- output ---------------------------------------------------------------------------------- */

struct machine {
    char processor[128], when[32];
    brim_model_info info;
    uint64_t peak_bytes;
    const char *activations;
};

/* As llama-bench names them. */
static const char *backend_name(const struct machine *m)
{
    return !strcmp(m->info.device, "cuda") ? "CUDA" : "CPU";
}

static void print_json(const struct setting *s, const struct machine *m, const struct test *tests,
                       size_t n_test)
{
    struct json json;
    jw_begin(&json, stdout);
    jw_array(&json);
    for (size_t t = 0; t < n_test; t++) {
        const struct test *test = &tests[t];
        jw_object(&json);
        jw_text_at(&json, "test", test->name);
        jw_text_at(&json, "build_version", BRIM_VERSION_STRING);
        jw_text_at(&json, "cpu_info", m->processor);
        jw_text_at(&json, "backends", backend_name(m));
        jw_text_at(&json, "gpu_info", m->info.gpu);
        jw_text_at(&json, "cpu_tier", m->info.cpu_tier);
        jw_text_at(&json, "activations", m->activations);
        jw_text_at(&json, "level", m->info.level);
        jw_text_at(&json, "model_filename", s->model);
        jw_text_at(&json, "model_type", m->info.family);
        jw_text_at(&json, "model_format", m->info.format);
        jw_int_at(&json, "model_size", (int64_t)m->info.file_bytes);
        jw_int_at(&json, "weight_bytes", (int64_t)m->info.weight_bytes);
        jw_int_at(&json, "kv_bytes_per_token", (int64_t)m->info.kv_bytes_per_token);
        jw_int_at(&json, "n_ubatch", s->chunk);
        jw_int_at(&json, "n_threads", m->info.n_thread);
        jw_int_at(&json, "n_prompt", test->n_prompt);
        jw_int_at(&json, "n_gen", test->n_gen);
        jw_int_at(&json, "n_depth", test->n_depth);
        jw_text_at(&json, "test_time", m->when);
        jw_int_at(&json, "avg_ns", (int64_t)test->ns.mean);
        jw_int_at(&json, "stddev_ns", (int64_t)test->ns.stddev);
        jw_int_at(&json, "median_ns", (int64_t)test->ns.median);
        jw_int_at(&json, "min_ns", (int64_t)test->ns.min);
        jw_real_at(&json, "avg_ts", test->rate.mean);
        jw_real_at(&json, "stddev_ts", test->rate.stddev);
        jw_real_at(&json, "median_ts", test->rate.median);
        jw_real_at(&json, "max_ts", test->rate.max);
        jw_int_at(&json, "load_ns", m->info.load_ns);
        jw_int_at(&json, "peak_bytes", (int64_t)m->peak_bytes);
        jw_bool_at(&json, "checked", !s->no_check);
        jw_key(&json, "samples_ns");
        jw_array(&json);
        for (int64_t i = 0; i < s->n_repeat; i++) jw_int(&json, (int64_t)test->samples_ns[i]);
        jw_close(&json);
        jw_key(&json, "samples_ts");
        jw_array(&json);
        for (int64_t i = 0; i < s->n_repeat; i++)
            jw_real(&json, (double)test->n_token * 1e9 / test->samples_ns[i]);
        jw_close(&json);
        jw_close(&json);
    }
    jw_close(&json);
    jw_end(&json);
}

/* A CSV field in quotes, as llama-bench writes every field. */
static void csv_text(const char *text, const char *after)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"') putchar('"');
        putchar(*text);
    }
    printf("\"%s", after);
}

static void csv_number(double value, int digits, const char *after)
{
    printf("\"%.*f\"%s", digits, value, after);
}

static void print_csv(const struct setting *s, const struct machine *m, const struct test *tests,
                      size_t n_test)
{
    puts("build_version,cpu_info,backends,gpu_info,cpu_tier,activations,level,model_filename,"
         "model_type,model_size,n_ubatch,n_threads,n_prompt,n_gen,n_depth,test,test_time,avg_ns,"
         "stddev_ns,avg_ts,stddev_ts,median_ts,max_ts,load_ns,peak_bytes,checked");
    for (size_t t = 0; t < n_test; t++) {
        const struct test *test = &tests[t];
        csv_text(BRIM_VERSION_STRING, ",");
        csv_text(m->processor, ",");
        csv_text(backend_name(m), ",");
        csv_text(m->info.gpu, ",");
        csv_text(m->info.cpu_tier, ",");
        csv_text(m->activations, ",");
        csv_text(m->info.level, ",");
        csv_text(s->model, ",");
        csv_text(m->info.family, ",");
        csv_number((double)m->info.file_bytes, 0, ",");
        csv_number((double)s->chunk, 0, ",");
        csv_number(m->info.n_thread, 0, ",");
        csv_number((double)test->n_prompt, 0, ",");
        csv_number((double)test->n_gen, 0, ",");
        csv_number((double)test->n_depth, 0, ",");
        csv_text(test->name, ",");
        csv_text(m->when, ",");
        csv_number(test->ns.mean, 0, ",");
        csv_number(test->ns.stddev, 0, ",");
        csv_number(test->rate.mean, 6, ",");
        csv_number(test->rate.stddev, 6, ",");
        csv_number(test->rate.median, 6, ",");
        csv_number(test->rate.max, 6, ",");
        csv_number((double)m->info.load_ns, 0, ",");
        csv_number((double)m->peak_bytes, 0, ",");
        csv_text(s->no_check ? "false" : "true", "\n");
    }
}

static void print_md(const struct setting *s, const struct machine *m, const struct test *tests,
                     size_t n_test)
{
    (void)s;
    bool cuda = !strcmp(m->info.device, "cuda");
    printf("| model | size | %s | activations | %s | test | t/s |\n"
           "| --- | ---: | --- | --- | ---: | ---: | ---: |\n",
           cuda ? "gpu" : "tier", cuda ? "level" : "threads");
    for (size_t t = 0; t < n_test; t++) {
        char threads[16];
        snprintf(threads, sizeof(threads), "%d", m->info.n_thread);
        printf("| %s %s | %.2f MiB | %s | %s | %s | %s | %.2f ± %.2f |\n", m->info.family,
               m->info.format, (double)m->info.file_bytes / 1048576,
               cuda ? m->info.gpu : m->info.cpu_tier, m->activations,
               cuda ? m->info.level : threads, tests[t].name, tests[t].rate.mean,
               tests[t].rate.stddev);
    }
}

/* ---- the command ----------------------------------------------------------------------------- */

static bool rates(struct test *test, int64_t n_repeat)
{
    double rate[MAX_REPEAT];
    for (int64_t i = 0; i < n_repeat; i++)
        rate[i] = (double)test->n_token * 1e9 / test->samples_ns[i];
    return bench_statistics(test->samples_ns, (size_t)n_repeat, &test->ns) &&
           bench_statistics(rate, (size_t)n_repeat, &test->rate);
}

static size_t list_tests(const struct setting *s, struct test *tests)
{
    size_t n = 0;
    for (size_t d = 0; d < s->n_depths; d++)
        for (int kind = 0; kind < 2; kind++) {
            const int64_t *counts = kind ? s->n_gen : s->n_prompt;
            for (size_t i = 0; i < (kind ? s->n_gens : s->n_prompts); i++) {
                if (counts[i] == 0) continue;
                struct test *test = &tests[n++];
                test->n_prompt = kind ? 0 : counts[i];
                test->n_gen = kind ? counts[i] : 0;
                test->n_depth = s->n_depth[d];
                test->n_token = counts[i];
                int len = snprintf(test->name, sizeof(test->name), "%s%" PRId64, kind ? "tg" : "pp",
                                   counts[i]);
                if (test->n_depth)
                    snprintf(test->name + len, sizeof(test->name) - (size_t)len, " @ d%" PRId64,
                             test->n_depth);
            }
        }
    return n;
}

static int run_tests(const struct setting *s, brim_engine *engine, struct test *tests,
                     size_t n_test, struct machine *machine)
{
    int64_t longest = 1;
    for (size_t t = 0; t < n_test; t++)
        if (tests[t].n_depth + tests[t].n_token > longest)
            longest = tests[t].n_depth + tests[t].n_token;
    if (s->prompt) {
        size_t n;
        int32_t *prompt = cli_tokenize(engine, s->prompt, strlen(s->prompt), false, &n);
        if (!prompt) return CLI_FAILED;
        free(prompt);
        if (longest < (int64_t)n) longest = (int64_t)n;
    }
    int32_t *ids = malloc((size_t)longest * sizeof(*ids));
    if (!ids) return cli_out_of_memory();
    bench_random_tokens(engine, 1, ids, longest);

    brim_error err = {0};
    brim_session_options options;
    brim_session_options_default(&options);
    options.n_context = longest;
    options.prefill_chunk = s->chunk;
    brim_session *session = NULL;
    brim_status status = brim_session_open(&session, engine, &options, &err);
    for (size_t t = 0; t < n_test && status == BRIM_OK; t++) {
        bool first = tests[t].n_token == 0;
        if (!cli_model_args.quiet)
            fprintf(stderr, "bench model: %s\n", first ? "time to first token" : tests[t].name);
        status = first ? measure_first(engine, session, ids, (size_t)longest, s, &tests[t], &err)
                       : measure(session, ids, s, &tests[t], &err);
    }
    brim_session_close(&session);
    free(ids);
    machine->peak_bytes = cli_peak_memory();
    if (cli_interrupted()) return CLI_INTERRUPTED;
    if (status != BRIM_OK) return cli_fail(&err);
    for (size_t t = 0; t < n_test; t++)
        if (!rates(&tests[t], s->n_repeat)) return cli_out_of_memory();
    if (!strcmp(s->output, "json"))
        print_json(s, machine, tests, n_test);
    else if (!strcmp(s->output, "csv"))
        print_csv(s, machine, tests, n_test);
    else
        print_md(s, machine, tests, n_test);
    return CLI_OK;
}

static int bench_model(struct setting *s)
{
    bool int8 = cli_model_args.activations && !strcmp(cli_model_args.activations, "int8");
    size_t n_reference = 0;
    float *reference = NULL;
    if (!s->no_check && !(reference = bench_reference(s->model, &n_reference))) return CLI_FAILED;

    brim_engine_options options;
    bench_engine_options(&options, NULL);
    brim_engine *engine = NULL;
    brim_error err = {0};
    if (brim_engine_open(&engine, s->model, &options, &err) != BRIM_OK) {
        free(reference);
        return cli_fail(&err);
    }
    bool ok = s->no_check || bench_check(engine, int8, reference, n_reference);
    free(reference);
    if (s->no_check) cli_warning("results are not checked against the C reference");

    struct machine machine = {.activations = int8 ? "int8" : "f32"};
    brim_engine_info(engine, &machine.info);
    bool cuda = !strcmp(machine.info.device, "cuda");
    if (cuda) machine.activations = "bf16";
    if (s->chunk == 0) s->chunk = cuda ? 2048 : 512;
    bench_processor_name(machine.processor, sizeof(machine.processor));
    time_t now = time(NULL);
    strftime(machine.when, sizeof(machine.when), "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));

    int code = CLI_FAILED;
    if (ok) {
        size_t most = s->n_depths * (s->n_prompts + s->n_gens) + 1;
        struct test *tests = calloc(most, sizeof(*tests));
        if (tests) {
            size_t n_test = list_tests(s, tests);
            if (s->prompt) n_test++; /* n_token 0: time to first token */
            if (n_test)
                code = run_tests(s, engine, tests, n_test, &machine);
            else
                cli_error("bench model: nothing to measure: every N is 0");
            free(tests);
        } else {
            code = cli_out_of_memory();
        }
    }
    brim_engine_close(&engine);
    return code;
}

int cmd_bench_model(int argc, char **argv)
{
    static struct setting s;
    s = (struct setting){.output = "md", .n_repeat = 5};
    struct args_list prompts = {0}, gens = {0}, depths = {0}, words = {0};
    const struct args_option options[] = {
        {"model", 'm', ARGS_TEXT, &s.model, "MODEL", "a .gguf file or a Hugging Face directory", 0,
         0},
        {"n-prompt", 'p', ARGS_LIST, &prompts, "N,..", "tokens of a prefill (512)", 0, 0},
        {"n-gen", 'n', ARGS_LIST, &gens, "N,..", "tokens decoded one by one (128)", 0, 0},
        {"n-depth", 'd', ARGS_LIST, &depths, "N,..", "tokens in the cache before (0)", 0, 0},
        {"repetitions", 'r', ARGS_INT, &s.n_repeat, "N", "samples per test (5)", 1, MAX_REPEAT},
        {"output", 'o', ARGS_CHOICE, &s.output, "json|csv|md", "(md)", 0, 0},
        {"prompt", 0, ARGS_TEXT, &s.prompt, "TEXT",
         "also measure the time to the first token of this text", 0, 0},
        {"ubatch-size", 'u', ARGS_INT, &s.chunk, "N", "rows evaluated at once (512; on cuda 2048)",
         1, 1 << 20},
        {"no-warmup", 0, ARGS_FLAG, &s.no_warmup, NULL, "no untimed runs before a test", 0, 0},
        {"no-check", 0, ARGS_FLAG, &s.no_check, NULL,
         "time without comparing with the C reference; results say so", 0, 0},
    };
    const struct args_command command = {
        .name = "bench model",
        .positional = "[MODEL]",
        .about =
            "Prefill (ppN) and decode (tgN) rates of a whole model, as llama-bench names them.",
        .groups = {{"Benchmark", options, sizeof(options) / sizeof(options[0])}, cli_model_group()},
        .max_positional = 1,
        .check = cli_check_model_args,
    };
    int code;
    if (args_parse(&command, argc, argv, &words, &code)) {
        bool ok = true;
        if (words.n) s.model = words.items[0];
        for (size_t i = 0; i < prompts.n && ok; i++)
            ok = bench_numbers("n-prompt", prompts.items[i], 0, 1 << 24, s.n_prompt, MAX_LIST,
                               &s.n_prompts);
        for (size_t i = 0; i < gens.n && ok; i++)
            ok = bench_numbers("n-gen", gens.items[i], 0, 1 << 24, s.n_gen, MAX_LIST, &s.n_gens);
        for (size_t i = 0; i < depths.n && ok; i++)
            ok = bench_numbers("n-depth", depths.items[i], 0, 1 << 24, s.n_depth, MAX_LIST,
                               &s.n_depths);
        if (!s.n_prompts) s.n_prompt[s.n_prompts++] = 512;
        if (!s.n_gens) s.n_gen[s.n_gens++] = 128;
        if (!s.n_depths) s.n_depths = 1;
        if (!s.model && ok) {
            cli_error("bench model needs a model (usage: brim bench model [options] MODEL)");
            ok = false;
        }
        cli_catch_interrupt();
        code = ok ? cli_close_stdout(bench_model(&s)) : CLI_USAGE;
    }
    args_list_free(&prompts);
    args_list_free(&gens);
    args_list_free(&depths);
    args_list_free(&words);
    return code;
}
