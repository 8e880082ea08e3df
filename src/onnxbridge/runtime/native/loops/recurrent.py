"""The steps of an LSTM with the usual activations."""

from __future__ import annotations

import numpy as np

from onnxbridge.runtime.native.loops.convolution import panels
from onnxbridge.runtime.native.loops.curves import sigmoid, tanh
from onnxbridge.runtime.native.loops.data import floats, longs


def lstm(projected, weight, zero, first, cell, out, outstep, gates, table, steps, batch, hidden, reverse):
    """projected: (steps, batch, 4 hidden), gates i o f z; `first` is h before the first step, `cell` c, changed in place."""
    t = longs(table)
    infinite = np.float32(np.inf)
    wide = 4 * hidden
    for k in range(steps):
        at = steps - 1 - k if reverse != 0 else k
        before = first if k == 0 else out + 4 * (at + 1 if reverse != 0 else at - 1) * outstep
        for r in range(batch):
            t[r] = before + 4 * r * hidden
        plus = projected + 4 * at * batch * wide
        panels(table, batch, batch, 1, hidden, weight, zero, plus, wide, gates, wide, wide, -infinite, infinite)
        for r in range(batch):
            g = floats(gates + 4 * r * wide)
            c = floats(cell + 4 * r * hidden)
            h = floats(out + 4 * (at * outstep + r * hidden))
            for i in range(hidden):
                c[i] = sigmoid(g[2 * hidden + i]) * c[i] + sigmoid(g[i]) * tanh(g[3 * hidden + i])
            for i in range(hidden):
                h[i] = sigmoid(g[hidden + i]) * tanh(c[i])
