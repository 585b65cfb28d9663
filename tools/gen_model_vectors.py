#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tiny random checkpoints and their logits from Hugging Face transformers, for tests/golden/models.

usage: gen_model_vectors.py OUT_DIR     (needs torch, transformers, tokenizers, safetensors, numpy)

Every model is a directory as published checkpoints are: config.json, generation_config.json,
tokenizer.json and one .safetensors file. Beside them lies vectors.bin, little-endian:
  char magic[8] = "brimvec1"; int32 n_token, n_vocab; int32 ids[n_token]; float32 logits[n_token][n_vocab]
The logits are those of transformers in float32 (eager attention) on the very values in the files:
16-bit weights are widened, 4-bit weights are dequantized first (quantized models are thus compared
with their dense twin).
"""

import json
import math
import struct
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

N_VOCAB = 512  # rows of the embedding
N_MERGED = 476  # tokens before the special ones: the rows after them are vocabulary padding
N_TOKEN = 48  # longer than every original context below, so that scaled frequencies matter
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

TEXT = """The quick brown fox jumps over the lazy dog. It was the best of times, it was the worst of
times, it was the age of wisdom, it was the age of foolishness. Call me Ishmael. Some years ago, never
mind how long precisely, having little or no money in my purse, I thought I would sail about a little
and see the watery part of the world. All happy families are alike; every unhappy family is unhappy in
its own way. It is a truth universally acknowledged, that a single man in possession of a good
fortune, must be in want of a wife.
"""


def base(model_type, arch, **fields):
    config = {
        "architectures": [arch],
        "model_type": model_type,
        "vocab_size": N_VOCAB,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "max_position_embeddings": 128,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": N_MERGED,
        "eos_token_id": N_MERGED + 2,
    }
    config.update(fields)
    return config


def llama(**fields):
    return base("llama", "LlamaForCausalLM", **fields)


def qwen2(**fields):
    fields = {"use_sliding_window": False, **fields}
    config = base("qwen2", "Qwen2ForCausalLM", **fields)
    del config["attention_bias"]
    return config


def qwen3(**fields):
    return base("qwen3", "Qwen3ForCausalLM", use_sliding_window=False, **fields)


def shape(n_embd, n_ff, n_layer, n_head, n_head_kv, head_dim=None):
    fields = {
        "hidden_size": n_embd,
        "intermediate_size": n_ff,
        "num_hidden_layers": n_layer,
        "num_attention_heads": n_head,
        "num_key_value_heads": n_head_kv,
    }
    if head_dim:
        fields["head_dim"] = head_dim
    return fields


# name: (config, dtype of the file, 4-bit group or 0)
MODELS = {
    # SmolLM2's form: tied, three query heads per key head
    "llama_tied": (llama(**shape(96, 160, 2, 6, 2), tie_word_embeddings=True), "bf16", 0),
    # Llama 3.1's frequency bands, every query head with its own key head, float32 file
    "llama_llama3": (
        llama(
            **shape(64, 112, 2, 4, 4),
            rope_theta=500000.0,
            rope_scaling={
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        ),
        "f32",
        0,
    ),
    # linear interpolation, one key head for all
    "llama_linear": (
        llama(**shape(64, 96, 2, 4, 1), rope_scaling={"rope_type": "linear", "factor": 4.0}),
        "f16",
        0,
    ),
    "qwen2_bias": (qwen2(**shape(64, 176, 3, 4, 2), tie_word_embeddings=True), "f16", 0),
    "qwen2_own_head": (qwen2(**shape(80, 120, 2, 5, 1), rope_theta=1000000.0), "bf16", 0),
    # head_dim is not n_embd / n_head (16)
    "qwen3_head_dim": (qwen3(**shape(64, 144, 2, 4, 2, 32), rope_theta=1000000.0), "bf16", 0),
    "qwen3_yarn": (
        qwen3(
            **shape(96, 128, 2, 8, 2, 24),
            tie_word_embeddings=True,
            rope_theta=1000000.0,
            rope_scaling={
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        ),
        "f16",
        0,
    ),
    # MLX affine 4-bit, head and embedding included
    "qwen3_mlx_g64": (
        qwen3(**shape(128, 192, 2, 4, 2, 32), tie_word_embeddings=True),
        "bf16",
        64,
    ),
    "qwen3_mlx_g32": (qwen3(**shape(96, 160, 2, 4, 1, 40)), "f16", 32),
}
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def make_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    from tokenizers import Regex

    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=N_MERGED, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    assert tokenizer.get_vocab_size() == N_MERGED, tokenizer.get_vocab_size()
    tokenizer.add_special_tokens(SPECIALS)
    return tokenizer


def quantize(w, group, dtype):
    """MLX's affine form: codes 0..15, w ~ scale * q + bias; returns words, scales, biases, twin."""
    n_out, n_in = w.shape
    g = w.reshape(n_out, n_in // group, group)
    low, high = g.min(dim=2).values, g.max(dim=2).values
    scale = ((high - low) / 15).clamp(min=1e-7).to(dtype)
    bias = low.to(dtype)
    q = ((g - bias.float()[..., None]) / scale.float()[..., None]).round().clamp(0, 15)
    twin = (scale.float()[..., None] * q + bias.float()[..., None]).reshape(n_out, n_in)
    q = q.reshape(n_out, n_in // 8, 8).numpy().astype(np.uint32)
    words = np.zeros((n_out, n_in // 8), dtype=np.uint32)
    for i in range(8):
        words |= q[:, :, i] << np.uint32(4 * i)
    return torch.from_numpy(words), scale, bias, twin


def random_state(model, generator, dtype):
    """Weights that keep activations near 1 and attention far from uniform; norms around 1."""
    state = {}
    for name, p in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        noise = torch.randn(p.shape, generator=generator)
        if name.endswith("norm.weight") or "layernorm" in name:
            w = 1 + 0.2 * noise
        elif name.endswith(".bias"):
            w = 0.5 * noise
        else:
            w = noise / math.sqrt(p.shape[1])
            if "q_proj" in name or "k_proj" in name:
                w = 2 * w
            if "embed_tokens" in name:
                w = noise if not model.config.tie_word_embeddings else 0.15 * noise
        state[name] = w.to(dtype)
    return state


def write_json(path, data):
    path.write_text(json.dumps(data, indent=2) + "\n")


def make(out, name, index, tokenizer):
    config, dtype_name, group = MODELS[name]
    dtype = DTYPES[dtype_name]
    directory = out / name
    directory.mkdir(parents=True, exist_ok=True)
    config_class = {
        "llama": transformers.LlamaConfig,
        "qwen2": transformers.Qwen2Config,
        "qwen3": transformers.Qwen3Config,
    }[config["model_type"]]
    hf_config = config_class(**{k: v for k, v in config.items() if k != "architectures"})
    hf_config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(hf_config, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(1000 + index)
    state = random_state(model, generator, dtype)

    stored, values = {}, {}
    for key, w in state.items():
        if group and key.endswith(".weight") and w.dim() == 2:
            words, scales, biases, twin = quantize(w.float(), group, dtype)
            stem = key[: -len(".weight")]
            stored[key] = words
            stored[stem + ".scales"] = scales
            stored[stem + ".biases"] = biases
            values[key] = twin
        else:
            stored[key] = w
            values[key] = w.float()
    if hf_config.tie_word_embeddings:
        values["lm_head.weight"] = values["model.embed_tokens.weight"]
    model.load_state_dict(values)

    save_file(stored, directory / "model.safetensors", metadata={"format": "pt"})
    file_config = dict(config, torch_dtype={"f32": "float32", "f16": "float16", "bf16": "bfloat16"}[dtype_name])
    if group:
        file_config["quantization"] = {"group_size": group, "bits": 4}
    write_json(directory / "config.json", file_config)
    write_json(
        directory / "generation_config.json",
        {"bos_token_id": N_MERGED, "eos_token_id": [N_MERGED + 2, N_MERGED]},
    )
    tokenizer.save(str(directory / "tokenizer.json"))

    ids = torch.randint(0, N_MERGED, (N_TOKEN,), generator=generator)
    with torch.no_grad():
        logits = model(ids[None]).logits[0].float().numpy()
    assert logits.shape == (N_TOKEN, N_VOCAB) and np.isfinite(logits).all()
    with open(directory / "vectors.bin", "wb") as f:
        f.write(b"brimvec1")
        f.write(struct.pack("<ii", N_TOKEN, N_VOCAB))
        f.write(ids.numpy().astype("<i4").tobytes())
        f.write(logits.astype("<f4").tobytes())
    size = sum(p.stat().st_size for p in directory.iterdir())
    print(f"{name}: {size} bytes, largest logit {np.abs(logits).max():.3f}")
    assert size < 1_000_000


def main():
    out = Path(sys.argv[1])
    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    for index, name in enumerate(MODELS):
        make(out, name, index, tokenizer)
    write_json(
        out / "versions.json",
        {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "tokenizers": __import__("tokenizers").__version__,
            "numpy": np.__version__,
        },
    )


if __name__ == "__main__":
    main()
