/* SPDX-License-Identifier: Apache-2.0
 * The smallest useful program: complete a prompt.
 *
 *   complete MODEL PROMPT [MAX_TOKENS]
 *
 * MODEL is a Hugging Face directory or a .gguf file. The completion goes to standard output. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "brim/brim.h"

enum { MAX_IDS = 2048 };

static bool print(void *ctx, const char *text, size_t len)
{
    return fwrite(text, 1, len, ctx) == len && fflush(ctx) == 0;
}

static brim_status complete(brim_engine *engine, brim_session *session, brim_sampler *sampler,
                            const char *prompt, int64_t max_tokens, brim_error *err)
{
    int32_t ids[MAX_IDS];
    size_t n_ids, first = 0;
    int32_t bos = brim_token_bos(engine);
    if (bos >= 0) ids[first++] = bos;
    brim_status status = brim_tokenize(engine, prompt, strlen(prompt), false, ids + first,
                                       MAX_IDS - first, &n_ids, err);
    if (status != BRIM_OK) return status;
    status = brim_session_sync(session, ids, (int64_t)(first + n_ids), NULL, err);
    if (status != BRIM_OK) return status;
    brim_generate_options options;
    brim_generate_options_default(&options);
    options.max_tokens = max_tokens;
    options.on_text = print;
    options.on_text_ctx = stdout;
    return brim_generate(session, sampler, &options, NULL, err);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: complete MODEL PROMPT [MAX_TOKENS]\n");
        return 2;
    }
    int64_t max_tokens = argc > 3 ? strtoll(argv[3], NULL, 10) : 64;
    brim_engine *engine = NULL;
    brim_session *session = NULL;
    brim_sampler *sampler = NULL;
    brim_error err;
    brim_status status = brim_engine_open(&engine, argv[1], NULL, &err);
    if (status == BRIM_OK) status = brim_session_open(&session, engine, NULL, &err);
    if (status == BRIM_OK) status = brim_sampler_open(&sampler, engine, NULL, &err);
    if (status == BRIM_OK) status = complete(engine, session, sampler, argv[2], max_tokens, &err);
    if (status == BRIM_OK)
        putchar('\n');
    else
        fprintf(stderr, "complete: %s\n", err.text);
    brim_sampler_close(&sampler);
    brim_session_close(&session);
    brim_engine_close(&engine);
    return status == BRIM_OK ? 0 : 1;
}
