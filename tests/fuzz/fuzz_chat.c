/* SPDX-License-Identifier: Apache-2.0
 * Conversations from anyone. The first byte chooses the family and flags; the rest is cut at 0xFF
 * into contents of turns that alternate. Whatever the contents say, the number of control tokens is
 * that of the same conversation with empty contents, unless the flag allows otherwise. Templates
 * too are read from the bytes. */
#include "fuzz/tiny_tokenizer.h"

#include <stdlib.h>

#include "text/chat.h"

enum { MAX_TURN = 8 };

static size_t count_special(const struct brim_tokenizer *tokenizer, const struct brim_ids *ids)
{
    size_t n = 0;
    for (size_t i = 0; i < ids->n; i++) n += brim_tokenizer_is_special(tokenizer, ids->data[i]);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct brim_tokenizer *tokenizer;
    if (!tokenizer) tokenizer = tiny_tokenizer("qwen2");
    brim_error err = {0};
    enum brim_chat_family family;
    if (brim_chat_detect((const char *)data, size, &family, &err) != BRIM_OK)
        FUZZ_REQUIRE(err.text[0]);
    if (size < 1) return 0;

    struct brim_chat_options options = {.family = (enum brim_chat_family)(data[0] & 3),
                                        .add_generation_prompt = data[0] & 4,
                                        .enable_thinking = data[0] & 8,
                                        .parse_user_specials = data[0] & 16};
    struct brim_chat_message turns[MAX_TURN];
    struct brim_chat_message empty[MAX_TURN];
    char *text = malloc(size);
    FUZZ_REQUIRE(text);
    memcpy(text, data + 1, size - 1);
    size_t n = 0;
    bool with_system = data[0] & 32;
    for (size_t at = 0; at < size && n < MAX_TURN; n++) {
        size_t end = at;
        while (end < size - 1 && (unsigned char)text[end] != 0xFF) end++;
        const char *role = with_system && n == 0        ? "system"
                           : (n - with_system) % 2 == 0 ? "user"
                                                        : "assistant";
        turns[n] = (struct brim_chat_message){{role, strlen(role)}, {text + at, end - at}};
        empty[n] = (struct brim_chat_message){{role, strlen(role)}, {"", 0}};
        at = end + 1;
    }
    struct brim_ids ids = {0};
    struct brim_ids bare = {0};
    brim_status status = brim_chat_render(tokenizer, &options, turns, n, &ids, &err);
    FUZZ_REQUIRE(status == BRIM_OK || err.text[0]);
    if (status == BRIM_OK && !options.parse_user_specials &&
        brim_chat_render(tokenizer, &options, empty, n, &bare, &err) == BRIM_OK)
        FUZZ_REQUIRE(count_special(tokenizer, &ids) == count_special(tokenizer, &bare));
    brim_ids_free(&ids);
    brim_ids_free(&bare);
    free(text);
    return 0;
}
