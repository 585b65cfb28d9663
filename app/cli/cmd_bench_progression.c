/* SPDX-License-Identifier: Apache-2.0
 * brim bench progression: one model on every rung of the kernel ladder, measured like the course's
 * bench-week2-progression. Each sample is a fresh process that evaluates one random prompt and
 * decodes greedily, end tokens ignored, after some untimed runs. Repeats alternate forward and
 * reverse order of the variants; each metric has its own median. prefill tok/s   input length /
 * time to the first token decode tok/s    (output length - 1) / time from the first token to the
 * last output tok/s    output length / whole time */
#include <errno.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "cli.h"

extern char **environ;

enum { MAX_VARIANT = 32, MAX_REPEAT = 100, N_METRIC = 3 };

static const char *const metric_names[N_METRIC] = {"prefill_tps", "decode_tps", "output_tps"};
static const char *const levels[] = {"dense", "matvec",  "fused", "attention",
                                     "tiled", "split-k", "hopper"};
static const char *const tiers[] = {"c", "avx2", "avx512", "neon"};

/* The course's names of the rungs (docs/verification.md). */
static const struct {
    const char *course, *level;
} course_names[] = {{"week2-kv-cache", "dense"},    {"week2-quantized-matvec", "matvec"},
                    {"week2-swiglu", "fused"},      {"week2-decode-attention", "attention"},
                    {"week2-simd-matmul", "tiled"}, {"week2-split-k", "split-k"}};

struct variant {
    char name[32]; /* "tiled:avx2" */
    const char *level, *tier;
    const char *command; /* a peer: measured by this shell command instead */
    bool int8;
    bool checked; /* its logits were compared with the C reference */
    double samples[N_METRIC][MAX_REPEAT];
    struct bench_stats stats[N_METRIC];
    size_t n_sample;
};

static struct {
    const char *model, *prefill_logits, *json_output, *sample, *device, *solution;
    int64_t n_input, n_output, n_warmup, n_repeat, n_thread;
    uint64_t seed;
    double cooldown_s;
    bool no_check, offline, quiet;
    struct args_list peers; /* "NAME=COMMAND" */
} args;

static bool on_cuda(void)
{
    return args.device && !strcmp(args.device, "cuda");
}

static bool level_exists(const char *level)
{
    return on_cuda() || !cli_level_of_cuda(level);
}

static void engine_options(brim_engine_options *options, const struct variant *variant)
{
    bench_engine_options(options, variant->level);
    options->n_thread = (int)args.n_thread;
    options->cpu_tier = variant->tier;
    options->activations_int8 = variant->int8;
    if (on_cuda()) options->device = BRIM_DEVICE_CUDA;
}

/* ---- one sample: the child ------------------------------------------------------------------- */

struct times {
    int64_t first_ns, decode_ns;
};

/* The prompt, all logits or the last ones, then greedy tokens. */
static brim_status one_run(brim_engine *engine, brim_session *session, const int32_t *prompt,
                           float *logits, struct times *times, brim_error *err)
{
    brim_sampling sampling;
    brim_sampling_default(&sampling);
    brim_sampler *sampler = NULL;
    brim_status status = brim_session_rewind(session, 0, err);
    if (status == BRIM_OK) status = brim_sampler_open(&sampler, engine, &sampling, err);
    int32_t token = 0;
    int64_t start = cli_now_ns();
    if (status == BRIM_OK)
        status = logits ? brim_session_eval_all(session, prompt, args.n_input, logits, err)
                        : brim_session_eval(session, prompt, args.n_input, err);
    if (status == BRIM_OK) status = brim_sampler_next(sampler, session, &token, err);
    int64_t first = cli_now_ns();
    for (int64_t i = 1; i < args.n_output && status == BRIM_OK; i++) {
        status = brim_session_eval(session, &token, 1, err);
        if (status == BRIM_OK) status = brim_sampler_next(sampler, session, &token, err);
    }
    *times = (struct times){first - start, cli_now_ns() - first};
    brim_sampler_close(&sampler);
    return status;
}

