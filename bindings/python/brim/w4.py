# SPDX-License-Identifier: Apache-2.0
"""Products with 4-bit weights."""
import ctypes
import json

from ._array import Array, CPU, DTYPES, Stream, empty, record, refuse, same_place, threads, workspace
from ._native import Status, Struct, library

LEVELS = {"auto": 0, "matvec": 1, "tiled": 2, "hopper": 3}
POLICIES = {"device": 0, "course": 1}


def _weights(codes, scales, biases):
    """The matrix's arrays and (n_out, n_in, group)."""
    arrays = {"codes": Array(codes, "codes").expect("codes", (None, None), ("i32",)).contiguous("codes")}
    n_out, n_in = arrays["codes"].shape[0], arrays["codes"].shape[1] * 8
    arrays["scales"] = Array(scales, "scales").expect("scales", (n_out, None), ("bf16", "f16", "f32"))
    n_group = arrays["scales"].shape[1]
    if n_group == 0 or n_in % n_group:
        refuse(Status.SHAPE, f"{n_group} scales a row do not divide {n_in} weights")
    arrays["biases"] = Array(biases, "biases").expect("biases", (n_out, n_group), (arrays["scales"].dtype,))
    arrays["scales"].contiguous("scales"), arrays["biases"].contiguous("biases")
    return arrays, (n_out, n_in, n_in // n_group)


def _matrix(args, arrays, shape):
    args["n_out"], args["n_in"], args["group"] = shape
    for name in ("codes", "scales", "biases"):
        args[name] = arrays[name].ptr
    args["param_dtype"] = DTYPES[arrays["scales"].dtype]


def w4_pack(codes, scales, biases):
    """The same weights in the order of the Hopper kernels: once, when they are loaded.

    codes: int32 or uint32 ``[n_out, n_in / 8]``, value j of a word in bits 4j..4j+3; scales, biases: bf16, f16 or f32
    ``[n_out, n_in / group]``, group 32, 64 or 128, all on one CUDA device. Returns a uint8 tensor for the argument
    ``packed`` of `w4_matmul`. Raises BrimError: SHAPE, DTYPE, STRIDE, RANGE (group), UNSUPPORTED (CPU)."""
    lib = library()
    arrays, shape = _weights(codes, scales, biases)
    first = same_place(arrays)
    args = lib.args("w4")
    args["device"] = first.device
    _matrix(args, arrays, shape)
    n_bytes = ctypes.c_size_t()
    with Stream(first) as stream:
        args["stream"] = stream.handle
        lib.call("brim_w4_pack_bytes", args.buffer, ctypes.byref(n_bytes))
        packed = empty(first, (n_bytes.value,), "u8")
        lib.call("brim_w4_pack", args.buffer, ctypes.c_void_p(packed.data_ptr()))
    return packed


def _prepare(x, codes, scales, biases, packed, out, level, split, policy, planes, n_thread):
    lib = library()
    arrays, shape = _weights(codes, scales, biases)
    n_out, n_in, group = shape
    a = arrays["x"] = Array(x, "x")
    if not a.shape or a.shape[-1] != n_in:
        refuse(Status.SHAPE, f"x has shape {list(a.shape)}; its last dimension must be {n_in}")
    if packed is not None:
        arrays["packed"] = Array(packed, "packed").expect("packed", (None,), ("u8",)).inner("packed")
    for name, value, known in (("level", level, LEVELS), ("policy", policy, POLICIES)):
        if value not in known:
            refuse(Status.ARGUMENT, f"{name} {value!r} is unknown; {', '.join(known)} are taken")
    if planes not in ("bf16", "f32"):
        refuse(Status.DTYPE, f"planes {planes!r} is neither 'bf16' nor 'f32'")
    first = same_place(arrays)
    wide = ("bf16", "f32") if first.device == CPU else ("bf16",)
    a.expect("x", a.shape, wide)
    if out is None:
        out = empty(first, a.shape[:-1] + (n_out,), a.dtype)
    y = arrays["out"] = Array(out, "out").expect("out", a.shape[:-1] + (n_out,), wide).writable("out")
    same_place(arrays)
    args = lib.args("w4")
    args["device"] = first.device
    _matrix(args, arrays, shape)
    n_row = 1
    for n in a.shape[:-1]:
        n_row *= n
    args["n_row"] = n_row
    for name, array, width in (("x", a, n_in), ("y", y, n_out)):
        stride = width
        if len(array.shape) == 2 and n_row > 1:  # rows at any distance
            array.inner(name)
            stride = array.strides[0]
        else:
            array.contiguous(name)
        args[name], args[f"{name}_stride"], args[f"{name}_dtype"] = array.ptr, stride, DTYPES[array.dtype]
    if packed is not None:
        args["packed"] = arrays["packed"].ptr
    args["level"], args["policy"], args["plane_dtype"] = LEVELS[level], POLICIES[policy], DTYPES[planes]
    pinned = None
    if isinstance(split, int) and not isinstance(split, bool):
        pinned = Struct(lib.layout("brim_split_plan"))
        pinned["split"] = split
        pinned["partition_inputs"] = n_in // split if split > 0 else 0
        args["split"], args["pinned"] = 2, ctypes.addressof(pinned.buffer)
    elif split == "off":
        args["split"] = 1
    elif split != "auto":
        refuse(Status.ARGUMENT, f"split {split!r} is none of 'auto', 'off' and a number of partitions")
    if first.device == CPU:
        args["n_thread"] = threads(first, n_thread)
    return lib, first, args, out, (arrays, pinned)


def w4_matmul(x, codes, scales, biases, *, packed=None, out=None, level="auto", split="auto", policy="device",
              planes="bf16", n_thread=0):
    """``x @ W.T`` with ``W[o, i] = scales[o, i // group] * code + biases[o, i // group]``.

    Arguments (bf16: ``torch.bfloat16``, or numpy ``uint16``):
        x: bf16 ``[..., n_in]`` (on the CPU also float32). Two-dimensional: rows at any stride that is a multiple of 8
            elements on CUDA; otherwise contiguous.
        codes: int32 or uint32 ``[n_out, n_in / 8]``, value j of a word in bits 4j..4j+3 (MLX's order).
        scales, biases: bf16, f16 or f32 ``[n_out, n_in / group]`` of any sign; group 32, 64 or 128 follows.
        packed: of `w4_pack`; the Hopper kernels run with it.
        out: ``[..., n_out]`` to write into; default: like x.
        level: "auto"; "matvec", "tiled", "hopper" pick the kernels (see include/brim/kernels.h).
        split: of the tiled kernel: "auto" by `policy` ("device", "course"), "off", or a number of partitions.
        planes: type of a split's partial sums, "bf16" or "f32".
        n_thread (CPU): default torch's number, or all processors.

    Returns out. Raises BrimError: SHAPE, DTYPE, STRIDE, ALIGNMENT, RANGE (group, split), ARGUMENT, UNSUPPORTED,
    DEVICE, ARCH; out is then untouched."""
    lib, first, args, out, keep = _prepare(x, codes, scales, biases, packed, out, level, split, policy, planes, n_thread)
    plan = lib.plan("w4")
    with Stream(first) as stream:
        args["stream"] = stream.handle
        lib.call("brim_w4_plan_make", args.buffer, plan.buffer)
        args["workspace"], args["workspace_bytes"] = workspace("w4", stream, plan["workspace_bytes"])
        lib.call("brim_w4_matmul", args.buffer)
    del keep
    record(operator="w4_matmul", device="cpu" if first.device == CPU else f"cuda:{first.index}", kernel=plan["kernel"],
           split=plan["split.split"])
    return out


def w4_plan(x, codes, scales, biases, *, packed=None, level="auto", split="auto", policy="device", planes="bf16"):
    """How `w4_matmul` would run with these arguments, as a dict; nothing is computed."""
    lib, first, args, _, keep = _prepare(x, codes, scales, biases, packed, None, level, split, policy, planes, 0)
    plan = lib.plan("w4")
    with Stream(first):
        lib.call("brim_w4_plan_make", args.buffer, plan.buffer)
    del keep
    return json.loads(lib.plan_text("w4", plan))


__all__ = ["w4_matmul", "w4_pack", "w4_plan"]
