#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Qwen3-4B's projections on a GPU: torch bf16 (cuBLAS), torch int4 group 128 (_weight_int4pack_mm) and brim W4.

One graph replay a sample, L2 flushed, four sets of weights taken in turn; median and least of 30. brim's and cuBLAS's
products are checked against each other before anything is timed. Writes w4_peers.csv and .json into --out.

usage: w4_peers.py [--out DIR] [--projections q,kv,...] [--rows 1,8,...] [--samples N]
"""
import argparse
import sys

import torch

import gpu_common as common
import brim

PROJECTIONS = {"q": (2560, 4096), "kv": (2560, 1024), "o": (4096, 2560), "gate": (2560, 9728), "down": (9728, 2560)}
ROWS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048]
SETS, GROUP = 4, 128


class Weights:
    """One random matrix in the three forms."""

    def __init__(self, n_in, n_out):
        self.codes = torch.randint(-2 ** 31, 2 ** 31, (n_out, n_in // 8), dtype=torch.int64, device="cuda").int()
        self.scales = (0.01 * torch.randn(n_out, n_in // GROUP, device="cuda")).bfloat16()
        self.biases = (-7.5 * self.scales.float()).bfloat16()
        self.packed = brim.w4_pack(self.codes, self.scales, self.biases)
        q = (self.codes[:, :, None] >> torch.arange(0, 32, 4, device="cuda", dtype=torch.int32) & 15).view(n_out, n_in)
        self.dense = (self.scales.float().repeat_interleave(GROUP, 1) * q +
                      self.biases.float().repeat_interleave(GROUP, 1)).bfloat16()
        # torch: w = scale (q - 8) + zero, two codes a byte, the even one in the high half
        pairs = (q[:, ::2] << 4 | q[:, 1::2]).to(torch.uint8)
        self.int4 = torch.ops.aten._convert_weight_to_int4pack(pairs, 8)
        zero = (self.biases.float() + 8 * self.scales.float()).bfloat16()
        self.scales_and_zeros = torch.stack([self.scales.t(), zero.t()], 2).contiguous()


def error(got, want):
    return ((got.double() - want).pow(2).sum() / want.pow(2).sum()).sqrt().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="out")
    parser.add_argument("--projections", default=",".join(PROJECTIONS))
    parser.add_argument("--rows", default=",".join(map(str, ROWS)))
    parser.add_argument("--samples", type=int, default=30)
    args = parser.parse_args()
    torch.manual_seed(1)
    clock = common.Clock(args.samples)
    rows_out, failed = [], 0
    median, least = clock.floor()
    floor_us = median

    def row(projection, n_in, n_out, rows, peer, kernel, times, floor):
        rows_out.append(dict(projection=projection, n_in=n_in, n_out=n_out, rows=rows, peer=peer, kernel=kernel,
                             median_us=times[0], min_us=times[1], floor_us=round(floor, 2)))

    row("clock", 0, 0, 0, "torch", "add", (median, least), 0)
    for projection in args.projections.split(","):
        n_in, n_out = PROJECTIONS[projection]
        sets = [Weights(n_in, n_out) for _ in range(SETS)]
        for rows in map(int, args.rows.split(",")):
            x = torch.randn(rows, n_in, device="cuda").bfloat16()
            want = x.double() @ sets[0].dense.double().t()
            y = torch.empty(rows, n_out, device="cuda", dtype=torch.bfloat16)
            weight_bytes = n_in * n_out * (0.5 + 4 / GROUP)
            floor = max((weight_bytes + 2 * rows * (n_in + n_out)) / common.COPY_BYTES_PER_US,
                        2 * rows * n_in * n_out / common.FLOP_PER_US)
            forms = {
                "cublas bf16": lambda w: torch.mm(x, w.dense.t(), out=y),
                "torch int4": lambda w: torch.ops.aten._weight_int4pack_mm(x, w.int4, GROUP, w.scales_and_zeros),
                "brim": lambda w: brim.w4_matmul(x, w.codes, w.scales, w.biases, packed=w.packed, out=y),
            }
            best = None
            for peer, form in forms.items():
                kernel = ""
                got = form(sets[0])
                if peer == "brim":
                    kernel = brim.last_call()["kernel"]
                ratio = error(got, want)
                if ratio > (1e-2 if peer == "torch int4" else 4e-3):
                    print(f"FAILED {projection} {rows} {peer}: rms error {ratio:.2e}; not timed", file=sys.stderr)
                    failed += 1
                    continue
                times = clock.time([lambda w=w: form(w) for w in sets])
                row(projection, n_in, n_out, rows, peer, kernel, times, floor)
                if peer != "brim":
                    best = min(best or times[0], times[0])
                else:
                    print(f"{projection:5} {rows:5}  best peer {best:8.2f}  brim {times[0]:8.2f} us ({kernel})  "
                          f"{best / times[0]:.2f}x  floor {floor:.2f}", flush=True)
        del sets
        torch.cuda.empty_cache()
    meta = common.environment()
    meta["clock_us"] = floor_us
    meta["floor"] = "the greater of bytes / 4.3 TB/s and 2 rows n_in n_out / 790 TFLOP/s"
    common.write(args.out, "w4_peers", rows_out, meta)
    print(f"{len(rows_out)} timed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
