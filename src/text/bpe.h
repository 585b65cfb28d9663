/* SPDX-License-Identifier: Apache-2.0
 * Byte-pair merging: the table of merges and the merging of one word. The table is immutable once
 * built; each encoding call owns a brim_bpe_scratch. */
#ifndef BRIM_TEXT_BPE_H
#define BRIM_TEXT_BPE_H

#include "text/tokenizer.h"

/* Open addressing, at most half full; the key of an empty slot is UINT64_MAX, which no pair of
 * non-negative ids can be. */
struct brim_merge_slot {
    uint64_t pair; /* left << 32 | right */
    uint32_t rank; /* position in the list of merges: lower goes first */
    int32_t id;    /* what the two become */
};
struct brim_merge_table {
    struct brim_merge_slot *slots;
    uint64_t mask;
};

/* Room for n_merge merges. */
brim_status brim_merge_table_init(struct brim_merge_table *table, size_t n_merge, brim_error *err);
/* False when the pair is there already (the first stays). */
bool brim_merge_table_add(struct brim_merge_table *table, int32_t left, int32_t right,
                          uint32_t rank, int32_t id);
void brim_merge_table_free(struct brim_merge_table *table);

struct brim_bpe_symbol {
    int32_t id;          /* -1: merged into its left neighbour */
    uint32_t prev, next; /* indices; UINT32_MAX at the ends */
};
struct brim_bpe_candidate {
    uint64_t order; /* rank << 32 | position of the left symbol */
    int32_t id;     /* what the pair would become: tells a stale entry */
};
struct brim_bpe_scratch {
    int32_t *word; /* symbols of the word being merged; the caller fills it */
    size_t word_capacity;
    struct brim_bpe_symbol *symbols;
    struct brim_bpe_candidate *heap;
    size_t symbol_capacity; /* of symbols; heap holds three times as many */
};
/* Make scratch->word hold at least n symbols (contents are lost). */
brim_status brim_bpe_reserve(struct brim_bpe_scratch *scratch, size_t n, brim_error *err);
void brim_bpe_scratch_free(struct brim_bpe_scratch *scratch);

/* Merge scratch->word[0, n) in place, lowest rank first and leftmost among equals, until no pair is
 * in the table; *n_out receives the symbols left. O(n log n). */
brim_status brim_bpe_merge(const struct brim_merge_table *table, struct brim_bpe_scratch *scratch,
                           size_t n, size_t *n_out, brim_error *err);

#endif
