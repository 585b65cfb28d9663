/* SPDX-License-Identifier: Apache-2.0 */
#include "model/config.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>

/* Names as config.json spells them, then as GGUF does. The upper ends are far above any published
 * model and keep every product of two sizes inside 62 bits. */
static brim_status check_sizes(const struct brim_model_config *c, const char *path, brim_error *err)
{
    const struct {
        const char *key;
        int64_t value, low, high;
    } sizes[] = {
        {"num_hidden_layers (block_count)", c->n_layer, 1, 4096},
        {"hidden_size (embedding_length)", c->n_embd, 1, 1 << 20},
        {"intermediate_size (feed_forward_length)", c->n_ff, 1, 1 << 24},
        {"num_attention_heads (attention.head_count)", c->n_head, 1, 1 << 14},
        {"num_key_value_heads (attention.head_count_kv)", c->n_head_kv, 1, 1 << 14},
        {"head_dim (attention.key_length)", c->head_dim, 8, 256},
        {"vocab_size (rows of the embedding)", c->n_vocab, 1, 1 << 24},
        {"max_position_embeddings (context_length)", c->n_context, 1, INT32_MAX},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        BRIM_REQUIRE(err, sizes[i].value >= sizes[i].low && sizes[i].value <= sizes[i].high,
                     BRIM_E_UNSUPPORTED, "%s: %s is %" PRId64 ", must be %" PRId64 " to %" PRId64,
                     path, sizes[i].key, sizes[i].value, sizes[i].low, sizes[i].high);
    BRIM_REQUIRE(err, c->head_dim % 8 == 0, BRIM_E_UNSUPPORTED,
                 "%s: head_dim (attention.key_length) is %" PRId64 ", must be a multiple of 8",
                 path, c->head_dim);
    BRIM_REQUIRE(err, c->n_head % c->n_head_kv == 0, BRIM_E_UNSUPPORTED,
                 "%s: num_attention_heads (attention.head_count) %" PRId64
                 " is no multiple of num_key_value_heads (attention.head_count_kv) %" PRId64,
                 path, c->n_head, c->n_head_kv);
    BRIM_REQUIRE(err, c->norm_eps >= 0 && c->norm_eps < 1, BRIM_E_UNSUPPORTED,
                 "%s: rms_norm_eps (attention.layer_norm_rms_epsilon) is %g, must be 0 to 1", path,
                 (double)c->norm_eps);
    return BRIM_OK;
}

static brim_status check_rope(const struct brim_model_config *c, const char *path, brim_error *err)
{
    BRIM_REQUIRE(err, isfinite(c->rope_theta) && c->rope_theta > 1, BRIM_E_UNSUPPORTED,
                 "%s: rope_theta (rope.freq_base) is %g, must be above 1", path, c->rope_theta);
    if (c->rope.kind == BRIM_ROPE_NONE) return BRIM_OK;
    BRIM_REQUIRE(err, isfinite(c->rope.factor) && c->rope.factor >= 1 && c->rope.factor <= 1e6,
                 BRIM_E_UNSUPPORTED, "%s: rope scaling factor is %g, must be 1 to 1000000", path,
                 c->rope.factor);
    if (c->rope.kind == BRIM_ROPE_LINEAR) return BRIM_OK;
    BRIM_REQUIRE(err, c->rope.original_context >= 1 && c->rope.original_context <= INT32_MAX,
                 BRIM_E_UNSUPPORTED,
                 "%s: original_max_position_embeddings (rope.scaling.original_context_length) is "
                 "%g, must be 1 to %d",
                 path, c->rope.original_context, INT32_MAX);
    if (c->rope.kind == BRIM_ROPE_LLAMA3) {
        BRIM_REQUIRE(err,
                     c->rope.low_freq_factor > 0 &&
                         c->rope.low_freq_factor < c->rope.high_freq_factor &&
                         c->rope.high_freq_factor <= 1e6,
                     BRIM_E_UNSUPPORTED,
                     "%s: low_freq_factor %g and high_freq_factor %g must be positive and "
                     "ascending",
                     path, c->rope.low_freq_factor, c->rope.high_freq_factor);
        return BRIM_OK;
    }
    BRIM_REQUIRE(err,
                 c->rope.beta_slow > 0 && c->rope.beta_slow <= c->rope.beta_fast &&
                     c->rope.beta_fast <= 1e6,
                 BRIM_E_UNSUPPORTED,
                 "%s: YaRN's beta_slow %g and beta_fast %g must be positive and ascending", path,
                 c->rope.beta_slow, c->rope.beta_fast);
    const double scales[] = {c->rope.attention_factor, c->rope.mscale, c->rope.mscale_all_dim};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        BRIM_REQUIRE(err, scales[i] >= 0 && scales[i] <= 1e6, BRIM_E_UNSUPPORTED,
                     "%s: YaRN's attention_factor, mscale or mscale_all_dim is %g, must be 0 to "
                     "1000000",
                     path, scales[i]);
    return BRIM_OK;
}

brim_status brim_model_config_check(const struct brim_model_config *c, const char *path,
                                    brim_error *err)
{
    BRIM_TRY(check_sizes(c, path, err));
    BRIM_TRY(check_rope(c, path, err));
    BRIM_REQUIRE(err, c->n_eos >= 0 && c->n_eos <= BRIM_MAX_EOS, BRIM_E_UNSUPPORTED,
                 "%s: eos_token_id has %d ids, at most %d work", path, c->n_eos, BRIM_MAX_EOS);
    for (int i = 0; i < c->n_eos; i++)
        BRIM_REQUIRE(err, c->eos[i] >= 0 && c->eos[i] < c->n_vocab, BRIM_E_FORMAT,
                     "%s: eos_token_id %" PRId32 " is outside the vocabulary of %" PRId64, path,
                     c->eos[i], c->n_vocab);
    BRIM_REQUIRE(err, c->bos >= -1 && c->bos < c->n_vocab, BRIM_E_FORMAT,
                 "%s: bos_token_id %" PRId32 " is outside the vocabulary of %" PRId64, path, c->bos,
                 c->n_vocab);
    BRIM_REQUIRE(err, c->bos >= 0 || !c->add_bos, BRIM_E_FORMAT,
                 "%s: add_bos_token is true but there is no bos_token_id", path);
    return BRIM_OK;
}
