#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole Qwen3-4B on a GPU: brim's levels beside transformers (bf16, int4 products) and MLX, by `brim bench progression`.

Prompt and output 128/129, 2048/129, 32/33 (or those of --workloads); every sample is a fresh process, a round goes forward
and back. transformers' are forks of one process that has done the imports (preloaded.py), if that works here. Each peer is
tried once, untimed; one that fails is left out and named in the result. --limit S: a round that would end after S seconds,
by what samples have taken so far, goes without the last peers. Writes progression.json (a list of runs, all samples) into
--out after each round; --append keeps the runs it has. --levels: brim's levels,
in place of a workload's; --no-peers: them alone. COMMIT: what brim was built from, where this directory has no git.

usage: model_peers.py --brim PROGRAM --model DIR [--out DIR] [--rounds N] [--limit S] [--workloads 32/33,...] [--append]
                      [--levels dense,...] [--no-peers]
                      [--try-only | --tried FILE] [--mlx COMMAND]       (default for MLX: this Python, if mlx is installed)
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
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
LEVELS = ["dense", "matvec", "fused", "attention", "tiled", "split-k", "hopper"]
# Prompt, output, brim's variants; peers in the order in which they are kept where time is short. Three levels take 4 s for 2048 rows.
WORKLOADS = [(128, 129, LEVELS), (2048, 129, ["dense", "tiled", "split-k", "hopper"]), (32, 33, LEVELS)]
PEERS = ["transformers", "mlx", "transformers-int4"]


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


def serve(place):
    """A process that has imported transformers, or None."""
    server = subprocess.Popen([sys.executable, str(HERE / "preloaded.py"), "serve", place, str(HERE / "transformers_runner.py")],
                              stdout=subprocess.DEVNULL)
    while server.poll() is None and not os.path.exists(place):
        time.sleep(0.1)
    return None if server.poll() is not None else server


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


def one_round(words, seconds):
    """Runs `brim bench progression`; notes how long a sample of each variant takes. Exit status, the last variant's name."""
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    name, start = None, time.time()
    for line in process.stderr:
        print(f"{time.time() - start:6.1f} s  {line}", end="", file=sys.stderr, flush=True)
        if line.startswith("bench progression: ") and "/" in line:
            if name:
                seconds[name] = max(seconds.get(name, 0), time.time() - begun)
            name, begun = line.split()[-1], time.time()
    code = process.wait()
    if name and code == 0:
        seconds[name] = max(seconds.get(name, 0), time.time() - begun)
    return code, name


def measure(args, commands, said, begin):
    peers = {name: commands[name] for name in PEERS if name in commands and said.get(name, "not tried") is None}
    about = {
        "gpu, driver, clocks now, largest SM clock, power limit":
            run("nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.limit",
                "--format=csv,noheader"),
        "clocks": "not locked",
        "versions": {**{p: version(p) for p in ("torch", "triton", "transformers")},
                     **json.loads((run("sh", "-c", peers["mlx"] + " --versions") if "mlx" in peers else None) or "{}")},
        "commit": os.environ.get("COMMIT") or run("git", "log", "-1", "--format=%h", "--", ":/src/cuda", ":/src/plan", ":/bindings"),
        "peers left out": {name: text for name, text in said.items() if text is not None},
    }
    results = args.out / "progression.json"
    runs = json.loads(results.read_text()) if args.append and results.exists() else []
    wanted = args.workloads.split(",") if args.workloads else [f"{n}/{m}" for n, m, _ in WORKLOADS]
    failed, left_out, seconds = 0, [], {}
    for number in range(args.rounds):
        for n_input, n_output, levels in WORKLOADS:
            title = f"{n_input}/{n_output}, round {number + 1}"
            if f"{n_input}/{n_output}" not in wanted:
                continue
            start = time.time()
            levels = args.levels.split(",") if args.levels else levels
            order = [*levels, *peers]
            while order and start - begin + 2 * sum(seconds.get(n, 2.5 if n in levels else 9) for n in order) > args.limit:
                left_out.append(f"{order.pop()} at {title}")
            if not order:
                continue
            result = args.out / "round.json"
            while order:
                result.unlink(missing_ok=True)
                words = [args.brim, "bench", "progression", "--device", "cuda", "--offline", "--no-check", "--model", args.model,
                         "--input-len", str(n_input), "--output-len", str(n_output), "--repeats", "2", "--warmup", args.warmup,
                         "--prefill-logits", "last", "--json-output", str(result)]  # the second repeat goes in reverse
                words += [w for name in order if name in peers for w in ("--peer", f"{name}={peers[name]}")]
                words += [w for name in order for w in ("--variant", name)]
                code, last = one_round(words, seconds)
                if code == 0 or last not in order:
                    break
                left_out.append(f"{last} at {title}: failed")
                order.remove(last)
            if code or not result.exists():
                print(f"FAILED: {title}", file=sys.stderr)
                failed += 1
                continue
            runs.append({**json.loads(result.read_text()), **about, "model": "synthetic qwen3-4b (brim synth)"})
            results.write_text(json.dumps(runs) + "\n")
            print(f"{title}: {time.time() - start:.0f} s", flush=True)
    (args.out / "round.json").unlink(missing_ok=True)
    print(f"{len(runs)} runs, {failed} failed, left out for time: {', '.join(left_out) or 'none'}; {time.time() - begin:.0f} s, "
          f"{datetime.datetime.now(datetime.timezone.utc):%F}")
    return failed != 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--brim", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out"))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1e9)
    parser.add_argument("--workloads")
    parser.add_argument("--append", action="store_true")
    parser.add_argument("--levels")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--warmup", default="2")
    parser.add_argument("--try-only", action="store_true")
    parser.add_argument("--tried", type=pathlib.Path)
    parser.add_argument("--mlx")
    args = parser.parse_args()
    begin = time.time()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.no_peers:
        return measure(args, {}, {}, begin)
    here = f"{sys.executable} {HERE}"
    with tempfile.TemporaryDirectory() as folder:
        place = f"{folder}/socket"
        said = json.loads(args.tried.read_text()) if args.tried and args.tried.exists() else {}
        server = serve(place) if said.get("preloaded") is None else None
        try:
            ways = {True: f"{here}/preloaded.py run {place}", False: f"{here}/transformers_runner.py"}
            commands = {"transformers": ways[bool(server)], "transformers-int4": ways[bool(server)] + " --kind int4"}
            if args.mlx or importlib.util.find_spec("mlx"):
                commands["mlx"] = args.mlx or f"{here}/mlx_runner.py --device gpu"
            if not said:
                said = try_once(commands, args.model)
                again = {name: ways[False] + (" --kind int4" if "int4" in name else "") for name, text in said.items()
                         if text is not None and name != "mlx"}
                if again and server:  # by processes that do their own imports
                    said = {**said, **try_once(again, args.model), "preloaded": "a sample failed"}
                    commands |= again
                (args.out / "tried.json").write_text(json.dumps(said) + "\n")
            return 0 if args.try_only else measure(args, commands, {k: v for k, v in said.items() if k != "preloaded"}, begin)
        finally:
            if server:
                server.terminate()


if __name__ == "__main__":
    sys.exit(main())
