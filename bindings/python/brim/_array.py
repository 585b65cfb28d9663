# SPDX-License-Identifier: Apache-2.0
"""Arrays as the library takes them: pointer, shape, strides in elements, type, device.

torch tensors and numpy arrays are recognised by their module, so neither is imported here unless the
caller already has.
"""
import ctypes
import os
import sys
import threading

from ._native import BrimError, Status, library

CPU, CUDA = 1, 2  # brim_kernel_device
DTYPES = {"f32": 1, "bf16": 2, "f16": 3}  # brim_kernel_dtype

_state = threading.local()


def last_call():
    """What the last call of this thread ran: a dict with ``operator``, ``device`` and the members of its plan
    (``route`` for KDA, ``kernel`` and ``split`` for W4). None before the first call."""
    return getattr(_state, "last", None)


def record(**fields):
    _state.last = fields


def is_torch(x):
    return type(x).__module__.split(".")[0] == "torch" and hasattr(x, "data_ptr")


def is_numpy(x):
    return type(x).__module__.split(".")[0] == "numpy" and hasattr(x, "__array_interface__")


def refuse(status, text):
    raise BrimError(status, text)


_TORCH = {"float32": "f32", "bfloat16": "bf16", "float16": "f16", "int32": "i32", "uint32": "i32", "int64": "i64",
          "uint8": "u8", "bool": "u8", "int8": "i8"}
_NUMPY = {"float32": "f32", "uint16": "bf16", "float16": "f16", "int32": "i32", "uint32": "i32", "int64": "i64",
          "uint8": "u8", "bool": "u8", "int8": "i8"}


class Array:
    """A view of the caller's array; keeps it alive."""

    __slots__ = ("owner", "ptr", "shape", "strides", "dtype", "device", "index", "torch", "fixed")

    def __init__(self, x, name):
        self.owner = x
        if is_torch(x):
            self.torch, self.fixed = True, False
            self.ptr = x.data_ptr()
            self.shape = tuple(x.shape)
            self.strides = tuple(x.stride())
            name_of_type = str(x.dtype).split(".")[-1]
            self.dtype = _TORCH.get(name_of_type)
            kind = x.device.type
            if kind not in ("cpu", "cuda"):
                refuse(Status.DEVICE, f"{name} lies on {x.device}; cpu and cuda are taken")
            self.device = CUDA if kind == "cuda" else CPU
            self.index = x.device.index if kind == "cuda" else None
            if x.requires_grad and sys.modules["torch"].is_grad_enabled():
                refuse(Status.UNSUPPORTED, f"{name} asks for a gradient; brim computes forward only")
        elif is_numpy(x):
            self.torch, self.fixed = False, not x.flags.writeable
            self.ptr = x.__array_interface__["data"][0]
            self.shape = x.shape
            if any(s % x.itemsize for s in x.strides):
                refuse(Status.STRIDE, f"{name} has strides that are no multiple of its element")
            self.strides = tuple(s // x.itemsize for s in x.strides)
            name_of_type = x.dtype.name
            self.dtype = _NUMPY.get(name_of_type) if x.dtype.isnative else None
            self.device, self.index = CPU, None
        else:
            raise TypeError(f"{name} must be a torch tensor or a numpy array, not {type(x).__name__}")
        if self.dtype is None:
            refuse(Status.DTYPE, f"{name} is of type {name_of_type}, which brim does not take")

    def expect(self, name, shape, dtypes):
        """Refuse another shape or type. None in `shape`: any length."""
        if len(shape) != len(self.shape) or any(s is not None and s != n for s, n in zip(shape, self.shape)):
            wanted = "[" + ", ".join("*" if s is None else str(s) for s in shape) + "]"
            refuse(Status.SHAPE, f"{name} has shape {list(self.shape)}; {wanted} is expected")
        if self.dtype not in dtypes:
            refuse(Status.DTYPE, f"{name} is {self.dtype}; {' or '.join(dtypes)} is expected")
        return self

    def inner(self, name, n=1):
        """Refuse unless the innermost n dimensions are contiguous."""
        step = 1
        if 0 in self.shape:
            return self
        for length, stride in zip(reversed(self.shape[-n:]), reversed(self.strides[-n:])):
            if length > 1 and stride != step:
                refuse(Status.STRIDE, f"the innermost dimensions of {name} must be contiguous")
            step *= length
        return self

    def writable(self, name):
        if self.fixed:
            refuse(Status.ARGUMENT, f"{name} is read-only")
        return self

    def contiguous(self, name):
        return self.inner(name, len(self.shape))


def same_place(arrays):
    """All on one device; returns the first."""
    first_name, first = next(iter(arrays.items()))
    for name, a in arrays.items():
        if (a.device, a.index, a.torch) != (first.device, first.index, first.torch):
            refuse(Status.DEVICE, f"{name} and {first_name} lie on different devices or come from different libraries")
    return first


def empty(like, shape, dtype):
    """A new array beside `like`."""
    if like.torch:
        torch = sys.modules["torch"]
        types = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "u8": torch.uint8}
        return torch.empty(shape, dtype=types[dtype], device=like.owner.device)
    numpy = sys.modules["numpy"]
    types = {"f32": numpy.float32, "bf16": numpy.uint16, "f16": numpy.float16, "u8": numpy.uint8}
    return numpy.empty(shape, dtype=types[dtype])


