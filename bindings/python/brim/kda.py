# SPDX-License-Identifier: Apache-2.0
"""Kimi Delta Attention, prefill."""
import ctypes
import json

from ._array import Array, DTYPES, CPU, Stream, empty, record, refuse, same_place, threads, workspace
from ._native import Status, library, real, whole

GATES = {"lower_bound": 1, "softplus": 2, "given": 3}
_L2NORM, _BETA_LOGIT, _STATE_K_FIRST, _CHECKED = 1, 2, 4, 8


def _heads(args, name, a):
    """Pointer and strides of a [B, T, heads, 128] operand."""
    args[name] = a.ptr
    strides = a.strides[:3]
    if 0 in a.shape:  # libraries differ on the strides of nothing
        strides = (max(a.shape[1], 1) * a.shape[2] * 128, a.shape[2] * 128, 128)
    args[f"{name}_stride.batch"], args[f"{name}_stride.token"], args[f"{name}_stride.head"] = strides


def _four(x, name, dims):
    """A packed operand may come without its batch dimension of one."""
    a = Array(x, name)
    if len(a.shape) == dims - 1:
        a.shape, a.strides = (1,) + a.shape, (0,) + a.strides
    return a


def _state(arrays, x, name, n, hv, k_first):
    a = arrays[name] = Array(x, name).expect(name, (n, hv, 128, 128), ("f32", "bf16")).inner(name, 3)
    return a


