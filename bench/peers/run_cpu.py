#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""brim beside its peers on this machine's processor, in alternating order.

  PEERS/bin/python bench/peers/run_cpu.py --brim build/release/brim --gguf MODEL.gguf \\
      [--mlx-model DIR] [--rounds 3] [--output bench/results/cpu]

For each round every program runs once in a process of its own, even rounds in forward and odd ones
in reverse order. Rows:
  gguf (SmolLM2)  pp32 pp128 pp512 tg128, time to first token, load, peak memory:
                  llama.cpp, brim int8, brim f32
  mlx  (qwen3-0.6b, synthetic)  pp8 pp32 tg8:  mlx, brim int8, brim f32
Writes OUTPUT.csv (medians and extremes), OUTPUT.json (every sample, versions). The first load of a
round is not special: the file is read once before, so the page cache is warm for all.
"""
import argparse
import csv
import datetime
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from versions import versions  # noqa: E402

PROMPT = "Write a short paragraph about the sea in winter, as a sailor would tell it to a child."


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}")
    return json.loads(done.stdout)


def run_brim(a, model, mode, prefill, decode, prompt):
    command = [a.brim, "bench", "model", model, "-r", str(a.repeat), "-o", "json", "-q",
               "--activations", mode, "--threads", str(a.threads),
               "-p", ",".join(map(str, prefill)), "-n", ",".join(map(str, decode))]
    if prompt:
        command += ["--prompt", prompt]
    if a.no_check:
        command.append("--no-check")
    tests = run(command)
    rows = {}
    for t in tests:
        name = "ttft" if t["test"].startswith("ttft") else t["test"]
        rows[name] = {"tokens": t["n_prompt"] or t["n_gen"], "samples_ns": t["samples_ns"]}
    return {"load_ns": tests[0]["load_ns"], "peak_kib": tests[0]["peak_bytes"] // 1024,
            "base_kib": 0, "rows": rows, "cpu_tier": tests[0]["cpu_tier"],
            "file_bytes": tests[0]["model_size"],
            "kv_bytes_per_token": tests[0]["kv_bytes_per_token"]}


def run_llama(a, prefill, decode):
    return run([sys.executable, os.path.join(HERE, "llama_runner.py"), a.gguf, "--threads",
                str(a.threads), "--repeat", str(a.repeat), "--prompt", PROMPT,
                "--prefill", *map(str, prefill), "--decode", *map(str, decode)])


def run_mlx(a, prefill, decode):
    return run([sys.executable, os.path.join(HERE, "mlx_runner.py"), a.mlx_model,
                "--prefill", *map(str, prefill), "--decode", *map(str, decode)])


def read_once(path):
    files = [path] if os.path.isfile(path) else [os.path.join(path, f) for f in os.listdir(path)]
    for name in files:
        with open(name, "rb") as f:
            while f.read(1 << 24):
                pass


def measure(programs, rounds):
    """programs: name -> function; all samples per program and row."""
    samples = {name: {} for name, _ in programs}
    facts = {}
    for r in range(rounds):
        for name, function in programs if r % 2 == 0 else programs[::-1]:
            print(f"round {r + 1}/{rounds}: {name}", file=sys.stderr)
            out = function()
            for row, values in out["rows"].items():
                samples[name].setdefault(row, {"tokens": values["tokens"], "ns": []})
                samples[name][row]["ns"] += values["samples_ns"]
            for row, value in (("load", out["load_ns"]), ("peak", out["peak_kib"] - out["base_kib"])):
                samples[name].setdefault(row, {"tokens": 0, "ns": []})["ns"].append(value)
            facts[name] = {k: out[k] for k in out if k not in ("rows",)}
    return samples, facts


def table(model, samples):
    """One line per program and row: unit, median, best, worst, samples."""
    lines = []
    for name, rows in samples.items():
        for row, data in rows.items():
            if row == "load" or row == "ttft":
                unit, values = "ms", [v / 1e6 for v in data["ns"]]
                best, worst = min(values), max(values)
            elif row == "peak":
                unit, values = "MB", [v * 1024 / 1e6 for v in data["ns"]]
                best, worst = min(values), max(values)
            else:
                unit, values = "tok/s", [data["tokens"] * 1e9 / v for v in data["ns"]]
                best, worst = max(values), min(values)
            lines.append({"model": model, "program": name, "row": row, "unit": unit,
                          "median": f"{statistics.median(values):.2f}", "best": f"{best:.2f}",
                          "worst": f"{worst:.2f}", "samples": len(values)})
    return lines


def print_ratios(lines, peer):
    """brim against the peer, by medians and by best samples; above 1 brim is ahead."""
    for model in dict.fromkeys(line["model"] for line in lines):
        mine = [line for line in lines if line["model"] == model]
        theirs = {line["row"]: line for line in mine if line["program"] == peer[model]}
        print(f"{model}: brim / {peer[model]}")
        for line in mine:
            other = theirs.get(line["row"])
            if line["program"] == peer[model] or other is None:
                continue
            ratios = [float(line[k]) / float(other[k]) for k in ("median", "best")]
            if line["unit"] != "tok/s":
                ratios = [1 / r for r in ratios]
            print(f"  {line['program']:10} {line['row']:6} {float(line['median']):10.2f} "
                  f"{float(other['median']):10.2f} {line['unit']:6} {ratios[0]:6.2f}x "
                  f"(best {ratios[1]:.2f}x)")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--brim", default="build/release/brim")
    p.add_argument("--gguf", help="SmolLM2-135M-Instruct.Q4_1.gguf")
    p.add_argument("--mlx-model", help="the directory of brim synth --preset qwen3-0.6b")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=4)
    p.add_argument("--mlx-rounds", type=int, default=3)
    p.add_argument("--repeat", type=int, default=3, help="samples per process")
    p.add_argument("--no-check", action="store_true")
    p.add_argument("--output", default="bench/results/cpu")
    a = p.parse_args()
    if not a.gguf and not a.mlx_model:
        p.error("give --gguf, --mlx-model or both")
    lines, raw, facts = [], {}, {}
    if a.gguf:
        read_once(a.gguf)
        prefill, decode = [32, 128, 512], [128]
        programs = [("llama.cpp", lambda: run_llama(a, prefill, decode)),
                    ("brim int8", lambda: run_brim(a, a.gguf, "int8", prefill, decode, PROMPT)),
                    ("brim f32", lambda: run_brim(a, a.gguf, "f32", prefill, decode, PROMPT))]
        raw["smollm2-135m"], facts["smollm2-135m"] = measure(programs, a.rounds)
        lines += table("smollm2-135m", raw["smollm2-135m"])
    if a.mlx_model:
        read_once(a.mlx_model)
        prefill, decode = [8, 32], [8]
        programs = [("mlx", lambda: run_mlx(a, prefill, decode)),
                    ("brim int8", lambda: run_brim(a, a.mlx_model, "int8", prefill, decode, None)),
                    ("brim f32", lambda: run_brim(a, a.mlx_model, "f32", prefill, decode, None))]
        raw["qwen3-0.6b"], facts["qwen3-0.6b"] = measure(programs, a.mlx_rounds)
        lines += table("qwen3-0.6b", raw["qwen3-0.6b"])
    os.makedirs(os.path.dirname(a.output) or ".", exist_ok=True)
    with open(a.output + ".csv", "w", encoding="utf-8", newline="") as f:
        writer = csv.DictWriter(f, lines[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    commit = subprocess.run(["git", "-C", HERE, "rev-parse", "HEAD"], capture_output=True,
                            text=True, check=False).stdout.strip()
    with open(a.output + ".json", "w", encoding="utf-8") as f:
        json.dump({"time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                   "commit": commit, "threads": a.threads, "versions": versions(),
                   "facts": facts, "samples": raw}, f)
        f.write("\n")
    print_ratios(lines, {"smollm2-135m": "llama.cpp", "qwen3-0.6b": "mlx"})


if __name__ == "__main__":
    main()
