#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rotary frequencies of Hugging Face transformers for tests/unit/rope_vectors.h.

usage: gen_rope_vectors.py > tests/unit/rope_vectors.h     (needs torch, transformers)
"""

import torch
import transformers
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

CASES = [
    ("Llama 3.1 8B", 128, 500000.0, 131072, dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
     high_freq_factor=4.0, original_max_position_embeddings=8192)),
    ("Llama 3.2 1B", 64, 500000.0, 131072, dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0,
     high_freq_factor=4.0, original_max_position_embeddings=8192)),
    ("linear", 64, 10000.0, 16384, dict(rope_type="linear", factor=4.0)),
    ("Qwen3 with YaRN", 128, 1000000.0, 131072, dict(rope_type="yarn", factor=4.0,
     original_max_position_embeddings=32768)),
    ("YaRN, own factors", 64, 10000.0, 8192, dict(rope_type="yarn", factor=2.5, beta_fast=24.0, beta_slow=2.0,
     attention_factor=1.25, original_max_position_embeddings=4096)),
    ("YaRN, not truncated", 64, 150000.0, 131072, dict(rope_type="yarn", factor=32.0, truncate=False,
     original_max_position_embeddings=4096)),
    ("YaRN, mscale", 64, 10000.0, 163840, dict(rope_type="yarn", factor=40.0, mscale=1.0, mscale_all_dim=0.707,
     original_max_position_embeddings=4096)),
    ("YaRN, tiny context", 16, 10000.0, 64, dict(rope_type="yarn", factor=4.0,
     original_max_position_embeddings=16)),
]


def main():
    print("/* SPDX-License-Identifier: Apache-2.0")
    print(" * Made by tools/gen_rope_vectors.py with transformers %s, torch %s: float32 there. */"
          % (transformers.__version__, torch.__version__))
    print("#ifndef BRIM_TESTS_ROPE_VECTORS_H\n#define BRIM_TESTS_ROPE_VECTORS_H\n")
    print('#include "tensor/rope.h"\n')
    print("/* clang-format off */\nstatic const struct {\n    const char *name;\n    int head_dim;\n    double theta;")
    print("    struct brim_rope_config config;\n    double amplitude, inv_freq[64];\n} rope_vectors[] = {")
    for name, dim, theta, n_context, rope in CASES:
        config = LlamaConfig(hidden_size=4 * dim, num_attention_heads=4, head_dim=dim,
                             max_position_embeddings=n_context, rope_parameters=dict(rope, rope_theta=theta))
        inv_freq, amplitude = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, "cpu")
        fields = [".kind = BRIM_ROPE_" + rope["rope_type"].upper(), ".factor = %r" % rope["factor"]]
        names = {"original_max_position_embeddings": "original_context"}
        for key in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor", "attention_factor",
                    "mscale", "mscale_all_dim"):
            if key in rope:
                fields.append(".%s = %r" % (names.get(key, key), rope[key]))
        if rope["rope_type"] == "yarn":
            fields.append(".beta_fast = %r" % rope.get("beta_fast", 32))
            fields.append(".beta_slow = %r" % rope.get("beta_slow", 1))
            fields.append(".truncate = %s" % str(rope.get("truncate", True)).lower())
        print('    {"%s", %d, %r,\n     {%s},\n     %r,' % (name, dim, theta, ", ".join(fields), float(amplitude)))
        values = ["%.9g" % x for x in inv_freq.tolist()]
        rows = [", ".join(values[i:i + 6]) for i in range(0, len(values), 6)]
        print("     {" + ",\n      ".join(rows) + "}},")
    print("};\n/* clang-format on */\n\n#endif")


main()
