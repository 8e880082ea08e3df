"""Dynamic quantization, and how products use its scale and zero point at run time."""

from __future__ import annotations

import numpy as np

from onnxbridge.runtime.executor.kernels.compile.jit import entry
from onnxbridge.runtime.executor.kernels.numba.memory import floats, ints, uint8s

_F = np.float32


@entry("ppiiu")
def minimum_and_maximum(source, parts, count, chunk, unit, thread):
    """The minimum and maximum of a piece and 0, in sixteen lanes (32 numbers a piece)."""
    x = floats(source)
    low, high = floats(parts + 128 * unit), floats(parts + 128 * unit + 64)
    for k in range(16):
        low[k] = _F(0.0)
        high[k] = _F(0.0)
    begin = unit * chunk
    end = min(count, begin + chunk)
    whole = begin + (end - begin) // 16 * 16
    for i in range(begin, whole, 16):
        for k in range(16):
            t = x[i + k]
            low[k] = t if t < low[k] else low[k]
            high[k] = t if t > high[k] else high[k]
    for i in range(whole, end):
        low[0] = x[i] if x[i] < low[0] else low[0]
        high[0] = x[i] if x[i] > high[0] else high[0]


@entry("pipp")
def scale_and_zero_point(parts, pieces, scale, zero):
    """The scale and the zero point of bytes from 0 to 255 for the range of all pieces; 1 where it is nothing but 0."""
    low, high = _F(0.0), _F(0.0)
    for piece in range(pieces):
        a, b = floats(parts + 128 * piece), floats(parts + 128 * piece + 64)
        for k in range(16):
            low = a[k] if a[k] < low else low
            high = b[k] if b[k] > high else high
    s = (high - low) / _F(255.0)
    s = _F(1.0) if s == _F(0.0) else s
    z = -low / s
    z = _F(255.0) if z > _F(255.0) else z
    floats(scale)[0] = s
    uint8s(zero)[0] = np.uint8(np.int32(np.rint(z)))


@entry("ppppiiu")
def quantize(source, target, scale, zero, count, chunk, unit, thread):
    """round(x / scale) + zero, ties to even, saturated."""
    x, y = floats(source), uint8s(target)
    s, z = floats(scale)[0], _F(uint8s(zero)[0])
    for i in range(unit * chunk, min(count, (unit + 1) * chunk)):
        t = np.rint(x[i] / s) + z
        t = t if t > _F(0.0) else _F(0.0)
        t = t if t < _F(255.0) else _F(255.0)
        y[i] = np.uint8(np.int32(t))


@entry("pppipi")
def zero_point_offsets(totals, zero, offset, columns, padding, count):
    """The offset of each column's sums for the zero point, from the total of its weights; and `count` bytes of padding."""
    t, o, y = ints(totals), ints(offset), uint8s(padding)
    z = np.int64(uint8s(zero)[0])
    for j in range(columns):
        o[j] = -z * t[j]
    for i in range(count):
        y[i] = np.uint8(z)


@entry("pppi")
def expand_scale(scale, by, factor, columns):
    """One scale for all columns, times a number for each."""
    s, b, f = floats(scale)[0], floats(by), floats(factor)
    for j in range(columns):
        f[j] = s * b[j]


@entry("ppiipppiu")
def subtract_rest(sums, out, rows, columns, rest, factor, shift, chunk, unit, thread):
    """Sums less `rest` times the last of each row, in float32 times a factor plus a shift; without a factor as they are."""
    w = ints(rest)
    f, b = floats(factor), floats(shift)
    for r in range(unit * chunk, min(rows, (unit + 1) * chunk)):
        s = ints(sums + 4 * r * (columns + 1))
        total = np.int64(s[columns])
        if factor != 0:
            y = floats(out + 4 * r * columns)
            for j in range(columns):
                y[j] = _F(np.int32(s[j] - w[j] * total)) * f[j] + b[j]
        else:
            z = ints(out + 4 * r * columns)
            for j in range(columns):
                z[j] = s[j] - w[j] * total
