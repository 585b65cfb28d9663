#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where the time of a W4 product jumps from one row count to the next (tools/gpu_check.sh sweep-w4).

    check_sweep.py w4_sweep.csv [--named FILE] [--limit 0.1]

Prints each step outside 1 - limit .. 1 + limit with the kernels and plans on both sides, then the number of
steps and of jumps for each projection. FILE (projection,M,cause) names jumps that are known, from M rows to
M + 1. Exit status 1 if a jump has no name, or a name no jump.
"""
import argparse
import csv
import sys


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as f:
        return list(csv.DictReader(line for line in f if not line.startswith("#")))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv")
    parser.add_argument("--named")
    parser.add_argument("--limit", type=float, default=0.1)
    args = parser.parse_args()
    named = {(r["projection"], int(r["M"])): r["cause"] for r in rows_of(args.named)} if args.named else {}
    rows, counts, bad = rows_of(args.csv), {}, 0
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
