/* SPDX-License-Identifier: Apache-2.0
 * brim plan: print a schedule as one line of JSON, without a device. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "brim/kernels.h"
#include "brim/plan.h"
#include "cli.h"
#include "commands.h"

/* n_processor 0: an H200's. */
static int plan_hopper(int64_t n_row, int64_t n_in, int64_t n_out, int64_t group,
                       int64_t n_processor)
{
    brim_w4_args args;
    brim_w4_plan plan;
    brim_error err;
    char line[512];
    brim_w4_args_init(&args);
    args.n_row = n_row;
    args.n_in = n_in;
    args.n_out = n_out;
    args.group = (int)group;
    if (brim_w4_plan_hopper(&args, n_processor ? n_processor : 132, &plan, &err) != BRIM_OK)
        return cli_fail(&err);
    brim_w4_plan_print(&plan, line, sizeof(line));
    puts(line);
    return cli_close_stdout(CLI_OK);
}

static int plan_split_k(int argc, char **argv)
{
    int64_t n_row = -1, n_in = -1, n_out = -1, n_processor = 0;
    int64_t tile_rows = 32, tile_outs = 32, align = 128;
    const char *level = "tiled", *policy_name = NULL;
    const struct args_option options[] = {
        {"rows", 0, ARGS_INT, &n_row, "M", "rows of the activations", 0, 1e15},
        {"inner", 0, ARGS_INT, &n_in, "N", "length of the reduction", 0, 1e15},
        {"outputs", 0, ARGS_INT, &n_out, "K", "outputs of the projection", 0, 1e15},
        {"level", 0, ARGS_CHOICE, &level, "tiled|hopper",
         "tiled: matvec, tiles and partitions by a policy (tiled)\n"
         "hopper: the kernel for packed weights, its tile, cluster, split and grid",
         0, 0},
        {"policy", 0, ARGS_CHOICE, &policy_name, "course|device",
         "course: 32 x 32 tiles, target 320, at most 16 partitions (course)\n"
         "device: target and tile from the processor",
         0, 0},
        {"processors", 0, ARGS_INT, &n_processor, "P",
         "device: processors to fill (SMs of a GPU, threads of a CPU)\n"
         "hopper: SMs of the GPU (132)",
         1, 1e9},
        {"tile-rows", 0, ARGS_INT, &tile_rows, "N", "device: rows of an output tile (32)", 1, 1e9},
        {"tile-outputs", 0, ARGS_INT, &tile_outs, "N", "device: outputs of a tile (32)", 1, 1e9},
        {"align", 0, ARGS_INT, &align, "N",
         "device: partitions are a multiple of this (128)\n"
         "hopper: the group of the weights, 32, 64 or 128 (128)",
         1, 1e9},
    };
    const struct args_command command = {
        .name = "plan split-k",
        .positional = "",
        .about = "How a W4 product of M rows, N inputs and K outputs is cut: one line of JSON.\n"
                 "Up to 8 rows the matvec runs; a split of 1 is the unsplit kernel, unchanged.\n"
                 "--level hopper: as the kernels for packed weights cut it on a GPU.",
        .groups = {{"Options", options, sizeof(options) / sizeof(options[0])}},
    };
    int code;
    if (!args_parse(&command, argc, argv, NULL, &code)) return code;
    if (n_row < 0 || n_in < 0 || n_out < 0) {
        cli_error("plan split-k needs --rows, --inner and --outputs");
        return CLI_USAGE;
    }
    if (!strcmp(level, "hopper")) {
        if (!policy_name && tile_rows == 32 && tile_outs == 32)
            return plan_hopper(n_row, n_in, n_out, align, n_processor);
        cli_error("plan split-k: --policy, --tile-rows and --tile-outputs are of --level tiled");
        return CLI_USAGE;
    }
    brim_split_policy policy = brim_split_policy_course();
    if (policy_name && !strcmp(policy_name, "device")) {
        if (n_processor == 0) {
            cli_error("plan split-k: --policy device needs --processors");
            return CLI_USAGE;
        }
        policy = brim_split_policy_device(n_processor, tile_rows, tile_outs, align);
    } else if (n_processor || tile_rows != 32 || tile_outs != 32 || align != 128) {
        cli_error("plan split-k: --processors, --tile-rows, --tile-outputs and --align are of "
                  "--policy device");
        return CLI_USAGE;
    }
    brim_split_plan plan;
    brim_error err;
    if (brim_split_plan_make(&policy, n_row, n_in, n_out, &plan, &err) != BRIM_OK)
        return cli_fail(&err);
    char line[256];
    brim_split_plan_print(&plan, line, sizeof(line));
    puts(line);
    return cli_close_stdout(CLI_OK);
}