/* Prints first_ns and decode_ns. */
static int run_sample(const struct variant *variant)
{
    brim_engine_options options;
    engine_options(&options, variant);
    brim_error err = {0};
    brim_engine *engine = NULL;
    if (brim_engine_open(&engine, args.model, &options, &err) != BRIM_OK) return cli_fail(&err);
    brim_model_info info;
    brim_engine_info(engine, &info);
    brim_session_options session_options;
    brim_session_options_default(&session_options);
    session_options.n_context = args.n_input + args.n_output;
    brim_session *session = NULL;
    struct times times = {0};
    brim_status status = brim_session_open(&session, engine, &session_options, &err);
    int32_t *prompt = malloc((size_t)args.n_input * sizeof(*prompt));
    bool all = !strcmp(args.prefill_logits, "all");
    float *logits =
        all ? malloc((size_t)args.n_input * (size_t)info.n_vocab * sizeof(*logits)) : NULL;
    int code = CLI_OK;
    if (!prompt || (all && !logits)) {
        code = cli_out_of_memory();
    } else {
        bench_random_tokens(engine, args.seed, prompt, args.n_input);
        for (int64_t i = 0; i <= args.n_warmup && status == BRIM_OK; i++)
            status = one_run(engine, session, prompt, logits, &times, &err);
        if (status != BRIM_OK)
            code = cli_fail(&err);
        else
            printf("%" PRId64 " %" PRId64 "\n", times.first_ns, times.decode_ns);
    }
    free(logits);
    free(prompt);
    brim_session_close(&session);
    brim_engine_close(&engine);
    return cli_close_stdout(code);
}

/* ---- variants -------------------------------------------------------------------------------- */

static const char *find_word(const char *const *words, size_t n, const char *text, size_t len)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(words[i]) == len && !memcmp(words[i], text, len)) return words[i];
    return NULL;
}

/* The command of the peer called text[0, len), or NULL. */
static const char *find_peer(const char *text, size_t len)
{
    for (size_t i = 0; i < args.peers.n; i++)
        if (!strncmp(args.peers.items[i], text, len) && args.peers.items[i][len] == '=')
            return args.peers.items[i] + len + 1;
    return NULL;
}

/* A peer's name, "LEVEL", "LEVEL:TIER" or "LEVEL:TIER:int8". */
static bool parse_variant(const char *text, struct variant *out)
{
    *out = (struct variant){0};
    size_t len = strcspn(text, ":");
    snprintf(out->name, sizeof(out->name), "%s", text);
    out->command = find_peer(text, strlen(text));
    if (out->command) return true;
    out->level = find_word(levels, sizeof(levels) / sizeof(levels[0]), text, len);
    for (size_t i = 0; i < sizeof(course_names) / sizeof(course_names[0]); i++)
        if (!strncmp(course_names[i].course, text, len) && !course_names[i].course[len])
            out->level = course_names[i].level;
    const char *rest = text + len;
    if (*rest == ':') {
        len = strcspn(++rest, ":");
        out->tier = find_word(tiers, sizeof(tiers) / sizeof(tiers[0]), rest, len);
        if (!out->tier) out->level = NULL;
        rest += len;
    }
    out->int8 = !strcmp(rest, ":int8");
    if (out->level && !level_exists(out->level)) {
        cli_error("--variant: %s needs --device cuda; the cpu has dense, matvec, tiled and split-k",
                  out->level);
        return false;
    }
    if (out->level && on_cuda() && (out->tier || out->int8)) out->level = NULL;
    if (!out->level || (*rest && !out->int8)) {
        cli_error(on_cuda()
                      ? "--variant: '%s' is neither a --peer nor LEVEL with LEVEL dense, matvec, "
                        "fused, attention, tiled, split-k or hopper"
                      : "--variant: '%s' is neither a --peer nor LEVEL[:TIER[:int8]] with LEVEL "
                        "dense, matvec, tiled or split-k and TIER c, avx2, avx512 or neon",
                  text);
        return false;
    }
    return true;
}

/* Does the library run this tier here? Asked of an engine, since only the library knows; err: why
 * not, or NULL. */