def kda_prefill(q, k, v, g, beta, *, gate, lower_bound=None, a_log=None, dt_bias=None, scale=None, l2norm=False,
                beta_logits=False, initial_state=None, final_state=None, output_final_state=False,
                state_v_first=True, state_dtype=None, state_index=None, fresh=None, checkpoints=False,
                cu_seqlens=None, max_tokens=None, out=None, route=None, allow_split=False, split_length=0, split_first=0,
                split_window=0,                split_exact=False, checked=False, n_thread=0, plan_only=False):
    """Per sequence and value head, for each token in order::

        S <- Diag(exp(g_t)) S;  u = beta_t (v_t - S^T k_t);  S <- S + k_t u^T;  o_t = scale S^T q_t

    Arguments (bf16: ``torch.bfloat16``, or numpy ``uint16`` with the upper halves of floats):
        q, k: bf16 ``[B, T, H, 128]``. v: bf16 ``[B, T, HV, 128]``, HV a multiple of H. Any strides between tokens
            and heads that are multiples of 8 elements; 16-byte aligned. With cu_seqlens the batch is one and may be
            left out.
        g: like v; bf16, or float32 with gate "given".
        beta: bf16 or float32 ``[B, T, HV]``, any strides.
        gate: "lower_bound": log decay = lower_bound * sigmoid(exp(a_log) (g + dt_bias)), lower_bound in [-5, 0);
            "softplus": -exp(a_log) * softplus(g + dt_bias); "given": g is the log decay, and lower_bound, where
            given, the caller's promise that none lies below it.
        a_log: float32 ``[HV]``; dt_bias: float32 ``[HV, 128]`` or ``[HV * 128]``; None for 0.
        scale: default 128 ** -0.5.
        l2norm: divide q and k by sqrt(sum of squares + 1e-6). beta_logits: beta is sigmoid(beta).
        initial_state: float32 or bf16 ``[N, HV, 128, 128]`` ([V, K], or [K, V] with state_v_first=False), or with
            state_index (int32 ``[N]``) a pool of slots; -1 reads and writes none. fresh (uint8 or bool ``[N]``):
            nonzero starts from zero.
        final_state: an array to write (it may be initial_state), or None; output_final_state allocates one, of
            state_dtype "f32" (default) or "bf16", or the initial state's. With state_index the pool itself.
        checkpoints: True to allocate, or an array: states after every 64 completed tokens of each sequence,
            ``[N, T // 64, HV, 128, 128]``, packed ``[T // 64, HV, 128, 128]`` (the one after token 64 (j + 1) of
            sequence n at cu_seqlens[n] // 64 + j).
        cu_seqlens: int32 or int64 ``[N + 1]``, offsets of packed sequences in T rows, on the device of q; never
            copied to the host. max_tokens: no sequence is longer (default T).
        out: bf16 ``[B, T, HV, 128]`` to write into.
        route: a route's name; None lets brim choose. allow_split admits the route that cuts sequences, whose bits
            differ from the others'; split_length, split_first and split_window pin its plan, in chunks of 32 tokens. split_exact:
            nothing is skipped, every segment is joined, where that is expected to be faster than the routes that do not
            cut, or by route "split" or "split-join". checked (CPU): look at the values of decays and offsets. n_thread (CPU): default torch's
            number, or all processors. plan_only: check and choose, run nothing, return the plan as a dict.

    Returns ``(out, final_state)``, with ``checkpoints`` as a third; final_state is None unless asked for.

    Raises BrimError: SHAPE, DTYPE, STRIDE, ALIGNMENT, RANGE (lower_bound, scale), ARGUMENT (gate, contradictions),
    UNSUPPORTED (what has no kernel on this device), OFFSETS, DEVICE, ARCH; outputs are then untouched.
    """
    lib = library()
    packed = cu_seqlens is not None
    arrays = {"q": _four(q, "q", 4), "k": _four(k, "k", 4), "v": _four(v, "v", 4), "g": _four(g, "g", 4),
              "beta": _four(beta, "beta", 3)}
    batch, n_tok, n_head = arrays["q"].shape[:3] if len(arrays["q"].shape) == 4 else (None,) * 3
    arrays["q"].expect("q", (None, None, None, 128), ("bf16",))
    arrays["k"].expect("k", (batch, n_tok, n_head, 128), ("bf16",))
    arrays["v"].expect("v", (batch, n_tok, None, 128), ("bf16",))
    hv = arrays["v"].shape[2]
    arrays["g"].expect("g", (batch, n_tok, hv, 128), ("bf16", "f32"))
    arrays["beta"].expect("beta", (batch, n_tok, hv), ("bf16", "f32"))
    if packed and batch != 1:
        refuse(Status.SHAPE, f"packed sequences have a batch of one, not {batch}")
    if gate not in GATES:
        refuse(Status.ARGUMENT, f"gate {gate!r} is unknown; {', '.join(GATES)} are taken")
    n_seq = batch
    if packed:
        offsets = arrays["cu_seqlens"] = Array(cu_seqlens, "cu_seqlens").expect("cu_seqlens", (None,), ("i32", "i64"))
        offsets.inner("cu_seqlens")
        n_seq = offsets.shape[0] - 1
    for name in ("q", "k", "v", "g"):
        arrays[name].inner(name)
    for name, x, shape in (("a_log", a_log, (hv,)), ("dt_bias", dt_bias, None)):
        if x is not None:
            a = arrays[name] = Array(x, name).contiguous(name)
            if name == "dt_bias" and a.shape not in ((hv, 128), (hv * 128,)):
                refuse(Status.SHAPE, f"dt_bias has shape {list(a.shape)}; [{hv}, 128] is expected")
            a.expect(name, shape or a.shape, ("f32",))
    if state_index is not None:
        arrays["state_index"] = Array(state_index, "state_index").expect("state_index", (n_seq,), ("i32",)).inner(
            "state_index")
    if fresh is not None:
        arrays["fresh"] = Array(fresh, "fresh").expect("fresh", (n_seq,), ("u8",)).inner("fresh")
    slots = None if state_index is not None else n_seq
    if initial_state is not None:
        _state(arrays, initial_state, "initial_state", slots, hv, not state_v_first)
    first = same_place(arrays)
    if state_index is not None and final_state is None and initial_state is not None:
        final_state = initial_state
    if final_state is None and output_final_state:
        kind = arrays["initial_state"].dtype if initial_state is not None else state_dtype or "f32"
        final_state = empty(first, (n_seq, hv, 128, 128), kind)
    if final_state is not None:
        _state(arrays, final_state, "final_state", slots, hv, not state_v_first).writable("final_state")
    states = [arrays[name] for name in ("initial_state", "final_state") if name in arrays]
    kind = states[0].dtype if states else state_dtype or "f32"
    for a in states:
        if a.dtype != kind or a.strides[0] != states[0].strides[0] or a.shape[0] != states[0].shape[0]:
            refuse(Status.DTYPE, "initial and final state must have one type, length and stride")
    if checkpoints is True:
        shape = (n_tok // 64, hv, 128, 128)
        checkpoints = empty(first, shape if packed else (n_seq,) + shape, kind)
    if checkpoints is not False and checkpoints is not None:
        shape = (n_tok // 64, hv, 128, 128)
        arrays["checkpoints"] = Array(checkpoints, "checkpoints").expect(
            "checkpoints", shape if packed else (n_seq,) + shape, (kind,)).contiguous("checkpoints").writable("checkpoints")
    if out is None:
        out = empty(first, arrays["v"].owner.shape, "bf16")
    arrays["out"] = _four(out, "out", 4).expect("out", (batch, n_tok, hv, 128), ("bf16",)).inner("out").writable("out")
    same_place(arrays)

    args = lib.args("kda")
    args["device"] = first.device
    args["n_seq"], args["n_tok"], args["n_head"], args["n_value_head"] = n_seq, n_tok, n_head, hv
    for name in ("q", "k", "v", "g", "out"):
        _heads(args, name, arrays[name])
    args["beta"] = arrays["beta"].ptr
    for part, stride in zip(("batch", "token", "head"), arrays["beta"].strides):
        args[f"beta_stride.{part}"] = stride
    args["g_dtype"], args["beta_dtype"] = DTYPES[arrays["g"].dtype], DTYPES[arrays["beta"].dtype]
    args["gate"] = GATES[gate]
    args["lower_bound"] = 0.0 if lower_bound is None else real("lower_bound", lower_bound)
    if scale is not None:
        args["scale"] = real("scale", scale)
    args["flags"] = (_L2NORM * bool(l2norm) | _BETA_LOGIT * bool(beta_logits) | _STATE_K_FIRST * (not state_v_first) |
                     _CHECKED * bool(checked))
    if packed:
        args["cu_seqlens"] = offsets.ptr
        args["offset_bytes"] = 4 if offsets.dtype == "i32" else 8
        args["max_tok"] = n_tok if max_tokens is None else whole("max_tokens", max_tokens)
    for name in ("a_log", "dt_bias", "initial_state", "final_state", "state_index", "fresh", "checkpoints"):
        if name in arrays:
            args[name] = arrays[name].ptr
    args["state_dtype"] = DTYPES[kind]
    if states:
        # a single state's stride may be anything; the library asks for at least one state
        args["state_stride"] = states[0].strides[0] if states[0].shape[0] > 1 else hv * 16384
    if state_index is not None:
        args["n_slot"] = states[0].shape[0] if states else 0
    name_of_route = ctypes.create_string_buffer(route.encode()) if route else None
    if route:
        args["route"] = ctypes.addressof(name_of_route)
    allow_split = bool(allow_split) and "allow_split" in args  # a library from before that route has no such member
    if allow_split:
        args["allow_split"] = 1
    if "split_length" in args:
        args["split_length"], args["split_window"] = split_length, split_window
    if split_first or "split_first" in args:
        args["split_first"] = split_first
    if split_exact or "split_exact" in args:
        args["split_exact"] = bool(split_exact)
    if first.device == CPU:
        args["n_thread"] = threads(first, n_thread)
    plan = lib.plan("kda")
    with Stream(first) as stream:
        args["stream"] = stream.handle
        lib.call("brim_kda_plan_make", args.buffer, plan.buffer)
        if plan_only:
            return json.loads(lib.plan_text("kda", plan))
        args["workspace"], args["workspace_bytes"] = workspace("kda", stream, plan["workspace_bytes"])
        lib.call("brim_kda_prefill", args.buffer)
    record(operator="kda_prefill", device="cpu" if first.device == CPU else f"cuda:{first.index}",
           route=plan["route"], reason=plan["reason"], allow_split=allow_split)
    if checkpoints is not False and checkpoints is not None:
        return out, final_state, checkpoints
    return out, final_state


def kda_plan(batch, tokens, heads, *, packed=False, max_tokens=None, processors=132, route=None, allow_split=False,
             split_length=0, split_first=0, split_window=0, split_exact=False):
    """How a call of this shape would run on a GPU of `processors` SMs, without a device or data: a dict with route,
    reason, grid, cluster, owners, helpers, instances, depth, workspace_bytes, expected_us (None outside of what was
    measured) and alternatives, each with route, expected_us and why_not; of route "split" also split_length,
    split_first, split_window, split_chunks, split_slots, serial and uncut_us, the most it is expected to take where gates do not forget; of
    "split-join" the first five. `batch` sequences; `tokens` in each, or with packed=True in all of them together,
    max_tokens in the longest; `heads` value heads; the others as in kda_prefill. Raises BrimError for a route that is
    unknown or impossible."""
    lib = library()
    plan, args = lib.plan("kda"), lib.args("kda")
    args["n_seq"], args["n_tok"] = whole("batch", batch), whole("tokens", tokens)
    args["n_value_head"], processors = whole("heads", heads), whole("processors", processors)
    if packed:
        args["offset_bytes"], args["max_tok"] = 8, whole("max_tokens", max_tokens or 0)
    name_of_route = ctypes.create_string_buffer(route.encode()) if route else None
    if route:
        args["route"] = ctypes.addressof(name_of_route)
    args["allow_split"] = bool(allow_split)
    args["split_length"] = whole("split_length", split_length, 32)
    if split_first or "split_first" in args:
        args["split_first"] = whole("split_first", split_first, 32)
    args["split_window"] = whole("split_window", split_window, 32)
    if split_exact or "split_exact" in args:
        args["split_exact"] = bool(split_exact)
    lib.call("brim_kda_plan_gpu", args.buffer, ctypes.c_int64(processors), plan.buffer)
    return json.loads(lib.plan_text("kda", plan))