static int plan_kda(int argc, char **argv)
{
    int64_t n_batch = 1, n_tok = -1, n_head = -1, n_packed = 0, longest = 0, n_processor = 0;
    int64_t length = 0, first = 0, window = 0, n_thread = 0;
    bool allow_split = false, exact = false;
    const char *route = NULL, *device = "cuda";
    const struct args_option options[] = {
        {"device", 0, ARGS_CHOICE, &device, "cpu|cuda", "where it would run (cuda)", 0, 0},
        {"batch", 0, ARGS_INT, &n_batch, "B", "sequences of a fixed batch (1)", 0, 1e9},
        {"tokens", 0, ARGS_INT, &n_tok, "T", "tokens of a sequence; with --packed of all", 0, 1e9},
        {"heads", 0, ARGS_INT, &n_head, "H", "value heads", 1, 1e6},
        {"packed", 0, ARGS_INT, &n_packed, "N", "so many sequences of any lengths, packed", 1, 1e9},
        {"longest", 0, ARGS_INT, &longest, "T", "packed: tokens of the longest sequence", 1, 1e9},
        {"processors", 0, ARGS_INT, &n_processor, "P", "SMs of the GPU (132)", 1, 1e6},
        {"threads", 0, ARGS_INT, &n_thread, "N", "cpu: threads (1)", 1, 4096},
        {"allow-split", 0, ARGS_FLAG, &allow_split, NULL,
         "admit route split, whose bits are not those of the others", 0, 0},
        {"route", 0, ARGS_TEXT, &route, "NAME",
         "force m128, m64, pair, queue, c4-m128, c4-m64, c5-m64, c6-m64, c8-m128, split or\n"
         "split-join;\n"
         "cpu: cpu-chunk or cpu-ref",
         0, 0},
        {"split-length", 0, ARGS_INT, &length, "C", "split: chunks of 32 tokens of a segment", 1,
         1 << 26},
        {"split-first", 0, ARGS_INT, &first, "C",
         "split: chunks of a sequence's first segment, at least those of --split-length, which it "
         "needs",
         1, 1 << 26},
        {"split-window", 0, ARGS_INT, &window, "C", "split: chunks of its window", 1, 8},
        {"split-exact", 0, ARGS_FLAG, &exact, NULL,
         "split: nothing is skipped, all segments are joined", 0, 0},
    };
    const struct args_command command = {
        .name = "plan kda",
        .positional = "",
        .about = "Which route a KDA prefill takes on a GPU, why, its expected time and those of\n"
                 "the others, where measured (bounded gates that forget), or how it spreads over\n"
                 "the threads of a CPU: one line of JSON.",
        .groups = {{"Options", options, sizeof(options) / sizeof(options[0])}},
    };
    int code;
    if (!args_parse(&command, argc, argv, NULL, &code)) return code;
    const char *refusal = NULL;
    bool cpu = !strcmp(device, "cpu");
    if (n_tok < 0 || n_head < 0)
        refusal = "plan kda needs --tokens and --heads";
    else if (cpu && (n_processor || allow_split || length || first || window || exact))
        refusal = "plan kda: --processors and the split's options are of --device cuda";
    else if (!cpu && n_thread)
        refusal = "plan kda: --threads is of --device cpu";
    else if (n_packed && n_batch != 1)
        refusal = "plan kda: --packed and --batch exclude each other";
    else if (longest && !n_packed)
        refusal = "plan kda: --longest is of --packed; sequences of a batch are equally long";
    else if (longest && (longest > n_tok || longest < n_tok / n_packed))
        refusal = "plan kda: --longest lies between the mean and all of --tokens";
    else if ((length || first || window || exact) && !allow_split &&
             !(route && (!strcmp(route, "split") || !strcmp(route, "split-join"))))
        refusal = "plan kda: --split-length, --split-first, --split-window and --split-exact need "
                  "--allow-split or a split route's name";
    else if (exact && window)
        refusal =
            "plan kda: --split-exact needs no window; --split-window is of a split that skips";
    if (refusal) {
        cli_error("%s", refusal);
        return CLI_USAGE;
    }
    brim_kda_args args;
    brim_kda_plan plan;
    brim_error err;
    brim_kda_args_init(&args);
    args.n_seq = n_packed ? n_packed : n_batch;
    args.n_tok = n_tok;
    args.n_value_head = n_head;
    args.offset_bytes = n_packed ? 8 : 0;
    args.max_tok = longest;
    args.route = route;
    args.allow_split = allow_split;
    args.split_length = (int)length;
    args.split_first = (int)first;
    args.split_window = (int)window;
    args.split_exact = exact;
    args.n_thread = (int)n_thread;
    if (cpu && n_packed && !longest) args.max_tok = n_tok; /* unknown: as long as it may be */
    brim_status status =
        cpu ? brim_kda_plan_cpu(&args, &plan, &err)
            : brim_kda_plan_gpu(&args, n_processor ? n_processor : 132, &plan, &err);
    if (status == BRIM_E_UNSUPPORTED) { /* --route is no route's name there */
        (void)cli_fail(&err);
        return CLI_USAGE;
    }
    if (status != BRIM_OK) return cli_fail(&err);
    char line[4096];
    brim_kda_plan_print(&plan, line, sizeof(line));
    puts(line);
    return cli_close_stdout(CLI_OK);
}

int cmd_plan(int argc, char **argv)
{
    static const struct {
        const char *name, *about;
        int (*run)(int argc, char **argv);
    } plans[] = {
        {"split-k", "partitions of a W4 product's reduction, or its Hopper kernel", plan_split_k},
        {"kda", "route of a KDA prefill", plan_kda},
    };
    enum { N_PLAN = sizeof(plans) / sizeof(plans[0]) };
    if (argc >= 2)
        for (int i = 0; i < N_PLAN; i++)
            if (!strcmp(argv[1], plans[i].name)) return plans[i].run(argc - 1, argv + 1);
    bool help = argc >= 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
    if (argc >= 2 && !help) {
        cli_error("plan: no schedule is called '%s'; see brim plan --help", argv[1]);
        return CLI_USAGE;
    }
    FILE *out = help ? stdout : stderr;
    fputs("usage: brim plan NAME [options]\n\n"
          "Print a schedule as one line of JSON; needs no model and no device.\n\n",
          out);
    for (int i = 0; i < N_PLAN; i++) fprintf(out, "  %-10s  %s\n", plans[i].name, plans[i].about);
    return help ? cli_close_stdout(CLI_OK) : CLI_USAGE;
}
