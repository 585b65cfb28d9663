/* SPDX-License-Identifier: Apache-2.0
 * brim perplexity: how well a model predicts a text. Windows and scoring are those of llama.cpp's
 * llama-perplexity, so that figures can be compared:
 *   the text is tokenized whole, control tokens in it are text; windows of N tokens follow each
 *   other without overlap, each starts from an empty cache, a last partial one is dropped;
 *   where the model asks for a first token, it precedes the text and replaces each window's first;
 *   of a window, tokens N/2 + 1 .. N - 1 are scored, each given all before it in the window. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "cli.h"
#include "commands.h"
#include "json.h"

enum { SCORE_ROWS = 64 }; /* rows whose logits are held at once */

struct tally {
    double nll, squares; /* sums of the negative log likelihood and of its square */
    int64_t n;
};

/* -log softmax(logits)[id], in double: 50 thousand terms of a float sum would cost digits. */
static double surprise(const float *logits, int64_t n_vocab, int32_t id)
{
    float largest = logits[0];
    for (int64_t i = 1; i < n_vocab; i++)
        if (logits[i] > largest) largest = logits[i];
    double sum = 0;
    for (int64_t i = 0; i < n_vocab; i++) sum += exp((double)logits[i] - largest);
    return log(sum) + largest - logits[id];
}

static brim_status score_window(brim_session *session, const int32_t *ids, int64_t n, float *logits,
                                int64_t n_vocab, struct tally *tally, brim_error *err)
{
    brim_status status = brim_session_rewind(session, 0, err);
    if (status == BRIM_OK) status = brim_session_eval(session, ids, n / 2, err);
    for (int64_t at = n / 2; at < n - 1 && status == BRIM_OK; at += SCORE_ROWS) {
        int64_t rows = n - 1 - at < SCORE_ROWS ? n - 1 - at : SCORE_ROWS;
        status = brim_session_eval_all(session, ids + at, rows, logits, err);
        for (int64_t i = 0; i < rows && status == BRIM_OK; i++) {
            double nll = surprise(logits + i * n_vocab, n_vocab, ids[at + i + 1]);
            tally->nll += nll;
            tally->squares += nll * nll;
            tally->n++;
        }
    }
    return status;
}

/* Standard error of the mean. */
static double tally_error(const struct tally *tally)
{
    if (tally->n < 2) return 0;
    double n = (double)tally->n, mean = tally->nll / n;
    return sqrt((tally->squares / n - mean * mean) / (n - 1));
}

