/* SPDX-License-Identifier: Apache-2.0
 * A GGUF file from anyone: parse, read the configuration, and ask for every weight by both
 * spellings of its name. */
#include "fuzz/fuzz.h"

#include <string.h>

#include "load/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct brim_gguf gguf;
    brim_error err = {0};
    if (brim_gguf_parse(&gguf, data, size, "fuzz.gguf", &err) != BRIM_OK) {
        FUZZ_REQUIRE(err.text[0] && !gguf.values && !gguf.tensors.items);
        return 0;
    }
    for (size_t i = 0; i < gguf.n_value; i++) {
        const struct brim_gguf_value *value = &gguf.values[i];
        if (value->type != BRIM_GGUF_STRING) continue;
        const uint8_t *at = value->data;
        unsigned sum = 0;
        for (uint64_t k = 0; k < value->n_item; k++) {
            struct brim_str text = brim_gguf_next_string(&at);
            for (size_t c = 0; c < text.len; c++) sum += (unsigned char)text.data[c];
        }
        FUZZ_REQUIRE(at >= data && at <= data + size && sum != 1u << 31);
    }
    struct brim_model_config config;
    if (brim_gguf_config(&gguf, "fuzz.gguf", &config, &err) == BRIM_OK) {
        static const char *const names[] = {"model.embed_tokens.weight",
                                            "model.norm.weight",
                                            "lm_head.weight",
                                            "model.layers.0.self_attn.q_proj.weight",
                                            "model.layers.0.self_attn.q_proj.bias",
                                            "model.layers.0.self_attn.k_proj.weight",
                                            "model.layers.0.mlp.down_proj.weight",
                                            "model.layers.0.input_layernorm.weight"};
        for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
            struct brim_weight weight;
            brim_status status =
                brim_gguf_weight(&gguf, &config, "fuzz.gguf", names[i], &weight, &err);
            FUZZ_REQUIRE(status == BRIM_OK || err.text[0]);
        }
    }
    brim_gguf_free(&gguf);
    return 0;
}