static bool tier_works(const char *tier, brim_error *err)
{
    brim_engine_options options;
    bench_engine_options(&options, NULL);
    options.n_thread = 1;
    options.cpu_tier = tier;
    brim_engine *engine = NULL;
    brim_status status = brim_engine_open(&engine, args.model, &options, err);
    brim_engine_close(&engine);
    return status == BRIM_OK;
}

static size_t all_variants(struct variant *variants)
{
    size_t n = 0;
    for (size_t l = 0; on_cuda() && l < sizeof(levels) / sizeof(levels[0]); l++, n++) {
        variants[n] = (struct variant){.level = levels[l]};
        snprintf(variants[n].name, sizeof(variants[n].name), "%s", levels[l]);
    }
    if (on_cuda()) return n;
    for (size_t t = 0; t < sizeof(tiers) / sizeof(tiers[0]); t++) {
        if (!tier_works(tiers[t], NULL)) continue;
        for (size_t l = 0; l < sizeof(levels) / sizeof(levels[0]); l++) {
            if (!level_exists(levels[l])) continue;
            struct variant *v = &variants[n++];
            *v = (struct variant){.level = levels[l], .tier = tiers[t]};
            snprintf(v->name, sizeof(v->name), "%s:%s", levels[l], tiers[t]);
        }
    }
    return n;
}

/* ---- the parent ------------------------------------------------------------------------------ */

/* Of another program alone there is nothing to check: its results are its own business. */
static bool check_variants(struct variant *variants, size_t n_variant)
{
    size_t n, n_own = 0;
    for (size_t i = 0; i < n_variant; i++) n_own += !variants[i].command;
    if (!n_own) return true;
    float *reference = bench_reference(args.model, &n);
    bool ok = reference != NULL;
    for (size_t i = 0; i < n_variant && ok; i++) {
        if (variants[i].command) continue;
        brim_engine_options options;
        engine_options(&options, &variants[i]);
        brim_engine *engine = NULL;
        brim_error err = {0};
        ok = brim_engine_open(&engine, args.model, &options, &err) == BRIM_OK;
        if (!ok)
            cli_fail(&err);
        else
            ok = variants[i].checked = bench_check(engine, variants[i].int8, reference, n);
        brim_engine_close(&engine);
        if (!ok) cli_error("bench progression: variant %s failed its check", variants[i].name);
    }
    free(reference);
    return ok;
}

/* A fresh process, of this program or of a peer's, measures `variant` once. */
static bool spawn_sample(struct variant *variant)
{
    char input[24], output[24], warmup[24], threads[24], seed[24];
    snprintf(input, sizeof(input), "%" PRId64, args.n_input);
    snprintf(output, sizeof(output), "%" PRId64, args.n_output);
    snprintf(warmup, sizeof(warmup), "%" PRId64, args.n_warmup);
    snprintf(threads, sizeof(threads), "%" PRId64, args.n_thread);
    snprintf(seed, sizeof(seed), "%" PRIu64, args.seed);
    char *script = NULL; /* a peer gets the same options behind its own */
    if (variant->command) {
        size_t n = strlen(variant->command) + 8;
        script = malloc(n);
        if (!script) return cli_out_of_memory() == CLI_OK;
        snprintf(script, n, "%s \"$@\"", variant->command);
    }
    const char *own[] = {"brim", "bench", "progression", "--sample", variant->name};
    const char *shell[] = {"sh", "-c", script, "sh", NULL};
    const char *options[] = {"--model",      args.model, "--input-len",      input,
                             "--output-len", output,     "--warmup",         warmup,
                             "--seed",       seed,       "--prefill-logits", args.prefill_logits};
    const char *device[] = {"--device", args.device ? args.device : "cpu",
                            args.n_thread ? "--threads" : NULL, threads};
    const char *words[32] = {NULL};
    size_t n_word = 0;
    for (size_t i = 0; i < (script ? 4 : 5); i++) words[n_word++] = script ? shell[i] : own[i];
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) words[n_word++] = options[i];
    for (size_t i = 0; !script && i < 4 && device[i]; i++) words[n_word++] = device[i];
    int fds[2];
    if (pipe(fds)) {
        cli_error("bench progression: cannot make a pipe: %s", strerror(errno));
        free(script);
        return false;
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, fds[0]);
    posix_spawn_file_actions_addclose(&actions, fds[1]);
    pid_t child;
    int failed = posix_spawn(&child, script ? "/bin/sh" : "/proc/self/exe", &actions, NULL,
                             (char *const *)words, environ);
    free(script);
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    const int64_t most_ns = (int64_t)1 << 50; /* 13 days */
    int64_t first_ns = 0, decode_ns = 0;
    bool read_ok = false;
    FILE *from = failed ? NULL : fdopen(fds[0], "r");
    if (from) {
        read_ok = fscanf(from, "%" SCNd64 " %" SCNd64, &first_ns, &decode_ns) == 2;
        fclose(from);
    } else {
        close(fds[0]);
    }
    int status = 0;
    while (!failed && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    if (failed || !read_ok || status != 0 || first_ns <= 0 || decode_ns <= 0 ||
        first_ns > most_ns || decode_ns > most_ns) {
        cli_error("bench progression: the sample of %s did not finish", variant->name);
        return false;
    }
    size_t i = variant->n_sample++;
    variant->samples[0][i] = (double)args.n_input * 1e9 / (double)first_ns;
    variant->samples[1][i] = (double)(args.n_output - 1) * 1e9 / (double)decode_ns;
    variant->samples[2][i] = (double)args.n_output * 1e9 / (double)(first_ns + decode_ns);
    return true;
}

