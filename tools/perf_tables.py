#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of docs/performance.md that stand under a line <!-- table NAME --> from bench/results/h200.

usage: perf_tables.py [--check]     --check changes nothing and fails where a table is not what the files say
"""
import collections
import csv
import json
import math
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results" / "h200"
DOC = ROOT / "docs" / "performance.md"
W4 = {"q": "q, 2560 to 4096", "kv": "k, v, 2560 to 1024", "o": "o, 4096 to 2560", "gate": "gate, up, 2560 to 9728",
      "down": "down, 9728 to 2560"}
W4_ROWS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048]
W4_PEERS = ("cublas bf16", "torch int4", "marlin fp16")
GEMV_SHAPES = {"q": "q", "kv": "k, v", "o": "o", "gate": "gate", "down": "down", "qkv": "q+k+v", "gateup": "gate+up", "head": "head"}
# Targets of the best route with gates N(0,1), us; the packed mix's is of the serial routes.
KDA_TARGETS = {("2048", "1"): 16, ("2048", "4"): 21, ("2048", "8"): 28, ("4096", "1"): 18, ("4096", "4"): 28, ("4096", "8"): 40,
               ("8192", "1"): 22, ("8192", "8"): 60, ("8192", "12"): 75, ("65536", "4"): 220, ("8192", "64"): 330,
               ("8192", "96"): 450, ("1300+547+2048+963+271+3063", "64"): 450}
KDA_PUBLIC = [("1024", "4", "1"), ("2048", "12", "1"), ("2048", "16", "1"), ("3072", "10", "1"), ("4096", "8", "1"), ("4096", "12", "1"),
              ("8192", "12", "4"), ("8192", "16", "1"), ("8192", "24", "1"), ("16384", "16", "8")]
KDA_TABLE = ["2048,1", "2048,4", "2048,8", "4096,1", "4096,4", "4096,8", "8192,1", "8192,8", "8192,12", "8192,64", "8192,96",
             "1300+547+2048+963+271+3063,64,6", "1024,4", "2048,12", "2048,16", "3072,10", "4096,12", "8192,12,4", "8192,16",
             "8192,24", "16384,16,8", "65536,4"]


def rows_of(name):
    with open(RESULTS / name, encoding="utf-8") as f:
        return list(csv.DictReader(line for line in f if not line.startswith("#")))


def w4_times():
    """us by projection, rows and peer; Marlin's of an earlier run, which had not every row count."""
    return {(r["projection"], int(r["rows"]), r["peer"]): float(r["median_us"])
            for name in ("w4_peers_earlier.csv", "w4_peers.csv") for r in rows_of(name)}


def w4_best_peer(times, key, m):
    return min(times[key, m, peer] for peer in W4_PEERS if (key, m, peer) in times)


def w4_target(key, m):
    if m <= 64:
        return 1.5 if key in ("gate", "down") else 1.3
    return 1.1 if m <= 256 else 0.8 if m == 2048 else math.inf


def w4_peers():
    times = w4_times()
    yield "| projection | | " + " | ".join(f"M={m}" for m in W4_ROWS) + " |"
    yield "|---|---|" + "---:|" * len(W4_ROWS)
    for key, title in W4.items():
        for peer in (*W4_PEERS, "brim"):
            yield f"| {title} | {peer} | " + " | ".join(
                f"{times[key, m, peer]:.1f}" if (key, m, peer) in times else "-" for m in W4_ROWS) + " |"
            title = ""
        ratios = []
        for m in W4_ROWS:
            ratio = w4_best_peer(times, key, m) / times[key, m, "brim"]
            ratios.append(f"{ratio:.2f}" if w4_is_missed(times, key, m) else f"**{ratio:.2f}**")
        yield "| | ratio | " + " | ".join(ratios) + " |"


def w4_is_missed(times, key, m):
    return round(w4_best_peer(times, key, m) / times[key, m, "brim"], 2) < w4_target(key, m)


