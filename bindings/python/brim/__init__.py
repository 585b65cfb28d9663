# SPDX-License-Identifier: Apache-2.0
"""brim's kernels on torch tensors and numpy arrays, without a build step.

The package is ctypes over ``libbrim_kernels.so``, the kernel-only shared library. It is searched in

1. the file named by the environment variable ``BRIM_LIBRARY``,
2. the folder of this package,
3. ``build/release`` and ``build/kernels-only`` of the source tree around it,
4. the system's library path.

Importing needs neither torch nor numpy nor the library; the first call does. On torch tensors the
work is enqueued on the current stream of their device and may be captured in a CUDA graph. numpy
arrays are computed on the CPU; bf16 is then a ``uint16`` array holding the upper halves of floats.

Every refusal of the library is raised as `BrimError`, with its status and its sentence.
"""
from ._native import BrimError, Status, library_path
from .kda import kda_plan, kda_prefill
from .w4 import w4_matmul, w4_pack, w4_plan
from ._array import last_call
from . import fla

__version__ = "0.1.0"
__all__ = ["BrimError", "Status", "fla", "kda_plan", "kda_prefill", "last_call", "library_path", "w4_matmul",
           "w4_pack", "w4_plan"]