static bool print_report(FILE *out, const struct variant *variants, size_t n_variant,
                         const char *when)
{
    char processor[128];
    bench_processor_name(processor, sizeof(processor));
    struct json json;
    jw_begin(&json, out);
    jw_object(&json);
    jw_int_at(&json, "schema", 1);
    jw_text_at(&json, "benchmark", "progression");
    jw_text_at(&json, "build_version", BRIM_VERSION_STRING);
    jw_text_at(&json, "cpu_info", processor);
    jw_text_at(&json, "device", args.device ? args.device : "cpu");
    jw_text_at(&json, "model", args.model);
    jw_text_at(&json, "time", when);
    jw_int_at(&json, "input_len", args.n_input);
    jw_int_at(&json, "output_len", args.n_output);
    jw_int_at(&json, "warmup", args.n_warmup);
    jw_int_at(&json, "repeats", args.n_repeat);
    jw_int_at(&json, "threads", args.n_thread);
    jw_text_at(&json, "prefill_logits", args.prefill_logits);
    jw_key(&json, "seed");
    jw_uint(&json, args.seed);
    bool any = false, all = true; /* of brim's own variants */
    for (size_t v = 0; v < n_variant; v++)
        if (!variants[v].command) any = true, all = all && variants[v].checked;
    jw_bool_at(&json, "checked", any && all);
    jw_key(&json, "variants");
    jw_array(&json);
    for (size_t v = 0; v < n_variant; v++) {
        jw_object(&json);
        jw_text_at(&json, "name", variants[v].name);
        jw_bool_at(&json, "checked", variants[v].checked);
        for (int m = 0; m < N_METRIC; m++) {
            jw_key(&json, metric_names[m]);
            jw_object(&json);
            jw_real_at(&json, "median", variants[v].stats[m].median);
            jw_key(&json, "samples");
            jw_array(&json);
            for (size_t i = 0; i < variants[v].n_sample; i++)
                jw_real(&json, variants[v].samples[m][i]);
            jw_close(&json);
            jw_close(&json);
        }
        jw_close(&json);
    }
    jw_close(&json);
    jw_close(&json);
    jw_end(&json);
    return !ferror(out);
}

