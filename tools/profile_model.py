#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where a step on the GPU spends its time: every kernel of some decode steps and of a prefill.

    profile_model.py LIBBRIM MODEL [--level L] [--context N] [--prefill N] [--timeline]

Runs under PyTorch's profiler (CUPTI), which sees the nodes of a graph one by one, so any python3 with a
CUDA build of torch serves. For each kernel: launches a step, mean time, sum a step, and the gap to the
end of the kernel before (negative: they overlap). Tracing slows the step a little; the rate without it
is printed first.
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
    return re.sub(r"\(.*\)$", "", name)[:60]


def report(title, events, n_step, timeline):
    """events: (start, duration, name) in microseconds."""
    events.sort()
    if not events:
        print(f"{title}: no kernels were seen")
        return
    span = events[-1][0] + events[-1][1] - events[0][0]
    rows = collections.defaultdict(lambda: [0, 0.0, 0.0])
    end = None
    for start, duration, name in events:
        row = rows[name]
        row[0] += 1
        row[1] += duration
        if end is not None:
            row[2] += min(start - end, 20)  # a pause between steps is not the kernel's
        end = max(end or 0, start + duration)
        if timeline:
            print(f"{start - events[0][0]:10.2f} {duration:8.2f} {name}")
    print(f"{title}: {len(events) / n_step:.0f} launches a step, first start to last end {span / n_step:.1f} us a step")
    print(f"{'kernel':60} {'n/step':>7} {'mean us':>8} {'us/step':>9} {'gap us':>7}")
    for name, (n, total, gap) in sorted(rows.items(), key=lambda item: -item[1][1]):
        print(f"{name:60} {n / n_step:7.1f} {total / n:8.2f} {total / n_step:9.1f} {gap / n:7.2f}")


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
    return [(e["ts"], e["dur"], short_name(e["name"])) for e in events
            if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]


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
    must(brim.brim_engine_open(c.byref(engine), args.model.encode(), c.byref(options), c.byref(error)), error)
    brim.brim_session_options_default(c.byref(session_options))
    longest = max([args.context + 4 * args.steps + 16, *[n + 1 for n in args.prefill]])
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
    start = time.perf_counter()
    decode(args.steps)
    print(f"decode without tracing: {args.steps / (time.perf_counter() - start):.1f} tokens/s")
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
