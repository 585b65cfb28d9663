/* SPDX-License-Identifier: Apache-2.0
 * brim run: answer one prompt. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "generate.h"
#include "json.h"

static struct {
    const char *prompt_file, *snapshot_load, *snapshot_save;
    bool raw, json;
} args;

static const struct args_option options[] = {
    {"prompt-file", 'f', ARGS_TEXT, &args.prompt_file, "FILE",
     "read the prompt from a file; -: standard input", 0, 0},
    {"raw", 0, ARGS_FLAG, &args.raw, NULL, "continue the prompt as it is, without a chat template",
     0, 0},
    {"snapshot-load", 0, ARGS_TEXT, &args.snapshot_load, "FILE",
     "start from a saved timeline; what the prompt shares with\nit is not evaluated again", 0, 0},
    {"snapshot-save", 0, ARGS_TEXT, &args.snapshot_save, "FILE", "save the timeline at the end", 0,
     0},
    {"json", 0, ARGS_FLAG, &args.json, NULL, "print text and figures as one JSON object", 0, 0},
};

static void print_figures(const brim_model_info *info, const struct gen_figures *f)
{
    fprintf(stderr, "load time        %8.3f s\n", (double)info->load_ns * 1e-9);
    fprintf(stderr, "prompt           %8lld tokens, %.1f tokens/s", (long long)f->n_prompt,
            gen_rate(f->n_prompt, f->prompt_ns));
    if (f->n_reused) fprintf(stderr, " (%lld more reused)", (long long)f->n_reused);
    fprintf(stderr, "\ntime to first    %8.3f s\n", (double)f->first_token_ns * 1e-9);
    fprintf(stderr, "generated        %8lld tokens, %.1f tokens/s (%s)\n",
            (long long)f->n_generated, gen_decode_rate(f), gen_finish_name(f->finish));
    fprintf(stderr, "peak memory      %8.1f MiB\n", (double)cli_peak_memory() / 1048576);
}

static void print_json(const brim_model_info *info, const struct gen_figures *f,
                       const struct gen_text *reply)
{
    struct json json;
    jw_begin(&json, stdout);
    jw_object(&json);
    jw_key(&json, "text");
    jw_bytes(&json, reply->data ? reply->data : "", reply->len);
    jw_text_at(&json, "finish", gen_finish_name(f->finish));
    jw_text_at(&json, "family", info->family);
    jw_text_at(&json, "format", info->format);
    jw_text_at(&json, "device", info->device);
    jw_text_at(&json, "gpu", info->gpu);
    jw_text_at(&json, "level", info->level);
    jw_text_at(&json, "cpu_tier", info->cpu_tier);
    jw_int_at(&json, "threads", info->n_thread);
    jw_real_at(&json, "load_seconds", (double)info->load_ns * 1e-9);
    jw_int_at(&json, "prompt_tokens", f->n_prompt);
    jw_int_at(&json, "reused_tokens", f->n_reused);
    jw_real_at(&json, "prompt_seconds", (double)f->prompt_ns * 1e-9);
    jw_real_at(&json, "prompt_tokens_per_second", gen_rate(f->n_prompt, f->prompt_ns));
    jw_real_at(&json, "first_token_seconds", (double)f->first_token_ns * 1e-9);
    jw_int_at(&json, "generated_tokens", f->n_generated);
    jw_real_at(&json, "decode_seconds", (double)f->decode_ns * 1e-9);
    jw_real_at(&json, "generated_tokens_per_second", gen_decode_rate(f));
    jw_int_at(&json, "peak_memory_bytes", (int64_t)cli_peak_memory());
    jw_close(&json);
    jw_end(&json);
}

/* The prompt's ids, by the chat template unless --raw. */
static int32_t *prompt_ids(const brim_engine *engine, const char *prompt, size_t len, size_t *n)
{
    int32_t *ids;
    if (args.raw) {
        ids = cli_tokenize_prompt(engine, prompt, len, gen_parse_special(), n);
    } else {
        brim_chat_turn turns[2];
        size_t n_turn = 0;
        if (gen_system()) turns[n_turn++] = (brim_chat_turn){"system", gen_system()};
        turns[n_turn++] = (brim_chat_turn){"user", prompt};
        ids = gen_chat_ids(engine, turns, n_turn, n);
    }
    if (ids && *n == 0) {
        cli_error("the prompt is empty");
        free(ids);
        return NULL;
    }
    return ids;
}

