#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measured times of KDA's routes as a table in C, for the router (src/plan/kda_route.c).

    kda_route_table.py            write src/plan/kda_route_table.c
    kda_route_table.py --check    exit status 1 if that file is not what the committed results give

Which routes there are and how many of their tasks run at once is read from src/plan/kda_route.c and clusters.h; a route
that no file has a line of gets no rows. Times are read from bench/results/h200/: kda_routes.csv, kda_split.csv and
every kda_sweep*.csv (tools/gpu_check.sh sweep-kda). Packed mixes are left out (their rows have a sum of unequal lengths),
gates without a bound, and gates that do not forget: a split call whose cuts fail costs the serial route's time on top.

A row of a serial route: waves, chunks of 32 tokens of a sequence, tasks (sequences times heads), us. A row
of the split route: sequences, tokens, heads, the segments' length and window, chunks that a processor works through,
windows included, over all waves, us. Of the exact chain (kda_join.csv) not the times but the four constants of
brim_kda_split_cost_exact that fit them best. Each file says of which commit the programs were that wrote it ("programs of commit ..."
in its first lines). Of what several commits' programs measured the newest time stands, of one commit's the slowest. Which
commit is newer git says; the written table lists them in that order, and --check goes by its list, so it needs no git.
"""
import argparse
import csv
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "bench/results/h200")
TABLE = os.path.join(ROOT, "src/plan/kda_route_table.c")
PROCESSORS = 132
# (n_seq, n_tok) of the mixes of bench/kda_shapes.c, which a sweep has none of; n_tok is their sum.
PACKED = {(6, 8192), (4, 4096), (8, 4544)}


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


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as f:
        yield from csv.DictReader(line for line in f if not line.startswith("#"))


def points(path):
    """("serial", (route, chunks, tasks), us) and ("split", (n_seq, n_tok, n_head), (length, first, window, chunks, us)) of one file, of packed mixes
    none: their n_tok is no sequence's."""
    packed = PACKED if os.path.basename(path) == "kda_routes.csv" else set()
    for row in rows_of(path):
        n_seq, n_tok, n_head = int(row["n_seq"]), int(row["n_tok"]), int(row["n_head"])
        if row.get("gate") == "softplus" or (n_seq, n_tok) in packed:
            continue
        chunks, n_task = ceil_div(n_tok, 32), n_seq * n_head
        if "serial_us" in row:  # kda_split.csv: the serial route beside it has no name there
            if row["gates"] == "normal":
                yield "split", (n_seq, n_tok, n_head), (*(int(row[name]) for name in ("length", "first", "window", "chunks")), float(row["split_us"]))
        elif int(row.get("split_length") or 0) > 0:
            if row["route"] == "split":  # nothing is expected of others that cut
                lengths = (int(row["split_" + name]) for name in ("length", "first", "window", "chunks"))
                yield "split", (n_seq, n_tok, n_head), (*lengths, float(row["us_median"]))
        elif row["route"] not in ROUTES:
            sys.exit(f"{path}: no route is called '{row['route']}' in src/plan/kda_route.c")
        else:
            yield "serial", (row["route"], chunks, n_task), float(row["us_median"])


def files():
    return sorted(os.path.join(RESULTS, f) for f in os.listdir(RESULTS) if re.fullmatch(r"kda_(routes|split|sweep.*)\.csv", f))


def commit_of(path):
    with open(path, encoding="utf-8") as f:
        for line in f:
            found = re.match(r"#.*programs of commit ([0-9a-f]{7,40})\b", line)
            if found:
                return found[1]
            if not line.startswith("#"):
                break
    sys.exit(f"{path}: its first lines do not name the commit of the programs that wrote it")


def age(commit):
    """Commits before this one, all of one line."""
    git = subprocess.run(["git", "-C", ROOT, "rev-list", "--count", commit], capture_output=True, text=True, check=False)
    if git.returncode:
        sys.exit(f"git does not know commit {commit}: {git.stderr.strip()}")
    return int(git.stdout)


def runs(known):
    """[(commit, its files)], oldest first; known: the commits in that order, or None: by git."""
    by_commit = {}
    for path in files():
        by_commit.setdefault(commit_of(path), []).append(path)
    if known is None:
        return sorted(by_commit.items(), key=lambda run: age(run[0]))
    return [(commit, by_commit[commit]) for commit in known if commit in by_commit] + [r for r in by_commit.items() if r[0] not in known]


def waves(route, n_task):
    return ceil_div(n_task, ROUTES[route][1])


def table(of_runs):
    """Serial {(route, waves, chunks, tasks): us}, split {(n_seq, n_tok, n_head): (length, first, window, chunks, us)}."""
    serial, split = {}, {}
    for _, paths in of_runs:
        new, cut = {}, {}
        for kind, key, value in (point for path in paths for point in points(path)):
            if kind == "split":
                cut[key] = max(value, cut.get(key, value), key=lambda v: v[-1])
            else:
                route, chunks, n_task = key
                key = route, waves(route, n_task), chunks, n_task
                new[key] = max(value, new.get(key, 0))
        serial |= new
        split |= cut
    return serial, split


