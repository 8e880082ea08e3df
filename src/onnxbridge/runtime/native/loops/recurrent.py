"""One step of an LSTM with the usual activations."""

from __future__ import annotations

import numpy as np

from onnxbridge.runtime.native.loops.convolution import panels
from onnxbridge.runtime.native.loops.curves import sigmoid, tanh
from onnxbridge.runtime.native.loops.data import LANES, floats, longs


def lstm(projected, weight, zero, before, cell, out, gates, tables, batch, hidden, share, unit, part):
    """`share` blocks of hidden units: a vector of each of the gates i o f z lie side by side in `projected` and `weight`.

    `before` is h of the step before, `cell` c, changed in place and filled up to whole vectors.
    """
    blocks = (hidden + LANES - 1) // LANES
    infinite = np.float32(np.inf)
    wide = 4 * LANES
    table, own = tables + 8 * part * batch, gates + 4 * part * batch * wide
    t = longs(table)
    for r in range(batch):
        t[r] = before + 4 * r * hidden
    for block in range(unit * share, min(blocks, (unit + 1) * share)):
        panels(
            table, batch, batch, 1, hidden, weight + 4 * block * hidden * wide, zero, projected + 4 * block * wide,
            blocks * wide, own, wide, wide, -infinite, infinite,
        )  # fmt: skip
        n = min(LANES, hidden - block * LANES)
        for r in range(batch):
            g = floats(own + 4 * r * wide)
            c = floats(cell + 4 * (r * blocks + block) * LANES)
            for i in range(LANES):
                c[i] = sigmoid(g[2 * LANES + i]) * c[i] + sigmoid(g[i]) * tanh(g[3 * LANES + i])
            for i in range(LANES):
                g[i] = sigmoid(g[LANES + i]) * tanh(c[i])
            h = floats(out + 4 * (r * hidden + block * LANES))
            for i in range(n):
                h[i] = g[i]
