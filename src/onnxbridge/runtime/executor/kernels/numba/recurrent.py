"""One step of an LSTM, GRU or RNN: the hidden units in blocks of a vector, whose gates lie side by side.

`projected` has the input's part of the gates for each sample, `weight` and `bias` make the part of `before`, which is h of the
step before. A piece of the work is `share` blocks.
"""

from __future__ import annotations

import numpy as np

from onnxbridge.runtime.executor.kernels.compile.jit import entry, helper
from onnxbridge.runtime.executor.kernels.numba.activations import sigmoid, tanh
from onnxbridge.runtime.executor.kernels.numba.convolution import panels
from onnxbridge.runtime.executor.kernels.numba.memory import LANES, floats, longs


@helper
def rows(table, before, batch, hidden):
    """Where the samples' hidden states lie."""
    t = longs(table)
    for r in range(batch):
        t[r] = before + 4 * r * hidden


@helper
def again(table, batch, hidden, weight, bias, block, wide, add, addstep, out):
    """A block's gates: the weights times h, plus the bias, plus what is to be added unless its address is 0."""
    infinite = np.float32(np.inf)
    panels(
        table, batch, batch, 1, hidden, weight + 4 * block * hidden * wide, bias + 4 * block * wide,
        add, addstep, out, wide, wide, -infinite, infinite,
    )  # fmt: skip


@helper
def store(source, out, row, block, hidden):
    """The valid part of a block of h."""
    x, h = floats(source), floats(out + 4 * (row * hidden + block * LANES))
    for i in range(min(LANES, hidden - block * LANES)):
        h[i] = x[i]


@helper
def remember(gates, cell):
    """A block of an LSTM's cell from its gates, and h in the place of the first of them."""
    g, c = floats(gates), floats(cell)
    for i in range(LANES):
        c[i] = sigmoid(g[2 * LANES + i]) * c[i] + sigmoid(g[i]) * tanh(g[3 * LANES + i])
    for i in range(LANES):
        g[i] = sigmoid(g[LANES + i]) * tanh(c[i])


@entry("ppppii")
def lstm_cell(projected, again, cell, out, batch, hidden):
    """A step of an LSTM whose product with h, `again`, was made elsewhere; it is used up."""
    blocks = (hidden + LANES - 1) // LANES
    for r in range(batch):
        for block in range(blocks):
            at = 4 * (r * blocks + block) * LANES
            x, g = floats(projected + 4 * at), floats(again + 4 * at)
            for i in range(4 * LANES):
                g[i] += x[i]
            remember(again + 4 * at, cell + at)
            store(again + 4 * at, out, r, block, hidden)


@entry("ppppppppiiiu")
def lstm(projected, weight, bias, before, cell, out, gates, tables, batch, hidden, share, unit, part):
    """Gates i o f z with the usual activations; `cell` is c, changed in place and filled up to whole vectors."""
    blocks, wide = (hidden + LANES - 1) // LANES, 4 * LANES
    table, own = tables + 8 * part * batch, gates + 4 * part * batch * wide
    rows(table, before, batch, hidden)
    for block in range(unit * share, min(blocks, (unit + 1) * share)):
        again(table, batch, hidden, weight, bias, block, wide, projected + 4 * block * wide, blocks * wide, own)
        for r in range(batch):
            remember(own + 4 * r * wide, cell + 4 * (r * blocks + block) * LANES)
            store(own + 4 * r * wide, out, r, block, hidden)


@entry("ppppppppiiiu")
def gru(projected, weight, bias, before, last, out, gates, tables, batch, hidden, share, unit, part):
    """Gates z r h with the usual activations, the reset after the product; `last` is h, filled up to whole vectors."""
    blocks, wide = (hidden + LANES - 1) // LANES, 3 * LANES
    table, own = tables + 8 * part * batch, gates + 4 * part * batch * wide
    rows(table, before, batch, hidden)
    for block in range(unit * share, min(blocks, (unit + 1) * share)):
        again(table, batch, hidden, weight, bias, block, wide, 0, 0, own)
        for r in range(batch):
            g = floats(own + 4 * r * wide)
            x = floats(projected + 4 * (r * blocks + block) * wide)
            h = floats(last + 4 * (r * blocks + block) * LANES)
            for i in range(LANES):
                z = sigmoid(x[i] + g[i])
                n = tanh(x[2 * LANES + i] + sigmoid(x[LANES + i] + g[LANES + i]) * g[2 * LANES + i])
                h[i] = n + z * (h[i] - n)
            store(last + 4 * (r * blocks + block) * LANES, out, r, block, hidden)


@entry("ppppppppiiiu")
def rnn(projected, weight, bias, before, last, out, gates, tables, batch, hidden, share, unit, part):
    """A tanh of the one gate, or where there is no `last` its positive part."""
    blocks, wide = (hidden + LANES - 1) // LANES, LANES
    table, own = tables + 8 * part * batch, gates + 4 * part * batch * wide
    rows(table, before, batch, hidden)
    for block in range(unit * share, min(blocks, (unit + 1) * share)):
        again(table, batch, hidden, weight, bias, block, wide, projected + 4 * block * wide, blocks * wide, own)
        for r in range(batch):
            g = floats(own + 4 * r * wide)
            for i in range(LANES):
                g[i] = tanh(g[i]) if last != 0 else (g[i] if not g[i] < np.float32(0) else np.float32(0))
            store(own + 4 * r * wide, out, r, block, hidden)
