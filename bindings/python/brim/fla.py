# SPDX-License-Identifier: Apache-2.0
"""brim as a backend of flash-linear-attention's ``chunk_kda``.

``brim.fla.install()`` registers it; afterwards ``fla.ops.kda.chunk_kda`` runs brim's kernels for every call they can
serve, and FLA's own for the others. The reason of a refusal is logged by FLA (logger ``fla``, level INFO), and
`last` gives it too.

Works with fla-core 0.5 (``fla.ops.kda.backends.kda_registry``) and 0.6 (``fla.backends.register``).
"""
import importlib

from . import _array
from ._native import BrimError
from .kda import kda_prefill

_last = {"backend": None, "route": None, "reason": None, "allow_split": None}


def last():
    """What the last ``chunk_kda`` that asked this backend did: ``backend`` is "brim" or None where FLA's own code
    ran; then ``reason`` says what brim refused. ``route`` is brim's route, ``allow_split`` whether the route that cuts
    sequences was admitted."""
    return dict(_last)


def _note(backend, route, reason, allow_split=None):
    _last.update(backend=backend, route=route, reason=reason, allow_split=allow_split)


def _checks_of_fla(q, k, v, g, beta, initial_state, cu_seqlens, use_gate_in_kernel, use_beta_sigmoid_in_kernel,
                   allow_neg_eigval, safe_gate, lower_bound, A_log, chunk_size):
    """What FLA itself asserts of a call; a call that fails here is FLA's to refuse, with its own message."""
    import torch
    if q.dim() != 4 or v.dim() != 4:
        return "q, k and v must have four dimensions"
    if q.shape != k.shape:
        return f"q and k must have one shape, got {tuple(q.shape)} and {tuple(k.shape)}"
    batch, n_tok, n_head, dim = q.shape
    hv = v.shape[2]
    if dim > 256:
        return f"FLA takes head dimensions up to 256, got {dim}"
    if hv % n_head:
        return f"{hv} value heads are no multiple of {n_head} heads"
    if tuple(g.shape) != (batch, n_tok, hv, dim):
        return f"g has shape {tuple(g.shape)}"
    if tuple(beta.shape) != (batch, n_tok, hv):
        return f"beta has shape {tuple(beta.shape)}"
    if cu_seqlens is not None:
        if batch != 1:
            return f"packed sequences need a batch of one, got {batch}"
        if initial_state is not None and initial_state.shape[0] != len(cu_seqlens) - 1:
            return f"{initial_state.shape[0]} initial states for {len(cu_seqlens) - 1} sequences"
    if initial_state is not None and initial_state.dtype != torch.float32:
        return "the initial state must be float32"
    if use_gate_in_kernel and A_log is None and lower_bound is None:
        return "A_log is missing"
    if safe_gate and use_gate_in_kernel and (lower_bound is None or not -5 <= lower_bound < 0):
        return f"safe_gate needs a lower_bound in [-5, 0), got {lower_bound}"
    if allow_neg_eigval and not use_beta_sigmoid_in_kernel:
        return "allow_neg_eigval needs use_beta_sigmoid_in_kernel"
    if chunk_size not in (32, 64):
        return f"chunk_size {chunk_size} is neither 32 nor 64"
    return None


def _not_implemented(q, k, v, g, beta, initial_state, use_gate_in_kernel, allow_neg_eigval, lower_bound, cp_context,
                     return_intermediate_states, A_log, dt_bias):
    """What FLA computes and brim does not."""
    import torch
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad
                                       for t in (q, k, v, g, beta, initial_state, A_log, dt_bias)):
        return "brim computes forward only; gradients are asked for"
    for name, t in (("q", q), ("k", k), ("v", v)):
        if t.dtype != torch.bfloat16:
            return f"{name} is {t.dtype}; brim takes bfloat16"
    if q.shape[-1] != 128 or v.shape[-1] != 128:
        return f"head dimensions {q.shape[-1]} and {v.shape[-1]}; brim takes 128"
    if q.device.type not in ("cuda", "cpu"):
        return f"brim has no kernels for {q.device.type}"
    if cp_context is not None:
        return "context parallelism is not implemented"
    if return_intermediate_states:
        return "return_intermediate_states is not implemented"
    if allow_neg_eigval:
        return "beta = 2 sigmoid(x) (allow_neg_eigval) is not implemented"
    if g.dtype not in ((torch.bfloat16,) if use_gate_in_kernel else (torch.bfloat16, torch.float32)):
        return f"g is {g.dtype}; brim takes bfloat16, or float32 as a given log decay"
    if beta.dtype not in (torch.bfloat16, torch.float32):
        return f"beta is {beta.dtype}; brim takes bfloat16 or float32"
    if use_gate_in_kernel and lower_bound is not None and not -5 <= lower_bound < 0:
        return f"lower_bound {lower_bound} lies outside [-5, 0)"
    return None


