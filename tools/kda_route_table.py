#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measured times of KDA's routes as a table in C, for the router (src/plan/kda_route.c).

    kda_route_table.py            write src/plan/kda_route_table.c
    kda_route_table.py --check    exit status 1 if that file is not what the committed results give

Which routes there are and how many of their tasks run at once is read from src/plan/kda_route.c and clusters.h; a route
that no file has a line of gets no rows. Times are read from bench/results/h200/: kda.csv (before K1 was rewritten), then kda_routes.csv and kda_split.csv (one commit), then
every kda_sweep*.csv (tools/gpu_check.sh sweep-kda). Of points of one route, length and number of waves the newest run's
alone are kept, of several of one number of tasks the slowest. Packed mixes are left out (their rows have a sum of unequal
lengths), and gates that do not forget: a split call whose cuts fail costs the serial route's time on top.

A row of a serial route: chunks of 32 tokens of a sequence, tasks (sequences times heads), us. Of the split route: chunks
that a processor works through, windows included, over all waves; 1; us.
"""
import argparse
import csv
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "bench/results/h200")
TABLE = os.path.join(ROOT, "src/plan/kda_route_table.c")
PROCESSORS = 132
PACKED = {(6, 8192), (4, 4096), (8, 4544)}  # (n_seq, n_tok) of the mixes; n_tok is their sum


def ceil_div(a, b):
    return -(-a // b)


def read_plan(name):
    with open(os.path.join(ROOT, "src/plan", name), encoding="utf-8") as f:
        return f.read()


def routes():
    """{name: (its enumerator, tasks that an H200 holds at once)} in the order of the table of routes."""
    clusters = re.search(r"brim_clusters_of_132\[8\] = \{([\d, ]+)\}", read_plan("clusters.h"))
    at_once = [int(n) for n in clusters.group(1).split(",")]
    rows = re.findall(r"\[(BRIM_KDA_ROUTE_\w+)\] =\s*\{\"([\w-]+)\",\s*(\d+),", read_plan("kda_route.c"))
    return {name: (enum, at_once[int(cluster) - 1]) for enum, name, cluster in rows}


ROUTES = routes()


def at_once(route):
    return ROUTES[route][1]


def serial_route(n_tok, n_task):
    """The route behind kda_split.csv's serial_us: the choice of its commit, d71d607."""
    if n_tok >= 2048 and n_task <= 8:
        return "c6-m64"
    if (n_tok >= 512 and n_task <= 16) or (n_tok >= 1024 and n_task <= 32) or (n_tok >= 8192 and n_task <= 64):
        return "c4-m128"
    return "m128"


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as f:
        yield from csv.DictReader(line for line in f if not line.startswith("#"))


def split_point(n_seq, n_tok, n_head, length, window, us):
    segments = n_seq * ceil_div(ceil_div(n_tok, 32), length)
    waves = ceil_div(segments * n_head, at_once("split"))
    return "split", waves * (length + window), 1, us, n_tok


def points(path):
    """(route, chunks, tasks, us, n_tok) of one file."""
    for row in rows_of(path):
        n_seq, n_tok, n_head = int(row["n_seq"]), int(row["n_tok"]), int(row["n_head"])
        if "serial_us" in row:  # kda_split.csv
            if row["gates"] != "normal":
                continue
            length, window = int(row["length"]), int(row["window"])
            yield split_point(n_seq, n_tok, n_head, length, window, float(row["split_us"]))
            yield serial_route(n_tok, n_seq * n_head), ceil_div(n_tok, 32), n_seq * n_head, float(row["serial_us"]), n_tok
        elif row["route"] == "split":
            yield split_point(n_seq, n_tok, n_head, int(row["split_length"]), int(row["split_window"]),
                              float(row["us_median"]))
        elif (n_seq, n_tok) not in PACKED:
            yield row["route"], ceil_div(n_tok, 32), n_seq * n_head, float(row["us_median"]), n_tok


def runs():
    """Files by age, oldest first; those of one run together."""
    name = lambda f: os.path.join(RESULTS, f)
    yield [name("kda.csv")]
    yield [name("kda_routes.csv"), name("kda_split.csv")]
    sweep = sorted(glob.glob(name("kda_sweep*.csv")))
    if sweep:
        yield sweep


def table():
    """{(route, chunks, tasks): us} and the fewest tokens a sequence of the split route had."""
    kept, least = {}, None
    for files in runs():
        new = {}
        for file in files:
            for route, chunks, n_task, us, n_tok in points(file):
                if route not in ROUTES:
                    sys.exit(f"{file}: no route is called '{route}' in src/plan/kda_route.c")
                key = route, chunks, n_task
                if route == "split":
                    least = n_tok if least is None else min(least, n_tok)
                new[key] = max(us, new.get(key, 0))
        group = lambda key: (key[0], key[1], ceil_div(key[2], at_once(key[0])))
        renewed = {group(key) for key in new}
        kept = {key: us for key, us in kept.items() if group(key) not in renewed} | new
    return kept, least


def text():
    kept, least = table()
    names = list(ROUTES)
    lines = [
        "/* SPDX-License-Identifier: Apache-2.0",
        " * Times of KDA's routes measured on one H200, from bench/results/h200/kda*.csv: written by",
        " * tools/kda_route_table.py, not by hand. Route, chunks, tasks, us. */",
        '#include "plan/kda_route_table.h"',
        "",
        f"const int brim_kda_table_processors = {PROCESSORS};",
        f"const int brim_kda_split_least_tokens = {least};",
        "",
        "/* clang-format off */",
        "const struct brim_kda_time brim_kda_times[] = {",
        *(f"    {{{ROUTES[r][0]}, {chunks}, {n_task}, {us:.1f}F}}," for (r, chunks, n_task), us in
          sorted(kept.items(), key=lambda item: (names.index(item[0][0]),) + item[0][1:])),
        "};",
        "const int brim_kda_n_time = (int)(sizeof brim_kda_times / sizeof *brim_kda_times);",
    ]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    want = text()
    if not args.check:
        with open(TABLE, "w", encoding="utf-8") as f:
            f.write(want)
        return 0
    with open(TABLE, encoding="utf-8") as f:
        same = f.read() == want
    if not same:
        print("src/plan/kda_route_table.c is not what the results give: run tools/kda_route_table.py", file=sys.stderr)
    return not same


if __name__ == "__main__":
    sys.exit(main())