def w4_missed():
    """What a missed target would allow, and by how much brim is above it."""
    times = w4_times()
    rows = [m for m in W4_ROWS if m <= 256]
    yield "| us above what the target allows | " + " | ".join(f"M={m}" for m in rows) + " |"
    yield "|---|" + "---:|" * len(rows)
    for key, title in W4.items():
        cells = []
        for m in rows:
            above = times[key, m, "brim"] - w4_best_peer(times, key, m) / w4_target(key, m)
            cells.append(f"{above:.1f} of {times[key, m, 'brim']:.1f}" if w4_is_missed(times, key, m) else "-")
        yield f"| {title.rsplit(',', 1)[0]} | " + " | ".join(cells) + " |"


def w4_stream_parts():
    """Where the fit of src/plan/w4_stream.c sees the time of plans of w4_sweep.csv whose target is missed, us."""
    times = w4_times()
    source = (ROOT / "src" / "plan" / "w4_stream.c").read_text(encoding="utf-8")
    source = source[source.index("brim_w4_stream_plan_cost"):]
    c = {name: float(value) for name, value in re.findall(r"(\w+) = ([\d.]+)[,;]", source)}
    us = lambda clocks: f"{clocks / 1750:.1f}"
    clusters = (ROOT / "src" / "plan" / "clusters.h").read_text(encoding="utf-8")
    clusters = [int(n) for n in re.search(r"brim_clusters_of_132\[8\] = {([\d, ]+)}", clusters)[1].split(",")]
    shapes = {r["projection"]: (int(r["n_in"]), int(r["n_out"])) for r in rows_of("w4_peers.csv")}
    yield "| projection, rows | tile, CTAs of a cluster | start | steps | their bound | end | join | together | measured |"
    yield "|---|---|---:|---:|---|---:|---:|---:|---:|"
    for r in rows_of("w4_sweep.csv"):
        key, m = r["projection"], int(r["M"])
        if key not in W4 or m not in (64, 128, 256) or r["kernel"] != "stream" or not w4_is_missed(times, key, m):
            continue
        tokens, slabs, split = (int(n) for n in re.fullmatch(r"(\d+) tokens (\d) slabs split (\d)", r["plan"]).groups())
        n_in, n_out = shapes[key]
        rounds = math.ceil(math.ceil(m / tokens) * math.ceil(n_out / (64 * slabs)) / clusters[split - 1])
        cells = slabs * tokens
        bounds = {"unpacking": c["chain"] + c["issue"] * slabs, "tensor cores": c["tensor"] * 2 * cells,
                  "L2": (128 * tokens + 2304 * slabs) / c["l2_rate"]}
        bound = max(bounds, key=bounds.get)
        steps = rounds * math.ceil(math.ceil(n_in / 64) / split) * bounds[bound]
        end = rounds * (c["end"] + c["end_each"] * cells)
        join = rounds * (c["join"] + c["join_each"] * cells * (split - 1) / split) if split > 1 else 0
        yield (f"| {W4[key].rsplit(',', 1)[0]}, {m} | {64 * slabs} x {tokens}, {split} | {us(c['start'])} | {us(steps)} | {bound} | "
               f"{us(end)} | {us(join) if join else '-'} | {us(c['start'] + steps + end + join)} | {float(r['us']):.1f} |")


