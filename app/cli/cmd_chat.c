/* SPDX-License-Identifier: Apache-2.0
 * brim chat: a conversation on a terminal or from a pipe, one line of input per turn. Each turn
 * renders the whole conversation and syncs the session, which evaluates only what is new. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "commands.h"
#include "generate.h"

/* The turns so far. Contents are owned; roles are literals. */
struct conversation {
    brim_chat_turn *turns;
    size_t n;
};

static void forget_after(struct conversation *talk, size_t n)
{
    while (talk->n > n) free((char *)talk->turns[--talk->n].content);
}

/* Takes `content`, also on failure. */
static bool add_turn(struct conversation *talk, const char *role, char *content)
{
    brim_chat_turn *turns = content ? realloc(talk->turns, (talk->n + 1) * sizeof(*turns)) : NULL;
    if (!turns) {
        free(content);
        cli_out_of_memory();
        return false;
    }
    turns[talk->n++] = (brim_chat_turn){role, content};
    talk->turns = turns;
    return true;
}

static bool restart(struct conversation *talk)
{
    forget_after(talk, 0);
    return !gen_system() || add_turn(talk, "system", strdup(gen_system()));
}

static void print_figures(const struct gen_figures *f)
{
    fprintf(stderr,
            "[prompt %lld tokens, %lld reused, %.1f tokens/s; generated %lld tokens, %.1f "
            "tokens/s; %s]\n",
            (long long)f->n_prompt, (long long)f->n_reused, gen_rate(f->n_prompt, f->prompt_ns),
            (long long)f->n_generated, gen_decode_rate(f), gen_finish_name(f->finish));
}

/* One turn: the user's line in, the reply out. On failure the conversation is as it was before. */
static int take_turn(brim_engine *engine, brim_session *session, brim_sampler *sampler,
                     struct conversation *talk, const char *line)
{
    size_t n_before = talk->n;
    size_t n = 0;
    int exit_code = CLI_FAILED;
    struct gen_text reply = {0};
    struct gen_figures figures;
    int32_t *ids = NULL;
    if (add_turn(talk, "user", strdup(line)) &&
        (ids = gen_chat_ids(engine, talk->turns, talk->n, &n)) != NULL) {
        exit_code = gen_reply(session, sampler, ids, n, true, &reply, &figures);
        if (exit_code == CLI_OK) {
            putchar('\n');
            exit_code = cli_close_stdout(CLI_OK);
        }
    }
    free(ids);
    if (exit_code == CLI_OK && !gen_text_add(&reply, "", 0)) exit_code = cli_out_of_memory();
    if (exit_code == CLI_OK) {
        if (!cli_model_args.quiet) print_figures(&figures);
        if (!add_turn(talk, "assistant", reply.data)) exit_code = CLI_FAILED;
    } else {
        free(reply.data);
    }
    if (exit_code != CLI_OK) forget_after(talk, n_before);
    return exit_code;
}

static void print_commands(void)
{
    fputs("/reset forgets the conversation, /exit or the end of input ends it, Ctrl-C ends a "
          "reply.\n",
          stderr);
}

static int converse(brim_engine *engine, brim_session *session, brim_sampler *sampler)
{
    struct conversation talk = {0};
    bool terminal = isatty(STDIN_FILENO);
    char *line = NULL;
    size_t capacity = 0;
    int exit_code = restart(&talk) ? CLI_OK : CLI_FAILED;
    if (terminal && exit_code == CLI_OK) print_commands();
    while (exit_code == CLI_OK) {
        if (terminal) fputs("> ", stderr);
        ssize_t len = getline(&line, &capacity, stdin);
        if (len < 0) {
            if (cli_interrupted())
                exit_code = CLI_INTERRUPTED;
            else if (ferror(stdin))
                cli_error("cannot read standard input: %s", strerror(errno)),
                    exit_code = CLI_FAILED;
            if (terminal) fputc('\n', stderr);
            break;
        }
        while (len && (line[len - 1] == '\n' || line[len - 1] == '\r')) line[--len] = 0;
        if (strlen(line) != (size_t)len) {
            cli_error("the input holds a NUL byte");
            exit_code = CLI_FAILED;
        } else if (!strcmp(line, "/exit")) {
            break;
        } else if (!strcmp(line, "/reset")) {
            exit_code = restart(&talk) ? CLI_OK : CLI_FAILED;
        } else if (!strcmp(line, "/help")) {
            print_commands();
        } else if (len) {
            exit_code = take_turn(engine, session, sampler, &talk, line);
            /* a person may /reset and go on; a script must notice */
            if (terminal && exit_code == CLI_FAILED && !ferror(stdout)) exit_code = CLI_OK;
            if (exit_code == CLI_OK && cli_interrupted()) {
                if (!terminal) exit_code = CLI_INTERRUPTED;
                cli_clear_interrupt();
            }
        }
    }
    free(line);
    forget_after(&talk, 0);
    free(talk.turns);
    return exit_code;
}

int cmd_chat(int argc, char **argv)
{
    const struct args_command command = {
        .name = "chat",
        .positional = "MODEL",
        .about =
            "Talk with a model: one line of standard input is one turn. MODEL is a Hugging Face "
            "directory\n"
            "or a .gguf file. Replies go to standard output, everything else to standard error.",
        .groups = {gen_reply_group(), gen_sampling_group(), cli_model_group()},
        .min_positional = 1,
        .max_positional = 1,
        .check = cli_check_model_args,
        .notes = "Input lines: /reset forgets the conversation, /exit ends it, /help lists these. "
                 "Ctrl-C ends a\n"
                 "reply, and at the prompt the program.",
    };
    struct args_list words = {0};
    int exit_code;
    if (args_parse(&command, argc, argv, &words, &exit_code) && gen_check()) {
        brim_session *session = NULL;
        brim_sampler *sampler = NULL;
        exit_code = CLI_FAILED;
        cli_catch_interrupt();
        brim_engine *engine = cli_open_engine(words.items[0]);
        if (engine && (session = gen_open_session(engine)) != NULL &&
            (sampler = gen_open_sampler(engine)) != NULL)
            exit_code = converse(engine, session, sampler);
        brim_sampler_close(&sampler);
        brim_session_close(&session);
        brim_engine_close(&engine);
    }
    args_list_free(&words);
    gen_free();
    return exit_code;
}
