/* SPDX-License-Identifier: Apache-2.0
 * Rotary position embedding as numbers: the frequency of every pair and the cosines and sines of a
 * run of positions. Frequencies are computed in double precision once per model; tables are filled
 * per step, so a long context costs no memory. Pairs are (i, i + head_dim / 2). */
#ifndef BRIM_TENSOR_ROPE_H
#define BRIM_TENSOR_ROPE_H

#include <stdbool.h>
#include <stdint.h>

enum brim_rope_scaling { BRIM_ROPE_NONE, BRIM_ROPE_LINEAR, BRIM_ROPE_LLAMA3, BRIM_ROPE_YARN };

/* The rope_scaling object of config.json, defaults filled in by the loader. */
struct brim_rope_config {
    enum brim_rope_scaling kind;
    double factor;
    double original_context;
    double low_freq_factor, high_freq_factor;      /* LLAMA3 */
    double beta_fast, beta_slow, attention_factor; /* YARN; attention_factor 0: derived */
    double mscale, mscale_all_dim;                 /* YARN, 0 when absent */
    bool truncate;                                 /* YARN, default true */
};

/* inv_freq[head_dim / 2]: the angle of pair i at position p is p * inv_freq[i]. *amplitude
 * multiplies every cosine and sine: 1, or YaRN's attention factor. theta > 1, factor > 0,
 * head_dim even; numbers outside were refused when the model was loaded. */
void brim_rope_frequencies(const struct brim_rope_config *config, double theta, int head_dim,
                           double *inv_freq, double *amplitude);

/* cos_out, sin_out[n_pos][n_pair] of positions first_pos..., angles in double. */
void brim_rope_table(const double *inv_freq, int n_pair, double amplitude, int64_t first_pos,
                     int64_t n_pos, float *cos_out, float *sin_out);

#endif
