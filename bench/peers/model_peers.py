#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole Qwen3-4B on a GPU: brim's levels beside transformers (bf16, int4 products) and MLX, by `brim bench progression`.

Prompt and output 128/129, 2048/129, 32/33; every sample is a fresh process, a round goes forward and back. Each peer is tried
once, untimed; one that fails is left out and named in the result. --limit S begins no round that would end after S
seconds, by the longest so far. Writes progression.json (a list of runs, all samples) into --out.

usage: model_peers.py --brim PROGRAM --model DIR [--out DIR] [--rounds N] [--limit S] [--try-only | --tried FILE]
                      [--mlx COMMAND]       (default for MLX: this Python, if mlx is installed)
DIR is of `brim synth --preset qwen3-4b DIR`. --try-only writes tried.json and ends: beside other work, it warms caches.
"""
import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
LEVELS = ["tiled", "split-k", "hopper"]
WORKLOADS = [(128, 129), (2048, 129), (32, 33)]


def run(*words):
    try:
        return subprocess.run(words, capture_output=True, text=True, cwd=HERE).stdout.strip()
    except OSError:
        return None


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def try_once(commands, model):
    """{name: None or the end of what it said} of all peers at once; nothing is timed."""
    running = {}
    for name, command in commands.items():
        script = " && ".join(f"{command} --model {model} --input-len {n} --output-len 9 --warmup 0 --prefill-logits last"
                             for n in ((32, 128, 2048) if name == "mlx" else (32,)))  # mlx compiles for each
        running[name] = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = {}
    for name, process in running.items():
        try:
            _, errors = process.communicate(timeout=150)
        except subprocess.TimeoutExpired:
            process.kill()
            errors = "took longer than 150 s"
        said[name] = None if process.returncode == 0 else errors.strip()[-300:]
        print(f"{name}: {said[name] or 'runs'}", file=sys.stderr)
    return said


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--brim", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out"))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1e9)
    parser.add_argument("--warmup", default="2")
    parser.add_argument("--try-only", action="store_true")
    parser.add_argument("--tried", type=pathlib.Path)
    parser.add_argument("--mlx")
    args = parser.parse_args()
    begin = time.time()
    args.out.mkdir(parents=True, exist_ok=True)
    runner = f"{sys.executable} {HERE / 'transformers_runner.py'}"
    commands = {"transformers": runner, "transformers-int4": f"{runner} --kind int4"}
    if args.mlx or importlib.util.find_spec("mlx"):
        commands["mlx"] = args.mlx or f"{sys.executable} {HERE / 'mlx_runner.py'} --device gpu"
    if args.tried and args.tried.exists():
        said = json.loads(args.tried.read_text())
    else:
        said = try_once(commands, args.model)
        (args.out / "tried.json").write_text(json.dumps(said) + "\n")
    if args.try_only:
        return 0
    peers = {name: command for name, command in commands.items() if said.get(name, "not tried") is None}
    about = {
        "gpu, driver, clocks now, largest SM clock, power limit":
            run("nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.limit", "--format=csv,noheader"),
        "clocks": "not locked",
        "versions": {**{p: version(p) for p in ("torch", "triton", "transformers")},
                     **json.loads((run("sh", "-c", peers["mlx"] + " --versions") if "mlx" in peers else None) or "{}")},
        "commit": run("git", "log", "-1", "--format=%h", "--", ":/src/cuda", ":/src/plan", ":/bindings"),
        "peers left out": {name: text for name, text in said.items() if text is not None},
    }
    runs, longest, failed, left_out = [], 0.0, 0, []
    for number in range(args.rounds):
        for n_input, n_output in WORKLOADS:
            if time.time() - begin + longest > args.limit:
                left_out.append(f"{n_input}/{n_output}, round {number + 1}")
                continue
            start = time.time()
            order = [*LEVELS, *peers]  # the command runs half of its repeats in reverse
            result = args.out / "round.json"
            result.unlink(missing_ok=True)
            words = [args.brim, "bench", "progression", "--device", "cuda", "--offline", "--no-check", "--model", args.model,
                     "--input-len", str(n_input), "--output-len", str(n_output), "--repeats", "2", "--warmup", args.warmup,
                     "--prefill-logits", "last", "--json-output", str(result)]
            words += [w for name, command in peers.items() for w in ("--peer", f"{name}={command}")]
            words += [w for name in order for w in ("--variant", name)]
            code = subprocess.run(words, env={**os.environ, "HF_HUB_OFFLINE": "1"}).returncode
            longest = max(longest, time.time() - start)
            if code or not result.exists():
                print(f"FAILED: {n_input}/{n_output}, round {number + 1}", file=sys.stderr)
                failed += 1
                continue
            runs.append({**json.loads(result.read_text()), **about, "model": "synthetic qwen3-4b (brim synth)"})
            (args.out / "progression.json").write_text(json.dumps(runs) + "\n")
            print(f"{n_input}/{n_output}, round {number + 1}: {time.time() - start:.0f} s", flush=True)
    (args.out / "round.json").unlink(missing_ok=True)
    print(f"{len(runs)} runs, {failed} failed, left out for time: {', '.join(left_out) or 'none'}; {time.time() - begin:.0f} s, "
          f"{datetime.datetime.now(datetime.timezone.utc):%F}")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
