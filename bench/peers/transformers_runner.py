#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One sample of transformers' Qwen3 on CUDA for `brim bench progression --peer`.

    transformers_runner.py [--kind bf16|int4] --model DIR --input-len N --output-len N
                           [--warmup N] [--seed N] [--prefill-logits all|last]

DIR is an MLX 4-bit checkpoint (config.json, *.safetensors). bf16: weights dequantized, torch's products.
int4: every product, the head's too, through torch's _weight_int4pack_mm. Static cache, prefill and decode
step each in a CUDA graph, tokens fed back on the device; the host waits after the first token and after
the last. Prints one line: nanoseconds to the first token, nanoseconds from it to the last; on standard error, seconds of
loading, of recording and of all runs.
"""
import argparse
import json
import pathlib
import sys
import time

import torch
from safetensors import safe_open
from transformers import Qwen3Config, Qwen3ForCausalLM, StaticCache
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding


class Checkpoint:
    """Tensors of all shards by name."""

    def __init__(self, folder):
        self.files = [safe_open(str(f), "pt", device="cuda") for f in sorted(folder.glob("*.safetensors"))]
        self.where = {name: f for f in self.files for name in f.keys()}

    def get(self, name):
        return self.where[name].get_tensor(name)

    def codes(self, name):
        """u8 [n_out][n_in], with bf16 scales and biases [n_out][n_in / group]."""
        words = self.get(name + ".weight").view(torch.int32)
        shifts = torch.arange(0, 32, 4, device="cuda", dtype=torch.int32)
        codes = ((words.unsqueeze(-1) >> shifts) & 15).to(torch.uint8).flatten(1)
        return codes, self.get(name + ".scales"), self.get(name + ".biases")

    def dense(self, name, dtype):
        if name + ".scales" not in self.where:
            return self.get(name + ".weight").to(dtype)
        codes, scales, biases = self.codes(name)
        group = codes.shape[1] // scales.shape[1]
        out = torch.empty(codes.shape, dtype=dtype, device="cuda")
        for at in range(0, codes.shape[0], 16384):  # the head in f32 at once would be large
            part = slice(at, at + 16384)
            w = codes[part].float().unflatten(1, (-1, group))
            w = w * scales[part].float().unsqueeze(-1) + biases[part].float().unsqueeze(-1)
            out[part] = w.flatten(1).to(dtype)
        return out


class Int4Linear(torch.nn.Module):
    """y = x W^T with torch's packed 4-bit weights: w = (q - 8) scale + zero."""

    def __init__(self, codes, scales, biases):
        super().__init__()
        self.group = codes.shape[1] // scales.shape[1]
        packed = (codes[:, ::2] << 4 | codes[:, 1::2]).contiguous()
        self.weight = torch.ops.aten._convert_weight_to_int4pack(packed, 8)
        zeros = biases.float() + 8 * scales.float()
        pairs = torch.stack([scales.float(), zeros], -1).transpose(0, 1)
        self.scales_and_zeros = pairs.contiguous().to(torch.bfloat16)

    def forward(self, x):
        y = torch.ops.aten._weight_int4pack_mm(x.flatten(0, -2), self.weight, self.group,
                                               self.scales_and_zeros)
        return y.view(*x.shape[:-1], -1)


def load(folder, kind):
    settings = json.loads((folder / "config.json").read_text())
    for key in ("quantization", "quantization_config", "architectures", "model_type", "torch_dtype", "dtype"):
        settings.pop(key, None)
    config = Qwen3Config(**settings)
    config._attn_implementation = "sdpa"
    checkpoint = Checkpoint(folder)
    with torch.device("meta"):
        model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    model = model.to_empty(device="cuda")
    model.model.rotary_emb = Qwen3RotaryEmbedding(config).cuda()
    for name, module in list(model.named_modules()):
        source = "model.embed_tokens" if name == "lm_head" and config.tie_word_embeddings else name
        if isinstance(module, torch.nn.Linear) and kind == "int4" and source + ".scales" in checkpoint.where:
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], Int4Linear(*checkpoint.codes(source)))
        elif name == "lm_head" and config.tie_word_embeddings:
            continue
        elif isinstance(getattr(module, "weight", None), torch.nn.Parameter):
            module.weight.data = checkpoint.dense(name, torch.bfloat16)
    if config.tie_word_embeddings and isinstance(model.lm_head, torch.nn.Linear):
        model.lm_head.weight = model.model.embed_tokens.weight
    return model.eval().requires_grad_(False), config


def record(run):
    """`run` in a CUDA graph, after three calls on another stream that allocate and choose kernels."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--kind", choices=("bf16", "int4"), default="bf16")
    p.add_argument("--model", type=pathlib.Path, required=True)
    p.add_argument("--input-len", type=int, default=128)
    p.add_argument("--output-len", type=int, default=65)
    p.add_argument("--warmup", type=int, default=2)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--prefill-logits", choices=("all", "last"), default="last")
    a = p.parse_args()
    marks = [time.time()]
    with torch.inference_mode():
        model, config = load(a.model, a.kind)
        torch.cuda.synchronize()
        marks.append(time.time())
        generator = torch.Generator().manual_seed(a.seed)
        prompt = torch.randint(256, config.vocab_size - 2048, (1, a.input_len), generator=generator).cuda()
        token = torch.zeros((1, 1), dtype=torch.long, device="cuda")
        # a multiple of 8, which the fused attention kernels want of a mask; the recordings' dry
        # runs use up positions too
        cache = StaticCache(config=config, max_cache_len=(a.input_len + a.output_len + 15) // 8 * 8)

        def rewind(length):
            for layer in cache.layers:
                layer.cumulative_length.fill_(length)

        def step(ids, keep):
            logits = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=keep).logits
            token.copy_(logits[:, -1].argmax(-1, keepdim=True))

        def prefill():
            rewind(0)
            step(prompt, 0 if a.prefill_logits == "all" else 1)

        step(prompt, 1)  # allocates the cache
        prefill_graph = record(prefill)
        rewind(a.input_len)
        decode_graph = record(lambda: step(token, 1))
        marks.append(time.time())
        for _ in range(a.warmup + 1):
            torch.cuda.synchronize()
            start = time.perf_counter_ns()
            prefill_graph.replay()
            token.item()
            first = time.perf_counter_ns()
            for _ in range(a.output_len - 1):
                decode_graph.replay()
            token.item()
            last = time.perf_counter_ns()
    marks.append(time.time())
    print(*(f"{after - before:.1f}" for before, after in zip(marks, marks[1:])), "s", file=sys.stderr)
    print(first - start, last - first, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
