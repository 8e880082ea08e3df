"""The candidate's array in the reference's layout, and a line that describes an array."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_PROBES = 4096


def aligned(reference: Array, candidate: Array) -> Array | None:
    """The candidate transposed and reshaped like the reference, as close to it as an order of axes makes it; None if the sizes
    differ."""
    if reference.dtype.kind in "OUS" or candidate.dtype.kind in "OUS":
        return candidate if reference.shape == candidate.shape else None
    if reference.size != candidate.size:
        return None
    found, best = None, np.inf
    lengths = tuple(n for n in reference.shape if n != 1)
    probes = np.linspace(0, max(reference.size - 1, 0), min(reference.size, _PROBES)).astype(np.int64)
    expected = reference.reshape(-1)[probes].astype(np.float64)
    squeezed = candidate.reshape([n for n in candidate.shape if n != 1])
    orders = list(permutations(range(squeezed.ndim))) if squeezed.ndim <= 5 else [tuple(range(squeezed.ndim))]
    for order in orders:
        moved = squeezed.transpose(order)
        if moved.shape != lengths and order != tuple(range(squeezed.ndim)):
            continue  # only the given order may also be a reshape
        with np.errstate(all="ignore"):
            off = np.abs(moved.reshape(-1)[probes].astype(np.float64) - expected)
            error = float(np.mean(np.where(np.isfinite(off), off, 0.0)))
        if error < best:
            found, best = moved.reshape(reference.shape), error
    return found


def summary(value: Any) -> str:
    """Such as "float32[2, 64, 8, 8], mean -0.12, from -3.2 to 4.1"."""
    array = np.asarray(value)
    head = f"{array.dtype}{list(array.shape)}"
    if array.dtype.kind in "OUSc" or not array.size:
        return head
    numbers = array.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    counts = {"NaN": int(np.isnan(numbers).sum()), "infinite": int(np.isinf(numbers).sum())}
    special = [f"{count} {name}" for name, count in counts.items() if count]
    if not finite.size:
        return ", ".join([head, *special])
    if finite.min() == finite.max():
        return ", ".join([head, f"{finite.min():.6g} throughout", *special])
    return ", ".join([head, f"mean {finite.mean():.4g}", f"from {finite.min():.4g} to {finite.max():.4g}", *special])
