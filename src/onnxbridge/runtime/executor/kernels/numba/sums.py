"""Sums over an axis: of the elements, of their squares or of their magnitudes."""

from __future__ import annotations

import numpy as np

from onnxbridge.runtime.executor.kernels.compile.jit import entry, helper
from onnxbridge.runtime.executor.kernels.numba.memory import floats

_F = np.float32


@helper
def _summed(kind, x, begin, end):
    s = _F(0.0)
    if kind == 0:
        for i in range(begin, end):
            s += x[i]
    elif kind == 1:
        for i in range(begin, end):
            s += x[i] * x[i]
    else:
        for i in range(begin, end):
            s += abs(x[i])
    return s


@entry("iippiiiiu")
def total(kind, root, source, target, outer, count, inner, chunk, unit, thread):
    """Sums (outer, count, inner) to (outer, inner), then takes the square root if `root` is not 0."""
    for o in range(unit * chunk, min(outer, (unit + 1) * chunk)):
        y = floats(target + 4 * o * inner)
        if inner == 1:
            y[0] = _summed(kind, floats(source + 4 * o * count), 0, count)
        else:
            for i in range(inner):
                y[i] = _F(0.0)
            for c in range(count):
                x = floats(source + 4 * (o * count + c) * inner)
                if kind == 0:
                    for i in range(inner):
                        y[i] += x[i]
                elif kind == 1:
                    for i in range(inner):
                        y[i] += x[i] * x[i]
                else:
                    for i in range(inner):
                        y[i] += abs(x[i])
        if root != 0:
            for i in range(inner):
                y[i] = np.sqrt(y[i])
