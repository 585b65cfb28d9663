/* SPDX-License-Identifier: Apache-2.0
 * Byte-pair merging. Short words (nearly all) rescan an array of ranks, which beats any structure
 * up to a few dozen symbols; longer ones go through a heap over a linked list. Both give the same.
 */
#include "text/bpe.h"

#include <string.h>

#include "base/mem.h"

enum { SHORT_WORD = 48 };

static uint64_t slot_of(const struct brim_merge_table *table, uint64_t pair)
{
    uint64_t hash = pair * 0x9E3779B97F4A7C15u;
    return (hash ^ hash >> 32) & table->mask;
}

brim_status brim_merge_table_init(struct brim_merge_table *table, size_t n_merge, brim_error *err)
{
    uint64_t n_slot = 16;
    while (n_slot < (uint64_t)n_merge * 2) n_slot *= 2;
    table->slots = brim_alloc(n_slot * sizeof *table->slots);
    BRIM_REQUIRE(err, table->slots, BRIM_E_NO_MEMORY, "no memory for %zu merges", n_merge);
    memset(table->slots, 0xFF, n_slot * sizeof *table->slots);
    table->mask = n_slot - 1;
    return BRIM_OK;
}

bool brim_merge_table_add(struct brim_merge_table *table, int32_t left, int32_t right,
                          uint32_t rank, int32_t id)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t at = slot_of(table, pair);
    while (table->slots[at].pair != UINT64_MAX) {
        if (table->slots[at].pair == pair) return false;
        at = (at + 1) & table->mask;
    }
    table->slots[at] = (struct brim_merge_slot){pair, rank, id};
    return true;
}

void brim_merge_table_free(struct brim_merge_table *table)
{
    brim_free(table->slots);
    *table = (struct brim_merge_table){0};
}

/* The merge of two ids, or NULL. */
static const struct brim_merge_slot *find(const struct brim_merge_table *table, int32_t left,
                                          int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    for (uint64_t at = slot_of(table, pair);; at = (at + 1) & table->mask) {
        const struct brim_merge_slot *slot = &table->slots[at];
        if (slot->pair == pair) return slot;
        if (slot->pair == UINT64_MAX) return NULL;
    }
}

brim_status brim_bpe_reserve(struct brim_bpe_scratch *scratch, size_t n, brim_error *err)
{
    if (n <= scratch->word_capacity) return BRIM_OK;
    BRIM_REQUIRE(err, n < UINT32_MAX, BRIM_E_UNSUPPORTED, "a word of %zu bytes is too long", n);
    size_t capacity = n + n / 2 + 64;
    int32_t *word = brim_alloc(capacity * sizeof *word);
    BRIM_REQUIRE(err, word, BRIM_E_NO_MEMORY, "no memory for a word of %zu bytes", n);
    brim_free(scratch->word);
    scratch->word = word;
    scratch->word_capacity = capacity;
    return BRIM_OK;
}

void brim_bpe_scratch_free(struct brim_bpe_scratch *scratch)
{
    brim_free(scratch->word);
    brim_free(scratch->symbols);
    brim_free(scratch->heap);
    *scratch = (struct brim_bpe_scratch){0};
}

static size_t merge_short(const struct brim_merge_table *table, int32_t *word, size_t n)
{
    uint32_t rank[SHORT_WORD]; /* of the pair (i, i + 1) */
    int32_t becomes[SHORT_WORD];
    for (size_t i = 0; i + 1 < n; i++) {
        const struct brim_merge_slot *slot = find(table, word[i], word[i + 1]);
        rank[i] = slot ? slot->rank : UINT32_MAX;
        becomes[i] = slot ? slot->id : -1;
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == UINT32_MAX) break;
        word[best] = becomes[best];
        memmove(word + best + 1, word + best + 2, (n - best - 2) * sizeof *word);
        memmove(rank + best, rank + best + 1, (n - best - 2) * sizeof *rank);
        memmove(becomes + best, becomes + best + 1, (n - best - 2) * sizeof *becomes);
        n--;
        for (size_t i = best ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            const struct brim_merge_slot *slot = find(table, word[i], word[i + 1]);
            rank[i] = slot ? slot->rank : UINT32_MAX;
            becomes[i] = slot ? slot->id : -1;
        }
    }
    return n;
}

