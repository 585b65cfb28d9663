/* SPDX-License-Identifier: Apache-2.0
 * What the benchmarks share: statistics, inputs, the machine's name, and the check that comes
 * before every timing. A benchmark that fails its check reports it and times nothing. */
#ifndef BRIM_CLI_BENCH_H
#define BRIM_CLI_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/brim.h"
#include "json.h"

int cmd_bench_kda(int argc, char **argv);
int cmd_bench_model(int argc, char **argv);
int cmd_bench_operators(int argc, char **argv);
int cmd_bench_progression(int argc, char **argv);

struct bench_stats {
    double median, mean, stddev, min, max; /* stddev of the sample, n - 1; 0 for one value */
};
/* Of n >= 1 values, which stay in their order. False when memory ran out. */
bool bench_statistics(const double *values, size_t n, struct bench_stats *out);

/* The processor's name as the system tells it, "unknown" otherwise. */
void bench_processor_name(char *text, size_t capacity);

/* n ordinary tokens of the vocabulary, the same for the same seed: no control token, none that ends
 * generation. */
void bench_random_tokens(const brim_engine *engine, uint64_t seed, int32_t *ids, int64_t n);

/* Fills `options` from cli_model_args. level: a rung of the matmul ladder, NULL for the default. */
void bench_engine_options(brim_engine_options *options, const char *level);

/* The check. First bench_reference, before an engine is open: a child process (whose memory is not
 * in this process's peak) runs the plain C kernels in f32 on the model at `path` and hands over the
 * logits after a short prefill and after two single tokens; for free(). Then bench_check compares
 * an engine with them. Both report what went wrong. */
float *bench_reference(const char *path, size_t *n);
bool bench_check(brim_engine *engine, bool activations_int8, const float *reference, size_t n);

/* "512,128" or a repeated option: numbers low..high appended to out; reports what is wrong. */
bool bench_numbers(const char *option, const char *text, int64_t low, int64_t high, int64_t *out,
                   size_t capacity, size_t *n);

/* Can FILE of --json-output be written (NULL and "-": yes)? Asked before anything is measured; what
 * the file holds stays until there are results. Reports what is wrong. */
bool bench_writable(const char *path);

#endif
