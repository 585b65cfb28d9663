/* SPDX-License-Identifier: Apache-2.0
 * The fixed chat templates of the supported families, rendered to ids. */
#ifndef BRIM_TEXT_CHAT_H
#define BRIM_TEXT_CHAT_H

#include "text/tokenizer.h"

enum brim_chat_family {
    BRIM_CHAT_SMOLLM2, /* ChatML, a default system message when none is given */
    BRIM_CHAT_QWEN3,   /* ChatML, thinking on or off, earlier thinking removed from history */
    BRIM_CHAT_QWEN2,   /* ChatML with Qwen2.5's default system message */
    BRIM_CHAT_LLAMA3,  /* <|start_header_id|> form */
    BRIM_CHAT_LLAMA31, /* that of Llama 3.1 to 3.3: a system message with dates stands first */
    BRIM_CHAT_CHATML   /* plain ChatML: nothing but the messages */
};

struct brim_chat_message {
    struct brim_str role; /* "system", "user", "assistant" */
    struct brim_str content;
};

struct brim_chat_options {
    enum brim_chat_family family;
    bool add_generation_prompt;
    bool enable_thinking;     /* QWEN3 only; false adds the empty think block of its template */
    bool parse_user_specials; /* default false: content is encoded without control tokens */
    const char *date;         /* LLAMA31 only: "Today Date"; NULL: the template's "26 Jul 2024" */
    bool stable_history;      /* QWEN3 with thinking off only; default false: as its template. True
                                 keeps the empty think block before earlier answers too, so that
                                 each turn's ids start with those of the turn before and a cache
                                 stays valid */
};

/* "smollm2", "qwen3", ...; static storage. */
const char *brim_chat_family_name(enum brim_chat_family family);

/* Recognise the family from a chat template's text (tokenizer.chat_template of a GGUF,
 * chat_template of tokenizer_config.json); BRIM_E_UNSUPPORTED when none matches. */
brim_status brim_chat_detect(const char *chat_template, size_t len, enum brim_chat_family *out,
                             brim_error *err);

/* Append the ids of the whole conversation, as the family's template renders it (without tools). A
 * role other than the three is BRIM_E_ARGUMENT, a control token the vocabulary lacks
 * BRIM_E_MISSING. Added tokens that are not control tokens (Qwen3's <think>) are matched in content
 * as everywhere. On failure ids->n is what it was. */
brim_status brim_chat_render(const struct brim_tokenizer *tokenizer,
                             const struct brim_chat_options *options,
                             const struct brim_chat_message *messages, size_t n_message,
                             struct brim_ids *ids, brim_error *err);

#endif
