/* SPDX-License-Identifier: Apache-2.0
 * One tokenizer used by several threads at once gives each what one alone gets.
 * ctest labels: threads */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/pool.h"
#include "small_vocab.h"
#include "text/chat.h"

enum { N_ITEM = 64, N_TEXT = 8 };

static const char *const merges[] = {"h e", "l l", "he ll", "hell o", "1 2", NULL};
static const char *const specials[] = {"<|im_start|>", "<|im_end|>", NULL};

struct work {
    const struct brim_tokenizer *tokenizer;
    struct brim_ids ids[N_ITEM];
    brim_status status[N_ITEM];
};

static void encode_item(void *arg, int64_t item, int worker)
{
    (void)worker;
    struct work *work = arg;
    char text[200];
    int n = snprintf(text, sizeof text, "hello %d hell <|im_end|> e\xCC\x81 \xFF\n\n  12 x",
                     (int)(item % N_TEXT));
    struct brim_chat_message message = {{"user", 4}, {text, (size_t)n}};
    struct brim_chat_options options = {.family = BRIM_CHAT_SMOLLM2, .add_generation_prompt = true};
    work->status[item] =
        brim_chat_render(work->tokenizer, &options, &message, 1, &work->ids[item], NULL);
}

static void threads_share_a_tokenizer(void **state)
{
    (void)state;
    struct small_vocab v;
    struct brim_tokenizer *t;
    small_vocab_make(&v, "qwen2", merges, specials, NULL);
    assert_int_equal(brim_tokenizer_from_tables(&t, &v.tables, "small", NULL), BRIM_OK);
    small_vocab_free(&v);
    static struct work alone, shared;
    alone.tokenizer = shared.tokenizer = t;
    for (int i = 0; i < N_ITEM; i++) encode_item(&alone, i, 0);
    struct brim_pool *pool;
    assert_int_equal(brim_pool_create(&pool, 4, NULL), BRIM_OK);
    brim_pool_run(pool, encode_item, &shared, N_ITEM);
    brim_pool_free(&pool);
    for (int i = 0; i < N_ITEM; i++) {
        assert_int_equal(alone.status[i], BRIM_OK);
        assert_int_equal(shared.status[i], BRIM_OK);
        assert_int_equal(shared.ids[i].n, alone.ids[i].n);
        assert_true(shared.ids[i].n > 20);
        assert_memory_equal(shared.ids[i].data, alone.ids[i].data,
                            alone.ids[i].n * sizeof(int32_t));
        brim_ids_free(&alone.ids[i]);
        brim_ids_free(&shared.ids[i]);
    }
    brim_tokenizer_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_share_a_tokenizer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
