/* SPDX-License-Identifier: Apache-2.0
 * The text half of brim.h: thin calls into src/text with caller-owned id buffers. */
#include "run/engine.h"

#include <inttypes.h>
#include <string.h>

#include "base/mem.h"

static brim_status need_tokenizer(const brim_engine *engine, brim_error *err)
{
    BRIM_REQUIRE(err, engine, BRIM_E_ARGUMENT, "engine is null");
    BRIM_REQUIRE(err, engine->tokenizer, BRIM_E_MISSING,
                 "this model has no tokenizer: it takes token ids only");
    return BRIM_OK;
}

/* Hand `list` to the caller and release it. */
static brim_status give_ids(struct brim_ids *list, brim_status status, int32_t *ids,
                            size_t capacity, size_t *n_ids, brim_error *err)
{
    if (status == BRIM_OK) {
        size_t n_copy = list->n < capacity ? list->n : capacity;
        if (n_copy > 0) memcpy(ids, list->data, n_copy * sizeof *ids);
        *n_ids = list->n;
        if (list->n > capacity)
            status = brim_fail(err, BRIM_E_ARGUMENT, "ids: %zu are needed, the buffer holds %zu",
                               list->n, capacity);
    }
    brim_ids_free(list);
    return status;
}

brim_status brim_tokenize(const brim_engine *engine, const char *text, size_t len,
                          bool parse_special, int32_t *ids, size_t capacity, size_t *n_ids,
                          brim_error *err)
{
    BRIM_TRY(need_tokenizer(engine, err));
    BRIM_REQUIRE(err, n_ids && (text || len == 0) && (ids || capacity == 0), BRIM_E_ARGUMENT,
                 "tokenize: text, ids or n_ids is null");
    *n_ids = 0;
    struct brim_ids list = {0};
    brim_status status =
        brim_tokenizer_encode(engine->tokenizer, text ? text : "", len, parse_special, &list, err);
    return give_ids(&list, status, ids, capacity, n_ids, err);
}

const char *brim_token_bytes(const brim_engine *engine, int32_t id, size_t *len)
{
    *len = 0;
    if (!engine->tokenizer || id < 0 || id >= brim_tokenizer_n_vocab(engine->tokenizer))
        return NULL;
    struct brim_str piece = brim_tokenizer_piece(engine->tokenizer, id);
    *len = piece.len;
    return piece.len ? piece.data : NULL;
}

int32_t brim_token_bos(const brim_engine *engine)
{
    const struct brim_model_config *c = &engine->model->config;
    return c->add_bos && c->bos >= 0 && c->bos < c->n_vocab ? c->bos : -1;
}

bool brim_token_is_eos(const brim_engine *engine, int32_t id)
{
    const struct brim_model_config *c = &engine->model->config;
    for (int i = 0; i < c->n_eos; i++)
        if (c->eos[i] == id) return true;
    return false;
}

bool brim_token_is_special(const brim_engine *engine, int32_t id)
{
    return engine->tokenizer && brim_tokenizer_is_special(engine->tokenizer, id);
}

void brim_chat_settings_default(brim_chat_settings *settings)
{
    *settings = (brim_chat_settings){.add_generation_prompt = true};
}

brim_status brim_chat_tokenize(const brim_engine *engine, const brim_chat_turn *turns,
                               size_t n_turn, const brim_chat_settings *settings, int32_t *ids,
                               size_t capacity, size_t *n_ids, brim_error *err)
{
    BRIM_TRY(need_tokenizer(engine, err));
    BRIM_REQUIRE(err, n_ids && (turns || n_turn == 0) && (ids || capacity == 0), BRIM_E_ARGUMENT,
                 "chat: turns, ids or n_ids is null");
    *n_ids = 0;
    if (engine->chat_error.status != BRIM_OK)
        return brim_fail(err, engine->chat_error.status, "%s", engine->chat_error.text);
    brim_chat_settings defaults;
    brim_chat_settings_default(&defaults);
    if (!settings) settings = &defaults;
    struct brim_chat_message *messages = brim_calloc(n_turn, sizeof *messages);
    BRIM_REQUIRE(err, messages, BRIM_E_NO_MEMORY, "chat: out of memory for %zu turns", n_turn);
    brim_status status = BRIM_OK;
    for (size_t i = 0; i < n_turn && status == BRIM_OK; i++) {
        if (!turns[i].role || !turns[i].content) {
            status = brim_fail(err, BRIM_E_ARGUMENT, "chat: turn %zu has no role or content", i);
            break;
        }
        messages[i].role = (struct brim_str){turns[i].role, strlen(turns[i].role)};
        messages[i].content = (struct brim_str){turns[i].content, strlen(turns[i].content)};
    }
    const struct brim_chat_options options = {
        .family = engine->chat_family,
        .add_generation_prompt = settings->add_generation_prompt,
        .enable_thinking = settings->enable_thinking,
        .parse_user_specials = settings->parse_specials,
        .stable_history = settings->stable_history,
    };
    struct brim_ids list = {0};
    if (status == BRIM_OK)
        status = brim_chat_render(engine->tokenizer, &options, messages, n_turn, &list, err);
    brim_free(messages);
    return give_ids(&list, status, ids, capacity, n_ids, err);
}
