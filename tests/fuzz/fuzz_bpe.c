/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as text: encoding succeeds, ids are in range, and their pieces give back exactly the
 * text with invalid UTF-8 replaced, in one piece and streamed. The first byte chooses pattern and
 * flag. */
#include "fuzz/tiny_tokenizer.h"

#include <stdlib.h>

/* The text as the tokenizer reads it: the stream decoder knows the same replacement rule. */
static size_t replace_invalid(const uint8_t *data, size_t size, char *out)
{
    struct brim_utf8_stream stream = {0};
    size_t n = brim_utf8_stream_feed(&stream, (const char *)data, size, out);
    return n + brim_utf8_stream_flush(&stream, out + n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const patterns[] = {"smollm", "qwen2", "llama-bpe", "gpt-2"};
    static struct brim_tokenizer *tokenizers[4];
    if (size < 1) return 0;
    int which = data[0] & 3;
    bool parse_special = data[0] & 4;
    if (!tokenizers[which]) tokenizers[which] = tiny_tokenizer(patterns[which]);
    const struct brim_tokenizer *tokenizer = tokenizers[which];

    /* exact-size copy: libFuzzer's block is one byte longer than what follows the first byte */
    size_t len = size - 1;
    char *text = malloc(len ? len : 1);
    char *expected = malloc(3 * len + 16);
    /* NFC takes apart what it must not compose: at most three times the bytes */
    size_t capacity = 9 * len + 16;
    char *pieces = malloc(capacity);
    char *streamed = malloc(capacity);
    FUZZ_REQUIRE(text && expected && pieces && streamed);
    memcpy(text, data + 1, len);
    size_t n_expected = replace_invalid(data + 1, len, expected);

    struct brim_ids ids = {0};
    brim_error err = {0};
    FUZZ_REQUIRE(brim_tokenizer_encode(tokenizer, text, len, parse_special, &ids, &err) == BRIM_OK);
    struct brim_utf8_stream stream = {0};
    size_t n_pieces = 0;
    size_t n_streamed = 0;
    for (size_t i = 0; i < ids.n; i++) {
        FUZZ_REQUIRE(ids.data[i] >= 0 && ids.data[i] < brim_tokenizer_n_vocab(tokenizer));
        FUZZ_REQUIRE(parse_special || !brim_tokenizer_is_special(tokenizer, ids.data[i]));
        struct brim_str piece = brim_tokenizer_piece(tokenizer, ids.data[i]);
        FUZZ_REQUIRE(piece.len > 0 && piece.len <= capacity - n_pieces);
        memcpy(pieces + n_pieces, piece.data, piece.len);
        n_pieces += piece.len;
        char out[128];
        FUZZ_REQUIRE(piece.len + 12 <= sizeof(out));
        size_t n_out = brim_utf8_stream_feed(&stream, piece.data, piece.len, out);
        FUZZ_REQUIRE(n_out <= piece.len + 12 && n_out <= capacity - n_streamed);
        memcpy(streamed + n_streamed, out, n_out);
        n_streamed += n_out;
    }
    FUZZ_REQUIRE(capacity - n_streamed >= 12);
    n_streamed += brim_utf8_stream_flush(&stream, streamed + n_streamed);
    FUZZ_REQUIRE(n_streamed == n_pieces && !memcmp(streamed, pieces, n_pieces));
    if (which != 1) FUZZ_REQUIRE(n_pieces == n_expected && !memcmp(pieces, expected, n_expected));
    brim_ids_free(&ids);
    free(text);
    free(expected);
    free(pieces);
    free(streamed);
    return 0;
}
