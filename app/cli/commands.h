/* SPDX-License-Identifier: Apache-2.0
 * The commands: each takes its own argv (argv[0] is its name) and returns the exit code. */
#ifndef BRIM_CLI_COMMANDS_H
#define BRIM_CLI_COMMANDS_H

int cmd_bench(int argc, char **argv);
int cmd_chat(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_perplexity(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_quantize(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_synth(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);

#endif
