/* SPDX-License-Identifier: Apache-2.0
 * brim tokenize: text to token ids and back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "generate.h"
#include "json.h"

static struct {
    const char *file;
    bool decode, special, json, count;
} args;

static const struct args_option options[] = {
    {"file", 'f', ARGS_TEXT, &args.file, "FILE",
     "read the text or the ids from a file; -: standard input", 0, 0},
    {"decode", 'd', ARGS_FLAG, &args.decode, NULL,
     "the arguments are ids, separated by blanks or commas; print\ntheir text", 0, 0},
    {"special", 0, ARGS_FLAG, &args.special, NULL, "control tokens written in the text become such",
     0, 0},
    {"count", 0, ARGS_FLAG, &args.count, NULL, "print only how many ids there are", 0, 0},
    {"json", 0, ARGS_FLAG, &args.json, NULL, "print ids, pieces and text as one JSON object", 0, 0},
};

static bool add_bytes(const brim_engine *engine, const int32_t *ids, size_t n,
                      struct gen_text *text)
{
    for (size_t i = 0; i < n; i++) {
        size_t len = 0;
        const char *bytes = brim_token_bytes(engine, ids[i], &len);
        if (bytes && !gen_text_add(text, bytes, len)) return false;
    }
    return true;
}

static int print_json(const brim_engine *engine, const int32_t *ids, size_t n)
{
    struct gen_text text = {0};
    if (!add_bytes(engine, ids, n, &text)) {
        free(text.data);
        return cli_out_of_memory();
    }
    struct json json;
    jw_begin(&json, stdout);
    jw_object(&json);
    jw_int_at(&json, "count", (int64_t)n);
    jw_key(&json, "ids");
    jw_array(&json);
    for (size_t i = 0; i < n; i++) jw_int(&json, ids[i]);
    jw_close(&json);
    jw_key(&json, "pieces");
    jw_array(&json);
    for (size_t i = 0; i < n; i++) {
        size_t len = 0;
        const char *bytes = brim_token_bytes(engine, ids[i], &len);
        jw_bytes(&json, bytes ? bytes : "", bytes ? len : 0);
    }
    jw_close(&json);
    jw_key(&json, "text");
    jw_bytes(&json, text.data ? text.data : "", text.len);
    jw_close(&json);
    jw_end(&json);
    free(text.data);
    return CLI_OK;
}

static int print_ids(const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) printf("%s%d", i ? " " : "", (int)ids[i]);
    putchar('\n');
    return CLI_OK;
}

static int print_text(const brim_engine *engine, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t len = 0;
        const char *bytes = brim_token_bytes(engine, ids[i], &len);
        if (bytes) fwrite(bytes, 1, len, stdout);
    }
    return CLI_OK;
}

/* Ids written in text, separated by blanks, commas or brackets; reports what is no id. */
static int32_t *parse_ids(const char *text, size_t len, int64_t n_vocab, size_t *n)
{
    static const char gaps[] = " \t\r\n,[]";
    int32_t *ids = malloc((strlen(text) / 2 + 1) * sizeof(*ids));
    if (!ids) {
        cli_out_of_memory();
        return NULL;
    }
    *n = 0;
    if (strlen(text) != len) {
        cli_error("the list of ids holds a NUL byte");
        free(ids);
        return NULL;
    }
    for (const char *c = text + strspn(text, gaps); *c; c += strspn(c, gaps)) {
        char word[24];
        size_t width = strcspn(c, gaps);
        int64_t id = -1;
        snprintf(word, sizeof(word), "%.*s", (int)(width < sizeof(word) ? width : sizeof(word) - 1),
                 c);
        if (width >= sizeof(word) || !args_int(word, 0, n_vocab - 1, &id)) {
            cli_error("'%s' is no token id from 0 to %lld", word, (long long)n_vocab - 1);
            free(ids);
            return NULL;
        }
        ids[(*n)++] = (int32_t)id;
        c += width;
    }
    return ids;
}

static int tokenize(const brim_engine *engine, const char *text, size_t len)
{
    brim_model_info info;
    brim_engine_info(engine, &info);
    size_t n = 0;
    brim_error err = {0};
    if (args.decode && brim_tokenize(engine, "", 0, false, NULL, 0, &n, &err) != BRIM_OK)
        return cli_fail(&err);
    int32_t *ids = args.decode ? parse_ids(text, len, info.n_vocab, &n)
                               : cli_tokenize(engine, text, len, args.special, &n);
    if (!ids) return CLI_FAILED;
    int exit_code = CLI_OK;
    if (args.count && args.json)
        printf("{\"count\":%zu}\n", n);
    else if (args.count)
        printf("%zu\n", n);
    else if (args.json)
        exit_code = print_json(engine, ids, n);
    else if (args.decode)
        exit_code = print_text(engine, ids, n);
    else
        exit_code = print_ids(ids, n);
    free(ids);
    return cli_close_stdout(exit_code);
}

/* The words after MODEL with a blank between. */
static bool join(const struct args_list *words, struct gen_text *text)
{
    if (!gen_text_add(text, "", 0)) return false;
    for (size_t i = 1; i < words->n; i++)
        if ((i > 1 && !gen_text_add(text, " ", 1)) ||
            !gen_text_add(text, words->items[i], strlen(words->items[i])))
            return false;
    return true;
}

int cmd_tokenize(int argc, char **argv)
{
    const struct args_command command = {
        .name = "tokenize",
        .positional = "MODEL [TEXT...]",
        .about = "Print the token ids of a text, or with --decode the text of ids. Several words "
                 "are joined\n"
                 "by blanks.",
        .groups = {{"Options", options, sizeof(options) / sizeof(*options)}, cli_model_group()},
        .min_positional = 1,
        .max_positional = SIZE_MAX,
        .check = cli_check_model_args,
    };
    struct args_list words = {0};
    struct gen_text text = {0};
    int exit_code;
    if (args_parse(&command, argc, argv, &words, &exit_code)) {
        exit_code = CLI_FAILED;
        if (words.n > 1 && args.file) {
            cli_error("give the text as arguments or by --file, not both");
            exit_code = CLI_USAGE;
        } else if (words.n < 2 && !args.file) {
            cli_error("no text: give it as arguments or by --file");
            exit_code = CLI_USAGE;
        } else if (args.file ? !(text.data = cli_read_file(args.file, &text.len))
                             : !join(&words, &text)) {
            if (!args.file) cli_out_of_memory();
        } else {
            brim_engine *engine = cli_open_engine(words.items[0]);
            if (engine) exit_code = tokenize(engine, text.data, text.len);
            brim_engine_close(&engine);
        }
    }
    free(text.data);
    args_list_free(&words);
    return exit_code;
}
