"""One step of an LSTM, GRU or RNN: the hidden units in blocks of a vector, whose gates are adjacent.

`projected` is the input's part of the gates of each sample, `weight` and `bias` give the part of `hidden_state`, the h of the
step before. A piece of the work is `share` blocks.
"""

from __future__ import annotations

import numpy as np

from onnxbridge.runtime.executor.kernels.compile.jit import entry, helper
from onnxbridge.runtime.executor.kernels.numba.activations import sigmoid, tanh
from onnxbridge.runtime.executor.kernels.numba.convolution import panels
from onnxbridge.runtime.executor.kernels.numba.memory import LANES, floats, longs


@helper
def row_addresses(table, hidden_state, batch, hidden):
    """The addresses of the samples' hidden states."""
    t = longs(table)
    for r in range(batch):
        t[r] = hidden_state + 4 * r * hidden


@helper
def recurrent_gates(table, batch, hidden, weight, bias, block, wide, add, addstep, out):
    """A block's gates: the weights times h, plus the bias, plus an addend unless its address is 0."""
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
def update_cell(gates, cell):
    """A block of an LSTM's cell from its gates, and h, which replaces the first gate."""
    g, c = floats(gates), floats(cell)
    for i in range(LANES):
        c[i] = sigmoid(g[2 * LANES + i]) * c[i] + sigmoid(g[i]) * tanh(g[3 * LANES + i])
    for i in range(LANES):
        g[i] = sigmoid(g[LANES + i]) * tanh(c[i])


@entry("ppppii")
def lstm_cell(projected, recurrent_gates, cell, out, batch, hidden):
    """A step of an LSTM whose product with h, `recurrent_gates`, was computed before; it is overwritten."""
    blocks = (hidden + LANES - 1) // LANES
    for r in range(batch):
        for block in range(blocks):
            at = 4 * (r * blocks + block) * LANES
            x, g = floats(projected + 4 * at), floats(recurrent_gates + 4 * at)
            for i in range(4 * LANES):
                g[i] += x[i]
            update_cell(recurrent_gates + 4 * at, cell + at)
            store(recurrent_gates + 4 * at, out, r, block, hidden)


@entry("ppppppppiiiu")
def lstm(projected, weight, bias, hidden_state, cell, out, gates, tables, batch, hidden, share, unit, thread):
    """Gates i o f z with the usual activations; `cell` is c, updated in place and padded to whole vectors."""
    blocks, wide = (hidden + LANES - 1) // LANES, 4 * LANES
    table, own = tables + 8 * thread * batch, gates + 4 * thread * batch * wide
    row_addresses(table, hidden_state, batch, hidden)
    for block in range(unit * share, min(blocks, (unit + 1) * share)):
        recurrent_gates(table, batch, hidden, weight, bias, block, wide, projected + 4 * block * wide, blocks * wide, own)
        for r in range(batch):
            update_cell(own + 4 * r * wide, cell + 4 * (r * blocks + block) * LANES)
            store(own + 4 * r * wide, out, r, block, hidden)


@entry("ppppppppiiiu")
def gru(projected, weight, bias, hidden_state, last, out, gates, tables, batch, hidden, share, unit, thread):
    """Gates z r h with the usual activations, the reset after the product; `last` is h, padded to whole vectors."""
    blocks, wide = (hidden + LANES - 1) // LANES, 3 * LANES
    table, own = tables + 8 * thread * batch, gates + 4 * thread * batch * wide
    row_addresses(table, hidden_state, batch, hidden)
    for block in range(unit * share, min(blocks, (unit + 1) * share)):
        recurrent_gates(table, batch, hidden, weight, bias, block, wide, 0, 0, own)
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
def rnn(projected, weight, bias, hidden_state, last, out, gates, tables, batch, hidden, share, unit, thread):
    """A tanh of the one gate, or where there is no `last` its positive part."""
    blocks, wide = (hidden + LANES - 1) // LANES, LANES
    table, own = tables + 8 * thread * batch, gates + 4 * thread * batch * wide
    row_addresses(table, hidden_state, batch, hidden)
    for block in range(unit * share, min(blocks, (unit + 1) * share)):
        recurrent_gates(table, batch, hidden, weight, bias, block, wide, projected + 4 * block * wide, blocks * wide, own)
        for r in range(batch):
            g = floats(own + 4 * r * wide)
            for i in range(LANES):
                g[i] = tanh(g[i]) if last != 0 else (g[i] if not g[i] < np.float32(0) else np.float32(0))
            store(own + 4 * r * wide, out, r, block, hidden)
