#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What llama.cpp says about a GGUF file, recorded for brim's accuracy check.

Writes tests/golden/text/smollm2_llama.json: perplexity of tests/golden/text/kjv.txt with the windows
and scoring of `brim perplexity` (see app/cli/cmd_perplexity.c), and 64 greedy tokens after each line
of tests/golden/text/prompts.txt with the largest logits at every step, so that a reader can see
which steps are near-ties. Twice: on the file as it is, where llama.cpp rounds activations to 8 bits,
and on the same weights written as f32, where it rounds nothing. tests/golden/check_llama.c replays
brim against that file.

Needs the environment of bench/peers/setup.sh:  PEERS/bin/python tools/compare_llama.py MODEL.gguf
"""
import argparse
import ctypes
import hashlib
import json
import math
import os
import re
import sys
import tempfile

# Nothing is timed here: waiting threads shall not take the processor from others.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import llama_cpp as ll  # noqa: E402
import numpy as np  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "bench", "peers"))
from llama_runner import Engine, QUIET  # noqa: E402
from versions import versions  # noqa: E402

WINDOW = 512
N_GREEDY = 64
N_TOP = 6


def row(engine, i):
    return np.ctypeslib.as_array(engine.logits(i), shape=(engine.n_vocab,)).astype(np.float64)


def perplexity(engine, ids):
    """Second halves of non-overlapping windows, each from an empty cache."""
    nll = 0.0
    scored = 0
    windows = len(ids) // WINDOW
    for w in range(windows):
        window = ids[w * WINDOW:(w + 1) * WINDOW]
        engine.clear()
        engine.eval(window[:WINDOW // 2], 0)
        engine.eval(window[WINDOW // 2:WINDOW - 1], WINDOW // 2, every=True)
        for i in range(WINDOW // 2 - 1):
            logits = row(engine, i)
            top = logits.max()
            nll += math.log(np.exp(logits - top).sum()) + top - logits[window[WINDOW // 2 + i + 1]]
            scored += 1
        print(f"window {w + 1}/{windows}: {math.exp(nll / scored):.4f}", file=sys.stderr)
    return {"ctx": WINDOW, "text_tokens": len(ids), "windows": windows, "scored_tokens": scored,
            "nll_mean": nll / scored, "perplexity": math.exp(nll / scored)}


def greedy(engine, prompt):
    ids = engine.tokenize(prompt)
    engine.clear()
    engine.eval(ids, 0)
    steps = []
    for i in range(N_GREEDY):
        logits = row(engine, -1)
        top = np.argpartition(logits, -N_TOP)[-N_TOP:]
        top = top[np.argsort(-logits[top], kind="stable")]
        steps.append(([int(t) for t in top], [round(float(logits[top[0]] - logits[t]), 5) for t in top]))
        engine.eval([int(top[0])], len(ids) + i)
    return {"prompt": prompt, "prompt_ids": ids, "ids": [s[0][0] for s in steps],
            "top_ids": [s[0][1:] for s in steps], "top_gaps": [s[1][1:] for s in steps]}


def dequantize(source, target):
    """The same weights as f32, by llama.cpp's own converter."""
    params = ll.llama_model_quantize_default_params()
    params.ftype = ll.LLAMA_FTYPE_ALL_F32
    params.allow_requantize = True
    if ll.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params)) != 0:
        raise SystemExit(f"{source}: llama.cpp cannot write it as f32")


def record(path, weights, threads, text, prompts):
    engine = Engine(path, threads, WINDOW, "off")
    return {"weights": weights,
            "perplexity": perplexity(engine, engine.tokenize(text)),
            "greedy": [greedy(engine, prompt) for prompt in prompts]}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("model")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--output", default=os.path.join(ROOT, "tests/golden/text/smollm2_llama.json"))
    a = p.parse_args()
    text_dir = os.path.join(ROOT, "tests/golden/text")
    with open(a.model, "rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
    with open(os.path.join(text_dir, "kjv.txt"), encoding="utf-8", newline="") as f:
        text = f.read()
    with open(os.path.join(text_dir, "prompts.txt"), encoding="utf-8") as f:
        prompts = f.read().splitlines()
    ll.llama_log_set(QUIET, ctypes.c_void_p(0))
    with tempfile.TemporaryDirectory() as work:
        dense = os.path.join(work, "f32.gguf")
        dequantize(a.model, dense)
        runs = [record(a.model, "as in the file", a.threads, text, prompts),
                record(dense, "as f32", a.threads, text, prompts)]
    result = {
        "about": "llama.cpp on the demonstration model, made by tools/compare_llama.py",
        "versions": versions(),
        "model": {"file": os.path.basename(a.model), "sha256": digest},
        "text": {"file": "kjv.txt", "sha256": hashlib.sha256(text.encode()).hexdigest()},
        "runs": runs,
    }
    with open(a.output, "w", encoding="utf-8") as f:
        text = json.dumps(result, indent=1)
        # lists of numbers on one line
        text = re.sub(r"\[[-+0-9.,\se]*\]", lambda m: re.sub(r"\s+", " ", m.group()), text)
        f.write(text + "\n")
    print(a.output)


if __name__ == "__main__":
    main()
