/* SPDX-License-Identifier: Apache-2.0
 * See args.h. Every error is one line on standard error, names the option and points to --help. */
#include "args.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

bool args_int(const char *text, int64_t low, int64_t high, int64_t *out)
{
    char *end;
    const char *digits = text + (*text == '-');
    /* strtoll would take blanks and a plus sign */
    if (*digits < '0' || *digits > '9') return false;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || *end || value < low || value > high) return false;
    *out = value;
    return true;
}

bool args_real(const char *text, double low, double high, double *out)
{
    char *end;
    const char *digits = text + (*text == '-');
    /* strtod would take blanks, hexadecimal, "nan" and "inf" */
    if (!(*digits >= '0' && *digits <= '9') && *digits != '.') return false;
    if (strpbrk(text, "xX")) return false;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || (errno && fabs(value) > 1)) return false;
    if (value < low || value > high) return false;
    *out = value;
    return true;
}

static bool parse_seed(const char *text, uint64_t *out)
{
    char *end;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || *end) return false;
    *out = value;
    return true;
}

static bool list_add(struct args_list *list, const char *text)
{
    /* grown one by one: command lines are short */
    const char **items = realloc(list->items, (list->n + 1) * sizeof(*items));
    if (!items) return false;
    items[list->n++] = text;
    list->items = items;
    return true;
}

void args_list_free(struct args_list *list)
{
    free(list->items);
    *list = (struct args_list){0};
}

/* ---- help ------------------------------------------------------------------------------------ */

static bool takes_value(enum args_kind kind)
{
    return kind != ARGS_FLAG && kind != ARGS_OFF;
}

enum { HELP_COLUMN = 30 };

static void print_option(const struct args_option *option)
{
    char left[80];
    int n = snprintf(left, sizeof(left), "  %c%c%s--%s%s%s", option->letter ? '-' : ' ',
                     option->letter ? option->letter : ' ', option->letter ? ", " : "  ",
                     option->name, takes_value(option->kind) ? " " : "",
                     takes_value(option->kind) ? option->value : "");
    if (n < HELP_COLUMN - 1)
        printf("%-*s", HELP_COLUMN, left);
    else
        printf("%s\n%*s", left, HELP_COLUMN, "");
    for (const char *c = option->help; *c; c++) {
        putchar(*c);
        if (*c == '\n') printf("%*s", HELP_COLUMN, "");
    }
    putchar('\n');
}

/* Between a command and its arguments, of which there may be none. */
static const char *blank(const struct args_command *command)
{
    return *command->positional ? " " : "";
}

static void print_help(const struct args_command *command)
{
    printf("usage: brim %s [options]%s%s\n\n%s\n", command->name, blank(command),
           command->positional, command->about);
    for (int g = 0; g < ARGS_MAX_GROUP && command->groups[g].options; g++) {
        printf("\n%s:\n", command->groups[g].title);
        for (size_t i = 0; i < command->groups[g].n_option; i++)
            print_option(&command->groups[g].options[i]);
    }
    printf("\n  -h, --help                  show this text\n");
    if (command->notes) printf("\n%s\n", command->notes);
}

/* ---- parsing --------------------------------------------------------------------------------- */

static const struct args_option *find_option(const struct args_command *command, const char *name,
                                             size_t len, char letter)
{
    for (int g = 0; g < ARGS_MAX_GROUP && command->groups[g].options; g++) {
        for (size_t i = 0; i < command->groups[g].n_option; i++) {
            const struct args_option *option = &command->groups[g].options[i];
            if (letter ? option->letter == letter
                       : strlen(option->name) == len && !memcmp(option->name, name, len))
                return option;
        }
    }
    return NULL;
}

static bool is_choice(const char *words, const char *text)
{
    size_t len = strlen(text);
    for (const char *word = words; len; word = strchr(word, '|') + 1) {
        if (!strncmp(word, text, len) && (word[len] == '|' || !word[len])) return true;
        if (!strchr(word, '|')) break;
    }
    return false;
}

static bool is_number(const char *text)
{
    double any;
    return args_real(text, -HUGE_VAL, HUGE_VAL, &any);
}

