/* SPDX-License-Identifier: Apache-2.0
 * Formulas: RoPE (Su et al., arXiv:2104.09864), linear interpolation (Chen et al.,
 * arXiv:2306.15595), YaRN (Peng et al., arXiv:2309.00071) and the frequency bands of Llama 3.1,
 * with the rounding and the defaults of Hugging Face transformers, whose configurations they read.
 */
#include "tensor/rope.h"

#include <math.h>

static const double two_pi = 6.283185307179586476925;

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

/* Long waves are stretched by the factor, short ones kept, those between mixed. */
static double llama3_frequency(const struct brim_rope_config *c, double freq)
{
    double wavelen = two_pi / freq;
    double low_wavelen = c->original_context / c->low_freq_factor;
    double high_wavelen = c->original_context / c->high_freq_factor;
    if (wavelen < high_wavelen) return freq;
    if (wavelen > low_wavelen) return freq / c->factor;
    double smooth = (c->original_context / wavelen - c->low_freq_factor) /
                    (c->high_freq_factor - c->low_freq_factor);
    return (1 - smooth) * freq / c->factor + smooth * freq;
}

/* The (fractional) pair, counted in dimensions, that turns n_turn times over the original context.
 */
static double yarn_dimension(const struct brim_rope_config *c, double theta, int head_dim,
                             double n_turn)
{
    return head_dim * log(c->original_context / (n_turn * two_pi)) / (2 * log(theta));
}

static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static double yarn_amplitude(const struct brim_rope_config *c)
{
    if (c->attention_factor != 0) return c->attention_factor;
    if (c->mscale != 0 && c->mscale_all_dim != 0)
        return yarn_mscale(c->factor, c->mscale) / yarn_mscale(c->factor, c->mscale_all_dim);
    return yarn_mscale(c->factor, 1);
}

void brim_rope_frequencies(const struct brim_rope_config *config, double theta, int head_dim,
                           double *inv_freq, double *amplitude)
{
    int n_pair = head_dim / 2;
    *amplitude = 1;
    double low = 0, high = 0; /* YaRN: the ramp between kept and stretched pairs */
    if (config->kind == BRIM_ROPE_YARN) {
        *amplitude = yarn_amplitude(config);
        low = yarn_dimension(config, theta, head_dim, config->beta_fast);
        high = yarn_dimension(config, theta, head_dim, config->beta_slow);
        if (config->truncate) {
            low = floor(low);
            high = ceil(high);
        }
        low = low > 0 ? low : 0;
        high = high < head_dim - 1 ? high : head_dim - 1;
        if (low == high) high += 0.001;
    }
    for (int i = 0; i < n_pair; i++) {
        double freq = pow(theta, -2.0 * i / head_dim);
        switch (config->kind) {
        case BRIM_ROPE_NONE:
            break;
        case BRIM_ROPE_LINEAR:
            freq /= config->factor;
            break;
        case BRIM_ROPE_LLAMA3:
            freq = llama3_frequency(config, freq);
            break;
        case BRIM_ROPE_YARN: {
            double ramp = clamp((i - low) / (high - low), 0, 1);
            freq = freq / config->factor * ramp + freq * (1 - ramp);
            break;
        }
        }
        inv_freq[i] = freq;
    }
}

void brim_rope_table(const double *inv_freq, int n_pair, double amplitude, int64_t first_pos,
                     int64_t n_pos, float *cos_out, float *sin_out)
{
    for (int64_t t = 0; t < n_pos; t++) {
        double position = (double)(first_pos + t);
        for (int i = 0; i < n_pair; i++) {
            double angle = position * inv_freq[i];
            cos_out[t * n_pair + i] = (float)(cos(angle) * amplitude);
            sin_out[t * n_pair + i] = (float)(sin(angle) * amplitude);
        }
    }
}
