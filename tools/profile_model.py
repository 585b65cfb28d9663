#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where a step on the GPU spends its time: every kernel of some decode steps and of a prefill.

    profile_model.py LIBBRIM MODEL|synth:PRESET [--level L] [--context N] [--prefill N] [--timeline]

Runs under PyTorch's profiler (CUPTI), which sees the nodes of a graph one by one, so any python3 with a
CUDA build of torch serves. Kernels are told apart by name and grid. Launches may overlap the end of
their predecessors, so beside a kernel's own time there is what it adds: from the latest end before it to
its end. The sum of that is the time of the step. Tracing slows a step by some per cent; the rate without
it is printed first.
"""
import argparse
import collections
import ctypes as c
import json
import pathlib
import re
import tempfile
import time


class Options(c.Structure):
    _fields_ = [("device", c.c_int), ("n_thread", c.c_int), ("cpu_tier", c.c_char_p), ("int8", c.c_bool),
                ("level", c.c_char_p), ("progress", c.c_void_p), ("progress_ctx", c.c_void_p),
                ("warn", c.c_void_p), ("warn_ctx", c.c_void_p)]


class SessionOptions(c.Structure):
    _fields_ = [("n_context", c.c_int64), ("prefill_chunk", c.c_int64), ("kv_f32", c.c_bool),
                ("keep_going", c.c_void_p), ("ctx", c.c_void_p)]


class Error(c.Structure):
    _fields_ = [("status", c.c_int), ("text", c.c_char * 508)]


def must(status, error):
    if status:
        raise SystemExit(error.text.decode())


def short_name(name):
    name = re.sub(r"\(anonymous namespace\)::|^void ", "", name)
    return re.sub(r"\([^()]*\)$", "", name).replace("(anonymous namespace)::", "")


def report(title, events, n_step, timeline):
    """events: (start, duration, name) in microseconds."""
    events.sort()
    if not events:
        print(f"{title}: no kernels were seen")
        return
    span = events[-1][0] + events[-1][1] - events[0][0]
    rows = collections.defaultdict(lambda: [0, 0.0, 0.0])
    end = events[0][0]
    for start, duration, name in events:
        row = rows[name]
        row[0] += 1
        row[1] += duration
        row[2] += max(0.0, start + duration - max(end, start - 2))  # a pause between steps is not the kernel's
        end = max(end, start + duration)
        if timeline:
            print(f"{start - events[0][0]:10.2f} {duration:8.2f} {name}")
    added = sum(row[2] for row in rows.values()) / n_step
    print(f"{title}: {len(events) / n_step:.0f} launches, {added:.1f} us a step ({span / n_step:.1f} with the host)")
    print(f"{'kernel':52} {'n/step':>7} {'own us':>8} {'adds us':>8} {'us/step':>9}")
    for name, (n, total, adds) in sorted(rows.items(), key=lambda item: -item[1][2]):
        print(f"{name:52} {n / n_step:7.1f} {total / n:8.2f} {adds / n:8.2f} {adds / n_step:9.1f}")


def trace(run):
    import torch
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as p:
        run()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.json"
        p.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]

    def label(e):
        grid = e["args"].get("grid")
        return short_name(e["name"])[:36] + (f" {grid[0]}x{grid[1]}x{grid[2]}" if grid else "")

    return [(e["ts"], e["dur"], label(e)) for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("library")
    p.add_argument("model")
    p.add_argument("--level")
    p.add_argument("--context", type=int, default=128)
    p.add_argument("--prefill", type=int, action="append", default=[])
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--timeline", action="store_true")
    args = p.parse_args()
    import torch
    torch.cuda.init()
    brim = c.CDLL(args.library)
    error = Error()
    options, session_options = Options(), SessionOptions()
    brim.brim_engine_options_default(c.byref(options))
    options.device = 1
    options.level = args.level.encode() if args.level else None
    engine, session = c.c_void_p(), c.c_void_p()
    model, scratch = args.model, tempfile.TemporaryDirectory()
    if model.startswith("synth:"):
        preset, model = model[6:], f"{scratch.name}/model"
        must(brim.brim_synth(preset.encode(), model.encode(), c.c_uint64(0), None, None, c.byref(error)), error)
    must(brim.brim_engine_open(c.byref(engine), model.encode(), c.byref(options), c.byref(error)), error)
    brim.brim_session_options_default(c.byref(session_options))
    longest = max([args.context + 4 * args.steps + 4, *[n + 1 for n in args.prefill]])
    session_options.n_context = longest
    session_options.prefill_chunk = max(args.prefill, default=512)
    must(brim.brim_session_open(c.byref(session), engine, c.byref(session_options), c.byref(error)), error)
    ids = (c.c_int32 * longest)(*[(1000 + 7919 * i) % 30000 + 300 for i in range(longest)])

    def evaluate(n):
        must(brim.brim_session_eval(session, ids, c.c_int64(n), c.byref(error)), error)

    def rewind(n):
        must(brim.brim_session_rewind(session, c.c_int64(n), c.byref(error)), error)

    def decode(n):
        for _ in range(n):
            evaluate(1)

    evaluate(args.context)
    decode(4)
    rewind(args.context)
    n = 4 * args.steps
    start = time.perf_counter()
    decode(n)
    print(f"decode without tracing: {n / (time.perf_counter() - start):.1f} tokens/s")
    rewind(args.context)
    report(f"decode at {args.context}", trace(lambda: decode(args.steps)), args.steps, args.timeline)
    for n in args.prefill:
        rewind(0)
        evaluate(n)
        rewind(0)
        start = time.perf_counter()
        evaluate(n)
        print(f"prefill {n} without tracing: {(time.perf_counter() - start) * 1e3:.3f} ms")
        rewind(0)
        report(f"prefill {n}", trace(lambda: evaluate(n)), 1, args.timeline)


if __name__ == "__main__":
    main()