static int progression(struct variant *variants, size_t n_variant)
{
    if (args.no_check)
        cli_warning("results are not checked against the C reference");
    else if (!check_variants(variants, n_variant))
        return CLI_FAILED;
    char when[32];
    time_t now = time(NULL);
    strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));

    for (int64_t repeat = 0; repeat < args.n_repeat; repeat++)
        for (size_t i = 0; i < n_variant; i++) {
            struct variant *v = &variants[repeat % 2 ? n_variant - 1 - i : i];
            if (cli_interrupted()) return CLI_INTERRUPTED;
            if (!args.quiet)
                fprintf(stderr, "bench progression: %" PRId64 "/%" PRId64 " %s\n", repeat + 1,
                        args.n_repeat, v->name);
            if (!spawn_sample(v)) return CLI_FAILED;
            struct timespec pause = {
                (time_t)args.cooldown_s,
                (long)((args.cooldown_s - (double)(time_t)args.cooldown_s) * 1e9)};
            if (args.cooldown_s > 0) nanosleep(&pause, NULL);
        }
    for (size_t v = 0; v < n_variant; v++)
        for (int m = 0; m < N_METRIC; m++)
            if (!bench_statistics(variants[v].samples[m], variants[v].n_sample,
                                  &variants[v].stats[m]))
                return cli_out_of_memory();

    bool json_to_stdout = args.json_output && !strcmp(args.json_output, "-");
    if (!json_to_stdout) {
        printf("| variant | prefill tok/s | decode tok/s | output tok/s |\n"
               "| --- | ---: | ---: | ---: |\n");
        for (size_t v = 0; v < n_variant; v++)
            printf("| %s | %.2f | %.2f | %.2f |\n", variants[v].name, variants[v].stats[0].median,
                   variants[v].stats[1].median, variants[v].stats[2].median);
    }
    if (args.json_output) {
        FILE *out = json_to_stdout ? stdout : fopen(args.json_output, "w");
        bool ok = out && print_report(out, variants, n_variant, when);
        if (out && out != stdout) ok = fclose(out) == 0 && ok;
        if (!ok) {
            cli_error("cannot write '%s': %s", args.json_output, strerror(errno));
            return CLI_FAILED;
        }
    }
    return CLI_OK;
}

