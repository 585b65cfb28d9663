/* SPDX-License-Identifier: Apache-2.0
 * Finding added tokens. */
#include "text/added.h"

#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "text/utf8.h"

void brim_added_init(struct brim_added *added)
{
    *added = (struct brim_added){0};
    memset(added->first, 0xFF, sizeof added->first);
}

void brim_added_free(struct brim_added *added)
{
    brim_free(added->tokens);
    brim_free(added->nodes);
    brim_added_init(added);
}

/* The child of `parent` (-1: the root) for a byte, made when it is not there; -1 without memory. */
static int32_t child_for(struct brim_added *added, int32_t parent, uint8_t byte)
{
    int32_t *link = parent < 0 ? &added->first[byte] : &added->nodes[parent].child;
    while (*link >= 0 && added->nodes[*link].byte != byte) link = &added->nodes[*link].sibling;
    if (*link >= 0) return *link;
    int32_t made = (int32_t)added->n_node;
    *link = made; /* before the array moves; undone below */
    if (added->n_node == added->node_capacity) {
        size_t capacity = added->node_capacity * 2 + 256;
        struct brim_added_node *grown =
            brim_realloc(added->nodes, added->n_node * sizeof *grown, capacity * sizeof *grown);
        if (!grown) {
            *link = -1;
            return -1;
        }
        added->nodes = grown;
        added->node_capacity = capacity;
    }
    added->nodes[made] = (struct brim_added_node){-1, -1, -1, byte};
    added->n_node++;
    return made;
}

brim_status brim_added_insert(struct brim_added *added, const char *text,
                              const struct brim_added_token *token, brim_error *err)
{
    BRIM_REQUIRE(err, token->len && added->n_node < INT32_MAX - token->len, BRIM_E_FORMAT,
                 "an added token is empty or too long");
    if (added->n_token == added->token_capacity) {
        size_t capacity = added->token_capacity * 2 + 32;
        struct brim_added_token *grown =
            brim_realloc(added->tokens, added->n_token * sizeof *grown, capacity * sizeof *grown);
        BRIM_REQUIRE(err, grown, BRIM_E_NO_MEMORY, "no memory for added tokens");
        added->tokens = grown;
        added->token_capacity = capacity;
    }
    int32_t node = -1;
    for (uint32_t i = 0; i < token->len; i++) {
        node = child_for(added, node, (uint8_t)text[i]);
        BRIM_REQUIRE(err, node >= 0, BRIM_E_NO_MEMORY, "no memory for added tokens");
    }
    BRIM_REQUIRE(err, added->nodes[node].token < 0, BRIM_E_FORMAT,
                 "the added token \"%.*s\" appears twice", (int)(token->len < 64 ? token->len : 64),
                 text);
    added->nodes[node].token = (int32_t)added->n_token;
    added->tokens[added->n_token++] = *token;
    return BRIM_OK;
}

/* The longest token that text[0, len) starts with, or NULL. */
static const struct brim_added_token *longest(const struct brim_added *added, const char *text,
                                              size_t len)
{
    int32_t found = -1;
    int32_t node = added->first[(uint8_t)text[0]];
    for (size_t at = 1; node >= 0; at++) {
        const struct brim_added_node *n = &added->nodes[node];
        if (n->token >= 0) found = n->token;
        if (at == len) break;
        node = n->child;
        while (node >= 0 && added->nodes[node].byte != (uint8_t)text[at])
            node = added->nodes[node].sibling;
    }
    return found < 0 ? NULL : &added->tokens[found];
}

/* White_Space of Unicode. */
static bool is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

/* Letters, marks, decimal digits, connectors and the joiners. Letter-like numbers and symbols that
 * Unicode also calls alphabetic are Nl and So. */
static bool is_word(uint32_t c)
{
    switch (utf8proc_category((int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
               (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
               (c >= 0x1F170 && c <= 0x1F189);
    }
}

/* The character that ends at text + at; at > 0. */
static uint32_t char_before(const char *text, size_t at, size_t *begin)
{
    size_t start = at - 1;
    while (start && ((uint8_t)text[start] & 0xC0) == 0x80) start--;
    *begin = start;
    int len;
    return brim_utf8_decode((const uint8_t *)text + start, &len);
}

static bool stands_alone(const char *text, size_t len, size_t begin, size_t end)
{
    size_t ignored;
    int used;
    if (begin && is_word(char_before(text, begin, &ignored))) return false;
    return end == len || !is_word(brim_utf8_decode((const uint8_t *)text + end, &used));
}

brim_status brim_added_split(const struct brim_added *added, bool parse_special, const char *text,
                             size_t len, brim_added_fn *fn, void *ctx, brim_error *err)
{
    size_t done = 0; /* everything before has been handed on */
    for (size_t at = 0; at < len && added->n_token;) {
        const struct brim_added_token *token =
            added->first[(uint8_t)text[at]] < 0 ? NULL : longest(added, text + at, len - at);
        if (!token) {
            at++;
            continue;
        }
        size_t begin = at, end = at + token->len;
        at = end; /* a match that is not taken is passed over all the same */
        if (token->special && !parse_special) continue;
        if (token->single_word && !stands_alone(text, len, begin, end)) continue;
        if (token->lstrip) {
            size_t start = begin, before;
            while (start > done && is_space(char_before(text, start, &before))) start = before;
            begin = start;
        }
        if (token->rstrip) {
            int used;
            while (end < len && is_space(brim_utf8_decode((const uint8_t *)text + end, &used)))
                end += (size_t)used;
            if (end > at) at = end;
        }
        if (begin > done) BRIM_TRY(fn(ctx, NULL, text + done, begin - done, err));
        BRIM_TRY(fn(ctx, token, text + begin, end - begin, err));
        done = end;
    }
    if (done < len) BRIM_TRY(fn(ctx, NULL, text + done, len - done, err));
    return BRIM_OK;
}
