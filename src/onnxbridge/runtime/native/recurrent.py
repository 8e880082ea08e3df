"""LSTM layers with constant weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxbridge.runtime.memory import Pool
from onnxbridge.runtime.native.address import Array, address, copy, plain
from onnxbridge.runtime.native.build import loop
from onnxbridge.runtime.native.convolution import Ending, packed, product, whole
from onnxbridge.runtime.native.tape import keep


def lstm(w: Array, r: Array, b: Array | None, reverse: bool, pool: Pool) -> Callable[..., tuple[Array, Array, Array]]:
    """One direction for constant w (4H, I), r (4H, H) and b (8H,): the function of x (S, N, I), h and c (N, H)."""
    hidden = r.shape[1]
    bias = None if b is None else b[: 4 * hidden] + b[4 * hidden :]
    project = product(w.T, bias, Ending(), pool)
    weight, zeros = packed(r.T[None]), np.zeros(whole(4 * hidden), np.float32)
    run = loop("recurrent", "lstm", "iiiiiiiiiiiii")

    def layer(x: Array, h: Array | None, c: Array | None) -> tuple[Array, Array, Array]:
        steps, batch = x.shape[:2]
        projected = project(x)
        start = keep(np.zeros((batch, hidden), np.float32)) if h is None else plain(h, pool)
        cell, before = pool.empty((batch, hidden)), keep(np.zeros((batch, hidden), np.float32)) if c is None else c
        copy(before, cell)
        y = pool.empty((steps, batch, hidden))
        gates, (held, table) = pool.empty((batch, 4 * hidden)), pool.scratch(8 * batch)
        run(
            address(projected), address(weight), address(zeros), address(start), address(cell), address(y), batch * hidden,
            address(gates), table, steps, batch, hidden, int(reverse),
        )  # fmt: skip
        del held  # it had to live until here
        return y, y[0 if reverse else -1], cell

    return layer