def w4_fill():
    """Of plans with several tiles of tokens: how the time goes with the rows that the last one has, against that of a full one."""
    found, shares = {}, (3 / 8, 1 / 2, 5 / 8, 1)
    for r in rows_of("w4_sweep.csv"):
        if r["kernel"] == "stream":
            tokens, slabs, split = (int(n) for n in re.fullmatch(r"(\d+) tokens (\d) slabs split (\d)", r["plan"]).groups())
            tiles = math.ceil(int(r["M"]) / tokens)
            if tiles > 1:
                found.setdefault((r["projection"], tokens, slabs, split, tiles), {})[int(r["M"])] = float(r["us"])
    widths = {r["projection"]: int(r["out"]) for r in rows_of("w4_gemv.csv") if r["out"] != "0"}
    yield "| projection, rows | tile, CTAs of a cluster | CTAs | full, us | to 3/8 filled | to 1/2 | to 5/8 | more |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for (key, tokens, slabs, split, tiles), us in found.items():
        fill = {m: m / tokens - tiles + 1 for m in us}
        if min(fill.values()) > 3 / 8:
            continue
        full = statistics.median(us[m] for m in sorted(us)[-8:])
        n_cta = math.ceil(widths[key] / (64 * slabs)) * tiles * split
        cells, low = [], 0
        for share in shares:
            ms = [m for m in us if low < fill[m] <= share]
            step = max(abs(us[m + 1] / us[m] - 1) for m in ms if m + 1 in us)
            cells.append(f"{round(100 * (statistics.median(us[m] for m in ms) / full - 1))}, {100 * step:.0f}")
            low = share
        yield (f"| {GEMV_SHAPES[key]}, {min(us)} to {max(us)} | {64 * slabs} x {tokens}, {split} | "
               f"{n_cta if split > 1 else min(n_cta, 132)} | {full:.1f} | " + " | ".join(cells) + " |")


def w4_gemv():
    """Of each shape and kernel the row that the sweep has first, which is the chosen plan's."""
    found = {}
    for r in rows_of("w4_gemv.csv"):
        if r["norm"] == "0":
            found.setdefault((r["projection"], r["rows"], r["kernel"]), r)
    yield "| rows | kernel | | " + " | ".join(GEMV_SHAPES.values()) + " |"
    yield "|---|---|---|" + "---:|" * len(GEMV_SHAPES)
    for rows, kernel, times in (("1", "int8", ("cold", "node", "pdl")), ("1", "bf16", ("cold",)), ("2", "int8", ("cold",)),
                                ("2", "bf16", ("cold",)), ("4", "int8", ("cold",)), ("4", "bf16", ("cold",)), ("8", "bf16", ("cold",))):
        for i, time in enumerate(times):
            yield (f"| {rows} | {kernel} | " if i == 0 else "| | | ") + time + " | " + " | ".join(
                f"{float(found[shape, rows, kernel][time]):.1f}" for shape in GEMV_SHAPES) + " |"
    n_weight = [int(found[shape, "1", "int8"]["in"]) * int(found[shape, "1", "int8"]["out"]) for shape in GEMV_SHAPES]
    yield "| floor | | | " + " | ".join(f"{n * (4 + 32 / 128) / 8 / 4.4e6:.1f}" for n in n_weight) + " |"


def w4_split():
    rows = rows_of("w4_split.csv")
    yield "| us at 32 / 128 rows | not split | course (split) | device (split) | best pinned split up to 16 |"
    yield "|---|---:|---:|---:|---:|"
    for shape in W4:
        cells = []
        for form in ("tiled", "course", "device", "pinned"):
            fastest = [min((r for r in rows if (r["projection"], r["rows"], r["form"]) == (shape, m, form)), key=lambda r: float(r["us"]))
                       for m in ("32", "128")]
            cells.append(" / ".join(f"{float(r['us']):.1f}" + (f" ({r['split']})" if form != "tiled" else "") for r in fastest))
        yield f"| {W4[shape].rsplit(',', 1)[0]} | " + " | ".join(cells) + " |"


