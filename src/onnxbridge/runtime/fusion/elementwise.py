"""Activations and sums by themselves, written into memory that is used again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.runtime.fusion.draft import Draft
from onnxbridge.runtime.fusion.endings import activation
from onnxbridge.runtime.memory import Pool
from onnxbridge.runtime.native.convolution import Ending, bent
from onnxbridge.runtime.plan import Step

_WORTH = 1 << 10  # elements below which NumPy's own is as fast
_BINARY = {"Add": np.add, "Mul": np.multiply, "Sub": np.subtract, "Div": np.divide}


def join(draft: Draft, pool: Pool) -> None:
    """Let what is elementwise in float32 write into the pool's memory."""
    for i, step in draft.steps(*_BINARY):
        draft.swap(i, _binary(step, _BINARY[step.op], pool))
    for i, step in draft.steps():
        ending = activation(draft, step) if step.op != "Clip" else None
        if ending is not None:
            draft.swap(i, _unary(step, ending, pool))


def like(x: Any, pool: Pool, dtype: Any = np.float32) -> Any:
    """Room for a result in the memory order of x."""
    if x.flags.c_contiguous or x.ndim != 4 or not x.transpose(0, 2, 3, 1).flags.c_contiguous:
        return pool.empty(x.shape, dtype)
    n, c, h, w = x.shape
    return pool.empty((n, h, w, c), dtype).transpose(0, 3, 1, 2)


def _binary(step: Step, function: Any, pool: Pool) -> Callable[..., Any]:
    plain = step.run

    def run(A: Any, B: Any) -> Any:
        if A.dtype != np.float32 or B.dtype != np.float32 or max(A.size, B.size) < _WORTH:
            return plain(A, B)
        if A.shape == B.shape or (B.ndim <= A.ndim and np.broadcast_shapes(A.shape, B.shape) == A.shape):
            return function(A, B, out=like(A, pool))
        if A.ndim <= B.ndim and np.broadcast_shapes(A.shape, B.shape) == B.shape:
            return function(A, B, out=like(B, pool))
        return plain(A, B)

    return run


def _unary(step: Step, ending: Ending, pool: Pool) -> Callable[..., Any]:
    plain = step.run

    def run(X: Any, *more: Any, **attrs: Any) -> Any:
        if X.dtype != np.float32 or X.size < _WORTH:
            return plain(X, *more, **attrs)
        if ending.curve:
            return bent(X, ending.kind, ending.a, ending.b, pool)
        return np.maximum(X, np.float32(0), out=like(X, pool))

    return run
