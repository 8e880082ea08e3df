"""Transposed convolutions as ordinary ones: outputs that are a stride apart are a convolution with every stride-th weight.

With stride s, the outputs at positions p, p + s, p + 2s, ... (for each p below s) see only the weights p, p + s, ..., mirrored,
so nothing is multiplied by zeros between the inputs and nothing is added up twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.kernels.array_layout import Array, copy, first, last
from onnxbridge.runtime.executor.kernels.convolution import Epilogue, convolution
from onnxbridge.runtime.executor.numpy.padding import Window

Moves = Callable[[Array], tuple[Window, tuple[int, ...]]]


def transposed_convolution(
    w: Array, bias: Array | None, moves: Moves, strides: tuple[int, int], groups: int, epilogue: Epilogue, pool: Pool
) -> Callable[..., Array]:
    """The function of x for constant weights (M, C/groups, KH, KW); `moves(x)` gives the window and the output's sizes."""
    phases_at = [(p, q) for p in range(strides[0]) for q in range(strides[1])]
    phases = [_phase(w, bias, phase, strides, moves, groups, epilogue, pool) for phase in phases_at]

    def run(x: Array) -> Array:
        _, out = moves(x)
        claim((x.shape[0], w.shape[0], *out), np.float32)
        y = pool.empty((x.shape[0], *out, w.shape[0]))
        data = first(last(x, pool))
        for axes, run in phases:
            (top, rows, _), (left, columns, _) = axes(x)
            if rows and columns:
                part = run(data).transpose(0, 2, 3, 1)
                copy(part, y[:, top :: strides[0], left :: strides[1]])
        return first(y)

    run.how = ("a convolution for each phase", w[0].size)  # type: ignore[attr-defined]
    return run


def _phase(
    w: Array,
    bias: Array | None,
    phase: tuple[int, int],
    strides: tuple[int, int],
    moves: Moves,
    groups: int,
    epilogue: Epilogue,
    pool: Pool,
) -> tuple[Callable[[Array], list[tuple[int, int, Any]]], Callable[..., Array]]:
    """The outputs of one phase: their positions for an input, and the convolution that computes them."""
    seen = w[:, :, phase[0] :: strides[0], phase[1] :: strides[1]][:, :, ::-1, ::-1]
    if not seen.size:  # a kernel smaller than its strides has phases without weights
        seen = np.zeros((*w.shape[:2], 1, 1), np.float32)
    taps = seen.shape[2:]

    def axes(x: Array) -> list[tuple[int, int, Any]]:
        """On each axis: the first output, how many there are, and the padding of the convolution."""
        moved, out = moves(x)
        found = []
        for size, end, stride, start, count, (pad, _) in zip(x.shape[2:], out, strides, phase, taps, moved.pads, strict=True):
            index = -((start - pad) // stride)  # of the first output that is not cropped
            begin = index * stride + start - pad
            outputs = max(0, -(-(end - begin) // stride))
            found.append((begin, outputs, (count - 1 - index, index + outputs - size)))
        return found

    def window(x: Array) -> Window:
        (_, _, rows), (_, _, columns) = axes(x)
        return Window(taps, (1, 1), (1, 1), (rows, columns))

    return axes, convolution(np.ascontiguousarray(seen), bias, window, groups, epilogue, pool, True)
