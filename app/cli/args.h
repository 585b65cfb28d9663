/* SPDX-License-Identifier: Apache-2.0
 * Command lines by table: a command lists its options, args_parse fills the variables they point to
 * and prints help. Values are checked as a whole: "12x", "" and "1e999" are errors, not numbers. */
#ifndef BRIM_CLI_ARGS_H
#define BRIM_CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit codes of every command. */
enum {
    CLI_OK = 0,
    CLI_FAILED = 1,       /* the work could not be done */
    CLI_USAGE = 2,        /* the command line is wrong */
    CLI_INTERRUPTED = 130 /* ended by SIGINT, as shells report it */
};

enum args_kind {
    ARGS_FLAG,   /* no value; out: bool *, set to true */
    ARGS_OFF,    /* no value; out: bool *, set to false */
    ARGS_INT,    /* out: int64_t *, low <= value <= high, both below 2^53 */
    ARGS_SEED,   /* out: uint64_t * */
    ARGS_REAL,   /* out: double *, finite, low <= value <= high */
    ARGS_TEXT,   /* out: const char ** */
    ARGS_LIST,   /* may be repeated; out: struct args_list * */
    ARGS_CHOICE, /* `value` lists the words, "f32|int8"; out: const char **, points to argv */
};

/* Borrowed words; the array belongs to the list. */
struct args_list {
    const char **items;
    size_t n;
};

struct args_option {
    const char *name; /* without dashes: "temp" for --temp */
    char letter;      /* 'n' for -n; 0: none */
    enum args_kind kind;
    void *out;
    const char *value; /* what help calls the value; NULL where there is none */
    const char *help;
    double low, high;
};

struct args_group {
    const char *title;
    const struct args_option *options;
    size_t n_option;
};

enum { ARGS_MAX_GROUP = 6 };

struct args_command {
    const char *name;       /* "run" or "bench model" */
    const char *positional; /* for help, for example "MODEL PROMPT" */
    const char *about;      /* one or more lines */
    struct args_group groups[ARGS_MAX_GROUP];
    size_t min_positional, max_positional;
    /* NULL, or called when all is stored: false where values do not fit together, which it says */
    bool (*check)(void);
    const char *notes; /* printed last by help; may be NULL */
};

/* argv[0] is the command's name. `--` ends options; `--name=value` and `-n value` both work; a lone
 * `-` is positional. Returns true to go on. Otherwise help was printed or an error reported, and
 * the command returns *exit_code. It is CLI_USAGE also when parsing succeeds, for checks of the
 * command's own. `positional` may be NULL when none is taken. */
bool args_parse(const struct args_command *command, int argc, char **argv,
                struct args_list *positional, int *exit_code);
void args_list_free(struct args_list *list);

/* One number as the options take it; false when `text` is not one from first to last character or
 * lies outside. */
bool args_int(const char *text, int64_t low, int64_t high, int64_t *out);
bool args_real(const char *text, double low, double high, double *out);

#endif
