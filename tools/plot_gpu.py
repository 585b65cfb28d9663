#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plots of the GPU's results as SVG (needs matplotlib).

  tools/plot_gpu.py w4 bench/results/h200/w4_peers.csv [bench/results/h200/w4_sweep.csv]   time against rows
  tools/plot_gpu.py kda                  time against tokens of one sequence: every route, FLA, the memory floor

w4: written beside the peers' file, with its name. kda: bench/results/h200/kda_split.svg from the kda_*.csv there; of a point that
several measured the newest (kda_route_table.py says which), FLA from kda_peers.csv where that has the number of heads.
"""
import csv
import os
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "brim"  # the same file from the same figures
matplotlib.rcParams["svg.fonttype"] = "none"
import matplotlib.pyplot as plt  # noqa: E402

import kda_route_table  # noqa: E402

COLOURS = {"brim": "#1f6fb4", "brim, every M": "#8fc1e8", "cublas bf16": "#8c8c8c", "torch int4": "#c0a060",
           "split": "#1f6fb4", "split, weak gates": "#8fc1e8", "split-join": "#6a3d9a", "m128": "#2e8b57", "m64": "#90c9a5", "pair": "#57a87b", "queue": "#1d5c38", "c4-m128": "#c0504d",
           "c4-m64": "#d98c8a", "c5-m64": "#e0b0af", "c6-m64": "#8b1a1a", "c8-m128": "#b08fc7", "FLA": "#8c8c8c",
           "cudnn-frontend": "#c0a060", "brim, as chosen": "#123a5e", "floor": "#333333", "memory floor": "#333333"}


def rows_of(name):
    with open(name, encoding="utf-8") as f:
        return list(csv.DictReader(line for line in f if not line.startswith("#")))


def finish(figure, axes, output, across, legend):
    for ax in axes.flat:
        if not ax.has_data():
            ax.set_visible(False)
            continue
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_xlabel(across)
        ax.set_ylabel("us")
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(True, which="major", lw=0.3)
    lines = {label: line for ax in axes.flat for line, label in zip(*ax.get_legend_handles_labels())}
    figure.tight_layout(rect=(0, 0, 0.87, 1))
    figure.legend(lines.values(), lines.keys(), loc="center right", fontsize=8, frameon=False, title=legend)
    figure.savefig(output, metadata={"Date": None})
    print(output)


def plot_w4(peers, sweep=None):
    lines = [r for r in rows_of(peers) if int(r["rows"]) > 0]
    fine = rows_of(sweep) if sweep else []
    names = list(dict.fromkeys(r["projection"] for r in lines))
    figure, axes = plt.subplots(2, 3, figsize=(12, 7), squeeze=False)
    for ax, name in zip(axes.flat, names):
        mine = [r for r in lines if r["projection"] == name]
        for peer in dict.fromkeys(r["peer"] for r in mine):
            at = [(int(r["rows"]), float(r["median_us"])) for r in mine if r["peer"] == peer]
            ax.plot(*zip(*at), marker="o", ms=3, lw=1.2, color=COLOURS.get(peer), label=peer)
        at = sorted({(int(r["rows"]), float(r["floor_us"])) for r in mine})
        ax.plot(*zip(*at), ls=":", lw=1, color=COLOURS["floor"], label="floor")
        at = [(int(r["M"]), float(r["us"])) for r in fine if r["projection"] == name]
        if at:
            ax.plot(*zip(*at), lw=0.6, color=COLOURS["brim, every M"], label="brim, every M")
        ax.set_title(f"{name}: {mine[0]['n_in']} to {mine[0]['n_out']}", fontsize=9)
    finish(figure, axes, peers.removesuffix(".csv") + ".svg", "rows (M)", "cold, graph replay")


def plot_kda():
    name_of = lambda name: os.path.join(kda_route_table.RESULTS, name)
    times = {}  # (heads, what): {tokens: us}
    for _, paths in kda_route_table.runs(None):
        for r in (r for path in paths for r in rows_of(path)):
            if r["n_seq"] != "1" or r.get("gate") == "softplus":
                continue
            what, us = r.get("route"), r.get("us_median")
            if "gates" in r:
                what, us = {"normal": "split", "weak": "split, weak gates"}.get(r["gates"]), r["split_us"]
            if what is None:
                continue
            times.setdefault((int(r["n_head"]), what), {})[int(r["n_tok"])] = float(us)
    for r in rows_of(name_of("kda_peers_earlier.csv")):
        what = {"fla_triton": "FLA", "cudnn_kda_hopper_cuda": "cudnn-frontend"}.get(r["impl"])
        if what and r["shape"] == "1 sequence" and "raw gates -12" not in r["note"]:
            times.setdefault((int(r["heads_or_outputs"]), what), {})[int(r["M_or_T"])] = float(r["median_us"])
    now = [r for r in rows_of(name_of("kda_peers.csv")) if r["gate"] == "lower_bound" and r["sequences"] == "1" and r["median_us"]]
    for r in now:
        times.pop((int(r["heads"]), "FLA"), None)
    for r in now:
        what = "FLA" if r["peer"] == "fla triton" else "brim, as chosen"
        times.setdefault((int(r["heads"]), what), {})[int(r["tokens"])] = float(r["median_us"])
    figure, axes = plt.subplots(2, 3, figsize=(13, 7), squeeze=False)
    for ax, n_head in zip(axes.flat, (1, 4, 8, 12, 64, 96)):
        series = {what: at for (h, what), at in times.items() if h == n_head}
        for what in sorted(series, key=lambda what: (list(COLOURS).index(what) if what in COLOURS else -1, what)):
            at = sorted(series[what].items())
            ax.plot(*zip(*at), marker="o", ms=3, lw=1.2, color=COLOURS.get(what), label=what)
        tokens = sorted({t for at in series.values() for t in at})
        if tokens:  # q, k, v, g, out in bf16, beta, two states in fp32, at the measured copy rate
            floor = [(t, n_head * (t * (5 * 256 + 2) + 2 * 65536) / 4.3e6) for t in tokens]
            ax.plot(*zip(*floor), ls=":", lw=1, color=COLOURS["floor"], label="memory floor")
        ax.set_title(f"{n_head} heads", fontsize=9)
    finish(figure, axes, name_of("kda_split.svg"), "tokens (T)", "cold, graph replay")


def main():
    if sys.argv[1:] == ["kda"]:
        plot_kda()
    elif 3 <= len(sys.argv) <= 4 and sys.argv[1] == "w4":
        plot_w4(*sys.argv[2:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
