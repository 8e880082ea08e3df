"""Normalization along the last axis, and attention."""

from __future__ import annotations

import numpy as np

from onnxbridge.runtime.executor.kernels.compile.jit import entry, helper
from onnxbridge.runtime.executor.kernels.numba.activations import exp
from onnxbridge.runtime.executor.kernels.numba.convolution import pack, panels
from onnxbridge.runtime.executor.kernels.numba.memory import LANES, floats, longs, uint8s

_F = np.float32


@entry("ppiiippfu")
def normalize(source, target, rows, columns, chunk, scale, shift, epsilon, unit, thread):
    """LayerNormalization; without a shift its address is 0."""
    a, b = floats(scale), floats(shift)
    for r in range(unit * chunk, min(rows, (unit + 1) * chunk)):
        x, y = floats(source + 4 * r * columns), floats(target + 4 * r * columns)
        s = _F(0.0)
        for i in range(columns):
            s += x[i]
        mean = s / _F(columns)
        v = _F(0.0)
        for i in range(columns):
            d = x[i] - mean
            v += d * d
        inverse = _F(1.0) / np.sqrt(v / _F(columns) + epsilon)
        if shift != 0:
            for i in range(columns):
                y[i] = (x[i] - mean) * inverse * a[i] + b[i]
        else:
            for i in range(columns):
                y[i] = (x[i] - mean) * inverse * a[i]


@helper
def _softened(y, columns):
    """Softmax of a row, in place."""
    top = _F(-np.inf)
    for i in range(columns):
        top = top if y[i] <= top else y[i]
    total = _F(0.0)
    for i in range(columns):
        e = exp(y[i] - top)
        y[i] = e
        total += e
    scale = _F(1.0) / total
    for i in range(columns):
        y[i] *= scale


@entry("ppiiiu")
def average(source, target, rows, columns, chunk, unit, thread):
    """The mean of each row."""
    y = floats(target)
    for r in range(unit * chunk, min(rows, (unit + 1) * chunk)):
        x = floats(source + 4 * r * columns)
        s = _F(0.0)
        for i in range(columns):
            s += x[i]
        y[r] = s / _F(columns)


@entry("ppiiiu")
def softmax(source, target, rows, columns, chunk, unit, thread):
    for r in range(unit * chunk, min(rows, (unit + 1) * chunk)):
        x, y = floats(source + 4 * r * columns), floats(target + 4 * r * columns)
        for i in range(columns):
            y[i] = x[i]
        _softened(y, columns)


@helper
def hide(scores, mask, kind, step, columns, factor, seen):
    """A row of scores times the factor, with what the mask adds (kind 1) or hides (2); `seen` are visible anyhow."""
    y = floats(scores)
    if kind == 1:
        m = floats(mask)
        if step == 1:
            for j in range(columns):
                y[j] = y[j] * factor + m[j]
        else:
            for j in range(columns):
                y[j] = y[j] * factor + m[j * step]
    elif kind == 2:
        o = uint8s(mask)
        for j in range(columns):
            y[j] = y[j] * factor if o[j * step] != 0 else _F(-np.inf)
    else:
        for j in range(columns):
            y[j] = y[j] * factor
    for j in range(max(0, seen), columns):
        y[j] = _F(-np.inf)


@helper
def visible(row, columns):
    """Whether any score of a row is more than -inf, NaN too."""
    y, found = floats(row), 0
    for j in range(columns):
        found += np.int64(y[j] != _F(-np.inf))
    return found


@entry("ppppppppfu")
def attend(query, key, value, mask, target, scratch, zeros, spec, factor, unit, thread):
    """softmax(factor * query key + mask) value for one head; the key is (depth, columns), all with their strides.

    After the sizes and strides the spec has: rows at a time, bytes of scratch memory, heads that share a key, the kind of mask
    and its strides in elements, whether a query attends only keys up to its own position, and whether one without keys gives 0.
    """
    s = longs(spec)
    heads, rows, columns, depth, wide = s[1], s[2], s[3], s[4], s[5]
    block, shared, kind, causal, zero_hidden = s[20], s[22], s[23], s[28], s[29]
    size = 4 if kind == 1 else 1
    padded, filled = (columns + LANES - 1) // LANES * LANES, (wide + LANES - 1) // LANES * LANES
    keys = scratch + thread * s[21]
    values = keys + 4 * depth * padded
    scores = values + 4 * columns * filled
    table = scores + 4 * block * padded
    t = longs(table)
    infinite = _F(np.inf)
    b, h = unit // heads, unit % heads
    key_head = h // shared
    pack(key + 4 * (b * s[9] + key_head * s[10]), keys, 1, depth, columns, 0, s[11], s[12], depth)
    pack(value + 4 * (b * s[13] + key_head * s[14]), values, 1, columns, wide, 0, s[15], s[16], columns)
    for start in range(0, rows, block):
        n = min(block, rows - start)
        for r in range(n):
            t[r] = query + 4 * (b * s[6] + h * s[7] + (start + r) * s[8])
        panels(table, block, n, 1, depth, keys, zeros, 0, 0, scores, padded, columns, -infinite, infinite)
        for r in range(n):
            row = scores + 4 * r * padded
            t[r] = row
            y = floats(row)
            at = start + r
            seen = min(columns, at + 1) if causal != 0 else columns
            hide(row, mask + size * (b * s[24] + h * s[25] + at * s[26]), kind, s[27], columns, factor, seen)
            if zero_hidden != 0 and visible(row, columns) == 0:
                for j in range(columns):
                    y[j] = _F(0.0)
            else:
                _softened(y, columns)
        out = target + 4 * (b * s[17] + h * s[18] + start * s[19])
        panels(table, block, n, 1, columns, values, zeros, 0, 0, out, s[19], wide, -infinite, infinite)
