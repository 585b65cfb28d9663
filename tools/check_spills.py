#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Registers, spills and wgmma serialization of every CUDA kernel against tools/spills.csv.

    check_spills.py [--update] [--nvcc PATH]

Compiles each src/cuda/**/*.cu for sm_90a with ptxas -v. Fails when a kernel spills more than the table
says, when a kernel is missing from it, or when ptxas reports serialized wgmma (C7510 to C7515; C7517,
a wait put where the accumulator is read, and C7519, an arrive added, are not).
"""
import argparse
import concurrent.futures
import csv
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "tools" / "spills.csv"


def compile_one(nvcc, source, scratch):
    command = [nvcc, "-std=c++17", "-O3", "-gencode=arch=compute_90a,code=sm_90a", f"-I{ROOT}/include",
               f"-I{ROOT}/src", "-Xptxas", "-v", "-cubin", "-o", str(scratch / f"{source.stem}.cubin"), str(source)]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"error: {source} does not compile\n{run.stderr}")
    return run.stderr


def parse(source, text):
    rows, serial = [], []
    own = False  # a kernel's figures, not those of a function it calls
    for line in text.splitlines():
        if match := re.search(r"\((C75(?!17|19)\d\d)\)", line):
            serial.append(f"{source.name}: {match.group(1)}: {line.strip()[:160]}")
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            # the name of an unnamed namespace holds hashes of the build
            name = re.sub(r"_ZN\d+_GLOBAL__N__[0-9a-f]{8}_\d+_[a-z0-9_]+?_cu_[0-9a-f]{8}", "_ZN", match.group(1))
            rows.append([str(source.relative_to(ROOT)), name, 0, 0, 0])
            entry = match.group(1)
        if match := re.search(r"Function properties for (\w+)", line):
            own = bool(rows) and match.group(1) == entry
        if match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            if own:
                rows[-1][3:5] = int(match.group(1)), int(match.group(2))
        if match := re.search(r"Used (\d+) registers", line):
            rows[-1][2] = int(match.group(1))
    return rows, serial


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="write the table instead of comparing")
    parser.add_argument("--nvcc", default=shutil.which("nvcc"))
    args = parser.parse_args()
    if not args.nvcc:
        print("skipped: nvcc not found")
        return 77
    rows, bad = [], []
    sources = sorted((ROOT / "src" / "cuda").rglob("*.cu"))
    jobs = min(4, len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        outputs = pool.map(lambda s: compile_one(args.nvcc, s, pathlib.Path(scratch)), sources)
        for source, output in zip(sources, outputs):
            found, serial = parse(source, output)
            rows += found
            bad += serial
    if args.update:
        with open(TABLE, "w", newline="") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(["file", "kernel", "registers", "spill_stores", "spill_loads"])
            writer.writerows(rows)
    with open(TABLE, newline="") as table:
        known = {(r["file"], r["kernel"]): r for r in csv.DictReader(table)}
    for file, kernel, registers, stores, loads in rows:
        row = known.get((file, kernel))
        if row is None:
            bad.append(f"{kernel} of {file} is not in {TABLE.name}")
        elif stores > int(row["spill_stores"]) or loads > int(row["spill_loads"]):
            bad.append(f"{kernel} spills {stores}/{loads} bytes; the table allows "
                       f"{row['spill_stores']}/{row['spill_loads']}")
        print(f"{kernel}: {registers} registers, {stores}/{loads} bytes spilled")
    for line in bad:
        print(f"error: {line}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
