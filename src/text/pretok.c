/* SPDX-License-Identifier: Apache-2.0
 * Running the split steps with PCRE2. Words go down the steps one by one, so nothing is stored but
 * the match data; the offsets of a match are read before the next step overwrites them. */
#include "text/pretok.h"

#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/mem.h"

enum { MAX_STEP = 8 };

struct step {
    pcre2_code *code;
    enum brim_split_behaviour behaviour;
};

struct brim_pretok {
    struct step steps[MAX_STEP];
    int n_step;
    uint64_t fingerprint;
    pcre2_general_context *memory;
    pcre2_compile_context *compile;
};

struct brim_pretok_match {
    pcre2_match_data *data;
    pcre2_match_context *context;
};

const char brim_pretok_gpt2_pattern[] =
    "'(?:s|t|re|ve|m|ll|d)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static void *pcre2_take(PCRE2_SIZE n_bytes, void *ctx)
{
    (void)ctx;
    return brim_alloc(n_bytes);
}

static void pcre2_give(void *ptr, void *ctx)
{
    (void)ctx;
    brim_free(ptr);
}

brim_status brim_pretok_create(struct brim_pretok **out, brim_error *err)
{
    *out = NULL;
    struct brim_pretok *pretok = brim_calloc(1, sizeof *pretok);
    BRIM_REQUIRE(err, pretok, BRIM_E_NO_MEMORY, "no memory for a pre-tokenizer");
    pretok->memory = pcre2_general_context_create(pcre2_take, pcre2_give, NULL);
    if (pretok->memory) pretok->compile = pcre2_compile_context_create(pretok->memory);
    if (!pretok->compile) {
        brim_pretok_free(&pretok);
        return brim_fail(err, BRIM_E_NO_MEMORY, "no memory for a pre-tokenizer");
    }
    *out = pretok;
    return BRIM_OK;
}

void brim_pretok_free(struct brim_pretok **pretok)
{
    struct brim_pretok *p = *pretok;
    if (!p) return;
    for (int i = 0; i < p->n_step; i++) pcre2_code_free(p->steps[i].code);
    if (p->compile) pcre2_compile_context_free(p->compile);
    if (p->memory) pcre2_general_context_free(p->memory);
    brim_free(p);
    *pretok = NULL;
}

brim_status brim_pretok_add(struct brim_pretok *pretok, const char *pattern, size_t len,
                            enum brim_split_behaviour behaviour, const char *path, brim_error *err)
{
    BRIM_REQUIRE(err, pretok->n_step < MAX_STEP, BRIM_E_UNSUPPORTED,
                 "%s: the pre-tokenizer has more than %d steps", path, MAX_STEP);
    char *translated;
    size_t n;
    BRIM_TRY(brim_pretok_translate(&translated, &n, pattern, len, path, err));
    int code;
    PCRE2_SIZE at;
    pcre2_code *compiled =
        pcre2_compile((PCRE2_SPTR)translated, n,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK | PCRE2_NEVER_BACKSLASH_C, &code,
                      &at, pretok->compile);
    brim_free(translated);
    if (!compiled) {
        if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED)
            return brim_fail(err, BRIM_E_NO_MEMORY, "no memory for a pattern");
        char text[128];
        if (pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text) < 0) text[0] = '\0';
        return brim_fail(err, BRIM_E_FORMAT, "%s: the pre-tokenizer's pattern: %s", path, text);
    }
    /* Without a JIT (no executable memory) matching is only slower. */
    (void)pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
    pretok->fingerprint = brim_pretok_fold(pretok->fingerprint, pattern, len, behaviour);
    pretok->steps[pretok->n_step++] = (struct step){compiled, behaviour};
    return BRIM_OK;
}

uint64_t brim_pretok_fingerprint(const struct brim_pretok *pretok)
{
    return pretok->fingerprint;
}

/* FNV-1a, 64 bits. */
uint64_t brim_pretok_fold(uint64_t fingerprint, const char *pattern, size_t len,
                          enum brim_split_behaviour behaviour)
{
    uint64_t hash = fingerprint ^ 0xCBF29CE484222325u;
    for (size_t i = 0; i <= len; i++) {
        hash ^= i < len ? (uint8_t)pattern[i] : 0x100u + (unsigned)behaviour;
        hash *= 0x100000001B3u;
    }
    return hash;
}

