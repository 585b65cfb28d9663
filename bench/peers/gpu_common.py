# SPDX-License-Identifier: Apache-2.0
"""What the GPU comparisons share: the clock, what they ran with, and how results are written.

The clock: one CUDA-graph replay between two events, L2 written over before each sample; nothing is subtracted, so
that a kernel which does nothing reads a few microseconds (row `clock`)."""
import csv
import datetime
import importlib.metadata
import json
import pathlib
import statistics
import subprocess
import sys

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bindings" / "python"))

COPY_BYTES_PER_US = 4.3e6   # int32 copy, read and written, on an H200
FLOP_PER_US = 790e6         # 8192^3 bf16 product, on an H200


class Clock:
    """Times calls on one stream; what they allocate must be allocated before."""

    def __init__(self, samples=30, warm=3):
        self.samples, self.warm = samples, warm
        self.stream = torch.cuda.Stream()
        self.flush = torch.empty(64 << 20, dtype=torch.int32, device="cuda")  # 256 MB
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def capture(self, call):
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            call()
            call()
            self.stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin()  # torch.cuda.graph also empties the allocator's cache, each time
            try:
                call()
            finally:
                graph.capture_end()
        return graph

    def time(self, calls):
        """Median and least time in us of the calls, each its own graph, taken in turn."""
        graphs = [self.capture(call) for call in calls]
        us = []
        with torch.cuda.stream(self.stream):
            for i in range(self.warm + self.samples):
                self.flush.fill_(i)
                self.begin.record(self.stream)
                graphs[i % len(graphs)].replay()
                self.end.record(self.stream)
                self.end.synchronize()
                if i >= self.warm:
                    us.append(self.begin.elapsed_time(self.end) * 1e3)
        return round(statistics.median(us), 2), round(min(us), 2)

    def floor(self):
        word = torch.zeros(1, device="cuda")
        return self.time([lambda: word.add_(1)])


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        module = sys.modules.get(package)
        return getattr(module, "__version__", None)


def command(*words):
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def environment(*packages):
    import brim
    smi = command("nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.limit",
                  "--format=csv,noheader")
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "gpu": torch.cuda.get_device_name(0),
        "processors": torch.cuda.get_device_properties(0).multi_processor_count,
        "driver, clocks now (SM, memory), largest SM clock, power limit": smi,
        "clocks": "not locked",
        "cuda": torch.version.cuda,
        "versions": {p: version(p) for p in ("torch", "triton", *packages)},
        "brim": brim.__version__,
        "commit": command("git", "log", "-1", "--format=%h", "--", ":/src/cuda", ":/src/plan", ":/bindings"),
        "clock": "CUDA events around one graph replay, 256 MB written before each sample, nothing subtracted",
    }


def write(out, name, rows, meta):
    """NAME.csv and NAME.json in the folder `out`."""
    folder = pathlib.Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as f:
        writer = csv.DictWriter(f, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    with open(folder / f"{name}.json", "w", encoding="utf-8") as f:
        json.dump({**meta, "rows": rows}, f, indent=1)
        f.write("\n")
