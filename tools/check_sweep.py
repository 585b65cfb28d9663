#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where the time of a W4 product jumps from one row count to the next (tools/gpu_check.sh sweep-w4).

    check_sweep.py w4_sweep.csv [--named FILE [--write]] [--limit 0.1]

Prints each step outside 1 - limit .. 1 + limit with the kernels and plans on both sides, then the number of
steps and of jumps for each projection. FILE (projection,M,cause) names jumps that are known, from M rows to
M + 1. Exit status 1 if a jump has no name, or a name no jump. --write names the jumps by the kernels and plans
on both sides instead, for a new sweep: read what it wrote.
"""
import argparse
import csv
import sys


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as f:
        return list(csv.DictReader(line for line in f if not line.startswith("#")))


def cause_of(a, b):
    """Of the jump between rows a and b of the sweep, as far as kernels and plans tell."""
    m, faster = int(a["M"]), float(b["us"]) < float(a["us"])
    if a["kernel"] != b["kernel"]:
        return f"{a['kernel']} gives way to {b['kernel']}: {'faster' if faster else 'slower'}"
    if a["kernel"].startswith("gemv"):
        return "gemv: x is loaded four rows at a time" if m == 4 else "gemv: another number of rows"
    tokens = int(a["plan"].split()[0])
    if a["plan"] == b["plan"] and (a["kernel"] == "cluster" or m % tokens):
        if a["kernel"] == "stream" and m > tokens and m % tokens <= tokens // 2:
            return f"stream: the last tile of tokens is filled by less than half ({m % tokens} of {tokens} rows)"
        return "the clock: same plan and same tiles on both sides; median of 5"
    if a["kernel"] == "cluster":
        same = a["plan"].split(" tokens ")[1] == b["plan"].split(" tokens ")[1]
        return "cluster: a tile of 16 tokens more" + ("" if same else " and another plan")
    return "stream: another tile of tokens"


def write_names(path, rows, limit):
    with open(path, "w", encoding="utf-8") as f:
        f.write("# Steps of w4_sweep.csv of more than a tenth from M rows to M + 1, and why; "
                "tools/check_sweep.py holds the two together\n")
        f.write("projection,M,cause\n")
        for a, b in zip(rows, rows[1:]):
            if a["projection"] == b["projection"] and abs(float(b["us"]) / float(a["us"]) - 1) > limit:
                f.write(f"{a['projection']},{a['M']},{cause_of(a, b)}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv")
    parser.add_argument("--named")
    parser.add_argument("--limit", type=float, default=0.1)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    rows, counts, bad = rows_of(args.csv), {}, 0
    if args.write:
        write_names(args.named, rows, args.limit)
    named = {(r["projection"], int(r["M"])): r["cause"] for r in rows_of(args.named)} if args.named else {}
    for a, b in zip(rows, rows[1:]):
        name, m = a["projection"], int(a["M"])
        if b["projection"] != name or int(b["M"]) != m + 1:
            continue
        ratio = float(b["us"]) / float(a["us"])
        n = counts.setdefault(name, [0, 0])
        n[0] += 1
        if abs(ratio - 1) > args.limit:
            n[1] += 1
            cause = named.pop((name, m), None)
            bad += not cause
            print(f"{name},{m},{cause or 'NOT NAMED'}: {a['us']} -> {b['us']} us, {ratio:.2f}: "
                  f"{a['kernel']} ({a['plan']}) -> {b['kernel']} ({b['plan']})")
    for name, m in named:
        print(f"{name},{m}: named, but no jump")
    for name, (steps, jumps) in counts.items():
        print(f"{name}: {steps} steps, {jumps} outside")
    return 1 if bad or named or not counts else 0


if __name__ == "__main__":
    sys.exit(main())