static void heap_push(struct brim_bpe_candidate *heap, size_t *n, struct brim_bpe_candidate item)
{
    size_t at = (*n)++;
    while (at) {
        size_t parent = (at - 1) / 2;
        if (heap[parent].order <= item.order) break;
        heap[at] = heap[parent];
        at = parent;
    }
    heap[at] = item;
}

static struct brim_bpe_candidate heap_pop(struct brim_bpe_candidate *heap, size_t *n)
{
    struct brim_bpe_candidate top = heap[0], last = heap[--*n];
    size_t at = 0;
    for (;;) {
        size_t child = at * 2 + 1;
        if (child >= *n) break;
        if (child + 1 < *n && heap[child + 1].order < heap[child].order) child++;
        if (last.order <= heap[child].order) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

static void consider(const struct brim_merge_table *table, struct brim_bpe_scratch *scratch,
                     size_t *n_heap, uint32_t left)
{
    const struct brim_bpe_symbol *s = scratch->symbols;
    if (left == UINT32_MAX || s[left].next == UINT32_MAX) return;
    const struct brim_merge_slot *slot = find(table, s[left].id, s[s[left].next].id);
    if (!slot) return;
    heap_push(scratch->heap, n_heap,
              (struct brim_bpe_candidate){(uint64_t)slot->rank << 32 | left, slot->id});
}

static brim_status reserve_symbols(struct brim_bpe_scratch *scratch, size_t n, brim_error *err)
{
    if (n <= scratch->symbol_capacity) return BRIM_OK;
    brim_free(scratch->symbols);
    brim_free(scratch->heap);
    scratch->symbol_capacity = 0;
    size_t capacity = n + n / 2;
    scratch->symbols = brim_alloc(capacity * sizeof *scratch->symbols);
    /* Pushes: n - 1 at first, and two for each of at most n - 1 merges. */
    scratch->heap = brim_alloc(3 * capacity * sizeof *scratch->heap);
    BRIM_REQUIRE(err, scratch->symbols && scratch->heap, BRIM_E_NO_MEMORY,
                 "no memory for a word of %zu bytes", n);
    scratch->symbol_capacity = capacity;
    return BRIM_OK;
}

brim_status brim_bpe_merge(const struct brim_merge_table *table, struct brim_bpe_scratch *scratch,
                           size_t n, size_t *n_out, brim_error *err)
{
    int32_t *word = scratch->word;
    if (n <= SHORT_WORD) {
        *n_out = merge_short(table, word, n);
        return BRIM_OK;
    }
    BRIM_TRY(reserve_symbols(scratch, n, err));
    struct brim_bpe_symbol *s = scratch->symbols;
    for (size_t i = 0; i < n; i++) {
        s[i].id = word[i];
        s[i].prev = i ? (uint32_t)(i - 1) : UINT32_MAX;
        s[i].next = i + 1 < n ? (uint32_t)(i + 1) : UINT32_MAX;
    }
    size_t n_heap = 0;
    for (size_t i = 0; i + 1 < n; i++) consider(table, scratch, &n_heap, (uint32_t)i);
    while (n_heap) {
        struct brim_bpe_candidate top = heap_pop(scratch->heap, &n_heap);
        uint32_t left = (uint32_t)top.order, right = s[left].next;
        if (s[left].id < 0 || right == UINT32_MAX) continue;
        const struct brim_merge_slot *slot = find(table, s[left].id, s[right].id);
        /* A symbol only ever grows, so the same position with the same result is the same pair. */
        if (!slot || slot->id != top.id) continue;
        s[left].id = top.id;
        s[left].next = s[right].next;
        s[right].id = -1;
        if (s[left].next != UINT32_MAX) s[s[left].next].prev = left;
        consider(table, scratch, &n_heap, s[left].prev);
        consider(table, scratch, &n_heap, left);
    }
    size_t n_left = 0;
    for (uint32_t i = 0; i != UINT32_MAX; i = s[i].next) word[n_left++] = s[i].id;
    *n_out = n_left;
    return BRIM_OK;
}