def crossover():
    found, contexts = {}, []
    for line in (RESULTS / "operators.txt").read_text(encoding="utf-8").splitlines():
        match = re.match(r"\s+(q|k|v|o|gate|up|down) M=(\d+)\s+([\d.]+)\s+([\d.]+)\s", line)
        if match and "[tiled x1" in line:
            split = re.search(r"\[split-k x(\d+)", line)
            found[match[1], int(match[2])] = f"{match[3]} / {match[4]} ({split[1] if split else 1})"
            contexts += [int(match[2])] if int(match[2]) not in contexts else []
    yield "| projection | " + " | ".join(f"M={m}" if i == 0 else str(m) for i, m in enumerate(contexts)) + " |"
    yield "|---|" + "---:|" * len(contexts)
    for projection in ("q", "k", "v", "o", "gate", "up", "down"):
        yield f"| {projection}: tiled / split-k (split) | " + " | ".join(found[projection, m] for m in contexts) + " |"


def operators():
    """hopper's column of the three ways to time it, q k o gate down."""
    rows, found = ("1", "16", "32", "64", "128", "2048"), {}
    ways = {"operators.txt": "recorded, cold", "operators_hot.txt": "recorded, hot", "operators_plain.txt": "launched, cold"}
    for name in ways:
        for line in (RESULTS / name).read_text(encoding="utf-8").splitlines():
            match = re.match(r"\s+(q|k|o|gate|down) M=(\d+)\s+[\d.]+\s+[\d.]+\s+([\d.]+)\s", line)
            if match:
                found[name, match[1], match[2]] = match[3]
    yield "| us | | " + " | ".join(f"M={m}" for m in rows) + " |"
    yield "|---|---|" + "---:|" * len(rows)
    for projection in ("q", "k", "o", "gate", "down"):
        title = projection
        for name, way in ways.items():
            yield f"| {title} | {way} | " + " | ".join(found[name, projection, m] for m in rows) + " |"
            title = ""


def levels():
    """Every level in one process each: first token of a prompt, and decode from an empty cache and behind 128 tokens."""
    rows = {(r["level"], r["test"]): r for r in rows_of("model.csv")}
    tests = ("pp32", "pp128", "pp2048", "tg128", "tg128 @ d128")
    yield "| level | 32 tokens, ms | 128 | 2048 | decode, tok/s | behind 128 |"
    yield "|---|" + "---:|" * len(tests)
    for level in ("dense", "matvec", "fused", "attention", "tiled", "split-k", "hopper"):
        cells = []
        for test in tests:
            r = rows.get((level, test))
            prompt = test.startswith("pp")
            cells.append("-" if r is None else f"{float(r['avg_ns']) / 1e6:.2f}" if prompt else f"{float(r['avg_ts']):,.0f}")
        yield f"| {level} | " + " | ".join(cells) + " |"


def progression():
    """Every level of one build's programs; the peers, and what that run left out, from the run that had them, beside its own hopper."""
    files = [collections.defaultdict(lambda: ([], [])) for _ in range(2)]
    for samples, name in zip(files, ("progression.json", "progression_peers.json")):
        for run in json.loads((RESULTS / name).read_text(encoding="utf-8")):
            for variant in run["variants"]:
                prefill, decode = samples[run["input_len"], run["output_len"], variant["name"]]
                prefill += variant["prefill_tps"]["samples"]
                decode += variant["decode_tps"]["samples"]
    order = ["dense", "matvec", "fused", "attention", "tiled", "split-k", "hopper", "transformers", "transformers-int4", "mlx"]
    yield "| prompt / output | variant | processes | first token ms | prefill tok/s | decode tok/s | hopper / it: prefill | decode |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for n_input, n_output, name in sorted({*files[0], *files[1]}, key=lambda k: (k[0], order.index(k[2]))):
        samples = next(f for f in files if (n_input, n_output, name) in f)
        prefill, decode = samples[n_input, n_output, name]
        rate, then = statistics.median(prefill), statistics.median(decode)
        hopper = next(f[n_input, n_output, "hopper"] for f in (samples, *files) if (n_input, n_output, "hopper") in f)
        ours = [statistics.median(values) for values in hopper]
        ratios = "- | -" if name == "hopper" else f"{ours[0] / rate:.2f} | {ours[1] / then:.2f}"
        yield (f"| {n_input} / {n_output} | {name} | {len(prefill)} | {1e3 * n_input / rate:.2f} | {rate:,.0f} | {then:,.0f} | "
               f"{ratios} |")