static int score(brim_engine *engine, const char *path, int64_t n_window, int64_t max_windows,
                 bool as_json)
{
    size_t len;
    char *text = cli_read_file(path, &len);
    if (!text) return CLI_FAILED;
    size_t n_token = 0;
    int32_t *ids = cli_tokenize_prompt(engine, text, len, false, &n_token);
    free(text);
    if (!ids) return CLI_FAILED;

    brim_model_info info;
    brim_engine_info(engine, &info);
    int64_t n_windows = (int64_t)n_token / n_window;
    if (max_windows && n_windows > max_windows) n_windows = max_windows;
    int code = CLI_OK;
    struct tally tally = {0};
    brim_session *session = NULL;
    brim_error err = {0};
    brim_session_options options;
    brim_session_options_default(&options);
    options.n_context = n_window;
    float *logits = malloc((size_t)SCORE_ROWS * (size_t)info.n_vocab * sizeof(*logits));
    bool show = isatty(STDERR_FILENO) && !cli_model_args.quiet;
    int64_t start = cli_now_ns();

    if (!logits) {
        code = cli_out_of_memory();
    } else if (n_windows == 0) {
        cli_error("perplexity: '%s' has %zu tokens, one window takes %" PRId64, path, n_token,
                  n_window);
        code = CLI_FAILED;
    } else if (brim_session_open(&session, engine, &options, &err) != BRIM_OK) {
        code = cli_fail(&err);
    }
    int32_t bos = brim_token_bos(engine);
    for (int64_t w = 0; w < n_windows && code == CLI_OK; w++) {
        if (bos >= 0) ids[w * n_window] = bos;
        if (score_window(session, ids + w * n_window, n_window, logits, info.n_vocab, &tally,
                         &err) != BRIM_OK)
            code = cli_fail(&err);
        else if (cli_interrupted())
            code = CLI_INTERRUPTED;
        else if (show)
            fprintf(stderr, "\rwindow %" PRId64 "/%" PRId64 ": %.4f ", w + 1, n_windows,
                    exp(tally.nll / (double)tally.n));
    }
    if (show) fputs("\r\033[K", stderr);
    if (code == CLI_OK && !isfinite(tally.nll)) {
        cli_error("perplexity: the model's logits are not finite");
        code = CLI_FAILED;
    }
    if (code == CLI_OK) {
        double ppl = exp(tally.nll / (double)tally.n), error = ppl * tally_error(&tally);
        bool int8 = cli_model_args.activations && !strcmp(cli_model_args.activations, "int8");
        if (as_json) {
            struct json json;
            jw_begin(&json, stdout);
            jw_object(&json);
            jw_real_at(&json, "perplexity", ppl);
            jw_real_at(&json, "error", error);
            jw_real_at(&json, "nll_mean", tally.nll / (double)tally.n);
            jw_int_at(&json, "scored_tokens", tally.n);
            jw_int_at(&json, "text_tokens", (int64_t)n_token);
            jw_int_at(&json, "windows", n_windows);
            jw_int_at(&json, "ctx", n_window);
            jw_text_at(&json, "activations", int8 ? "int8" : "f32");
            jw_text_at(&json, "device", info.device);
            jw_text_at(&json, "gpu", info.gpu);
            jw_text_at(&json, "level", info.level);
            jw_text_at(&json, "cpu_tier", info.cpu_tier);
            jw_real_at(&json, "seconds", (double)(cli_now_ns() - start) / 1e9);
            jw_close(&json);
            jw_end(&json);
        } else {
            printf("perplexity %.4f +/- %.4f (%" PRId64 " tokens scored in %" PRId64
                   " windows of %" PRId64 ")\n",
                   ppl, error, tally.n, n_windows, n_window);
        }
    }
    brim_session_close(&session);
    free(logits);
    free(ids);
    return code;
}

int cmd_perplexity(int argc, char **argv)
{
    const char *path = NULL, *model = NULL;
    int64_t n_window = 512, max_windows = 0;
    bool as_json = false;
    struct args_list words = {0};
    const struct args_option options[] = {
        {"model", 'm', ARGS_TEXT, &model, "MODEL", "a .gguf file or a Hugging Face directory", 0,
         0},
        {"file", 'f', ARGS_TEXT, &path, "FILE", "the text; - for standard input", 0, 0},
        {"ctx", 'c', ARGS_INT, &n_window, "N", "tokens of a window (512)", 4, 1 << 20},
        {"windows", 0, ARGS_INT, &max_windows, "N", "only the first N windows (0: all)", 0,
         1 << 30},
        {"json", 0, ARGS_FLAG, &as_json, NULL, "one object on standard output", 0, 0},
    };
    const struct args_command command = {
        .name = "perplexity",
        .positional = "[MODEL]",
        .about = "Perplexity of a text, windows and scoring as in llama-perplexity.",
        .groups = {{"Options", options, sizeof(options) / sizeof(options[0])}, cli_model_group()},
        .max_positional = 1,
        .check = cli_check_model_args,
        .notes =
            "Windows do not overlap and start from an empty cache; the second half of each is\n"
            "scored: tokens N/2+1 to N-1, each given all before it in its window.",
    };
    int code;
    if (args_parse(&command, argc, argv, &words, &code)) {
        if (words.n) model = words.items[0];
        if (!path || !model) {
            cli_error("perplexity needs a model and --file (see 'brim perplexity --help')");
            code = CLI_USAGE;
        } else {
            cli_catch_interrupt();
            brim_engine *engine = cli_open_engine(model);
            code = engine ? score(engine, path, n_window, max_windows, as_json) : CLI_FAILED;
            brim_engine_close(&engine);
            code = cli_close_stdout(code);
        }
    }
    args_list_free(&words);
    return code;
}
