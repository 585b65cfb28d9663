/* SPDX-License-Identifier: Apache-2.0
 * See bench.h. */
#include "bench.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"

/* ---- statistics ------------------------------------------------------------------------------ */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

bool bench_statistics(const double *values, size_t n, struct bench_stats *out)
{
    double *sorted = malloc(n * sizeof(*sorted));
    if (!sorted) return false;
    memcpy(sorted, values, n * sizeof(*sorted));
    qsort(sorted, n, sizeof(*sorted), compare_doubles);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += values[i];
    double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) squares += (values[i] - mean) * (values[i] - mean);
    *out = (struct bench_stats){
        .median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2,
        .mean = mean,
        .stddev = n > 1 ? sqrt(squares / (double)(n - 1)) : 0,
        .min = sorted[0],
        .max = sorted[n - 1],
    };
    free(sorted);
    return true;
}

bool bench_numbers(const char *option, const char *text, int64_t low, int64_t high, int64_t *out,
                   size_t capacity, size_t *n)
{
    for (const char *at = text;;) {
        char word[32];
        size_t len = strcspn(at, ",");
        if (len >= sizeof(word)) len = 0;
        memcpy(word, at, len);
        word[len] = 0;
        if (*n == capacity) {
            cli_error("--%s: at most %zu values", option, capacity);
            return false;
        }
        if (!args_int(word, low, high, &out[*n])) {
            cli_error("--%s: '%s' is not a list of whole numbers from %" PRId64 " to %" PRId64,
                      option, text, low, high);
            return false;
        }
        (*n)++;
        if (!at[len]) return true;
        at += len + 1;
    }
}

bool bench_writable(const char *path)
{
    if (!path || !strcmp(path, "-")) return true;
    FILE *file = fopen(path, "a");
    if (file && fclose(file) == 0) return true;
    cli_error("cannot write '%s': %s", path, strerror(errno));
    return false;
}