def threads(like, n_thread):
    """CPU threads of a call: the caller's number, torch's, or all this process may use."""
    if n_thread:
        return n_thread
    if like.torch:
        return sys.modules["torch"].get_num_threads()
    return len(os.sched_getaffinity(0))


class Stream:
    """The current stream of an array's device; a context in which that device is current."""

    def __init__(self, like):
        self.like = like
        self.handle = 0
        self.guard = None
        self.capturing = False

    def __enter__(self):
        if self.like.device == CUDA:
            torch = sys.modules["torch"]
            if torch.cuda.current_device() != self.like.index:
                self.guard = torch.cuda.device(self.like.index)
                self.guard.__enter__()
            self.handle = torch.cuda.current_stream(self.like.index).cuda_stream
            self.capturing = torch.cuda.is_current_stream_capturing()
        return self

    def __exit__(self, *exc):
        if self.guard is not None:
            self.guard.__exit__(*exc)


_workspaces = {}  # (operator, device index, stream) -> [tensor, pointer, bytes, a graph may hold it]
_in_capture = {}  # the same, of blocks made while a graph was being captured
_retired = []     # outgrown blocks that a graph may still use


def _grow(table, key, like, n_bytes):
    held = table.get(key)
    if held is None or held[2] < n_bytes:
        torch = sys.modules["torch"]
        size = max(n_bytes, 2 * held[2] if held else 1 << 20)
        block = torch.empty(size + 256, dtype=torch.uint8, device=like.owner.device)
        if held and held[3]:
            _retired.append(held[0])
        held = table[key] = [block, (block.data_ptr() + 255) // 256 * 256, size, False]
        return held, True
    return held, False


def workspace(operator, stream, n_bytes):
    """(pointer, bytes) of the one workspace this binding keeps for an operator on a device and stream: at least
    n_bytes and prepared. A block that a capture has seen is never given back. Where a capture finds none, the
    preparation becomes part of the graph, at every call: call once on the stream before capturing to keep it out."""
    like = stream.like
    if n_bytes == 0 or like.device != CUDA:
        return 0, 0
    key = (operator, like.index, stream.handle)
    held = _workspaces.get(key)
    if stream.capturing and (held is None or held[2] < n_bytes):
        held, _ = _grow(_in_capture, key, like, n_bytes)
        prepare = True
    else:
        held, prepare = _grow(_workspaces, key, like, n_bytes)
    if prepare:
        library().call(f"brim_{operator}_workspace_init", CUDA, _void(held[1]), _size(held[2]), _void(stream.handle))
    held[3] = held[3] or stream.capturing
    return held[1], held[2]


def _void(pointer):
    return ctypes.c_void_p(pointer or None)


def _size(n):
    return ctypes.c_size_t(n)