def profile():
    """Where a step's time goes, us. The last layer's products of a prefill have one row; the head's are those of 792 CTAs."""
    steps, titles = [], []
    for line in (RESULTS / "model_profile.txt").read_text(encoding="utf-8").splitlines():
        title = re.match(r"(decode at|prefill) (\d+): \d+ launches, ([\d.]+) us", line)
        row = re.match(r"(\S+).*?(\d+x\d+x\d+)?(?: +[\d.]+){3} +([\d.]+)$", line)
        if title:
            titles.append(f"{title[1]} {title[2]}" if len(titles) < 2 else title[2])
            steps.append(collections.Counter({"all kernels": float(title[3])}))
        elif row and steps:
            name = row[1]
            kind = ("head" if row[2] == "792x1x1" else "products of the layers" if name.startswith("w4_") else
                    "attention" if name.startswith("attn_") else "the likeliest token" if name == "likeliest" else
                    "norms, rotation, cache" if name.startswith(("rmsnorm", "rotate")) else "else")
            steps[-1][kind] += float(row[3])
    yield "| | " + " | ".join(titles) + " |"
    yield "|---|" + "---:|" * len(titles)
    for kind in ("products of the layers", "attention", "norms, rotation, cache", "head", "the likeliest token", "all kernels"):
        yield f"| {kind} | " + " | ".join(f"{step[kind]:,.0f}" if step[kind] else "in those" for step in steps) + " |"


def line_through(points):
    """(intercept, slope) of the least squares' line."""
    x, y = (statistics.mean(p[i] for p in points) for i in range(2))
    slope = sum((p[0] - x) * (p[1] - y) for p in points) / sum((p[0] - x) ** 2 for p in points)
    return y - slope * x, slope


def split_line():
    """(us before and behind the chunks, us a chunk) of the split where gates forget: a line through kda_split.csv over the chunks
    that a processor works through, windows included."""
    points = []
    for r in rows_of("kda_split.csv"):
        if r["gates"] == "normal":
            points.append((int(r["chunks"]), float(r["split_us"])))
    return line_through(points)


def bound_by(route, us, fixed):
    """What most of a call's time is: of the split its fixed part or its chunks, whose time is K1's; of the serial routes see kda_chunks."""
    if route != "split":
        return "K2" if route.startswith("c") else "K1"
    return f"start, {fixed:.0f} us" if fixed > us / 2 else f"K1, {us - fixed:.0f} us"


def kda_rows(gate):
    cases = {}
    for r in rows_of("kda_peers.csv"):
        if r["gate"] == gate and r["median_us"]:
            key = (r["tokens"], r["heads"], r["sequences"])
            cases.setdefault(key, {})["brim" if r["peer"] == "brim" else "fla"] = r
    return {key: case for key, case in cases.items() if len(case) == 2}