int cmd_bench_progression(int argc, char **argv)
{
    static struct variant variants[MAX_VARIANT];
    size_t n_variant = 0;
    struct args_list chosen = {0}, words = {0};
    memset(&args, 0, sizeof(args));
    args.n_input = 128;
    args.n_output = 65;
    args.n_warmup = 2;
    args.n_repeat = 4;
    args.prefill_logits = "all";
    const struct args_option options[] = {
        {"model", 'm', ARGS_TEXT, &args.model, "MODEL", "a .gguf file or a Hugging Face directory",
         0, 0},
        {"input-len", 0, ARGS_INT, &args.n_input, "N", "tokens of the prompt (128)", 1, 1 << 20},
        {"output-len", 0, ARGS_INT, &args.n_output, "N", "tokens generated (65)", 2, 1 << 20},
        {"warmup", 0, ARGS_INT, &args.n_warmup, "N", "untimed runs in each process (2)", 0, 100},
        {"repeats", 0, ARGS_INT, &args.n_repeat, "N",
         "processes per variant (4); even when there are several", 1, MAX_REPEAT},
        {"prefill-logits", 0, ARGS_CHOICE, &args.prefill_logits, "all|last",
         "logits of every prompt row or of the last (all)", 0, 0},
        {"variant", 0, ARGS_LIST, &chosen, "V",
         "LEVEL[:TIER[:int8]], repeated; LEVEL is dense, matvec, tiled or\n"
         "split-k, with --device cuda also fused, attention or hopper and\n"
         "no TIER (default: all levels on every tier of this processor)",
         0, 0},
        {"peer", 0, ARGS_LIST, &args.peers, "NAME=COMMAND",
         "another program as variant NAME, repeated: COMMAND receives --model,\n"
         "--input-len, --output-len, --warmup, --seed, --prefill-logits and\n"
         "prints nanoseconds to the first token and from it to the last",
         0, 0},
        {"seed", 0, ARGS_SEED, &args.seed, "N", "of the random prompt (0)", 0, 0},
        {"cooldown-seconds", 0, ARGS_REAL, &args.cooldown_s, "S", "pause after each process (0)", 0,
         3600},
        {"json-output", 0, ARGS_TEXT, &args.json_output, "FILE",
         "settings, raw samples and medians; - for standard output", 0, 0},
        {"device", 0, ARGS_CHOICE, &args.device, "cpu|cuda", "(cpu)", 0, 0},
        {"threads", 't', ARGS_INT, &args.n_thread, "N", "worker threads (all processors)", 1, 1024},
        {"offline", 0, ARGS_FLAG, &args.offline, NULL, "accepted: nothing is ever downloaded", 0,
         0},
        {"solution", 0, ARGS_TEXT, &args.solution, "NAME",
         "accepted as the course has it: there is one", 0, 0},
        {"no-check", 0, ARGS_FLAG, &args.no_check, NULL,
         "time without comparing with the C reference; results say so", 0, 0},
        {"quiet", 'q', ARGS_FLAG, &args.quiet, NULL, "no progress", 0, 0},
        {"sample", 0, ARGS_TEXT, &args.sample, "V", "measure one variant in this process", 0, 0},
    };
    const struct args_command command = {
        .name = "bench progression",
        .positional = "[MODEL]",
        .about = "A model on the rungs of the kernel ladder, dense weights to split-K (on a GPU to "
                 "the kernels\nfor Hopper).\nEvery sample is a fresh process; repeats alternate "
                 "forward and reverse "
                 "order.",
        .groups = {{"Options", options, sizeof(options) / sizeof(options[0])}},
        .max_positional = 1,
    };
    int code;
    if (args_parse(&command, argc, argv, &words, &code)) {
        bool ok = true;
        if (words.n) args.model = words.items[0];
        if (!args.model) {
            cli_error("bench progression needs a model (see 'brim bench progression --help')");
            ok = false;
        }
        for (size_t i = 0; i < args.peers.n && ok; i++) {
            size_t len = strcspn(args.peers.items[i], "=");
            ok = len > 0 && len < sizeof(variants[0].name) && args.peers.items[i][len];
            if (!ok) cli_error("--peer: '%s' is not NAME=COMMAND", args.peers.items[i]);
            if (ok &&
                find_word(levels, sizeof(levels) / sizeof(levels[0]), args.peers.items[i], len)) {
                cli_error("--peer: '%.*s' is the name of a level", (int)len, args.peers.items[i]);
                ok = false;
            }
        }
        for (size_t i = 0; i < chosen.n && ok; i++) {
            ok = n_variant < MAX_VARIANT;
            if (!ok)
                cli_error("--variant: at most %d", MAX_VARIANT);
            else
                ok = parse_variant(chosen.items[i], &variants[n_variant++]);
        }
        cli_catch_interrupt();
        if (ok && args.sample) {
            ok = parse_variant(args.sample, &variants[0]);
            code = ok ? run_sample(&variants[0]) : CLI_USAGE;
        } else if (ok) {
            if (!chosen.n) {
                n_variant = all_variants(variants);
                for (size_t i = 0; i < args.peers.n && n_variant < MAX_VARIANT; i++) {
                    char name[sizeof(variants[0].name)];
                    snprintf(name, sizeof(name), "%.*s", (int)strcspn(args.peers.items[i], "="),
                             args.peers.items[i]);
                    (void)parse_variant(name, &variants[n_variant++]); /* a peer: always right */
                }
            }
            if (n_variant > 1 && args.n_repeat % 2) {
                cli_error("--repeats must be even with several variants: half run in reverse");
                code = CLI_USAGE;
            } else if (!n_variant) { /* tier c runs on every processor: it is the model */
                brim_error err = {0};
                (void)tier_works("c", &err);
                code = cli_fail(&err);
            } else if (!bench_writable(args.json_output)) {
                code = CLI_FAILED;
            } else {
                code = cli_close_stdout(progression(variants, n_variant));
            }
        } else {
            code = CLI_USAGE;
        }
    }
    args_list_free(&args.peers);
    args_list_free(&chosen);
    args_list_free(&words);
    return code;
}
