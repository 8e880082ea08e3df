"""The tiles as kernels call them, and plain Python equivalents for processors without them.

The table has a line of `step` addresses for each tap: the addresses of the input rows.
"""

from __future__ import annotations

import numpy as np

from onnxbridge.runtime.executor.kernels import winograd
from onnxbridge.runtime.executor.kernels.compile import float_tiles
from onnxbridge.runtime.executor.kernels.compile.jit import external, helper, shared
from onnxbridge.runtime.executor.kernels.numba.memory import BYTE_LANES, BYTE_PANEL, LANES, floats, int8s, ints, longs, uint8s

_F = np.float32
_PRODUCT = "iiiiiiiiiiiiff"


@helper
def clipped(value, low, high):
    value = low if value < low else value
    return high if value > high else value


@shared
def plain_product(which, taps, depth, table, step, weight, bias, add, addstep, out, outstep, columns, low, high):
    """out[r, :] = clip(bias + add[r, :] + sum over taps and depth of row[tap, r][k] * weight[tap, k, :]).

    `which` is four times the rows, plus the vectors of columns.
    """
    t, b = longs(table), floats(bias)
    wide = which % 4 * LANES
    count = min(wide, columns)
    for r in range(which // 4):
        y = floats(out + 4 * r * outstep)
        if add != 0:
            a = floats(add + 4 * r * addstep)
            for c in range(count):
                y[c] = a[c] + b[c]
        else:
            for c in range(count):
                y[c] = b[c]
        for tap in range(taps):
            x = floats(t[tap * step + r])
            for k in range(depth):
                each, w = x[k], floats(weight + 4 * (tap * depth + k) * wide)
                for c in range(count):
                    y[c] += each * w[c]
        for c in range(count):
            y[c] = clipped(y[c], low, high)


@shared
def plain_channelwise(which, taps, depth, table, step, weight, bias, add, addstep, out, outstep, columns, low, high):
    """out[r, c] = clip(bias + add[r, c] + sum over taps of row[tap, r][c] * weight[tap, c]), for one vector of channels.

    `which` is the rows; `taps` has the first channel in its upper half, `depth` is the distance of the taps' weights.
    """
    t, b, w = longs(table), floats(bias), floats(weight)
    offset, count = 4 * (taps >> 32), min(LANES, columns)
    for r in range(which):
        y = floats(out + 4 * r * outstep)
        for c in range(count):
            total = _F(0.0)
            for tap in range(taps & 0xFFFFFFFF):
                total += floats(t[tap * step + r] + offset)[c] * w[tap * depth + c]
            total += b[c]
            if add != 0:
                total += floats(add + 4 * r * addstep)[c]
            y[c] = clipped(total, low, high)


@shared
def plain_bytes(which, taps, quads, table, step, weight, out):
    """out[r, :] = sum over taps and depth of row[tap, r][k] * weight[tap, k, :]; four k lie together."""
    t, w = longs(table), int8s(weight)
    wide = which % 4 * BYTE_LANES
    for r in range(which // 4):
        y = ints(out + 4 * r * BYTE_PANEL)
        for c in range(wide):
            total = np.int64(0)
            for tap in range(taps):
                x = uint8s(t[tap * step + r])
                for k in range(4 * quads):
                    total += np.int64(x[k]) * np.int64(w[((tap * quads + k // 4) * wide + c) * 4 + k % 4])
            y[c] = np.int32(total)


@shared
def plain_spread(table, planes, step, channels):
    """The input transform of Winograd's algorithm: sixteen positions of a tile into sixteen planes."""
    t, y = longs(table), floats(planes)
    for c in range(channels):
        for r in range(4):
            a, b = floats(t[4 * r])[c], floats(t[4 * r + 1])[c]
            d, e = floats(t[4 * r + 2])[c], floats(t[4 * r + 3])[c]
            at = 4 * r * step + c
            y[at], y[at + step], y[at + 2 * step], y[at + 3 * step] = a - d, b + d, d - b, b - e
        for x in range(4):
            at, line = x * step + c, 4 * step
            a, b, d, e = y[at], y[at + line], y[at + 2 * line], y[at + 3 * line]
            y[at], y[at + line], y[at + 2 * line], y[at + 3 * line] = a - d, b + d, d - b, b - e


@shared
def plain_gather(planes, step, channels, bias, add, out, low, high):
    """The output transform: sixteen planes of a tile into four positions; adds a bias and four rows, and clips."""
    m, b, plus, to = floats(planes), floats(bias), longs(add), longs(out)
    for c in range(channels):
        for y in range(2):
            for x in range(2):
                total = _F(0.0)
                for k in range(3):  # of the columns, after the rows of each
                    at = (k + x) * step + c
                    one, two, three = m[at + 4 * y * step], m[at + 4 * (y + 1) * step], m[at + 4 * (y + 2) * step]
                    part = one + two + three if y == 0 else one - two - three
                    total += part if x == 0 or k == 0 else -part
                k = 2 * y + x
                floats(to[k])[c] = clipped(total + b[c] + floats(plus[k])[c], low, high)


float_tiles.load()
winograd.load()
product = external("onnxbridge_product", _PRODUCT, plain_product)
channelwise = external("onnxbridge_channelwise", _PRODUCT, plain_channelwise)
spread = external("onnxbridge_spread", "iiii", plain_spread)
gather = external("onnxbridge_gather", "iiiiiiff", plain_gather)
