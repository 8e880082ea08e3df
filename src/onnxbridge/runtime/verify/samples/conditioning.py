"""Samples on which a model is well-conditioned, where random ones let rounding move its outputs far.

A text classifier on random bytes, for example, amplifies rounding errors thousands of times, and everything within them passes.
Real text has few different bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxbridge.errors import LimitError
from onnxbridge.runtime.verify.rounding.tolerance import Rounding
from onnxbridge.runtime.verify.runner import Arrays, Runner
from onnxbridge.runtime.verify.samples.accepted import ResultCache, accepts

ILL_CONDITIONED = 0.01
"""The share of an output's range from which on a derived tolerance hides real errors."""
ILL_CONDITIONED_IN_LOW_PRECISION = 0.1
_TIMES_BETTER = 4
_FEW = 16
"""Different integers in an input."""


def well_conditioned(
    samples: Sequence[Arrays], rounding: Rounding, reference: Runner, cache: ResultCache
) -> tuple[list[Arrays], list[str]]:
    """The samples, or simpler ones on which the derived tolerance is several times smaller, and notes for the report.

    Only the first sample is measured, and nothing is tried unless its tolerance is large.
    """
    unchanged: tuple[list[Arrays], list[str]] = (list(samples), [])
    if rounding.reason or not samples:
        return unchanged
    share = rounding.share(samples[0])
    usual = ILL_CONDITIONED_IN_LOW_PRECISION if rounding.simulates_precision else ILL_CONDITIONED
    if share <= usual or not np.isfinite(share) or rounding.is_costly:
        return unchanged
    found: list[tuple[float, int]] = []
    for i, (_, change) in enumerate(_CHANGES):
        changed = _changed(samples[0], change)
        if changed is not None and accepts(reference, changed, cache):
            rounding.forget()
            try:
                found.append((rounding.share(changed), i))
            except LimitError:
                break
    rounding.forget()
    best, i = min(found, default=(share, 0))
    if best * _TIMES_BETTER > share:
        return unchanged
    what, change = _CHANGES[i]
    changed_samples = [_changed(feed, change) or feed for feed in samples]
    if not all(accepts(reference, feed, cache) for feed in changed_samples):
        return unchanged
    reason = f"on others rounding may move an output by {share:.1%} of its range, on these by {best:.2g}"
    return changed_samples, [f"{what}: {reason}"]


def _whole(array: np.ndarray[Any, Any]) -> bool:
    """Whether an array has integers, in any dtype: indices and lengths may be floating-point numbers."""
    return array.dtype.kind in "iu" or (array.dtype.kind == "f" and bool(np.all(array == np.floor(array))))


def _few_integers(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same positions with `_FEW` of the values; sorted integers stay sorted."""
    values = np.unique(array)
    if not _whole(array) or values.size <= _FEW:
        return array
    rng = np.random.default_rng(array.size)
    chosen = rng.choice(values, _FEW, replace=False)
    drawn = chosen[rng.integers(0, _FEW, array.shape)]
    is_sorted = array.ndim and bool(np.all(np.diff(array, axis=-1) >= 0))
    return np.sort(drawn, axis=-1) if is_sorted else np.asarray(drawn)


def _smaller(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array if _whole(array) or array.dtype.kind != "f" else np.asarray(array * array.dtype.type(0.1))


def _between_0_and_1(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if _whole(array) or array.dtype.kind != "f":
        return array
    return np.asarray(np.random.default_rng(array.size).random(array.shape).astype(array.dtype))


_CHANGES: tuple[tuple[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]], ...] = (
    (f"integers have {_FEW} different values", _few_integers),
    ("floating-point numbers are a tenth of normally distributed ones", _smaller),
    ("floating-point numbers are between 0 and 1", _between_0_and_1),
)


def _changed(feed: Arrays, change: Callable[[Any], Any]) -> Arrays | None:
    """The sample with every array changed, None where that changes none."""
    made = {name: change(value) if isinstance(value, np.ndarray) else value for name, value in feed.items()}
    return made if any(made[name] is not value for name, value in feed.items()) else None
