"""Resize of (batch, row, column, channel): each output row is interpolated between input rows, then along them."""

from __future__ import annotations

from onnxbridge.runtime.executor.kernels.compile.jit import entry, helper
from onnxbridge.runtime.executor.kernels.numba.memory import floats, longs


@helper
def blended(first, second, a, b, target, count):
    """a of one row and b of the other."""
    u, v, y = floats(first), floats(second), floats(target)
    for i in range(count):
        y[i] = u[i] * a + v[i] * b


@helper
def scaled(source, a, target, count):
    """a times a row."""
    u, y = floats(source), floats(target)
    for i in range(count):
        y[i] = u[i] * a


@helper
def added(source, a, target, count):
    """A row, and a times another."""
    u, y = floats(source), floats(target)
    for i in range(count):
        y[i] += u[i] * a


@entry("ppppppppu")
def resize(source, target, rows, heights, columns, widths, scratch, spec, unit, thread):
    """One row of the result. `rows` and `columns` (taps, outputs) index the input, `heights` and `widths` are the weights.

    A single tap has the weight 1. The spec has the sizes of the input and of the result, the taps, and bytes of scratch memory.
    """
    s = longs(spec)
    height, width, channels, high, wide = s[0], s[1], s[2], s[3], s[4]
    n, oy = unit // high, unit % high
    r, c = longs(rows), longs(columns)
    h, w = floats(heights), floats(widths)
    size = 4 * width * channels
    whole = source + n * height * size
    line = whole + r[oy] * size
    if s[5] == 2:
        line = scratch + thread * s[7]
        blended(whole + r[oy] * size, whole + r[high + oy] * size, h[oy], h[high + oy], line, width * channels)
    elif s[5] > 2:
        line = scratch + thread * s[7]
        scaled(whole + r[oy] * size, h[oy], line, width * channels)
        for t in range(1, s[5]):
            added(whole + r[t * high + oy] * size, h[t * high + oy], line, width * channels)
    for ox in range(wide):
        y = target + 4 * (unit * wide + ox) * channels
        first = line + 4 * c[ox] * channels
        if s[6] == 1:
            u, v = floats(first), floats(y)
            for i in range(channels):
                v[i] = u[i]
        elif s[6] == 2:
            blended(first, line + 4 * c[wide + ox] * channels, w[ox], w[wide + ox], y, channels)
        else:
            scaled(first, w[ox], y, channels)
            for t in range(1, s[6]):
                added(line + 4 * c[t * wide + ox] * channels, w[t * wide + ox], y, channels)
