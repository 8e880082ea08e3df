"""One direction of an RNN, GRU or LSTM over a sequence (steps, batch, features)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from onnxbridge.runtime.executor.numpy.kernels.windows import Array

Activation = Callable[[Array], Array]


def _steps(steps: int, reverse: bool, lengths: Array | None, batch: int) -> Iterator[tuple[Array | int, Array | None]]:
    """For each step, the position of each sample, and which samples are within their length."""
    for t in range(steps):
        if lengths is None:
            yield (steps - 1 - t if reverse else t), None
        else:
            yield np.where(t < lengths, lengths - 1 - t, t) if reverse else np.full(batch, t), t < lengths


class _Sequence:
    """Reads inputs and stores hidden states step by step, at the position of each sample."""

    def __init__(self, x: Array, hidden: int, lengths: Array | None, reverse: bool) -> None:
        self.x = x
        self.out: Array = np.zeros((*x.shape[:2], hidden), x.dtype)
        self.rows = np.arange(x.shape[1])
        self.order = _steps(x.shape[0], reverse, lengths, x.shape[1])

    def __iter__(self) -> Iterator[tuple[Array, Array | None, Callable[[Array], None]]]:
        for position, alive in self.order:
            index: Any = position if alive is None else (position, self.rows)

            def put(h: Array, index: Any = index, alive: Array | None = alive) -> None:
                self.out[index] = h if alive is None else np.where(alive[:, None], h, 0)

            yield self.x[index], alive, put


def _keep(alive: Array | None, new: Array, old: Array) -> Array:
    return new if alive is None else np.where(alive[:, None], new, old)


def rnn(
    x: Array, h: Array, w: Array, r: Array, b: Array, *, f: Activation, reverse: bool = False, lengths: Array | None = None
) -> tuple[Array, Array]:
    """h = f(W x + R h + b). x (S, N, I), h (N, H), w (H, I), r (H, H), b (H,): every h (S, N, H) and the last one."""
    projected = _Sequence(np.matmul(x, w.T) + b, h.shape[1], lengths, reverse)
    for xt, alive, put in projected:
        new = f(xt + h @ r.T)
        put(new)
        h = _keep(alive, new, h)
    return projected.out, h


def gru(
    x: Array,
    h: Array,
    w: Array,
    r: Array,
    b: Array,
    rb: Array,
    *,
    f: Activation,
    g: Activation,
    reset_after: bool,
    reverse: bool = False,
    lengths: Array | None = None,
) -> tuple[Array, Array]:
    """Gates stacked as update z, reset r, new n (ONNX's order): w (3H, I), r (3H, H), biases b and rb (3H,).

    n = g(Wn x + bn + reset * (Rn h + rbn)) with `reset_after`, else g(Wn x + bn + Rn (reset * h) + rbn);
    h = (1 - z) * n + z * h.
    """
    size = h.shape[1]
    projected = _Sequence(np.matmul(x, w.T) + b, size, lengths, reverse)
    gates, fresh = r[: 2 * size].T, r[2 * size :].T
    for xt, alive, put in projected:
        zr = f(xt[:, : 2 * size] + h @ gates + rb[: 2 * size])
        z, reset = zr[:, :size], zr[:, size:]
        inner = reset * (h @ fresh + rb[2 * size :]) if reset_after else (reset * h) @ fresh + rb[2 * size :]
        n = g(xt[:, 2 * size :] + inner)
        new = (1 - z) * n + z * h
        put(new)
        h = _keep(alive, new, h)
    return projected.out, h


def lstm(
    x: Array,
    h: Array,
    c: Array,
    w: Array,
    r: Array,
    b: Array,
    *,
    f: Activation,
    g: Activation,
    out: Activation,
    peephole: Array | None = None,
    gate_clip: float | None = None,
    cell_clip: float | None = None,
    couple: bool = False,
    reverse: bool = False,
    lengths: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Gates stacked as input i, output o, forget f, cell z (ONNX's order): w (4H, I), r (4H, H), b (4H,).

    c = f * c + i * z, h = o * out(c); `peephole` is (3H,) for i, o, f. `gate_clip` bounds the inputs of the activations,
    `cell_clip` the cell state, `couple` makes f = 1 - i. Returns every h (S, N, H), the last h and the last c.
    """
    size = h.shape[1]
    projected = _Sequence(np.matmul(x, w.T) + b, size, lengths, reverse)
    back = r.T
    pi, po, pf = np.split(peephole, 3) if peephole is not None else (None, None, None)

    def bound(v: Array) -> Array:
        return v if gate_clip is None else np.clip(v, -gate_clip, gate_clip)

    for xt, alive, put in projected:
        ai, ao, af, az = np.split(xt + h @ back, 4, axis=1)
        if pi is not None:
            ai, af = ai + pi * c, af + pf * c
        i = f(bound(ai))
        forget = 1 - i if couple else f(bound(af))
        cell = forget * c + i * g(bound(az))
        if cell_clip is not None:
            cell = np.clip(cell, -cell_clip, cell_clip)
        o = f(bound(ao if po is None else ao + po * cell))
        new = o * out(cell)
        put(new)
        h, c = _keep(alive, new, h), _keep(alive, cell, c)
    return projected.out, h, c
