# SPDX-License-Identifier: Apache-2.0
"""The binding on torch tensors, on the CPU and on a GPU: against float64, in graphs, on several streams."""
import unittest

import numpy as np

import brim
from brim import _array
from reference import kda, rms_ratio, w4

try:
    import torch
except ImportError:
    raise unittest.SkipTest("torch is not installed") from None

GPU = torch.cuda.is_available()
DEVICES = ["cpu"] + ["cuda"] * GPU
needs_gpu = unittest.skipUnless(GPU, "no CUDA device")


def make_kda(device, n_seq, n_tok, n_head, hv, seed=0):
    gen = torch.Generator().manual_seed(seed)
    shapes = dict(q=(n_seq, n_tok, n_head, 128), k=(n_seq, n_tok, n_head, 128), v=(n_seq, n_tok, hv, 128),
                  g=(n_seq, n_tok, hv, 128), beta=(n_seq, n_tok, hv))
    x = {name: torch.randn(shape, generator=gen).bfloat16().to(device) for name, shape in shapes.items()}
    params = dict(a_log=torch.rand(hv, generator=gen).to(device), dt_bias=torch.rand(hv, 128, generator=gen).to(device))
    state = (0.1 * torch.randn(n_seq, hv, 128, 128, generator=gen)).to(device)
    return x, params, state


def host(x):
    return x.detach().double().cpu().numpy()


def kda64(x, params, n, state=None, **options):
    return kda(**{name: host(t[n]) for name, t in x.items()}, **{k: host(p) for k, p in params.items()},
               initial_state=None if state is None else host(state[n]), **options)


