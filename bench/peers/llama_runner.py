#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure llama.cpp on one GGUF file in this process and print one JSON object.

The same things `brim bench model` measures, in the same way: load (file, vocabulary, context; warm
page cache), prefill of P random tokens into an empty cache with the last logits only, decode of N
tokens one by one after that, time to the first token of a text prompt (tokenize, prefill, argmax),
and the peak resident memory. Times are lists of nanoseconds, one per repetition, after one untimed
run. Only ctypes is used on the way: no numpy pages in the memory figure.
"""
import argparse
import ctypes
import json
import random
import time

import llama_cpp as ll

from versions import status_kib


def quiet(level, text, user):
    del level, text, user


QUIET = ll.llama_log_callback(quiet)


class Engine:
    def __init__(self, path, threads, n_ctx, flash):
        ll.llama_log_set(QUIET, ctypes.c_void_p(0))
        ll.llama_backend_init()
        start = time.perf_counter_ns()
        mp = ll.llama_model_default_params()
        mp.n_gpu_layers = 0
        self.model = ll.llama_model_load_from_file(path.encode(), mp)
        if not self.model:
            raise SystemExit(f"{path}: llama.cpp cannot load it")
        cp = ll.llama_context_default_params()
        cp.n_ctx = n_ctx
        cp.n_batch = n_ctx
        cp.n_ubatch = 512
        cp.n_threads = threads
        cp.n_threads_batch = threads
        if hasattr(cp, "flash_attn_type"):
            cp.flash_attn_type = {"auto": -1, "off": 0, "on": 1}[flash]
        else:
            cp.flash_attn = flash == "on"
        self.ctx = ll.llama_init_from_model(self.model, cp)
        self.load_ns = time.perf_counter_ns() - start
        self.vocab = ll.llama_model_get_vocab(self.model)
        self.n_vocab = ll.llama_vocab_n_tokens(self.vocab)
        self.batch = ll.llama_batch_init(n_ctx, 0, 1)

    def clear(self):
        ll.llama_memory_clear(ll.llama_get_memory(self.ctx), True)

    def eval(self, tokens, pos, every=False):
        b = self.batch
        b.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            b.token[i] = token
            b.pos[i] = pos + i
            b.n_seq_id[i] = 1
            b.seq_id[i][0] = 0
            b.logits[i] = every or i == len(tokens) - 1
        if ll.llama_decode(self.ctx, b) != 0:
            raise SystemExit("llama_decode failed")
        ll.llama_synchronize(self.ctx)

    def tokenize(self, text):
        raw = text.encode()
        ids = (ll.llama_token * (len(raw) + 8))()
        n = ll.llama_tokenize(self.vocab, raw, len(raw), ids, len(ids), False, False)
        return list(ids[:n])

    def logits(self, i):
        """A ctypes pointer to the n_vocab logits of batch row i."""
        return ll.llama_get_logits_ith(self.ctx, i)

    def argmax(self):
        """The likeliest token, by llama.cpp's own greedy sampler."""
        if not hasattr(self, "greedy"):
            self.greedy = ll.llama_sampler_init_greedy()
        return ll.llama_sampler_sample(self.greedy, self.ctx, -1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--prefill", type=int, nargs="*", default=[32, 128, 512])
    p.add_argument("--decode", type=int, nargs="*", default=[128])
    p.add_argument("--prompt", help="text whose time to first token is measured")
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--flash", choices=["auto", "on", "off"], default="auto")
    a = p.parse_args()

    base_kib = status_kib("VmHWM")
    n_ctx = max(a.prefill + a.decode + [512]) + 128
    e = Engine(a.model, a.threads, n_ctx, a.flash)
    rng = random.Random(1)
    tokens = [rng.randrange(e.n_vocab) for _ in range(n_ctx)]
    out = {"program": "llama.cpp", "load_ns": e.load_ns, "flash": a.flash, "rows": {}}

    for n in a.prefill:
        samples = []
        for i in range(a.repeat + 1):
            e.clear()
            start = time.perf_counter_ns()
            e.eval(tokens[:n], 0)
            samples.append(time.perf_counter_ns() - start)
        out["rows"][f"pp{n}"] = {"tokens": n, "samples_ns": samples[1:]}
    for n in a.decode:
        samples = []
        for i in range(a.repeat + 1):
            e.clear()
            start = time.perf_counter_ns()
            for j in range(n if i else min(n, 8)):
                e.eval(tokens[j:j + 1], j)
            samples.append(time.perf_counter_ns() - start)
        out["rows"][f"tg{n}"] = {"tokens": n, "samples_ns": samples[1:]}
    if a.prompt:
        samples = []
        ids = []
        for i in range(a.repeat + 1):
            e.clear()
            start = time.perf_counter_ns()
            ids = e.tokenize(a.prompt)
            e.eval(ids, 0)
            e.argmax()
            samples.append(time.perf_counter_ns() - start)
        out["rows"]["ttft"] = {"tokens": len(ids), "samples_ns": samples[1:]}
    out["peak_kib"] = status_kib("VmHWM")
    out["base_kib"] = base_kib
    print(json.dumps(out))


if __name__ == "__main__":
    main()
