"""Measures of the distance between two outputs.

All get two arrays of equal shape that are not empty, in float64 (`ulp`: as they are). Elements that are equal in both, NaN and
infinities included, have no error; one that is NaN or infinite in only one of the two makes the result the worst there is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def max_abs(reference: Array, candidate: Array) -> float:
    """The largest absolute error."""
    return float(_errors(reference, candidate).max())


def max_rel(reference: Array, candidate: Array) -> float:
    """The largest relative error among elements above a thousandth of the largest, near zero it means nothing; infinite if the
    reference is zero throughout."""
    errors, scale = _errors(reference, candidate), np.abs(_finite(reference))
    if not errors.any():
        return 0.0
    if not scale.any() or not np.isfinite(errors).all():
        return math.inf
    significant = scale > 1e-3 * scale.max()
    return float((errors[significant] / scale[significant]).max())


def percentile(share: float) -> Callable[[Array, Array], float]:
    """The absolute error that this percentage of the elements does not exceed."""

    def measure(reference: Array, candidate: Array) -> float:
        return float(np.percentile(_errors(reference, candidate), share, method="higher"))

    return measure


def cosine(reference: Array, candidate: Array) -> float:
    """The cosine of the angle between the two outputs as vectors: 1 for the same direction; 0 if just one of them is zero."""
    if not np.isfinite(_errors(reference, candidate)).all():
        return -1.0
    a, b = (_finite(values).reshape(-1) for values in (reference, candidate))
    a, b = (v / max(float(np.abs(v).max()), np.finfo(np.float64).tiny) for v in (a, b))  # no overflow in the squares
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.clip(np.dot(a, b) / norm, -1, 1)) if norm else float(not a.any() and not b.any())


def snr(reference: Array, candidate: Array) -> float:
    """The signal-to-noise ratio in dB: the power of the reference over that of the error; infinite without an error."""
    errors = _errors(reference, candidate)
    if not np.isfinite(errors).all():
        return -math.inf
    noise, signal = (float(np.linalg.norm(v.reshape(-1))) for v in (errors, _finite(reference)))
    return math.inf if not noise else 20 * math.log10(signal / noise) if signal else -math.inf


def agreement(k: int) -> Callable[[Array, Array], float | None]:
    """The share of rows (last axis) whose largest element in the reference is among the `k` largest of the candidate.

    None for outputs without rows of more than one element. Equal elements are all among the largest.
    """

    def measure(reference: Array, candidate: Array) -> float | None:
        if not reference.ndim or reference.shape[-1] < 2:
            return None
        a, b = (v.reshape(-1, v.shape[-1]) for v in (reference, candidate))
        best = np.argmax(np.where(np.isnan(a), -np.inf, a), axis=1)
        b = np.where(np.isnan(b), -np.inf, b)
        least = np.sort(b, axis=1)[:, -min(k, b.shape[1])]
        same_nan = np.array_equal(np.isnan(reference), np.isnan(candidate))
        return float(np.mean(b[np.arange(len(b)), best] >= least)) if same_nan else 0.0

    return measure


def _finite(values: Array) -> Array:
    """The values, with zeros for NaN and infinities, which are equal in both outputs where this is called."""
    return np.asarray(np.where(np.isfinite(values), values, 0.0))


def _errors(reference: Array, candidate: Array) -> Array:
    """The absolute error of each element, infinite where only one is NaN or infinite."""
    same = (reference == candidate) | (np.isnan(reference) & np.isnan(candidate))
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(reference - candidate)
    return np.asarray(np.where(same, 0.0, np.where(np.isnan(difference), np.inf, difference)))


def ulp(reference: Array, candidate: Array) -> float:
    """The largest number of steps from one representable number to the next, in the reference's dtype, between two elements.

    Near zero the steps are tiny, so that it is large for elements that cancel. Integers: the absolute error.
    """
    if reference.dtype.kind in "biu":
        return max_abs(reference.astype(np.float64), candidate.astype(np.float64))
    a, b = reference, candidate.astype(reference.dtype)
    if not np.isfinite(_errors(a.astype(np.float64), candidate.astype(np.float64))).all():
        return math.inf
    x, y = _ordered(a), _ordered(b)
    across_zero = np.abs(x.astype(np.float64)) + np.abs(y.astype(np.float64))  # the difference may exceed 64 bits
    steps = np.where((x < 0) == (y < 0), np.abs(x - y), across_zero)
    return float(np.where(np.isnan(a), 0, steps).max())


def _ordered(values: Array) -> Array:
    """Floating-point numbers as numbers that count them in order, both zeros as 0."""
    width = 8 * values.dtype.itemsize
    bits = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
    magnitude = (bits & bits.dtype.type((1 << width - 1) - 1)).astype(np.int64)
    return np.asarray(np.where(bits >> (width - 1), -magnitude, magnitude))
