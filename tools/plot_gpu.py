#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plots of the GPU's results as SVG (needs matplotlib).

  tools/plot_gpu.py w4 bench/results/h200/w4_peers.csv [bench/results/h200/w4_sweep.csv]   time against rows
  tools/plot_gpu.py kda bench/results/h200/kda_routes.csv bench/results/h200/kda_split.csv bench/results/h200/kda_peers_earlier.csv \
      bench/results/h200/kda_peers.csv          time against tokens; where the last one has FLA, it replaces the earlier FLA;
                                                            the first may be several, with commas (kda_sweep*.csv)

Written beside the peers' file (w4) or the split's (kda), with its name.
"""
import csv
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "brim"  # the same file from the same figures
matplotlib.rcParams["svg.fonttype"] = "none"
import matplotlib.pyplot as plt  # noqa: E402

COLOURS = {"brim": "#1f6fb4", "brim, every M": "#8fc1e8", "cublas bf16": "#8c8c8c", "torch int4": "#c0a060",
           "split": "#1f6fb4", "split, weak gates": "#8fc1e8", "m128": "#2e8b57", "m64": "#90c9a5", "pair": "#57a87b", "queue": "#1d5c38", "c4-m128": "#c0504d",
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


def plot_w4(peers, sweep):
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


def plot_kda(own, split, peers, same_run=None):
    lines = [r for name in own.split(",") for r in rows_of(name) if int(r["n_seq"]) == 1]
    cut = [r for r in rows_of(split) if int(r["n_seq"]) == 1]
    other = [r for r in rows_of(peers) if r["shape"] == "1 sequence" and r["impl"] in ("fla_triton", "cudnn_kda_hopper_cuda")
             and "raw gates -12" not in r["note"]]
    now = [r for r in rows_of(same_run) if r["gate"] == "lower_bound" and r["sequences"] == "1"] if same_run else []
    if now:
        other = [r for r in other if r["impl"] != "fla_triton"]
    figure, axes = plt.subplots(2, 3, figsize=(13, 7), squeeze=False)
    for ax, n_head in zip(axes.flat, (1, 4, 8, 12, 64, 96)):
        series = {}
        for r in lines:
            if int(r["n_head"]) == n_head:
                series.setdefault(r["route"], []).append((int(r["n_tok"]), float(r["us_median"])))
        for r in cut:
            if int(r["n_head"]) == n_head:
                name = "split" if r["gates"] != "weak" else "split, weak gates"
                series.setdefault(name, []).append((int(r["n_tok"]), float(r["split_us"])))
        for r in other:
            if int(r["heads_or_outputs"]) == n_head:
                name = "FLA" if r["impl"] == "fla_triton" else "cudnn-frontend"
                series.setdefault(name, []).append((int(r["M_or_T"]), float(r["median_us"])))
        for r in now:
            if int(r["heads"]) == n_head and r["median_us"]:
                name = "FLA" if r["peer"] == "fla triton" else "brim, as chosen"
                series.setdefault(name, []).append((int(r["tokens"]), float(r["median_us"])))
        for name, at in series.items():
            ax.plot(*zip(*sorted(set(at))), marker="o", ms=3, lw=1.2, color=COLOURS.get(name), label=name)
        tokens = sorted({t for at in series.values() for t, _ in at})
        if tokens:  # q, k, v, g, out in bf16, beta, at the measured copy rate
            floor = [(t, t * n_head * (5 * 256 + 2) / 4.3e6) for t in tokens]
            ax.plot(*zip(*floor), ls=":", lw=1, color=COLOURS["floor"], label="memory floor")
        ax.set_title(f"{n_head} heads", fontsize=9)
    finish(figure, axes, split.removesuffix(".csv") + ".svg", "tokens (T)", "cold, graph replay")


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("w4", "kda"):
        sys.exit(__doc__)
    if sys.argv[1] == "w4":
        plot_w4(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)
    else:
        plot_kda(*sys.argv[2:6])


if __name__ == "__main__":
    main()