/* Store one value; reports what is wrong with it. */
static bool store(const struct args_option *option, const char *text)
{
    switch (option->kind) {
    case ARGS_FLAG:
        *(bool *)option->out = true;
        return true;
    case ARGS_OFF:
        *(bool *)option->out = false;
        return true;
    case ARGS_INT:
        if (args_int(text, (int64_t)option->low, (int64_t)option->high, option->out)) return true;
        if (!is_number(text) || strpbrk(text, ".eE"))
            cli_error("--%s: '%s' is not a whole number", option->name, text);
        else
            cli_error("--%s: %s is outside %" PRId64 " to %" PRId64, option->name, text,
                      (int64_t)option->low, (int64_t)option->high);
        return false;
    case ARGS_SEED:
        if (parse_seed(text, option->out)) return true;
        cli_error("--%s: '%s' is not a whole number from 0 to %" PRIu64, option->name, text,
                  UINT64_MAX);
        return false;
    case ARGS_REAL:
        if (args_real(text, option->low, option->high, option->out)) return true;
        if (!is_number(text))
            cli_error("--%s: '%s' is not a number", option->name, text);
        else
            cli_error("--%s: %s is outside %g to %g", option->name, text, option->low,
                      option->high);
        return false;
    case ARGS_TEXT:
        *(const char **)option->out = text;
        return true;
    case ARGS_LIST:
        if (list_add(option->out, text)) return true;
        cli_error("--%s: out of memory", option->name);
        return false;
    case ARGS_CHOICE:
        if (is_choice(option->value, text)) {
            *(const char **)option->out = text;
            return true;
        }
        cli_error("--%s: '%s' is none of %s", option->name, text, option->value);
        return false;
    }
    return false;
}

/* One option at argv[i]; returns the words it took, 0 on an error. */
static int parse_option(const struct args_command *command, int argc, char **argv, int i)
{
    const char *word = argv[i];
    bool is_long = word[1] == '-';
    const char *equals = is_long ? strchr(word, '=') : NULL;
    size_t len = is_long ? (equals ? (size_t)(equals - word) : strlen(word)) - 2 : 0;
    const struct args_option *option = is_long   ? find_option(command, word + 2, len, 0)
                                       : word[2] ? NULL
                                                 : find_option(command, NULL, 0, word[1]);
    if (!option) {
        cli_error("unknown option '%s' (see 'brim %s --help')", word, command->name);
        return 0;
    }
    if (!takes_value(option->kind)) {
        if (equals) {
            cli_error("--%s takes no value", option->name);
            return 0;
        }
        return store(option, NULL) ? 1 : 0;
    }
    if (equals) return store(option, equals + 1) ? 1 : 0;
    if (i + 1 >= argc) {
        cli_error("--%s needs a value (%s)", option->name, option->value);
        return 0;
    }
    return store(option, argv[i + 1]) ? 2 : 0;
}

bool args_parse(const struct args_command *command, int argc, char **argv,
                struct args_list *positional, int *exit_code)
{
    struct args_list none = {0};
    struct args_list *words = positional ? positional : &none;
    bool only_words = false;
    *exit_code = CLI_USAGE;
    for (int i = 1; i < argc;) {
        const char *word = argv[i];
        if (only_words || word[0] != '-' || !word[1]) {
            if (!positional || words->n >= command->max_positional) {
                cli_error("unexpected argument '%s' (usage: brim %s%s%s)", word, command->name,
                          blank(command), command->positional);
                return false;
            }
            if (!list_add(words, word)) {
                cli_error("out of memory");
                return false;
            }
            i++;
        } else if (!strcmp(word, "--")) {
            only_words = true;
            i++;
        } else if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
            print_help(command);
            *exit_code = cli_close_stdout(CLI_OK);
            return false;
        } else {
            int n = parse_option(command, argc, argv, i);
            if (!n) return false;
            i += n;
        }
    }
    if (words->n < command->min_positional) {
        cli_error("missing argument (usage: brim %s%s%s)", command->name, blank(command),
                  command->positional);
        return false;
    }
    return !command->check || command->check();
}
