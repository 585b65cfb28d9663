#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mlx (through mlx-lm) on an MLX-format directory.

    mlx_runner.py DIR [--prefill N ...] [--decode N ...] [--repeat N]
On the CPU: prints one JSON object in the form of llama_runner.py. mlx takes its number of threads from the machine; on
x86 its quantized product runs in one.

    mlx_runner.py --device gpu --model DIR --input-len N --output-len N [--warmup N] [--seed N] [--prefill-logits last]
On a GPU: one sample for `brim bench progression --peer`, by mlx-lm's own generate_step, greedy: nanoseconds to the first
token, nanoseconds from it to the last.
"""
import argparse
import importlib.metadata
import json
import pathlib
import random
import time

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

from versions import status_kib


def progression(a):
    """Two numbers. The prompt is drawn as transformers_runner.py draws its own: what is in it does not matter."""
    from mlx_lm.generate import generate_step
    model, config = load_model(pathlib.Path(a.model))
    mx.eval(model.parameters())
    rng = random.Random(a.seed)
    prompt = mx.array([rng.randrange(256, config["vocab_size"] - 2048) for _ in range(a.input_len)])
    mx.eval(prompt)
    for _ in range(a.warmup + 1):
        mx.synchronize()
        start = time.perf_counter_ns()
        first, n = start, 0
        for _token in generate_step(prompt, model, max_tokens=a.output_len):
            n += 1
            if n == 1:
                first = time.perf_counter_ns()
        last = time.perf_counter_ns()
        assert n == a.output_len
    print(first - start, last - first)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("directory", nargs="?")
    p.add_argument("--prefill", type=int, nargs="*", default=[8, 32])
    p.add_argument("--decode", type=int, nargs="*", default=[8])
    p.add_argument("--repeat", type=int, default=1)
    p.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    p.add_argument("--model")
    p.add_argument("--input-len", type=int)
    p.add_argument("--output-len", type=int, default=65)
    p.add_argument("--warmup", type=int, default=2)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--prefill-logits", choices=("last",), default="last")  # mlx-lm makes no others
    p.add_argument("--versions", action="store_true", help="print the versions of mlx's packages and end")
    a = p.parse_args()
    if a.versions:
        print(json.dumps({d.name: d.version for d in importlib.metadata.distributions() if d.name.startswith("mlx")}))
        return
    a.model = a.model or a.directory
    mx.set_default_device(mx.gpu if a.device == "gpu" else mx.cpu)
    if a.input_len:
        progression(a)
        return
    base_kib = status_kib("VmHWM")
    start = time.perf_counter_ns()
    model, config = load_model(pathlib.Path(a.model))
    mx.eval(model.parameters())
    load_ns = time.perf_counter_ns() - start
    rng = random.Random(1)
    tokens = [rng.randrange(256, config["vocab_size"] - 2048) for _ in range(1024)]

    def evaluate(ids, cache):
        logits = model(mx.array([ids]), cache=cache)
        mx.eval(logits[:, -1, :])

    out = {"program": "mlx", "load_ns": load_ns, "rows": {}}
    evaluate(tokens[:2], make_prompt_cache(model))  # compiles the fused kernels, reads the pages
    for n in a.prefill:
        samples = []
        for _ in range(a.repeat):
            cache = make_prompt_cache(model)
            start = time.perf_counter_ns()
            evaluate(tokens[:n], cache)
            samples.append(time.perf_counter_ns() - start)
        out["rows"][f"pp{n}"] = {"tokens": n, "samples_ns": samples}
    for n in a.decode:
        samples = []
        for _ in range(a.repeat):
            cache = make_prompt_cache(model)
            start = time.perf_counter_ns()
            for j in range(n):
                evaluate(tokens[j:j + 1], cache)
            samples.append(time.perf_counter_ns() - start)
        out["rows"][f"tg{n}"] = {"tokens": n, "samples_ns": samples}
    out["peak_kib"] = status_kib("VmHWM")
    out["base_kib"] = base_kib
    print(json.dumps(out))


if __name__ == "__main__":
    main()
