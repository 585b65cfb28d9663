/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as tokenizer.json: refused with a sentence, or a tokenizer that encodes text without
 * leaving its id range and never makes a control token that was not asked for. */
#include "fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

enum { MAX_TEXT = 2000 };

static void use(const struct brim_tokenizer *tokenizer, const char *text, size_t len)
{
    brim_error err = {0};
    for (int parse = 0; parse < 2; parse++) {
        struct brim_ids ids = {0};
        brim_status status = brim_tokenizer_encode(tokenizer, text, len, parse, &ids, &err);
        FUZZ_REQUIRE(status == BRIM_OK || (err.text[0] && ids.n == 0));
        for (size_t i = 0; i < ids.n; i++) {
            FUZZ_REQUIRE(ids.data[i] >= 0 && ids.data[i] < brim_tokenizer_n_vocab(tokenizer));
            FUZZ_REQUIRE(brim_tokenizer_piece(tokenizer, ids.data[i]).len > 0);
            FUZZ_REQUIRE(parse || !brim_tokenizer_is_special(tokenizer, ids.data[i]));
        }
        brim_ids_free(&ids);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "The quick  brown\t\tfox's 12345 jumped <|im_end|>\r\n\r\n  "
                               "e\xCC\x81\xCC\xA3 \xE4\xBD\xA0 \xF0\x9F\x98\x80 \xFF<think>.";
    char *json = malloc(size ? size : 1); /* exact, so that the sanitizer sees every overrun */
    FUZZ_REQUIRE(json);
    memcpy(json, data, size);
    struct brim_tokenizer *tokenizer;
    brim_error err = {0};
    if (brim_tokenizer_from_json(&tokenizer, json, size, "input", &err) == BRIM_OK) {
        use(tokenizer, text, sizeof text - 1);
        use(tokenizer, json, size < MAX_TEXT ? size : MAX_TEXT); /* its own words */
        brim_tokenizer_free(&tokenizer);
    } else {
        FUZZ_REQUIRE(!tokenizer && err.text[0]);
    }
    free(json);
    return 0;
}
