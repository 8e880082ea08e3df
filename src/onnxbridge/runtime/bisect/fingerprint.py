"""A summary of a tensor by which equal values of two models are found, whatever their names and layouts.

Two layouts of one tensor have the same elements in another order, so most numbers here do not depend on the order: counts,
means of powers and roots, extremes. Means along each axis do; they find channels that were swapped.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

LARGE = 1e18
"""Elements beyond it stand for infinity, as in attention masks; frameworks choose different ones, so they are only counted."""
FLOOR = 2.0**-20
"""Differences of a statistic, relative to its scale, that constants rounded to float32 explain."""
ORDERS = 16
"""How much more rounding than our own float32 run another implementation may have, as in verify/rounding/derive_tolerance.py."""
_VECTOR = 1 << 20
"""The elements of vectors up to this length are compared one by one."""


@dataclass(frozen=True)
class Fingerprint:
    """What a tensor holds.

    Attributes:
        kind: "f" for floating point, "i" for integers and booleans, "s" for strings, "c" for complex numbers.
        lengths: the sorted sizes of its axes, without those of 1.
        special: the counts of NaN, positive and negative infinity (large elements included).
        order_free: statistics that no permutation of the elements changes.
        along_axes: for each axis longer than 1, the means over all other axes.
        scale: the mean magnitude of the finite elements.
    """

    kind: str
    shape: tuple[int, ...]
    lengths: tuple[int, ...]
    special: tuple[int, int, int]
    order_free: Array
    along_axes: tuple[Array, ...]
    scale: float

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))


def fingerprint(value: Any) -> Fingerprint | None:
    """The fingerprint of a tensor, None for values that are no tensors (sequences, optionals)."""
    if not isinstance(value, (np.ndarray, np.generic)):
        return None
    array = np.asarray(value)
    shape, lengths = array.shape, tuple(sorted(n for n in array.shape if n != 1))
    if array.dtype.kind in "OUS":
        counted = Counter(map(str, array.reshape(-1).tolist()))
        numbers = np.array([hash(item) % 2.0**52 for item in sorted(counted.items())][:64], np.float64)
        return Fingerprint("s", shape, lengths, (0, 0, 0), numbers, (), 1.0)
    kind = "i" if array.dtype.kind in "iub" else "c" if array.dtype.kind == "c" else "f"
    if kind == "c":
        array = np.stack([array.real, array.imag])
    with np.errstate(all="ignore"):
        x = array.astype(np.float64)  # a copy, in which elements are replaced
        nan, high, low = np.isnan(x), x > LARGE, x < -LARGE
        special = (int(nan.sum()), int(high.sum()), int(low.sum()))
        if any(special):
            x[nan | high | low] = 0.0
        return Fingerprint(kind, shape, lengths, special, _order_free(x.reshape(-1)), _along_axes(x), _mean(np.abs(x)))


def _mean(x: Array) -> float:
    return float(x.mean()) if x.size else 0.0


def _order_free(x: Array) -> Array:
    if not x.size:
        return np.zeros(8)
    magnitude = np.abs(x)
    squares = x * x
    norm = float(np.sqrt(squares.mean()))
    cubes = np.cbrt((squares * x).mean())
    fourth = np.sqrt(np.sqrt((squares * squares).mean()))
    root = float(np.sqrt(magnitude).mean()) ** 2
    return np.array([x.mean(), magnitude.mean(), norm, cubes, fourth, root, x.min(), x.max()])


def _along_axes(x: Array) -> tuple[Array, ...]:
    axes = [axis for axis, length in enumerate(x.shape) if length > 1]
    if len(axes) < 2:
        return (x.reshape(-1),) if axes and x.size <= _VECTOR else ()
    return tuple(x.mean(axis=tuple(a for a in range(x.ndim) if a != axis)).reshape(-1) for axis in axes)


def noise(exact: Fingerprint, rounded: Fingerprint) -> Array:
    """How far rounding moves each statistic: what a float32 run differs by from a float64 run, and at least `FLOOR`."""
    measured = np.abs(exact.order_free - rounded.order_free) if exact.order_free.shape == rounded.order_free.shape else 0.0
    allowed: Array = np.maximum(ORDERS * np.nan_to_num(measured), _floor(exact))
    return allowed


def _floor(one: Fingerprint) -> Array:
    return FLOOR * np.maximum(one.scale, np.abs(one.order_free)) if one.kind in "fc" else np.zeros_like(one.order_free)


def same(a: Fingerprint, b: Fingerprint, allowed: Array | None = None) -> bool:
    """Whether two tensors hold the same, up to their layout and to rounding (`allowed` for each statistic)."""
    if a.kind != b.kind or a.size != b.size or a.special != b.special or a.order_free.shape != b.order_free.shape:
        return False
    limit = _floor(a) if allowed is None else allowed
    with np.errstate(all="ignore"):
        if not (np.abs(a.order_free - b.order_free) <= limit + 1e-300).all():
            return False
        if a.lengths != b.lengths:
            return True  # reshaped: the order of elements cannot be compared
        relative = float(np.max(limit / np.maximum(np.abs(a.order_free), a.scale + 1e-300), initial=0.0))
        return _same_axes(a, b, 8 * relative * max(a.scale, 1e-300))


def _same_axes(a: Fingerprint, b: Fingerprint, limit: float) -> bool:
    """Whether every axis of one is an axis of the other, in any order of axes."""
    if a.kind == "i":
        limit = 1e-9 * max(a.scale, 1.0)
    left = list(b.along_axes)
    for means in a.along_axes:
        equal = (m.shape == means.shape and float(np.abs(m - means).max(initial=0.0)) <= limit for m in left)
        found = next((i for i, same in enumerate(equal) if same), None)
        if found is None:
            return False
        left.pop(found)
    return not left


def distance(a: Fingerprint, b: Fingerprint) -> float:
    """How different two tensors of the same size are: 0 for equal statistics, about 1 for unrelated tensors."""
    if a.size != b.size or a.kind != b.kind or a.order_free.shape != b.order_free.shape:
        return float("inf")
    with np.errstate(all="ignore"):
        scale = np.maximum(np.abs(a.order_free), np.abs(b.order_free)) + max(a.scale, b.scale) + 1e-300
        return float(np.max(np.abs(a.order_free - b.order_free) / scale)) + (0.0 if a.special == b.special else 0.5)
