/* SPDX-License-Identifier: Apache-2.0
 * brim: the table of commands. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "commands.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
} commands[] = {
    {"run", cmd_run, "answer one prompt"},
    {"chat", cmd_chat, "talk with a model"},
    {"tokenize", cmd_tokenize, "text to token ids and back"},
    {"inspect", cmd_inspect, "show what a model's files hold"},
    {"quantize", cmd_quantize, "write a model in 4 bits"},
    {"synth", cmd_synth, "write a synthetic model for measurements"},
    {"plan", cmd_plan, "print a schedule as JSON"},
    {"bench", cmd_bench, "measure a model or single operators"},
    {"perplexity", cmd_perplexity, "how well a model predicts a text"},
};

static void print_help(void)
{
    puts("usage: brim COMMAND [options] ...\n\nCommands:");
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
        printf("  %-12s %s\n", commands[i].name, commands[i].about);
    puts("\n'brim COMMAND --help' explains one; 'brim --version' names this build.\n"
         "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.");
}

int main(int argc, char **argv)
{
    /* a closed pipe is a failed write, which every command handles */
    signal(SIGPIPE, SIG_IGN);
    if (argc < 2) {
        cli_error("no command (see 'brim --help')");
        return CLI_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        print_help();
        return cli_close_stdout(CLI_OK);
    }
    if (!strcmp(argv[1], "--version")) {
        puts("brim " BRIM_VERSION_STRING);
        return cli_close_stdout(CLI_OK);
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
        if (!strcmp(argv[1], commands[i].name)) return commands[i].run(argc - 1, argv + 1);
    cli_error("unknown command '%s' (see 'brim --help')", argv[1]);
    return CLI_USAGE;
}
