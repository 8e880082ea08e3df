"""Layers of LSTM, GRU and RNN with constant weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.kernels.array_layout import Array, address, copy, plain
from onnxbridge.runtime.executor.kernels.compile.kernel import load_kernel
from onnxbridge.runtime.executor.kernels.compile.llvm import lanes
from onnxbridge.runtime.executor.kernels.convolution import Epilogue, packed, product, round_to_lanes
from onnxbridge.runtime.executor.kernels.run.call_recorder import retain
from onnxbridge.runtime.executor.kernels.run.thread_pool import threads
from onnxbridge.runtime.executor.kernels.run.work_partition import portions

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}

Layer = Callable[[Array, Array | None, Array | None, Array], Array | None]


def layer(op: str, w: Array, r: Array, b: Array | None, reverse: bool, pool: Pool, relu: bool = False) -> Layer:
    """One direction for constant w (G*H, I), r (G*H, H), b (2*G*H,): the function of x (S, N, I), h and c (N, H), y (S, N, H).

    It fills y with every h, and gives the last c of an LSTM. A GRU's reset comes after the product; `relu`: an RNN's activation.
    """
    count, hidden = GATES[op], r.shape[1]
    blocks, wide = round_to_lanes(hidden) // lanes(), count * lanes()
    input_bias, recurrent_bias = np.split(b, 2) if b is not None else np.zeros((2, count * hidden), np.float32)
    if op == "GRU":  # the reset gate multiplies the last part of the second bias too
        inner = recurrent_bias.copy()
        inner[: 2 * hidden] = 0
        input_bias, recurrent_bias = input_bias + recurrent_bias - inner, inner
    else:
        input_bias, recurrent_bias = input_bias + recurrent_bias, np.zeros_like(recurrent_bias)
    project = product(blocked(w, count).T, blocked(input_bias, count), Epilogue(), pool)
    weight = packed(*(part.T[None] for part in blocked(r, count).reshape(blocks, wide, hidden)))
    bias = blocked(recurrent_bias, count)
    run = load_kernel("recurrent", op.lower())

    def steps(x: Array, h: Array | None, c: Array | None, y: Array) -> Array | None:
        length, batch = x.shape[:2]
        projected = project(x)
        zeros = retain(np.zeros((batch, hidden), np.float32))
        start = zeros if h is None else plain(h, pool)
        state = pool.empty((batch, blocks * lanes()))
        copy(start if op == "GRU" else zeros if c is None else c, state[:, :hidden])
        share, units = portions(blocks, count * hidden * hidden * batch)
        gates, (buffer, tables) = pool.empty((threads(), batch, wide)), pool.scratch(8 * batch * threads())
        order = np.arange(length)[:: -1 if reverse else 1]
        calls = np.empty((length, 11), np.int64)
        calls[:, 0] = address(projected) + projected.strides[0] * order
        calls[:, 5] = address(y) + y.strides[0] * order
        calls[0, 3], calls[1:, 3] = address(start), calls[:-1, 5]
        calls[:, 1], calls[:, 2], calls[:, 4] = address(weight), address(bias), 0 if relu else address(state)
        calls[:, 6], calls[:, 7] = address(gates), tables
        calls[:, 8:] = batch, hidden, share
        run.each(calls, units)
        del buffer  # keep the memory alive until here
        return state[:, :hidden] if op == "LSTM" else None

    return steps


def blocked(gates: Array, count: int) -> Array:
    """Rows (G*H, ...) reordered so that vectors of the gates alternate, padded with zeros."""
    hidden, rest = gates.shape[0] // count, gates.shape[1:]
    full = np.zeros((count, round_to_lanes(hidden), *rest), gates.dtype)
    full[:, :hidden] = gates.reshape(count, hidden, *rest)
    return full.reshape(count, -1, lanes(), *rest).swapaxes(0, 1).reshape(-1, *rest)
