/* SPDX-License-Identifier: Apache-2.0
 * A config.json from anyone, and after a NUL byte its generation_config.json. */
#include "fuzz/fuzz.h"

#include <string.h>

#include "load/hf_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct brim_hf_config config;
    brim_error err = {0};
    const char *text = (const char *)data;
    const uint8_t *gap = size ? memchr(data, 0, size) : NULL;
    size_t n_config = gap ? (size_t)(gap - data) : size;
    const char *generation = gap ? text + n_config + 1 : NULL;
    size_t n_generation = gap ? size - n_config - 1 : 0;
    if (brim_hf_config_parse(&config, text, n_config, generation, n_generation, "fuzz.json",
                             &err) != BRIM_OK) {
        FUZZ_REQUIRE(err.text[0] && !config.overrides);
        return 0;
    }
    FUZZ_REQUIRE(config.model.n_layer > 0 && config.model.n_vocab > 0);
    FUZZ_REQUIRE(config.model.n_eos >= 0 && config.model.n_eos <= BRIM_MAX_EOS);
    int group;
    int bits;
    brim_hf_config_quant(&config, "model.layers.0.mlp.down_proj", 28, &group, &bits);
    brim_hf_config_free(&config);
    return 0;
}
