"""Quantization to bytes and back, one scale for all elements."""

from __future__ import annotations

import numpy as np

from onnxbridge.runtime.executor.kernels.compile.jit import entry
from onnxbridge.runtime.executor.kernels.numba.memory import floats, int8s, uint8s


@entry("ppiiiifu")
def quantize(source, target, count, chunk, negative, zero, scale, unit, thread):
    """round(x / scale) + zero, ties to even, saturated; NaN becomes the least, as a comparison with it is false."""
    x = floats(source)
    low = np.float32(-128.0 if negative != 0 else 0.0)
    high = np.float32(127.0 if negative != 0 else 255.0)
    u, v = uint8s(target), int8s(target)
    shift = np.float32(zero)
    for i in range(unit * chunk, min(count, (unit + 1) * chunk)):
        t = np.rint(x[i] / scale) + shift
        t = t if t > low else low
        t = t if t < high else high
        if negative != 0:
            v[i] = np.int8(np.int32(t))
        else:
            u[i] = np.uint8(np.int32(t))


@entry("ppiiiifu")
def dequantize(source, target, count, chunk, negative, zero, scale, unit, thread):
    """(x - zero) * scale."""
    y = floats(target)
    u, v = uint8s(source), int8s(source)
    if negative != 0:
        for i in range(unit * chunk, min(count, (unit + 1) * chunk)):
            y[i] = np.float32(np.int32(v[i]) - np.int32(zero)) * scale
    else:
        for i in range(unit * chunk, min(count, (unit + 1) * chunk)):
            y[i] = np.float32(np.int32(u[i]) - np.int32(zero)) * scale
