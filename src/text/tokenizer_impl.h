/* SPDX-License-Identifier: Apache-2.0
 * The parts of a tokenizer, shared by the files that build it and the one that runs it. */
#ifndef BRIM_TEXT_TOKENIZER_IMPL_H
#define BRIM_TEXT_TOKENIZER_IMPL_H

#include "text/added.h"
#include "text/bpe.h"
#include "text/pretok.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

struct brim_tokenizer {
    struct brim_vocab vocab;
    struct brim_merge_table merges;
    struct brim_pretok *pretok;
    struct brim_added raw;        /* matched in the text as it is */
    struct brim_added normalized; /* matched after normalization */
    bool nfc;
    bool ignore_merges;   /* a word that is a token is that token, without merging */
    int32_t byte_id[256]; /* the token of one byte; -1: none, the byte is dropped as Hugging Face
                             and llama.cpp drop it */
};

/* An empty tokenizer, to be filled by its builder; freed with brim_tokenizer_free at any stage. */
brim_status brim_tokenizer_new(struct brim_tokenizer **out, brim_error *err);
/* Fill byte_id from the vocabulary; BRIM_E_FORMAT when no byte at all is a token. */
brim_status brim_tokenizer_find_bytes(struct brim_tokenizer *tokenizer, const char *path,
                                      brim_error *err);
/* Merge number `rank`: two texts in the byte alphabet. Unknown tokens and results are errors. *made
 * is the token the merge before made (any value at first) and receives that of this one. */
brim_status brim_tokenizer_add_merge(struct brim_tokenizer *tokenizer, size_t rank,
                                     struct brim_str left, struct brim_str right, int32_t *made,
                                     const char *path, brim_error *err);

#endif
