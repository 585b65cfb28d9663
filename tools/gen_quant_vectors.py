#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/golden/quant/affine4.bin: groups of numbers and what MLX's own quantizer makes of them.

Needs the Python packages mlx, mlx-cpu and numpy (their own virtual environment). Usage:
    gen_quant_vectors.py OUTPUT.bin

Format, little-endian: magic "BRIMQV01", u32 number of cases, then per case
    u32 dtype (0 f32, 1 f16, 2 bf16), u32 group, u32 n_row, u32 n_in,
    input [n_row][n_in] of dtype, words u32 [n_row][n_in/8], scales and biases [n_row][n_in/group].
"""
import struct
import sys

import mlx.core as mx
import numpy as np

DTYPES = [(0, mx.float32), (1, mx.float16), (2, mx.bfloat16)]


def raw(array):
    """Bytes of an mlx array; bfloat16 has no numpy type, so it travels as uint16."""
    if array.dtype in (mx.float16, mx.bfloat16):
        array = array.view(mx.uint16)
    return np.array(array).tobytes()


def rows_for(rng, dtype, n_in):
    """Edge cases, one per row."""
    tiny = {mx.float32: 1e-41, mx.float16: 6e-8 * 3, mx.bfloat16: 1e-39}[dtype]
    huge = {mx.float32: 1e30, mx.float16: 6e4, mx.bfloat16: 1e30}[dtype]
    x = rng.standard_normal
    one_hot = np.zeros(n_in)
    one_hot[3] = 1
    outlier = x(n_in) * 0.02
    outlier[n_in // 2] = 40
    low_outlier = x(n_in) * 0.02
    low_outlier[1] = -40
    return np.stack([
        x(n_in),                                # the usual
        x(n_in) * 0.02,
        np.zeros(n_in),
        np.full(n_in, -0.0),
        np.full(n_in, 0.37),                    # constants of both signs
        np.full(n_in, -0.37),
        -np.abs(x(n_in)),                       # negatives only
        np.abs(x(n_in)) + 1,                    # positives only, away from zero
        outlier,
        low_outlier,
        one_hot,
        x(n_in) * tiny,                         # subnormal
        x(n_in) * 1e-7,                         # around the smallest scale
        rng.uniform(-1, 1, n_in) * huge,        # near the top, high - low still finite
        rng.integers(-8, 8, n_in) * 0.5,        # exact steps: ties in the rounding
        (rng.integers(0, 31, n_in) - 15) / 2.0,
        np.where(np.arange(n_in) % 2 == 0, 1.0, -1.0),  # |low| == |high|
        np.linspace(-1, 1, n_in),
    ])


def main():
    rng = np.random.default_rng(20250807)
    cases = []
    for code, dtype in DTYPES:
        for group in (32, 64, 128):
            n_in = 2 * group
            data = mx.array(rows_for(rng, dtype, n_in).astype(np.float32)).astype(dtype)
            words, scales, biases = mx.quantize(data, group_size=group, bits=4, stream=mx.cpu)
            assert words.dtype == mx.uint32 and scales.dtype == dtype and biases.dtype == dtype
            head = struct.pack("<4I", code, group, data.shape[0], n_in)
            cases.append(head + raw(data) + raw(words) + raw(scales) + raw(biases))
    with open(sys.argv[1], "wb") as file:
        file.write(b"BRIMQV01" + struct.pack("<I", len(cases)) + b"".join(cases))
    print(f"{len(cases)} cases, mlx {mx.__version__}, numpy {np.__version__}")


if __name__ == "__main__":
    main()
