#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure mlx (through mlx-lm) on an MLX-format directory in this process; prints one JSON object in
the form of llama_runner.py. mlx takes its number of threads from the machine; on x86 its quantized
product runs in one."""
import argparse
import json
import pathlib
import random
import time

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

from versions import status_kib


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--prefill", type=int, nargs="*", default=[8, 32])
    p.add_argument("--decode", type=int, nargs="*", default=[8])
    p.add_argument("--repeat", type=int, default=1)
    a = p.parse_args()
    mx.set_default_device(mx.cpu)
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
