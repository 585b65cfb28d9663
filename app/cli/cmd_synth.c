/* SPDX-License-Identifier: Apache-2.0
 * brim synth: a synthetic checkpoint for measurements. */
#include <stdio.h>

#include "brim/tools.h"
#include "cli.h"
#include "commands.h"

static struct {
    const char *preset;
    uint64_t seed;
    bool quiet, list;
} args;

static const struct args_option options[] = {
    {"preset", 'p', ARGS_TEXT, &args.preset, "NAME", "shape of the model; --list shows the names",
     0, 0},
    {"list", 0, ARGS_FLAG, &args.list, NULL, "print the presets and end", 0, 0},
    {"seed", 's', ARGS_SEED, &args.seed, "N", "of the weights (default: 0)", 0, 0},
    {"quiet", 'q', ARGS_FLAG, &args.quiet, NULL, "no progress", 0, 0},
};

int cmd_synth(int argc, char **argv)
{
    const struct args_command command = {
        .name = "synth",
        .positional = "--preset NAME OUTPUT",
        .about = "Write OUTPUT, a directory with seeded random weights in the exact form of a "
                 "published\n"
                 "checkpoint: names, shapes, types. It is marked as synthetic, has no tokenizer, "
                 "and serves\n"
                 "measurements. OUTPUT must not exist; it appears when it is complete.",
        .groups = {{"Options", options, sizeof(options) / sizeof(*options)}},
        .min_positional = 0,
        .max_positional = 1,
    };
    struct args_list words = {0};
    int exit_code;
    if (args_parse(&command, argc, argv, &words, &exit_code)) {
        if (args.list) {
            for (size_t i = 0; brim_synth_preset(i); i++) puts(brim_synth_preset(i));
            exit_code = cli_close_stdout(CLI_OK);
        } else if (!args.preset || !words.n) {
            cli_error("missing %s (usage: brim synth --preset NAME OUTPUT)",
                      args.preset ? "OUTPUT" : "--preset");
            exit_code = CLI_USAGE;
        } else {
            struct cli_progress progress = {.what = "writing"};
            brim_progress_fn *show = cli_progress_start(&progress, args.quiet);
            brim_error err = {0};
            brim_status status =
                brim_synth(args.preset, words.items[0], args.seed, show, &progress, &err);
            cli_progress_end(&progress);
            exit_code = status == BRIM_OK ? CLI_OK : cli_fail(&err);
        }
    }
    args_list_free(&words);
    return exit_code;
}
