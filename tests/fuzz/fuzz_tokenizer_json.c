/* SPDX-License-Identifier: Apache-2.0
 * A tokenizer.json from anyone: refused with a sentence, or a tokenizer that encodes any text to
 * ids of its vocabulary. */
#include "fuzz/fuzz.h"

#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] =
        "The <|im_end|> caf\xC3\xA9, e\xCC\x81 \xE2\x80 123\r\n\t  \xF0\x9F\x91\x8D";
    struct brim_tokenizer *tokenizer = NULL;
    brim_error err = {0};
    if (brim_tokenizer_from_json(&tokenizer, (const char *)data, size, "fuzz.json", &err) !=
        BRIM_OK) {
        FUZZ_REQUIRE(!tokenizer && err.text[0]);
        return 0;
    }
    struct brim_ids ids = {0};
    if (brim_tokenizer_encode(tokenizer, text, sizeof(text) - 1, true, &ids, &err) == BRIM_OK) {
        for (size_t i = 0; i < ids.n; i++) {
            FUZZ_REQUIRE(ids.data[i] >= 0 && ids.data[i] < brim_tokenizer_n_vocab(tokenizer));
            (void)brim_tokenizer_piece(tokenizer, ids.data[i]);
        }
    } else {
        FUZZ_REQUIRE(err.text[0]);
    }
    brim_ids_free(&ids);
    brim_tokenizer_free(&tokenizer);
    return 0;
}
