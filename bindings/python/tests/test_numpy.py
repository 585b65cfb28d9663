# SPDX-License-Identifier: Apache-2.0
"""The binding on numpy arrays: values, views, states, plans, and refusals as exceptions."""
import ctypes
import os
import subprocess
import sys
import unittest

import numpy as np

import brim
from brim import _native
from reference import from_bf16, kda, rms_ratio, to_bf16, w4


def make_kda(rng, n_seq, n_tok, n_head, hv):
    bf16 = {name: to_bf16(rng.standard_normal(shape)) for name, shape in (
        ("q", (n_seq, n_tok, n_head, 128)), ("k", (n_seq, n_tok, n_head, 128)), ("v", (n_seq, n_tok, hv, 128)),
        ("g", (n_seq, n_tok, hv, 128)), ("beta", (n_seq, n_tok, hv)))}
    params = dict(a_log=rng.random(hv, np.float32), dt_bias=rng.random((hv, 128), np.float32))
    state = (0.1 * rng.standard_normal((n_seq, hv, 128, 128))).astype(np.float32)
    return bf16, params, state


def exact(bf16, n):
    return {name: from_bf16(x[n]).astype(np.float64) for name, x in bf16.items()}


class Kda(unittest.TestCase):
    def setUp(self):
        self.rng = np.random.default_rng(7)

    def test_gates_heads_and_states(self):
        for gate, bound in (("lower_bound", -5.0), ("softplus", None)):
            for v_first in (True, False):
                x, params, state = make_kda(self.rng, 2, 70, 1, 2)
                held = state if v_first else np.ascontiguousarray(state.transpose(0, 1, 3, 2))
                before = held.copy()
                out, final, marks = brim.kda_prefill(
                    **x, gate=gate, lower_bound=bound, **params, l2norm=True, beta_logits=True, initial_state=held,
                    output_final_state=True, state_v_first=v_first, checkpoints=True)
                self.assertTrue((held == before).all())
                self.assertEqual(marks.shape, (2, 1, 2, 128, 128))
                for n in range(2):
                    stops = []
                    want, last = kda(**exact(x, n), gate=gate, lower_bound=bound, **params, l2norm=True,
                                     beta_logits=True, initial_state=state[n], checkpoints=stops)
                    got = final[n] if v_first else final[n].transpose(0, 2, 1)
                    mark = marks[n, 0] if v_first else marks[n, 0].transpose(0, 2, 1)
                    self.assertLess(rms_ratio(from_bf16(out[n]), want), 5e-3)
                    self.assertLess(rms_ratio(got, last), 1e-4)
                    self.assertLess(rms_ratio(mark, stops[0]), 1e-4)
        self.assertEqual(brim.last_call()["operator"], "kda_prefill")
        self.assertEqual(brim.last_call()["route"], "cpu-chunk")

    def test_packed_equals_each_alone(self):
        x, params, _ = make_kda(self.rng, 1, 50, 2, 2)
        common = dict(gate="lower_bound", lower_bound=-4.0, **params, l2norm=True, output_final_state=True)
        for offsets in (np.array([0, 17, 17, 43], np.int32), np.array([0, 17, 17, 43], np.int64)):
            out, final = brim.kda_prefill(**x, **common, cu_seqlens=offsets)
            flat, _ = brim.kda_prefill(**{name: a[0] for name, a in x.items()}, **common, cu_seqlens=offsets)
            self.assertEqual(flat.shape, (50, 2, 128))
            self.assertTrue((flat == out[0]).all())
            self.assertTrue((out[0, 43:] == 0).all())
            self.assertTrue((final[1] == 0).all())
            for n in (0, 2):
                rows = slice(offsets[n], offsets[n + 1])
                alone, state = brim.kda_prefill(**{name: a[:, rows] for name, a in x.items()}, **common)
                self.assertTrue((alone[0] == out[0, rows]).all())
                self.assertTrue((state[0] == final[n]).all())

    def test_views_of_a_packed_projection(self):
        x, params, _ = make_kda(self.rng, 1, 40, 2, 2)
        together = np.concatenate([x["q"], x["k"], x["v"], x["g"]], axis=2)
        views = {name: together[:, :, 2 * i:2 * i + 2] for i, name in enumerate("qkvg")}
        common = dict(gate="lower_bound", lower_bound=-5.0, **params)
        want, _ = brim.kda_prefill(**x, **common)
        got, _ = brim.kda_prefill(**views, beta=x["beta"], **common, n_thread=2)
        self.assertTrue((got == want).all())
        with self.assertRaises(brim.BrimError) as refused:
            brim.kda_prefill(**{**x, "q": x["q"][..., ::-1]}, **common)
        self.assertEqual(refused.exception.status, brim.Status.STRIDE)

    def test_pool_in_place(self):
        x, params, _ = make_kda(self.rng, 3, 20, 1, 1)
        pool = (0.1 * self.rng.standard_normal((5, 1, 128, 128))).astype(np.float32)
        before = pool.copy()
        index, fresh = np.array([4, -1, 1], np.int32), np.array([0, 0, 1], np.uint8)
        out, final = brim.kda_prefill(**x, gate="lower_bound", lower_bound=-5.0, **params, initial_state=pool,
                                      state_index=index, fresh=fresh)
        self.assertIs(final, pool)
        self.assertTrue((pool[[0, 2, 3]] == before[[0, 2, 3]]).all())
        for n, start in enumerate((before[4], None, None)):
            want, last = kda(**exact(x, n), gate="lower_bound", lower_bound=-5.0, **params, initial_state=start)
            self.assertLess(rms_ratio(from_bf16(out[n]), want), 5e-3)
            if index[n] >= 0:
                self.assertLess(rms_ratio(pool[index[n]], last), 1e-4)

    def test_given_decay_in_f32_and_bf16_states(self):
        x, _, state = make_kda(self.rng, 1, 33, 1, 1)
        x["g"] = -self.rng.random((1, 33, 1, 128)).astype(np.float32)
        held = to_bf16(state)
        out, final = brim.kda_prefill(**x, gate="given", lower_bound=-1.0, initial_state=held, final_state=held,
                                      checked=True)
        self.assertIs(final, held)
        exact_x = {**exact({n: a for n, a in x.items() if n != "g"}, 0), "g": x["g"][0].astype(np.float64)}
        want, last = kda(**exact_x, gate="given", initial_state=from_bf16(to_bf16(state))[0])
        self.assertLess(rms_ratio(from_bf16(out[0]), want), 5e-3)
        self.assertLess(rms_ratio(from_bf16(held)[0], last), 5e-3)

    def test_refusals(self):
        x, params, state = make_kda(self.rng, 1, 8, 1, 2)
        good = dict(**x, gate="lower_bound", lower_bound=-5.0, **params)
        cases = [
            (dict(lower_bound=-6.0), brim.Status.RANGE, "lower_bound -6"),
            (dict(lower_bound=None), brim.Status.RANGE, "has no default"),
            (dict(gate="sigmoid"), brim.Status.ARGUMENT, "sigmoid"),
            (dict(q=x["q"][..., :64]), brim.Status.SHAPE, "q has shape"),
            (dict(k=x["k"][:, :4]), brim.Status.SHAPE, "k has shape"),
            (dict(q=x["q"].astype(np.float16)), brim.Status.DTYPE, "q is f16"),
            (dict(v=x["v"].astype(np.complex64)), brim.Status.DTYPE, "complex64"),
            (dict(g=x["g"].astype(np.float32)), brim.Status.DTYPE, "g must be bf16"),
            (dict(a_log=params["a_log"].astype(np.float64)), brim.Status.DTYPE, "float64"),
            (dict(dt_bias=params["dt_bias"][:1]), brim.Status.SHAPE, "dt_bias"),
            (dict(initial_state=state[:, :1]), brim.Status.SHAPE, "initial_state"),
            (dict(route="m128"), brim.Status.UNSUPPORTED, "the CPU has routes"),
            (dict(cu_seqlens=np.array([0, 9], np.int32)), brim.Status.OFFSETS, "cu_seqlens"),
            (dict(scale=float("nan")), brim.Status.RANGE, "scale"),
        ]
        for change, status, text in cases:
            out = np.full(x["v"].shape, 0xFFFF, np.uint16)
            with self.assertRaises(brim.BrimError) as refused:
                brim.kda_prefill(**{**good, **change}, out=out)
            self.assertEqual(refused.exception.status, status, refused.exception.text)
            self.assertIn(text, str(refused.exception))
            self.assertTrue((out == 0xFFFF).all())
        with self.assertRaises(TypeError):
            brim.kda_prefill(**{**good, "q": [[1.0]]})

    def test_nothing_and_what_must_not_be_written(self):
        x, params, state = make_kda(self.rng, 2, 0, 1, 1)
        out, final = brim.kda_prefill(**x, gate="lower_bound", lower_bound=-5.0, **params, initial_state=state,
                                      output_final_state=True)
        self.assertEqual(out.shape, (2, 0, 1, 128))
        self.assertTrue((final == state).all())
        x, params, state = make_kda(self.rng, 1, 5, 1, 1)
        fixed = np.zeros((1, 5, 1, 128), np.uint16)
        fixed.flags.writeable = False
        for change in (dict(out=fixed), dict(out=x["v"]), dict(split_window=9)):
            with self.assertRaises(brim.BrimError):
                brim.kda_prefill(**x, gate="lower_bound", lower_bound=-5.0, **params, **change)
        self.assertTrue((fixed == 0).all())

    def test_plan(self):
        plan = brim.kda_plan(1, 4096, 4)
        self.assertEqual(set(plan) & {"route", "grid", "cluster", "workspace_bytes"},
                         {"route", "grid", "cluster", "workspace_bytes"})
        self.assertEqual(brim.kda_plan(1, 4096, 4, route="m128")["route"], "m128")
        with self.assertRaises(brim.BrimError):
            brim.kda_plan(1, 4096, 4, route="nonsense")

    def test_numbers_no_c_type_holds(self):
        """Refused by name, never cut to the bits that fit: 2 ** 64 + 4096 tokens are not 4096."""
        x, params, _ = make_kda(self.rng, 1, 5, 1, 1)
        good = dict(**x, gate="lower_bound", lower_bound=-5.0, **params)
        huge = 2 ** 64 + 4
        for change, name in ((dict(n_thread=huge), "n_thread"), (dict(n_thread=2 ** 31), "n_thread"),
                             (dict(split_length=-huge), "split_length"), (dict(split_window=10 ** 5000), "split_window"),
                             (dict(cu_seqlens=np.array([0, 5]), max_tokens=huge), "max_tokens"),
                             (dict(scale=1e300), "scale"), (dict(scale=10 ** 400), "scale"),
                             (dict(lower_bound=-1e300), "lower_bound")):
            out = np.full((1, 5, 1, 128), 0xFFFF, np.uint16)
            with self.assertRaises(brim.BrimError) as refused:
                brim.kda_prefill(**{**good, **change}, out=out)
            self.assertEqual(refused.exception.status, brim.Status.RANGE)
            self.assertTrue(refused.exception.text.startswith(name + " "), refused.exception.text)
            self.assertTrue((out == 0xFFFF).all())
        for call, name in ((dict(batch=huge), "batch"), (dict(tokens=huge), "tokens"), (dict(heads=huge), "heads"),
                           (dict(processors=huge), "processors")):
            with self.assertRaises(brim.BrimError) as refused:
                brim.kda_plan(**{**dict(batch=1, tokens=4096, heads=4), **call})
            self.assertEqual(refused.exception.status, brim.Status.RANGE)
            self.assertTrue(refused.exception.text.startswith(name + " "), refused.exception.text)
        for change, name in ((dict(n_thread=1.5), "n_thread"), (dict(split_length="2"), "split_length"),
                             (dict(scale=[1]), "scale")):
            with self.assertRaisesRegex(TypeError, name):
                brim.kda_prefill(**good, **change)
        with self.assertRaisesRegex(TypeError, "tokens must be an integer"):
            brim.kda_plan(1, 4096.0, 4)
        self.assertEqual(brim.kda_plan(np.int64(1), np.int32(4096), np.uint8(4)), brim.kda_plan(1, 4096, 4))

    def test_plan_expected_times(self):
        plan = brim.kda_plan(1, 4096, 8)
        ring = plan["route"]
        self.assertIn(ring, ("c5-m64", "c6-m64"))
        self.assertGreater(plan["expected_us"], 50)
        routes = {other["route"]: other for other in plan["alternatives"]}
        self.assertLessEqual({"m128", "m64", "pair", "c8-m128", "split"}, set(routes))
        self.assertGreater(routes["m128"]["expected_us"], plan["expected_us"])
        self.assertEqual(routes["split"]["why_not"], "allow_split is not set")
        split = brim.kda_plan(1, 4096, 8, allow_split=True)
        self.assertEqual((split["route"], split["serial"], split["split_slots"]), ("split", ring, 16))
        self.assertGreater(split["uncut_us"], split["expected_us"])
        joined = brim.kda_plan(1, 16384, 1, allow_split=True, split_exact=True)
        self.assertEqual((joined["route"], joined["split_window"]), ("split-join", 0))
        self.assertGreater(joined["expected_us"], 50)
        self.assertNotEqual(brim.kda_plan(1, 16384, 1, split_exact=True)["route"], "split-join")
        pinned = brim.kda_plan(3, 4096, 8, packed=True, max_tokens=3000, route="split", split_length=4, split_window=2)
        self.assertEqual((pinned["route"], pinned["split_length"], pinned["split_window"]), ("split", 4, 2))
        self.assertIsNone(brim.kda_plan(1, 8, 8)["expected_us"])
        with self.assertRaises(brim.BrimError):
            brim.kda_plan(1, 4096, 8, route="split", split_window=9)
        longer = brim.kda_plan(3, 4096, 8, route="split", split_length=4, split_first=50)
        self.assertEqual((longer["split_first"], longer["split_slots"]), (50, 3 * (1 + 20)))
        with self.assertRaisesRegex(brim.BrimError, "split_first"):
            brim.kda_plan(1, 4096, 8, route="split", split_length=4, split_first=3)
        exact = brim.kda_plan(1, 4096, 8, route="split", split_length=4, split_exact=True)
        self.assertEqual((exact["route"], exact["split_window"], exact["split_slots"]), ("split-join", 0, 32))
        self.assertNotIn("serial", exact)
        self.assertEqual(brim.kda_plan(1, 4096, 8, allow_split=True, split_exact=True)["route"], ring)