/* From ids to the end of the reply. */
static int answer(brim_engine *engine, brim_session *session, brim_sampler *sampler,
                  const int32_t *ids, size_t n)
{
    brim_error err = {0};
    if (args.snapshot_load && brim_session_load(session, args.snapshot_load, &err) != BRIM_OK)
        return cli_fail(&err);
    struct gen_text reply = {0};
    struct gen_figures figures;
    int exit_code =
        gen_reply(session, sampler, ids, n, !args.json, args.json ? &reply : NULL, &figures);
    if (exit_code == CLI_OK) {
        brim_model_info info;
        brim_engine_info(engine, &info);
        if (args.json)
            print_json(&info, &figures, &reply);
        else
            putchar('\n');
        exit_code = cli_close_stdout(exit_code);
        if (exit_code == CLI_OK && !cli_model_args.quiet && !args.json)
            print_figures(&info, &figures);
        if (exit_code == CLI_OK && args.snapshot_save &&
            brim_session_save(session, args.snapshot_save, &err) != BRIM_OK)
            exit_code = cli_fail(&err);
        if (exit_code == CLI_OK && cli_interrupted()) exit_code = CLI_INTERRUPTED;
    }
    free(reply.data);
    return exit_code;
}

static int run(const char *model, const char *prompt, size_t len)
{
    int exit_code = CLI_FAILED;
    brim_session *session = NULL;
    brim_sampler *sampler = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    brim_engine *engine = cli_open_engine(model);
    if (!engine) return CLI_FAILED;
    if ((ids = prompt_ids(engine, prompt, len, &n)) != NULL &&
        (session = gen_open_session(engine)) != NULL &&
        (sampler = gen_open_sampler(engine)) != NULL)
        exit_code = answer(engine, session, sampler, ids, n);
    free(ids);
    brim_sampler_close(&sampler);
    brim_session_close(&session);
    brim_engine_close(&engine);
    return exit_code;
}

int cmd_run(int argc, char **argv)
{
    const struct args_command command = {
        .name = "run",
        .positional = "MODEL [PROMPT]",
        .about = "Answer one prompt. MODEL is a Hugging Face directory or a .gguf file. The answer "
                 "goes to\n"
                 "standard output; progress and figures go to standard error.",
        .groups = {{"Prompt", options, sizeof(options) / sizeof(*options)},
                   gen_reply_group(),
                   gen_sampling_group(),
                   cli_model_group()},
        .min_positional = 1,
        .max_positional = 2,
        .check = cli_check_model_args,
        .notes = "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted (Ctrl-C ends the "
                 "reply, a\n"
                 "second one the program).",
    };
    struct args_list words = {0};
    int exit_code;
    if (args_parse(&command, argc, argv, &words, &exit_code)) {
        char *from_file = NULL;
        size_t len = 0;
        const char *prompt = words.n > 1 ? words.items[1] : NULL;
        if (!gen_check()) {
            exit_code = CLI_USAGE;
        } else if (prompt && args.prompt_file) {
            cli_error("give the prompt as an argument or by --prompt-file, not both");
            exit_code = CLI_USAGE;
        } else if (!prompt && !args.prompt_file) {
            cli_error("no prompt: give one as an argument or by --prompt-file");
            exit_code = CLI_USAGE;
        } else if (!prompt && !(from_file = cli_read_file(args.prompt_file, &len))) {
            exit_code = CLI_FAILED;
        } else if (from_file && !args.raw && strlen(from_file) != len) {
            cli_error("'%s' holds a NUL byte; --raw takes such text", args.prompt_file);
            exit_code = CLI_FAILED;
        } else {
            if (prompt) len = strlen(prompt);
            cli_catch_interrupt();
            exit_code = run(words.items[0], prompt ? prompt : from_file, len);
        }
        free(from_file);
    }
    args_list_free(&words);
    gen_free();
    return exit_code;
}
