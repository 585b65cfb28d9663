/* SPDX-License-Identifier: Apache-2.0
 * A small byte-level vocabulary for fuzz targets: 256 bytes, a few merges that chain and compete,
 * control tokens of the chat templates and one user-defined token. */
#ifndef BRIM_TESTS_FUZZ_TINY_TOKENIZER_H
#define BRIM_TESTS_FUZZ_TINY_TOKENIZER_H

#include <stdio.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "text/tokenizer.h"

/* A byte in GPT-2's alphabet: printable ones stand for themselves, the others for U+0100 onwards.
 */
static size_t tiny_letter(int byte, char out[3])
{
    static const struct {
        int first, last;
    } plain[] = {{33, 126}, {161, 172}, {174, 255}};
    int code = -1;
    int n_before = 0; /* bytes below `byte` that do not stand for themselves */
    for (int b = 0; b <= byte; b++) {
        int is_plain = 0;
        for (int k = 0; k < 3; k++) is_plain |= b >= plain[k].first && b <= plain[k].last;
        if (b == byte) code = is_plain ? b : 256 + n_before;
        n_before += !is_plain;
    }
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xC0 | code >> 6);
    out[1] = (char)(0x80 | (code & 0x3F));
    return 2;
}

static struct brim_tokenizer *tiny_tokenizer(const char *pre)
{
    static const char *const merges[] = {
        "a a",        "aa aa",        "aaaa aaaa", "t h",  "h e",        "th e",
        "\xC4\xA0 t", "\xC4\xA0t he", "i n",       "in g", "< |",        "| >",
        "i m",        "e n",          "en d",      "1 2",  "\xC3\xA9 s", "\xC3\x83 \xC2\xA9"};
    static const char *const added[] = {"<|im_start|>",        "<|im_end|>",        "<|endoftext|>",
                                        "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
                                        "<|begin_of_text|>",   "<think>",           "</think>"};
    enum { N_MERGE = sizeof(merges) / sizeof(*merges), N_ADDED = sizeof(added) / sizeof(*added) };
    static char text[256 + N_MERGE][16];
    struct brim_str tokens[256 + N_MERGE + N_ADDED];
    struct brim_str rules[N_MERGE];
    int32_t types[256 + N_MERGE + N_ADDED];
    size_t n = 0;
    for (int b = 0; b < 256; b++, n++) {
        types[n] = 1;
        tokens[n] = (struct brim_str){text[n], tiny_letter(b, text[n])};
    }
    for (size_t i = 0; i < N_MERGE; i++, n++) {
        const char *gap = strchr(merges[i], ' ');
        rules[i] = (struct brim_str){merges[i], strlen(merges[i])};
        types[n] = 1;
        int len = snprintf(text[n], sizeof(text[n]), "%.*s%s", (int)(gap - merges[i]), merges[i],
                           gap + 1);
        tokens[n] = (struct brim_str){text[n], (size_t)len};
    }
    for (size_t i = 0; i < N_ADDED; i++, n++) {
        types[n] = i < 7 ? 3 : 4;
        tokens[n] = (struct brim_str){added[i], strlen(added[i])};
    }
    struct brim_vocab_tables tables = {.pre = pre,
                                       .n_token = n,
                                       .tokens = tokens,
                                       .types = types,
                                       .n_merge = N_MERGE,
                                       .merges = rules};
    struct brim_tokenizer *tokenizer = NULL;
    brim_error err = {0};
    FUZZ_REQUIRE(brim_tokenizer_from_tables(&tokenizer, &tables, "tiny", &err) == BRIM_OK);
    return tokenizer;
}

#endif