def kda_peers():
    earlier = {}
    for r in rows_of("kda_peers_earlier.csv"):
        if r["impl"] == "cudnn_kda_hopper_cuda" and "raw gates -12" not in r["note"]:
            n = re.match(r"(\d+) ", r["shape"])
            earlier[r["M_or_T"], r["heads_or_outputs"], n[1] if n else ""] = r["median_us"]
    cases = kda_rows("lower_bound")
    fixed, _ = split_line()
    yield "| T, H | brim | route | FLA | FLA / brim | cudnn-frontend | target | floor | most of it |"
    yield "|---|---:|---|---:|---:|---:|---:|---:|---|"
    for name in KDA_TABLE:
        key = tuple((name + ("" if name.count(",") == 2 else ",1")).split(","))
        if key not in cases:
            continue
        brim, fla = cases[key]["brim"], float(cases[key]["fla"]["median_us"])
        us = float(brim["median_us"])
        target = KDA_TARGETS.get(key[:2], "-") if key[2] == "1" or "+" in key[0] else "-"
        yield (f"| {name.replace(',', ', ')} | {us:.1f} | {brim['route']} | {fla:.1f} | {fla / us:.2f} | {earlier.get(key, '-')} | "
               f"{target} | {100 * float(brim['floor_us']) / us:.0f} % | {bound_by(brim['route'], us, fixed)} |")
    if all(key in cases and key in earlier for key in KDA_PUBLIC):
        mean = lambda values: math.exp(statistics.mean(math.log(float(v)) for v in values))
        us, fla = (mean(cases[key][peer]["median_us"] for key in KDA_PUBLIC) for peer in ("brim", "fla"))
        yield (f"| geometric mean of the ten public shapes | {us:.1f} | | {fla:.1f} | {fla / us:.2f} | "
               f"{mean(earlier[key] for key in KDA_PUBLIC):.1f} | 60 | | |")
    every = [case for gate in ("lower_bound", "softplus") for case in kda_rows(gate).values()]
    slower = sum(float(case["brim"]["median_us"]) > float(case["fla"]["median_us"]) for case in every)
    yield f"| shapes of the run slower than FLA, both gates | {slower} of {len(every)} | | | | | 0 | | |"


def kda_softplus():
    if not kda_rows("softplus"):
        return
    yield "| T, H | brim | route | FLA | FLA / brim |"
    yield "|---|---:|---|---:|---:|"
    for key, case in kda_rows("softplus").items():
        us, fla = float(case["brim"]["median_us"]), float(case["fla"]["median_us"])
        yield f"| {key[0]}, {key[1]} | {us:.1f} | {case['brim']['route']} | {fla:.1f} | {fla / us:.2f} |"


def kda_sweep():
    """One sequence: brim's time and the ratio of FLA's, tokens across, heads down."""
    cases = kda_rows("lower_bound")
    if len(cases) < 40:  # the tables' shapes alone
        return
    tokens = [str(1 << n) for n in range(9, 17)]
    yield "| us, FLA / brim | " + " | ".join(f"T={t}" for t in tokens) + " |"
    yield "|---|" + "---:|" * len(tokens)
    for heads in (1, 4, 8, 12, 32, 64, 96):
        line = []
        for t in tokens:
            case = cases.get((t, str(heads), "1"))
            us = float(case["brim"]["median_us"]) if case else 0
            line.append(f"{us:.0f}, {float(case['fla']['median_us']) / us:.1f}" if case else "-")
        yield f"| {heads} heads | " + " | ".join(line) + " |"


