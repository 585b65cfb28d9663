# SPDX-License-Identifier: Apache-2.0
"""Both operators in float64 from their definitions, and bf16 as numpy sees it."""
import numpy as np


def to_bf16(x):
    """float -> uint16, to nearest even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(x):
    return (x.astype(np.uint32) << 16).view(np.float32)


def kda(q, k, v, g, beta, *, gate, lower_bound=None, a_log=None, dt_bias=None, scale=128 ** -0.5, l2norm=False,
        beta_logits=False, initial_state=None, checkpoints=None):
    """One sequence: q, k [T, H, 128], v, g [T, HV, 128], beta [T, HV], all float64; the state is [HV, V, K].
    Returns (out, state); states after every 64 tokens are appended to `checkpoints`."""
    n_tok, hv = v.shape[:2]
    q, k = (np.repeat(x, hv // x.shape[1], axis=1) for x in (q, k))
    if l2norm:
        q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6) for x in (q, k))
    if beta_logits:
        beta = 1 / (1 + np.exp(-beta))
    decay = g
    if gate != "given":
        x = g if dt_bias is None else g + np.asarray(dt_bias, np.float64).reshape(hv, 128)
        a = 1.0 if a_log is None else np.exp(np.asarray(a_log, np.float64))[:, None]
        decay = lower_bound / (1 + np.exp(-a * x)) if gate == "lower_bound" else -a * np.logaddexp(0, x)
    s = np.zeros((hv, 128, 128)) if initial_state is None else initial_state.astype(np.float64).copy()
    out = np.empty(v.shape)
    for t in range(n_tok):
        s *= np.exp(decay[t])[:, None, :]
        u = beta[t][:, None] * (v[t] - np.einsum("hvk,hk->hv", s, k[t]))
        s += u[:, :, None] * k[t][:, None, :]
        out[t] = scale * np.einsum("hvk,hk->hv", s, q[t])
        if checkpoints is not None and t % 64 == 63:
            checkpoints.append(s.copy())
    return out, s


def w4(x, codes, scales, biases):
    """x [.., n_in], codes uint32 [n_out, n_in / 8], scales and biases [n_out, n_in / group] -> float64."""
    n_out, words = codes.shape
    q = (codes[:, :, None] >> (4 * np.arange(8, dtype=np.uint32)) & 15).reshape(n_out, words * 8).astype(np.float64)
    group = words * 8 // scales.shape[1]
    w = np.repeat(scales.astype(np.float64), group, 1) * q + np.repeat(biases.astype(np.float64), group, 1)
    return x.astype(np.float64) @ w.T


def rms_ratio(got, want):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    return float(np.sqrt(((got - want) ** 2).sum() / (want ** 2).sum()))
