# SPDX-License-Identifier: Apache-2.0
"""The shared library: finding it, its structs, its errors.

Structs are buffers whose members are written by name at the places the library itself reports
(brim_struct_layout), so that a library with more members than this package knows stays usable.
"""
import ctypes
import enum
import math
import operator
import os
import pathlib
import struct
import threading


class Status(enum.IntEnum):
    """brim_status of include/brim/status.h."""
    OK = 0
    ARGUMENT = -1
    NO_MEMORY = -2
    IO = -3
    FORMAT = -4
    UNSUPPORTED = -5
    MISSING = -6
    CONTEXT = -7
    SHAPE = -8
    DTYPE = -9
    STRIDE = -10
    ALIGNMENT = -11
    WORKSPACE = -12
    OFFSETS = -13
    RANGE = -14
    NOT_FINITE = -15
    DEVICE = -16
    DRIVER = -17
    ARCH = -18
    CANCELLED = -19


class BrimError(RuntimeError):
    """A refusal. ``status`` is a `Status`, ``text`` the library's sentence naming the argument."""

    def __init__(self, status, text):
        super().__init__(f"{text} (BRIM_E_{status.name})")
        self.status = status
        self.text = text


def whole(name, value, bits=64):
    """`value` as an int that fits a signed integer of so many bits; refusals name the argument."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}") from None
    if not -1 << (bits - 1) <= number < 1 << (bits - 1):
        shown = number if abs(number) < 10 ** 40 else f"of {number.bit_length()} bits"
        raise BrimError(Status.RANGE, f"{name} {shown} does not fit into {bits} bits")
    return number


def real(name, value):
    """`value` as a float that is finite as float32, or is not finite to begin with."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}") from None
    except OverflowError:
        number = None
    try:
        if number is not None and math.isfinite(number):
            struct.pack("<f", number)
    except OverflowError:
        number = None
    if number is None:
        raise BrimError(Status.RANGE, f"{name} is beyond the range of float32")
    return number


class _Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("text", ctypes.c_char * 508)]


_FORMATS = {("i", 4): "<i", ("i", 8): "<q", ("p", 8): "<Q", ("f", 4): "<f"}


class Layout:
    """Where the members of one C struct lie."""

    def __init__(self, library, name):
        self.name = name
        length = library.brim_struct_layout(name.encode(), None, 0)
        if length == 0:
            raise OSError(f"{library_path()} knows no {name}")
        text = ctypes.create_string_buffer(length + 1)
        library.brim_struct_layout(name.encode(), text, length + 1)
        lines = text.value.decode().splitlines()
        self.size = int(lines[0])
        self.members = {}
        for line in lines[1:]:
            member, offset, size, kind = line.split()
            self.members[member] = (int(offset), int(size), kind, _FORMATS.get((kind, int(size))))


class Struct:
    """One struct in memory of its own."""

    def __init__(self, layout, template=None):
        self.layout = layout
        self.buffer = ctypes.create_string_buffer(template if template is not None else layout.size, layout.size)

    def __setitem__(self, name, value):
        offset, size, kind, fmt = self.layout.members[name]
        if kind == "i":
            value = whole(name, value, 8 * size)
        elif kind == "f":
            value = real(name, value)
        struct.pack_into(fmt, self.buffer, offset, value)

    def __getitem__(self, name):
        offset, size, kind, fmt = self.layout.members[name]
        if kind == "s":
            return self.buffer.raw[offset:offset + size].split(b"\0", 1)[0].decode()
        return struct.unpack_from(fmt, self.buffer, offset)[0]

    def __contains__(self, name):
        return name in self.layout.members


class Library:
    """The loaded library with the templates of its argument structs."""

    def __init__(self, path):
        self.path = path
        self.c = ctypes.CDLL(path)
        try:
            layout = self.c.brim_struct_layout
        except AttributeError:
            raise OSError(f"{path} is not a brim kernel library of this version") from None
        layout.restype = ctypes.c_size_t
        layout.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t]
        self.layouts = {}
        self.templates = {}
        for kind in ("kda", "w4"):
            print_plan = getattr(self.c, f"brim_{kind}_plan_print")
            print_plan.restype = ctypes.c_size_t
            print_plan.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]

    def layout(self, name):
        if name not in self.layouts:
            self.layouts[name] = Layout(self.c, name)
        return self.layouts[name]

    def args(self, kind):
        """brim_<kind>_args after its _args_init."""
        layout = self.layout(f"brim_{kind}_args")
        if kind not in self.templates:
            fresh = Struct(layout)
            getattr(self.c, f"brim_{kind}_args_init")(fresh.buffer)
            self.templates[kind] = fresh.buffer.raw
        return Struct(layout, self.templates[kind])

    def plan(self, kind):
        return Struct(self.layout(f"brim_{kind}_plan"))

    def plan_text(self, kind, plan):
        print_plan = getattr(self.c, f"brim_{kind}_plan_print")
        capacity = print_plan(plan.buffer, None, 0) + 1
        text = ctypes.create_string_buffer(capacity)
        print_plan(plan.buffer, text, capacity)
        return text.value.decode()

    def call(self, name, *args):
        """Call a function that ends with (brim_error *); raise what it refuses."""
        error = _Error()
        status = getattr(self.c, name)(*args, ctypes.byref(error))
        if status != 0:
            text = error.text.decode(errors="replace") or name
            raise BrimError(Status(status) if status in Status._value2member_map_ else Status.ARGUMENT, text)


def _candidates():
    named = os.environ.get("BRIM_LIBRARY")
    if named:
        yield named
        return
    here = pathlib.Path(__file__).resolve().parent
    yield here / "libbrim_kernels.so"
    for build in ("release", "kernels-only"):
        yield here.parents[2] / "build" / build / "libbrim_kernels.so"


_lock = threading.Lock()
_library = None


def library():
    """The library, loaded once."""
    global _library
    with _lock:
        if _library is None:
            for path in _candidates():
                if os.path.exists(path):
                    _library = Library(str(path))
                    return _library
            named = os.environ.get("BRIM_LIBRARY")
            if named:
                raise OSError(f"BRIM_LIBRARY names {named}, which does not exist")
            try:
                _library = Library("libbrim_kernels.so.0")
            except OSError:
                raise OSError("libbrim_kernels.so was not found: build brim, or name the file in BRIM_LIBRARY"
                              ) from None
        return _library


def library_path():
    """The path of the library in use."""
    return library().path
