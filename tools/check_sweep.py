#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where the time of a W4 product jumps from one row count to the next (tools/gpu_check.sh sweep-w4).

    check_sweep.py w4_sweep.csv [--limit 0.1]

Prints each step outside 1 - limit .. 1 + limit with the kernels and plans on both sides, then the number of
steps and of exceptions for each projection. Exit status 1 if there is an exception.
"""
import argparse
import csv
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv")
    parser.add_argument("--limit", type=float, default=0.1)
    args = parser.parse_args()
    with open(args.csv, newline="", encoding="utf-8") as f:
        rows = list(csv.DictReader(line for line in f if not line.startswith("#")))
    counts = {}
    for a, b in zip(rows, rows[1:]):
        name = a["projection"]
        if b["projection"] != name or int(b["M"]) != int(a["M"]) + 1:
            continue
        ratio = float(b["us"]) / float(a["us"])
        n = counts.setdefault(name, [0, 0])
        n[0] += 1
        if abs(ratio - 1) > args.limit:
            n[1] += 1
            print(f"{name} {a['M']} -> {b['M']}: {a['us']} -> {b['us']} us, {ratio:.2f}: "
                  f"{a['kernel']} ({a['plan']}) -> {b['kernel']} ({b['plan']})")
    for name, (steps, bad) in counts.items():
        print(f"{name}: {steps} steps, {bad} outside")
    return any(bad for _, bad in counts.values())


if __name__ == "__main__":
    sys.exit(main())
