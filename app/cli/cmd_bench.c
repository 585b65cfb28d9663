/* SPDX-License-Identifier: Apache-2.0
 * brim bench: dispatch to the benchmarks. */
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "cli.h"
#include "commands.h"

int cmd_bench(int argc, char **argv)
{
    static const struct {
        const char *name, *about;
        int (*run)(int argc, char **argv);
    } kinds[] = {
        {"kda", "Kimi Delta Attention prefill", cmd_bench_kda},
        {"model", "prefill and decode rates of a whole model", cmd_bench_model},
        {"operators", "single operators on one model's shapes", cmd_bench_operators},
        {"progression", "a whole model on every rung of the kernel ladder", cmd_bench_progression},
    };
    enum { N_KIND = sizeof(kinds) / sizeof(kinds[0]) };
    if (argc >= 2)
        for (int i = 0; i < N_KIND; i++)
            if (!strcmp(argv[1], kinds[i].name)) return kinds[i].run(argc - 1, argv + 1);
    bool help = argc >= 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
    if (argc >= 2 && !help) {
        cli_error("bench: '%s' is no benchmark; see brim bench --help", argv[1]);
        return CLI_USAGE;
    }
    FILE *out = help ? stdout : stderr;
    fputs("usage: brim bench NAME [options]\n\nBenchmarks; each checks its results against the "
          "plain C kernels before it times them.\n\n",
          out);
    for (int i = 0; i < N_KIND; i++) fprintf(out, "  %-12s  %s\n", kinds[i].name, kinds[i].about);
    return help ? cli_close_stdout(CLI_OK) : CLI_USAGE;
}