class W4(unittest.TestCase):
    def setUp(self):
        self.rng = np.random.default_rng(3)

    def weights(self, n_out, n_in, group, dtype):
        codes = self.rng.integers(0, 2 ** 32, (n_out, n_in // 8), dtype=np.uint32)
        scales = self.rng.standard_normal((n_out, n_in // group)).astype(np.float32) * 0.1
        biases = -7.5 * scales
        if dtype == "bf16":
            return codes, to_bf16(scales), to_bf16(biases)
        return codes, scales.astype(dtype), biases.astype(dtype)

    def test_values(self):
        for group, dtype in ((32, "bf16"), (64, np.float16), (128, np.float32)):
            codes, scales, biases = self.weights(40, 256, group, dtype)
            plain = (from_bf16(scales), from_bf16(biases)) if dtype == "bf16" else (scales, biases)
            for shape in ((1, 256), (13, 256), (2, 3, 256), (256,)):
                x = self.rng.standard_normal(shape).astype(np.float32)
                got = brim.w4_matmul(x, codes, scales, biases)
                self.assertEqual(got.shape, shape[:-1] + (40,))
                self.assertLess(rms_ratio(got, w4(x, codes, *plain)), 1e-5)
                x = to_bf16(x)
                got = brim.w4_matmul(x, codes, scales, biases, n_thread=3)
                self.assertLess(rms_ratio(from_bf16(got), w4(from_bf16(x), codes, *plain)), 5e-3)

    def test_rows_with_a_stride_and_out(self):
        codes, scales, biases = self.weights(24, 128, 128, np.float32)
        wide = self.rng.standard_normal((9, 300)).astype(np.float32)
        out = np.full((9, 50), np.nan, np.float32)
        got = brim.w4_matmul(wide[:, :128], codes, scales, biases, out=out[:, 10:34])
        self.assertIs(got.base, out)
        self.assertLess(rms_ratio(out[:, 10:34], w4(wide[:, :128], codes, scales, biases)), 1e-5)
        self.assertTrue(np.isnan(out[:, :10]).all() and np.isnan(out[:, 34:]).all())

    def test_split(self):
        codes, scales, biases = self.weights(16, 2560, 128, "bf16")
        x = to_bf16(self.rng.standard_normal((17, 2560)))
        off = brim.w4_matmul(x, codes, scales, biases)
        self.assertEqual(brim.last_call(), dict(operator="w4_matmul", device="cpu", kernel="cpu", split=1))
        ten = brim.w4_matmul(x, codes, scales, biases, split=10)
        self.assertEqual(brim.last_call()["split"], 10)
        self.assertTrue((brim.w4_matmul(x, codes, scales, biases, split=1) == off).all())
        self.assertTrue((brim.w4_matmul(x, codes, scales, biases, split="off", policy="course") == off).all())
        self.assertFalse((ten == off).all())
        self.assertTrue((brim.w4_matmul(x, codes, scales, biases, policy="course") == ten).all())
        self.assertEqual(brim.w4_plan(x, codes, scales, biases, policy="course")["split"], 10)

    def test_empty(self):
        codes, scales, biases = self.weights(16, 128, 128, np.float32)
        self.assertEqual(brim.w4_matmul(np.empty((0, 128), np.float32), codes, scales, biases).shape, (0, 16))

    def test_refusals(self):
        codes, scales, biases = self.weights(16, 384, 128, np.float32)
        x = np.zeros((2, 384), np.float32)
        cases = [
            (dict(x=x[:, :256]), brim.Status.SHAPE, "last dimension must be 384"),
            (dict(scales=scales[:, :2].copy(), biases=biases[:, :2].copy()), brim.Status.RANGE, "group is 192"),
            (dict(biases=biases[:, :1]), brim.Status.SHAPE, "biases has shape"),
            (dict(x=x.astype(np.float16)), brim.Status.DTYPE, "x is f16"),
            (dict(x=np.broadcast_to(x[:1], (3, 384))), brim.Status.STRIDE, "the stride of x is 0"),
            (dict(x=x[:, ::-1]), brim.Status.STRIDE, "x"),
            (dict(codes=codes.astype(np.int64)), brim.Status.DTYPE, "codes is i64"),
            (dict(level="hopper"), brim.Status.UNSUPPORTED, "Hopper"),
            (dict(level="fast"), brim.Status.ARGUMENT, "fast"),
            (dict(split=2), brim.Status.SHAPE, "pinned split 2"),
            (dict(split="some"), brim.Status.ARGUMENT, "some"),
            (dict(split=2 ** 64 + 1), brim.Status.RANGE, "split 18446744073709551617"),
            (dict(split=-2 ** 70), brim.Status.RANGE, "split -"),
            (dict(n_thread=2 ** 70), brim.Status.RANGE, "n_thread"),
            (dict(planes="f16"), brim.Status.DTYPE, "planes"),
            (dict(out=x), brim.Status.SHAPE, "out has shape"),
        ]
        for change, status, text in cases:
            call = {**dict(x=x, codes=codes, scales=scales, biases=biases), **change}
            with self.assertRaises(brim.BrimError) as refused:
                brim.w4_matmul(call.pop("x"), call.pop("codes"), call.pop("scales"), call.pop("biases"), **call)
            self.assertEqual(refused.exception.status, status, refused.exception.text)
            self.assertIn(text, str(refused.exception))
        with self.assertRaises(brim.BrimError) as refused:
            brim.w4_pack(codes, scales, biases)
        self.assertEqual(refused.exception.status, brim.Status.UNSUPPORTED)
        overlapping = np.zeros(1000, np.float32)
        with self.assertRaises(brim.BrimError) as refused:
            brim.w4_matmul(overlapping[:768].reshape(2, 384), codes, scales, biases, out=overlapping[700:732].reshape(2, 16))
        self.assertIn("y overlaps x", str(refused.exception))


class Package(unittest.TestCase):
    def test_status_names_match_the_header(self):
        c = _native.library().c
        if hasattr(c, "brim_status_name"):
            c.brim_status_name.restype = ctypes.c_char_p
            for status in brim.Status:
                name = c.brim_status_name(int(status)).decode()
                self.assertEqual(name, "BRIM_OK" if status == 0 else f"BRIM_E_{status.name}")

    def test_imports_without_numpy_and_torch(self):
        code = ("import sys; sys.modules['numpy'] = sys.modules['torch'] = None\n"
                "import brim; print(brim.kda_plan(1, 64, 1)['route'])")
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stderr), (0, ""))

    def test_a_library_that_is_missing(self):
        run = subprocess.run([sys.executable, "-c", "import brim; brim.kda_plan(1, 64, 1)"], capture_output=True,
                             text=True, env={**os.environ, "BRIM_LIBRARY": "/nowhere/lib.so"})
        self.assertIn("BRIM_LIBRARY names /nowhere/lib.so, which does not exist", run.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
