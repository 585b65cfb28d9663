/* SPDX-License-Identifier: Apache-2.0
 * The tiny checkpoints of tests/golden/models and their vectors.bin (tools/gen_model_vectors.py).
 */
#ifndef BRIM_TESTS_GOLDEN_H
#define BRIM_TESTS_GOLDEN_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN_DIR BRIM_SOURCE_DIR "/tests/golden/models/"

static const char *const golden_names[] = {
    "llama_tied",     "llama_llama3", "llama_linear",  "qwen2_bias",    "qwen2_own_head",
    "qwen3_head_dim", "qwen3_yarn",   "qwen3_mlx_g64", "qwen3_mlx_g32",
};
enum { N_GOLDEN = sizeof golden_names / sizeof *golden_names };

struct golden {
    char path[256]; /* of the checkpoint */
    int32_t n_token, n_vocab;
    int32_t *ids;
    float *logits; /* [n_token][n_vocab] */
    float largest; /* absolute value */
};

static inline void golden_check(int ok, const char *what, const char *path)
{
    if (ok) return;
    fprintf(stderr, "%s: %s\n", path, what);
    exit(1);
}

/* Exits when the file is not there or not whole: a golden is never skipped. */
static inline struct golden golden_load(const char *name)
{
    struct golden g;
    char path[300], magic[8];
    snprintf(g.path, sizeof g.path, GOLDEN_DIR "%s", name);
    snprintf(path, sizeof path, "%s/vectors.bin", g.path);
    FILE *f = fopen(path, "rb");
    golden_check(f != NULL, "cannot open", path);
    golden_check(fread(magic, 1, 8, f) == 8 && memcmp(magic, "brimvec1", 8) == 0, "no magic", path);
    golden_check(fread(&g.n_token, 4, 1, f) == 1 && fread(&g.n_vocab, 4, 1, f) == 1, "short", path);
    size_t n_logit = (size_t)g.n_token * (size_t)g.n_vocab;
    g.ids = malloc((size_t)g.n_token * 4);
    g.logits = malloc(n_logit * 4);
    golden_check(g.ids && g.logits, "out of memory", path);
    golden_check(fread(g.ids, 4, (size_t)g.n_token, f) == (size_t)g.n_token, "short", path);
    golden_check(fread(g.logits, 4, n_logit, f) == n_logit, "short", path);
    fclose(f);
    g.largest = 0;
    for (size_t i = 0; i < n_logit; i++) {
        float a = g.logits[i] < 0 ? -g.logits[i] : g.logits[i];
        if (a > g.largest) g.largest = a;
    }
    return g;
}

static inline void golden_free(struct golden *g)
{
    free(g->ids);
    free(g->logits);
}

#endif