class Kda(unittest.TestCase):
    def test_against_float64(self):
        for device in DEVICES:
            for v_first in (True, False):
                x, params, state = make_kda(device, 2, 200, 1, 2)
                held = state if v_first else state.transpose(2, 3).contiguous()
                out, final = brim.kda_prefill(**x, gate="lower_bound", lower_bound=-5.0, **params, l2norm=True,
                                              beta_logits=True, initial_state=held, output_final_state=True,
                                              state_v_first=v_first)
                for n in range(2):
                    want, last = kda64(x, params, n, state, gate="lower_bound", lower_bound=-5.0, l2norm=True,
                                       beta_logits=True)
                    self.assertLess(rms_ratio(host(out[n]), want), 5e-3)
                    self.assertLess(rms_ratio(host(final[n] if v_first else final[n].mT), last), 5e-3)
                self.assertEqual(brim.last_call()["device"], device if device == "cpu" else "cuda:0")

    def test_softplus(self):
        for device in DEVICES:
            x, params, _ = make_kda(device, 1, 100, 2, 2)
            try:
                out, _ = brim.kda_prefill(**x, gate="softplus", **params, l2norm=True, beta_logits=True)
            except brim.BrimError as refused:
                self.assertEqual(refused.status, brim.Status.UNSUPPORTED)
                continue
            want, _ = kda64(x, params, 0, gate="softplus", l2norm=True, beta_logits=True)
            self.assertLess(rms_ratio(host(out[0]), want), 5e-3)

    def test_torch_and_numpy_agree(self):
        x, params, _ = make_kda("cpu", 1, 64, 1, 1)
        out, _ = brim.kda_prefill(**x, gate="lower_bound", lower_bound=-5.0, **params)
        bits, _ = brim.kda_prefill(**{n: t.view(torch.int16).numpy().view(np.uint16) for n, t in x.items()},
                                   gate="lower_bound", lower_bound=-5.0, **{n: p.numpy() for n, p in params.items()})
        self.assertTrue((out.view(torch.int16).numpy().view(np.uint16) == bits).all())

    @needs_gpu
    def test_views_and_packed(self):
        x, params, _ = make_kda("cuda", 1, 300, 2, 2)
        common = dict(gate="lower_bound", lower_bound=-5.0, **params, l2norm=True, output_final_state=True)
        want, _ = brim.kda_prefill(**x, **common)
        together = torch.cat([x["q"], x["k"], x["v"], x["g"]], dim=2)
        got, _ = brim.kda_prefill(*together.chunk(4, dim=2), x["beta"], **common)
        self.assertTrue(torch.equal(got, want))
        for dtype in (torch.int32, torch.int64):
            offsets = torch.tensor([0, 37, 37, 290], dtype=dtype, device="cuda")
            out, final = brim.kda_prefill(**x, **common, cu_seqlens=offsets, max_tokens=253)
            self.assertEqual(out[0, 290:].abs().max().item(), 0)
            alone, state = brim.kda_prefill(**{n: t[:, 37:290] for n, t in x.items()}, **common)
            self.assertTrue(torch.equal(alone[0], out[0, 37:290]) and torch.equal(state[0], final[2]))

    @needs_gpu
    def test_graph_growth_and_streams(self):
        x, params, _ = make_kda("cuda", 1, 2048, 2, 2)
        common = dict(gate="lower_bound", lower_bound=-5.0, **params, l2norm=True)
        want, _ = brim.kda_prefill(**x, **common, route="m128")
        for warm in (False, True):
            stream = torch.cuda.Stream()
            out = torch.empty_like(want)
            call = dict(**x, **common, route="c4-m128", out=out)
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                if warm:
                    brim.kda_prefill(**call)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=stream):
                    brim.kda_prefill(**call)
                # an eager call before the first replay, then one that makes the workspace grow
                brim.kda_prefill(**call)
                stream.synchronize()
                self.assertTrue(torch.equal(out, want))
                big, more, _ = make_kda("cuda", 8, 128, 8, 8)
                brim.kda_prefill(**big, gate="lower_bound", lower_bound=-5.0, **more, route="c4-m128")
                for _ in range(3):
                    out.fill_(float("nan"))
                    graph.replay()
                    stream.synchronize()
                    self.assertTrue(torch.equal(out, want))
        streams = [torch.cuda.Stream() for _ in range(2)]
        outs = [torch.empty_like(want) for _ in range(2)]
        torch.cuda.synchronize()
        for _ in range(10):
            for stream, out in zip(streams, outs):
                with torch.cuda.stream(stream):
                    brim.kda_prefill(**x, **common, route="c4-m128", out=out)
        torch.cuda.synchronize()
        self.assertTrue(all(torch.equal(out, want) for out in outs))

    def test_refusals(self):
        x, params, _ = make_kda("cpu", 1, 8, 1, 1)
        x["q"].requires_grad_()
        with self.assertRaises(brim.BrimError) as refused:
            brim.kda_prefill(**x, gate="lower_bound", lower_bound=-5.0, **params)
        self.assertIn("forward only", str(refused.exception))
        with torch.no_grad():
            brim.kda_prefill(**x, gate="lower_bound", lower_bound=-5.0, **params)
        if GPU:
            x, params, _ = make_kda("cuda", 1, 8, 1, 1)
            with self.assertRaises(brim.BrimError) as refused:
                brim.kda_prefill(**{**x, "v": x["v"].cpu()}, gate="lower_bound", lower_bound=-5.0, **params)
            self.assertEqual(refused.exception.status, brim.Status.DEVICE)
            with self.assertRaises(brim.BrimError) as refused:
                brim.kda_prefill(**{**x, "q": x["q"].as_strided(x["q"].shape, (0, 4, 4, 1))}, gate="lower_bound",
                                 lower_bound=-5.0, **params)
            self.assertEqual(refused.exception.status, brim.Status.STRIDE)


