/* SPDX-License-Identifier: Apache-2.0
 * brim quantize: a dense Hugging Face directory to MLX affine 4-bit. */
#include <stdio.h>
#include <stdlib.h>

#include "brim/tools.h"
#include "cli.h"
#include "commands.h"

static struct {
    const char *group;
    int64_t n_thread;
    bool quiet;
} args;

static const struct args_option options[] = {
    {"group", 'g', ARGS_CHOICE, &args.group, "32|64|128",
     "values that share a scale and a bias (default: 64)", 0, 0},
    {"threads", 't', ARGS_INT, &args.n_thread, "N",
     "worker threads (default: the processors this process may use)", 1, 1024},
    {"quiet", 'q', ARGS_FLAG, &args.quiet, NULL, "no progress", 0, 0},
};

int cmd_quantize(int argc, char **argv)
{
    const struct args_command command = {
        .name = "quantize",
        .positional = "INPUT OUTPUT",
        .about = "Write OUTPUT, a directory with the weights of the dense Hugging Face directory "
                 "INPUT in MLX\n"
                 "affine 4-bit, code for code as MLX quantizes them. OUTPUT must not exist; it "
                 "appears when it is\n"
                 "complete.",
        .groups = {{"Options", options, sizeof(options) / sizeof(*options)}},
        .min_positional = 2,
        .max_positional = 2,
    };
    struct args_list words = {0};
    int exit_code;
    if (args_parse(&command, argc, argv, &words, &exit_code)) {
        struct cli_progress progress = {.what = "quantizing"};
        brim_quantize_options how;
        brim_quantize_options_default(&how);
        if (args.group) how.group = atoi(args.group);
        how.n_thread = (int)args.n_thread;
        how.progress = cli_progress_start(&progress, args.quiet);
        how.progress_ctx = &progress;
        how.warn = cli_log_warning;
        brim_error err = {0};
        brim_status status = brim_quantize(words.items[0], words.items[1], &how, &err);
        cli_progress_end(&progress);
        exit_code = status == BRIM_OK ? CLI_OK : cli_fail(&err);
    }
    args_list_free(&words);
    return exit_code;
}
