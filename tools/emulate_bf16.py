#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What rounding to bf16 alone does to the tiny checkpoints: the golden logits against the same model in
float32 with the inputs of products, and then their weights too, rounded as the GPU rounds them.

    emulate_bf16.py [DIRECTORY]      (needs numpy; default tests/golden/models)

Prints the largest difference as a fraction of the largest golden logit, as check_engine does: nothing
rounded, inputs, inputs and weights, and keys and values to f16. Checkpoints whose rotation is scaled by
Llama 3 or YaRN are left out.
"""
import json
import pathlib
import struct
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent


def bf16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def f16(x):
    return x.astype(np.float16).astype(np.float32)


def same(x):
    return x


def tensors(path, config):
    raw = (path / "model.safetensors").read_bytes()
    n_header, = struct.unpack("<Q", raw[:8])
    out = {}
    for name, entry in json.loads(raw[8:8 + n_header]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        data = raw[8 + n_header + begin:8 + n_header + end]
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
        elif entry["dtype"] == "U32":
            values = np.frombuffer(data, np.uint32)
        else:
            values = np.frombuffer(data, {"F16": np.float16, "F32": np.float32}[entry["dtype"]]).astype(np.float32)
        out[name] = values.reshape(entry["shape"])
    for name in [n for n in out if n.endswith(".scales")]:
        base, group = name[:-len(".scales")], config["quantization"]["group_size"]
        words = out[base + ".weight"]
        codes = (words[..., None] >> (np.arange(8, dtype=np.uint32) * 4)) & 15
        codes = codes.reshape(words.shape[0], -1).astype(np.float32)
        out[base + ".weight"] = (codes * np.repeat(out[name], group, 1) +
                                 np.repeat(out[base + ".biases"], group, 1))
    return out


def difference(path, config, t, round_input, round_weight, round_cache):
    n_head, n_head_kv = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // n_head
    vectors = (path / "vectors.bin").read_bytes()
    n_token, n_vocab = struct.unpack("<ii", vectors[8:16])
    ids = np.frombuffer(vectors, np.int32, n_token, 16)
    golden = np.frombuffer(vectors, np.float32, n_token * n_vocab, 16 + 4 * n_token).reshape(n_token, n_vocab)
    factor = (config.get("rope_scaling") or {}).get("factor", 1.0)
    angle = np.arange(n_token)[:, None] / config["rope_theta"] ** (np.arange(0, head_dim, 2) / head_dim) / factor
    cos, sin = np.cos(angle)[:, None].astype(np.float32), np.sin(angle)[:, None].astype(np.float32)

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + config["rms_norm_eps"]) * t[name + ".weight"]

    def linear(x, name):
        return round_input(x) @ round_weight(t[name + ".weight"]).T + t.get(name + ".bias", np.float32(0))

    def rotate(x):
        a, b = x[..., :head_dim // 2], x[..., head_dim // 2:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    x = t["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        h = norm(x, p + "input_layernorm")
        q = linear(h, p + "self_attn.q_proj").reshape(n_token, n_head, head_dim)
        k = linear(h, p + "self_attn.k_proj").reshape(n_token, n_head_kv, head_dim)
        v = round_cache(linear(h, p + "self_attn.v_proj").reshape(n_token, n_head_kv, head_dim))
        if p + "self_attn.q_norm.weight" in t:
            q, k = norm(q, p + "self_attn.q_norm"), norm(k, p + "self_attn.k_norm")
        q, k = round_cache(rotate(q)), round_cache(rotate(k))
        k, v = np.repeat(k, n_head // n_head_kv, 1), np.repeat(v, n_head // n_head_kv, 1)
        score = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(head_dim)
        score = np.where(np.tril(np.ones((n_token, n_token), bool)), score, -np.inf)
        weight = np.exp(score - score.max(-1, keepdims=True))
        weight /= weight.sum(-1, keepdims=True)
        x = x + linear(np.einsum("hqk,khd->qhd", weight, v).reshape(n_token, -1), p + "self_attn.o_proj")
        h = norm(x, p + "post_attention_layernorm")
        gate, up = linear(h, p + "mlp.gate_proj"), linear(h, p + "mlp.up_proj")
        x = x + linear(gate / (1 + np.exp(-gate)) * up, p + "mlp.down_proj")
    head = "lm_head" if "lm_head.weight" in t else "model.embed_tokens"
    return np.abs(linear(norm(x, "model.norm"), head) - golden).max() / np.abs(golden).max()


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests/golden/models"
    print(f"{'checkpoint':16} {'exact':>8} {'inputs':>8} {'+weights':>8} {'cache':>8}")
    for path in sorted(p for p in folder.iterdir() if p.is_dir()):
        config = json.loads((path / "config.json").read_text())
        scaling = config.get("rope_scaling") or {}
        if scaling.get("rope_type", "linear") != "linear":
            continue
        t = tensors(path, config)
        forms = [(same, same, same), (bf16, same, same), (bf16, bf16, same), (same, same, f16)]
        print(f"{path.name:16} " + " ".join(f"{difference(path, config, t, *form):8.2g}" for form in forms))


if __name__ == "__main__":
    main()