class W4(unittest.TestCase):
    def weights(self, device, n_out, n_in, group, dtype=torch.bfloat16):
        gen = torch.Generator().manual_seed(n_out + n_in)
        codes = torch.randint(-2 ** 31, 2 ** 31, (n_out, n_in // 8), generator=gen, dtype=torch.int64).int()
        scales = (torch.randn(n_out, n_in // group, generator=gen) * 0.1).to(dtype)
        biases = (-7.5 * scales.float()).to(dtype)
        return codes.to(device), scales.to(device), biases.to(device)

    def product(self, x, codes, scales, biases):
        return w4(host(x), codes.cpu().numpy().view(np.uint32), host(scales), host(biases))

    def test_levels_and_shapes(self):
        for device in DEVICES:
            for group, dtype in ((128, torch.bfloat16), (32, torch.float16), (64, torch.float32)):
                weights = self.weights(device, 200, 640, group, dtype)
                for shape in ((1, 640), (8, 640), (9, 640), (2, 50, 640), (640,)):
                    x = torch.randn(shape, device=device).bfloat16()
                    want = self.product(x, *weights)
                    for level in ("auto", "matvec", "tiled"):
                        got = brim.w4_matmul(x, *weights, level=level)
                        self.assertEqual(got.shape, x.shape[:-1] + (200,))
                        self.assertLess(rms_ratio(host(got), want), 4e-3)
                    if device == "cuda":
                        packed = brim.w4_pack(*weights)
                        got = brim.w4_matmul(x, *weights, packed=packed)
                        self.assertLess(rms_ratio(host(got), want), 4e-3)
                        self.assertNotIn(brim.last_call()["kernel"], ("tiled", "split-k", "naive"))

    @needs_gpu
    def test_split_graph_and_views(self):
        weights = self.weights("cuda", 1024, 2560, 128)
        x = torch.randn(32, 2560, device="cuda").bfloat16()
        whole = brim.w4_matmul(x, *weights, level="tiled", split="off")
        self.assertTrue(torch.equal(brim.w4_matmul(x, *weights, level="tiled", split=1), whole))
        ten = brim.w4_matmul(x, *weights, policy="course")
        self.assertEqual((brim.last_call()["kernel"], brim.last_call()["split"]), ("split-k", 10))
        self.assertLess(rms_ratio(host(ten), self.product(x, *weights)), 3.1e-3)
        wide = torch.randn(32, 4000, device="cuda").bfloat16()
        wide[:, 8:2568] = x
        self.assertTrue(torch.equal(brim.w4_matmul(wide[:, 8:2568], *weights, policy="course"), ten))
        out = torch.zeros(32, 1500, device="cuda").bfloat16()
        brim.w4_matmul(x, *weights, policy="course", out=out[:, 100:1124])
        self.assertTrue(torch.equal(out[:, 100:1124], ten) and out[:, :100].abs().max().item() == 0)
        packed = brim.w4_pack(*weights)
        rows = torch.randn(300, 2560, device="cuda").bfloat16()
        want = brim.w4_matmul(rows, *weights, packed=packed)
        got = torch.empty_like(want)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            brim.w4_matmul(x, *weights, policy="course", out=out[:, 100:1124])
            brim.w4_matmul(rows, *weights, packed=packed, out=got)
        for _ in range(3):
            out.zero_(), got.zero_()
            graph.replay()
            torch.cuda.synchronize()
            self.assertTrue(torch.equal(out[:, 100:1124], ten) and torch.equal(got, want))

    @needs_gpu
    def test_refusals(self):
        weights = self.weights("cuda", 16, 128, 128)
        x = torch.randn(4, 136, device="cuda").bfloat16()
        with self.assertRaises(brim.BrimError) as refused:
            brim.w4_matmul(x[:, 4:132], *weights)
        self.assertEqual(refused.exception.status, brim.Status.ALIGNMENT)
        with self.assertRaises(brim.BrimError) as refused:
            brim.w4_matmul(x[:, :128].float(), *weights)
        self.assertEqual(refused.exception.status, brim.Status.DTYPE)
        with self.assertRaises(brim.BrimError) as refused:
            brim.w4_matmul(x[:, :128].contiguous(), *weights, level="hopper")
        self.assertIn("brim_w4_pack", str(refused.exception))


class Workspaces(unittest.TestCase):
    @needs_gpu
    def test_one_for_each_operator_and_stream(self):
        x, params, _ = make_kda("cuda", 1, 64, 1, 1)
        _array._workspaces.clear()
        for _ in range(2):
            brim.kda_prefill(**x, gate="lower_bound", lower_bound=-5.0, **params, route="c4-m128")
        self.assertEqual(len(_array._workspaces), 1)
        with torch.cuda.stream(torch.cuda.Stream()):
            brim.kda_prefill(**x, gate="lower_bound", lower_bound=-5.0, **params, route="c4-m128")
        self.assertEqual(len(_array._workspaces), 2)
        torch.cuda.synchronize()


if __name__ == "__main__":
    unittest.main(verbosity=1)
