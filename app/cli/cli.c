/* SPDX-License-Identifier: Apache-2.0
 * See cli.h. */
#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- messages -------------------------------------------------------------------------------- */

void cli_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("brim: error: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

void cli_warning(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("brim: warning: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

int cli_fail(const brim_error *err)
{
    cli_error("%s", err->text);
    return CLI_FAILED;
}

int cli_out_of_memory(void)
{
    cli_error("out of memory");
    return CLI_FAILED;
}

int cli_close_stdout(int exit_code)
{
    bool failed = ferror(stdout) != 0;
    if (fflush(stdout)) {
        if (errno != EPIPE) cli_error("cannot write standard output: %s", strerror(errno));
        failed = true;
    }
    return failed && exit_code == CLI_OK ? CLI_FAILED : exit_code;
}

/* ---- clock, memory, files -------------------------------------------------------------------- */

int64_t cli_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

uint64_t cli_peak_memory(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    if (!file) return 0;
    char line[256];
    uint64_t kib = 0;
    while (fgets(line, sizeof(line), file))
        if (sscanf(line, "VmHWM: %" SCNu64 " kB", &kib) == 1) break;
    fclose(file);
    return kib * 1024;
}

char *cli_read_file(const char *path, size_t *len)
{
    bool is_stdin = !strcmp(path, "-");
    const char *name = is_stdin ? "standard input" : path;
    FILE *file = is_stdin ? stdin : fopen(path, "rb");
    if (!file) {
        cli_error("cannot open '%s': %s", path, strerror(errno));
        return NULL;
    }
    size_t capacity = 1 << 16;
    size_t n = 0;
    char *text = malloc(capacity);
    while (text) {
        n += fread(text + n, 1, capacity - n - 1, file);
        if (n < capacity - 1) break;
        char *larger = realloc(text, capacity * 2);
        if (!larger) free(text);
        text = larger;
        capacity *= 2;
    }
    bool failed = ferror(file) != 0;
    int reason = errno;
    if (!is_stdin) fclose(file);
    if (!text) {
        cli_error("'%s' does not fit into memory", name);
        return NULL;
    }
    if (failed) {
        cli_error("cannot read '%s': %s", name, strerror(reason));
        free(text);
        return NULL;
    }
    text[n] = 0;
    *len = n;
    return text;
}

/* ---- signals --------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupt_flag;

static void on_interrupt(int signal_number)
{
    if (interrupt_flag) _exit(128 + signal_number);
    interrupt_flag = 1;
}

void cli_catch_interrupt(void)
{
    /* no SA_RESTART: a read of standard input returns, so that chat can end */
    struct sigaction action = {.sa_handler = on_interrupt};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

bool cli_interrupted(void)
{
    return interrupt_flag != 0;
}

void cli_clear_interrupt(void)
{
    interrupt_flag = 0;
}

/* ---- progress -------------------------------------------------------------------------------- */

static void show_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct cli_progress *progress = ctx;
    int percent = total ? (int)(100.0 * (double)done / (double)total) : 100;
    if (percent == progress->percent) return;
    progress->percent = percent;
    fprintf(stderr, "\r%s %3d %%", progress->what, percent);
    fflush(stderr);
}

brim_progress_fn *cli_progress_start(struct cli_progress *progress, bool quiet)
{
    progress->percent = -1;
    return isatty(STDERR_FILENO) && !quiet ? show_progress : NULL;
}

void cli_progress_end(struct cli_progress *progress)
{
    if (progress->percent >= 0) fputs("\r\033[K", stderr);
    progress->percent = -1;
}

void cli_log_warning(void *ctx, const char *text)
{
    (void)ctx;
    cli_warning("%s", text);
}

/* ---- engine ---------------------------------------------------------------------------------- */

struct cli_model_args cli_model_args;

bool cli_check_model_args(void)
{
    const char *level = cli_model_args.level, *device = cli_model_args.device;
    if (!level || (device && !strcmp(device, "cuda")) || !cli_level_of_cuda(level)) return true;
    cli_error("--level: %s needs --device cuda; the cpu has dense, matvec, tiled and split-k",
              level);
    return false;
}

bool cli_level_of_cuda(const char *level)
{
    return !strcmp(level, "fused") || !strcmp(level, "attention") || !strcmp(level, "hopper");
}

struct args_group cli_model_group(void)
{
    static const struct args_option options[] = {
        {"threads", 't', ARGS_INT, &cli_model_args.n_thread, "N",
         "worker threads (default: the processors this process may use)", 1, 1024},
        {"cpu-tier", 0, ARGS_CHOICE, &cli_model_args.cpu_tier, "c|avx2|avx512|neon",
         "highest instruction set of the kernels (default: the best here)", 0, 0},
        {"activations", 0, ARGS_CHOICE, &cli_model_args.activations, "f32|int8",
         "int8 rounds activations per group of 32: faster, less exact\n(default: f32)", 0, 0},
        {"device", 0, ARGS_CHOICE, &cli_model_args.device, "cpu|cuda", "(default: cpu)", 0, 0},
        {"level", 0, ARGS_CHOICE, &cli_model_args.level, CLI_LEVELS,
         "rung of the kernel ladder, to compare (default: the last that\n"
         "the device has: split-k on the cpu, hopper on cuda)",
         0, 0},
        {"quiet", 'q', ARGS_FLAG, &cli_model_args.quiet, NULL, "no progress and no figures", 0, 0},
    };
    return (struct args_group){"Model", options, sizeof(options) / sizeof(*options)};
}

void cli_engine_options(brim_engine_options *options)
{
    brim_engine_options_default(options);
    options->n_thread = (int)cli_model_args.n_thread;
    options->cpu_tier = cli_model_args.cpu_tier;
    options->level = cli_model_args.level;
    if (cli_model_args.activations)
        options->activations_int8 = !strcmp(cli_model_args.activations, "int8");
    if (cli_model_args.device && !strcmp(cli_model_args.device, "cuda"))
        options->device = BRIM_DEVICE_CUDA;
}

brim_engine *cli_open_engine(const char *path)
{
    struct cli_progress progress = {.what = "loading"};
    brim_engine_options options;
    cli_engine_options(&options);
    options.progress = cli_progress_start(&progress, cli_model_args.quiet);
    options.progress_ctx = &progress;
    options.warn = cli_log_warning;

    brim_engine *engine = NULL;
    brim_error err = {0};
    brim_status status = brim_engine_open(&engine, path, &options, &err);
    cli_progress_end(&progress);
    if (status != BRIM_OK) {
        cli_fail(&err);
        return NULL;
    }
    return engine;
}

int32_t *cli_tokenize(const brim_engine *engine, const char *text, size_t len, bool parse_special,
                      size_t *n)
{
    /* a token is at least one byte, except that normalization may lengthen a text */
    size_t capacity = len + 16;
    for (;;) {
        int32_t *ids = malloc(capacity * sizeof(*ids));
        if (!ids) {
            cli_out_of_memory();
            return NULL;
        }
        brim_error err = {0};
        brim_status status =
            brim_tokenize(engine, text, len, parse_special, ids, capacity, n, &err);
        if (status == BRIM_OK) return ids;
        free(ids);
        if (status != BRIM_E_ARGUMENT || *n <= capacity) {
            cli_fail(&err);
            return NULL;
        }
        capacity = *n;
    }
}

int32_t *cli_tokenize_prompt(const brim_engine *engine, const char *text, size_t len,
                             bool parse_special, size_t *n)
{
    int32_t *ids = cli_tokenize(engine, text, len, parse_special, n);
    int32_t bos = brim_token_bos(engine);
    if (!ids || bos < 0 || (*n > 0 && ids[0] == bos)) return ids;
    int32_t *longer = realloc(ids, (*n + 1) * sizeof(*ids));
    if (!longer) {
        free(ids);
        cli_out_of_memory();
        return NULL;
    }
    memmove(longer + 1, longer, *n * sizeof(*longer));
    longer[0] = bos;
    (*n)++;
    return longer;
}