def split_rows(split):
    """(n_seq, n_tok, n_head, length, first, window, chunks, us), by chunks."""
    return sorted((key + value for key, value in split.items()), key=lambda row: (row[6],) + row)


def join_cost():
    """(us a chunk, us a wave of CTAs else, us a join, us a call else), shortest and longest sequence in chunks: those of the least
    greatest relative error over kda_join.csv, as weighted least squares whose weights grow with the errors (Lawson)."""
    rows = []
    for row in rows_of(os.path.join(RESULTS, "kda_join.csv")):
        n_tok, n_head, n_seq, length = (int(row[name]) for name in ("n_tok", "n_head", "n_seq", "length"))
        chunks = ceil_div(n_tok, 32)
        most = ceil_div(chunks, length)
        segments = n_seq * most
        maps = max(2 * segments - 3 * n_seq, segments - n_seq)
        launches = ceil_div(maps * n_head, PROCESSORS) + ceil_div(segments * n_head, PROCESSORS)
        joins = ceil_div(8 * n_seq * n_head, PROCESSORS) * max(most - 2, 0)
        us = float(row["join_us"])
        rows.append(([launches * length / us, launches / us, joins / us, 1 / us], chunks))
    weights, best, least = [1.0] * len(rows), None, float("inf")
    for _ in range(400):
        cost = weighted_fit([x for x, _ in rows], weights)
        errors = [abs(sum(c * x for c, x in zip(cost, row)) - 1) for row, _ in rows]
        if max(errors) < least:
            best, least = cost, max(errors)
        weights = [w * e for w, e in zip(weights, errors)]
        weights = [max(w / sum(weights), 1e-9) for w in weights]  # none is lost, or the matrix is singular
    return best, min(c for _, c in rows), max(c for _, c in rows)


def weighted_fit(rows, weights):
    """What makes the weighted sum of squares of (row . answer - 1) least."""
    n = len(rows[0])
    a = [[sum(w * x[i] * x[j] for x, w in zip(rows, weights)) for j in range(n)] + [sum(w * x[i] for x, w in zip(rows, weights))]
         for i in range(n)]
    for i in range(n):  # Gauss and Jordan: the matrix is positive definite
        for k in range(n):
            if k != i:
                factor = a[k][i] / a[i][i]
                a[k] = [x - factor * y for x, y in zip(a[k], a[i])]
    return [a[i][n] / a[i][i] for i in range(n)]


def text(of_runs):
    serial, split = table(of_runs)
    names = list(ROUTES)
    cost, shortest, longest = join_cost()
    lines = [
        "/* SPDX-License-Identifier: Apache-2.0",
        " * GENERATED by tools/kda_route_table.py, not by hand, from bench/results/h200: times of KDA's",
        " * routes measured on one H200. Columns: kda_route_table.h. */",
        '#include "plan/kda_route_table.h"',
        "",
        f"const int brim_kda_table_processors = {PROCESSORS};",
        f"const int brim_kda_split_least_tokens = {min(n_tok for _, n_tok, _ in split)};",
        f"const struct brim_kda_join_cost brim_kda_join_cost = {{{', '.join(f'{us:.3f}' for us in cost)}, {shortest}, {longest}}};",
        "",
        "/* clang-format off */",
        "/* The commits of the programs that measured, oldest first, and their files:",
        *(f" *     {commit} {' '.join(map(os.path.basename, paths))}" for commit, paths in of_runs),
        " */",
        "const struct brim_kda_time brim_kda_times[] = {",
        *(f"    {{{ROUTES[route][0]}, {n_wave}, {chunks}, {n_task}, {us:.1f}F}},"
          for (route, n_wave, chunks, n_task), us in
          sorted(serial.items(), key=lambda item: (names.index(item[0][0]),) + item[0][1:])),
        "};",
        "const int brim_kda_n_time = (int)(sizeof brim_kda_times / sizeof *brim_kda_times);",
        "",
        "const struct brim_kda_split_time brim_kda_split_times[] = {",
        *(f"    {{{', '.join(map(str, row[:-1]))}, {row[-1]:.1f}F}}," for row in split_rows(split)),
        "};",
        "const int brim_kda_n_split_time =",
        "    (int)(sizeof brim_kda_split_times / sizeof *brim_kda_split_times);",
    ]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if not args.check:
        with open(TABLE, "w", encoding="utf-8") as f:
            f.write(text(runs(None)))
        return 0
    with open(TABLE, encoding="utf-8") as f:
        have = f.read()
    same = have == text(runs(re.findall(r"^ \*     ([0-9a-f]{7,40}) kda_", have, re.MULTILINE)))
    if not same:
        print("src/plan/kda_route_table.c is not what the results give: run tools/kda_route_table.py", file=sys.stderr)
    return not same


if __name__ == "__main__":
    sys.exit(main())