def _rows(x):
    """As it is where brim's strides allow it, else a contiguous copy."""
    unit = 16 // x.element_size()
    fits = x.stride(-1) == 1 and x.data_ptr() % 16 == 0 and all(s % unit == 0 for s in x.stride()[:-1])
    return x if fits else x.contiguous()


def _arguments(q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False,
               use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False,
               allow_neg_eigval=False, safe_gate=False, lower_bound=None, disable_recompute=False,
               return_intermediate_states=False, state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None,
               cp_context=None, use_graph=False, max_num_seqs=None, *, A_log=None, dt_bias=None, chunk_size=64,
               transpose_state_layout=None, **unknown):
    """FLA's arguments to brim's: (refusal, keyword arguments of kda_prefill)."""
    if unknown:
        return f"unknown arguments {', '.join(sorted(unknown))}", None
    if transpose_state_layout is not None:
        state_v_first = transpose_state_layout
    reason = _checks_of_fla(q, k, v, g, beta, initial_state, cu_seqlens, use_gate_in_kernel,
                            use_beta_sigmoid_in_kernel, allow_neg_eigval, safe_gate, lower_bound, A_log, chunk_size)
    reason = reason or _not_implemented(q, k, v, g, beta, initial_state, use_gate_in_kernel, allow_neg_eigval,
                                        lower_bound, cp_context, return_intermediate_states, A_log, dt_bias)
    if reason:
        return reason, None
    if use_gate_in_kernel:
        gate = "softplus" if lower_bound is None else "lower_bound"
    else:
        # FLA's contract of safe_gate with a given decay: the caller has bounded it, to -5 unless told otherwise.
        gate = "given"
        A_log = dt_bias = None
        if lower_bound is None and safe_gate:
            lower_bound = -5.0
    longest = None
    if cu_seqlens_cpu is not None:
        longest = int((cu_seqlens_cpu[1:] - cu_seqlens_cpu[:-1]).max()) if len(cu_seqlens_cpu) > 1 else 0
    flat = {name: None if t is None else t.float().contiguous() for name, t in (("A_log", A_log), ("b", dt_bias))}
    return None, dict(
        q=_rows(q), k=_rows(k), v=_rows(v), g=_rows(g), beta=beta, gate=gate, lower_bound=lower_bound,
        a_log=None if A_log is None else flat["A_log"].view(-1),
        dt_bias=None if dt_bias is None else flat["b"].view(-1),
        scale=scale, l2norm=use_qk_l2norm_in_kernel, beta_logits=use_beta_sigmoid_in_kernel,
        initial_state=None if initial_state is None else initial_state.contiguous(),
        output_final_state=output_final_state, state_v_first=state_v_first, cu_seqlens=cu_seqlens,
        max_tokens=longest, allow_split=True)


class _Calls:
    """The two methods FLA looks up; mixed with its BaseBackend by `install`."""

    backend_type = "brim"
    package_name = None
    env_var = "FLA_BRIM"
    default_enable = True

    def chunk_kda_verifier(self, *args, **kwargs):
        try:
            reason, call = _arguments(*args, **kwargs)
            if reason is None:
                reason = _try_plan(call)
        except (TypeError, ValueError, AttributeError, BrimError) as error:
            reason = str(error)
        if reason is not None:
            _note(None, None, reason)
        return reason is None, reason

    def chunk_kda(self, *args, **kwargs):
        _, call = _arguments(*args, **kwargs)
        out, final_state = kda_prefill(**call)
        ran = _array.last_call()
        _note("brim", ran["route"], None, ran["allow_split"])
        return out, final_state


def _try_plan(call):
    """Ask the library itself, without running: its sentence, or None."""
    try:
        kda_prefill(**call, plan_only=True)
    except BrimError as error:
        return error.text
    return None


def _registry():
    """(register, unregister) of the installed FLA."""
    try:
        backends = importlib.import_module("fla.backends")
        chunk = importlib.import_module("fla.ops.kda.chunk")
    except ModuleNotFoundError:
        registry = importlib.import_module("fla.ops.kda.backends").kda_registry
        base = importlib.import_module("fla.ops.backends").BaseBackend
        return base, registry.register, lambda: registry._backends.pop("brim", None)
    function = importlib.import_module("inspect").unwrap(chunk.chunk_kda)
    registry = backends._function_registries.get(function)

    def register(backend):
        if registry is None:
            raise RuntimeError("FLA's dispatch is disabled (FLA_DISABLE_BACKEND_DISPATCH=1)")
        backends.register(chunk.chunk_kda)(type(backend))

    return backends.BaseBackend, register, lambda: registry and registry._backends.pop("brim", None)


def install(priority=1):
    """Register brim in FLA's registry of chunk_kda. Lower priorities are asked first: FLA's own alternatives have 3
    and more. ``FLA_BRIM=0`` in the environment turns it off again. Returns the backend's class."""
    base, register, _ = _registry()
    backend = type("BrimBackend", (_Calls, base), {"priority": priority, "__doc__": __doc__})
    register(backend())
    return backend


def uninstall():
    """Undo `install`."""
    _registry()[2]()


__all__ = ["install", "last", "uninstall"]