def kda_chunks():
    """A route's time as a line over the chunks of 8 heads, 2048 to 8192 tokens, beside what preparing a chunk takes its processors
    when they do nothing else. The fastest route is at the recurrence's own time, so what is near it is bound by that, others by K1."""
    cycles = {(r["arrangement"], r["instances"]): float(r["cycles_per_chunk"]) for r in rows_of("kda_prepare.csv")}
    clock = float(re.search(r"(\d+) MHz", (RESULTS / "kda_prepare.csv").read_text(encoding="utf-8"))[1])
    fused, helper = cycles["fused", "2"] / clock, cycles["helper", "4"] / clock
    alone = {"m128": fused, "queue": fused, "m64": fused / 2, "pair": fused / 2, "c4-m128": helper / 3, "c4-m64": helper / 2,
             "c5-m64": helper / 3, "c6-m64": helper / 4}
    points = collections.defaultdict(list)
    for r in rows_of("kda_routes.csv"):
        if r["n_seq"] == "1" and r["n_head"] == "8" and 2048 <= int(r["n_tok"]) <= 8192 and r.get("gate") != "softplus":
            points[r["route"]].append((int(r["n_tok"]) // 32, float(r["us_median"])))
    lines = {route: line_through(points[route]) for route in alone if len(points[route]) >= 3}
    chain = min(slope for _, slope in lines.values())
    yield "| route | us a chunk | us else | K1 alone, us a chunk | bound by |"
    yield "|---|---:|---:|---:|---|"
    for route, (fixed, slope) in lines.items():
        yield f"| {route} | {slope:.2f} | {fixed:.0f} | {alone[route]:.2f} | {'K2' if slope < 1.2 * chain else 'K1'} |"


def kda_weak():
    """The ten public shapes under gates that do not forget: what the split admitted takes, and the serial route alone."""
    rows = {}
    for r in rows_of("kda_split.csv"):
        tokens = str(int(r["n_tok"]) * int(r["n_seq"]))  # as in kda_peers.csv: of all sequences
        rows.setdefault((tokens, r["n_head"], r["n_seq"]), {})[r["gates"]] = r
    public = [rows.get(key, {}) for key in KDA_PUBLIC]
    if not all({"normal", "minus12", "one"} <= set(row) for row in public):
        return
    forms = [(gates, which) for gates in ("minus12", "one") for which in ("split_us", "serial_us")]
    yield "| T, H, sequences | all gates -12 | serial alone | one channel at -12 | serial alone |"
    yield "|---|---:|---:|---:|---:|"
    for key, row in zip(KDA_PUBLIC, public):
        yield f"| {', '.join(key)} | " + " | ".join(row[gates][which] for gates, which in forms) + " |"
    means = [math.exp(statistics.mean(math.log(float(row[gates][which])) for row in public)) for gates, which in forms]
    yield "| geometric mean (target 130) | " + " | ".join(f"{us:.1f}" for us in means) + " |"


def kda_serial():
    routes, splits = collections.defaultdict(dict), collections.defaultdict(dict)
    for r in rows_of("kda_routes.csv"):
        if r["n_seq"] == "1" and r.get("gate") != "softplus" and not r["route"].startswith("split"):
            routes[r["n_tok"], r["n_head"]][r["route"]] = float(r["us_median"])
    for r in rows_of("kda_split.csv"):
        splits[r["n_tok"], r["n_head"], r["n_seq"]][r["gates"]] = r
    yield "| T, H | m128 | best serial route | serial | split | split, weak |"
    yield "|---|---:|---:|---:|---:|---:|"
    for (tokens, heads, n), by_gates in splits.items():
        here = routes.get((tokens, heads), {}) if n == "1" else {}
        best = min(here, key=here.get) if here else None
        normal, weak = by_gates["normal"], by_gates.get("weak")
        yield (f"| {tokens}, {heads}{' x ' + n if n != '1' else ''} | {here.get('m128', '-')} | {f'{here[best]} {best}' if best else '-'} | "
               f"{normal['serial_us']} | {normal['split_us']} | {weak['split_us'] if weak else '-'} |")


TABLES = {f.__name__: f for f in (w4_peers, w4_missed, w4_stream_parts, w4_fill, w4_gemv, w4_split, crossover, operators, progression, levels, profile,
                                  kda_peers, kda_softplus, kda_sweep, kda_chunks, kda_weak, kda_serial)}


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    out, inside = [], False
    for line in DOC.read_text(encoding="utf-8").split("\n"):
        if inside and line.startswith("|"):
            continue
        inside = False
        out.append(line)
        match = re.fullmatch(r"<!-- table (\w+) -->", line)
        if match:
            out += TABLES[match[1]]()
            inside = True
    text = "\n".join(out)
    if text == DOC.read_text(encoding="utf-8"):
        return 0
    if check:
        print("docs/performance.md: its tables are not those of bench/results/h200; run tools/perf_tables.py", file=sys.stderr)
        return 1
    DOC.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
