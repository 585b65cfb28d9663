#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""KDA prefill on a GPU: flash-linear-attention's Triton chunk_kda beside brim, same inputs, same clock.

q, k, v, raw gate and beta logit ~ N(0,1) in bf16, A_log and dt_bias ~ U(0,1), l2 norm, gate and sigmoid in the kernel,
initial state 0.1 N(0,1) in float32, final state returned. Gates: lower bound -5, or softplus. One graph replay a sample,
L2 flushed, median and least of 30. Outputs of both are compared before anything is timed.

FLA tunes its kernels at their first call. That is done for each gate at each of --tune-shapes, on the clock that measures
(Triton's own takes 0.13 s a configuration); every other shape takes the choice made at the nearest number of heads
(--retune tunes at every number of heads). Four steps, each of which uses what those before left in Triton's cache and
in --choices (default: kda_choices.json in --out): `compile` all configurations at these shapes, by --jobs processes; `tune`,
which writes --choices; `shapes`: compile the choices for all other shapes; `measure`. compile and shapes need minutes of
processors and hardly the GPU, so they may run beside other work; tune and measure need it alone.
--set tables: the rows of performance.md; sweep: tokens 512 to 65536, 1 to 96 heads, packed mixes (lower bound alone); all.
Results are written after each shape. --limit S begins no shape after S seconds; the .json names those left out. The folder
of fla (a wheel, unpacked) is on PYTHONPATH or installed. Writes kda_peers.csv and .json into --out.

usage: kda_peers.py [--out DIR] [--set tables|sweep|all] [--shapes T,H,N ...] [--gates lower_bound,softplus]
                    [--samples N] [--limit S] [--steps compile,tune,shapes,measure] [--choices FILE] [--jobs N]
                    [--no-tune | --retune]
"""
import argparse
import gc
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import types
import warnings

import torch
import triton

import gpu_common as common
import brim

# (tokens in all, heads, sequences): the rows of the owner-helper table, then the ten public shapes.
SHAPES = [(2048, 1, 1), (2048, 4, 1), (2048, 8, 1), (4096, 1, 1), (4096, 4, 1), (4096, 8, 1), (8192, 1, 1),
          (8192, 8, 1), (8192, 12, 1), (8192, 64, 1), (8192, 96, 1), "1300+547+2048+963+271+3063,64",
          (1024, 4, 1), (2048, 12, 1), (2048, 16, 1), (3072, 10, 1), (4096, 12, 1), (8192, 12, 4), (8192, 16, 1),
          (8192, 24, 1), (16384, 16, 8), (65536, 4, 1)]
SOFTPLUS_SHAPES = [(2048, 1, 1), (2048, 4, 1), (2048, 8, 1), (4096, 1, 1), (4096, 4, 1), (4096, 8, 1), (8192, 8, 1),
                   (8192, 12, 1), (8192, 32, 1)]
SWEEP = [(t, h, 1) for h in (1, 4, 8, 12, 32, 64, 96) for t in (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)] + [
    (8192, 4, 8), (8192, 64, 8), (16384, 8, 64), "1300+547+2048+963+271+3063,1", "1300+547+2048+963+271+3063,4",
    "1024+1024+1024+1024,4", "4096+64+64+64+64+64+64,4", "4096+64+64+64+64+64+64,32"]


def shapes_of(chosen, gate):
    """The shapes of --set under a gate, each once."""
    tables = SHAPES if gate == "lower_bound" else SOFTPLUS_SHAPES
    sweep = SWEEP if gate == "lower_bound" else []
    return list(dict.fromkeys({"tables": tables, "sweep": sweep, "all": tables + sweep}[chosen]))


def parse_shape(shape):
    """(tokens in all, heads, lengths of the sequences, name)."""
    if isinstance(shape, str) and "+" in shape:
        lengths, heads = shape.split(",")
        lengths = [int(n) for n in lengths.split("+")]
        return sum(lengths), int(heads), lengths, shape.split(",")[0]
    n_tok, heads, n_seq = map(int, shape.split(",")) if isinstance(shape, str) else shape
    return n_tok, heads, [n_tok // n_seq] * n_seq, str(n_tok)


class Case:
    """Inputs of one shape and the calls of both."""

    def __init__(self, shape, gate):
        self.n_tok, self.heads, self.lengths, self.name = parse_shape(shape)
        gen = torch.Generator(device="cuda").manual_seed(self.n_tok + self.heads)
        normal = lambda *s: torch.randn(*s, generator=gen, device="cuda").bfloat16()
        t, h, n = self.n_tok, self.heads, len(self.lengths)
        self.x = {name: normal(1, t, h, 128) for name in "qkvg"}
        self.x["beta"] = normal(1, t, h)
        self.a_log = torch.rand(h, generator=gen, device="cuda")
        self.dt_bias = torch.rand(h * 128, generator=gen, device="cuda")
        self.state = 0.1 * torch.randn(n, h, 128, 128, generator=gen, device="cuda")
        self.offsets = self.offsets_cpu = None
        if n > 1:
            self.offsets_cpu = torch.tensor([0] + self.lengths).cumsum(0)
            self.offsets = self.offsets_cpu.to("cuda")
        self.gate, self.bound = gate, -5.0 if gate == "lower_bound" else None
        self.out = torch.empty_like(self.x["v"])
        self.final = torch.empty_like(self.state)

    def brim(self, **change):
        options = dict(gate=self.gate, lower_bound=self.bound, a_log=self.a_log, dt_bias=self.dt_bias, l2norm=True,
                       beta_logits=True, initial_state=self.state, final_state=self.final, state_v_first=True,
                       cu_seqlens=self.offsets, max_tokens=max(self.lengths) if self.offsets is not None else None,
                       out=self.out, allow_split=True)
        return brim.kda_prefill(**self.x, **{**options, **change})

    def fla(self):
        from fla.ops.kda import chunk_kda
        with torch.no_grad():
            return chunk_kda(**self.x, initial_state=self.state, output_final_state=True, use_qk_l2norm_in_kernel=True,
                             use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, A_log=self.a_log,
                             dt_bias=self.dt_bias, safe_gate=self.bound is not None, lower_bound=self.bound,
                             state_v_first=True, cu_seqlens=self.offsets, cu_seqlens_cpu=self.offsets_cpu)

    def bytes(self):
        return sum(t.numel() * t.element_size() for t in (*self.x.values(), self.out, self.state, self.final))


def import_fla():
    """fla.ops.kda alone: the package's models, which its own first import brings along, take longer than all of this."""
    spec = importlib.util.find_spec("fla")
    if spec is None:
        raise ImportError("no module named fla")
    place = pathlib.Path(spec.submodule_search_locations[0])
    for name, folder in (("fla", place), ("fla.ops", place / "ops")):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [str(folder)]
    sys.modules["fla"].__version__ = re.search(r"__version__ = ['\"](.+?)['\"]", (place / "__init__.py").read_text())[1]
    import fla.ops.kda  # noqa: F401


TUNERS = []  # FLA's autotuned kernels, once it is imported; all_configs keeps the configurations each was given


def tuners():
    if not TUNERS:
        import_fla()
        from triton.runtime.autotuner import Autotuner
        with warnings.catch_warnings():  # isinstance wakes lazy modules of torch
            warnings.simplefilter("ignore")
            TUNERS.extend(o for o in gc.get_objects() if isinstance(o, Autotuner))
        for tuner in TUNERS:
            tuner.all_configs = list(tuner.configs)
    return TUNERS


def choices_now():
    """What each kernel that has run was last run with, by its name."""
    return {t.base_fn.__name__: str(t.best_config) for t in tuners() if getattr(t, "best_config", None) is not None}


def apply(choices):
    """Every kernel keeps the configuration named for it; one without a name keeps all, and forgets what it chose."""
    for tuner in tuners():
        tuner.cache.clear()
        named = choices.get(tuner.base_fn.__name__)
        tuner.configs = [c for c in tuner.all_configs if str(c) == named] or list(tuner.all_configs)


def compile_share(gates, shapes, share, n_share):
    """Worker: compile every n_share-th configuration of every kernel into Triton's cache; times nothing."""
    from triton.runtime.autotuner import Autotuner
    original = Autotuner._bench
    seen = [0]

    def bench(self, *args, config, **meta):
        seen[0] += 1
        if seen[0] % n_share != share:
            return [float("inf")] * 3
        self.do_bench = lambda call, quantiles=None: (call(), [0.0] * 3)[1]
        return original(self, *args, config=config, **meta)

    Autotuner._bench = bench
    for shape in shapes:
        for gate in gates:
            apply({})
            Case(shape, gate).fla()
    torch.cuda.synchronize()


def nearest(choices, heads):
    """The choice, of {heads of the tuned shape: choice}, made at the number of heads nearest by ratio."""
    return choices[min(choices, key=lambda h: max(int(h) / heads, heads / int(h)))]


def compile_shapes(items, choices):
    """Worker: compile the chosen configurations; an item's shapes share all kernels but the norm's, told apart by rows."""
    from fla.ops.kda.chunk import l2norm_fwd
    for gate, shapes in items:
        heads = parse_shape(shapes[0])[1]
        apply(nearest(choices[gate], heads))
        Case(shapes[0], gate).fla()
        for tokens in {parse_shape(shape)[0] for shape in shapes}:
            l2norm_fwd(torch.empty(1, tokens, heads, 128, dtype=torch.bfloat16, device="cuda"))
            torch.cuda.empty_cache()
    torch.cuda.synchronize()


def in_parallel(jobs):
    """Run this script as a worker once for each job; a worker's failure only costs time later."""
    running = [subprocess.Popen([sys.executable, __file__, "--worker", json.dumps(job)], stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True) for job in jobs]
    for process in running:
        _, text = process.communicate()
        if process.returncode:
            print(f"a compiling process failed: {text.strip().splitlines()[-1:]}", file=sys.stderr)


def tune_by(clock):
    """From now on FLA's kernels are tuned on this clock."""
    for tuner in tuners():
        tuner.do_bench = lambda call, quantiles=None: [clock.time([call])[0]] * 3


def tune(shapes, gates):
    """The configurations chosen for each gate at each shape: {gate: {heads: {kernel: configuration}}}."""
    tune_by(common.Clock(samples=7, warm=2))
    choices = {gate: {} for gate in gates}
    for gate in gates:
        for shape in shapes:
            apply({})
            for tuner in tuners():
                tuner.best_config = None
            Case(shape, gate).fla()
            torch.cuda.synchronize()
            choices[gate][str(parse_shape(shape)[1])] = choices_now()
    return choices


def items_of(work):
    """(gate, shapes that share kernels) of {gate: shapes}; the smallest shape first."""
    items = {}
    for gate, shapes in work.items():
        for shape in sorted(shapes, key=lambda shape: parse_shape(shape)[0]):
            _, heads, lengths, _ = parse_shape(shape)
            items.setdefault((gate, heads, len(lengths) > 1), []).append(shape)
    return [(key[0], shapes) for key, shapes in items.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="out")
    parser.add_argument("--shapes", nargs="*")
    parser.add_argument("--gates", default="lower_bound,softplus")
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--set", choices=("tables", "sweep", "all"), default="tables")
    parser.add_argument("--limit", type=float, default=1e9)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--steps", default="compile,tune,shapes,measure")
    parser.add_argument("--choices", type=pathlib.Path)
    parser.add_argument("--tune-shapes", nargs="*", default=["4096,8,1", "8192,64,1", "2048,1,1"])
    parser.add_argument("--no-tune", action="store_true", help="FLA's first configurations: a trial of this script")
    parser.add_argument("--retune", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    gates = args.gates.split(",")
    os.environ["FLA_CACHE_RESULTS"] = "0"  # what a worker believes about times, or another shape chose, is not read back
    if args.worker:
        job = json.loads(args.worker)
        compile_shapes(**job) if "items" in job else compile_share(**job)
        return 0
    begin = time.time()
    have_fla, missing = True, None
    try:
        tuners()
    except ImportError as error:
        have_fla, missing = False, str(error)
        print(f"flash-linear-attention is not here ({error}): brim alone is timed", file=sys.stderr)
    work = {gate: args.shapes or shapes_of(args.set, gate) for gate in gates}
    chosen = args.choices or pathlib.Path(args.out) / "kda_choices.json"
    steps = args.steps.split(",") if have_fla and not args.no_tune and not args.retune else ["measure"]

    def done(step):
        print(f"{step}: done after {time.time() - begin:.0f} s", file=sys.stderr, flush=True)

    if "compile" in steps:
        in_parallel([dict(gates=gates, shapes=args.tune_shapes, share=i, n_share=args.jobs) for i in range(args.jobs)])
        done("compile")
    if "tune" in steps:
        choices = tune(args.tune_shapes, gates)
        chosen.parent.mkdir(parents=True, exist_ok=True)
        chosen.write_text(json.dumps(choices, indent=1) + "\n")
        done("tune")
    if args.no_tune and have_fla:
        choices = {gate: {"8": {t.base_fn.__name__: str(t.all_configs[0]) for t in tuners()}} for gate in gates}
    else:
        needed = "shapes" in steps or have_fla and not args.retune and "measure" in steps
        choices = json.loads(chosen.read_text()) if needed else {}
    if "shapes" in steps:
        items = items_of(work)
        n = min(len(items), args.jobs + args.jobs // 2)
        in_parallel([dict(items=items[i::n], choices=choices) for i in range(n)])
        done("shapes")
    if "measure" not in steps:
        return 0

    clock = common.Clock(args.samples)
    rows, failed, allow_split, slower, applied = [], 0, None, [], {}
    median, least = clock.floor()
    meta = common.environment("fla-core", "fla")
    if have_fla:
        tune_by(common.Clock(samples=7, warm=2))
        apply({})
    in_order = [(gate, shape) for gate, shapes in work.items() for shape in shapes]
    tables = {"lower_bound": SHAPES, "softplus": SOFTPLUS_SHAPES}
    in_order.sort(key=lambda item: item[1] not in tables[item[0]])  # the tables first
    left_out = [f"{gate} {shape}" for gate, shape in in_order]

    def write():
        meta.update(brim_allow_split=allow_split, clock_us=median, clock_min_us=least, slower_than_fla=slower, left_out=left_out,
                    fla_missing=missing, fla_configurations=choices,
                    fla_tuned_at="first configurations" if args.no_tune else "all heads" if args.retune else args.tune_shapes,
                    fla_tuned_by="graph replays, L2 flushed, median of 7",
                    floor="bytes of q, k, v, g, beta, out and both states / 4.3 TB/s",
                    triton=triton.__version__, seconds=round(time.time() - begin))
        common.write(args.out, "kda_peers", rows, meta)

    def measure(gate, shape):
        """Rows of one shape; False where the two differ."""
        nonlocal allow_split, applied
        case = Case(shape, gate)
        clock.samples = args.samples if case.n_tok * case.heads < 1 << 19 else max(5, args.samples // 3)
        if gate in choices and nearest(choices[gate], case.heads) is not applied:
            applied = nearest(choices[gate], case.heads)
            apply(applied)
        floor = round(case.bytes() / common.COPY_BYTES_PER_US, 2)

        def row(peer, route, times):
            rows.append(dict(tokens=case.name, heads=case.heads, sequences=len(case.lengths), gate=gate, peer=peer, route=route,
                             median_us=times[0], min_us=times[1], floor_us=floor))

        fla_us, said = None, ""
        if have_fla:
            theirs, theirs_final = case.fla()
            times = clock.time([case.fla])
            row("fla triton", "", times)
            fla_us, said = times[0], f"fla {times[0]:9.2f}  "
        try:
            out, final = case.brim()
        except brim.BrimError as refused:
            print(f"{case.name},{case.heads} {gate}: {refused}", file=sys.stderr)
            row("brim", f"refused: {refused.text}", ("", ""))
            return True
        route, allow_split = brim.last_call()["route"], brim.last_call()["allow_split"]
        torch.cuda.synchronize()
        if have_fla:
            e = max(((a.double() - b.double()).norm() / b.double().norm()).item()
                    for a, b in ((out, theirs), (final, theirs_final)))
            if not e < 1.5e-2:
                print(f"FAILED {case.name},{case.heads} {gate}: differs from FLA by {e:.2e}; not timed", file=sys.stderr)
                return False
        times = clock.time([case.brim])
        row("brim", route, times)
        if have_fla and times[0] > fla_us:
            slower.append(f"{gate} {shape}")
        print(f"{time.time() - begin:4.0f} s  {gate:11} {case.name:>10} H {case.heads:3} N {len(case.lengths)}  {said}"
              f"brim {times[0]:9.2f} us ({route})  floor {floor}", flush=True)
        return True

    for gate, shape in in_order:
        if time.time() - begin > args.limit:
            break
        left_out.remove(f"{gate} {shape}")
        try:
            failed += not measure(gate, shape)
        except RuntimeError as error:  # out of memory, say: the others go on
            print(f"FAILED {gate} {shape}: {str(error)[:200]}", file=sys.stderr)
            failed += 1
        write()
        gc.collect()
        torch.cuda.empty_cache()
    print(f"{len(rows)} rows, {failed} failed, {len(slower)} slower than FLA, {len(left_out)} left out")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
