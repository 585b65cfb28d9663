# SPDX-License-Identifier: Apache-2.0
"""brim as a backend of flash-linear-attention: the same call on both, and what brim leaves to FLA.

FLA's Triton kernels are tuned at their first call; here they take their first configuration instead, so that the test
is quick. Values do not depend on it."""
import gc
import unittest

import brim

try:
    import torch
    import triton  # noqa: F401
except ImportError:
    raise unittest.SkipTest("torch and triton are not installed") from None

try:
    from fla.ops.kda import chunk_kda
except ImportError as error:
    raise unittest.SkipTest(f"flash-linear-attention: {error}") from None

from triton.runtime.autotuner import Autotuner

for tuner in gc.get_objects():
    if isinstance(tuner, Autotuner):
        tuner.configs = tuner.configs[:1]

from reference import rms_ratio
from test_torch import host, kda64, make_kda


@unittest.skipUnless(torch.cuda.is_available(), "no CUDA device")
class Fla(unittest.TestCase):
    def setUp(self):
        brim.fla.install()
        self.addCleanup(brim.fla.uninstall)

    def call(self, x, params, state=None, **change):
        options = dict(initial_state=state, output_final_state=True, use_qk_l2norm_in_kernel=True,
                       use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, safe_gate=True, lower_bound=-5.0,
                       A_log=params["a_log"], dt_bias=params["dt_bias"].reshape(-1))
        with torch.no_grad():
            return chunk_kda(**x, **{**options, **change})

    def both(self, x, params, state=None, **change):
        ours = self.call(x, params, state, **change)
        ran = brim.fla.last()
        brim.fla.uninstall()
        theirs = self.call(x, params, state, **change)
        brim.fla.install()
        return ours, theirs, ran

    def test_same_call_on_both(self):
        cases = [dict(), dict(state_v_first=True),
                 dict(use_gate_in_kernel=False, lower_bound=None, A_log=None, dt_bias=None)]
        for change in cases:
            x, params, state = make_kda("cuda", 2, 200, 1, 2)
            if change.get("use_gate_in_kernel") is False:
                x["g"] = -torch.rand_like(x["g"])
            ours, theirs, ran = self.both(x, params, state, **change)
            self.assertEqual(ran["backend"], "brim", ran["reason"])
            self.assertIsNotNone(ran["route"])
            self.assertTrue(ran["allow_split"])
            self.assertLess(rms_ratio(host(ours[0]), host(theirs[0])), 1e-2)
            self.assertLess(rms_ratio(host(ours[1]), host(theirs[1])), 1e-2)
            if not change:
                want, last = kda64(x, params, 1, state.mT, gate="lower_bound", lower_bound=-5.0, l2norm=True,
                                   beta_logits=True)
                self.assertLess(rms_ratio(host(ours[0][1]), want), 5e-3)
                self.assertLess(rms_ratio(host(ours[1][1].mT), last), 5e-3)

    def test_packed(self):
        x, params, _ = make_kda("cuda", 1, 200, 2, 2)
        state = 0.1 * torch.randn(3, 2, 128, 128, device="cuda")
        offsets = torch.tensor([0, 40, 70, 200], device="cuda")
        ours, theirs, ran = self.both(x, params, state, cu_seqlens=offsets, cu_seqlens_cpu=offsets.cpu())
        self.assertEqual(ran["backend"], "brim", ran["reason"])
        self.assertLess(rms_ratio(host(ours[0]), host(theirs[0])), 1e-2)
        self.assertLess(rms_ratio(host(ours[1]), host(theirs[1])), 1e-2)

    def test_softplus_by_whoever_can(self):
        x, params, _ = make_kda("cuda", 1, 100, 1, 1)
        out, _ = self.call(x, params, safe_gate=False, lower_bound=None)
        ran = brim.fla.last()
        self.assertTrue(ran["backend"] == "brim" or "softplus" in ran["reason"])
        want, _ = kda64(x, params, 0, gate="softplus", l2norm=True, beta_logits=True)
        self.assertLess(rms_ratio(host(out[0]), want), 1e-2)

    def test_left_to_fla(self):
        """Asked of the verifier alone, without running FLA's kernels."""
        x, params, state = make_kda("cuda", 1, 64, 1, 1)
        options = dict(use_gate_in_kernel=True, safe_gate=True, lower_bound=-5.0, A_log=params["a_log"])
        verifier = brim.fla._Calls().chunk_kda_verifier
        self.assertEqual(verifier(**x, **options), (True, None))
        self.assertEqual(verifier(*x.values(), **options), (True, None))
        grad = {**x, "v": x["v"].clone().requires_grad_()}
        cases = [
            (dict(x, g=x["g"].float()), {}, "g is torch.float32"),
            (dict(x, q=x["q"].half()), {}, "q is torch.float16"),
            ({n: t[..., :64] if n != "beta" else t for n, t in x.items()}, {}, "head dimensions 64"),
            (x, dict(allow_neg_eigval=True, use_beta_sigmoid_in_kernel=True), "2 sigmoid"),
            (x, dict(allow_neg_eigval=True), "use_beta_sigmoid_in_kernel"),
            (x, dict(return_intermediate_states=True), "return_intermediate_states"),
            (x, dict(cp_context=object()), "context parallelism"),
            (x, dict(lower_bound=-7.0), "lower_bound"),
            (x, dict(lower_bound=None), "lower_bound"),
            (x, dict(safe_gate=False, lower_bound=None, A_log=None), "A_log is missing"),
            (x, dict(chunk_size=16), "chunk_size 16"),
            (x, dict(something_new=1), "something_new"),
            (x, dict(initial_state=state.half()), "float32"),
            (dict(x, k=x["k"][:, :32]), {}, "one shape"),
            (grad, {}, "forward only"),
        ]
        for tensors, change, text in cases:
            accepted, reason = verifier(**tensors, **{**options, **change})
            self.assertFalse(accepted)
            self.assertIn(text, reason)
            self.assertEqual(brim.fla.last(), dict(backend=None, route=None, reason=reason, allow_split=None))


if __name__ == "__main__":
    unittest.main(verbosity=1)
