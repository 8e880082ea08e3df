"""Sums and means, in the order of NumPy or of others.

NumPy adds pairs of partial sums: the rounding error grows with the logarithm of the number of elements. Some libraries, such as
oneDNN in its pooling, add one element after the other, and the error grows with the square root of their number.
`watching_sums` computes as they do, and tells whether that makes a difference for a model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Axis = int | tuple[int, ...] | None

LONG = 2048
"""Here a sum in sequence loses 15 times what one in pairs does (measured); tolerances allow 16 times for the order of sums."""


@dataclass
class SumsSeen:
    """What the sums of a run are like: whether they add in sequence, and whether one was `LONG`."""

    in_sequence: bool
    long: bool = False


_seen: ContextVar[SumsSeen | None] = ContextVar("sums", default=None)


@contextmanager
def watching_sums(in_sequence: bool = False) -> Iterator[SumsSeen]:
    """See whether there are long sums among those that are computed; with `in_sequence`, these are added in sequence."""
    seen = SumsSeen(in_sequence)
    token = _seen.set(seen)
    try:
        yield seen
    finally:
        _seen.reset(token)


def total(x: Array, axis: Axis = None, keepdims: bool = False) -> Any:
    """The sum over an axis or several, in the dtype of the elements."""
    seen = _seen.get()
    if seen is not None and x.dtype.kind == "f":
        axes = _axes(x, axis)
        if math.prod(x.shape[a] for a in axes) >= LONG:
            seen.long = True
            if seen.in_sequence:
                return _in_sequence(x, axes, keepdims)
    return np.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype)


def mean(x: Array, axis: Axis = None, keepdims: bool = False) -> Any:
    """The mean over an axis or several."""
    count = math.prod(x.shape[a] for a in _axes(x, axis))
    if _seen.get() is None or x.dtype.kind != "f" or not count:
        return np.mean(x, axis=axis, keepdims=keepdims)
    return total(x, axis, keepdims) / x.dtype.type(count)


def _axes(x: Array, axis: Axis) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    return tuple(a % x.ndim for a in (axis if isinstance(axis, tuple) else (axis,)))


def _in_sequence(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    kept = [1 if a in axes else size for a, size in enumerate(x.shape)]
    rows = np.moveaxis(x, axes, range(len(axes))).reshape(math.prod(x.shape[a] for a in axes), -1)
    # NumPy adds whole rows one after the other, but would add the elements of a single column in pairs.
    columns = rows.shape[1]
    found: Array = np.add.reduce(np.ascontiguousarray(rows), axis=0) if columns > 1 else np.add.accumulate(rows, axis=0)[-1]
    return found.reshape(kept if keepdims else [size for a, size in enumerate(x.shape) if a not in axes])
