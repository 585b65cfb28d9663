/* SPDX-License-Identifier: Apache-2.0
 * Pre-tokenizer: cuts text into the words BPE works on, by a sequence of regular expressions
 * (PCRE2). Immutable once built; a call of brim_pretok_run owns its match data. */
#ifndef BRIM_TEXT_PRETOK_H
#define BRIM_TEXT_PRETOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct brim_pretok;
struct brim_pretok_match; /* per call: PCRE2's match data */

enum brim_split_behaviour {
    BRIM_SPLIT_ISOLATED, /* matches and what lies between them are words */
    BRIM_SPLIT_KEEP,     /* only matches are */
    BRIM_SPLIT_DROP      /* only what lies between them is */
};

/* GPT-2's pattern, which `ByteLevel` with `use_regex` means. */
extern const char brim_pretok_gpt2_pattern[];

brim_status brim_pretok_create(struct brim_pretok **out, brim_error *err);
void brim_pretok_free(struct brim_pretok **pretok);

/* Add a step that cuts every word of the steps before it. `pattern` is in the dialect
 * tokenizer.json uses (Oniguruma's Ruby syntax); constructs that PCRE2 reads differently are
 * translated or refused with BRIM_E_UNSUPPORTED. `path` is for error texts. */
brim_status brim_pretok_add(struct brim_pretok *pretok, const char *pattern, size_t len,
                            enum brim_split_behaviour behaviour, const char *path, brim_error *err);
/* The same pattern as PCRE2 will see it, for tests; brim_free it. */
brim_status brim_pretok_translate(char **out, size_t *out_len, const char *pattern, size_t len,
                                  const char *path, brim_error *err);

/* A number that tells the steps added so far from others: folded in by each step, 0 at first. */
uint64_t brim_pretok_fingerprint(const struct brim_pretok *pretok);
uint64_t brim_pretok_fold(uint64_t fingerprint, const char *pattern, size_t len,
                          enum brim_split_behaviour behaviour);

brim_status brim_pretok_match_create(struct brim_pretok_match **out,
                                     const struct brim_pretok *pretok, brim_error *err);
void brim_pretok_match_free(struct brim_pretok_match **match);

typedef brim_status brim_word_fn(void *ctx, const char *word, size_t len, brim_error *err);
/* Call fn for every word of text[0, len), which must be well-formed UTF-8, in order. A matching
 * limit reached is an error, never a shorter text. */
brim_status brim_pretok_run(const struct brim_pretok *pretok, struct brim_pretok_match *match,
                            const char *text, size_t len, brim_word_fn *fn, void *ctx,
                            brim_error *err);

#endif
