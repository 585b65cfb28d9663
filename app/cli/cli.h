/* SPDX-License-Identifier: Apache-2.0
 * What the commands share: messages, the model options, opening an engine, files, clock, memory.
 * Data goes to standard output, everything else to standard error. A command is one file cmd_NAME.c
 * with one function cmd_NAME(argc, argv) that returns the exit code; main.c holds the table. */
#ifndef BRIM_CLI_CLI_H
#define BRIM_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "args.h"
#include "brim/brim.h"

#if defined(__GNUC__)
#define CLI_PRINTF(at, first) __attribute__((format(printf, at, first)))
#else
#define CLI_PRINTF(at, first)
#endif

/* "brim: error: ..." as one line on standard error. */
void cli_error(const char *format, ...) CLI_PRINTF(1, 2);
void cli_warning(const char *format, ...) CLI_PRINTF(1, 2);
/* Reports a failed library call and returns CLI_FAILED. */
int cli_fail(const brim_error *err);
int cli_out_of_memory(void);

/* Flush standard output; returns `exit_code`, or CLI_FAILED when something could not be written
 * (said aloud unless the reader closed the pipe). Every command that prints data ends with it. */
int cli_close_stdout(int exit_code);

int64_t cli_now_ns(void);
/* VmHWM of this process in bytes, 0 where the system does not tell. */
uint64_t cli_peak_memory(void);

/* A whole file, "-" for standard input, into a NUL-terminated block for free(); reports failures
 * and returns NULL. */
char *cli_read_file(const char *path, size_t *len);

/* SIGINT sets a flag instead of ending the process, a second one before the flag was cleared ends
 * it. SIGPIPE is ignored: writing fails instead. */
void cli_catch_interrupt(void);
bool cli_interrupted(void);
void cli_clear_interrupt(void);

/* Progress for the library's callbacks: on a terminal one line that is redrawn for each whole per
 * cent and wiped at the end; elsewhere nothing. */
struct cli_progress {
    const char *what; /* "loading" */
    int percent;      /* shown now; -1: nothing */
};
/* The callback to give to the library with `progress` as its context; NULL where none is shown. */
brim_progress_fn *cli_progress_start(struct cli_progress *progress, bool quiet);
void cli_progress_end(struct cli_progress *progress);
/* A brim_log_fn that prints warnings. */
void cli_log_warning(void *ctx, const char *text);

/* ---- the model options of every command that opens one --------------------------------------- */

struct cli_model_args {
    int64_t n_thread; /* 0: all processors */
    const char *cpu_tier;
    const char *activations;
    const char *device;
    const char *level;
    bool quiet; /* no progress, no figures */
};
#define CLI_LEVELS "dense|matvec|fused|attention|tiled|split-k|hopper"
extern struct cli_model_args cli_model_args;
/* Is it a rung of the CUDA ladder alone? */
bool cli_level_of_cuda(const char *level);
/* --threads, --cpu-tier, --activations, --device, --level, --quiet, stored in cli_model_args. */
struct args_group cli_model_group(void);
/* The check of a command with that group: do they fit together? */
bool cli_check_model_args(void);
/* The engine options that cli_model_args stands for. */
void cli_engine_options(brim_engine_options *options);
/* Opens by cli_model_args, with progress on a terminal; reports failures. NULL on failure. */
brim_engine *cli_open_engine(const char *path);

/* Ids of text, for free(); reports failures and returns NULL. */
int32_t *cli_tokenize(const brim_engine *engine, const char *text, size_t len, bool parse_special,
                      size_t *n);

/* The same for a text that is a whole prompt: in front stands the id that a plain prompt starts
 * with, where the model asks for one and the text does not bring it. */
int32_t *cli_tokenize_prompt(const brim_engine *engine, const char *text, size_t len,
                             bool parse_special, size_t *n);

#endif
