#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plot CSV files of bench/peers/run_cpu.py side by side as one SVG (needs matplotlib).

  tools/plot_bench.py bench/results/cpu-*.csv [--title TEXT] [--output FILE.svg]
"""
import argparse
import csv

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "brim"  # the same file from the same figures
matplotlib.rcParams["svg.fonttype"] = "none"
import matplotlib.pyplot as plt  # noqa: E402

COLOURS = {"llama.cpp": "#8c8c8c", "mlx": "#8c8c8c", "brim int8": "#1f6fb4", "brim f32": "#8fc1e8"}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("csv", nargs="+")
    p.add_argument("--title", default="")
    p.add_argument("--output")
    a = p.parse_args()
    lines = []
    for name in a.csv:
        with open(name, encoding="utf-8") as f:
            lines += [line for line in csv.DictReader(f) if line["unit"] == "tok/s"]
    models = list(dict.fromkeys(line["model"] for line in lines))
    figure, axes = plt.subplots(1, len(models), figsize=(5.2 * len(models), 3.6), squeeze=False)
    for ax, model in zip(axes[0], models):
        mine = [line for line in lines if line["model"] == model]
        rows = list(dict.fromkeys(line["row"] for line in mine))
        programs = list(dict.fromkeys(line["program"] for line in mine))
        width = 0.8 / len(programs)
        for i, program in enumerate(programs):
            by_row = {line["row"]: line for line in mine if line["program"] == program}
            at = [j + (i - (len(programs) - 1) / 2) * width for j in range(len(rows))]
            median = [float(by_row[row]["median"]) for row in rows]
            spread = [[m - float(by_row[row]["worst"]) for m, row in zip(median, rows)],
                      [float(by_row[row]["best"]) - m for m, row in zip(median, rows)]]
            bars = ax.bar(at, median, width, yerr=spread, capsize=2, label=program,
                          color=COLOURS.get(program), error_kw={"lw": 0.8, "alpha": 0.6})
            ax.bar_label(bars, [f"{m:.0f}" if m >= 10 else f"{m:.1f}" for m in median], fontsize=7,
                         padding=2)
        ax.set_xticks(range(len(rows)), rows)
        ax.set_ylabel("tokens per second")
        ax.set_title(model, fontsize=10)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(fontsize=8, frameon=False)
    if a.title:
        figure.suptitle(a.title, fontsize=10)
    figure.tight_layout()
    output = a.output or a.csv[0].removesuffix(".csv") + ".svg"
    figure.savefig(output, metadata={"Date": None})
    print(output)


if __name__ == "__main__":
    main()
