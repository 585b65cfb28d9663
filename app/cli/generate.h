/* SPDX-License-Identifier: Apache-2.0
 * What `brim run` and `brim chat` share: the sampling options, one reply streamed to standard
 * output, and the figures printed after it. */
#ifndef BRIM_CLI_GENERATE_H
#define BRIM_CLI_GENERATE_H

#include "cli.h"

/* The figures of one reply. Tokens reused from the session's timeline are not counted as prompt. */
struct gen_figures {
    int64_t n_prompt, n_reused;
    int64_t prompt_ns;      /* evaluating the prompt */
    int64_t first_token_ns; /* from the start of that to the first token */
    int64_t n_generated;
    int64_t decode_ns; /* from the first token to the last */
    brim_finish finish;
};

/* Growing text; starts zeroed, ends with free(data). */
struct gen_text {
    char *data;
    size_t len, capacity;
};
bool gen_text_add(struct gen_text *text, const char *data, size_t len);

/* --temp, --top-k, --top-p, --min-p, --repeat-penalty, --repeat-last-n, --seed. */
struct args_group gen_sampling_group(void);
/* --max-tokens, --stop, --ignore-eos, --ctx, --prefill-chunk, --kv, --parse-special, --system,
 * --think, --no-think. */
struct args_group gen_reply_group(void);
/* The values of the reply group that the commands need themselves. */
const char *gen_system(void);
bool gen_parse_special(void);

/* What a table of options cannot say; reports the first fault. Before a model is opened. */
bool gen_check(void);

brim_session *gen_open_session(brim_engine *engine);
brim_sampler *gen_open_sampler(const brim_engine *engine);
void gen_free(void);

/* Ids of a conversation by the model's template, for free(); reports failures. */
int32_t *gen_chat_ids(const brim_engine *engine, const brim_chat_turn *turns, size_t n_turn,
                      size_t *n);

/* Bring the session to ids[0, n) and generate. Text goes to standard output when `stream`, and to
 * `reply` when that is not NULL. Returns an exit code: CLI_OK also when interrupted (ask
 * cli_interrupted), CLI_FAILED with the reason reported, silently when standard output is closed.
 */
int gen_reply(brim_session *session, brim_sampler *sampler, const int32_t *ids, size_t n,
              bool stream, struct gen_text *reply, struct gen_figures *figures);

const char *gen_finish_name(brim_finish finish);
/* Per second; 0 when no time passed. */
double gen_rate(int64_t n, int64_t ns);
/* Tokens after the first per second: what decoding costs. */
double gen_decode_rate(const struct gen_figures *figures);

#endif
