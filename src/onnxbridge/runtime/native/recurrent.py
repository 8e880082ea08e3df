"""LSTM layers with constant weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxbridge.runtime.memory import Pool
from onnxbridge.runtime.native.address import Array, address, copy, plain
from onnxbridge.runtime.native.build import loop
from onnxbridge.runtime.native.convolution import Ending, packed, product, whole
from onnxbridge.runtime.native.drive import threads
from onnxbridge.runtime.native.machine import lanes
from onnxbridge.runtime.native.share import portions
from onnxbridge.runtime.native.tape import keep

Layer = Callable[[Array, Array | None, Array | None, Array], Array]


def lstm(w: Array, r: Array, b: Array | None, reverse: bool, pool: Pool) -> Layer:
    """One direction for constant w (4H, I), r (4H, H) and b (8H,): the function of x (S, N, I), h and c (N, H) and y (S, N, H).

    It fills y with every h and gives the last c.
    """
    hidden = r.shape[1]
    blocks = whole(hidden) // lanes()
    bias = None if b is None else _blocked(b[: 4 * hidden] + b[4 * hidden :])
    project = product(_blocked(w).T, bias, Ending(), pool)
    weight, zeros = packed(_blocked(r).T[None]), np.zeros(4 * lanes(), np.float32)
    run = loop("recurrent", "lstm", "ppppppppiiiu")

    def layer(x: Array, h: Array | None, c: Array | None, y: Array) -> Array:
        steps, batch = x.shape[:2]
        projected = project(x)
        start = keep(np.zeros((batch, hidden), np.float32)) if h is None else plain(h, pool)
        cell = pool.empty((batch, blocks * lanes()))
        copy(keep(np.zeros((batch, hidden), np.float32)) if c is None else c, cell[:, :hidden])
        share, units = portions(blocks, 4 * hidden * hidden * batch)
        gates, (held, tables) = pool.empty((threads(), batch, 4 * lanes())), pool.scratch(8 * batch * threads())
        order = np.arange(steps)[:: -1 if reverse else 1]
        calls = np.empty((steps, 11), np.int64)
        calls[:, 0] = address(projected) + projected.strides[0] * order
        calls[:, 5] = address(y) + y.strides[0] * order
        calls[0, 3], calls[1:, 3] = address(start), calls[:-1, 5]
        for k, value in (1, address(weight)), (2, address(zeros)), (4, address(cell)), (6, address(gates)), (7, tables):
            calls[:, k] = value
        calls[:, 8:] = batch, hidden, share
        run.each(calls, units)
        del held  # it had to live until here
        return cell[:, :hidden]

    return layer


def _blocked(gates: Array) -> Array:
    """Rows (4H, ...) so that a vector of each gate follows a vector of the other, filled up with zeros."""
    hidden, rest = gates.shape[0] // 4, gates.shape[1:]
    full = np.zeros((4, whole(hidden), *rest), np.float32)
    full[:, :hidden] = gates.reshape(4, hidden, *rest)
    return full.reshape(4, -1, lanes(), *rest).swapaxes(0, 1).reshape(-1, *rest)