void bench_processor_name(char *text, size_t capacity)
{
    snprintf(text, capacity, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (!file) return;
    char line[256];
    while (fgets(line, sizeof(line), file)) {
        if (strncmp(line, "model name", 10)) continue;
        const char *name = strchr(line, ':');
        if (!name) continue;
        name += strspn(name, ": \t");
        snprintf(text, capacity, "%.*s", (int)strcspn(name, "\n"), name);
        break;
    }
    fclose(file);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

void bench_random_tokens(const brim_engine *engine, uint64_t seed, int32_t *ids, int64_t n)
{
    brim_model_info info;
    brim_engine_info(engine, &info);
    /* splitmix64: any seed will do. The first 256 ids are bytes in many vocabularies. */
    uint64_t state = seed;
    int64_t first = info.n_vocab > 512 ? 256 : 0;
    /* A synthetic checkpoint has no tokenizer: no id has text, and any will do. */
    bool has_text = false;
    for (int64_t id = first; id < info.n_vocab && !has_text; id++) {
        size_t len;
        has_text = brim_token_bytes(engine, (int32_t)id, &len) && len > 0;
    }
    for (int64_t i = 0; i < n;) {
        uint64_t z = state += 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        z ^= z >> 31;
        int32_t id = (int32_t)(first + (int64_t)(z % (uint64_t)(info.n_vocab - first)));
        size_t len;
        bool ordinary = !has_text || (brim_token_bytes(engine, id, &len) && len > 0 &&
                                      !brim_token_is_special(engine, id));
        ordinary = ordinary && !brim_token_is_eos(engine, id);
        if (ordinary) ids[i++] = id;
    }
}

void bench_engine_options(brim_engine_options *options, const char *level)
{
    cli_engine_options(options);
    if (level) options->level = level;
}

/* ---- the check ------------------------------------------------------------------------------- */

enum {
    CHECK_PREFILL = 20, /* more rows than the matvec takes, and not a multiple of a row tile */
    CHECK_DECODE = 2
};

/* Bounds on the root mean square difference of logits over the root mean square logit. f32 differs
 * by the order of sums alone; rounding activations to 8 bits moves SmolLM2's logits by about 2 per
 * cent, the bf16 inputs of a GPU's products by less. A kernel that is wrong is off by far more. */
static const double check_bound_f32 = 1e-3, check_bound_int8 = 0.08, check_bound_cuda = 0.05;

/* Logits [1 + CHECK_DECODE][n_vocab] after the prefill and each single token. */
static brim_status check_logits(brim_engine *engine, float *out, brim_error *err)
{
    brim_model_info info;
    brim_engine_info(engine, &info);
    int32_t ids[CHECK_PREFILL + CHECK_DECODE];
    bench_random_tokens(engine, 7, ids, CHECK_PREFILL + CHECK_DECODE);
    brim_session_options options;
    brim_session_options_default(&options);
    options.n_context = CHECK_PREFILL + CHECK_DECODE;
    brim_session *session = NULL;
    brim_status status = brim_session_open(&session, engine, &options, err);
    for (int step = 0; step <= CHECK_DECODE && status == BRIM_OK; step++) {
        status = step ? brim_session_eval(session, &ids[CHECK_PREFILL + step - 1], 1, err)
                      : brim_session_eval(session, ids, CHECK_PREFILL, err);
        if (status == BRIM_OK)
            memcpy(out + step * info.n_vocab, brim_session_logits(session),
                   (size_t)info.n_vocab * sizeof(*out));
    }
    brim_session_close(&session);
    return status;
}

static bool write_all(int fd, const void *data, size_t n)
{
    for (const char *at = data; n;) {
        ssize_t done = write(fd, at, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        at += done;
        n -= (size_t)done;
    }
    return true;
}

static bool read_all(int fd, void *data, size_t n)
{
    for (char *at = data; n;) {
        ssize_t done = read(fd, at, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        at += done;
        n -= (size_t)done;
    }
    return true;
}

/* The child: plain C kernels, f32 activations, the same threads. */
static int reference_child(const char *path, int fd)
{
    brim_engine_options options;
    bench_engine_options(&options, NULL);
    options.cpu_tier = "c";
    options.level = NULL;
    options.activations_int8 = false;
    options.device = BRIM_DEVICE_CPU;
    brim_engine *engine = NULL;
    brim_error err = {0};
    if (brim_engine_open(&engine, path, &options, &err) != BRIM_OK) return cli_fail(&err);
    brim_model_info info;
    brim_engine_info(engine, &info);
    size_t n = (size_t)info.n_vocab * (1 + CHECK_DECODE);
    float *logits = malloc(n * sizeof(*logits));
    int code = CLI_OK;
    if (!logits)
        code = cli_out_of_memory();
    else if (check_logits(engine, logits, &err) != BRIM_OK)
        code = cli_fail(&err);
    else if (!write_all(fd, &n, sizeof(n)) || !write_all(fd, logits, n * sizeof(*logits)))
        code = CLI_FAILED;
    free(logits);
    brim_engine_close(&engine);
    return code;
}

float *bench_reference(const char *path, size_t *n)
{
    int fds[2];
    if (pipe(fds)) {
        cli_error("bench: cannot make a pipe: %s", strerror(errno));
        return NULL;
    }
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        close(fds[0]);
        _exit(reference_child(path, fds[1]));
    }
    close(fds[1]);
    float *logits = NULL;
    bool ok = child > 0 && read_all(fds[0], n, sizeof(*n)) &&
              (logits = malloc(*n * sizeof(*logits))) != NULL &&
              read_all(fds[0], logits, *n * sizeof(*logits));
    close(fds[0]);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
    if (ok) return logits;
    cli_error("bench: the reference run on '%s' did not finish", path);
    free(logits);
    return NULL;
}

bool bench_check(brim_engine *engine, bool activations_int8, const float *reference, size_t n)
{
    brim_model_info info;
    brim_engine_info(engine, &info);
    if (n != (size_t)info.n_vocab * (1 + CHECK_DECODE)) {
        cli_error("bench: the model changed between the reference run and this one");
        return false;
    }
    float *logits = malloc(n * sizeof(*logits));
    if (!logits) {
        cli_out_of_memory();
        return false;
    }
    brim_error err = {0};
    bool ok = check_logits(engine, logits, &err) == BRIM_OK;
    if (!ok) cli_fail(&err);
    double bound = activations_int8 ? check_bound_int8 : check_bound_f32;
    if (!strcmp(info.device, "cuda")) bound = check_bound_cuda;
    for (int step = 0; step <= CHECK_DECODE && ok; step++) {
        double difference = 0, size = 0;
        for (int64_t i = 0; i < info.n_vocab; i++) {
            double r = reference[step * info.n_vocab + i];
            double d = logits[step * info.n_vocab + i] - r;
            difference += d * d;
            size += r * r;
        }
        double error = sqrt(difference / size);
        ok = error <= bound; /* false for NaN */
        if (!ok)
            cli_error(
                "bench: logits %s differ from the C reference by %.3g (rms, relative; at most "
                "%g allowed): not timed",
                step ? "of a decoded token" : "after the prefill", error, bound);
    }
    free(logits);
    return ok;
}