brim_status brim_pretok_match_create(struct brim_pretok_match **out,
                                     const struct brim_pretok *pretok, brim_error *err)
{
    *out = NULL;
    struct brim_pretok_match *match = brim_calloc(1, sizeof *match);
    BRIM_REQUIRE(err, match, BRIM_E_NO_MEMORY, "no memory to match a pattern");
    match->data = pcre2_match_data_create(1, pretok->memory);
    match->context = pcre2_match_context_create(pretok->memory);
    if (!match->data || !match->context) {
        brim_pretok_match_free(&match);
        return brim_fail(err, BRIM_E_NO_MEMORY, "no memory to match a pattern");
    }
    *out = match;
    return BRIM_OK;
}

void brim_pretok_match_free(struct brim_pretok_match **match)
{
    struct brim_pretok_match *m = *match;
    if (!m) return;
    if (m->data) pcre2_match_data_free(m->data);
    if (m->context) pcre2_match_context_free(m->context);
    brim_free(m);
    *match = NULL;
}

/* One search from `from`. *begin == len when there is none. */
static brim_status search(const struct step *step, struct brim_pretok_match *match,
                          const char *text, size_t len, size_t from, size_t *begin, size_t *end,
                          brim_error *err)
{
    uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
    int rc =
        pcre2_match(step->code, (PCRE2_SPTR)text, len, from, options, match->data, match->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter keeps its frames on the heap */
        rc = pcre2_match(step->code, (PCRE2_SPTR)text, len, from, options | PCRE2_NO_JIT,
                         match->data, match->context);
    if (rc == PCRE2_ERROR_NOMATCH) {
        *begin = *end = len;
        return BRIM_OK;
    }
    if (rc == PCRE2_ERROR_NOMEMORY)
        return brim_fail(err, BRIM_E_NO_MEMORY, "no memory to match a pattern");
    if (rc < 0) {
        char reason[128];
        if (pcre2_get_error_message(rc, (PCRE2_UCHAR *)reason, sizeof reason) < 0) reason[0] = '\0';
        return brim_fail(err, BRIM_E_UNSUPPORTED,
                         "the pre-tokenizer's pattern gave up on a text of %zu bytes: %s", len,
                         reason);
    }
    const PCRE2_SIZE *offsets = pcre2_get_ovector_pointer(match->data);
    *begin = offsets[0];
    *end = offsets[1];
    return BRIM_OK;
}

static brim_status run_step(const struct brim_pretok *pretok, int i_step,
                            struct brim_pretok_match *match, const char *text, size_t len,
                            brim_word_fn *fn, void *ctx, brim_error *err)
{
    if (len == 0) return BRIM_OK;
    if (i_step == pretok->n_step) return fn(ctx, text, len, err);
    const struct step *step = &pretok->steps[i_step];
    size_t at = 0;
    while (at < len) {
        size_t begin = len, end = len;
        BRIM_TRY(search(step, match, text, len, at, &begin, &end, err));
        if (step->behaviour != BRIM_SPLIT_KEEP)
            BRIM_TRY(run_step(pretok, i_step + 1, match, text + at, begin - at, fn, ctx, err));
        if (step->behaviour != BRIM_SPLIT_DROP)
            BRIM_TRY(run_step(pretok, i_step + 1, match, text + begin, end - begin, fn, ctx, err));
        at = end;
    }
    return BRIM_OK;
}

brim_status brim_pretok_run(const struct brim_pretok *pretok, struct brim_pretok_match *match,
                            const char *text, size_t len, brim_word_fn *fn, void *ctx,
                            brim_error *err)
{
    /* What the patterns of real tokenizers need is a small multiple of the text; the limits only
     * stop a pattern whose backtracking explodes. */
    uint64_t limit = 1000000 + 64 * (uint64_t)len;
    pcre2_set_match_limit(match->context, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
    pcre2_set_heap_limit(match->context, 512 * 1024); /* KiB; used without a JIT */
    return run_step(pretok, 0, match, text, len, fn, ctx, err);
}
